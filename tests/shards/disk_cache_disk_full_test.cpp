// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/disk_cache.hpp>

#include <linux/magic.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/testing/jumping_loop.hpp>

#include "tests/shards/cache_support.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint64_t blocks = 12;

/// A small file system of its own, where this process may mount one.
class small_disk {
 public:
  /// tmpfs allocates ahead; ext2, in a file, does not: it is full at a write.
  explicit small_disk(bool tmpfs) {
    const std::string folder = where_.path + "/disk", image = where_.path + "/image";
    std::string command = "mount -t tmpfs -o size=9m none " + folder;
    if (!tmpfs) {
      command = "truncate -s 9M " + image + " && mke2fs -q -t ext2 -m 0 " + image + " && mount -o loop " + image + ' ' +
                folder;
    }
    mounted_ = std::system(("mkdir " + folder + " && { " + command + "; } >/dev/null 2>&1").c_str()) == 0;
    if (mounted_) path = folder;
  }
  small_disk(const small_disk&) = delete;
  ~small_disk() {
    if (mounted_) ::umount2(path.c_str(), MNT_DETACH);
  }
  /// Takes all that is free, as another program may.
  void take_rest() const { static_cast<void>(std::system(("cat /dev/zero 2>/dev/null >" + path + "/rest").c_str())); }
  void give_back_rest() const { REQUIRE(::unlink((path + "/rest").c_str()) == 0); }
  /// Takes all but the first MiB of the device away, or gives it back, as zeroes: what is beyond is EIO, to reads and
  /// to writes. False where that cannot be done.
  bool shrink(bool back) const {
    const std::string command = "truncate -s " + std::string(back ? "9M " : "1M ") + where_.path + "/image && " +
                                "losetup -c $(findmnt -n -o SOURCE --target " + path + ")";
    return std::system(("{ " + command + "; } >/dev/null 2>&1").c_str()) == 0;
  }
  /// Mounts it for reading alone, or for both.
  bool read_only(bool only) const {
    const unsigned long how = only ? MS_REMOUNT | MS_RDONLY : MS_REMOUNT;
    return ::mount("none", path.c_str(), nullptr, how, nullptr) == 0;
  }
  void grow() const { REQUIRE(::mount("none", path.c_str(), nullptr, MS_REMOUNT, "size=64m") == 0); }
  std::string path;  ///< empty if there is none

 private:
  const test::cache_folder where_;
  bool mounted_ = false;
};

/// A small disk, a store with an object of `blocks` blocks, and a loop whose time jumps.
class fixture {
 public:
  explicit fixture(bool tmpfs) : disk(tmpfs) {
    store_->objects["mem:a"] = test::random_text(1, blocks * MiB);
    if (disk.path.empty()) WARN("skipped: no " << (tmpfs ? "tmpfs" : "ext2 in a file") << " can be mounted here");
  }
  /// Whether there is a disk: else the test is skipped, and has said so.
  explicit operator bool() const { return !disk.path.empty(); }

  /// Another cache, in the same folder of the disk.
  void open_cache() {
    cache_ =
        disk_cache(std::shared_ptr<const storage>(store_),
                   {.directory = disk.path + "/cache", .bytes = 64 * detail::disk_slots::slot_bytes, .keep_free = 0});
  }
  void close_cache() { cache_.reset(); }
  /// Reads the first blocks, one by one, and compares them with the store's.
  void read(std::uint64_t end = blocks) {
    const std::string& all = store_->objects.at("mem:a");
    for (std::uint64_t block = 0; block < end; ++block) {
      const storage::part p = block_on(
          coroutine_context(loop),
          cache_->read(shard("mem:a", all.size(), store_->etag), std::string(), block * MiB, MiB, slab_pool(2 * MiB)));
      CHECK((p.data.view() == std::string_view(all).substr(block * MiB, MiB)));
    }
  }
  disk_cache_stats stats() const { return cache_->stats(); }

  const small_disk disk;
  testing::jumping_loop loop;

 private:
  const std::shared_ptr<test::memory_store> store_ = std::make_shared<test::memory_store>();
  std::shared_ptr<const disk_cache_storage> cache_;
};

}  // namespace

