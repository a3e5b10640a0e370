// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/data/shard.hpp>

namespace millrace::inline MILLRACE_ABI {

class rank_words;

/// In which order a concurrent stage yields its results.
enum class order {
  ordered,  ///< as their inputs came: reproducible
  arrival,  ///< as they become ready: no item waits for a slower one, and runs may differ
};

/// Saves the state of a training: epochs() gives one to its stream, and pipeline_run::state() calls it. Any thread.
class stream_position {
 public:
  virtual ~stream_position() = default;
  /// The state after everything up to `delivered`, which must be `whole`; of the beginning if nothing was delivered (it
  /// is not `known`).
  virtual std::string state(const epoch_mark& delivered) const = 0;
  /// The pipeline has windows with this number (stream::windowed), or none (0). Throws configuration_error if the
  /// source resumes inside a window of another number.
  virtual void check_window(std::uint32_t window) const = 0;
  /// No state before `delivered` will be requested: earlier changes need not be kept.
  virtual void passed(const epoch_mark& /*delivered*/) const {}
  /// Batches of an epoch on every rank; nullopt if that is not known beforehand.
  virtual std::optional<std::uint64_t> batches() const = 0;
  /// How far it is after `delivered`, which is known.
  virtual training_place place(const epoch_mark& delivered) const {
    training_place at;
    at.epoch = delivered.epoch;
    return at;
  }
  /// The cost and the result of an epoch, in a few lines for people, before anything is read; empty if they are not
  /// known.
  virtual std::string plan() const = 0;
  /// Samples that the source could not read, by shard, and the policy tolerated.
  virtual std::vector<lost_shard> lost() const = 0;
};

/// The most that one stage holds at once: listed by stream::bounds(), to be checked against a memory budget before
/// anything runs.
struct stage_bounds {
  const char* name;   ///< as in the stage table; lives as long as the pipeline
  std::size_t items;  ///< waiting in the stage or worked on by it; without those that the consumer has taken
  std::size_t bytes;  ///< of those items; 0 if their size cannot be known
};

/// The effect of a stage on the places that epochs() gives its samples: see stream::declares().
enum class place_effect : unsigned char {
  steps,        ///< a source that gives places: `number` entries of each step are one rank's; 0: any number
  uneven,       ///< the ranks do not wait for each other
  makes_empty,  ///< yields empty entries
  needs_items,  ///< cannot pass on an empty entry
  loses,        ///< leaves items out, or places
  unequal,      ///< gives ranks unequally many; `number` 1: of batches, unless items were evened before
  evens,        ///< gives all ranks equally many batches of `number` items
  batches,      ///< makes batches of `number` items
  counts,       ///< counts in marks, see stream::counting(): `number` is a detail::count_of
  stateless,    ///< after it there is no state; `number` 1: as it changes the order
  ends_alone,   ///< may end one rank's stream before those of the others
};

namespace detail {

/// See place_effect::counts.
enum count_of : unsigned char {
  parts,          ///< of a window: no other stage may count
  steps,          ///< of what is made of a step
  steps_or_later  ///< the same, where no later stage counts these
};

/// One of a stage's declarations about places.
struct place_note {
  place_effect effect;
  const char* stage;
  std::uint64_t number;
  const char* why;  // and what to write instead
};

/// The declarations of a pipeline, beside its name: joined by pipes, stage after stage. What moves and ends them is
/// compiled once, since every stage of every pipeline does.
struct stream_description {
  stream_description() noexcept;
  stream_description(stream_description&&) noexcept;
  stream_description& operator=(stream_description&&) noexcept;
  ~stream_description();

  std::vector<stage_bounds> bounds;   // sources first
  std::optional<millrace::rank> rank;  // the first one that was declared
  std::shared_ptr<const stream_position> position;
  bool many_positions = false;  // of several sources: there is no state of them all
  std::uint32_t window = 0;     // see stream::windowed() and counting(): the sum of all
  std::shared_ptr<bool> counted_later;  // see stream::counting(); of the last such stage
  std::size_t batch = 0;        // see stream::batches_of()
  std::shared_ptr<const rank_words> ranks;  // see stream::of_ranks(); the first one that was declared
  std::vector<place_note> places;  // sources first

