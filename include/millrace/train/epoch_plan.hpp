// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/order/shard_deal.hpp>
#include <millrace/order/shuffle_quality.hpp>
#include <millrace/train/detail/epoch_walk.hpp>
#include <millrace/train/detail/reading_estimate.hpp>
#include <millrace/train/detail/slice_piece.hpp>
#include <millrace/train/epochs_options.hpp>
#include <millrace/train/tracks_advice.hpp>

namespace millrace::inline MILLRACE_ABI {

class dataset;

namespace detail {
class training_plan;
}

/// Dollars that S3 Standard takes for 1,000 GET requests in us-east-1 (aws.amazon.com/s3/pricing, 2026-11).
inline constexpr double s3_price_of_1000_requests = 0.0004;
/// GET requests in a second that S3 takes for a partitioned prefix, at least ("Best practices design patterns:
/// optimizing Amazon S3 performance" in its user guide, 2026-11).
inline constexpr double s3_requests_per_second = 5500;

/// The training that an epoch is planned for.
struct plan_options {
  std::uint64_t world = 1;  ///< ranks
  std::uint64_t batch = 1;  ///< samples of a batch of one rank
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  order_options order = {};      ///< with an index
  std::uint64_t take_batches = 0;  ///< with an index: epochs_options::take_batches
  std::uint64_t memory = 0;        ///< epochs_options::bytes; 0: as much as open slices need, without an index 160 MiB
  std::uint64_t part = 8 * MiB;  ///< without one: bytes of a request
  /// Bytes of a disk cache that each host of the ranks has; 0: there is none.
  std::uint64_t cache_bytes = 0;
  /// The part of `held_of` bytes of samples that the cache of this host has already; `held_of` 0: not known.
  std::uint64_t held_bytes = 0;
  std::uint64_t held_of = 0;
  std::uint64_t hosts = 1;  ///< of the ranks, where order_options::hosts gives the samples no homes
  /// The store's prices, in any currency. Of requests where none is given: s3_price_of_1000_requests, and 0 of a
  /// training whose data come over no network.
  std::optional<double> price_of_1000_requests = {};
  double price_of_gigabyte = 0;  ///< of 10^9 bytes
  /// Requests in a second that the store takes, of all ranks; 0: any number.
  double requests_per_second = s3_requests_per_second;
  /// How soon a request is answered, and how fast the bytes come then, for the time to the first batch; 0: not said.
  double request_seconds = 0;
  double bytes_per_second = 0;
};

/// The cost and the result of an epoch, before the first sample is read: a pure function of an index, or of a list of
/// shards, and options.
class epoch_plan {
 public:
  /// From an index: the canonical order.
  static epoch_plan of(const index_set& indexes, const plan_options& options);
  /// The plan of epochs() of the dataset with these options; `prices` gives prices and speeds alone. stream::plan() has
  /// the same in words. For a mix, .quality is not measured. Throws
  /// configuration_error where the samples are not known. In train/dataset.hpp.
  static epoch_plan of_training(const dataset& data, const epochs_options& training, plan_options prices = {});
  /// From counts alone, such as a shard list has; `sample_bytes` of all samples together.
  static epoch_plan of(std::shared_ptr<const shard_counts> counts, std::uint64_t sample_bytes,
                       const plan_options& options);
  /// From a list: whole shards, dealt by their bytes. How many samples they have is not known.
  static epoch_plan of(std::span<const shard> shards, const plan_options& options);

