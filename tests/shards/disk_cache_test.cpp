// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/disk_cache.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/cache/cache_folder.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/read_whole.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/testing/jumping_loop.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/shards/cache_support.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

using test::memory_store;
using test::random_text;
using folder = test::cache_folder;

std::shared_ptr<memory_store> store_of(std::initializer_list<std::size_t> sizes) {
  auto store = std::make_shared<memory_store>();
  std::uint64_t n = 0;
  for (const std::size_t size : sizes) {
    store->objects["mem:" + std::to_string(n)] = random_text(n + 1, size);
    ++n;
  }
  return store;
}

std::shared_ptr<const disk_cache_storage> cached(const std::shared_ptr<memory_store>& inner, const folder& in,
                                                 std::uint64_t slots = 64) {
  return disk_cache(std::shared_ptr<const storage>(inner),
                    {.directory = in.path, .bytes = slots * detail::disk_slots::slot_bytes, .keep_free = 0});
}

class loop_of_test {
 public:
  explicit loop_of_test(bool epoll = false) : loop_(make_event_loop({.force_epoll = epoll})) {}
  operator executor&() { return *loop_; }

 private:
  std::unique_ptr<event_loop> loop_;
};

shard named(const memory_store& store, const std::string& url) {
  return shard(url, store.objects.at(url).size(), store.etag);
}

/// Reads, waits for what is written in the background, and compares with the store.
storage::part read(executor& ex, const storage& from, const memory_store& store, const std::string& url,
                   std::uint64_t offset, std::size_t length, std::size_t slab = 2 * MiB) {
  storage::part p =
      block_on(coroutine_context(ex), from.read(named(store, url), std::string(), offset, length, slab_pool(slab)));
  const std::string_view right = std::string_view(store.objects.at(url)).substr(offset, length);
  CHECK((p.data.view() == right));
  return p;
}

/// All objects by fetch(); whether they are the store's.
bool fetched(executor& ex, const std::shared_ptr<const storage>& from, const memory_store& store,
             const fetch_options& o = {}) {
  std::vector<shard> all;
  for (const auto& [url, content] : store.objects) all.push_back(named(store, url));
  std::map<std::string, std::string> came;
  const auto reading = [](std::vector<shard> names, std::shared_ptr<const storage> store_, fetch_options options,
                          std::map<std::string, std::string>& to) -> task<void> {
    auto chunks = from_range(std::move(names)) | fetch(store_, options);
    while (auto c = co_await chunks.next()) to[c->from->url] += c->data.view();
  };
  block_on(coroutine_context(ex), reading(all, from, o, came));
  return came == store.objects;
}

}  // namespace

TEST_CASE("what was read once comes from the disk, in this process and in the next", "[disk_cache]") {
  loop_of_test loop(GENERATE(false, true));
  const folder in;
  const auto store = store_of({5 * MiB + 12345, 100, 3 * MiB});
  store->encoding = "zstd";
  {
    const auto cache = cached(store, in);
    CHECK(fetched(loop, cache, *store));
    CHECK(cache->stats().hits == 0);
    CHECK(cache->stats().refused == 0);
    const std::uint64_t asked = store->reads;
    CHECK(fetched(loop, cache, *store));
    CHECK(store->reads == asked);
    CHECK(cache->stats().misses == asked);
    CHECK(cache->stats().hit_bytes == cache->stats().miss_bytes);
  }
  store->reads = 0;
  const auto cache = cached(store, in);
  CHECK(fetched(loop, cache, *store));
  CHECK(fetched(loop, cache, *store, {.part = 512 * KiB}));  // however it is cut
  CHECK(store->reads == 0);
  const storage::part p = read(loop, *cache, *store, "mem:0", 5 * MiB + 1, 20000);
  CHECK(p.total == 5 * MiB + 12345);
  CHECK(p.etag == "\"v1\"");
  CHECK(p.encoding == "zstd");
  CHECK(store->reads == 0);
  struct ::stat s {};
  REQUIRE(::stat((in.path + "/segment.000000").c_str(), &s) == 0);
  CHECK((s.st_mode & 0777) == 0600);
}

TEST_CASE("ranges of any offset and length are those of the object", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({4 * MiB + 777});
  const auto cache = cached(store, in);
  rng random(7);
  const std::size_t size = store->objects["mem:0"].size();
  for (int i = 0; i < 150; ++i) {
    const std::uint64_t offset = random.below(size);
    const std::size_t length = 1 + random.below(i % 3 == 0 ? 2 * MiB : 30000);
    read(loop, *cache, *store, "mem:0", offset, std::min<std::size_t>(length, size - offset));
  }
  CHECK(cache->stats().hits > 50);
  CHECK(cache->stats().damaged == 0);
  const std::uint64_t asked = store->reads;
  for (std::uint64_t at = 0; at < size; at += 1000) {
    read(loop, *cache, *store, "mem:0", at, std::min<std::uint64_t>(1000, size - at));
  }
  CHECK(store->reads - asked < 30);  // nearly all of it has been read
}

