// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/train/detail/epochs_source.hpp>
#include <millrace/train/detail/mix_text.hpp>
#include <millrace/train/epoch_plan.hpp>
#include <millrace/train/tracks_advice.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The steps of an epoch that ends at `end`, and what of it each rank has.
MILLRACE_INLINE void epoch_plan::share_out(const plan_options& options, std::uint64_t end, double mean_sample) {
  batches = steps_from(end, 0, options.batch, options.world);
  const std::uint64_t a_step = step_at(end, 0, options.batch, options.world).count;
  const order_step last = step_at(end, (batches - 1) * a_step, options.batch, options.world);
  padding = detail::multiplied(options.batch, options.world) - last.count;
  const std::uint64_t before = detail::multiplied(batches - 1, options.batch);
  least_rank_samples = before + last.count / options.world;
  most_rank_samples = before + (last.count + options.world - 1) / options.world;
  least_rank_bytes = static_cast<std::uint64_t>(static_cast<double>(least_rank_samples) * mean_sample);
  most_rank_bytes = static_cast<std::uint64_t>(static_cast<double>(most_rank_samples) * mean_sample);
}

MILLRACE_INLINE std::uint64_t detail::hosts_of_ranks(const epochs_request& training) {
  const millrace::rank& r = training.rank;
  if (training.hosts != 1) return training.hosts;
  const std::uint64_t each = std::max<std::uint64_t>(r.local_world_size, 1);
  return (r.world_size + each - 1) / each;
}

/// A host keeps what it reads in the first epoch, as far as it has room. What it reads in the second one is any part of
/// what has its home there, or of all: the same only where the epochs are whole and have homes.
MILLRACE_INLINE void epoch_plan::second_epoch(const plan_options& options) {
  cache_bytes = options.cache_bytes;
  hosts = options.order.hosts > 1 ? options.order.hosts : std::max<std::uint64_t>(options.hosts, 1);
  if (cache_bytes == 0 || bytes == 0) return;
  const auto read = static_cast<double>(bytes) / static_cast<double>(hosts);
  const double kept = std::min(static_cast<double>(cache_bytes), read);
  const auto taken =
      static_cast<double>(batches) * static_cast<double>(options.batch) * static_cast<double>(options.world);
  const double whole = options.take_batches != 0 && samples != 0 ? taken / static_cast<double>(samples) : 1;
  at_home_ = kept / read * std::min(whole, 1.0);
  anywhere_ = at_home_ / static_cast<double>(hosts);
  const double missing = 1 - (options.order.hosts > 1 ? at_home_ : anywhere_);
  second_bytes = static_cast<std::uint64_t>(static_cast<double>(bytes) * missing + 0.5);
  second_requests = static_cast<std::uint64_t>(static_cast<double>(requests) * missing + 0.5);
  second_cost = cost * missing;
}

/// Without homes, what a host reads is any part of all, and it has the same share of that; with homes it is what it has
/// kept.
MILLRACE_INLINE void epoch_plan::next_epoch(const plan_options& options) {
  held_known = options.held_of != 0;
  if (!held_known || bytes == 0) return;
  const double share = static_cast<double>(options.held_bytes) / static_cast<double>(options.held_of);
  const double here = 1 / static_cast<double>(hosts);
  const double hits = options.order.hosts > 1 ? std::min(share / here, 1.0) : share;
  const auto missed = [&](std::uint64_t n) {
    return static_cast<std::uint64_t>(static_cast<double>(n) * here * (1 - hits) + 0.5);
  };
  held_bytes = options.held_bytes;
  next_bytes = missed(bytes);
  next_requests = missed(requests);
}

MILLRACE_INLINE std::string epoch_plan::next_text() const {
  if (!held_known) return {};
  return "the disk cache of this host has " + detail::in_bytes(held_bytes) + " of the samples: the next epoch" +
         (hosts == 1 ? "" : " of this host") + " reads from the store about " + detail::in_bytes(next_bytes) + " by " +
         std::to_string(next_requests) + " requests\n";
}

MILLRACE_INLINE std::string epoch_plan::second_text() const {
  if (cache_bytes == 0 || bytes == 0) return {};
  const auto without = [&](double hits) {
    const auto of = [&](std::uint64_t n) {
      return static_cast<std::uint64_t>(static_cast<double>(n) * (1 - hits) + 0.5);
    };
    return detail::in_bytes(of(bytes)) + " by " + std::to_string(of(requests)) + " requests" +
           (cost > 0 ? ", cost " + detail::with_digits(cost * (1 - hits), 2) : std::string());
  };
  const std::string of_hosts = hosts == 1 ? "the host" : "each of " + std::to_string(hosts) + " hosts";
  std::string out = "the second epoch, with a disk cache of " + detail::in_bytes(cache_bytes) + " on " + of_hosts +
                    ", reads from the store: about " + without(homes ? at_home_ : anywhere_);
  if (homes) {
    out += "; without .hosts " + without(anywhere_);
  } else if (hosts > 1 && indexed && world % hosts == 0) {
    out += "; with .hosts = " + std::to_string(hosts) + ' ' + without(at_home_);
  }
  return out + '\n';
}