  bool indexed = false;
  std::uint64_t shards = 0;
  std::uint64_t bytes = 0;     ///< that are read, by all ranks; of indexes with .memory, about, unused ones included
  double read_times = 1;       ///< those, for each byte of samples, with the gaps between; 1: not known
  std::uint64_t requests = 0;  ///< by all ranks, retries aside
  std::uint64_t world = 1;
  std::uint64_t least_rank_bytes = 0;  ///< an estimate with an index: by the mean sample
  std::uint64_t most_rank_bytes = 0;
  std::uint64_t most_rank_requests = 0;
  /// Bytes of samples that a rank holds at most, with what it reads ahead: plan_options::memory; if that is 0, twice
  /// its open slices.
  std::uint64_t most_rank_memory = 0;
  /// At most so many more of a rank where a training starts: its first batch is read apart. With an index.
  std::uint64_t start_requests = 0;
  /// Of an index in a store, if its rows are read slice by slice: how often and how much of them all ranks read in an
  /// epoch, about. Not in .requests and .bytes, but in .cost.
  std::uint64_t index_requests = 0;
  std::uint64_t index_bytes = 0;
  double cost = 0;                  ///< of the requests and bytes, by plan_options
  double limit_seconds = 0;         ///< that the requests take at plan_options::requests_per_second; 0: no limit
  double first_batch_seconds = 0;   ///< 0: no speeds were given
  // With plan_options::cache_bytes, of caches that are empty before the first epoch; not of a mix:
  std::uint64_t cache_bytes = 0;      ///< of each host; 0: there is none
  std::uint64_t hosts = 1;            ///< that the ranks are on
  std::uint64_t second_bytes = 0;     ///< that the second epoch reads from the store, about
  std::uint64_t second_requests = 0;  ///< likewise
  double second_cost = 0;
  // The contents of a cache, if they are known (dataset::plan(), plan_options::held_of); not of a mix:
  bool held_known = false;
  std::uint64_t held_bytes = 0;     ///< of the samples, that the disk cache of this host has; of any version
  std::uint64_t next_bytes = 0;     ///< that the next epoch of this host reads from the store, about
  std::uint64_t next_requests = 0;  ///< likewise
  std::vector<std::string> advice;  ///< sentences

  // With an index alone:
  std::uint64_t samples = 0;
  std::uint64_t batches = 0;  ///< on every rank
  std::uint64_t padding = 0;  ///< entries of weight 0 in the last batches of all ranks
  std::uint64_t least_rank_samples = 0;
  std::uint64_t most_rank_samples = 0;
  std::uint64_t slice_visits = 0;  ///< of the requests; the others are for slices that lie in two shards
  /// Bytes of the slices that a rank has open, at most; without an index, and of more than 2^18 samples, by the mean of
  /// samples (of the shard with the largest ones).
  std::uint64_t rank_memory = 0;
  // From indexes, where slices of up to 8 MiB would be longer and each track has enough of them; 0: none are.
  std::uint64_t longer_slice = 0;     ///< samples (dataset_options::slice)
  std::uint64_t longer_requests = 0;  ///< of an epoch with these
  double longer_cost = 0;
  std::uint64_t longer_rank_memory = 0;  ///< as rank_memory
  shuffle_quality quality;
  bool homes = false;        ///< the samples have homes on several hosts
  shuffle_quality homeless;  ///< then, the quality without
  std::vector<std::string> datasets;  ///< of a mix: a sentence for each

  /// A few lines for people.
  std::string text() const;

 private:
  friend class detail::training_plan;
  static epoch_plan of_plan(const detail::training_plan& training, const plan_options& prices);
  static epoch_plan of_set(const detail::training_plan& training, std::size_t set, plan_options how);
  static epoch_plan of_mix(const detail::training_plan& training, const plan_options& prices);
  void share_out(const plan_options& options, std::uint64_t end, double mean_sample);
  void advise(const std::shared_ptr<const shard_counts>& counts, const sample_order& order,
              const plan_options& options);
  void advise_of_ranks(std::uint64_t tracks);
  void price(const plan_options& options, double mean_sample);
  void try_longer_slices(const index_set& indexes, const plan_options& options);
  /// An amount of money as a text.
  std::string money(double amount) const;
  void count_rows(const index_set& indexes, const plan_options& options);
  void second_epoch(const plan_options& options);
  void next_epoch(const plan_options& options);
  std::string homes_text() const;
  std::string longer_text() const;
  std::string second_text() const;
  std::string next_text() const;
  void read_in_pieces(const plan_options& options, const order_options& order, double mean_sample);