TEST_CASE("another version is another object, and takes the slots of the older", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({3 * MiB});
  const auto cache = cached(store, in, 3);
  CHECK(fetched(loop, cache, *store));
  store->etag = "\"v2\"";
  store->objects["mem:0"] = random_text(99, 3 * MiB);
  CHECK(fetched(loop, cache, *store));
  const std::uint64_t asked = store->reads;
  CHECK(fetched(loop, cache, *store));
  CHECK(store->reads == asked);
  CHECK(cache->stats().refused == 0);
  SECTION("without a strong ETag nothing is kept") {
    store->etag = GENERATE("", "W/\"v3\"");
    store->objects["mem:0"] = random_text(100, 3 * MiB);
    test::captured_stderr said(test::captured_stderr::into::pipe);
    CHECK(fetched(loop, cache, *store));
    CHECK(fetched(loop, cache, *store));
    const std::string text = said.text();
    CHECK_THAT(text, Catch::Matchers::Contains("no strong ETag") && Catch::Matchers::Contains("the first is mem:0"));
    CHECK(std::count(text.begin(), text.end(), '\n') == 1);
    CHECK(cache->stats().refused > 0);
  }
}

TEST_CASE("an object whose URL is too long for a slot's header is not kept, and one line says so", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({});
  const std::string fits = "mem:" + std::string(2900, 'a'), longer = "mem:" + std::string(3000, 'b');
  for (const std::string& url : {fits, longer}) store->objects[url] = random_text(5, MiB);
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const auto cache = cached(store, in);
  for (int i = 0; i < 2; ++i) {
    read(loop, *cache, *store, fits, 0, MiB);
    read(loop, *cache, *store, longer, 0, MiB);
  }
  CHECK(cache->stats().hits == 1);
  CHECK(cache->stats().refused == 2);
  const std::string text = said.text();
  CHECK_THAT(text, Contains("whose URL is too long, are not kept: the first is " + longer));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("an object named without its ETag is asked for once", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({3 * MiB});
  const auto cache = cached(store, in);
  CHECK(fetched(loop, cache, *store));
  store->reads = 0;
  const auto reading = [](std::shared_ptr<const storage> from, std::string& to) -> task<void> {
    std::vector<shard> names{shard("mem:0")};
    auto chunks = from_range(std::move(names)) | fetch(from);
    while (auto c = co_await chunks.next()) to += c->data.view();
  };
  std::string came;
  block_on(coroutine_context(loop), reading(cache, came));
  CHECK((came == store->objects["mem:0"]));
  CHECK(store->reads == 1);
}

TEST_CASE("a full cache admits nothing more and keeps what it has", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({8 * MiB});
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const auto cache = cached(store, in, 3);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (std::uint64_t at = 0; at < 8; ++at) read(loop, *cache, *store, "mem:0", at * MiB, MiB);
  }
  CHECK(cache->stats().hits == 6);
  CHECK(store->reads == 18);
  CHECK(cache->stats().admitted == 3);
  CHECK(cache->stats().refused == 15);
  const std::string text = said.text();
  const std::size_t first = text.find("are full: what is beyond is read from the store in every epoch");
  CHECK(first != std::string::npos);
  CHECK(text.find("are full", first + 60) == std::string::npos);
}

TEST_CASE("whatever the disk says, what is delivered is what the store has", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  test::captured_stderr said(test::captured_stderr::into::pipe);
  rng random(GENERATE(1u, 2u, 3u, 4u, 5u, 6u));
  const auto store = store_of({2 * MiB + 5000, 40000});
  std::string older;  // an index from before
  std::uint64_t damaged = 0, hits = 0;
  for (int round = 0; round < 12; ++round) {
    const auto cache = cached(store, in, 4);
    CHECK(fetched(loop, cache, *store, {.part = 1 * MiB}));
    CHECK(fetched(loop, cache, *store, {.part = 1 * MiB}));
    damaged += cache->stats().damaged;
    hits += cache->stats().hits;
    const std::vector<std::string> names = folder::names();
    const bool under_it = random.below(2) == 0;  // while the cache is open
    const auto harm = [&] {
      const std::string name = in.path + '/' + names[std::vector<std::size_t>{0, 3, 4}[random.below(3)]];
      struct ::stat s {};
      if (::stat(name.c_str(), &s) != 0 || s.st_size == 0) return;
      const auto size = static_cast<std::uint64_t>(s.st_size);
      std::fstream f(name, std::ios::in | std::ios::out | std::ios::binary);
      switch (random.below(5)) {
        case 0:
          REQUIRE(::truncate(name.c_str(), static_cast<off_t>(random.below(size))) == 0);
          break;
        case 1:
          if (name.find("index") != std::string::npos && !older.empty()) {
            f.write(older.data(), static_cast<std::streamsize>(older.size()));
          }
          break;
        default:
          for (std::uint64_t flips = 1 + random.below(200); flips > 0; --flips) {
            const std::uint64_t bound = random.below(2) == 0 ? size : std::min<std::uint64_t>(size, 8192);
            const auto at = static_cast<std::streamoff>(random.below(bound));
            f.seekg(at);
            const int c = f.get();
            f.clear();
            f.seekp(at);
            f.put(static_cast<char>(c ^ (1 << random.below(8))));
          }
      }
    };
    std::ifstream index(in.path + "/index", std::ios::binary);
    if (random.below(3) == 0) older.assign(std::istreambuf_iterator<char>(index), {});
    harm();
    if (random.below(3) == 0) {  // and another version
      store->etag = "\"v" + std::to_string(round) + "\"";
      store->objects["mem:0"] = random_text(random.next(), 2 * MiB + random.below(9000));
    }
    if (under_it) CHECK(fetched(loop, cache, *store, {.part = 1 * MiB}));
  }
  CHECK(hits > 10);
  CHECK(damaged > 0);
}