MILLRACE_INLINE std::string epoch_plan::homes_text() const {
  if (!homes) return {};
  return "homes on " + std::to_string(hosts) + " hosts: a rank sees the samples of its host alone, and two of them " +
         std::to_string(hosts) + " times as often in one batch as by chance; of one shard together " +
         detail::with_digits(quality.mates_of_step, 2) + " in a step and " +
         detail::with_digits(quality.mates_of_batch, 2) + " in a rank's batch, without homes " +
         detail::with_digits(homeless.mates_of_step, 2) + " and " + detail::with_digits(homeless.mates_of_batch, 2) +
         '\n';
}

/// More tracks, where each has a slice of its own, and where they do shuffle better: by the figures that the plan of
/// them would show.
MILLRACE_INLINE void epoch_plan::advise(const std::shared_ptr<const shard_counts>& counts, const sample_order& order,
                                        const plan_options& options) {
  const std::uint64_t tracks = order.tracks();
  const std::uint64_t a_step = detail::multiplied(options.batch, world);
  advise_of_ranks(tracks);
  if (tracks >= a_step && tracks / world >= 8) return;
  order_options more{.tracks = order_options().tracks, .slice = order.slice(), .hosts = order.hosts()};
  while (more.tracks < a_step || more.tracks / world < 8) more.tracks *= 2;
  more.groups = order.by_groups();
  more.tracks = std::min(more.tracks, samples / order.slice() / world * world);
  if (more.tracks <= tracks || more.tracks % more.hosts != 0) return;
  const sample_order other(counts, options.seed, options.epoch, more);
  const shuffle_quality then = shuffle_quality::of(other, options.batch, world);
  const auto off = [](double figure) { return std::abs(figure - 1); };
  constexpr double spread = 0.05;  // of figures that are measured on some steps
  const bool better = off(then.mates_of_step) < off(quality.mates_of_step) - spread &&
                      off(then.mates_of_batch) < off(quality.mates_of_batch) + spread &&
                      off(3 * then.displacement) < off(3 * quality.displacement) + spread;
  if (!better) return;
  advice.insert(advice.begin(),
                std::string(tracks < a_step ? "There are fewer tracks than samples in a step of all ranks"
                                            : "A rank has fewer than 8 tracks") +
                    ": " + std::to_string(more.tracks) + " tracks would shuffle better.");
}

MILLRACE_INLINE void epoch_plan::advise_of_ranks(std::uint64_t tracks) {
  if (tracks % world != 0) advice.push_back("The ranks do not divide the tracks: some slices are read by two ranks.");
}

MILLRACE_INLINE epoch_plan epoch_plan::of_request(const detail::dataset_mix& mix,
                                                  const detail::epochs_request& options, plan_options prices) {
  detail::epochs_request training = options;
  std::string chosen = detail::choose_reading(mix, training);
  const sample_mix order = detail::order_of(mix, training);
  epoch_plan plan;
  plan.indexed = true;
  plan.world = prices.world = training.rank.world_size;
  prices.batch = training.batch;
  const std::uint64_t end = detail::end_of_epoch(order.size(), prices.batch, prices.world, training.take_batches);
  const auto rounded = [](double value) { return static_cast<std::uint64_t>(value + 0.5); };
  plan.samples = order.size();
  plan.advise_of_ranks(training.tracks);
  double bytes = 0;
  double taken = 0;
  double requests = 0;
  double visits = 0;
  for (std::size_t d = 0; d < mix.members.size(); ++d) {
    const index_set& indexes = *mix.members[d].indexes;
    detail::epochs_request own = training;
    own.tracks = order.tracks(d);
    own.slice = indexes.slice_in_mix(training.slice);
    own.bytes = detail::share_of_bytes(training.bytes, own.tracks, training.tracks);
    own.take_batches = 0;
    own.cached = 0;
    own.held_of = 0;
    const epoch_plan round = of_request(indexes, own);
    const double samples =
        static_cast<double>(order.samples(d)) * static_cast<double>(end) / static_cast<double>(order.size());
    const double rounds = samples / static_cast<double>(indexes.samples());
    bytes += rounds * static_cast<double>(round.bytes);
    taken += rounds * static_cast<double>(indexes.sample_bytes());
    requests += rounds * static_cast<double>(round.requests);
    visits += rounds * static_cast<double>(round.slice_visits);
    plan.shards += round.shards;
    plan.rank_memory += round.rank_memory;
    const std::string& prefix = mix.members[d].prefix;
    const std::string name = detail::dataset_name(d, prefix.empty() ? std::string(training.prefix) : prefix);
    plan.datasets.push_back(name + ": weight " + std::to_string(mix.members[d].weight) + ", " +
                            std::to_string(own.tracks) + " of " + std::to_string(training.tracks) + " tracks; " +
                            std::to_string(rounded(samples)) + " samples an epoch, " + detail::with_digits(rounds, 2) +
                            " times its " + std::to_string(indexes.samples()));
    const std::string sentence = reading_advice(indexes, {.tracks = own.tracks, .slice = own.slice}, plan.world, own);
    if (!sentence.empty()) plan.advice.push_back(name + ": " + sentence);
  }
  const double mean = bytes / static_cast<double>(end);
  plan.share_out(prices, end, mean);
  plan.bytes = rounded(bytes);
  plan.read_times = taken == 0 ? 1 : bytes / taken;
  plan.requests = rounded(requests);
  plan.slice_visits = rounded(visits);
  plan.most_rank_requests = rounded(requests * static_cast<double>(plan.most_rank_samples) / static_cast<double>(end));
  plan.price(prices, mean);
  if (!chosen.empty()) plan.advice.push_back("Chosen: " + std::move(chosen));
  return plan;
}

}  // namespace millrace