  bool in_dollars_ = false;
  // The share of the second epoch's bytes that a host has, with homes and without.
  double at_home_ = 0;
  double anywhere_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

inline std::string with_digits(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}
inline std::string in_bytes(std::uint64_t n) {
  const auto value = static_cast<double>(n);
  if (n >= 10 * GiB) return with_digits(value / static_cast<double>(GiB), 1) + " GiB";
  if (n >= 10 * MiB) return with_digits(value / static_cast<double>(MiB), 1) + " MiB";
  if (n >= 10 * KiB) return with_digits(value / static_cast<double>(KiB), 1) + " KiB";
  return std::to_string(n) + " bytes";
}
inline std::string from_to(std::uint64_t least, std::uint64_t most) {
  return least == most ? std::to_string(most) : std::to_string(least) + " to " + std::to_string(most);
}

/// Slices that lie in two shards, and so take two requests.
inline std::uint64_t borders_in_slices(const sample_order& order) {
  std::uint64_t borders = 0;
  const shard_counts& counts = order.counts();
  const std::uint64_t cut = order.cut();  // all others are multiples of a slice from it
  for (std::size_t s = 0; s < counts.shards() && !order.by_groups(); ++s) {
    if (counts.count(s) == 0) continue;
    const std::uint64_t behind = (counts.begin(s) + order.size() - cut) % order.size();
    const std::uint64_t length = order.size() % order.slice();  // of the short slice
    const bool on_cut = behind == 0 || (behind >= length && (behind - length) % order.slice() == 0);
    if (!on_cut) ++borders;
  }
  return borders;
}

/// The most bytes of `slice` samples in a row, anywhere in the shards laid end to end and round to the first. The rows
/// of more than `looked_at` samples are not read: then by the mean of the shard with the largest ones.
inline std::uint64_t largest_slice(const index_set& indexes, std::uint64_t slice, std::uint64_t looked_at = 1 << 18) {
  if (indexes.counts()->samples() > looked_at) {
    std::uint64_t mean = 0;
    for (const shard_index& index : indexes) {
      if (index.samples() != 0) mean = std::max(mean, index.sample_bytes() / index.samples() + 1);
    }
    return mean * std::min(slice, indexes.samples());
  }
  std::vector<std::uint64_t> sizes;
  sizes.reserve(static_cast<std::size_t>(indexes.samples()));
  for (const shard_index& index : indexes) {
    for (std::size_t s = 0; s < index.samples(); ++s) sizes.push_back(index.end(s) - index.offset(s));
  }
  const std::size_t length = static_cast<std::size_t>(std::min<std::uint64_t>(slice, sizes.size()));
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < length; ++i) held += sizes[i];
  std::uint64_t most = held;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    held += sizes[(i + length) % sizes.size()] - sizes[i];
    most = std::max(most, held);
  }
  return most;
}

}  // namespace detail

