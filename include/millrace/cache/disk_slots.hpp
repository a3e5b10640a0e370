// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/own_process.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/loop/event_loop.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>

/// \file
/// Blocks of objects on a local disk, shared by the processes of a host without a daemon. docs/design/cache.md has the
/// layout of the files and the reasons.

namespace millrace::inline MILLRACE_ABI::detail {

/// The name of an object in the cache: its URL, and before it, with a line feed between them, the store's endpoint
/// if the URL does not say it. Objects of two stores that have the same URL are two.
std::string cached_name(const std::string& endpoint, std::string_view url);
/// Its URL and its endpoint for messages: without secrets.
std::string shown_name(std::string_view name);
std::string shown_endpoint(std::string_view name);

/// One version of an object, as blocks are kept of it.
class cached_version {
 public:
  cached_version() = default;
  cached_version(std::string object, std::string tag) : name(std::move(object)), etag(std::move(tag)) {}

  std::string name;  ///< of the object in the cache: see cached_name()
  std::string etag;
  std::string encoding;                ///< its Content-Encoding
  std::optional<std::uint64_t> total;  ///< its size
};

/// Folders of URLs, as a guess at which objects belong together.
class url_folders {
 public:
  /// Up to and with the last '/', or the ':' of a URL without one.
  static std::string_view folder_of(std::string_view url) noexcept;
  /// Adds a prefix. If there are more than 16, the deepest are joined in the folder that they are in.
  void add(std::string_view prefix);
  /// The prefix that a URL begins with; null if there is none.
  const std::string* find(std::string_view url) const noexcept;
  const std::vector<std::string>& prefixes() const noexcept { return prefixes_; }

 private:
  std::vector<std::string> prefixes_;
};

/// Slots of a block each in files of one folder, and an index that says which block is in which slot.
///
/// The index is a hint. The header of a slot describes its contents: URL, ETag, block, generation, and for each grain
/// of 4 KiB whether it is there and its CRC-32C; the header has a CRC of its own. read() compares all of it with the
/// request, so that slots that are torn, damaged, another's or being rewritten are misses. A damaged slot and that of
/// another version of the same block are written anew.
///
/// Once all slots are taken, a block is admitted only if a segment can be given away: one that no process uses, and
/// that holds nothing of the folders (in URLs) that this one reads. If several qualify, the one unused for longest is
/// given away. All that it held are misses from then on. A process uses a segment from the first block of it that it
/// looks up to its end.
///
/// A block is claimed by the process that fetches it, and a segment locked by those that use it; OFD locks make both
/// free when that process ends, however it does.
///
/// Concurrency: any threads and processes; a task runs on the event loop that awaits it. Lifetime: operations under way
/// in the kernel when a task is dropped keep descriptor and memory; the object must outlive the task. Errors: open()
/// throws io_error, and configuration_error for a network file system; tasks give errno values.
class disk_slots : public std::enable_shared_from_this<disk_slots> {
 public:
  static constexpr std::size_t block_bytes = std::size_t(1) << 20;
  static constexpr std::size_t grain_bytes = 4096;
  static constexpr std::size_t grains = block_bytes / grain_bytes;
  /// The disk space of a slot: the block, its header, and its entries of the index.
  static constexpr std::size_t slot_bytes = block_bytes + 4096 + 128;

  /// How many milliseconds a write waits for another one of this process: as long as a disk may take for it.
  static constexpr int own_waits = 30'000;

  /// Makes the folder if it is missing, and a cache of an older format that no process uses anew. `keep_free`: the
  /// share of the file system that stays free. It waits while another process opens or grows the same folder: up to 2 s
  /// with `wait`, else 0.1 s; then that is EAGAIN.
  static std::shared_ptr<disk_slots> open(std::string directory, std::uint64_t bytes, double keep_free, bool wait);
  /// The format of the older cache that open() has removed; 0: there was none.
  std::uint32_t removed_format() const noexcept { return removed_format_; }

  /// The files of a cache that were removed from a folder.
  class removed {
   public:
    std::vector<std::string> names;
    std::uint64_t bytes = 0;  ///< that they took of the disk
    std::size_t left = 0;     ///< other files, folders and links in the folder, which stay
  };