  /// Moves the declarations out, but for `batch`.
  stream_description taken() noexcept;
  /// Adds the declarations of `later`: of a stage downstream, or of another source.
  void followed_by(stream_description later);
  /// Puts the declarations of `upstream` before its own, and becomes a part of one pipeline with it.
  void follow(stream_description&& upstream);
};

struct stream_access;

}  // namespace detail

/// A pipeline, or a part of one that begins with a source: returned by the sources and the stages of this library, and
/// made by `|`. It is a generator of items, with the declarations of the pipeline: the name of its last stage, the most
/// that its stages hold, and which rank's share of the data it is.
///
/// A user's generator converts to a stream: as the left side of `|`, as an argument of run(), zip() and the like, and
/// as the result of a function that returns a stream. A stage does not need to know streams: it is a coroutine from
/// async_generator<T> to async_generator<U>, and the pipe keeps the declarations. A stage that holds more than one item
/// declares that in the stream that it returns:
///
///     stream<page> prefetched(async_generator<url> from) {
///       return stream(load_pages(std::move(from))).named("pages").bounded(8, 64 * MiB);
///     }
///
/// Items, concurrency, cancellation and errors are those of async_generator; one consumer, by next(). Dropping a stream
/// drops the pipeline. usage_error if an empty stream (moved from, or never made) is read or described.
///
/// A stream converts to a generator only explicitly, by generator(): its declarations are lost then, and run() cannot
/// compare it with a memory budget.
template <class T>
class [[nodiscard("a stream does nothing until its items are asked for")]] stream {
 public:
  using value_type = T;

  stream() noexcept = default;
  stream(async_generator<T>&& generator) noexcept : generator_(std::move(generator)) {}  // NOLINT: meant to convert

  explicit operator bool() const noexcept { return static_cast<bool>(generator_); }

  /// Gives the last stage a line in the stage table, or renames it. `name` must be a literal or live as long as the
  /// run, and so must `advice`: recommended by run_stats::verdict() when this stage waits for its own I/O. An option of
  /// the stage, which is to be raised (".limit"), or another remedy. Empty: nothing helps.
  stream named(const char* name, const char* advice) && {
    stream self = std::move(*this).named(name);
    promise(self).metrics().set_advice(advice);
    return self;
  }
  stream named(const char* name) && {
    detail::generator_promise_base& p = promise(*this);
    if (!about_.bounds.empty() && about_.bounds.back().name == p.metrics().name()) about_.bounds.back().name = name;
    p.metrics().set_name(name);
    return std::move(*this);
  }

  /// Declares the most that the last stage holds at once, under the name given by named() before.
  stream bounded(std::size_t items, std::size_t bytes) && {
    return std::move(*this).bounded(name_or("stage"), items, bytes);
  }
  /// Like the above under another name, a literal: for memory that a stage holds beside its items.
  stream bounded(const char* what, std::size_t items, std::size_t bytes) && {
    promise(*this);
    about_.bounds.push_back(stage_bounds{what, items, bytes});
    return std::move(*this);
  }
  /// The bounds declared by the stages up to this one, sources first.
  std::vector<stage_bounds> bounds() const { return about_.bounds; }

  /// Declares that the items are the share of one process among those that train together: run() shows the progress of
  /// process 0 only, and reports it if a launcher has started several processes and this one believes that it is alone.
  stream of_rank(const rank& r) && {
    promise(*this);
    if (!about_.rank) about_.rank = r;
    return std::move(*this);
  }
  /// The rank declared by of_rank() here or, with precedence, in a stage before; nullopt if it was not called.
  std::optional<rank> declared_rank() const noexcept { return about_.rank; }

  /// Declares the ranks that take this pipeline's items together, equally many each: a run that is asked to stop on one
  /// of them stops on all after the same item.
  stream of_ranks(std::shared_ptr<const rank_words> ranks) && {
    promise(*this);
    about_.ranks = std::move(ranks);
    return std::move(*this);
  }
  /// The ranks declared by of_ranks(); null if it was not called.
  const std::shared_ptr<const rank_words>& ranks() const noexcept { return about_.ranks; }

  /// Declares the object that saves the source's state, for pipeline_run::state().
  stream positioned(std::shared_ptr<const stream_position> position) && {
    promise(*this);
    about_.position = std::move(position);
    return std::move(*this);
  }
  /// The position declared by positioned(); null if it was not called, or by several sources.
  std::shared_ptr<const stream_position> position() const noexcept {
    return about_.many_positions ? nullptr : about_.position;
  }

