// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>

namespace millrace {

/// What a stage does with an item whose function throws.
enum class on_failure {
  rethrow,  ///< the exception ends the stream
  skip,     ///< the item is left out, counted and reported
  stop,     ///< the stream ends before the item, without an exception; reported
};

/// What a stage does with bad items, and how many of them it tolerates:
/// `map_concurrent(decode, {.failures = {.then = on_failure::skip, .limit = 100}})`.
///
/// Bad items are judged in the order of delivery, so which items come out, and whether the budget holds, depends
/// neither on threads nor on the network (with order::arrival, on nothing but the number of bad items). A budget that
/// is used up throws too_many_failures. Only data is forgiven: out of memory and configuration_error always end the
/// stream. Failures are reported in the log: the first at once, later ones at most once a second, with their
/// number.
///
/// With a policy and without, errors about data name their item: what a stage's function throws for an item with a
/// member `from` (an origin), and perhaps `key`, gets these as its place where it has none. For items that carry them
/// elsewhere, place_of(item), found beside the type, returns what has these members. Exceptions that do not derive from
/// millrace::error stay as they are; the report names the item.
struct failure_policy {
  on_failure then = on_failure::rethrow;
  /// The most items that may fail.
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  /// The largest share of the items that may fail, judged at the end of the stream and, on the way, at each failure
  /// from the 1000th item on.
  double rate = 1;
  bool report = true;  ///< in the runtime's log, else on standard error
};

/// The budget of a failure_policy is used up: what() tells the numbers and the first messages.
class too_many_failures : public error {
 public:
  too_many_failures(std::string reason, std::uint64_t failed, std::uint64_t items, std::vector<std::string> messages)
      : error(std::move(reason)), failed_(failed), items_(items), messages_(std::move(messages)) {}

  std::uint64_t failed() const noexcept { return failed_; }
  /// Items that were judged, the failed ones included.
  std::uint64_t items() const noexcept { return items_; }
  /// What the first failures (ten at most) said.
  const std::vector<std::string>& messages() const noexcept { return messages_; }

 private:
  std::uint64_t failed_;
  std::uint64_t items_;
  std::vector<std::string> messages_;
};

}  // namespace millrace