  /// True if a file system, by statfs::f_type, is one of a network, or FUSE.
  static bool is_remote(std::uint32_t file_system) noexcept;
  /// Keeps blocks under a prefix of URLs from being given away, like those that are read.
  void protect(std::string_view prefix);

  /// True if the index is still in the folder, and whole, and this is the process that has opened it: a child of fork()
  /// has none of its locks. Costs one fstat(2).
  bool intact() const noexcept;
  /// True if the folder has an index: after intact() has said no, that of another process.
  bool replaced() const;

  /// True if the index has all of [offset, end): a hint, which read() may not confirm. Versions are not compared.
  bool lists(const std::string& name, std::uint64_t offset, std::uint64_t end) const;
  /// How many bytes of [offset, end) the index has: a hint likewise. If a block is there in part, the bytes there
  /// count, at most those requested.
  std::uint64_t listed_bytes(const std::string& name, std::uint64_t offset, std::uint64_t end) const;

  /// True if a slot's header has room for the name, ETag and encoding of a version.
  static bool fits(const cached_version& version) noexcept;

  class reading {
   public:
    reading() = default;
    bool hit = false;
    bytes data;              ///< the bytes requested; fewer only at the object's end
    cached_version version;  ///< as it was when it was admitted
    /// Blocks that the index has and the slots do not, with their generations there: for not_there().
    std::vector<std::pair<std::uint64_t, std::uint32_t>> wrong;
    std::size_t damaged = 0;  ///< of these, blocks whose slots hold damaged bytes
    int error = 0;            ///< errno of a read that failed
  };

  /// Bytes [offset, offset + length) of a version, all of them or none. Their sums are in the slab if it has any.
  MILLRACE_COROUTINE task<reading> read(cached_version wanted, std::uint64_t offset, std::size_t length,
                                        slab_pool slabs);

  /// The right to fetch and to write a range of an object: dropping it gives that back.
  class claim {
   public:
    claim() noexcept = default;
    claim(claim&& other) noexcept : of_(std::move(other.of_)), number_(std::exchange(other.number_, 0)) {}
    claim& operator=(claim&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(number_, other.number_);
      return *this;
    }
    ~claim() {
      if (of_ != nullptr) of_->release(number_);
    }
    explicit operator bool() const noexcept { return of_ != nullptr; }

   private:
    friend class disk_slots;
    claim(std::shared_ptr<disk_slots> of, std::uint64_t number) noexcept : of_(std::move(of)), number_(number) {}
    std::shared_ptr<disk_slots> of_;
    std::uint64_t number_ = 0;
  };
  /// An empty one if another process has claimed one of the blocks, or this process the same bytes of one, more than
  /// the grain in which two ranges meet.
  claim try_claim(const std::string& name, std::uint64_t offset, std::uint64_t end);

  /// The error of a write that would have left less of the disk free than it must.
  static constexpr int keeps_free = -1;

  class admission {
   public:
    admission() = default;
    std::size_t admitted = 0;  ///< blocks of which something was written
    std::size_t refused = 0;   ///< blocks that got no slot, were not written for an error, or are forgotten
    std::size_t given = 0;     ///< segments of older data whose slots are given to new
    int error = 0;             ///< errno of the failure, or keeps_free
    const char* what = "";     ///< the operation that failed
  };

  /// Writes bytes of a version that fits(), from `offset` on, a multiple of grain_bytes; its total must be known.
  /// `data` is written from where it is if its memory is aligned to grain_bytes, else from a copy.
  MILLRACE_COROUTINE task<admission> write(claim own, cached_version version, std::uint64_t offset, bytes data);

  /// Forgets the blocks of [offset, end), those that this process is about to write, and comparison().
  void forget(const std::string& name, std::uint64_t offset, std::uint64_t end);
  /// Takes blocks out of the index that a reading under a claim has found to be `wrong` there, if they are still.
  void not_there(const std::string& name, const std::vector<std::pair<std::uint64_t, std::uint32_t>>& wrong);

  /// The size of an object, by the header of one of its blocks; nothing if that is not here.
  MILLRACE_COROUTINE task<std::optional<std::uint64_t>> total_of(cached_version wanted, std::uint64_t block);

