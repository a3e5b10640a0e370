// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/feed/detail/late_position.hpp>
#include <millrace/feed/detail/listed_index.hpp>
#include <millrace/feed/detail/window_position.hpp>
#include <millrace/feed/detail/window_reader.hpp>
#include <millrace/feed/epochs.hpp>
#include <millrace/feed/equal_batches.hpp>
#include <millrace/feed/tracks_advice.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/shards.hpp>

namespace millrace {

/// The same of a list of shards, whose index is kept in a file, options.index_file:
///
///     auto training = mill::epochs(s3.list("s3://corpus/train/"), s3,
///                                  {.seed = 7, .epochs = 90, .batch = 256, .rank = mine,
///                                   .index_file = "/data/train.index", .resume = saved})
///                     | mill::fill_batches(pool, decode);
///
/// The first run makes the index, before its first sample: each shard is read, in full or from header to header,
/// whichever is less, and verified (index_shard), several at a time; the log reports it. Then this run and all others
/// have the canonical order, from their first epoch on. Ranks that see the same file make it together: each reads its
/// share of the bytes and leaves the results in a folder beside the file, index_file + ".parts", where the others find
/// them; the first that has all writes the file and removes the folder. A rank that dies or starts late does not block
/// the others: if no rank has reported progress for 30 s, they read what is left. If ranks do not see each other's
/// files (a local disk in each machine) every machine reads all: make the file beforehand by millrace-index then. All
/// of them must be able to write there: an io_error names the file. The file must be of this list: where a shard is
/// new, gone or another version, as far as the list says, that is a stale_index_error which names it: make the file
/// again. With index_use::required a file that is not there is a configuration_error.
///
/// Names in the index are the URLs without options.prefix, and without what may be secrets; the URLs to read are those
/// of the list, so they may be signed anew for every run.
///
/// pipeline_run::batches() is known, and a state of another order refused, once the first sample is there; all else is
/// as above. Errors, at the first sample: those of the list, of index_shard() and of the file; configuration_error for
/// an empty list. A shard that cannot be indexed is an error, whatever options.failures tolerates later. An index in
/// the store that comes damaged is read once more.
///
/// With index_use::none there is no index, and nothing is read twice: shards (plain tars) are read whole,
/// options.shards of them in turn, and shuffled in a window of options.window samples.
///
///     auto training = mill::epochs(s3.list("s3://corpus/train/"), s3,
///                                  {.seed = 7, .epochs = 90, .batch = 256, .resume = saved,
///                                   .index = mill::index_use::none})
///                     | mill::fill_batches(pool, decode);
///
/// The order depends on seed, epoch, list, the ranks' number, .shards, .window and .window_bytes, and on what the
/// shards hold: not on timing, bounds or batches. In every epoch the shards are dealt anew to the ranks, by their
/// listed bytes (shard_deal), so there must be as many as ranks. One rank's last batch of an epoch is filled up;
/// several ranks hold unequally many samples and need .equal, through whose of() their batches are taken (fill() is
/// done here), or .uneven.
///
/// pipeline_run::state() is this rank's own: 7 to 10 bytes a sample of the window, none of theirs. A resume continues
/// with the very next sample: it reads each open shard from its offset, and the samples that were in the window by
/// ranges (.gap joins them); what the first batch needs comes first. It must be the same rank of as many, with the same
/// list; at an epoch's beginning these may be others. A shard whose ETag is not that of the state is a changed_error.
/// How many batches there are is not known. With .equal there is no state inside a window of bucket_by_length() or a
/// document of pack().
///
/// Memory: .window_bytes for the window, .bytes for what is read. Failures: with on_failure::skip a shard ends where it
/// is broken, and counts as one sample lost, as how many it had is not known; what a resume reads again must be there.
template <class Store>
stream<sample> epochs(stream<shard> list, const Store& store, const epochs_options& options);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

/// Options with texts of their own, for later.
class kept_epochs_options {
 public:
  explicit kept_epochs_options(const epochs_options& options)
      : options_(options), prefix_(options.prefix), resume_(options.resume) {}
  epochs_options get() const {
    epochs_options now = options_;
    now.prefix = prefix_;
    now.resume = resume_;
    now.index_file = {};
    return now;
  }