  /// Declares that a stage changes the order within windows, and the number that identifies its windows
  /// (held_part::stage): a state inside one can be resumed only by pipelines with the same number.
  stream windowed(std::uint32_t number) && {
    promise(*this);
    about_.window = number;
    return std::move(*this).declares(place_effect::counts, detail::count_of::parts);
  }
  /// Declares that a stage makes items whose marks count how much was made of the step that they are of, from its
  /// beginning (held_part::taken), and the number that identifies the stage. After one with `later` another such stage
  /// may come, which then counts for both: *later becomes true before anything runs. The earlier one makes everything
  /// of the step again after a resume, and does not count.
  stream counting(std::uint32_t number, std::shared_ptr<bool> later = nullptr) && {
    promise(*this);
    about_.window = number;
    const detail::count_of what = later != nullptr ? detail::count_of::steps_or_later : detail::count_of::steps;
    about_.counted_later = std::move(later);
    return std::move(*this).declares(place_effect::counts, what);
  }
  /// The number declared by windowed() and counting(): of several, the sum. 0 if they were not called.
  std::uint32_t window() const noexcept { return about_.window; }

  /// Declares what the last stage does with places. run() refuses a pipeline that begins with epochs() and breaks what
  /// that promises: equally many batches on all ranks, and a state after each of them. `why` ends the sentence that
  /// begins with the stage's name (of place_effect::stateless it is the sentence), says what to write instead, and is a
  /// literal.
  stream declares(place_effect effect, std::uint64_t number = 0,
                  const char* why = "it does not keep the places of its items") && {
    about_.places.push_back(detail::place_note{effect, name_or("a stage"), number, why});
    return std::move(*this);
  }

  /// Declares how many of the items are to make a batch: the size of batch() without a number.
  stream batches_of(std::size_t items) && {
    about_.batch = items;
    return std::move(*this);
  }
  /// The size declared last by batches_of(), here or in a stage before; 0 if it was not called.
  std::size_t declared_batch() const noexcept { return about_.batch; }

  /// An estimate of the cost of an epoch of the source, before anything is read: batches, requests, bytes, memory, in a
  /// few lines for people. From epochs() of an index; empty for others. epoch_plan has the numbers, and prices;
  /// runtime::plan() adds the measurements of the stores.
  std::string plan() const {
    const std::shared_ptr<const stream_position> source = position();
    return source == nullptr ? std::string() : source->plan();
  }

  /// Keeps `object` as long as the generator: see async_generator::keep().
  stream keep(std::shared_ptr<void> object) && {
    std::move(generator_).keep(std::move(object));
    return std::move(*this);
  }

  /// See async_generator::next().
  auto next() { return generator_.next(); }
  /// See async_generator::next_in_place().
  auto next_in_place() { return generator_.next_in_place(); }

  /// The generator, with its name and the objects that it keeps; declarations are dropped.
  async_generator<T> generator() && {
    about_ = detail::stream_description();
    return std::move(generator_);
  }

 private:
  friend detail::stream_access;

  static detail::generator_promise_base& promise(stream& s) { return detail::promise_of(s.generator_); }
  const char* name_or(const char* none) {
    const char* const name = promise(*this).metrics().name();
    return name == nullptr || *name == 0 ? none : name;
  }

  async_generator<T> generator_;
  detail::stream_description about_;
};

namespace detail {

/// For pipes, and stages that consume several streams.
struct stream_access {
  /// Moves the declarations out of `s`, but for the size of its batches: a stage of stages looks for that.
  template <class T>
  static stream_description take_description(stream<T>& s) noexcept {
    return s.about_.taken();
  }
  /// `s`, with the declarations of earlier stages before its own.
  template <class T>
  static stream<T>&& continued(stream_description&& upstream, stream<T>&& s) {
    s.about_.follow(std::move(upstream));
    return std::move(s);
  }
  template <class T>
  static const std::vector<place_note>& places(const stream<T>& s) noexcept {
    return s.about_.places;
  }
  /// Gives a stage without a name a line in the stage table, under its number.
  template <class T>
  static void number(stream<T>& s) noexcept {
    if (!s) return;
    hop_metrics& metrics = promise_of(s.generator_).metrics();
    if (metrics.name() == nullptr) metrics.set_name(stage_record::numbered);
  }
  /// Makes the last stage a part of the one that consumes it: no line of its own in the stage table.
  template <class T>
  static stream<T> part_of_next(stream<T> s) {
    promise_of(s.generator_).metrics().set_name(nullptr);
    return s;
  }
};

/// True if it yields items: a stream, or a generator, which converts to one.
template <class Source>
inline constexpr bool is_source_v = false;
template <class T>
inline constexpr bool is_source_v<stream<T>> = true;
template <class T>
inline constexpr bool is_source_v<async_generator<T>> = true;

}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/flow/stream.ipp>
#endif