TEST_CASE("a slot that was damaged is written anew", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  const auto cache = cached(store, in);
  read(loop, *cache, *store, "mem:0", 0, MiB);
  const std::string name = in.path + (GENERATE(true, false) ? "/segment.000000" : "/headers");
  {
    std::fstream f(name, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(1000);
    f.put('!');
  }
  read(loop, *cache, *store, "mem:0", 0, MiB);
  CHECK(store->reads == 2);
  CHECK(cache->stats().damaged == 1);
  read(loop, *cache, *store, "mem:0", 0, MiB);
  CHECK(store->reads == 2);
}

TEST_CASE("of two that want the same bytes, one fetches", "[disk_cache]") {
  testing::jumping_loop loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  store->pause = 300ms;
  const auto one = cached(store, in);
  const auto other = cached(store, in);  // as another process: locks of its own
  const auto both = [](const storage& a, const storage& b, const memory_store& s) -> task<void> {
    task<storage::part> first = a.read(named(s, "mem:0"), "", 0, MiB, slab_pool(2 * MiB));
    task<storage::part> second = b.read(named(s, "mem:0"), "", 0, MiB, slab_pool(2 * MiB));
    const auto parts = co_await all_of(std::move(first), std::move(second));
    const std::string& right = s.objects.at("mem:0");
    const bool same = std::get<0>(parts).data.view() == right && std::get<1>(parts).data.view() == right;
    CHECK(same);
  };
  const storage& second = GENERATE(true, false) ? *other : *one;
  block_on(loop, both(*one, second, *store));
  CHECK(store->reads == 1);
  SECTION("the other does not wait for longer than a part takes") {
    store->etag = "\"v2\"";
    const auto own = detail::disk_slots::open(in.path, 64 * MiB, 0, true)->try_claim("mem:0", 0, MiB);
    REQUIRE(own);
    const duration before = loop.elapsed();
    read(loop, *one, *store, "mem:0", 0, MiB);
    const duration took = loop.elapsed() - before;
    CHECK(took >= 600ms);
    CHECK(took < 1000ms);
    CHECK(store->reads == 2);
  }
}

TEST_CASE("neighbours whose ends are in one grain do not wait for each other, and both are kept", "[disk_cache]") {
  testing::jumping_loop loop;
  const folder in;
  const auto store = store_of({2 * MiB});
  store->pause = 300ms;
  const auto cache = cached(store, in);
  constexpr std::size_t cut = MiB + 100;
  const auto both = [](const storage& from, const memory_store& s) -> task<void> {
    task<storage::part> first = from.read(named(s, "mem:0"), "", 0, cut, slab_pool(2 * MiB));
    task<storage::part> second = from.read(named(s, "mem:0"), "", cut, 2 * MiB - cut, slab_pool(2 * MiB));
    const auto parts = co_await all_of(std::move(first), std::move(second));
    const std::string came = std::string(std::get<0>(parts).data.view()) + std::string(std::get<1>(parts).data.view());
    const bool same = came == s.objects.at("mem:0");
    CHECK(same);
  };
  block_on(loop, both(*cache, *store));
  CHECK(cache->stats().waited == 0);
  CHECK(loop.elapsed() < 350ms);
  CHECK(store->reads == 2);
  read(loop, *cache, *store, "mem:0", 0, 2 * MiB);
  CHECK(store->reads == 2);
}

TEST_CASE("who has waited long enough and fetched, too, keeps that once the other one lets it", "[disk_cache]") {
  testing::jumping_loop loop;
  const folder in;
  const auto store = store_of({MiB});
  store->pause = 3s;
  const auto cache = cached(store, in);
  auto taken = detail::disk_slots::open(in.path, 64 * MiB, 0, true)->try_claim("mem:0", 0, MiB);
  REQUIRE(taken);
  const auto both = [](const storage& from, const memory_store& s, detail::disk_slots::claim& other) -> task<void> {
    const auto released = [](detail::disk_slots::claim& one) -> task<void> {
      co_await sleep_for(2s);
      const detail::disk_slots::claim dropped = std::move(one);
    };
    task<storage::part> reading = from.read(named(s, "mem:0"), "", 0, MiB, slab_pool(2 * MiB));
    task<void> releasing = released(other);
    co_await all_of(std::move(reading), std::move(releasing));
  };
  block_on(loop, both(*cache, *store, taken));
  read(loop, *cache, *store, "mem:0", 0, MiB);
  CHECK(store->reads == 1);
}

TEST_CASE("a write waits for another one of its process to the same block, for longer than for other processes",
          "[disk_cache]") {
  testing::jumping_loop loop;
  const folder in;
  const auto store = store_of({MiB});
  const auto cache = cached(store, in);
  // Another process makes a segment: the first write waits for it, the second one for the first.
  const detail::owned_fd locks(::open((in.path + "/locks").c_str(), O_RDWR | O_CLOEXEC));
  struct ::flock byte {};
  byte.l_whence = SEEK_SET;
  byte.l_start = static_cast<off_t>(1) << 62;
  byte.l_len = 1;
  byte.l_type = F_WRLCK;
  REQUIRE(::fcntl(locks.get(), F_OFD_SETLK, &byte) == 0);
  const auto both = [&](const storage& from, const memory_store& s) -> task<void> {
    const auto released = [&]() -> task<void> {
      co_await sleep_for(1500ms);
      byte.l_type = F_UNLCK;
      ::fcntl(locks.get(), F_OFD_SETLK, &byte);
    };
    task<storage::part> first = from.read(named(s, "mem:0"), "", 0, MiB / 2, slab_pool(2 * MiB));
    task<storage::part> second = from.read(named(s, "mem:0"), "", MiB / 2, MiB / 2, slab_pool(2 * MiB));
    task<void> releasing = released();
    co_await all_of(std::move(first), std::move(second), std::move(releasing));
  };
  block_on(loop, both(*cache, *store));
  CHECK(loop.elapsed() >= 1500ms);
  CHECK(cache->stats().refused == 0);
  CHECK(store->reads == 2);
  read(loop, *cache, *store, "mem:0", 0, MiB);
  CHECK(store->reads == 2);
}

TEST_CASE("a folder that cannot be used turns the cache off for a minute, with one line", "[disk_cache]") {
  testing::jumping_loop loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const auto cache = cached(store, in);
  read(loop, *cache, *store, "mem:0", 0, MiB);
  in.clear();
  for (int i = 0; i < 3; ++i) read(loop, *cache, *store, "mem:0", 0, MiB);
  CHECK(store->reads == 4);
  CHECK(::access(in.path.c_str(), F_OK) != 0);
  loop.advance(61s);
  read(loop, *cache, *store, "mem:0", 0, MiB);
  read(loop, *cache, *store, "mem:0", 0, MiB);
  CHECK(store->reads == 5);
  struct ::stat s {};
  REQUIRE(::stat(in.path.c_str(), &s) == 0);
  CHECK((s.st_mode & 0777) == 0700);
  const std::string text = said.text();
  INFO(text);
  const std::size_t line = text.find("disk_cache is off, and tried again every minute: " + in.path);
  CHECK(line != std::string::npos);
  CHECK(text.find("disk_cache is off", line + 10) == std::string::npos);
}

TEST_CASE("links are not followed, and folders of others not used", "[disk_cache]") {
  loop_of_test loop;
  const folder in, elsewhere;
  const auto store = store_of({1 * MiB});
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const auto off = [&](const std::string& path) {
    const auto cache = disk_cache(std::shared_ptr<const storage>(store), {.directory = path, .bytes = 64 * MiB});
    read(loop, *cache, *store, "mem:0", 0, MiB);
    read(loop, *cache, *store, "mem:0", 0, MiB);
    return cache->stats().hits == 0;
  };
  SECTION("the folder") {
    const std::string link = in.path + "/locks";  // cleared with it
    REQUIRE(::symlink(elsewhere.path.c_str(), link.c_str()) == 0);
    CHECK(off(link));
    CHECK_THAT(said.text(), Contains("it is a symbolic link; name the folder that it points to, " + elsewhere.path));
    return;
  }
  SECTION("a file") {
    const std::string name = GENERATE("index", "locks", "headers", "segment.000000");
    const std::string target = elsewhere.path + "/index";
    std::ofstream(target) << "precious";
    REQUIRE(::symlink(target.c_str(), (in.path + '/' + name).c_str()) == 0);
    CHECK(off(in.path));
    std::ifstream f(target);
    std::string content;
    f >> content;
    CHECK(content == "precious");
  }
  SECTION("one that others may write to") {
    REQUIRE(::chmod(in.path.c_str(), 0777) == 0);
    CHECK(off(in.path));
  }
  CHECK_THAT(said.text(), Contains("millrace: disk_cache is off, and tried again every minute: "));
}

TEST_CASE("a folder that holds other files is left as it is", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const std::string name = GENERATE("index", "locks", "headers", "segment.000000", "index.new", "notes.txt", "empty");
  const std::string content = name == "empty" ? "" : "precious";
  std::ofstream(in.path + '/' + name) << content;
  {
    const auto cache = cached(store, in);
    read(loop, *cache, *store, "mem:0", 0, MiB);
    read(loop, *cache, *store, "mem:0", 0, MiB);
    CHECK(cache->stats().hits == 0);
  }
  CHECK_THAT(said.text(), Contains("disk_cache is off") && Contains(in.path) &&
                              Contains("it is not one, and holds other files (" + name + ")"));
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(in.path)) {
    CHECK(file.path().filename() == name);
    ++files;
  }
  CHECK(files == 1);
  std::ifstream f(in.path + '/' + name);
  CHECK((std::string(std::istreambuf_iterator<char>(f), {}) == content));
}

