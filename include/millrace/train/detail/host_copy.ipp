// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/train/detail/host_copy.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

// The file: 8 bytes "mrshared"; 4 the CRC32C of all from byte 16 on but the marks; 4 how many ranks the machine has, R;
// 8 when its reading began, in seconds since 1970; 8 bytes of the text; 16 a hash of what it is; the text; R bytes, of
// which each is a mark that the rank of this number has taken it. One without a byte says that each rank reads for
// itself.
inline constexpr std::size_t copy_head_bytes = 48;
inline constexpr std::string_view copy_magic = "mrshared";

MILLRACE_INLINE host_copy::host_copy(const std::optional<std::string>& folder, std::string_view what,
                                     const rank& mine)
    : what_(what.substr(0, what.find('\n'))), mine_(mine) {
  const std::string in = folder.value_or("/dev/shm");
  if (in.empty() || mine.local_world_size < 2 || mine.local_index >= mine.local_world_size) return;
  hasher128 key;
  key.add(what);
  key.add(std::uint64_t{mine.local_world_size});
  if (!folder) {
    const std::string parent = std::to_string(::getppid());
    std::ifstream of_parent("/proc/" + parent + "/stat");
    std::string stat(std::istreambuf_iterator<char>(of_parent), {});
    stat.erase(0, stat.rfind(')') + 1);  // the name before may have anything in it
    std::size_t at = 0;  // the third field of the line
    for (int field = 3; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);  // its start
    key.add(std::string_view(parent));
    if (at != std::string::npos) key.add(std::string_view(stat).substr(at, stat.find(' ', at + 1) - at));
  }
  const hash128 hash = key.value();
  append_le(key_, hash.high, 8);
  append_le(key_, hash.low, 8);
  prefix_ = in + "/millrace-" + std::to_string(::geteuid()) + '-';
  base_ = prefix_ + hash.text();
}

MILLRACE_INLINE void host_copy::off(const executor& ex, const std::string& why) {
  log_line(ex, "millrace: " + what_ + " is not shared by the ranks of this machine, and each reads it: " + why);
  base_.clear();
}

/// A file that is there and may be taken is taken.
MILLRACE_INLINE host_copy::state host_copy::look(const executor& ex) {
  const int file = ::open(base_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return state::none;
  const std::unique_ptr<const int, void (*)(const int*)> closes(&file, [](const int* f) { ::close(*f); });
  struct stat is {};
  if (::fstat(file, &is) != 0 || !S_ISREG(is.st_mode) || is.st_uid != ::geteuid()) return state::none;
  const auto size = static_cast<std::size_t>(is.st_size);
  if (size == 0) return is.st_mtime + fresh_s < asked_ ? state::none : state::other;
  if (size < copy_head_bytes) return state::none;
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return state::none;
  std::shared_ptr<const void> owner(memory, [size](const void* m) { ::munmap(const_cast<void*>(m), size); });
  const std::string_view all(static_cast<const char*>(memory), size);
  const std::uint64_t marks = read_le(all, 12, 4);
  const std::uint64_t length = read_le(all, 24, 8);
  const bool whole = all.substr(0, 8) == copy_magic && length <= size && marks == mine_.local_world_size &&
                     size - length == copy_head_bytes + marks && all.substr(32, 16) == key_ &&
                     crc32c(0, all.data() + 16, size - 16 - static_cast<std::size_t>(marks)) == read_le(all, 8, 4);
  if (!whole) {
    log_line(ex, "millrace: " + what_ + ": the copy of this machine is damaged, and is made anew: " + base_);
    return state::none;
  }
  const auto begun = static_cast<std::int64_t>(read_le(all, 16, 8));
  const std::size_t first_mark = copy_head_bytes + static_cast<std::size_t>(length);
  if (begun + fresh_s < asked_ || begun > asked_ + fresh_s || all[first_mark + mine_.local_index] != 0) {
    return state::none;
  }
  if (::pwrite(file, "\1", 1, static_cast<off_t>(first_mark + mine_.local_index)) != 1) return state::none;
  if (asked_ - begun > 60) {
    log_line(ex, "millrace: " + what_ + " is what another rank of this machine began to read " +
                     std::to_string(asked_ - begun) + " s ago");
  }
  if (all.find('\0', first_mark) == std::string_view::npos) ::unlink(base_.c_str());  // all have it
  text_ = all.substr(copy_head_bytes, static_cast<std::size_t>(length));
  owner_ = std::move(owner);
  return state::there;
}

/// Whether this rank makes it.
MILLRACE_INLINE bool host_copy::lock(const executor& ex) {
  const std::string path = unfinished_path();
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  struct stat is {};
  if (file < 0 || ::fstat(file, &is) != 0 || is.st_uid != ::geteuid()) {
    const int why = file < 0 ? errno : EACCES;
    if (file >= 0) ::close(file);
    off(ex, path + ": " + std::strerror(why));
    return false;
  }
  struct stat named {};
  // The one of this name may have been renamed or removed since.
  if (::flock(file, LOCK_EX | LOCK_NB) != 0 || ::stat(path.c_str(), &named) != 0 || named.st_ino != is.st_ino ||
      named.st_dev != is.st_dev || ::ftruncate(file, 0) != 0) {
    ::close(file);
    return false;
  }
  making_ = file;
  return true;
}

/// Something that changes as long as the maker lives.
MILLRACE_INLINE std::int64_t host_copy::beaten() const noexcept {
  struct stat is {};
  if (::stat(unfinished_path().c_str(), &is) != 0) return -1;
  return is.st_mtim.tv_sec * 1'000'000'000 + is.st_mtim.tv_nsec;
}

MILLRACE_COROUTINE_BODY task<void> host_copy::keep_beating(int file) {
  for (;;) {
    ::futimens(file, nullptr);
    co_await sleep_for(std::chrono::seconds(beat_s));
  }
}

/// What starts that were killed have left, and no rank takes any more.
MILLRACE_INLINE void host_copy::remove_old() const {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(prefix_).parent_path();
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    struct stat is {};
    if (path.compare(0, prefix_.size(), prefix_) != 0 || ::lstat(path.c_str(), &is) != 0) continue;
    if (S_ISREG(is.st_mode) && is.st_uid == ::geteuid() && is.st_mtime + fresh_s < asked_) ::unlink(path.c_str());
  }
}

