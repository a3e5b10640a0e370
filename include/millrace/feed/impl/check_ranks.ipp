// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/feed/check_ranks.hpp>

namespace millrace {

namespace detail {

/// Whether the processes are as many as each of them believes, and each rank is there once.
MILLRACE_INLINE void check_world(const sum_over_ranks& sum, const rank& mine) {
  std::uint64_t processes = 1;
  sum({&processes, 1});
  // As many numbers on every process, whatever it believes. The last one: how many believe something else.
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(processes) + 1, 0);
  const bool wrong = mine.world_size != processes || mine.index >= mine.world_size;
  if (!wrong) ++numbers[mine.index];
  if (wrong) numbers.back() = 1;
  sum(numbers);
  const std::string all = std::to_string(processes) + " processes take part";
  if (wrong) {
    throw configuration_error("this process is rank " + std::to_string(mine.index) + " of " +
                              std::to_string(mine.world_size) + " (" + mine.source + "), but " + all +
                              ": give the rank that the launcher says, as rank_from_environment() does");
  }
  if (numbers.back() != 0) {
    throw configuration_error(all + ", and " + std::to_string(numbers.back()) +
                              " of them believe in another number: they were not given their rank");
  }
  for (std::size_t r = 0; r + 1 < numbers.size(); ++r) {
    if (numbers[r] != 1) {
      throw configuration_error(all + ", and " + std::to_string(numbers[r]) + " of them say that they are rank " +
                                std::to_string(r));
    }
  }
}

}  // namespace detail

MILLRACE_INLINE void check_ranks(const sum_over_ranks& sum, const rank& mine, std::span<const rank_setting> settings) {
  detail::check_world(sum, mine);
  std::vector<std::uint64_t> of_first(settings.size(), 0);  // what rank 0 has
  if (mine.index == 0) {
    for (std::size_t i = 0; i < settings.size(); ++i) of_first[i] = settings[i].value;
  }
  sum(of_first);
  std::vector<std::uint64_t> others(settings.size(), 0);  // ranks that have something else
  for (std::size_t i = 0; i < settings.size(); ++i) others[i] = settings[i].value != of_first[i] ? 1 : 0;
  sum(others);
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (others[i] == 0) continue;
    throw configuration_error("the ranks do not agree: " + settings[i].name + " is " + std::to_string(of_first[i]) +
                              " on rank 0, " + std::to_string(settings[i].value) + " on this one (" +
                              std::to_string(mine.index) + "), and another on " + std::to_string(others[i]) + " of " +
                              std::to_string(mine.world_size));
  }
}

}  // namespace millrace
