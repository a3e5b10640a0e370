// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/cache/cache_folder.hpp>
#include <millrace/cache/disk_slots.ipp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::shared_ptr<disk_slots> cache_folder::opened(const std::string& directory) {
  const std::shared_ptr<disk_slots> s(new disk_slots);
  s->directory_ = directory;
  s->folder_ = disk_slots::open_folder(directory);
  const where at{directory, std::nullopt, {}};
  s->index_ = owned_fd(::openat(s->folder_.get(), "index", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (s->index_.get() < 0) throw io_error::of(errno, "the folder holds no cache: its index cannot be opened", at);
  const std::uint32_t format = s->read_index_head();
  if (format == 0) throw io_error(std::errc(EPROTO), "the folder holds no cache: its index is not that of one", at);
  if (format != cache_format) s->refuse_format(format);
  return s;
}

MILLRACE_INLINE std::shared_ptr<const disk_slots> cache_folder::open_index(const std::string& directory) {
  return opened(directory);
}

MILLRACE_INLINE cache_folder::report cache_folder::inspect(const std::string& directory, bool contents) {
  using entry = disk_slots::entry;
  using header = disk_slots::slot_header;
  constexpr std::size_t block = disk_slots::block_bytes, grain = disk_slots::grain_bytes;
  const std::shared_ptr<disk_slots> s = opened(directory);
  const where at{directory, std::nullopt, {}};
  const auto read_all = [](int fd, void* to, std::size_t size, std::uint64_t offset) {
    std::size_t done = 0;
    while (done < size) {
      const ::ssize_t got = ::pread(fd, static_cast<char*>(to) + done, size - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done == size;
  };
  report out;
  const disk_slots::cursor c = s->read_cursor();
  // There are no more than the index has bytes for, whatever its head says.
  struct ::stat whole = {};
  if (::fstat(s->index_.get(), &whole) != 0) throw io_error::of(errno, "the index cannot be read", at);
  const std::uint64_t slots =
      std::min({c.next, s->entries_, static_cast<std::uint64_t>(whole.st_size) / sizeof(entry)});
  out.taken = slots - std::min(slots, c.again_end - c.again);

  // The position in the index of the entry of each slot, and 1.
  std::vector<std::uint64_t> positions(slots);
  std::vector<entry> some(2048);
  for (std::uint64_t i = 0; i < s->entries_ + disk_slots::window; i += some.size()) {
    const auto n = static_cast<std::size_t>(
        std::min<std::uint64_t>(some.size(), s->entries_ + disk_slots::window - i));
    if (!read_all(s->index_.get(), some.data(), n * sizeof(entry), s->entries_at_ + i * sizeof(entry))) {
      throw io_error(std::errc(EIO), "the index of the cache cannot be read", at);
    }
    for (std::size_t k = 0; k < n; ++k) {
      const entry& e = some[k];
      if (e.slot == 0 || e.slot > slots || e.crc != crc32c(0, &e, offsetof(entry, crc))) continue;
      if (e.epoch == s->read_epoch((e.slot - 1) / s->segment_slots_)) positions[e.slot - 1] = i + k + 1;
    }
  }

  int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  int fd = ::openat(s->folder_.get(), "headers", flags | O_DIRECT);
  if (fd < 0 && errno == EINVAL) fd = ::openat(s->folder_.get(), "headers", flags);
  const owned_fd headers(fd);
  disk_slots::aligned page = disk_slots::aligned_bytes(cache_page);
  disk_slots::aligned data = disk_slots::aligned_bytes(block);
  const auto& h = *reinterpret_cast<const header*>(page.data());
  std::map<std::string, data_set> sets;
  for (std::uint64_t first = 0; first < slots; first += s->segment_slots_) {
    const std::uint64_t number = first / s->segment_slots_;
    int error = 0;
    const std::shared_ptr<owned_fd> segment = s->open_segment(number, false, error);
    struct ::stat file {};
    if (segment != nullptr) {
      ++out.segments;
      ::fstat(segment->get(), &file);
      if (file_lock_taken(segment->get(), segment_lock)) ++out.used;
      // So that it is not given away meanwhile. While it is, nothing of it is there.
      if (!set_file_lock(segment->get(), F_RDLCK, segment_lock)) continue;
    }
    for (std::uint64_t slot = first; slot < std::min(slots, first + s->segment_slots_); ++slot) {
      if (positions[slot] == 0) continue;
      const std::uint64_t from = s->entries_at_ + (positions[slot] - 1) * sizeof(entry);
      const auto now = [&] {
        entry e;
        if (!read_all(s->index_.get(), &e, sizeof e, from)) e = entry();
        return e;
      };
      std::string wrong;
      for (int tries = 0; tries < 3; ++tries) {  // again, if it is being written
        const entry e = now();
        wrong.clear();
        if (e.slot != slot + 1 || e.filled == 0) break;
        if (!read_all(headers.get(), page.data(), cache_page, slot * cache_page) || !disk_slots::whole(h) ||
            h.high != e.high || h.low != e.low || h.generation != e.generation) {
          wrong = "its header is damaged";
        } else if (segment == nullptr) {
          wrong = "the file of the segment is gone";
        } else if (contents) {
          const std::uint64_t length = std::min<std::uint64_t>(block, h.total - h.block * block);
          for (std::size_t g = 0; g < disk_slots::grains && wrong.empty(); ++g) {
            if (!h.has(g)) continue;
            const std::size_t n = std::min<std::uint64_t>(grain, length - std::min<std::uint64_t>(length, g * grain));
            std::size_t run = 0;  // neighbours are read at once
            if (g == 0 || !h.has(g - 1)) {
              while (g + run < disk_slots::grains && h.has(g + run)) ++run;
            }
            const std::uint64_t to = slot % s->segment_slots_ * block + g * grain;
            if (run != 0 && !read_all(segment->get(), data.data() + g * grain, run * grain, to)) {
              wrong = "its data cannot be read";
            } else if (crc32c(0, data.data() + g * grain, n) != h.grain_crc[g]) {
              wrong = "its data are damaged at byte " + std::to_string(g * grain);
            }
          }
        }
        if (wrong.empty()) {
          data_set& set = sets[std::string(url_folders::folder_of(h.name()))];
          const std::uint64_t there = std::uint64_t(e.filled) * grain;
          set.bytes += there;
          set.used = std::max<std::int64_t>(set.used, file.st_mtim.tv_sec);
          out.bytes += there;
          ++out.blocks;
          break;
        }
        const entry after = now();
        if (after.slot == e.slot && after.generation == e.generation && after.filled == e.filled) break;
      }
      if (wrong.empty()) continue;
      std::string of;
      if (disk_slots::whole(h)) of = ", block " + std::to_string(h.block) + " of " + shown_name(h.name());
      out.damaged.push_back("segment " + std::to_string(number) + ", slot " +
                            std::to_string(slot % s->segment_slots_) + of + ": " + wrong);
    }
  }
  url_folders joined;
  for (const auto& set : sets) joined.add(set.first);
  for (const auto& [folder, set] : sets) {
    const std::string& prefix = *joined.find(folder);
    const auto same = [&](const data_set& d) { return d.prefix == prefix; };
    auto to = std::find_if(out.sets.begin(), out.sets.end(), same);
    if (to == out.sets.end()) {
      to = out.sets.emplace(out.sets.end());
      to->prefix = prefix;
    }
    to->bytes += set.bytes;
    to->used = std::max(to->used, set.used);
  }
  return out;
}

MILLRACE_INLINE cache_folder::removed cache_folder::drop(const std::string& directory) {
  const where at{directory, std::nullopt, {}};
  const std::shared_ptr<disk_slots> s(new disk_slots);
  s->directory_ = directory;
  s->folder_ = disk_slots::open_folder(directory);
  if (!s->is_of_a_cache("index") && !s->is_of_a_cache("locks")) {
    if (::faccessat(s->folder_.get(), "index", F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
      throw io_error::of(errno, "the folder holds no cache: its index cannot be opened", at);
    }
    throw io_error(std::errc(EPROTO), "the folder holds no cache: its index is not that of one", at);
  }
  s->lock_folder(false, 1000);
  return s->remove_files(true);
}

}  // namespace millrace::detail
