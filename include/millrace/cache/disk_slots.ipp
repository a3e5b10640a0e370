// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/cache/disk_slots.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/file.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

inline constexpr char cache_magic[8] = {'m', 'i', 'l', 'l', 'r', 'a', 'c', 'e'};
inline constexpr std::uint32_t cache_format = 3;
inline constexpr std::uint64_t cache_page = 4096;  // of headers, and of the index's beginning
inline constexpr std::uint64_t allocation_lock = std::uint64_t(1) << 62;  // claims lock the bytes below
inline constexpr std::uint64_t segment_lock = std::uint64_t(1) << 62;     // of a segment's file
inline constexpr std::size_t most_read = std::size_t(4) << 20;            // of blocks at once

/// Locks a byte of a file for its descriptor, or unlocks it. False if another one has it, or for another reason.
MILLRACE_INLINE bool set_file_lock(int fd, short type, std::uint64_t byte) noexcept {
  struct ::flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(byte);
  range.l_len = 1;
  for (;;) {
    if (::fcntl(fd, F_OFD_SETLK, &range) == 0) return true;
    if (errno != EINTR) return false;
  }
}

/// True if a file may not be written up to there (RLIMIT_FSIZE): the kernel would end the program by SIGXFSZ.
MILLRACE_INLINE bool beyond_file_limit(std::uint64_t end) noexcept {
  struct ::rlimit most {};
  return ::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && end > most.rlim_cur;
}

/// Descriptors that have locks. A child of fork() has copies of them, which would keep the locks of a parent that ends:
/// there, before fork() returns, others take their numbers.
class lock_descriptors {
 public:
  static lock_descriptors& all() {
    static lock_descriptors* const one = new lock_descriptors;  // a process may fork until it ends
    return *one;
  }
  /// A descriptor of a file, -1 with errno. While it is opened or closed no thread forks.
  std::shared_ptr<owned_fd> open(int folder, const char* name, int flags) {
    std::shared_ptr<owned_fd> opened(new owned_fd, [this](owned_fd* p) {
      const std::lock_guard until_closed(mutex_);
      std::erase(open_, p->get());
      delete p;
    });
    const std::lock_guard until_opened(mutex_);
    if (instead_.get() < 0) instead_ = owned_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    open_.push_back(-1);
    if (instead_.get() >= 0) open_.back() = ::openat(folder, name, flags, 0600);
    *opened = owned_fd(open_.back());
    if (open_.back() < 0) open_.pop_back();
    return opened;
  }

 private:
  lock_descriptors() {
    ::pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                     [] {
                       lock_descriptors& here = all();
                       for (const int fd : here.open_) ::dup3(here.instead_.get(), fd, O_CLOEXEC);
                       here.open_.clear();
                       here.mutex_.unlock();
                     });
  }

  std::mutex mutex_;
  std::vector<int> open_;
  owned_fd instead_;
};

/// Opens a file for locks that end with this process, whatever it has forked.
MILLRACE_INLINE std::shared_ptr<owned_fd> open_with_locks(int folder, const char* name, int flags) {
  return lock_descriptors::all().open(folder, name, flags);
}

MILLRACE_INLINE bool file_lock_taken(int fd, std::uint64_t byte) noexcept {
  struct ::flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(byte);
  range.l_len = 1;
  return ::fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

MILLRACE_INLINE std::string cached_name(const std::string& endpoint, std::string_view url) {
  const bool says_it =
      url.substr(0, endpoint.size()) == endpoint || url.substr(0, 7) == "http://" || url.substr(0, 8) == "https://";
  return says_it ? unsigned_url(std::string(url)) : endpoint + '\n' + std::string(url);
}

MILLRACE_INLINE std::string shown_name(std::string_view name) {
  return shown_url(std::string(name.substr(name.find('\n') + 1)));  // of no endpoint, all of it
}

MILLRACE_INLINE std::string shown_endpoint(std::string_view name) {
  const std::size_t end = name.find('\n');
  return end == std::string_view::npos ? std::string() : shown_url(std::string(name.substr(0, end)));
}

MILLRACE_INLINE std::string_view url_folders::folder_of(std::string_view url) noexcept {
  if (url.substr(0, 7) == "http://" || url.substr(0, 8) == "https://") url = url.substr(0, url.find_first_of("?#"));
  const std::size_t slash = url.rfind('/');
  const std::size_t at = slash == std::string_view::npos ? url.rfind(':') : slash;
  return at == std::string_view::npos ? std::string_view() : url.substr(0, at + 1);
}

MILLRACE_INLINE const std::string* url_folders::find(std::string_view url) const noexcept {
  for (const std::string& p : prefixes_) {
    if (url.substr(0, p.size()) == p) return &p;
  }
  return nullptr;
}

MILLRACE_INLINE void url_folders::add(std::string_view prefix) {
  constexpr std::size_t most = 16;
  std::string added(prefix);
  while (find(added) == nullptr) {
    std::erase_if(prefixes_, [&](const std::string& p) { return p.compare(0, added.size(), added) == 0; });
    prefixes_.push_back(std::move(added));
    if (prefixes_.size() <= most) return;
    const auto deepest = std::max_element(prefixes_.begin(), prefixes_.end(), [](const auto& a, const auto& b) {
      return std::count(a.begin(), a.end(), '/') < std::count(b.begin(), b.end(), '/');
    });
    const std::string_view inner = *deepest;
    added = inner.empty() ? std::string() : std::string(folder_of(inner.substr(0, inner.size() - 1)));
    prefixes_.erase(deepest);
  }
}

struct disk_slots::cursor {
  std::uint64_t next = 0;                    // the first slot that has never been taken
  std::uint64_t again = 0, again_end = 0;    // slots of a segment that was given away: those that are free
  std::uint32_t crc = 0;                     // of the members before it
  std::uint32_t unused = 0;

  std::uint32_t sum() const noexcept { return crc32c(0, this, offsetof(cursor, crc)); }
};

struct disk_slots::index_head {
  char magic[8];
  std::uint32_t format;
  std::uint32_t crc;  // of magic, format and entries: in all formats
  std::uint64_t entries;
  std::uint32_t segment_slots;
  std::uint32_t segment_slots_crc;
  char unused[32];
  cursor slots;

  std::uint32_t sum() const noexcept {
    const std::uint64_t words[] = {format, entries};
    return crc32c(crc32c(0, magic, sizeof magic), words, sizeof words);
  }
};

struct disk_slots::slot_header {
  char magic[8];
  std::uint32_t format;
  std::uint32_t crc;  // of the bytes after it
  std::uint64_t high, low;
  std::uint64_t block;
  std::uint64_t total;  // of the object
  std::uint32_t generation;
  std::uint16_t name_size, etag_size, encoding_size, unused;
  std::uint32_t unused_too;
  std::uint64_t there[grains / 64];  // a bit for each grain
  std::uint32_t grain_crc[grains];
  char text[cache_page - 64 - grains / 8 - 4 * grains];  // name, ETag, encoding

  bool has(std::size_t grain) const noexcept { return (there[grain / 64] >> (grain % 64) & 1) != 0; }
  std::string_view name() const noexcept { return {text, name_size}; }
  std::string_view etag() const noexcept { return {text + name_size, etag_size}; }
  std::string_view encoding() const noexcept { return {text + name_size + etag_size, encoding_size}; }
  std::uint32_t filled() const noexcept {
    int n = 0;
    for (const std::uint64_t word : there) n += std::popcount(word);
    return static_cast<std::uint32_t>(n);
  }
};

MILLRACE_INLINE bool disk_slots::whole(const slot_header& h) noexcept {
  static_assert(sizeof(index_head) == 96 && sizeof(entry) == 32 && sizeof(slot_header) == cache_page);
  return std::memcmp(h.magic, cache_magic, sizeof h.magic) == 0 && h.format == cache_format &&
         h.crc == crc32c(0, &h.high, sizeof h - offsetof(slot_header, high)) &&
         std::size_t(h.name_size) + h.etag_size + h.encoding_size <= sizeof h.text;
}

MILLRACE_INLINE bool disk_slots::fits(const cached_version& version) noexcept {
  return version.name.size() + version.etag.size() + version.encoding.size() <= sizeof(slot_header::text);
}

MILLRACE_INLINE void disk_slots::seal(slot_header& h) noexcept {
  std::memcpy(h.magic, cache_magic, sizeof h.magic);
  h.format = cache_format;
  h.crc = crc32c(0, &h.high, sizeof h - offsetof(slot_header, high));
}

MILLRACE_INLINE bool disk_slots::key_fits(const slot_header& h, const cached_version& v, std::uint64_t block) noexcept {
  return h.block == block && h.name() == v.name && same_etag(h.etag(), v.etag) && (!v.total || *v.total == h.total);
}

MILLRACE_INLINE void disk_slots::check_file(int fd, const char* name) const {
  const where at{directory_ + '/' + name, std::nullopt, {}};
  struct ::stat s {};
  if (::fstat(fd, &s) != 0) throw io_error::of(errno, "cannot be used for a cache", at);
  if (!S_ISREG(s.st_mode)) throw io_error(std::errc(EINVAL), "cannot be used for a cache: it is no regular file", at);
  if (s.st_uid != ::geteuid()) {
    throw io_error(std::errc(EPERM), "cannot be used for a cache: it belongs to another user", at);
  }
}

MILLRACE_INLINE bool disk_slots::is_remote(std::uint32_t file_system) noexcept {
  // NFS, SMB (three), FUSE, Ceph, AFS, 9P, Lustre, GPFS, BeeGFS, OCFS2, GFS2, Coda, NetWare, PanFS.
  for (const std::uint32_t remote :
       {0x6969u, 0x517bu, 0xff534d42u, 0xfe534d42u, 0x65735546u, 0x00c36400u, 0x5346414fu, 0x01021997u, 0x0bd00bd0u,
        0x47504653u, 0x19830326u, 0x7461636fu, 0x01161970u, 0x73757245u, 0x564cu, 0xaad7aaeau}) {
    if (file_system == remote) return true;
  }
  return false;
}

/// The folder itself; a link is refused, as its target may be another one tomorrow.
MILLRACE_INLINE owned_fd disk_slots::open_folder(const std::string& directory) {
  const where at{directory, std::nullopt, {}};
  char target[4096];
  const ::ssize_t link = ::readlink(directory.c_str(), target, sizeof target);
  if (link >= 0) {
    throw io_error(std::errc(ELOOP),
                   "cannot be the folder of a cache: it is a symbolic link; name the folder that it points to, " +
                       std::string(target, static_cast<std::size_t>(link)),
                   at);
  }
  owned_fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) throw io_error::of(errno, "cannot be opened as the folder of a cache", at);
  return fd;
}