TEST_CASE("a write that finds the disk full is no error, and the block is tried again", "[disk_cache]") {
  fixture f(false);
  if (!f) return;
  test::captured_stderr said(test::captured_stderr::into::pipe);
  f.open_cache();
  f.read(1);
  CHECK(f.stats().admitted == 1);
  f.disk.take_rest();
  f.read(3);  // in a segment of four slots, of which the file system has allocated one
  f.read(3);
  CHECK(f.stats().admitted == 1);
  CHECK(f.stats().damaged == 0);
  CHECK_THAT(said.text(), Contains("admits nothing, and tries again every minute: ") &&
                              Contains("a slot of the cache cannot be written: No space left on device"));
  f.disk.give_back_rest();
  f.loop.advance(61s);
  f.read(3);
  CHECK(f.stats().admitted == 3);
  const std::uint64_t before = f.stats().hits;
  f.read(3);
  CHECK(f.stats().hits == before + 3);
}

TEST_CASE("a disk that is full admits nothing more, and is tried again after a minute", "[disk_cache]") {
  const bool tmpfs = GENERATE(true, false);
  fixture f(tmpfs);
  if (!f) return;
  test::captured_stderr said(test::captured_stderr::into::pipe);
  f.open_cache();
  f.read();
  const std::uint64_t kept = f.stats().admitted;
  CHECK(kept >= 4);
  CHECK(kept <= 8);
  CHECK(f.stats().hits == 0);
  f.read();
  CHECK(f.stats().hits == kept);
  CHECK(f.stats().admitted == kept);
  CHECK(f.stats().damaged == 0);
  const std::string text = said.text();
  CHECK_THAT(text, Contains("millrace: disk_cache admits nothing, and tries again every minute: ") &&
                       Contains("No space left on device"));
  CHECK_THAT(text, !Contains("disk_cache is off"));
  if (!tmpfs) return;
  f.disk.grow();
  f.loop.advance(61s);
  f.read();
  CHECK(f.stats().admitted == blocks);
  f.read();
  CHECK(f.stats().hits == 2 * kept + blocks);
}

TEST_CASE("a device that fails to read and to write is no error", "[disk_cache]") {
  fixture f(false);
  if (!f) return;
  test::captured_stderr said(test::captured_stderr::into::pipe);
  f.open_cache();
  f.read(3);
  CHECK(f.stats().admitted == 3);
  ::sync();
  if (!f.disk.shrink(false)) {
    WARN("skipped: the device of a mounted file system cannot be made smaller here");
    return;
  }
  const std::uint64_t before = f.stats().hits;
  f.read(4);  // three that cannot be read, and one that cannot be written
  f.read(4);
  CHECK(f.stats().hits <= before + 1);  // what is in the first MiB
  CHECK_THAT(said.text(), Contains("disk_cache is off, and tried again every minute: " + f.disk.path + "/cache: ") &&
                              Contains("Input/output error"));
  REQUIRE(f.disk.shrink(true));
  f.loop.advance(61s);
  f.read(4);  // zeroes now, which are damaged blocks
  f.read(4);
  CHECK(f.stats().damaged > 0);
  CHECK(f.stats().hits >= before + 4);
}

TEST_CASE("a disk that is mounted for reading alone is no error, and is tried again after a minute", "[disk_cache]") {
  fixture f(true);
  if (!f) return;
  f.open_cache();
  f.read(2);
  f.close_cache();  // a disk with a file that is open for writing cannot become read-only
  REQUIRE(f.disk.read_only(true));
  test::captured_stderr said(test::captured_stderr::into::pipe);
  f.open_cache();
  f.read(2);
  f.read(2);
  CHECK(f.stats().hits == 0);
  CHECK_THAT(said.text(),
             Contains("disk_cache is off, and tried again every minute: ") && Contains("Read-only file system"));
  REQUIRE(f.disk.read_only(false));
  f.loop.advance(61s);
  f.read(2);
  CHECK(f.stats().hits == 2);
}

TEST_CASE("a network file system is recognised by its type", "[disk_cache]") {
  for (const unsigned long type : {0x6969ul, 0xff534d42ul, 0xfe534d42ul, 0x65735546ul, 0x00c36400ul, 0x01021997ul,
                                   0x5346414ful, 0x0bd00bd0ul, 0x47504653ul}) {
    CHECK(detail::disk_slots::is_remote(static_cast<std::uint32_t>(type)));
  }
  for (const unsigned long type : {EXT4_SUPER_MAGIC + 0ul, XFS_SUPER_MAGIC + 0ul, BTRFS_SUPER_MAGIC + 0ul,
                                   TMPFS_MAGIC + 0ul, OVERLAYFS_SUPER_MAGIC + 0ul, 0x2fc12fc1ul /* ZFS */}) {
    CHECK_FALSE(detail::disk_slots::is_remote(static_cast<std::uint32_t>(type)));
  }
}
