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
#include <millrace/data/rank.hpp>
#include <millrace/flow/stream_position.hpp>

namespace millrace {

/// The most that one stage holds at once: what stream::bounds() lists, to be checked against a memory budget before
/// anything runs.
struct stage_bounds {
  const char* name;   ///< as in the stage table; lives as long as the pipeline
  std::size_t items;  ///< waiting in the stage or worked on by it; not what the consumer has taken
  std::size_t bytes;  ///< of those items; 0 where their size cannot be known
};

namespace detail {

/// What a pipeline says about itself, beside its name: joined by pipes, stage after stage.
struct stream_description {
  std::vector<stage_bounds> bounds;   // sources first
  std::optional<millrace::rank> rank;  // the first one that was declared
  std::shared_ptr<const stream_position> position;
  bool many_positions = false;  // of several sources: there is no state of them all
  std::uint32_t window = 0;     // see stream::windowed()

  /// Adds what `later` says: a stage further down, or another source beside this one.
  void followed_by(stream_description later);
};

struct stream_door;

}  // namespace detail

/// A pipeline, or a part of one that begins with a source: what the sources and the stages of this library return, and
/// what `|` makes. It is a generator of items, and what the pipeline says about itself: the name of its last stage, the
/// most that its stages hold, and whose share of the data it is.
///
/// A generator of one's own becomes a stream by itself: as the left side of `|`, as an argument of run(), zip() and
/// their like, and as the result of a function that returns a stream. Nothing of this is needed to write a stage: that
/// is a coroutine from async_generator<T> to async_generator<U>, which the pipe puts between what is said before it
/// and after it. A stage that holds more than an item says so in what it returns:
///
///     stream<page> prefetched(async_generator<url> from) {
///       return stream(load_pages(std::move(from))).named("pages").bounded(8, 64 * MiB);
///     }
///
/// Items, concurrency, cancellation and errors are those of async_generator; one consumer, by next(). Dropping a stream
/// drops the pipeline. usage_error where an empty stream (moved from, or never made) is asked or described.
///
/// A stream becomes a generator again only where that is written, by generator(): what it says is lost then, and
/// run() cannot hold a memory budget against it.
template <class T>
class [[nodiscard("a stream does nothing until its items are asked for")]] stream {
 public:
  using value_type = T;

  stream() noexcept = default;
  stream(async_generator<T>&& generator) noexcept : generator_(std::move(generator)) {}  // NOLINT: meant to convert

  explicit operator bool() const noexcept { return static_cast<bool>(generator_); }

  /// Gives the last stage a line of its own in the stage table, or renames it. `name` must be a literal or live as long
  /// as the run, and so must `advice`: what run_stats::verdict() recommends when this stage waits for its own I/O, an
  /// option of the stage. Empty: nothing helps.
  stream named(const char* name, const char* advice) && {
    stream self = std::move(*this).named(name);
    promise(self).advice_ = advice;
    return self;
  }
  stream named(const char* name) && {
    detail::generator_promise_base& p = promise(*this);
    if (!about_.bounds.empty() && about_.bounds.back().name == p.name_) about_.bounds.back().name = name;
    p.call(name);
    return std::move(*this);
  }

  /// Declares the most that the last stage holds at once, under the name given by named() before.
  stream bounded(std::size_t items, std::size_t bytes) && {
    return std::move(*this).bounded(name_or("stage"), items, bytes);
  }
  /// The same under a name of its own, a literal: for what a stage holds beside its items.
  stream bounded(const char* what, std::size_t items, std::size_t bytes) && {
    promise(*this);
    about_.bounds.push_back(stage_bounds{what, items, bytes});
    return std::move(*this);
  }
  /// What the stages up to this one have declared, sources first.
  std::vector<stage_bounds> bounds() const { return about_.bounds; }

  /// Declares that the items are the share of one process among those that train together: run() shows the progress of
  /// process 0 only, and says where a launcher has started several and the one here believes that it is alone.
  stream of_rank(const rank& r) && {
    promise(*this);
    if (!about_.rank) about_.rank = r;
    return std::move(*this);
  }
  /// What of_rank() declared here or, first of all, in a stage before; nullopt when nobody did.
  std::optional<rank> declared_rank() const noexcept { return about_.rank; }

  /// Declares how the source writes down its position, for pipeline_run::state().
  stream positioned(std::shared_ptr<const stream_position> position) && {
    promise(*this);
    about_.position = std::move(position);
    return std::move(*this);
  }
  /// What positioned() declared; null when nobody did, and where several sources did.
  std::shared_ptr<const stream_position> position() const noexcept {
    return about_.many_positions ? nullptr : about_.position;
  }

  /// Declares that a stage changes the order within windows, and what number tells its windows from others
  /// (epoch_mark::window): a state inside one is for pipelines with the same.
  stream windowed(std::uint32_t number) && {
    promise(*this);
    about_.window = number;
    return std::move(*this);
  }
  /// What windowed() declared; 0 when nobody did.
  std::uint32_t window() const noexcept { return about_.window; }

  /// What an epoch of the source will cost and give, before anything is read: batches, requests, bytes, memory, in a
  /// few lines for people. epochs() of an index knows; empty for others. epoch_plan has the numbers, and prices.
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

  /// The generator, with the name and what it keeps; what was declared is dropped.
  async_generator<T> generator() && {
    about_ = detail::stream_description();
    return std::move(generator_);
  }

 private:
  friend detail::stream_door;

  static detail::generator_promise_base& promise(stream& s) { return detail::promise_of(s.generator_); }
  const char* name_or(const char* none) {
    const char* const name = promise(*this).name_;
    return name == nullptr || *name == 0 ? none : name;
  }

  async_generator<T> generator_;
  detail::stream_description about_;
};

namespace detail {

/// For pipes, and stages that consume several streams.
struct stream_door {
  /// What is said about `s`, which says nothing any more.
  template <class T>
  static stream_description take_description(stream<T>& s) noexcept {
    return std::exchange(s.about_, stream_description());
  }
  /// `s`, with what is said about the stages before it in front of what it says.
  template <class T>
  static stream<T> continued(stream_description upstream, stream<T> s) {
    upstream.followed_by(std::move(s.about_));
    s.about_ = std::move(upstream);
    return s;
  }
  /// Gives a stage without a name a line in the stage table all the same, under its number.
  template <class T>
  static void number(stream<T>& s) noexcept {
    if (!s) return;
    generator_promise_base& p = promise_of(s.generator_);
    if (p.name_ == nullptr) p.call(stage_record::numbered);
  }
};

/// Whether it gives items: a stream, or a generator, which converts to one.
template <class Source>
inline constexpr bool is_source_v = false;
template <class T>
inline constexpr bool is_source_v<stream<T>> = true;
template <class T>
inline constexpr bool is_source_v<async_generator<T>> = true;

}  // namespace detail
}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/flow/impl/stream.ipp>
#endif
