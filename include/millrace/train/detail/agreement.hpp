// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/train/rank_group.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// After which step of the training the state of one rank is, where each rank has its own.
struct state_step {
  bool known = false;
  std::uint64_t epoch = 0;
  std::uint64_t steps = 0;  ///< of the epoch, in which the rank had samples
  bool ended = false;       ///< the rank had no more of them: the others may have continued
};

/// The settings that the ranks of a group compare. One is made at the same place of the program on all ranks: then the
/// comparison gets its number among the group's calls; all must settle it, once.
class agreement {
 public:
  agreement(const rank_group& group, const char* purpose);

  void add(rank_setting setting) { settings_.push_back(std::move(setting)); }
  /// A digest of what a rank may not know yet: 0. Ranks that do know it are compared.
  void add_digest(const char* name, const hash128& digest);
  /// The rank has learnt it.
  void learn(const char* name, const hash128& digest);
  void at_step(const state_step& step) noexcept { step_ = step; }
  /// True if it waits on a loop: settle(). Else settle_now(), on the thread of the program.
  bool by_store() const noexcept { return group_.by_store(); }

  /// Throws the same configuration_error on all ranks, or on none. `failure`: this rank cannot begin; then that is
  /// thrown here, and its text on the others.
  MILLRACE_COROUTINE void settle_now(std::exception_ptr failure);
  MILLRACE_COROUTINE task<void> settle(std::exception_ptr failure);

 private:
  static constexpr std::size_t fixed_words = 8;
  static constexpr std::size_t text_bytes = 256;
  enum class what : unsigned char { failure, names, replicas, setting, step };

  std::vector<std::uint64_t> numbers(bool failed) const;
  bool settled(const std::vector<std::uint64_t>& all);
  std::vector<std::uint64_t> texts(const std::string& failure) const;
  std::string values(const std::vector<std::string>& shown) const;
  void refuse(const std::vector<std::uint64_t>& all, const std::exception_ptr& failure) const;
  bool say(what differs) noexcept {
    differs_ = differs;
    return false;
  }

  rank_group group_;
  const char* purpose_;
  std::uint64_t number_;
  std::vector<rank_setting> settings_;
  std::vector<std::size_t> digests_;  // which of them
  state_step step_;
  // After the first gather:
  std::vector<std::uint64_t> numbers_;
  what differs_ = what::failure;
  std::size_t setting_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/agreement.ipp>
#endif