TEST_CASE("a folder that is a cache without an index, or was left as one began, is a cache", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  if (GENERATE(true, false)) {
    const auto cache = cached(store, in);
    read(loop, *cache, *store, "mem:0", 0, MiB);
    REQUIRE(::unlink((in.path + "/index").c_str()) == 0);
  } else {
    std::ofstream(in.path + "/locks") << "";
    REQUIRE(::mkdir((in.path + "/lost+found").c_str(), 0700) == 0);
  }
  const auto cache = cached(store, in);
  for (int i = 0; i < 2; ++i) read(loop, *cache, *store, "mem:0", 0, MiB);
  CHECK(cache->stats().hits == 1);
}

/// Makes the index say another format.
void set_format(const folder& in, std::uint32_t format) {
  std::fstream f(in.path + "/index", std::ios::in | std::ios::out | std::ios::binary);
  char magic[8];
  std::uint64_t words[2] = {format, 0};
  f.read(magic, sizeof magic);
  f.seekg(16);
  f.read(reinterpret_cast<char*>(&words[1]), sizeof words[1]);
  const std::uint32_t crc = crc32c(crc32c(0, magic, sizeof magic), words, sizeof words);
  f.seekp(8);
  f.write(reinterpret_cast<const char*>(&format), sizeof format);
  f.write(reinterpret_cast<const char*>(&crc), sizeof crc);
}