MILLRACE_COROUTINE_BODY task<bool> host_copy::find() {
  if (base_.empty()) co_return false;
  executor& ex = co_await this_executor();
  asked_ = begun_ = static_cast<std::int64_t>(::time(nullptr));
  std::int64_t seen = 0;
  time_point since = ex.now();
  duration pause = std::chrono::milliseconds(2);
  for (;;) {
    state is = look(ex);
    if (is == state::none && lock(ex)) {
      is = look(ex);  // which another one may have made before the lock was there
      if (is == state::none) {
        begun_ = static_cast<std::int64_t>(::time(nullptr));
        remove_old();
        beating_ = spawned<void>(ex, keep_beating(making_));
        co_return false;
      }
      give_up();
    }
    if (is == state::there) co_return true;
    if (is == state::other) off(ex, "another rank could not leave it: " + base_);
    if (base_.empty()) co_return false;
    if (const std::int64_t now = beaten(); now != seen) {
      seen = now;
      since = ex.now();
    } else if (ex.now() - since > std::chrono::seconds(patience_s)) {
      off(ex, "the rank that reads it has not moved for " + std::to_string(patience_s) + " s");
      co_return false;
    }
    co_await sleep_for(pause);
    pause = std::min<duration>(2 * pause, std::chrono::milliseconds(200));
  }
}

MILLRACE_INLINE void host_copy::give(const executor& ex, std::string_view text, std::string_view more) {
  if (making_ < 0) return;
  beating_ = spawned<void>();
  std::string head(copy_magic);
  append_le(head, 0, 4);
  append_le(head, mine_.local_world_size, 4);
  append_le(head, static_cast<std::uint64_t>(begun_), 8);
  append_le(head, text.size() + more.size(), 8);
  head += key_;
  std::uint32_t crc = crc32c(0, head.data() + 16, head.size() - 16);
  crc = crc32c(crc, text.data(), text.size());
  crc = crc32c(crc, more.data(), more.size());
  std::string sum;
  append_le(sum, crc, 4);
  head.replace(8, 4, sum);
  std::string marks(mine_.local_world_size, '\0');
  marks[mine_.local_index] = 1;
  int why = 0;
  for (std::string_view part : {std::string_view(head), text, more, std::string_view(marks)}) {
    while (why == 0 && !part.empty()) {
      const ssize_t written = ::write(making_, part.data(), part.size());
      if (written > 0) part.remove_prefix(static_cast<std::size_t>(written));
      if (written == 0 || (written < 0 && errno != EINTR)) why = written == 0 ? ENOSPC : errno;
    }
  }
  // The others learn of a file that is empty that there will be none.
  if (why != 0 && ::ftruncate(making_, 0) != 0) why = errno;
  if (::rename(unfinished_path().c_str(), base_.c_str()) != 0) {
    if (why == 0) why = errno;
    ::unlink(unfinished_path().c_str());
  }
  ::close(std::exchange(making_, -1));
  if (why != 0) off(ex, base_ + ": " + std::strerror(why));
}

MILLRACE_INLINE void host_copy::refuse(const executor& ex, const std::string& why) {
  log_line(ex, "millrace: " + what_ + ": the copy of this machine is not used, and is made anew: " + why);
  text_ = {};
  owner_.reset();
  ::unlink(base_.c_str());
}

MILLRACE_INLINE void host_copy::give_up() noexcept {
  if (making_ < 0) return;
  beating_ = spawned<void>();
  ::unlink(unfinished_path().c_str());  // while it is locked: the name is of this file
  ::close(std::exchange(making_, -1));
}

}  // namespace millrace::detail
