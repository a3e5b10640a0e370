// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/rank.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// What every rank of a machine needs before its first sample, such as a listing: the first that asks reads it and
/// leaves it in a file, which the others map. There is no server.
///
/// It belongs to one start of a training. A rank of this number on the machine takes a file once, and no file that was
/// begun more than 10 minutes before it asked; in /dev/shm the process that has started the ranks is part of its name,
/// too. The last rank that takes a file removes its name. So a rank that asks again, or another start, reads anew.
///
/// The maker holds a lock of the file that it writes, and renames that when it is whole: one that dies is followed by
/// another rank, which truncates what it has left. Files are of this user alone, and those of others are not read.
/// They have a CRC32C. Of what cannot be shared (no space, no folder, a maker that stands still for 30 s) one line is
/// logged, and each rank reads for itself.
class host_copy {
 public:
  /// Shares nothing: find() is false.
  host_copy() = default;
  /// `folder`: dataset_options::host_folder. `what` says which of the things that are shared it is, its first line as
  /// messages show it. Where no other rank is known to be on this machine, nothing is shared.
  host_copy(const std::optional<std::string>& folder, std::string_view what, const rank& mine);
  host_copy(const host_copy&) = delete;
  host_copy& operator=(const host_copy&) = delete;
  /// Where nothing was given, another rank makes it.
  ~host_copy() { give_up(); }

  /// Waits until another rank has made it, or this one is to. True: text() is it. False: this rank reads it, and calls
  /// give(). Called once.
  MILLRACE_COROUTINE task<bool> find();
  /// Whether give() leaves it to others.
  bool makes() const noexcept { return making_ >= 0; }
  /// Leaves `text`, and on `more`, to the others. It may be called where nothing is shared.
  void give(const executor& ex, std::string_view text, std::string_view more = {});
  /// What was found is not used, `why`: its name is removed, and find() may be called once more.
  void refuse(const executor& ex, const std::string& why);

  std::string_view text() const noexcept { return text_; }
  /// Keeps text(), beyond this object's life, too.
  const std::shared_ptr<const void>& owner() const noexcept { return owner_; }

 private:
  static constexpr int patience_s = 30;
  static constexpr int beat_s = 5;
  static constexpr std::int64_t fresh_s = 600;

  enum class state : unsigned char { none, other, there };
  state look(const executor& ex);
  bool lock(const executor& ex);
  void off(const executor& ex, const std::string& why);
  void remove_old() const;
  void give_up() noexcept;
  std::int64_t beaten() const noexcept;
  std::string unfinished_path() const { return base_ + "-making"; }
  MILLRACE_COROUTINE static task<void> keep_beating(int file);

  std::string what_;  // as messages say it
  std::string base_;  // the path; empty: nothing is shared
  std::string prefix_;
  std::string key_;
  rank mine_;
  std::int64_t asked_ = 0;  // in seconds since 1970
  std::int64_t begun_ = 0;
  int making_ = -1;  // the file that this rank holds the lock of
  std::string_view text_;
  std::shared_ptr<const void> owner_;
  spawned<void> beating_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/host_copy.ipp>
#endif
