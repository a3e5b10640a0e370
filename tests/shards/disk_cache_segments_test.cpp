// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/disk_cache.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/log.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/testing/jumping_loop.hpp>

#include "tests/shards/cache_support.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;

// Segments of a full cache that are given to another data set.
namespace {

using test::memory_store;
using folder = test::cache_folder;

constexpr std::uint64_t slots = 4;  // each a segment

std::shared_ptr<memory_store> store_of(std::uint64_t blocks = slots) {
  auto store = std::make_shared<memory_store>();
  std::uint64_t seed = 0;
  for (const char* set : {"a", "b", "c"}) {
    store->objects["mem:" + std::string(set) + "/0.tar"] = test::random_text(++seed, blocks * MiB);
  }
  return store;
}

std::shared_ptr<const disk_cache_storage> cached(const std::shared_ptr<memory_store>& inner, const folder& in) {
  return disk_cache(std::shared_ptr<const storage>(inner),
                    {.directory = in.path, .bytes = slots * detail::disk_slots::slot_bytes, .keep_free = 0});
}

/// Reads a block, and says whether it came from the disk; it is compared with the store.
bool hits(executor& ex, const disk_cache_storage& from, const memory_store& store, const std::string& set,
          std::uint64_t block) {
  const std::string url = "mem:" + set + "/0.tar";
  const std::string& all = store.objects.at(url);
  const std::uint64_t before = from.stats().hits;
  const storage::part p =
      block_on(coroutine_context(ex), from.read(shard(url, all.size(), store.etag), std::string(), block * MiB, MiB,
                                                slab_pool(2 * MiB)));
  CHECK((p.data.view() == std::string_view(all).substr(block * MiB, MiB)));
  return from.stats().hits != before;
}

/// How many blocks of a data set come from the disk.
std::uint64_t read_all(executor& ex, const disk_cache_storage& from, const memory_store& store,
                       const std::string& set) {
  std::uint64_t n = 0;
  for (std::uint64_t block = 0; block < store.objects.at("mem:" + set + "/0.tar").size() / MiB; ++block) {
    n += hits(ex, from, store, set, block) ? 1 : 0;
  }
  return n;
}

std::string segment_of(const folder& in, std::uint64_t number) {
  return in.path + "/segment.00000" + std::to_string(number);
}

void set_last_use(const folder& in, std::uint64_t number, std::int64_t seconds) {
  const struct ::timespec times[2] = {{seconds, 0}, {seconds, 0}};
  REQUIRE(::utimensat(AT_FDCWD, segment_of(in, number).c_str(), times, 0) == 0);
}

/// A process that has read blocks [0, blocks) of a data set through the cache, and has it open.
class user {
 public:
  user(const std::shared_ptr<memory_store>& store, const folder& in, const std::string& set, std::uint64_t blocks) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      set_log([](const log_record&) {});
      const auto cache = cached(store, in);
      const auto loop = make_event_loop();
      for (std::uint64_t b = 0; b < blocks; ++b) hits(*loop, *cache, *store, set, b);
      if (::write(ready[1], "", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte;
    const bool came = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    REQUIRE(pid_ > 0);
    REQUIRE(came);
  }
  user(const user&) = delete;
  ~user() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace

TEST_CASE("in a full cache another data set takes the place of one that no process uses", "[disk_cache]") {
  const auto loop = make_event_loop();
  const folder in;
  const auto store = store_of();
  test::captured_stderr said(test::captured_stderr::into::pipe);
  {
    const auto cache = cached(store, in);
    CHECK(read_all(*loop, *cache, *store, "a") == 0);
    CHECK(read_all(*loop, *cache, *store, "a") == slots);
    CHECK(read_all(*loop, *cache, *store, "b") == 0);  // the same process uses a
    CHECK(read_all(*loop, *cache, *store, "b") == 0);
    CHECK(cache->stats().given == 0);
  }
  {
    const auto cache = cached(store, in);
    CHECK(read_all(*loop, *cache, *store, "b") == 0);
    CHECK(read_all(*loop, *cache, *store, "b") == slots);
    CHECK(cache->stats().given == slots);
    CHECK(cache->stats().damaged == 0);
    CHECK(read_all(*loop, *cache, *store, "a") == 0);
  }
  const auto cache = cached(store, in);
  CHECK(read_all(*loop, *cache, *store, "b") == slots);
  CHECK(cache->stats().given == 0);
  const std::string text = said.text();
  INFO(text);
  const std::size_t line = text.find("that no process uses, make room for new");
  CHECK(line != std::string::npos);
  CHECK(text.find("make room", line + 40) == std::string::npos);
}

TEST_CASE("nothing of the data set that is read is given away, used already or not", "[disk_cache]") {
  const auto loop = make_event_loop();
  const folder in;
  const auto store = store_of(2 * slots);
  test::captured_stderr said(test::captured_stderr::into::pipe);
  read_all(*loop, *cached(store, in), *store, "a");
  const auto cache = cached(store, in);
  SECTION("by the folder of the object that is read") {
    for (std::uint64_t b = slots; b < 2 * slots; ++b) CHECK_FALSE(hits(*loop, *cache, *store, "a", b));
    CHECK(cache->stats().given == 0);
  }
  SECTION("by the prefix that was listed") {
    static_cast<void>(cache->list("mem:"));
    CHECK(read_all(*loop, *cache, *store, "b") == 0);
    CHECK(cache->stats().given == 0);
  }
  CHECK(read_all(*loop, *cache, *store, "a") == slots);
}

TEST_CASE("what was listed while the cache was off is not given away when it is on", "[disk_cache]") {
  testing::jumping_loop loop;
  const folder in;
  const auto store = store_of(2 * slots);
  test::captured_stderr said(test::captured_stderr::into::pipe);
  read_all(loop, *cached(store, in), *store, "a");
  REQUIRE(::chmod(in.path.c_str(), 0777) == 0);
  const auto cache = cached(store, in);
  REQUIRE(::chmod(in.path.c_str(), 0700) == 0);
  static_cast<void>(cache->list("mem:"));
  CHECK(read_all(loop, *cache, *store, "b") == 0);
  CHECK(cache->stats().misses == 0);
  loop.advance(61s);
  CHECK(read_all(loop, *cache, *store, "b") == 0);
  CHECK(cache->stats().misses > 0);
  CHECK(cache->stats().given == 0);
  CHECK(read_all(loop, *cache, *store, "a") == slots);
}

TEST_CASE("what another process uses is not given away until it ends", "[disk_cache]") {
  testing::jumping_loop loop;
  const folder in;
  const auto store = store_of();
  test::captured_stderr said(test::captured_stderr::into::pipe);
  read_all(loop, *cached(store, in), *store, "a");
  user other(store, in, "a", 3);
  const auto cache = cached(store, in);
  for (int epoch = 0; epoch < 2; ++epoch) {
    read_all(loop, *cache, *store, "b");
    loop.advance(2s);
  }
  CHECK(cache->stats().given == 1);
  CHECK(cache->stats().hits == 1);
  CHECK(read_all(loop, *cached(store, in), *store, "a") == 3);
  other.kill();
  CHECK(read_all(loop, *cache, *store, "b") == 1);
  CHECK(read_all(loop, *cache, *store, "b") == slots);
  CHECK(cache->stats().given == slots);
}

TEST_CASE("the segment unused for longest is given, whatever the clock says", "[disk_cache]") {
  const auto loop = make_event_loop();
  const folder in;
  const auto store = store_of();
  test::captured_stderr said(test::captured_stderr::into::pipe);
  read_all(*loop, *cached(store, in), *store, "a");
  const std::int64_t far = std::int64_t(1) << 33;  // in the 23rd century
  const std::int64_t used[] = {1000, far, -5000, 2000};
  for (std::uint64_t n = 0; n < slots; ++n) set_last_use(in, n, used[n]);
  hits(*loop, *cached(store, in), *store, "b", 0);
  {
    const auto cache = cached(store, in);
    CHECK_FALSE(hits(*loop, *cache, *store, "a", 2));  // and takes b's place, or a third: none of its own
    for (const std::uint64_t b : {0, 1, 3}) CHECK(hits(*loop, *cache, *store, "a", b));
    CHECK(cache->stats().given == 1);
  }
  struct ::stat s {};
  REQUIRE(::stat(segment_of(in, 1).c_str(), &s) == 0);
  CHECK(s.st_mtime != far);  // it was used since
}

TEST_CASE("whatever the disk says while data sets take turns, what is delivered is the store's", "[disk_cache]") {
  const auto loop = make_event_loop();
  const folder in;
  test::captured_stderr said(test::captured_stderr::into::pipe);
  rng random(GENERATE(1u, 2u, 3u, 4u, 5u, 6u));
  const auto store = store_of(3);
  const std::string names[] = {"index", "headers", "segment.000000", "segment.000001", "segment.000002"};
  std::string older[2];  // of index and headers
  std::uint64_t hit = 0, given = 0;
  for (int round = 0; round < 24; ++round) {
    const std::string set(1, static_cast<char>('a' + random.below(3)));
    const auto cache = cached(store, in);
    read_all(*loop, *cache, *store, set);
    hit += read_all(*loop, *cache, *store, set);
    given += cache->stats().given;
    for (std::size_t i = 0; i < 2 && random.below(3) == 0; ++i) {
      std::ifstream f(in.path + '/' + names[i], std::ios::binary);
      older[i].assign(std::istreambuf_iterator<char>(f), {});
    }
    const std::size_t which = random.below(5);
    const std::string name = in.path + '/' + names[which];
    struct ::stat s {};
    if (::stat(name.c_str(), &s) != 0 || s.st_size == 0) continue;
    const auto size = static_cast<std::uint64_t>(s.st_size);
    std::fstream f(name, std::ios::in | std::ios::out | std::ios::binary);
    switch (random.below(6)) {
      case 0:
        REQUIRE(::truncate(name.c_str(), static_cast<off_t>(random.below(size))) == 0);
        break;
      case 1:
        if (which < 2) f.write(older[which].data(), static_cast<std::streamsize>(older[which].size()));
        break;
      case 2:
      case 3:
        for (std::uint64_t flips = 1 + random.below(100); flips > 0; --flips) {
          // As often as not in what comes before the entries: the cursor and the epochs of segments.
          const std::uint64_t bound = random.below(2) == 0 ? size : std::min<std::uint64_t>(size, 4200);
          const auto at = static_cast<std::streamoff>(random.below(bound));
          f.seekg(at);
          const int c = f.get();
          f.clear();
          f.seekp(at);
          f.put(static_cast<char>(c ^ (1 << random.below(8))));
        }
        break;
      default:
        break;
    }
    f.close();
    if (random.below(2) == 0) read_all(*loop, *cache, *store, set);  // open, over the damage
  }
  CHECK(hit > 20);
  CHECK(given > 3);
}

TEST_CASE("folders of URLs that are many are joined", "[disk_cache]") {
  detail::url_folders f;
  CHECK(detail::url_folders::folder_of("s3://b/train/1.tar") == "s3://b/train/");
  CHECK(detail::url_folders::folder_of("mem:1") == "mem:");
  CHECK(f.find("s3://b/train/n00/1.jpg") == nullptr);
  f.add("s3://b/other/");
  for (int i = 0; i < 16; ++i) f.add("s3://b/train/n" + std::to_string(i) + "/");
  REQUIRE(f.find("s3://b/train/n999/1.jpg") != nullptr);
  CHECK(*f.find("s3://b/train/n999/1.jpg") == "s3://b/train/");
  CHECK(*f.find("s3://b/other/1.jpg") == "s3://b/other/");
  CHECK(f.find("s3://b/third/1.jpg") == nullptr);
  f.add("s3://b/");
  CHECK(*f.find("s3://b/other/1.jpg") == "s3://b/");
  for (int i = 0; i < 40; ++i) f.add(std::to_string(i) + ":");
  CHECK(f.find("whatever") != nullptr);  // one prefix of all, and not ever more
}

TEST_CASE("a reading waits for a slow disk where it is asked to", "[disk_cache]") {
  const auto loop = make_event_loop();
  const folder in;
  static constexpr std::size_t half = 40 * MiB;  // two of these are more than may wait to be written
  auto store = std::make_shared<memory_store>();
  store->objects["mem:a"] = std::string(2 * half, 'a');
  const auto cache = disk_cache(std::shared_ptr<const storage>(store),
                                {.directory = in.path, .bytes = 128 * MiB, .keep_free = 0, .wait_for_disk = true});
  const auto reading = [](std::shared_ptr<const disk_cache_storage> from, std::string etag) -> task<void> {
    const slab_pool slabs(half);
    for (std::size_t at = 0; at < 2 * half; at += half) {
      shard whole("mem:a", 2 * half, etag);
      const storage::part p = co_await from->read(std::move(whole), std::string(), at, half, slabs);
      CHECK(p.data.size() == half);
    }
  };
  block_on(coroutine_context(*loop), reading(cache, store->etag));
  CHECK(cache->stats().refused == 0);
  CHECK(cache->stats().admitted == 2 * half / MiB);
}