TEST_CASE("a cache of an older format that no process uses is begun anew, and one line says so", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  auto before = cached(store, in);
  read(loop, *before, *store, "mem:0", 0, MiB);
  REQUIRE(::rename((in.path + "/segment.000000").c_str(), (in.path + "/segment.000007").c_str()) == 0);
  set_format(in, 2);
  test::captured_stderr said(test::captured_stderr::into::pipe);
  {
    const auto cache = cached(store, in);
    read(loop, *cache, *store, "mem:0", 0, MiB);
    CHECK(cache->stats().admitted == 0);
    CHECK(std::filesystem::exists(in.path + "/segment.000007"));
  }
  before.reset();
  for (int i = 0; i < 2; ++i) {
    const auto cache = cached(store, in);
    read(loop, *cache, *store, "mem:0", 0, MiB);
    CHECK(cache->stats().hits == static_cast<std::uint64_t>(i));
  }
  CHECK_FALSE(std::filesystem::exists(in.path + "/segment.000007"));
  CHECK(said.text() == "millrace: disk_cache is off, and tried again every minute: " + in.path +
                           ": the folder holds a cache of an older format, which stays: a process uses segment.000007 "
                           "of the cache: nothing was removed\nmillrace: disk_cache: " +
                           in.path + " held a cache of format 2, of an older version: it is begun anew\n");
}