inline epoch_plan epoch_plan::of(std::shared_ptr<const shard_counts> counts, std::uint64_t sample_bytes,
                                 const plan_options& options) {
  if (options.world == 0 || options.batch == 0) throw configuration_error("a plan needs a rank and a batch");
  const sample_order order(counts, options.seed, options.epoch, options.order);
  epoch_plan plan;
  plan.indexed = true;
  plan.shards = counts->shards();
  plan.world = options.world;
  plan.bytes = sample_bytes;
  plan.samples = order.size();
  if (plan.samples == 0) return plan;
  const std::uint64_t tracks = order.tracks();
  const double mean = static_cast<double>(sample_bytes) / static_cast<double>(plan.samples);
  const std::uint64_t end = detail::end_of_epoch(plan.samples, options.batch, options.world, options.take_batches);

  plan.share_out(options, end, mean);

  // A slice on the border of two tracks is read for both; one that lies in two shards by two requests.
  std::vector<std::uint64_t> of_rank(static_cast<std::size_t>(std::min(options.world, tracks)), 0);
  for (std::uint64_t t = 0; t < tracks; ++t) {
    const std::uint64_t visits = order.slices_of(t);
    plan.slice_visits += visits;
    of_rank[static_cast<std::size_t>(t % of_rank.size())] += visits;
  }
  const std::uint64_t borders = detail::borders_in_slices(order);
  plan.requests = plan.slice_visits + borders;
  const std::uint64_t most_visits = *std::max_element(of_rank.begin(), of_rank.end());
  plan.most_rank_requests = most_visits + (borders + options.world - 1) / options.world;

  const std::uint64_t open = (tracks + options.world - 1) / options.world;
  const std::uint64_t first = detail::first_positions(detail::multiplied(options.batch, options.world), tracks);
  plan.start_requests = std::min(plan.most_rank_samples, (first + options.world - 1) / options.world);
  plan.rank_memory =
      std::min(sample_bytes, static_cast<std::uint64_t>(static_cast<double>(open * order.slice()) * mean));
  plan.most_rank_memory = std::min(sample_bytes, options.memory == 0 ? 2 * plan.rank_memory : options.memory);
  plan.quality = shuffle_quality::of(order, options.batch, options.world);
  plan.homes = order.hosts() > 1;
  if (plan.homes) {
    const order_options without{.tracks = tracks, .slice = order.slice()};
    plan.homeless = shuffle_quality::of(sample_order(counts, options.seed, options.epoch, without), options.batch,
                                        options.world);
  }
  plan.advise(counts, order, options);
  const order_options how{.tracks = tracks, .slice = order.slice(), .hosts = order.hosts()};
  if (std::string sentence = tracks_advice(plan.samples, how, options.world); !sentence.empty()) {
    plan.advice.push_back(std::move(sentence));
  } else if (plan.samples < tracks * order.slice()) {
    plan.advice.push_back("A track is shorter than a slice: some slices are read for several tracks.");
  }
  plan.read_in_pieces(options, how, mean);
  if (end < plan.samples) {  // of every track the same share
    const double share = static_cast<double>(end) / static_cast<double>(plan.samples);
    for (std::uint64_t* const n : {&plan.bytes, &plan.requests, &plan.most_rank_requests, &plan.slice_visits}) {
      *n = static_cast<std::uint64_t>(static_cast<double>(*n) * share + 0.5);
    }
  }
  plan.price(options, mean);
  return plan;
}

/// If the memory does not hold a slice of every track, slices are read in pieces: by more requests, as neighbours of a
/// slice come one by one from all over it, and small gaps between them are read with them.
inline void epoch_plan::read_in_pieces(const plan_options& options, const order_options& order, double mean_sample) {
  if (options.memory == 0) return;
  const auto each = static_cast<std::uint64_t>(mean_sample) + 1;
  const std::uint64_t piece = detail::samples_of_piece(options.memory, order.tracks, options.world, each, order.slice);
  const std::uint64_t visit = (samples + slice_visits - 1) / slice_visits;  // samples of one, about
  if (piece >= visit) return;
  const std::uint64_t gap = epochs_options().gap;
  const std::uint64_t span = (visit - 1) * piece / (piece + 1) * each;  // from its first sample to its last
  const std::uint64_t ranges = each > gap ? piece : std::min(piece, 1 + span / (2 * piece * each + gap));
  const std::uint64_t times = (visit + piece - 1) / piece * ranges;
  if (times <= 1) return;
  const std::uint64_t before = requests;
  requests += slice_visits * (times - 1);
  most_rank_requests = static_cast<std::uint64_t>(static_cast<double>(most_rank_requests) *
                                                  static_cast<double>(requests) / static_cast<double>(before));
  rank_memory = std::min(rank_memory, options.memory);
  const std::uint64_t enough = 2 * (order.tracks / options.world + 1) * each * order.slice;
  advice.push_back("A budget of " + detail::in_bytes(options.memory) + " holds " + std::to_string(piece) + " of the " +
                   std::to_string(order.slice) + " samples of each slice that is open: about " +
                   std::to_string(requests) + " requests; with " + detail::in_bytes(enough) + " there would be " +
                   std::to_string(before) + '.');
}