  /// The facts known about the bytes of a version.
  class comparison {
   public:
    comparison() = default;
    explicit comparison(std::uint32_t sum) noexcept : crc(sum) {}
    /// The CRC-32C of all of them, as they agreed with the store's checksum; nothing: the store keeps none.
    std::optional<std::uint32_t> crc;
  };
  /// That, if the index has all blocks of a version: so the store need not be asked for its checksum. Nothing if
  /// it must be. The bytes may still come from the store: they have to have the CRC.
  std::optional<comparison> compared(const cached_version& version) const;
  /// Notes it, for compared().
  MILLRACE_COROUTINE task<void> note_compared(cached_version version, comparison found);

  /// Slots that are taken.
  std::uint64_t used() const;
  std::uint64_t capacity() const noexcept { return capacity_; }
  /// Slots that there would be by `bytes`: more than capacity() if the index was made for fewer.
  std::uint64_t wanted_capacity() const noexcept { return wanted_; }

 private:
  friend class cache_folder;
  static constexpr std::size_t window = 64;  // entries in which a key may be
  static constexpr std::uint32_t no_slot = ~std::uint32_t(0);
  static constexpr std::uint64_t most_segment_slots = 1024;

  // On disk, in the host's byte order.
  struct index_head;
  struct cursor;
  struct entry {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    std::uint32_t slot = 0;        // its number and 1; 0: a free entry
    std::uint32_t generation = 0;  // of the slot's content
    std::uint16_t filled = 0;      // grains that are there; 0: none
    std::uint16_t epoch = 0;       // of the segment: of another one, the entry is void
                                   // A comparison() has no_slot, a CRC of the ETag, and in these two that of the bytes.
    std::uint32_t crc = 0;         // of the members before it
  };
  struct slot_header;

  struct place {
    hash128 key;
    std::uint64_t home = 0;  // the first of its entries
  };
  struct found {
    entry at;
    std::uint64_t position = 0;
  };
  struct block_part {  // the part requested of one block
    std::uint64_t block = 0;
    std::size_t begin = 0;  // in bytes of the block, a multiple of grain_bytes
    std::size_t end = 0;    // may be ragged at the object's end
    found index;
  };
  struct held {
    std::uint64_t number;  // of the claim
    std::uint64_t home;
    hash128 key;
    std::size_t begin;
    std::size_t end;
    bool small;      // the claim as a whole is within a grain
    bool writing;
    bool forgotten;  // its writes are not to be kept
  };
  /// A segment that this process uses: its lock is that of the descriptor.
  struct used_segment {
    std::shared_ptr<owned_fd> fd;
    std::uint16_t epoch = 0;  // how often it has been given away
    std::int64_t touched = 0;
  };
  /// Memory that is aligned for O_DIRECT.
  struct aligned {
    writable_bytes memory;
    std::size_t at = 0;
    char* data() noexcept { return memory.data() + at; }
  };

  /// The right to take slots and to write entries of new keys: of all processes one has it at a time. Dropping it gives
  /// that back.
  class allocation {
   public:
    allocation() noexcept = default;
    explicit allocation(disk_slots& of) noexcept : of_(&of) {}
    allocation(allocation&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    allocation& operator=(allocation&& other) noexcept {
      std::swap(of_, other.of_);
      return *this;
    }
    ~allocation() {
      if (of_ != nullptr) of_->end_allocating();
    }
    explicit operator bool() const noexcept { return of_ != nullptr; }

   private:
    disk_slots* of_ = nullptr;
  };

  disk_slots() = default;

  static aligned aligned_bytes(std::size_t size);
  static aligned aligned_bytes(std::size_t size, slab_pool& slabs);
  static std::vector<block_part> parts_of(std::uint64_t offset, std::uint64_t end);
  static bool key_fits(const slot_header& h, const cached_version& v, std::uint64_t block) noexcept;
  static bool whole(const slot_header& h) noexcept;
  static void seal(slot_header& h) noexcept;