/// True if a file of the folder begins as those of a cache do.
MILLRACE_INLINE bool disk_slots::is_of_a_cache(const char* name) const noexcept {
  const owned_fd fd(::openat(folder_.get(), name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  char magic[sizeof cache_magic] = {};
  return fd.get() >= 0 && ::pread(fd.get(), magic, sizeof magic, 0) == sizeof magic &&
         std::memcmp(magic, cache_magic, sizeof magic) == 0;
}

/// Calls a function with the names in the folder until it returns false.
template <class F>
void disk_slots::for_each_file(F&& f) const {
  const int copy = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<::DIR, int (*)(::DIR*)> all(copy < 0 ? nullptr : ::fdopendir(copy), &::closedir);
  if (all == nullptr) throw io_error::of(errno, "the folder of a cache cannot be read", where{directory_, {}, {}});
  while (const ::dirent* one = ::readdir(all.get())) {
    const std::string name = one->d_name;
    if (name != "." && name != ".." && !f(name)) return;
  }
}

/// Refuses a folder that holds something and is not that of a cache, whose files would be written over.
MILLRACE_INLINE void disk_slots::check_folder() const {
  const auto ours = [this] { return is_of_a_cache("locks") || is_of_a_cache("index"); };
  if (ours()) return;
  for_each_file([&](const std::string& name) {
    struct ::stat s {};
    if (name == "lost+found") return true;
    // A process that is killed while it begins a cache leaves it so.
    if (name == "locks" && ::fstatat(folder_.get(), "locks", &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode) &&
        s.st_size == 0) {
      return true;
    }
    if (ours()) return false;  // another process has begun one meanwhile
    throw io_error(std::errc(ENOTEMPTY),
                   "cannot be used for a cache: it is not one, and holds other files (" + name +
                       "): name a folder that is empty, or that is not there",
                   where{directory_, {}, {}});
  });
}

MILLRACE_INLINE void disk_slots::keep_private(int fd, const char* name) const {
  check_file(fd, name);
  struct ::stat s {};
  if (::fstat(fd, &s) == 0 && ((s.st_mode & 077) == 0 || ::fchmod(fd, 0600) == 0)) return;
  throw io_error::of(errno, "cannot be made readable for its owner alone", where{directory_ + '/' + name, {}, {}});
}

MILLRACE_INLINE void disk_slots::lock_folder(bool make, int tries) {
  const where at{directory_, std::nullopt, {}};
  struct ::stat s {};
  do {
    const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (make ? O_CREAT : 0);
    locks_ = open_with_locks(folder_.get(), "locks", flags);
    if (locks_->get() < 0 && errno == ENOENT && !make) return;
    if (locks_->get() < 0) throw io_error::of(errno, "the file locks of a cache cannot be opened", at);
    keep_private(locks_->get(), "locks");
    // This tells the folder from another one, whatever becomes of the index.
    if (make && !is_of_a_cache("locks") &&
        ::pwrite(locks_->get(), cache_magic, sizeof cache_magic, 0) != sizeof cache_magic) {
      throw io_error::of(errno, "the file locks of a cache cannot be written", at);
    }
    // Not F_OFD_SETLKW: this thread may be that of a loop on which the lock's owner runs.
    while (!lock(allocation_lock)) {
      const int error = errno;
      if (--tries <= 0 || error != EAGAIN) throw io_error::of(error, "the files of a cache cannot be locked", at);
      ::poll(nullptr, 0, 2);
    }
    if (::fstat(locks_->get(), &s) != 0) throw io_error::of(errno, "the file locks of a cache cannot be read", at);
  } while (s.st_nlink == 0);  // removed meanwhile: others would lock another file
}

MILLRACE_INLINE std::shared_ptr<disk_slots> disk_slots::open(std::string directory, std::uint64_t bytes,
                                                             double keep_free, bool wait) {
  const std::shared_ptr<disk_slots> made(new disk_slots);
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  made->directory_ = std::move(directory);
  made->keep_free_ = keep_free;
  const where at{made->directory_, std::nullopt, {}};
  if (::mkdir(made->directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    throw io_error::of(errno, "the folder of a cache cannot be made", at);
  }
  made->folder_ = open_folder(made->directory_);
  struct ::stat s {};
  if (::fstat(made->folder_.get(), &s) != 0) throw io_error::of(errno, "cannot be opened as the folder of a cache", at);
  if (s.st_uid != ::geteuid()) throw io_error(std::errc(EPERM), "the folder of a cache belongs to another user", at);
  if ((s.st_mode & 022) != 0) {
    throw io_error(std::errc(EPERM), "the folder of a cache is one that other users may write to: chmod 700", at);
  }
  struct ::statfs fs {};
  if (::fstatfs(made->folder_.get(), &fs) != 0) throw io_error::of(errno, "cannot read its file system", at);
  if (is_remote(static_cast<std::uint32_t>(fs.f_type))) {
    throw configuration_error("the folder of a disk cache is on a network file system, or on FUSE", at);
  }
  made->check_folder();
  made->lock_folder(true, wait ? 1000 : 50);
  made->wanted_ = std::min<std::uint64_t>(bytes / slot_bytes, no_slot - 1);
  made->open_index(made->wanted_);
  made->capacity_ = std::min(made->wanted_, made->entries_ / 4 * 3);
  int error = 0;
  const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  int fd = ::openat(made->folder_.get(), "headers", flags | O_DIRECT, 0600);
  if (fd < 0 && errno == EINVAL) fd = ::openat(made->folder_.get(), "headers", flags, 0600);
  if (fd < 0) error = errno;
  made->headers_ = std::make_shared<owned_fd>(fd);
  if (error != 0) throw io_error::of(error, "the file headers of a cache cannot be opened", at);
  made->keep_private(fd, "headers");
  const int known = ::openat(made->folder_.get(), "headers", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (known < 0) throw io_error::of(errno, "the file headers of a cache cannot be opened", at);
  made->known_headers_ = std::make_shared<owned_fd>(known);
  made->unlock(allocation_lock);
  return made;
}

/// Finds where entries begin, after an epoch of four bytes for each segment, and says the size of the file.
MILLRACE_INLINE std::uint64_t disk_slots::begin_entries() noexcept {
  const std::uint64_t segments = entries_ / 4 * 3 / segment_slots_ + 1;
  entries_at_ = cache_page + (4 * segments + cache_page - 1) / cache_page * cache_page;
  return entries_at_ + (entries_ + window) * sizeof(entry);
}

MILLRACE_INLINE std::uint32_t disk_slots::read_index_head() {
  const where at{directory_ + "/index", std::nullopt, {}};
  check_file(index_.get(), "index");
  index_head head{};
  struct ::stat s {};
  const ::ssize_t got = ::pread(index_.get(), &head, sizeof head, 0);
  if (got < 0 || ::fstat(index_.get(), &s) != 0) throw io_error::of(errno, "the index of a cache cannot be read", at);
  const bool ours = got == sizeof head && std::memcmp(head.magic, cache_magic, sizeof head.magic) == 0 &&
                    head.crc == head.sum();
  if (ours && head.format != cache_format) return head.format;
  entries_ = head.entries;
  segment_slots_ = head.segment_slots;
  const bool whole = ours && std::has_single_bit(entries_) && entries_ < std::uint64_t(1) << 33 &&
                     head.segment_slots_crc == crc32c(0, &head.segment_slots, sizeof head.segment_slots) &&
                     segment_slots_ != 0 && segment_slots_ <= most_segment_slots &&
                     static_cast<std::uint64_t>(s.st_size) == begin_entries();
  return whole ? cache_format : 0;
}

MILLRACE_INLINE void disk_slots::refuse_format(std::uint32_t format) const {
  throw io_error(std::errc(EPROTO),
                 "the folder holds a cache of format " + std::to_string(format) + ", where this version has " +
                     std::to_string(cache_format) + ": use another folder, or remove it (millrace-cache drop)",
                 where{directory_, {}, {}});
}

MILLRACE_INLINE disk_slots::removed disk_slots::remove_files(bool locks_too) const {
  const where at{directory_, std::nullopt, {}};
  removed out;
  std::vector<owned_fd> locked;  // until all is removed
  for_each_file([&](const std::string& name) {
    const bool digits = name.size() >= 14 && name.find_first_not_of("0123456789", 8) == std::string::npos;
    const bool segment = name.compare(0, 8, "segment.") == 0 && digits;
    const bool ours = segment || name == "headers" || name == "locks" || name == "index.new" || name == "index";
    struct ::stat file {};
    if (!ours || ::fstatat(folder_.get(), name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(file.st_mode) ||
        file.st_uid != ::geteuid()) {
      ++out.left;
      return true;
    }
    if (name == "locks" && !locks_too) return true;
    if (segment) {
      owned_fd fd(::openat(folder_.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
      if (fd.get() < 0) throw io_error::of(errno, name + " cannot be opened: nothing was removed", at);
      if (!set_file_lock(fd.get(), F_WRLCK, segment_lock)) {
        throw io_error(std::errc(EBUSY), "a process uses " + name + " of the cache: nothing was removed", at);
      }
      locked.push_back(std::move(fd));
    }
    out.bytes += static_cast<std::uint64_t>(file.st_blocks) * 512;
    out.names.push_back(name);
    return true;
  });
  std::sort(out.names.begin(), out.names.end());
  // The index last: if it is interrupted, it can be done again.
  std::stable_partition(out.names.begin(), out.names.end(), [](const std::string& n) { return n != "index"; });
  for (const std::string& name : out.names) {
    if (::unlinkat(folder_.get(), name.c_str(), 0) != 0 && errno != ENOENT) {
      throw io_error::of(errno, name + " of the cache cannot be removed", at);
    }
  }
  return out;
}

MILLRACE_INLINE void disk_slots::open_index(std::uint64_t slots) {
  const where at{directory_ + "/index", std::nullopt, {}};
  index_ = owned_fd(::openat(folder_.get(), "index", O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (index_.get() < 0 && errno != ENOENT) throw io_error::of(errno, "the index of a cache cannot be opened", at);
  if (index_.get() >= 0) {
    keep_private(index_.get(), "index");
    const std::uint32_t format = read_index_head();
    if (format == cache_format) return;
    if (format > cache_format) refuse_format(format);  // else two versions would remove each other's
    if (format != 0) {
      try {
        remove_files(false);
      } catch (const io_error& e) {
        throw io_error(std::errc(e.code().value()),
                       "the folder holds a cache of an older format, which stays: " + e.reason(),
                       where{directory_, {}, {}});
      }
      removed_format_ = format;
    }
  }
  // A new one. Processes that still have the former one open find out by intact().
  entries_ = std::bit_ceil(std::max<std::uint64_t>(2 * slots, 1024));
  // A small cache, too, has several segments to give away.
  segment_slots_ = std::clamp<std::uint64_t>(std::bit_floor(slots / 16), 1, most_segment_slots);
  index_head head{};
  std::memcpy(head.magic, cache_magic, sizeof head.magic);
  head.format = cache_format;
  head.entries = entries_;
  head.segment_slots = static_cast<std::uint32_t>(segment_slots_);
  head.segment_slots_crc = crc32c(0, &head.segment_slots, sizeof head.segment_slots);
  head.crc = head.sum();
  head.slots.crc = head.slots.sum();
  ::unlinkat(folder_.get(), "index.new", 0);
  index_ = owned_fd(::openat(folder_.get(), "index.new", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  // Allocated if the file system can, so that it is now that the disk is full, and not at any entry.
  const auto size = static_cast<off_t>(begin_entries());
  errno = EFBIG;
  if (index_.get() < 0 || beyond_file_limit(begin_entries()) ||
      (::fallocate(index_.get(), 0, 0, size) != 0 && (errno != EOPNOTSUPP || ::ftruncate(index_.get(), size) != 0)) ||
      ::pwrite(index_.get(), &head, sizeof head, 0) != sizeof head ||
      ::renameat(folder_.get(), "index.new", folder_.get(), "index") != 0) {
    const int why = errno;
    std::string what = "the index of a cache cannot be made";
    if (removed_format_ != 0) {
      what += ", and the cache of format " + std::to_string(removed_format_) + ", of an older version, is removed";
    }
    throw io_error::of(why, what, at);
  }
}

MILLRACE_INLINE bool disk_slots::intact() const noexcept {
  struct ::stat s {};
  return process_.here() && ::fstat(index_.get(), &s) == 0 && s.st_nlink > 0 &&
         static_cast<std::uint64_t>(s.st_size) == entries_at_ + (entries_ + window) * sizeof(entry);
}

MILLRACE_INLINE bool disk_slots::replaced() const {
  return ::faccessat(AT_FDCWD, (directory_ + "/index").c_str(), F_OK, 0) == 0;
}

MILLRACE_INLINE disk_slots::place disk_slots::place_of(const std::string& name, std::uint64_t block) const {
  hasher128 h;
  h.add(std::string_view(name));
  h.add(block);
  place p;
  p.key = h.value();
  p.home = p.key.low & (entries_ - 1);
  return p;
}

MILLRACE_INLINE disk_slots::place disk_slots::mark_of(const std::string& name) const {
  return place_of(name, ~std::uint64_t(0));  // no object has that block
}

/// The entry of a key; or, with slot 0, the first that is free for it; nothing if none is. `to_insert`, under the
/// lock of allocation: one that is void, or a mark, is free if no other is.
MILLRACE_INLINE std::optional<disk_slots::found> disk_slots::find(const place& p, bool to_insert) const {
  entry all[window];
  const auto from = static_cast<off_t>(entries_at_ + p.home * sizeof(entry));
  const ::ssize_t got = ::pread(index_.get(), all, sizeof all, from);
  const std::size_t n = got > 0 ? static_cast<std::size_t>(got) / sizeof(entry) : 0;
  const auto current = [this](const entry& e) {
    return e.slot == no_slot || e.epoch == epoch_of((e.slot - 1) / segment_slots_);
  };
  std::optional<found> free;
  for (std::size_t i = 0; i < n; ++i) {
    const bool same = all[i].high == p.key.high && all[i].low == p.key.low;
    if (!same && free) continue;
    bool valid = all[i].slot != 0 && (all[i].slot <= entries_ || all[i].slot == no_slot) &&
                 all[i].crc == crc32c(0, &all[i], offsetof(entry, crc));
    if (valid && same) {
      if (current(all[i])) return found{all[i], p.home + i};
      valid = false;  // the key's own, before others
      free.reset();
    }
    if (!valid && !free) free = found{entry(), p.home + i};
  }
  for (std::size_t i = 0; to_insert && !free && i < n; ++i) {
    if (all[i].slot == no_slot || !current(all[i])) free = found{entry(), p.home + i};
  }
  return free;
}

MILLRACE_INLINE std::optional<disk_slots::found> disk_slots::find_block(const place& p) const {
  std::optional<found> there = find(p);
  if (there && (there->at.slot == 0 || there->at.slot == no_slot)) there.reset();
  return there;
}

MILLRACE_INLINE bool disk_slots::lists(const std::string& name, std::uint64_t offset, std::uint64_t end) const {
  for (const block_part& p : parts_of(offset, end)) {
    const std::optional<found> there = find_block(place_of(name, p.block));
    if (!there || there->at.filled < (p.end - p.begin + grain_bytes - 1) / grain_bytes) return false;
  }
  return true;
}

MILLRACE_INLINE std::uint64_t disk_slots::listed_bytes(const std::string& name, std::uint64_t offset,
                                                       std::uint64_t end) const {
  std::uint64_t bytes = 0;
  for (const block_part& p : parts_of(offset, end)) {
    const std::optional<found> there = find_block(place_of(name, p.block));
    if (there) bytes += std::min<std::uint64_t>(p.end - p.begin, there->at.filled * grain_bytes);
  }
  return bytes;
}

/// False with errno if it cannot.
MILLRACE_INLINE bool disk_slots::write_index(const void* data, std::size_t size, std::uint64_t offset) const noexcept {
  errno = EFBIG;
  if (beyond_file_limit(offset + size)) return false;
  errno = EIO;
  return ::pwrite(index_.get(), data, size, static_cast<off_t>(offset)) == static_cast<::ssize_t>(size);
}

MILLRACE_INLINE bool disk_slots::put(std::uint64_t position, entry e) const noexcept {
  e.crc = crc32c(0, &e, offsetof(entry, crc));
  return write_index(&e, sizeof e, entries_at_ + position * sizeof e);
}

MILLRACE_INLINE bool disk_slots::lock(std::uint64_t byte) const noexcept {
  return set_file_lock(locks_->get(), F_WRLCK, byte);
}

MILLRACE_INLINE void disk_slots::unlock(std::uint64_t byte) const noexcept {
  set_file_lock(locks_->get(), F_UNLCK, byte);
}

MILLRACE_INLINE std::vector<disk_slots::block_part> disk_slots::parts_of(std::uint64_t offset, std::uint64_t end) {
  std::vector<block_part> parts;
  for (std::uint64_t block = offset / block_bytes; block * block_bytes < end; ++block) {
    const std::uint64_t first = block * block_bytes;
    block_part p;
    p.block = block;
    p.begin = static_cast<std::size_t>(std::max(offset, first) - first);
    p.end = static_cast<std::size_t>(std::min<std::uint64_t>(end - first, block_bytes));
    parts.push_back(p);
  }
  return parts;
}

MILLRACE_INLINE disk_slots::claim disk_slots::try_claim(const std::string& name, std::uint64_t offset,
                                                        std::uint64_t end) {
  claim own(shared_from_this(), 0);  // before the guard: its locks are given back without the mutex
  const std::lock_guard guard(mutex_);
  own.number_ = ++claims_;
  const bool small = end - offset <= grain_bytes;
  for (const block_part& p : parts_of(offset, end)) {
    const place at = place_of(name, p.block);
    bool locked = false, overlaps = false;
    for (const held& h : held_) {
      if (h.home != at.home) continue;
      locked = true;
      // Neighbours fetch a grain that their ends have in common both: neither waits for the other.
      const std::size_t from = std::max(h.begin, p.begin), to = std::min(h.end, p.end);
      const bool more = to - from > grain_bytes || small || h.small;
      overlaps = overlaps || (h.key == at.key && from < to && more);
    }
    if (overlaps) return claim();
    held_.push_back(held{own.number_, at.home, at.key, p.begin, p.end, small, false, false});
    if (!locked && !lock(at.home)) return claim();
  }
  return own;
}

MILLRACE_INLINE void disk_slots::release(std::uint64_t number) noexcept {
  const std::lock_guard guard(mutex_);
  for (std::size_t i = 0; i < held_.size();) {
    if (held_[i].number != number) {
      ++i;
      continue;
    }
    const std::uint64_t home = held_[i].home;
    held_[i] = held_.back();
    held_.pop_back();
    const auto same = [home](const held& h) { return h.home == home; };
    if (std::none_of(held_.begin(), held_.end(), same)) unlock(home);
  }
}

/// False while another claim of this process writes to one of the blocks.
MILLRACE_INLINE bool disk_slots::begin_writing(std::uint64_t number) {
  const std::lock_guard guard(mutex_);
  for (const held& own : held_) {
    if (own.number != number) continue;
    for (const held& h : held_) {
      if (h.writing && h.number != number && h.key == own.key) return false;
    }
  }
  for (held& own : held_) own.writing = own.writing || own.number == number;
  return true;
}

MILLRACE_INLINE disk_slots::allocation disk_slots::try_allocating(bool& by_this_process) {
  const std::lock_guard guard(mutex_);
  by_this_process = allocating_;
  if (allocating_ || !lock(allocation_lock)) return allocation();
  allocating_ = true;
  return allocation(*this);
}

MILLRACE_INLINE void disk_slots::end_allocating() noexcept {
  const std::lock_guard guard(mutex_);
  unlock(allocation_lock);
  allocating_ = false;
}

MILLRACE_INLINE std::shared_ptr<owned_fd> disk_slots::open_segment(std::uint64_t number, bool create,
                                                                   int& error) const {
  char name[32];
  std::snprintf(name, sizeof name, "segment.%06llu", static_cast<unsigned long long>(number));
  const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (create ? O_CREAT : 0);
  std::shared_ptr<owned_fd> opened = open_with_locks(folder_.get(), name, flags | O_DIRECT);
  if (opened->get() < 0 && errno == EINVAL) opened = open_with_locks(folder_.get(), name, flags);
  try {
    if (opened->get() < 0) throw io_error(std::errc(errno), "cannot be opened");
    keep_private(opened->get(), name);
  } catch (const io_error& e) {
    error = e.code().value();
    return nullptr;
  }
  return opened;
}

MILLRACE_INLINE std::shared_ptr<owned_fd> disk_slots::segment(std::uint64_t number, bool create, int& error) {
  const std::lock_guard guard(use_mutex_);
  if (segments_.size() <= number) segments_.resize(number + 1);
  used_segment& s = segments_[number];
  if (s.fd == nullptr) {
    std::shared_ptr<owned_fd> opened = open_segment(number, create, error);
    if (opened == nullptr) return nullptr;
    if (!set_file_lock(opened->get(), F_RDLCK, segment_lock)) {
      error = errno == EAGAIN || errno == EACCES ? 0 : errno;
      return nullptr;
    }
    s.fd = std::move(opened);
    s.epoch = read_epoch(number);
  }
  struct ::timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  if (s.touched == 0 || now.tv_sec - s.touched >= 60) {  // when it was last used, for those who look for one to give
    s.touched = now.tv_sec + 1;
    ::futimens(s.fd->get(), nullptr);
  }
  return s.fd;
}

MILLRACE_INLINE std::shared_ptr<owned_fd> disk_slots::segment_of(const entry& e, int& error) {
  const std::uint64_t number = (e.slot - 1) / segment_slots_;
  std::shared_ptr<owned_fd> fd = segment(number, false, error);
  if (fd != nullptr && epoch_of(number) != e.epoch) return nullptr;
  return fd;
}

MILLRACE_INLINE std::uint16_t disk_slots::read_epoch(std::uint64_t segment) const noexcept {
  std::uint32_t epoch = 0;
  const ::ssize_t got = ::pread(index_.get(), &epoch, sizeof epoch, static_cast<off_t>(cache_page + 4 * segment));
  return got == sizeof epoch ? static_cast<std::uint16_t>(epoch) : 0;
}

MILLRACE_INLINE std::uint16_t disk_slots::epoch_of(std::uint64_t segment) const noexcept {
  const std::lock_guard guard(use_mutex_);
  if (segment < segments_.size() && segments_[segment].fd != nullptr) return segments_[segment].epoch;
  return read_epoch(segment);
}

MILLRACE_INLINE void disk_slots::protect(std::string_view prefix) {
  const std::lock_guard guard(use_mutex_);
  folders_.add(prefix);
}

MILLRACE_INLINE bool disk_slots::room_for(std::uint64_t more, double share) const noexcept {
  struct ::statvfs fs {};
  if (::fstatvfs(folder_.get(), &fs) != 0) return false;
  const double unit = static_cast<double>(fs.f_frsize);
  return static_cast<double>(fs.f_bavail) * unit - static_cast<double>(more) >=
         share * static_cast<double>(fs.f_blocks) * unit;
}

MILLRACE_INLINE disk_slots::cursor disk_slots::read_cursor() const {
  cursor c;
  if (::pread(index_.get(), &c, sizeof c, offsetof(index_head, slots)) == sizeof c && c.crc == c.sum()) return c;
  c = cursor();
  // It is damaged: after the last slot that an entry names.
  std::vector<entry> some(2048);
  for (std::uint64_t i = 0; i < entries_ + window; i += some.size()) {
    const ::ssize_t got = ::pread(index_.get(), some.data(), some.size() * sizeof(entry),
                                  static_cast<off_t>(entries_at_ + i * sizeof(entry)));
    for (std::size_t k = 0; static_cast<::ssize_t>((k + 1) * sizeof(entry)) <= got; ++k) {
      const entry& e = some[k];
      if (e.slot != 0 && e.slot != no_slot && e.crc == crc32c(0, &e, offsetof(entry, crc))) {
        c.next = std::max<std::uint64_t>(c.next, e.slot);
      }
    }
  }
  return c;
}

MILLRACE_INLINE bool disk_slots::put(cursor c) const noexcept {
  c.crc = c.sum();
  return write_index(&c, sizeof c, offsetof(index_head, slots));
}

MILLRACE_INLINE std::uint64_t disk_slots::used() const {
  const cursor c = read_cursor();
  return c.next - (c.again_end - c.again);
}

MILLRACE_INLINE void disk_slots::take_out(const place& p, const std::uint32_t* generation) {
  std::optional<found> there = find_block(p);
  int error = 0;
  if (!there) return;
  if (segment_of(there->at, error) == nullptr && error == 0) return;  // it is given away
  if (generation != nullptr && there->at.generation != *generation) return;
  ++there->at.generation;
  there->at.filled = 0;
  put(there->position, there->at);
}

MILLRACE_INLINE void disk_slots::forget(const std::string& name, std::uint64_t offset, std::uint64_t end) {
  const std::lock_guard guard(mutex_);
  for (const block_part& p : parts_of(offset, end)) {
    const place at = place_of(name, p.block);
    for (held& h : held_) h.forgotten = h.forgotten || h.key == at.key;
    take_out(at);
  }
  std::optional<found> mark = find(mark_of(name));
  if (!mark || mark->at.slot != no_slot) return;
  mark->at.generation = ~mark->at.generation;  // of no ETag
  put(mark->position, mark->at);
}

MILLRACE_INLINE void disk_slots::not_there(const std::string& name,
                                           const std::vector<std::pair<std::uint64_t, std::uint32_t>>& wrong) {
  const std::lock_guard guard(mutex_);
  for (const auto& [block, generation] : wrong) take_out(place_of(name, block), &generation);
}

/// The number that stands for an ETag in the entry of a comparison, with or without a CRC of the bytes.
MILLRACE_INLINE std::uint32_t disk_slots::tag_sum(const std::string& etag, bool with_crc) {
  const std::string tag = plain_etag(etag) + (with_crc ? "" : "\n");
  return crc32c(0, tag.data(), tag.size());
}

MILLRACE_INLINE std::optional<disk_slots::comparison> disk_slots::compared(const cached_version& version) const {
  constexpr std::uint64_t most = 16384;  // blocks that are looked up
  if (!version.total || *version.total == 0 || *version.total > most * block_bytes) return std::nullopt;
  const std::optional<found> mark = find(mark_of(version.name));
  if (!mark || mark->at.slot != no_slot) return std::nullopt;
  const bool with_crc = mark->at.generation == tag_sum(version.etag, true);
  if (!with_crc && mark->at.generation != tag_sum(version.etag, false)) return std::nullopt;
  if (!lists(version.name, 0, *version.total)) return std::nullopt;
  if (!with_crc) return comparison();
  return comparison(mark->at.filled | static_cast<std::uint32_t>(mark->at.epoch) << 16);
}

MILLRACE_INLINE disk_slots::aligned disk_slots::aligned_bytes(std::size_t size) {
  aligned a;
  a.memory = writable_bytes::allocate(size + grain_bytes);
  a.at = (grain_bytes - reinterpret_cast<std::uintptr_t>(a.memory.data()) % grain_bytes) % grain_bytes;
  return a;
}

MILLRACE_INLINE disk_slots::aligned disk_slots::aligned_bytes(std::size_t size, slab_pool& slabs) {
  if (size <= slabs.slab_bytes() && slabs.worth_a_slab(size)) {
    aligned a;
    a.memory = slabs.acquire();
    if (reinterpret_cast<std::uintptr_t>(a.memory.data()) % grain_bytes == 0) return a;
  }
  return aligned_bytes(size);
}

/// Reads or writes all of it: how many bytes that were (fewer: the file ends), or a negative errno value.
MILLRACE_COROUTINE_BODY task<std::int64_t> disk_slots::transfer(file_request r, std::shared_ptr<owned_fd> fd,
                                                                bytes memory) {
  std::int64_t done = 0;
  if (r.what == file_request::kind::write && beyond_file_limit(r.offset + r.size)) co_return -EFBIG;
  r.fd = fd->get();
  while (r.size > 0) {
    file_keep keep(fd);
    keep.memory = memory;
    auto job = std::make_unique<file_job>(r, std::move(keep));
    const std::int64_t result = co_await file_wait(job);
    if (result == -EINTR || result == -EAGAIN) continue;
    if (result < 0) co_return result;
    if (result == 0) break;
    done += result;
    r.data = static_cast<char*>(r.data) + result;
    r.size -= static_cast<std::size_t>(result);
    r.offset += static_cast<std::uint64_t>(result);
  }
  co_return done;
}

MILLRACE_COROUTINE_BODY task<std::optional<std::uint64_t>> disk_slots::total_of(cached_version wanted,
                                                                                std::uint64_t block) {
  const std::optional<found> there = find_block(place_of(wanted.name, block));
  if (!there || there->at.filled == 0) co_return std::nullopt;
  aligned memory = aligned_bytes(cache_page);
  file_request r;
  r.data = memory.data();
  r.size = cache_page;
  r.offset = (there->at.slot - 1) * cache_page;
  const std::int64_t got = co_await transfer(r, known_headers_, memory.memory.share(0, memory.memory.capacity()));
  const auto& h = *reinterpret_cast<const slot_header*>(memory.data());
  if (got != static_cast<std::int64_t>(cache_page) || !whole(h) || !key_fits(h, wanted, block)) co_return std::nullopt;
  co_return h.total;
}

MILLRACE_COROUTINE_BODY task<disk_slots::reading> disk_slots::read(cached_version wanted, std::uint64_t offset,
                                                                   std::size_t length, slab_pool slabs) {
  reading out;
  protect(url_folders::folder_of(wanted.name));
  std::uint64_t end = offset + length;
  if (!wanted.total) {
    task<std::optional<std::uint64_t>> asking = total_of(wanted, offset / block_bytes);
    wanted.total = co_await std::move(asking);
    if (!wanted.total) co_return std::move(out);
  }
  end = std::min(end, *wanted.total);
  if (offset >= end) co_return std::move(out);
  const std::uint64_t begin = offset / grain_bytes * grain_bytes;
  std::vector<block_part> parts = parts_of(begin, end);
  for (block_part& p : parts) {
    const std::optional<found> there = find_block(place_of(wanted.name, p.block));
    if (!there || there->at.filled == 0) co_return std::move(out);
    p.index = *there;
  }

  const auto size = static_cast<std::size_t>(end - begin);
  const std::size_t rounded = (size + grain_bytes - 1) / grain_bytes * grain_bytes;
  aligned data = aligned_bytes(rounded, slabs);
  aligned headers = aligned_bytes(parts.size() * cache_page);
  const bytes data_kept = data.memory.share(0, data.memory.capacity());
  const bytes headers_kept = headers.memory.share(0, headers.memory.capacity());
  const coroutine_context here = co_await this_context();
  // Slots that follow each other are one read of headers, and one of up to most_read of blocks: some are checked while
  // others are still on their way.
  struct run {
    std::size_t first, blocks;  // of `parts`
    spawned<std::int64_t> reading;
  };
  std::vector<run> heads, runs;
  for (std::size_t i = 0; i < parts.size();) {
    const std::uint64_t slot = parts[i].index.at.slot - 1;
    std::size_t n = 1;
    while (i + n < parts.size() && parts[i + n].index.at.slot - 1 == slot + n &&
           parts[i + n].index.at.epoch == parts[i].index.at.epoch && (slot + n) % segment_slots_ != 0) {
      ++n;
    }
    int error = 0;
    const std::shared_ptr<owned_fd> fd = segment_of(parts[i].index.at, error);
    if (fd == nullptr) {
      if (error == 0 || error == EMFILE || error == ENFILE) co_return std::move(out);  // open segments are read
      if (error != ENOENT) out.error = error;
      for (std::size_t k = i; k < i + n; ++k) out.wrong.emplace_back(parts[k].block, parts[k].index.at.generation);
      out.damaged = n;
      co_return std::move(out);
    }
    file_request r;
    r.data = headers.data() + i * cache_page;
    r.size = n * cache_page;
    r.offset = slot * cache_page;
    heads.push_back(run{i, n, spawned<std::int64_t>(here, transfer(r, known_headers_, headers_kept))});
    for (const std::size_t end_of_run = i + n; i < end_of_run; i += n) {
      n = std::min(end_of_run - i, most_read / block_bytes);
      const block_part& p = parts[i];
      const std::size_t to = (n - 1) * block_bytes + parts[i + n - 1].end;
      r.data = data.data() + (p.block * block_bytes + p.begin - begin);
      r.size = (to + grain_bytes - 1) / grain_bytes * grain_bytes - p.begin;
      r.offset = (p.index.at.slot - 1) % segment_slots_ * block_bytes + p.begin;
      runs.push_back(run{i, n, spawned<std::int64_t>(here, transfer(r, fd, data_kept))});
    }
  }
  bool complete = true;
  for (run& one : heads) {
    const std::int64_t got = co_await one.reading;
    if (got < 0) out.error = static_cast<int>(-got);
    complete = complete && got == static_cast<std::int64_t>(one.blocks * cache_page);
  }

  bool all = true;
  std::size_t of = 0;
  std::int64_t got = 0;  // of run `of`
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i == runs[of].first + runs[of].blocks) ++of;
    if (i == runs[of].first) got = co_await runs[of].reading;
    if (got < 0) out.error = static_cast<int>(-got);
    if (out.error != 0) continue;
    const block_part& p = parts[i];
    const auto& h = *reinterpret_cast<const slot_header*>(headers.data() + i * cache_page);
    const block_part& first = parts[runs[of].first];
    const std::uint64_t to = (p.block - first.block) * block_bytes + p.end - first.begin;  // its end in the run
    bool right = complete && got >= static_cast<std::int64_t>((to + grain_bytes - 1) / grain_bytes * grain_bytes) &&
                 whole(h);
    bool theirs = right && h.generation == p.index.at.generation && key_fits(h, wanted, p.block);
    const bool wrong = !theirs;
    if (theirs) {
      for (std::size_t at = p.begin; at < p.end && right && theirs; at += grain_bytes) {
        const std::size_t grain = at / grain_bytes;
        theirs = h.has(grain);
        const std::uint64_t from = p.block * block_bytes + at;
        const std::size_t n = std::min<std::uint64_t>(grain_bytes, *wanted.total - from);
        const auto in_data = static_cast<std::size_t>(from - begin);
        right = !theirs || crc32c(0, data.data() + in_data, std::min(n, grain_bytes)) == h.grain_crc[grain];
        // So that who compares a sample with its own CRC need not read it again.
        if (right && theirs) data.memory.note_filled(data.at + in_data, h.grain_crc[grain], std::min(n, grain_bytes));
      }
    }
    if (right && theirs) continue;
    all = false;
    if (!right) ++out.damaged;
    if (!right || wrong) out.wrong.emplace_back(p.block, p.index.at.generation);
  }
  if (out.error != 0) out.wrong.clear();
  if (!all || out.error != 0) co_return std::move(out);
  const auto& h = *reinterpret_cast<const slot_header*>(headers.data());
  out.version.name = std::move(wanted.name);
  out.version.etag = std::string(h.etag());
  out.version.encoding = std::string(h.encoding());
  out.version.total = h.total;
  out.data = data.memory.share(data.at + static_cast<std::size_t>(offset - begin),
                               static_cast<std::size_t>(end - offset));
  out.hit = true;
  co_return std::move(out);
}

MILLRACE_COROUTINE_BODY task<disk_slots::allocation> disk_slots::wait_for_allocating() {
  // Another process may be stopped. This one goes on, however long a disk takes to make a segment.
  for (int own = 0, others = 0; own < own_waits && others < 2000;) {
    bool by_this_process = false;
    allocation ours = try_allocating(by_this_process);
    if (ours) co_return std::move(ours);
    ++(by_this_process ? own : others);
    co_await sleep_for(duration(1'000'000));
  }
  co_return allocation();
}

MILLRACE_COROUTINE_BODY task<int> disk_slots::grow(std::uint64_t slots) {
  const std::uint64_t number = (slots - 1) / segment_slots_;
  int error = 0;
  const std::shared_ptr<owned_fd> fd = segment(number, true, error);
  if (fd == nullptr) co_return error != 0 ? error : EBUSY;
  const std::uint64_t here = std::min(segment_slots_, capacity_ - number * segment_slots_);
  const std::shared_ptr<owned_fd> files[] = {fd, headers_};
  const std::uint64_t due[] = {here * block_bytes, (number * segment_slots_ + here) * cache_page};
  const std::uint64_t least[] = {(slots - number * segment_slots_) * block_bytes, slots * cache_page};
  for (int i = 0; i < 2; ++i) {
    struct ::stat s {};
    if (::fstat(files[i]->get(), &s) != 0) co_return errno;
    const auto there = static_cast<std::uint64_t>(s.st_size);
    if (there >= least[i]) continue;
    if (beyond_file_limit(due[i])) co_return EFBIG;
    if (!room_for(due[i] - there, keep_free_)) co_return room_for(due[i] - there, 0) ? keeps_free : ENOSPC;
    file_keep keep(files[i]);
    file_request r;
    r.what = file_request::kind::allocate;
    r.fd = files[i]->get();
    r.offset = there;
    r.size = static_cast<std::size_t>(due[i] - there);
    auto job = std::make_unique<file_job>(r, std::move(keep));
    const std::int64_t result = co_await file_wait(job);
    // If the file system cannot, it may be full at any write.
    const bool cannot = result == -EOPNOTSUPP || result == -EINVAL;
    if (cannot && ::ftruncate(files[i]->get(), static_cast<off_t>(due[i])) != 0) co_return errno;
    if (result < 0 && !cannot) co_return static_cast<int>(-result);
  }
  co_return 0;
}

MILLRACE_COROUTINE_BODY task<int> disk_slots::take_slots(const std::string& name, std::vector<block_part*>& without,
                                                         std::size_t& given) {
  const allocation ours = co_await wait_for_allocating();
  if (!ours) co_return 0;
  cursor c = read_cursor();
  for (block_part* const p : without) {
    int error = 0;
    const std::optional<found> there = find(place_of(name, p->block), true);  // another key may have come there
    if (!there) continue;
    if (there->at.slot != 0) {
      if (segment_of(there->at, error) != nullptr) p->index = *there;
      continue;
    }
    if (c.again >= c.again_end) {
      error = c.next < capacity_ ? co_await grow(c.next + 1) : ENOSPC;
      if (error == keeps_free || error == ENOSPC || error == EDQUOT) {
        const int taking = co_await give_segment(c);
        if (taking != 0) co_return taking;
        if (c.again < c.again_end) {
          ++given;
        } else if (c.next >= capacity_) {
          break;
        } else {
          co_return error;
        }
      } else if (error != 0) {
        co_return error == EBUSY ? 0 : error;
      }
    }
    const bool from_given = c.again < c.again_end;
    if (from_given) {
      if (c.again >= capacity_) break;
      error = co_await grow(c.again + 1);  // the file may have been truncated
      if (error != 0) co_return error == EBUSY ? 0 : error;
    }
    const std::uint64_t slot = from_given ? c.again++ : c.next++;
    // The number first: a process that is killed here leaves a slot unused, and none with two owners.
    const place at = place_of(name, p->block);
    entry made;
    made.high = at.key.high;
    made.low = at.key.low;
    made.slot = static_cast<std::uint32_t>(slot + 1);
    made.epoch = epoch_of(slot / segment_slots_);
    if (!put(c) || !put(there->position, made)) co_return errno;
    p->index.at = made;
    p->index.position = there->position;
  }
  co_return 0;
}

/// Under the lock of allocation, so that of all processes one does this at a time.
MILLRACE_COROUTINE_BODY task<int> disk_slots::give_segment(cursor& c) {
  executor& ex = co_await this_executor();
  if (ex.now() < look_again_) co_return 0;
  struct candidate {
    std::uint64_t number;
    struct ::timespec used;
  };
  std::vector<candidate> all;
  const std::uint64_t slots = std::min(c.next, capacity_);
  for (std::uint64_t n = 0; n * segment_slots_ < slots; ++n) {
    {
      const std::lock_guard guard(use_mutex_);
      if (n < segments_.size() && segments_[n].fd != nullptr) continue;
    }
    char name[32];
    std::snprintf(name, sizeof name, "segment.%06llu", static_cast<unsigned long long>(n));
    struct ::stat s {};
    if (::fstatat(folder_.get(), name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode)) {
      all.push_back(candidate{n, s.st_mtim});
    }
  }
  std::sort(all.begin(), all.end(), [](const candidate& a, const candidate& b) {
    if (a.used.tv_sec != b.used.tv_sec) return a.used.tv_sec < b.used.tv_sec;
    return a.used.tv_nsec < b.used.tv_nsec;
  });
  int looked = 0;
  for (const candidate& one : all) {
    if (looked == 8) co_return 0;  // the others for the next block
    int error = 0;
    const std::shared_ptr<owned_fd> fd = open_segment(one.number, false, error);
    if (fd == nullptr || !set_file_lock(fd->get(), F_WRLCK, segment_lock)) continue;  // a process uses it
    set_file_lock(fd->get(), F_RDLCK, segment_lock);
    ++looked;
    const std::uint64_t first = one.number * segment_slots_;
    const auto n = static_cast<std::size_t>(std::min(segment_slots_, c.next - first));
    aligned headers = aligned_bytes(n * cache_page);
    file_request r;
    r.data = headers.data();
    r.size = n * cache_page;
    r.offset = first * cache_page;
    const bytes kept = headers.memory.share(0, headers.memory.capacity());
    const std::int64_t got = co_await transfer(r, headers_, kept);
    bool ours = false;
    for (std::size_t i = 0; i < n && !ours && static_cast<std::int64_t>((i + 1) * cache_page) <= got; ++i) {
      const auto& h = *reinterpret_cast<const slot_header*>(headers.data() + i * cache_page);
      if (!whole(h)) continue;
      const std::optional<found> there = find(place_of(std::string(h.name()), h.block));
      if (!there || there->at.slot != first + i + 1) continue;
      const std::lock_guard guard(use_mutex_);
      ours = folders_.find(h.name()) != nullptr;
    }
    std::uint32_t epoch = read_epoch(one.number);
    if (!ours) {
      if (!set_file_lock(fd->get(), F_WRLCK, segment_lock)) continue;
      epoch = static_cast<std::uint16_t>(epoch + 1);
      // Void first: a process that is killed here leaves a segment that is the next to be given.
      c.again = first;
      c.again_end = first + n;
      if (!write_index(&epoch, sizeof epoch, cache_page + 4 * one.number) || !put(c)) co_return errno;
      set_file_lock(fd->get(), F_RDLCK, segment_lock);
    }
    {
      const std::lock_guard guard(use_mutex_);
      if (segments_.size() <= one.number) segments_.resize(one.number + 1);
      used_segment& s = segments_[one.number];
      if (s.fd == nullptr) {
        s.fd = fd;
        s.epoch = static_cast<std::uint16_t>(epoch);
      }
    }
    if (!ours) co_return 0;
  }
  look_again_ = added(ex.now(), duration(1'000'000'000));
  co_return 0;
}

MILLRACE_COROUTINE_BODY task<disk_slots::admission> disk_slots::write(claim own, cached_version version,
                                                                      std::uint64_t offset, bytes data) {
  admission out;
  const std::uint64_t total = *version.total;
  std::uint64_t end = std::min(offset + data.size(), total);
  if (end < total) end = end / grain_bytes * grain_bytes;
  if (end <= offset) co_return std::move(out);
  std::vector<block_part> parts = parts_of(offset, end);
  out.refused = parts.size();  // until all is written
  protect(url_folders::folder_of(version.name));
  for (int tries = 0; !begin_writing(own.number_); ++tries) {
    if (tries == own_waits) co_return std::move(out);
    co_await sleep_for(duration(1'000'000));
  }
  std::vector<block_part*> without;
  for (block_part& p : parts) {
    if (const std::optional<found> there = find(place_of(version.name, p.block))) p.index = *there;
    if (p.index.at.slot != 0 && segment_of(p.index.at, out.error) == nullptr) {
      out.what = "a segment of the cache cannot be opened";
      if (out.error != 0) co_return std::move(out);
      p.index = found();
    }
    if (p.index.at.slot == 0) without.push_back(&p);
  }
  if (!without.empty()) {
    out.error = co_await take_slots(version.name, without, out.given);
    out.what = "a segment of the cache cannot be made";
  }
  std::erase_if(parts, [](const block_part& p) { return p.index.at.slot == 0; });
  if (out.error != 0 || parts.empty()) co_return std::move(out);

  const coroutine_context here = co_await this_context();
  const std::uint64_t first = offset;
  aligned headers = aligned_bytes(parts.size() * cache_page);
  const bytes headers_kept = headers.memory.share(0, headers.memory.capacity());
  std::memset(headers.data(), 0, parts.size() * cache_page);
  std::vector<spawned<std::int64_t>> jobs;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const block_part& p = parts[i];
    if (p.index.at.filled == 0) continue;
    file_request r;
    r.data = headers.data() + i * cache_page;
    r.size = cache_page;
    r.offset = (p.index.at.slot - 1) * cache_page;
    jobs.emplace_back(here, transfer(r, headers_, headers_kept));
  }
  for (spawned<std::int64_t>& j : jobs) {
    const std::int64_t got = co_await j;
    if (got >= 0) continue;
    out.error = static_cast<int>(-got);
    out.what = "a header of the cache cannot be read";
  }
  jobs.clear();
  if (out.error != 0) co_return std::move(out);

  // From aligned memory, the last grain of the object with zeroes after it.
  bytes source = data;
  if (reinterpret_cast<std::uintptr_t>(data.data()) % grain_bytes != 0) {
    const auto n = static_cast<std::size_t>(end - first);
    aligned copy = aligned_bytes(n);
    std::memcpy(copy.data(), data.data(), n);
    source = copy.memory.share(copy.at, n);
  }
  const auto ragged = static_cast<std::size_t>(end % grain_bytes);
  aligned tail;
  if (ragged != 0) {
    tail = aligned_bytes(grain_bytes);
    std::memset(tail.data(), 0, grain_bytes);
    std::memcpy(tail.data(), source.data() + (end - ragged - first), ragged);
  }

  std::vector<bool> writes(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    block_part& p = parts[i];
    entry& e = p.index.at;
    auto& h = *reinterpret_cast<slot_header*>(headers.data() + i * cache_page);
    const bool add = e.filled > 0 && whole(h) && h.generation == e.generation && key_fits(h, version, p.block);
    if (!add) {
      std::memset(&h, 0, sizeof h);
      e.filled = 0;
      h.generation = ++e.generation;
      h.high = e.high;
      h.low = e.low;
      h.block = p.block;
      h.total = total;
      h.name_size = static_cast<std::uint16_t>(version.name.size());
      h.etag_size = static_cast<std::uint16_t>(version.etag.size());
      h.encoding_size = static_cast<std::uint16_t>(version.encoding.size());
      const std::string text = version.name + version.etag + version.encoding;
      std::memcpy(h.text, text.data(), text.size());
      put(p.index.position, e);  // a miss, until it is written
    }
    for (std::size_t at = p.begin; at < p.end; at += grain_bytes) {
      const std::size_t grain = at / grain_bytes;
      writes[i] = writes[i] || !h.has(grain);
      h.there[grain / 64] |= std::uint64_t(1) << (grain % 64);
      const auto in_source = static_cast<std::size_t>(p.block * block_bytes + at - first);
      h.grain_crc[grain] = source.slice(in_source, std::min(grain_bytes, p.end - at)).crc32c();
    }
    seal(h);
  }
  for (int pass = 0; pass < 2 && out.error == 0; ++pass) {  // the data, then the headers
    for (std::size_t i = 0; i < parts.size();) {
      if (!writes[i]) {
        ++i;
        continue;
      }
      const std::uint64_t slot = parts[i].index.at.slot - 1;
      std::size_t n = 1;
      while (i + n < parts.size() && writes[i + n] && parts[i + n].block == parts[i].block + n &&
             parts[i + n].index.at.slot - 1 == slot + n && (slot + n) % segment_slots_ != 0) {
        ++n;
      }
      file_request r;
      r.what = file_request::kind::write;
      if (pass == 1) {
        r.data = headers.data() + i * cache_page;
        r.size = n * cache_page;
        r.offset = slot * cache_page;
        jobs.emplace_back(here, transfer(r, headers_, headers_kept));
      } else {
        std::shared_ptr<owned_fd> fd = segment(slot / segment_slots_, false, out.error);
        if (fd == nullptr) break;
        const block_part& last = parts[i + n - 1];
        const std::size_t to = last.end / grain_bytes * grain_bytes;  // the ragged rest apart
        r.data = const_cast<char*>(source.data()) + (parts[i].block * block_bytes + parts[i].begin - first);
        r.size = (n - 1) * block_bytes + to - parts[i].begin;
        r.offset = slot % segment_slots_ * block_bytes + parts[i].begin;
        if (r.size > 0) jobs.emplace_back(here, transfer(r, fd, source));
        if (to != last.end) {
          r.data = tail.data();
          r.size = grain_bytes;
          r.offset = (slot + n - 1) % segment_slots_ * block_bytes + to;
          jobs.emplace_back(here, transfer(r, fd, tail.memory.share(0, tail.memory.capacity())));
        }
      }
      i += n;
    }
    for (spawned<std::int64_t>& j : jobs) {
      const std::int64_t got = co_await j;
      if (got < 0) out.error = static_cast<int>(-got);
    }
    jobs.clear();
  }
  out.what = "a slot of the cache cannot be written";
  if (out.error != 0) co_return std::move(out);
  const std::lock_guard guard(mutex_);
  for (const held& h : held_) {
    if (h.number == own.number_ && h.forgotten) co_return std::move(out);
  }
  out.refused -= parts.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!writes[i]) continue;
    entry& e = parts[i].index.at;
    e.filled = static_cast<std::uint16_t>(
        reinterpret_cast<const slot_header*>(headers.data() + i * cache_page)->filled());
    if (put(parts[i].index.position, e)) {
      ++out.admitted;
    } else {
      out.error = errno;
      ++out.refused;
    }
  }
  co_return std::move(out);
}

MILLRACE_COROUTINE_BODY task<void> disk_slots::note_compared(cached_version version, comparison found_out) {
  const place at = mark_of(version.name);
  const allocation ours = co_await wait_for_allocating();
  if (!ours) co_return;
  if (const std::optional<found> there = find(at, true)) {
    entry e;
    e.high = at.key.high;
    e.low = at.key.low;
    e.slot = no_slot;
    e.generation = tag_sum(version.etag, found_out.crc.has_value());
    e.filled = static_cast<std::uint16_t>(found_out.crc.value_or(0));
    e.epoch = static_cast<std::uint16_t>(found_out.crc.value_or(0) >> 16);
    put(there->position, e);
  }
}

}  // namespace millrace::detail