/// A slice begins anywhere in a block of rows. The rows of its fields are asked for apart, in shards of many samples.
inline void epoch_plan::count_rows(const index_set& indexes, const plan_options& options) {
  std::uint64_t rows = 0;
  for (const shard_index& index : indexes) {
    rows += index.samples() + (index.layout() == row_layout::fields ? index.fields() : 0);
  }
  const double of_shard = static_cast<double>(indexes.samples()) / static_cast<double>(indexes.size());
  const double blocks = std::min(1 + static_cast<double>(options.order.slice - 1) / 256, 1 + of_shard / 256);
  const double of_sample = 16 * static_cast<double>(rows) / static_cast<double>(indexes.samples());
  const double of_visit = std::min(256 * blocks, of_shard) * of_sample;
  index_bytes = static_cast<std::uint64_t>(static_cast<double>(slice_visits) * of_visit);
  index_requests = slice_visits * (indexes[0].layout() == row_layout::fields && of_shard > 1024 ? 2 : 1);
  price(options, static_cast<double>(indexes.sample_bytes()) / static_cast<double>(indexes.samples()));
}

inline epoch_plan epoch_plan::of(const index_set& indexes, const plan_options& options) {
  if (indexes.rows_in_store()) {
    epoch_plan plan = of(indexes.entries(), indexes.sample_bytes(), options);
    if (plan.samples == 0) return plan;
    plan.count_rows(indexes, options);
    return plan;
  }
  plan_options whole = options;
  whole.memory = 0;
  epoch_plan plan = of(indexes.entries(), indexes.sample_bytes(), whole);
  const std::uint64_t open = (options.order.tracks + options.world - 1) / options.world;
  const std::uint64_t largest = plan.samples == 0 ? 0 : detail::largest_slice(indexes, options.order.slice);
  plan.rank_memory = std::min(indexes.sample_bytes(), open * largest);
  if (plan.samples == 0) return plan;
  plan.most_rank_memory = std::min(indexes.sample_bytes(), 2 * plan.rank_memory);
  plan.try_longer_slices(indexes, options);
  if (options.memory == 0) return plan;
  plan.rank_memory = std::min(plan.rank_memory, options.memory);
  plan.most_rank_memory = std::min(indexes.sample_bytes(), options.memory);
  epochs_options reading;
  reading.bytes = static_cast<std::size_t>(options.memory);
  const sample_order order = indexes.order(options.seed, options.epoch, options.order);
  const detail::reading_estimate e(indexes, order, options.world, reading.bytes, reading.part, reading.gap);
  const auto scaled = [](std::uint64_t n, double by) {
    return static_cast<std::uint64_t>(static_cast<double>(n) * by + 0.5);
  };
  // The samples of a slice that a track has in part lie apart: a visit is several requests.
  const bool in_part = !order.by_groups() && plan.samples / order.tracks() < 18 * options.order.slice;
  if (e.piece < options.order.slice || indexes.selection() != nullptr || in_part) {
    const double before = static_cast<double>(plan.requests);
    const auto taken = static_cast<double>(plan.bytes) / static_cast<double>(indexes.sample_bytes());
    plan.requests = scaled(plan.samples, taken * e.requests);
    plan.longer_slice = 0;
    plan.most_rank_requests = scaled(plan.most_rank_requests, static_cast<double>(plan.requests) / before);
  }
  plan.read_times = e.bytes;
  for (std::uint64_t* const n : {&plan.bytes, &plan.least_rank_bytes, &plan.most_rank_bytes}) *n = scaled(*n, e.bytes);
  std::string sentence = bytes_advice(indexes, options.order, options.world, reading);
  if (!sentence.empty()) plan.advice.push_back(std::move(sentence));
  plan.price(options, static_cast<double>(indexes.sample_bytes()) / static_cast<double>(plan.samples));
  return plan;
}