  static owned_fd open_folder(const std::string& directory);
  bool is_of_a_cache(const char* name) const noexcept;
  template <class F>
  void for_each_file(F&& f) const;
  void check_folder() const;
  void check_file(int fd, const char* name) const;
  void keep_private(int fd, const char* name) const;  // that too
  /// Takes the lock of allocation, in up to so many tries of 2 ms; then it is EAGAIN. If the file of locks does not
  /// exist, and `make` is false, no process uses the folder.
  void lock_folder(bool make, int tries);
  bool write_index(const void* data, std::size_t size, std::uint64_t offset) const noexcept;
  void open_index(std::uint64_t slots);
  /// The format that the index says, 0 if it is not that of a cache. Only of the format of now is the rest known then.
  std::uint32_t read_index_head();
  [[noreturn]] void refuse_format(std::uint32_t format) const;
  /// Removes the files of the cache, of any format, under the lock of allocation: all, or all but `locks`. EBUSY if a
  /// process uses a segment: then nothing is removed.
  removed remove_files(bool locks_too) const;
  std::uint64_t begin_entries() noexcept;
  place place_of(const std::string& name, std::uint64_t block) const;
  place mark_of(const std::string& name) const;
  static std::uint32_t tag_sum(const std::string& etag, bool with_crc);
  std::optional<found> find(const place& p, bool to_insert = false) const;
  /// The entry of a block; nothing if the index has none.
  std::optional<found> find_block(const place& p) const;
  bool put(std::uint64_t position, entry e) const noexcept;
  void take_out(const place& p, const std::uint32_t* generation = nullptr);
  bool lock(std::uint64_t byte) const noexcept;
  void unlock(std::uint64_t byte) const noexcept;
  void release(std::uint64_t number) noexcept;
  bool begin_writing(std::uint64_t number);
  allocation try_allocating(bool& by_this_process);
  void end_allocating() noexcept;
  std::shared_ptr<owned_fd> open_segment(std::uint64_t number, bool create, int& error) const;
  /// The descriptor of a segment, which this process uses from now on. Null if there is none yet, and with error 0 if
  /// it is being given away.
  std::shared_ptr<owned_fd> segment(std::uint64_t number, bool create, int& error);
  /// The segment of an entry; null with error 0 if it has been given away.
  std::shared_ptr<owned_fd> segment_of(const entry& e, int& error);
  std::uint16_t epoch_of(std::uint64_t segment) const noexcept;
  std::uint16_t read_epoch(std::uint64_t segment) const noexcept;
  cursor read_cursor() const;
  bool put(cursor c) const noexcept;
  /// True if `share` of the file system stays free after so many more bytes.
  bool room_for(std::uint64_t more, double share) const noexcept;

  MILLRACE_COROUTINE static task<std::int64_t> transfer(file_request r, std::shared_ptr<owned_fd> fd, bytes memory);
  MILLRACE_COROUTINE task<allocation> wait_for_allocating();
  /// Slots for keys without one: their entries; stops when there is no room.
  MILLRACE_COROUTINE task<int> take_slots(const std::string& name, std::vector<block_part*>& without,
                                          std::size_t& given);
  MILLRACE_COROUTINE task<int> grow(std::uint64_t slots);
  /// Gives a segment away, if one may be: its slots are those between `c.again` and `c.again_end` then.
  MILLRACE_COROUTINE task<int> give_segment(cursor& c);

  const own_process process_;
  std::string directory_;
  double keep_free_ = 0;
  std::uint32_t removed_format_ = 0;
  std::uint64_t capacity_ = 0;  // slots
  std::uint64_t wanted_ = 0;
  std::uint64_t entries_ = 0;   // of the index, a power of two, and `window` more
  std::uint64_t entries_at_ = 0;  // their offset in the file
  std::uint64_t segment_slots_ = 0;
  owned_fd folder_, index_;
  std::shared_ptr<owned_fd> locks_;
  std::shared_ptr<owned_fd> headers_;
  std::shared_ptr<owned_fd> known_headers_;  // the same file through the page cache: a 256th of the bytes read
  mutable std::mutex use_mutex_;  // of the next two; taken after mutex_
  std::vector<used_segment> segments_;
  url_folders folders_;           // that this process reads
  time_point look_again_{};       // for a segment that may be given away
  mutable std::mutex mutex_;
  std::vector<held> held_;
  std::uint64_t claims_ = 0;
  bool allocating_ = false;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/cache/disk_slots.ipp>
#endif
