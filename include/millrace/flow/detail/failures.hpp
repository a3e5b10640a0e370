// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <millrace/coro/executor.hpp>
#include <millrace/flow/detail/item_place.hpp>
#include <millrace/flow/failure_policy.hpp>

namespace millrace::detail {

/// Keeps the account of one stage's failure_policy. Used on the loop, in the order of delivery.
class failures {
 public:
  failures(failure_policy policy, executor& ex, stage_record* stage, const char* name) noexcept
      : policy_(policy), executor_(ex), stage_(stage), name_(name) {}

  bool forgiving() const noexcept { return policy_.then != on_failure::rethrow; }
  void succeeded() noexcept { ++items_; }

  /// Judges a failure: true to leave the item out, false to end the stream; throws when it is not to be forgiven.
  /// `place` is that of the item.
  bool forgive(std::exception_ptr failure, const item_place& place);

  /// At the end of the stream.
  void finish();

 private:
  /// The message of a failure; lets those pass that no policy forgives.
  static std::string describe(const std::exception_ptr& failure, const item_place& place);
  void check_rate();
  [[noreturn]] void give_up(const std::string& why);
  void report(const std::string& message);
  void print(const std::string& text) const;

  const failure_policy policy_;
  executor& executor_;
  stage_record* const stage_;
  const char* const name_;
  std::uint64_t items_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t unreported_ = 0;
  std::int64_t reported_ns_ = 0;
  std::vector<std::string> messages_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/flow/detail/impl/failures.ipp>
#endif
