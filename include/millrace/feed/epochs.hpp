// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/feed/detail/epoch_reader.hpp>
#include <millrace/feed/detail/epochs_position.hpp>
#include <millrace/feed/detail/epochs_source.hpp>
#include <millrace/feed/epoch_state.hpp>
#include <millrace/feed/epochs_options.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace {

/// The source of a training: the samples of an indexed dataset, epoch after epoch, in the canonical order
/// (sample_order) of seed and epoch, of which this rank takes its share (rank_share).
///
///     auto training = mill::epochs(indexes, s3, {.seed = 7, .epochs = 90, .batch = 256, .rank = mine,
///                                                .prefix = "s3://corpus/train/", .resume = saved})
///                     | mill::fill_batches(pool, decode) | mill::to_device(copies);
///     auto run = rt.run(std::move(training));
///     for (auto& batch : run) {
///       train(batch);
///       if (due()) save(model, run.state());
///     }
///
/// Every sample is delivered once an epoch, on one rank. All ranks have the same number of batches, of options.batch
/// entries each: the last one of an epoch is padded with samples of weight() 0 that have no key, no fields and no
/// origin (functions of stages are not called for them, and fill_batches() writes zeros). The order
/// depends on nothing but the seed, the epoch, the indexes, .tracks and .slice: not on ranks, batches, bounds, timing
/// or the number of loops. Where .tracks is left to epochs(), it follows from the index and the number of ranks
/// (default_tracks()); a resume, on whatever number of ranks, goes on with the tracks of the state. One epoch follows
/// the other without a gap: the next one is read while the last batches of this one are taken. Each sample's `mark` has
/// its position, and `random()` draws from seed, epoch and the sample, so a resume changes nothing.
///
/// Samples are those of group_samples(), cut by the index: fields are slices of what was read. Their keys are read from
/// the headers and compared with the index's hashes, and each field with its CRC32C where the index has one.
///
/// Reading: by slices, a ranged GET or two each, ahead of the consumer: at most options.ahead samples and options.bytes
/// bytes, counted as the slabs that hold them (where one sample alone is larger, that one). It begins with what the
/// open slices take and 16 MiB, and grows while the consumer waits. How many requests are in flight and how long each
/// is follows from what the store's host is seen to give, up to options.requests and options.part, and is shared with
/// the host's other readers in the runtime. A rank reads from tracks / world size slices at once. Where the bytes do
/// not hold as much, it reads parts of slices, down to single samples: by more requests, in the same order. At the
/// beginning and after a resume the samples of the first step are read by themselves, so that the first batch does not
/// wait for slices. Only ranges are requested from the store, no listing and no HEAD; `If-Match` has the ETag of the
/// index. `store` is as in fetch().
///
/// With a number of tracks that was given, a small data set (fewer samples than a third of tracks times slice) is read
/// in smaller pieces than slices, down to single samples; so is a large one where options.bytes hold little of the
/// slices that are open (7.5 GiB hold those of 4 MiB of one rank's 960 tracks, with as much to read ahead): bytes
/// between the samples of a piece are read too, and again. A line in the runtime's log reports that, and what would
/// fit. stream::plan() says which numbers were chosen, and estimates what an epoch costs before anything is read.
///
/// Cancellation: dropping the stream ends all transfers at once. Errors, thrown where the sample would have come: those
/// of the store, stale_index_error where an object is not the version that was indexed, archive_error for a wrong
/// checksum or header, io_error for a short answer, each with the object and the byte. Thrown here, before anything is
/// read: configuration_error for options that contradict each other, an index without samples, a shard that the store
/// does not serve, and a state, given as options.resume, of another order.
///
/// Losses: with on_failure::skip in options.failures, a sample with such an error is replaced by an entry of weight 0,
/// like padding; order, batches and states of all ranks do not change. Later samples of that shard are still requested.
/// Lost samples are listed by shard in the log at the stream's end and in run_stats::lost; a state has the numbers of
/// its own rank, and a resume tries to read those after its position again. Members of a group of ranks that must see
/// the same samples should not skip: what one loses another may have.
template <class Store>
stream<sample> epochs(std::shared_ptr<const index_set> indexes, const Store& store, const epochs_options& options);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

template <class Sample>
async_generator<Sample> deal_epochs(epochs_source source) {
  const coroutine_context here = co_await this_context();
  executor& ex = here.get_executor();
  const failure_policy policy = source.options.failures;
  const std::shared_ptr<epoch_losses> losses = source.losses;
  // Losses are items that are yielded, and counted by shard: not in the stage's metrics.
  failures bad(policy, ex, "epochs");
  if (source.options.rank.index == 0) {
    const std::string advice = source.advice();
    if (!advice.empty()) log_line(ex, "millrace: epochs: " + advice);
  }
  epoch_reader<Sample> reader(std::move(source), here);
  for (;;) {
    reader.plan();
    if (reader.ended()) break;
    if (!reader.ready()) {
      reader.consumer_waits(true);
      while (!reader.ready()) co_await reader.arrived().wait();
      reader.consumer_waits(false);
    }
    Sample s = reader.take();
    if (reader.damaged()) {
      task<Sample> again = reader.take_again();
      s = co_await std::move(again);
    }
    if (const std::exception_ptr failure = reader.failure()) {
      if (!bad.forgive(failure, item_place())) break;
      reader.note_loss();
    } else if (s.weight() != 0) {
      bad.succeeded();
    }
    co_yield give(s);
  }
  bad.finish();
  if (policy.report) say_losses(ex, losses->list());
}

/// What epochs() promises to the stages after it.
template <class Sample>
stream<Sample> declare_source(stream<Sample> made, const epochs_options& options, bool ends_differ) {
  const bool padded = options.pad && !ends_differ;
  const bool ranks = options.rank.world_size > 1;
  // One rank's batches may have any size; where it was given one, it is to be that.
  made = std::move(made).declares(place_effect::steps, padded && (ranks || options.batch > 1) ? options.batch : 0);
  if (padded || options.failures.then == on_failure::skip) made = std::move(made).declares(place_effect::makes_empty);
  if (options.uneven && options.equal == nullptr) made = std::move(made).declares(place_effect::uneven);
  if (ends_differ && ranks) {
    made = std::move(made).declares(
        place_effect::expands, 0,
        "the ranks have unequally many samples: put equal.fill(), of .equal, before the stage that makes batches");
  }
  return made;
}

template <class Sample>
stream<Sample> epochs_of(epochs_source source) {
  fill_later(source, begin_equal(source.options, source.begin).get());
  const epochs_options options = source.options;
  auto position = std::make_shared<epochs_position>(source);
  const std::size_t kept = source.store->keeps();
  stream<Sample> made = stream<Sample>(deal_epochs<Sample>(std::move(source))).named("epochs", "raise its .bytes");
  return declare_source(std::move(made), options, options.equal != nullptr)
      .bounded(options.ahead, sum_of_bounds(options.bytes, kept))
      .positioned(std::move(position))
      .of_rank(options.rank);
}

}  // namespace detail

template <class Store>
stream<sample> epochs(std::shared_ptr<const index_set> indexes, const Store& store, const epochs_options& options) {
  return detail::epochs_of<sample>({std::move(indexes), detail::storage_of(store), options});
}

}  // namespace millrace