TEST_CASE("where an older cache is gone and a new one cannot be made, the line says both", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  {
    const auto cache = cached(store, in);
    read(loop, *cache, *store, "mem:0", 0, MiB);
  }
  set_format(in, 2);
  test::captured_stderr said(test::captured_stderr::into::pipe);
  struct ::rlimit usual {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const struct ::rlimit small { 4096, usual.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const auto cache = cached(store, in);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
  CHECK_FALSE(std::filesystem::exists(in.path + "/segment.000000"));
  CHECK(said.text() ==
        "millrace: disk_cache is off, and tried again every minute: " + in.path +
            "/index: the index of a cache cannot be made, and the cache of format 2, of an older version, is removed: "
            "File too large\n");
}

TEST_CASE("a cache of a newer format stays as it is", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  {
    const auto cache = cached(store, in);
    read(loop, *cache, *store, "mem:0", 0, MiB);
  }
  set_format(in, 1000);
  test::captured_stderr said(test::captured_stderr::into::pipe);
  for (int i = 0; i < 2; ++i) {
    const auto cache = cached(store, in);
    read(loop, *cache, *store, "mem:0", 0, MiB);
    CHECK(cache->stats().admitted == 0);
  }
  CHECK_THAT(said.text(), Contains("the folder holds a cache of format 1000, where this version has ") &&
                              Contains("use another folder, or remove it (millrace-cache drop)"));
  CHECK_THROWS_WITH(detail::cache_folder::inspect(in.path, false), Contains("format 1000"));
  CHECK(std::filesystem::exists(in.path + "/segment.000000"));
  CHECK(detail::cache_folder::drop(in.path).names.size() == 4);
}

TEST_CASE("a cache that has lost its index can be dropped", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  {
    const auto cache = cached(store, in);
    read(loop, *cache, *store, "mem:0", 0, MiB);
  }
  REQUIRE(::unlink((in.path + "/index").c_str()) == 0);
  if (GENERATE(true, false)) std::ofstream(in.path + "/index") << "damaged";
  const detail::cache_folder::removed gone = detail::cache_folder::drop(in.path);
  CHECK(std::count(gone.names.begin(), gone.names.end(), "segment.000000") == 1);
  CHECK(gone.left == 0);
  CHECK(std::filesystem::is_empty(in.path));
}

TEST_CASE("a process that opens a cache while it is dropped does not lock a file that is gone", "[disk_cache]") {
  const folder in;
  const std::string locks = in.path + "/locks";
  std::shared_ptr<detail::disk_slots> slots = detail::disk_slots::open(in.path, 64 * MiB, 0, true);
  slots.reset();
  const detail::owned_fd file(::open(locks.c_str(), O_RDWR | O_CLOEXEC));
  struct ::flock range {};
  range.l_type = F_WRLCK;
  range.l_start = off_t(1) << 62;
  range.l_len = 1;
  REQUIRE(::fcntl(file.get(), F_OFD_SETLK, &range) == 0);
  std::thread opens([&] { slots = detail::disk_slots::open(in.path, 64 * MiB, 0, true); });
  const auto opened = [&] {
    std::size_t n = 0;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      n += std::filesystem::read_symlink(fd.path(), gone) == locks ? 1 : 0;
    }
    return n == 2;
  };
  while (!opened()) std::this_thread::yield();
  for (const char* name : {"/headers", "/index", "/locks"}) ::unlink((in.path + name).c_str());
  range.l_type = F_UNLCK;
  REQUIRE(::fcntl(file.get(), F_OFD_SETLK, &range) == 0);
  opens.join();
  REQUIRE(slots != nullptr);
  const auto claim = slots->try_claim("mem:0", 0, MiB);
  CHECK(claim);
  CHECK_FALSE(detail::disk_slots::open(in.path, 64 * MiB, 0, true)->try_claim("mem:0", 0, MiB));
}

TEST_CASE("files of a cache that others may read become private", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  const auto use = [&] {
    const auto cache = cached(store, in);
    read(loop, *cache, *store, "mem:0", 0, MiB);
  };
  use();
  for (const char* name : {"index", "locks", "headers", "segment.000000"}) {
    REQUIRE(::chmod((in.path + '/' + name).c_str(), 0644) == 0);
  }
  use();
  for (const char* name : {"index", "locks", "headers", "segment.000000"}) {
    struct ::stat s {};
    REQUIRE(::stat((in.path + '/' + name).c_str(), &s) == 0);
    INFO(name);
    CHECK((s.st_mode & 0777) == 0600);
  }
}

TEST_CASE("a cache that is larger than its .bytes of now says so", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({8 * MiB, 2 * MiB});
  {
    const auto cache = cached(store, in);
    read(loop, *cache, *store, "mem:0", 0, 8 * MiB, 16 * MiB);
  }
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const auto cache = cached(store, in, 4);
  CHECK_THAT(said.text(), Contains(in.path + " takes 8.42 MB of the disk, more than the .bytes of now, 4.21 MB"));
  read(loop, *cache, *store, "mem:0", 0, 8 * MiB, 16 * MiB);
  read(loop, *cache, *store, "mem:1", 0, 2 * MiB);
  CHECK(cache->stats().hits == 1);
  CHECK(cache->stats().admitted == 0);
}

TEST_CASE("options keep their directory", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  const auto made = [](const std::string& folder_of_test) {
    disk_cache_options o;
    o.bytes = 64 * MiB;
    o.keep_free = 0;
    o.directory = folder_of_test + "/one of a name that no short string holds";
    return o;
  };
  const disk_cache_options o = made(in.path);
  const std::string other(in.path.size() + 43, 'x');  // in the memory that the name had
  const auto cache = disk_cache(std::shared_ptr<const storage>(store), o);
  for (int i = 0; i < 2; ++i) read(loop, *cache, *store, "mem:0", 0, MiB);
  CHECK(cache->stats().hits == 1);
  CHECK(std::filesystem::exists(in.path + "/one of a name that no short string holds/index"));
}

TEST_CASE("options that cannot work are errors", "[disk_cache]") {
  const std::shared_ptr<const storage> store = store_of({1});
  CHECK_THROWS_WITH(disk_cache(store, {.directory = "", .bytes = MiB * 64}), Contains(".directory"));
  CHECK_THROWS_WITH(disk_cache(store, {.directory = "/tmp/x", .bytes = MiB}), Contains(".bytes"));
  CHECK_THROWS_WITH(disk_cache(store, {.directory = "/tmp/x", .bytes = MiB * 64, .keep_free = 1}),
                    Contains(".keep_free"));
}

TEST_CASE("what a slow disk does not take is said once", "[disk_cache]") {
  loop_of_test loop;
  test::captured_stderr said(test::captured_stderr::into::pipe);
  detail::disk_cache_state state("/nvme/mill", 1 * GiB, 0);
  CHECK(state.may_begin_write(1));
  CHECK(state.begin_write(detail::disk_cache_state::most_writing));
  CHECK_FALSE(state.may_begin_write(1));
  CHECK_FALSE(state.begin_write(1));
  state.slow(loop);
  state.slow(loop);
  state.end_write(detail::disk_cache_state::most_writing);
  CHECK(state.begin_write(1));
  state.end_write(1);
  const std::string text = said.text();
  CHECK_THAT(text, Catch::Matchers::Contains("/nvme/mill is slower than the store"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("what must stay free stays free", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const auto cache = disk_cache(std::shared_ptr<const storage>(store),
                                {.directory = in.path, .bytes = 64 * MiB, .keep_free = 0.9999});
  for (int i = 0; i < 3; ++i) read(loop, *cache, *store, "mem:0", 0, MiB);
  CHECK(store->reads == 3);
  CHECK(cache->stats().admitted == 0);
  CHECK_THAT(said.text(), Contains("less of the disk free than .keep_free"));
}

TEST_CASE("the store's checksum is asked for until an object is cached that agrees with it", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({3 * MiB});
  store->keeps_checksums = true;
  const auto cache = cached(store, in);
  SECTION("it agrees") {
    CHECK(fetched(loop, cache, *store));
    CHECK(fetched(loop, cache, *store));
    CHECK(store->checks == 1);
  }
  SECTION("nor where only its ETag is known") {
    CHECK(fetched(loop, cache, *store));
    const auto whole = [](std::shared_ptr<const storage> from, shard object) -> task<std::size_t> {
      auto chunks = from_range(std::vector<shard>{std::move(object)}) | fetch(from);
      std::size_t came = 0;
      while (auto c = co_await chunks.next()) came += c->data.size();
      co_return came;
    };
    shard object("mem:0");
    object.etag = store->etag;
    CHECK(block_on(coroutine_context(loop), whole(cache, object)) == 3 * MiB);
    CHECK(store->checks == 1);
  }
  SECTION("it came damaged, and is not kept") {
    store->damaged_on_the_way = true;
    CHECK_THROWS_AS(fetched(loop, cache, *store), s3::checksum_error);
    store->damaged_on_the_way = false;
    store->reads = 0;
    CHECK(fetched(loop, cache, *store));
    CHECK(store->reads > 0);
    CHECK(store->checks == 2);
  }
}

TEST_CASE("bytes that come from the store for what is damaged on the disk agree with its checksum", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({3 * MiB + 5000});
  store->keeps_checksums = true;
  const fetch_options by_parts{.shards = 1, .window = 2 * MiB, .part = MiB};
  {
    const auto cache = cached(store, in);
    CHECK(fetched(loop, cache, *store, by_parts));
    CHECK(fetched(loop, cache, *store, by_parts));
    CHECK(store->checks == 1);
  }
  const std::string harmed = GENERATE("a header", "all headers", "a block", "the file of the blocks");
  INFO(harmed);
  const std::string headers = in.path + "/headers", segment = in.path + "/segment.000000";
  const auto zero = [](const std::string& name, std::streamoff from, std::size_t n) {
    std::fstream f(name, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(from);
    f << std::string(n, '\0');
  };
  if (harmed == "a header") zero(headers, 4096, 4096);
  if (harmed == "all headers") zero(headers, 0, std::size_t(16) << 10);
  if (harmed == "a block") zero(segment, MiB + 5000, 1);
  if (harmed == "the file of the blocks") REQUIRE(::truncate(segment.c_str(), MiB) == 0);
  store->damaged_on_the_way = true;
  for (int run = 0; run < 2; ++run) {
    const auto cache = cached(store, in);
    CHECK_THROWS_AS(fetched(loop, cache, *store, by_parts), s3::checksum_error);
  }
  store->damaged_on_the_way = false;
  store->reads = 0;
  const auto cache = cached(store, in);
  CHECK(fetched(loop, cache, *store, by_parts));
  CHECK(store->reads > 0);
  store->reads = 0;
  CHECK(fetched(loop, cache, *store, by_parts));
  CHECK(store->reads == 0);
}

TEST_CASE("what came damaged by ranges is not delivered as a whole object", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({100'000});
  store->keeps_checksums = true;
  store->compares_whole = true;
  const auto cache = cached(store, in);
  const auto range = [&](std::uint64_t offset, std::size_t length) {
    return block_on(coroutine_context(loop),
                    cache->read(named(*store, "mem:0"), std::string(), offset, length, slab_pool(2 * MiB)));
  };
  store->damaged_on_the_way = true;
  CHECK(range(0, 40'000).data.size() == 40'000);
  CHECK(range(40'000, 60'000).data.size() == 60'000);
  store->damaged_on_the_way = false;
  // The part is read again, without the cache: nothing is lost.
  CHECK(fetched(loop, cache, *store));
  CHECK(store->checks == 1);
  store->reads = 0;
  CHECK(fetched(loop, cache, *store));
  CHECK(store->reads == 1);
  CHECK(fetched(loop, cache, *store));
  CHECK(store->reads == 1);
  CHECK(store->checks == 1);  // read() has compared it
}

TEST_CASE("an object named without its ETag that came damaged is not kept", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({3 * MiB});
  store->keeps_checksums = true;
  const auto cache = cached(store, in);
  const auto whole = [](std::shared_ptr<const storage> from) -> task<std::size_t> {
    std::vector<shard> names{shard("mem:0")};
    auto chunks = from_range(std::move(names)) | fetch(from, {.shards = 1, .window = 2 * MiB, .part = MiB});
    std::size_t came = 0;
    while (auto c = co_await chunks.next()) came += c->data.size();
    co_return came;
  };
  store->damaged_on_the_way = true;
  CHECK_THROWS_AS(block_on(coroutine_context(loop), whole(cache)), s3::checksum_error);
  store->damaged_on_the_way = false;
  CHECK(block_on(coroutine_context(loop), whole(cache)) == 3 * MiB);
}

TEST_CASE("what a reading has found to be damaged is not said to be local", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({2 * MiB});
  const auto cache = cached(store, in);
  read(loop, *cache, *store, "mem:0", 0, 2 * MiB);
  const shard object = named(*store, "mem:0");
  REQUIRE(cache->is_local(object, MiB, MiB));
  {
    std::fstream f(in.path + "/segment.000000", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(MiB + 1000);
    f.put('!');
  }
  store->etag = "\"v2\"";  // which ends the reading from the store
  CHECK_THROWS_AS(block_on(coroutine_context(loop), cache->read(object, "\"v1\"", MiB, MiB, slab_pool(2 * MiB))),
                  changed_error);
  CHECK_FALSE(cache->is_local(object, MiB, MiB));
  CHECK(cache->is_local(object, 0, MiB));
  CHECK(cache->held_on_disk(object, 0, 2 * MiB) == MiB);
}

TEST_CASE("objects of the same URL in two stores are two objects", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto one = store_of({1 * MiB}), other = store_of({1 * MiB});
  other->objects["mem:0"] = random_text(77, MiB);
  one->server = "http://127.0.0.1:9000";
  other->server = "http://127.0.0.1:9001";
  const auto first = cached(one, in), second = cached(other, in);
  for (int round = 0; round < 2; ++round) {
    read(loop, *first, *one, "mem:0", 0, MiB);
    CHECK(second->is_local(named(*other, "mem:0"), 0, MiB) == (round == 1));
    read(loop, *second, *other, "mem:0", 0, MiB);
  }
  CHECK(one->reads == 1);
  CHECK(other->reads == 1);
}

TEST_CASE("a second reading is the store's, and what was cached is forgotten", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  const auto cache = cached(store, in);
  read(loop, *cache, *store, "mem:0", 0, MiB);
  const storage::part p = block_on(
      coroutine_context(loop), cache->read_again(named(*store, "mem:0"), "", 5, 1000, slab_pool(2 * MiB)));
  CHECK(p.data.view() == store->objects["mem:0"].substr(5, 1000));
  CHECK(store->second_readings == 1);
  read(loop, *cache, *store, "mem:0", 0, MiB);
  CHECK(store->reads == 3);
}

TEST_CASE("what is said of a cache's folder has no passwords and no signatures", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = std::make_shared<memory_store>();
  const std::string url = "https://user:passw0rd@example.org/train/0.tar?X-Amz-Signature=5ec/ret";
  store->objects[url] = random_text(1, MiB);
  const auto cache = cached(store, in);
  read(loop, *cache, *store, url, 0, MiB);
  {
    std::fstream f(in.path + "/segment.000000", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(5000);
    f.put('!');
  }
  const detail::cache_folder::report r = detail::cache_folder::inspect(in.path, true);
  REQUIRE(r.damaged.size() == 1);
  CHECK_THAT(r.damaged[0], Contains("of https://example.org/train/0.tar: its data are damaged at byte 4096"));
  const detail::cache_folder::report whole = detail::cache_folder::inspect(in.path, false);
  REQUIRE(whole.sets.size() == 1);
  CHECK(detail::shown_name(whole.sets[0].prefix) == "https://example.org/train/");
  const std::string of_store = detail::cached_name("http://user:passw0rd@127.0.0.1:9000", "s3://b/train/");
  CHECK(detail::shown_name(of_store) == "s3://b/train/");
  CHECK(detail::shown_endpoint(of_store) == "http://127.0.0.1:9000");
  CHECK(detail::cached_name("s3://b", "s3://b/train/") == "s3://b/train/");
}

TEST_CASE("an object whose URL is signed anew comes from the disk, which has no signature", "[disk_cache]") {
  loop_of_test loop;
  const folder in;
  const auto store = std::make_shared<memory_store>();
  const auto cache = cached(store, in);
  for (const std::string signature : {"FIRST", "SECOND"}) {
    for (const std::string version : {"1", "2"}) {
      const std::string url = "https://h/0.tar?versionId=" + version + "&X-Amz-Date=now&X-Amz-Signature=" + signature;
      store->objects[url] = random_text(version == "1" ? 1 : 2, MiB);
      read(loop, *cache, *store, url, 0, MiB);
    }
    CHECK(store->reads == 2);
  }
  std::ifstream headers(in.path + "/headers", std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(headers), {});
  CHECK(text.find("https://h/0.tar?versionId=2") != std::string::npos);
  for (const char* secret : {"FIRST", "SECOND", "X-Amz"}) CHECK(text.find(secret) == std::string::npos);
}

TEST_CASE("on a loop without files nothing is cached", "[disk_cache]") {
  testing::virtual_loop loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  const auto cache = cached(store, in);
  CHECK(fetched(loop, cache, *store));
  CHECK(cache->stats().hits + cache->stats().misses == 0);
}

TEST_CASE("a read that is dropped leaves nothing claimed", "[disk_cache]") {
  testing::jumping_loop loop;
  const folder in;
  const auto store = store_of({1 * MiB});
  store->pause = 1s;
  const auto cache = cached(store, in);
  {
    spawned<storage::part> reading(coroutine_context(loop),
                                   cache->read(named(*store, "mem:0"), "", 0, MiB, slab_pool(2 * MiB)));
    block_on(loop, [](std::uint64_t& reads) -> task<void> {
      while (reads == 0) co_await sleep_for(10ms);
    }(store->reads));
  }
  CHECK(detail::disk_slots::open(in.path, 64 * MiB, 0, true)->try_claim("mem:0", 0, MiB));
}

TEST_CASE("what the cache has is read in whole parts, several at a time, whatever was learnt of the store") {
  loop_of_test loop;
  const folder in;
  const auto store = store_of({12 * MiB, 12 * MiB});
  const auto cache = cached(store, in);
  const shard first = named(*store, "mem:0");
  CHECK_FALSE(cache->is_local(first, 0, 4 * MiB));
  const fetch_options o{.shards = 2, .window = 12 * MiB, .part = 4 * MiB};
  CHECK(fetched(loop, cache, *store, o));
  CHECK(cache->is_local(first, 0, 12 * MiB));
  CHECK(cache->is_local(first, 8 * MiB - 1, 2));
  CHECK_FALSE(cache->is_local(first, 0, 13 * MiB));
  CHECK_FALSE(cache->is_local(shard("mem:0", 12 * MiB), 0, MiB));  // of no version
  const std::uint64_t before = cache->stats().hits;
  CHECK(fetched(loop, cache, *store, o));
  // Of the first object 256 KiB, 256 KiB, 512 KiB, 1, 2, 4 and 4 MiB; of the second three parts.
  CHECK(cache->stats().hits - before == 10);
}

TEST_CASE("a whole object that one process has read comes from the disk for the next, but for its first part",
          "[disk_cache]") {
  loop_of_test loop;
  executor& ex = loop;
  const coroutine_context here(ex);
  const folder in;
  const auto store = store_of({40 * MiB + 123});
  const std::string& all = store->objects.at("mem:0");
  for (int process = 0; process < 2; ++process) {
    const auto cache = cached(store, in);
    store->read_bytes = 0;
    const bytes model = block_on(here, read_whole(std::shared_ptr<const storage>(cache), "mem:0"));
    CHECK((model.view() == all));
    if (process == 0) CHECK(store->read_bytes == all.size());
    if (process == 1) CHECK(store->read_bytes <= 8 * MiB);
  }
  CHECK_THROWS_WITH(block_on(here, read_whole(std::shared_ptr<const storage>(store), "s3://b/model")),
                    Contains("s3://b/model") && Contains("read_whole: the store does not serve this URL"));
}