inline epoch_plan epoch_plan::of(std::span<const shard> shards, const plan_options& options) {
  if (options.part == 0) throw configuration_error("a plan needs parts of at least a byte");
  if (options.order.hosts != 1) throw configuration_error("samples have no homes on hosts without an index");
  const shard_deal deal(shards, options.seed, options.epoch, options.world);
  epoch_plan plan;
  plan.shards = shards.size();
  plan.world = options.world;
  plan.least_rank_bytes = UINT64_MAX;
  for (std::size_t r = 0; r < deal.world(); ++r) {
    std::uint64_t requests = 0;
    for (const std::size_t i : deal.of_rank(r)) {
      const std::uint64_t size = shards[i].size.value_or(0);
      requests += std::max<std::uint64_t>(size / options.part + (size % options.part != 0 ? 1 : 0), 1);
    }
    plan.requests += requests;
    plan.bytes += deal.bytes(r);
    plan.least_rank_bytes = std::min(plan.least_rank_bytes, deal.bytes(r));
    plan.most_rank_bytes = std::max(plan.most_rank_bytes, deal.bytes(r));
    plan.most_rank_requests = std::max(plan.most_rank_requests, requests);
  }
  if (std::any_of(shards.begin(), shards.end(), [](const shard& s) { return !s.size; })) {
    plan.advice.push_back(
        "Some sizes are not known; such a shard counts as the mean of the others, and as one request.");
  }
  if (deal.imbalance() > 1.1) {
    plan.advice.push_back("One rank has " + detail::with_digits(deal.imbalance(), 2) +
                          " times the mean of the bytes: an index shares them out evenly.");
  }
  plan.most_rank_memory = std::min(plan.most_rank_bytes, options.memory == 0 ? 160 * MiB : options.memory);
  plan.price(options, 0);
  plan.first_batch_seconds = 0;  // a sample's size is not known
  return plan;
}

inline std::string epoch_plan::text() const {
  std::string out = std::to_string(shards) + (shards == 1 ? " shard, " : " shards, ") + detail::in_bytes(bytes);
  if (indexed) {
    out += ", " + std::to_string(samples) + " samples\n" + std::to_string(batches) + " batches on each of " +
           std::to_string(world) + (world == 1 ? " rank, " : " ranks, ") + std::to_string(padding) +
           " entries of weight 0\na rank: " + detail::from_to(least_rank_samples, most_rank_samples) +
           " samples, about " + detail::in_bytes(most_rank_bytes) + ", about " + std::to_string(most_rank_requests) +
           " requests, at its start up to " + std::to_string(start_requests) + " more, up to " +
           detail::in_bytes(rank_memory) + " of open slices, " + detail::in_bytes(most_rank_memory) +
           " with what it reads ahead\n";
  } else {
    out += ", without an index\na rank of " + std::to_string(world) + ": " + detail::in_bytes(least_rank_bytes) +
           " to " + detail::in_bytes(most_rank_bytes) + ", about " + std::to_string(most_rank_requests) +
           " requests, up to " + detail::in_bytes(most_rank_memory) + " of memory\n";
  }
  out += "all ranks: " + std::to_string(requests) + " requests";
  if (read_times >= 1.005) out += ", " + detail::with_digits(read_times, 2) + " times the bytes of the samples";
  if (index_requests != 0) {
    out += ", and " + std::to_string(index_requests) + " for " + detail::in_bytes(index_bytes) + " of the index";
  }
  if (cost > 0) out += ", " + money(cost) + " an epoch";
  if (limit_seconds > 0) {
    out += ", " + detail::with_digits(limit_seconds, limit_seconds < 10 ? 2 : 0) + " s at the " +
           detail::with_digits(static_cast<double>(requests + index_requests) / limit_seconds, 0) +
           " a second that a prefix takes";
  }
  out += '\n' + longer_text() + second_text() + next_text();
  if (first_batch_seconds > 0) out += "first batch: " + detail::with_digits(first_batch_seconds, 2) + " s\n";
  for (const std::string& sentence : datasets) out += sentence + '\n';
  if (indexed && samples > 1 && datasets.empty()) {
    out += "samples of one shard together, 1 is a full shuffle: " + detail::with_digits(quality.mates_of_step, 2) +
           " in a step, " + detail::with_digits(quality.mates_of_batch, 2) + " in a rank's batch; displacement " +
           detail::with_digits(quality.displacement, 3) + " (full shuffle 0.333)\nshards of the first step: [" +
           quality.picture + "]\n" + homes_text();
  }
  for (const std::string& sentence : advice) out += sentence + '\n';
  return out;
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/epoch_plan.ipp>
#endif