 private:
  epochs_options options_;
  std::string prefix_;
  std::string resume_;
};

template <class Sample>
async_generator<Sample> deal_listed(async_generator<shard> list, std::shared_ptr<const storage> store,
                                    listed_index index, kept_epochs_options options,
                                    std::shared_ptr<late_position> position, std::shared_ptr<equal_state> equal) {
  std::vector<shard> all;
  while (std::optional<shard> s = co_await list.next()) all.push_back(std::move(*s));
  list = async_generator<shard>();
  std::shared_ptr<const index_set> indexes = co_await index.of(std::move(all));
  epochs_source source(std::move(indexes), std::move(store), options.get(), index.urls());
  fill_later(source, equal.get());
  position->become(std::make_shared<const epochs_position>(source));
  async_generator<Sample> samples = deal_epochs<Sample>(std::move(source));
  while (std::optional<Sample> s = co_await samples.next()) co_yield give(*s);
}

/// The samples of epochs() without an index.
template <class Sample>
async_generator<Sample> deal_windows(async_generator<shard> list, std::shared_ptr<const storage> store,
                                     kept_epochs_options options, std::shared_ptr<window_position> position,
                                     std::shared_ptr<equal_state> equal) {
  const generator_context<Sample> here = co_await this_generator<Sample>();
  executor& ex = here.get_executor();
  std::vector<shard> all;
  while (std::optional<shard> s = co_await list.next()) all.push_back(std::move(*s));
  list = async_generator<shard>();
  const epochs_options how = options.get();
  const auto plan = std::make_shared<const window_plan>(std::move(all), how);
  if (equal != nullptr) equal->list = plan->list;
  window_order begin = position->begin(plan);
  if (begin.epoch() < plan->end_epoch) {
    log_rank(how.rank, begin.numbers().size(), plan->shards.size());
  }
  failures bad(how.failures, ex, "epochs");
  window_reader<Sample> reader(std::move(begin), std::move(store), how, position, here);
  const window_order& order = reader.order();
  std::uint64_t given = 0;  // entries of the epoch in this run
  std::uint32_t taken = position->taken();
  while (order.epoch() < plan->end_epoch) {
    reader.open_ahead();
    const bool others_ended = equal != nullptr && equal->over.load(std::memory_order_acquire) > order.epoch();
    if (order.over() || others_ended) {
      reader.next_epoch();
      given = 0;
      continue;
    }
    if (order.pulls()) {
      auto* const from = reader.asked();
      while (from != nullptr && !from->ahead.has_item() && !from->ahead.ended()) co_await reader.changed().wait();
      if (from != nullptr && from->ahead.has_item()) {
        reader.take();
        continue;
      }
      if (const std::exception_ptr failure = from != nullptr ? from->ahead.take_error() : nullptr) {
        if (!bad.forgive(failure, item_place())) break;
        reader.note_loss(failure);
      }
      reader.close();
      continue;
    }
    reader.draw();
    while (!reader.ready()) co_await reader.changed().wait();
    Sample s = reader.leaving();
    bad.succeeded();
    ++given;
    s.mark.position = s.mark.from = order.count() - 1;
    s.mark.next = order.count();
    s.mark.whole = true;
    s.mark.taken = std::exchange(taken, 0);
    const bool over = order.over();
    std::uint64_t lacking = 0;
    if (over && equal == nullptr && how.pad) lacking = (how.batch - given % how.batch) % how.batch;
    s.mark.last = over && equal == nullptr && lacking == 0;
    epoch_mark mark = s.mark;
    mark.taken = 0;
    co_yield give(s);
    for (; lacking > 0; --lacking) {
      Sample filler;
      mark.position = mark.from = mark.next;
      mark.padding = true;
      mark.last = lacking == 1;
      filler.mark = mark;
      co_yield give(filler);
    }
  }
  bad.finish();
  if (how.failures.report) say_losses(ex, position->lost());
}

/// Throws configuration_error for options that contradict each other without an index.
void check_window_options(const epochs_options& options);

template <class Store>
stream<sample> windowed_epochs(stream<shard> list, const Store& store, epochs_options options) {
  check_window_options(options);
  if (options.bytes == 0) options.bytes = 160 * MiB;
  std::optional<window_state> saved;
  if (!options.resume.empty()) saved = window_state::parse(options.resume);
  auto position = std::make_shared<window_position>(options, saved);
  std::shared_ptr<equal_state> equal;
  if (options.equal != nullptr) {
    equal = equal_batches_door::state(*options.equal);
    if (!options.uneven && equal->batch != options.batch) {
      throw configuration_error("epochs: .batch is not that of .equal");
    }
    equal->begin(options.rank, options.seed, options.first_epoch, end_epoch_of(options.first_epoch, options.epochs));
    if (saved && saved->taken != 0 && !options.uneven) {
      throw configuration_error(
          "resume: the state is inside a window of bucket_by_length(), a document of pack() or a sample of flat_map(): "
          "it does not go on with .equal, unless .uneven is said too and equal.fill() is after that stage");
    }
    if (saved) equal->go_on(saved->epoch, saved->position);
  }
  async_generator<sample> samples =
      deal_windows<sample>(std::move(list).generator(), storage_of(store), kept_epochs_options(options), position,
                           equal);
  const bool filled = equal != nullptr && !options.uneven;
  if (filled) samples = fill_steps<sample>(std::move(samples), equal);
  stream<sample> made = stream<sample>(std::move(samples)).named("epochs", "raise its .bytes or .shards");
  made = declare_source(std::move(made), options, equal != nullptr);
  if (filled) made = std::move(made).declares(place_effect::evens, options.batch);
  return std::move(made)
      .bounded(options.window, options.window_bytes)
      .bounded("epochs, open shards", options.ahead, options.bytes)
      .positioned(position)
      .of_rank(options.rank);
}

}  // namespace detail

template <class Store>
stream<sample> epochs(stream<shard> list, const Store& store, const epochs_options& options) {
  detail::check_epochs_options(options);
  if (options.index == index_use::none) return detail::windowed_epochs(std::move(list), store, options);
  epoch_state from_state;
  from_state.epoch = options.first_epoch;
  if (!options.resume.empty()) from_state = epoch_state::parse(options.resume);
  std::shared_ptr<detail::equal_state> equal = detail::begin_equal(options, from_state);
  std::shared_ptr<const storage> from = detail::storage_of(store);
  const std::size_t kept = from->keeps();
  // The index is not known yet.
  const bool chosen = options.tracks == 0 && options.resume.empty();
  const std::size_t bytes = options.bytes != 0 ? options.bytes : detail::most_bytes(chosen);
  auto position = std::make_shared<detail::late_position>(options);
  detail::listed_index index(from, options);
  stream<sample> made =
      stream<sample>(detail::deal_listed<sample>(std::move(list).generator(), std::move(from), std::move(index),
                                                 detail::kept_epochs_options(options), position,
                                                 std::move(equal)))
          .named("epochs", "raise its .bytes");
  return detail::declare_source(std::move(made), options, options.equal != nullptr)
      .bounded(options.ahead, detail::sum_of_bounds(bytes, kept))
      .positioned(position)
      .of_rank(options.rank);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/feed/impl/listed_epochs.ipp>
#endif
