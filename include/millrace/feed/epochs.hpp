// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/detail/shown_url.hpp>
#include <millrace/base/error.hpp>
#include <millrace/feed/detail/epoch_reader.hpp>
#include <millrace/feed/epoch_state.hpp>
#include <millrace/feed/epochs_options.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/feed/rank_share.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/detail/storage_of.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace {

/// The head of a training: the samples of an indexed dataset, epoch after epoch, in the canonical order (sample_order)
/// of seed and epoch, of which this rank takes its share (rank_share).
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
/// Every sample comes once an epoch, on one rank. All ranks have the same number of batches, of options.batch entries
/// each: what the last one of an epoch lacks is padding, samples with weight() 0 that have no key, no fields and no
/// origin (functions given to map() see them; fill_batches() writes zeros and does not call its function). The order
/// depends on nothing but the seed, the epoch, the indexes, .tracks and .slice: not on ranks, batches, bounds, timing
/// or the number of loops. One epoch follows the other without a gap: the next one is read while the last batches of
/// this one are taken. Each sample's `mark` says where it stands, `random()` draws from seed, epoch and place, so
/// behind a resume everything is as it would have been.
///
/// Samples are those of group_samples(), cut by the index: fields are slices of what was read. Their keys are read from
/// the headers and compared with the index's hashes, and each field with its CRC32C where the index has one.
///
/// Reading: by slices, a ranged GET or two each, ahead of the consumer: at most options.ahead samples and options.bytes
/// bytes, counted as the slabs that hold them (where one sample alone is larger, that one), and options.requests
/// requests at a time. A rank reads from tracks / world size slices at once. Where the bytes do not hold as much, it
/// reads parts of slices, down to single samples: more requests, the same order. At the beginning and behind a resume
/// the first sample of each track is read by itself, so that the first batch waits for no slice. Nothing is asked of
/// the store but ranges, no listing and no HEAD; `If-Match` has the ETag of the index. `store` is as in fetch().
///
/// Cancellation: dropping the stream ends all transfers at once. Errors, thrown in the place of the sample in the
/// order: those of the store, stale_index_error where an object is not the version that was indexed, archive_error for
/// a wrong checksum or header, io_error for a short answer, each with the object and the byte. Thrown here, before
/// anything is read: configuration_error for options that contradict each other, an index without samples, a shard that
/// the store does not serve, and a state, given as options.resume, of another order.
template <class Store>
stream<sample> epochs(std::shared_ptr<const index_set> indexes, const Store& store, const epochs_options& options);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

/// The state of a training that epochs() feeds.
class epochs_position final : public stream_position {
 public:
  epochs_position(const epoch_state& begin, std::uint64_t samples, const epochs_options& options)
      : begin_(begin), samples_(samples), batch_(options.batch), world_(options.rank.world_size) {}

  std::string state(const epoch_mark& delivered) const override {
    epoch_state now = begin_;
    if (delivered.known) {
      const bool over = delivered.next == samples_;
      now.epoch = delivered.epoch + (over ? 1 : 0);
      now.position = over ? 0 : delivered.next;
    }
    return now.text();
  }
  std::optional<std::uint64_t> batches() const override { return steps_from(samples_, 0, batch_, world_); }

 private:
  epoch_state begin_;
  std::uint64_t samples_;
  std::uint64_t batch_;
  std::uint64_t world_;
};

/// What is checked before anything is read.
inline epochs_source checked_source(std::shared_ptr<const index_set> indexes, std::shared_ptr<const storage> store,
                                    const epochs_options& options, epoch_state& begin) {
  if (indexes == nullptr || indexes->samples() == 0) throw configuration_error("epochs: the index has no samples");
  options.rank.check();
  if (options.batch == 0 || options.ahead == 0 || options.requests == 0 || options.part == 0) {
    throw configuration_error("epochs: .batch, .ahead, .requests and .part must not be 0");
  }
  if (!options.pad && options.rank.world_size > 1) {
    throw configuration_error("epochs: .pad = false is for one rank: the batches of several would not be equal");
  }
  if (options.epochs > UINT64_MAX - options.first_epoch) throw configuration_error("epochs: too many .epochs");
  epochs_source source;
  source.prefix = std::string(options.prefix);
  source.options = options;
  source.options.prefix = source.options.resume = {};
  epoch_walk::plan& walk = source.walk;
  walk.counts = indexes->counts();
  walk.order = {.tracks = options.tracks, .slice = options.slice != 0 ? options.slice : indexes->slice()};
  walk.seed = options.seed;
  walk.batch = options.batch;
  walk.index = options.rank.index;
  walk.world = options.rank.world_size;
  walk.pad = options.pad;
  walk.end_epoch = options.first_epoch + options.epochs;
  static_cast<void>(sample_order(walk.counts, 0, 0, walk.order));  // refuses what is out of range
  begin.seed = options.seed;
  begin.epoch = options.first_epoch;
  begin.tracks = walk.order.tracks;
  begin.slice = walk.order.slice;
  begin.index = indexes->digest();
  if (!options.resume.empty()) {
    const epoch_state saved = epoch_state::parse(options.resume);
    saved.check(begin);
    if (saved.epoch < options.first_epoch || saved.epoch > walk.end_epoch) {
      throw configuration_error("resume: the state is in epoch " + std::to_string(saved.epoch) +
                                ", which is not one of this training");
    }
    if (saved.position >= indexes->samples()) {
      throw configuration_error("resume: the state is at sample " + std::to_string(saved.position) +
                                " of an epoch of " + std::to_string(indexes->samples()));
    }
    begin.epoch = saved.epoch;
    begin.position = saved.position;
  }
  walk.begin_epoch = begin.epoch;
  walk.begin = begin.position;
  source.indexes = std::move(indexes);
  source.store = std::move(store);
  for (std::uint64_t i = 0; i < source.indexes->size(); ++i) {
    const std::string url = source.url(i);
    if (!source.store->serves(url)) {
      throw configuration_error("no store is configured for this URL (.prefix stands in front of the index's names)",
                                where{detail::shown_url(url), std::nullopt, {}});
    }
  }
  return source;
}

template <class Sample>
async_generator<Sample> deal_epochs(epochs_source source) {
  executor& ex = co_await this_executor();
  stage_record* const stage = co_await this_stage();
  epoch_reader<Sample> reader(std::move(source), ex, stage);
  for (;;) {
    reader.plan();
    if (reader.ended()) break;
    while (!reader.ready()) co_await reader.arrived().wait();
    Sample s = reader.take();
    co_yield give(s);
  }
}

}  // namespace detail

template <class Store>
stream<sample> epochs(std::shared_ptr<const index_set> indexes, const Store& store, const epochs_options& options) {
  epoch_state begin;
  detail::epochs_source source = detail::checked_source(std::move(indexes), detail::storage_of(store), options, begin);
  auto position = std::make_shared<detail::epochs_position>(begin, source.indexes->samples(), options);
  return stream<sample>(detail::deal_epochs<sample>(std::move(source)))
      .named("epochs", "raise its .bytes or .requests")
      .bounded(options.ahead, options.bytes)
      .positioned(std::move(position))
      .of_rank(options.rank.index);
}

}  // namespace millrace
