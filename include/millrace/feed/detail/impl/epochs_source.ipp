// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/mix64.hpp>
#include <millrace/base/detail/shown_url.hpp>
#include <millrace/base/error.hpp>
#include <millrace/feed/detail/epochs_source.hpp>

namespace millrace::detail {

MILLRACE_INLINE void check_epochs_options(const epochs_options& options) {
  options.rank.check();
  if (options.batch == 0 || options.ahead == 0 || options.requests == 0 || options.part == 0) {
    throw configuration_error("epochs: .batch, .ahead, .requests and .part must not be 0");
  }
  if (options.rank.world_size > 1 && !options.pad) {
    throw configuration_error("epochs: .pad = false is for one rank: the batches of several would not be equal");
  }
  if (options.rank.world_size > 1 && options.failures.then == on_failure::stop) {
    throw configuration_error("epochs: on_failure::stop is for one rank: the others would go on without it");
  }
  if (options.epochs > UINT64_MAX - options.first_epoch) throw configuration_error("epochs: too many .epochs");
}

MILLRACE_INLINE std::uint64_t state_window(std::uint32_t window, std::uint64_t batch, std::uint64_t world) noexcept {
  return key_of(window, batch, world) | 1U;
}

MILLRACE_INLINE void check_state_window(const epoch_state& saved, std::uint32_t window, std::uint64_t batch,
                                        std::uint64_t world) {
  if (saved.taken == 0 || (window != 0 && saved.window == state_window(window, batch, world))) return;
  throw configuration_error("resume: the state is " + std::to_string(saved.taken) +
                            " batches into a window of bucket_by_length(), or tokens into a document of pack(): it "
                            "goes on with the same options of that stage, the same epochs_options::batch and the "
                            "same number of ranks");
}

MILLRACE_INLINE epochs_source::epochs_source(std::shared_ptr<const index_set> of, std::shared_ptr<const storage> from,
                                             const epochs_options& how, std::vector<std::string> listed)
    : indexes(std::move(of)), store(std::move(from)), prefix(how.prefix), urls(std::move(listed)), options(how) {
  options.prefix = options.resume = options.index_file = {};
  check_epochs_options(options);
  if (indexes == nullptr || indexes->samples() == 0) throw configuration_error("epochs: the index has no samples");
  walk.counts = indexes->counts();
  walk.order = {.tracks = options.tracks, .slice = options.slice != 0 ? options.slice : indexes->slice()};
  walk.seed = options.seed;
  walk.batch = options.batch;
  walk.index = options.rank.index;
  walk.world = options.rank.world_size;
  walk.pad = options.pad;
  walk.end_epoch = options.first_epoch + options.epochs;
  walk.end = end_of_epoch(indexes->samples(), walk.batch, walk.world, options.take_batches);
  static_cast<void>(sample_order(walk.counts, 0, 0, walk.order));  // refuses what is out of range
  begin.seed = options.seed;
  begin.epoch = options.first_epoch;
  begin.tracks = walk.order.tracks;
  begin.slice = walk.order.slice;
  begin.index = indexes->digest();
  if (!how.resume.empty()) resume_at(epoch_state::parse(how.resume));
  walk.begin_epoch = begin.epoch;
  walk.begin = begin.position;
  walk.taken = static_cast<std::uint32_t>(begin.taken);
  for (std::uint64_t i = 0; i < indexes->size(); ++i) {
    if (!store->serves(url(i))) {
      throw configuration_error("no store is configured for this URL (.prefix stands in front of the index's names)",
                                where{shown(i), std::nullopt, {}});
    }
  }
}

MILLRACE_INLINE std::string epochs_source::shown(std::uint64_t shard) const { return detail::shown_url(url(shard)); }

MILLRACE_INLINE void epochs_source::resume_at(const epoch_state& saved) {
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
  begin.taken = saved.taken;
  begin.window = saved.window;
  // The losses of a rank are in its own state; where all go on from one, one of them takes them over.
  if (options.rank.index != 0 || saved.index != begin.index) return;
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < indexes->size(); ++i) names.push_back(shown(i));
  if (!saved.holes.empty() && saved.holes.rbegin()->first >= names.size()) {
    throw configuration_error("resume: the state has losses of shard " + std::to_string(saved.holes.rbegin()->first) +
                              " of " + std::to_string(names.size()));
  }
  begin.holes = saved.holes;
  begin.other_holes = saved.other_holes;
  losses->carry(saved, names);
}

}  // namespace millrace::detail
