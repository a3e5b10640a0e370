// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/flow/bucket_by_length.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE bucket_options checked(bucket_options options) {
  if (options.batch == 0 && options.max_tokens == 0) {
    throw configuration_error("bucket_by_length: give .batch, .max_tokens, or both");
  }
  if (options.window == 0) options.window = options.batch != 0 ? multiplied(32, options.batch) : 1024;
  if (options.batch != 0 && options.window % options.batch != 0) {
    throw configuration_error("bucket_by_length: a .window of " + std::to_string(options.window) +
                              " is no multiple of a .batch of " + std::to_string(options.batch) +
                              ": its last batch would be smaller");
  }
  return options;
}

MILLRACE_INLINE std::uint32_t window_id(const bucket_options& options) noexcept {
  std::uint64_t all = 1;
  const auto add = [&all](std::uint64_t n) { all = mix64(all ^ n) + n; };
  add(options.batch);
  add(options.max_tokens);
  add(options.window);
  add(options.seed);
  for (const std::size_t e : options.edges) add(e);
  return static_cast<std::uint32_t>(all) | 1U;  // 0 is none
}

MILLRACE_INLINE std::vector<item_numbers> cut_into_buckets(const std::vector<std::size_t>& lengths,
                                                     const bucket_options& options, std::uint64_t seed,
                                                     std::uint64_t epoch, std::uint64_t begin) {
  std::vector<std::size_t> sorted(lengths.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t(0));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&lengths](std::size_t a, std::size_t b) { return lengths[a] < lengths[b]; });
  std::vector<item_numbers> batches;
  for (const std::size_t i : sorted) {
    bool another = batches.empty();
    if (!another) {
      const item_numbers& now = batches.back();
      const std::size_t most = options.max_tokens;
      another = now.size() == options.batch || (most != 0 && lengths[i] > most / (now.size() + 1)) ||
                options.edges.bucket_of(lengths[i]) != options.edges.bucket_of(lengths[now.back()]);
    }
    if (another) batches.emplace_back();
    batches.back().push_back(i);
  }
  rng random(key_of(seed, epoch, purpose::bucket), begin, purpose::bucket);
  permute(batches, random);
  return batches;
}

MILLRACE_INLINE void refuse_window(std::size_t taken, std::size_t batches) {
  throw configuration_error("resume: the state says that " + std::to_string(taken) +
                            " batches of a window of bucket_by_length() were taken, and it has " +
                            std::to_string(batches) + ": these are not the items of the training that was saved");
}

MILLRACE_INLINE void say_longer(const coroutine_context& here, std::size_t length, std::size_t most,
                                const where& at) {
  const error what("bucket_by_length: an item of length " + std::to_string(length) + " is longer than .max_tokens of " +
                       std::to_string(most) + ": it is a batch alone, larger than that (later ones are not reported)",
                   at);
  log_line(here.get_executor(), std::string("millrace: ") + what.what(), log_level::warning,
           {{"stage", "bucket_by_length"}, {"shard", what.object()}, {"key", what.key()}, {"reason", what.reason()}});
}

}  // namespace millrace::detail
