// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/train/detail/training_plan.hpp>
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

MILLRACE_INLINE void epoch_plan::price(const plan_options& options, double mean_sample) {
  in_dollars_ = !options.price_of_1000_requests && options.price_of_gigabyte == 0;
  const double of_1000 = options.price_of_1000_requests.value_or(s3_price_of_1000_requests);
  cost = static_cast<double>(requests + index_requests) / 1000 * of_1000 +
         static_cast<double>(bytes + index_bytes) / 1e9 * options.price_of_gigabyte;
  if (longer_slice != 0) {
    const double fewer = static_cast<double>(requests) - static_cast<double>(longer_requests);
    longer_cost = cost - fewer / 1000 * of_1000;
  }
  const double limit = options.requests_per_second;
  limit_seconds = limit > 0 ? static_cast<double>(requests + index_requests) / limit : 0;
  second_epoch(options);
  next_epoch(options);
  if (options.bytes_per_second > 0) {
    first_batch_seconds =
        options.request_seconds + static_cast<double>(options.batch) * mean_sample / options.bytes_per_second;
  }
}

MILLRACE_INLINE std::string epoch_plan::money(double amount) const {
  if (!in_dollars_) return "cost " + detail::with_digits(amount, 2);
  return '$' + detail::with_digits(amount, amount == 0 ? 0 : amount < 0.01 ? 6 : amount < 1 ? 4 : 2);
}

/// Of slices that are read as they are; a selection, objects and groups are not.
MILLRACE_INLINE void epoch_plan::try_longer_slices(const index_set& indexes, const plan_options& options) {
  if (options.order.groups || indexes.of_objects() || indexes.of_arrays() || indexes.selection() != nullptr) return;
  order_options longer = options.order;
  longer.slice = indexes.slice(8 * MiB);
  constexpr std::uint64_t slices_of_track = 18;  // as default_slice() has
  if (longer.slice < 2 * options.order.slice || samples / longer.tracks < slices_of_track * longer.slice) return;
  const auto counted = [&](const order_options& how) {
    const sample_order order = indexes.order(options.seed, options.epoch, how);
    std::uint64_t n = detail::borders_in_slices(order);
    for (std::uint64_t t = 0; t < order.tracks(); ++t) n += order.slices_of(t);
    return static_cast<double>(n);
  };
  longer_slice = longer.slice;
  longer_requests =
      static_cast<std::uint64_t>(static_cast<double>(requests) * counted(longer) / counted(options.order) + 0.5);
  const std::uint64_t open = (longer.tracks + options.world - 1) / options.world;
  longer_rank_memory = std::min(indexes.sample_bytes(), open * detail::largest_slice(indexes, longer.slice));
  price(options, static_cast<double>(indexes.sample_bytes()) / static_cast<double>(samples));
}

MILLRACE_INLINE std::string epoch_plan::longer_text() const {
  if (longer_slice == 0) return {};
  return "with .slice = " + std::to_string(longer_slice) + ": " + std::to_string(longer_requests) + " requests" +
         (cost > 0 ? ", " + money(longer_cost) : std::string()) + ", a rank up to " +
         detail::in_bytes(longer_rank_memory) + " of open slices\n";
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
           (cost > 0 ? ", " + money(cost * (1 - hits)) : std::string());
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

MILLRACE_INLINE epoch_plan epoch_plan::of_plan(const detail::training_plan& training, const plan_options& prices) {
  plan_options how = prices;
  how.world = training.options.rank.world_size;
  how.batch = training.options.batch;
  if (!training.store->over_network(training.url(0))) {
    how.price_of_1000_requests = how.price_of_1000_requests.value_or(0);
    how.requests_per_second = 0;
  }
  epoch_plan plan;
  if (training.mix != nullptr) {
    plan = of_mix(training, how);
  } else {
    how.take_batches = training.options.take_batches;
    const bool in_memory = training.sets.front().indexes->in_memory();
    how.cache_bytes = in_memory ? 0 : training.cached;
    how.held_bytes = training.held.bytes;
    how.held_of = in_memory ? 0 : training.held.of;
    plan = of_set(training, 0, how);
  }
  if (!training.chosen.empty()) plan.advice.push_back("Chosen: " + training.chosen);
  return plan;
}

/// One of its data sets, by itself.
MILLRACE_INLINE epoch_plan epoch_plan::of_set(const detail::training_plan& training, std::size_t set,
                                              plan_options how) {
  const millrace::rank& r = training.options.rank;
  const std::uint64_t of_host = std::max<std::uint64_t>(r.local_world_size, 1);
  const index_set& indexes = *training.sets[set].indexes;
  how.seed = training.options.seed;
  how.epoch = training.options.first_epoch;
  how.order = training.walk.sets[set].order;
  how.hosts = training.options.hosts != 1 ? training.options.hosts : (r.world_size + of_host - 1) / of_host;
  how.memory = detail::share_of_bytes(training.options.bytes, how.order.tracks, training.walk.tracks);
  epoch_plan plan = of(indexes, how);
  if (indexes.in_memory()) {
    plan.requests = plan.most_rank_requests = plan.rank_memory = plan.most_rank_memory = 0;
    plan.price(how, 0);
  }
  return plan;
}

MILLRACE_INLINE epoch_plan epoch_plan::of_mix(const detail::training_plan& training, const plan_options& prices) {
  const sample_mix& order = *training.walk.mix;
  const std::uint64_t tracks = training.walk.tracks;
  const std::uint64_t end = training.walk.end;
  epoch_plan plan;
  plan.indexed = true;
  plan.world = prices.world;
  const auto rounded = [](double value) { return static_cast<std::uint64_t>(value + 0.5); };
  plan.samples = order.size();
  plan.advise_of_ranks(tracks);
  double bytes = 0;
  double taken = 0;
  double requests = 0;
  double visits = 0;
  for (std::size_t d = 0; d < training.sets.size(); ++d) {
    const index_set& indexes = *training.sets[d].indexes;
    const order_options& its_order = training.walk.sets[d].order;
    const epoch_plan round = of_set(training, d, {.world = prices.world, .batch = prices.batch});
    const double samples =
        static_cast<double>(order.samples(d)) * static_cast<double>(end) / static_cast<double>(order.size());
    const double rounds = samples / static_cast<double>(indexes.samples());
    bytes += rounds * static_cast<double>(round.bytes);
    taken += rounds * static_cast<double>(indexes.sample_bytes());
    requests += rounds * static_cast<double>(round.requests);
    visits += rounds * static_cast<double>(round.slice_visits);
    plan.index_requests += rounded(rounds * static_cast<double>(round.index_requests));
    plan.index_bytes += rounded(rounds * static_cast<double>(round.index_bytes));
    plan.shards += round.shards;
    plan.rank_memory += round.rank_memory;
    plan.most_rank_memory += round.most_rank_memory;
    const std::string name = detail::dataset_name(d, training.sets[d].prefix);
    plan.datasets.push_back(name + ": weight " + std::to_string(training.mix->members[d].weight) + ", " +
                            std::to_string(its_order.tracks) + " of " + std::to_string(tracks) + " tracks; " +
                            std::to_string(rounded(samples)) + " samples an epoch, " + detail::with_digits(rounds, 2) +
                            " times its " + std::to_string(indexes.samples()));
    epochs_options reading = training.options;
    reading.bytes = detail::share_of_bytes(training.options.bytes, its_order.tracks, tracks);
    const std::string sentence = reading_advice(indexes, its_order, plan.world, reading);
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
  return plan;
}

}  // namespace millrace
