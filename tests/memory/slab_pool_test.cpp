// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/memory/slab_pool.hpp>

#include "tests/support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>

#include <millrace/base/crc.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>

using millrace::bytes;
using millrace::slab_pool;
using millrace::writable_bytes;

namespace {

// Counts what is out; throws after a number of allocations.
class counting_source final : public millrace::slab_source {
 public:
  void* allocate(std::size_t size) override {
    std::lock_guard lock(mutex_);
    if (allocated == fail_at) throw std::bad_alloc();
    ++allocated;
    void* p = std::malloc(size);
    sizes_[p] = size;
    return p;
  }
  void free(void* memory, std::size_t size) noexcept override {
    std::lock_guard lock(mutex_);
    if (sizes_.erase(memory) != 1) ++wrong;
    std::free(memory);
    last_size = size;
  }
  std::size_t out() {
    std::lock_guard lock(mutex_);
    return sizes_.size();
  }

  int allocated = 0;
  int fail_at = -1;
  int wrong = 0;
  std::size_t last_size = 0;

 private:
  std::mutex mutex_;
  std::map<void*, std::size_t> sizes_;
};

long page_faults() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

}  // namespace

TEST_CASE("slabs are recycled, the last one first") {
  auto source = std::make_shared<counting_source>();
  slab_pool pool(4096, source);
  CHECK(pool.slab_bytes() == 4096);
  CHECK(pool.live() == 0);
  const char* first = nullptr;
  const char* second = nullptr;
  {
    writable_bytes a = pool.acquire();
    writable_bytes b = pool.acquire();
    CHECK(a.capacity() == 4096);
    first = a.data();
    second = b.data();
    CHECK(first != second);
    CHECK(pool.live() == 2);
    b = writable_bytes();
    CHECK(pool.live() == 1);
  }
  CHECK(pool.live() == 0);
  CHECK(pool.peak() == 2);
  writable_bytes again = pool.acquire();
  CHECK(again.data() == first);
  writable_bytes other = pool.acquire();
  CHECK(other.data() == second);
  CHECK(source->allocated == 2);
}

TEST_CASE("a slab comes back when its last slice goes") {
  slab_pool pool(4096, std::make_shared<counting_source>());
  bytes slice;
  {
    writable_bytes b = pool.acquire();
    std::memcpy(b.data(), "hello", 5);
    slice = b.share(1, 3);
  }
  CHECK(pool.live() == 1);
  CHECK(slice.view() == "ell");
  CHECK(slice.retained() == 4096);
  slice = bytes();
  CHECK(pool.live() == 0);
}

TEST_CASE("slabs may outlive the pool") {
  auto source = std::make_shared<counting_source>();
  bytes slice;
  {
    slab_pool pool(4096, source);
    writable_bytes b = pool.acquire();
    writable_bytes unused = pool.acquire();
    b.data()[0] = 'x';
    slice = b.share(0, 1);
  }
  CHECK(source->out() == 2);  // the pool's state lives on with its last slab
  CHECK(slice.view() == "x");
  slice = bytes();
  CHECK(source->out() == 0);
  CHECK(source->wrong == 0);
  CHECK(source->last_size == 4096);
}

TEST_CASE("a copy of a pool is the same pool") {
  slab_pool pool(4096, std::make_shared<counting_source>());
  slab_pool copy = pool;
  writable_bytes b = pool.acquire();
  CHECK(copy.live() == 1);
  b = writable_bytes();
  CHECK(copy.acquire().capacity() == 4096);
  CHECK(pool.peak() == 1);
}

TEST_CASE("a failed allocation leaves the pool as it was") {
  auto source = std::make_shared<counting_source>();
  source->fail_at = 1;
  slab_pool pool(4096, source);
  writable_bytes a = pool.acquire();
  CHECK_THROWS_AS(pool.acquire(), std::bad_alloc);
  CHECK(pool.live() == 1);
  a = writable_bytes();
  CHECK(pool.live() == 0);
  CHECK(pool.acquire().capacity() == 4096);
  source->fail_at = -1;
  writable_bytes b = pool.acquire();
  writable_bytes c = pool.acquire();
  CHECK(pool.live() == 2);
}

TEST_CASE("plain slabs are zeroed, aligned to a page, and make no page faults in steady state") {
  slab_pool pool(2 * millrace::MiB);
  for (int round = 0; round < 2; ++round) {  // the first round faults them in
    const long before = page_faults();
    for (int i = 0; i < 50; ++i) {
      writable_bytes a = pool.acquire();
      writable_bytes b = pool.acquire();
      std::memset(a.data(), i, a.capacity());
      std::memset(b.data(), i, b.capacity());
    }
    if (round == 1) CHECK(page_faults() - before < 50);  // 50 x 1024 pages are written
  }
  writable_bytes fresh = slab_pool(8192).acquire();
  CHECK(reinterpret_cast<std::uintptr_t>(fresh.data()) % 4096 == 0);
  CHECK(fresh.data()[0] == 0);
  CHECK(fresh.data()[8191] == 0);
}

TEST_CASE("a new slab takes memory only where something has been written") {
  constexpr std::size_t size = 32 * millrace::MiB;
  writable_bytes slab = slab_pool(size).acquire();
  const auto resident = [&] {
    std::vector<unsigned char> pages(size / 4096);
    REQUIRE(::mincore(slab.data(), size, pages.data()) == 0);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
  };
  CHECK(resident() == 0);
  std::memset(slab.data(), 1, 100'000);
  CHECK(resident() >= 25);
  CHECK(resident() <= 1024);  // two huge pages
}

TEST_CASE("slabs are filled on one thread and dropped on another") {
  auto source = std::make_shared<counting_source>();
  {
    slab_pool pool(4096, source);
    std::mutex mutex;
    std::vector<bytes> handed_over;
    bool done = false;
    int sum = 0;
    std::thread dropper([&] {
      for (bool last = false; !last;) {
        std::vector<bytes> mine;
        {
          std::lock_guard lock(mutex);
          last = done;
          mine.swap(handed_over);
        }
        for (const bytes& slice : mine) sum += slice.view().back();
        std::this_thread::yield();
      }
    });
    std::vector<std::thread> fillers;
    for (int t = 0; t < 3; ++t) {
      fillers.emplace_back([&] {
        for (int i = 0; i < 2000; ++i) {
          writable_bytes b = pool.acquire();
          std::memset(b.data(), 1, b.capacity());
          std::lock_guard lock(mutex);
          handed_over.push_back(b.share(0, 64));
          handed_over.push_back(b.share(4000, 96));
        }
      });
    }
    for (std::thread& t : fillers) t.join();
    {
      std::lock_guard lock(mutex);
      done = true;
    }
    dropper.join();
    CHECK(sum == 3 * 2000 * 2);
    CHECK(pool.live() == 0);
    CHECK(static_cast<std::size_t>(source->allocated) <= pool.peak());
  }
  CHECK(source->out() == 0);
  CHECK(source->wrong == 0);
}

TEST_CASE("halves of slabs are lent one by one, and the slab is whole again when both are back") {
  const auto source = std::make_shared<counting_source>();
  slab_pool wholes(4096, source);
  const slab_pool halves = wholes.halves();
  slab_pool pool = halves;  // the same pool
  CHECK(pool.slab_bytes() == 2048);
  {
    writable_bytes first = pool.acquire();
    CHECK(wholes.live() == 1);
    CHECK(pool.has_free());
    writable_bytes second = pool.acquire();
    CHECK(wholes.live() == 1);
    CHECK_FALSE(pool.has_free());
    CHECK(first.capacity() == 2048);
    CHECK(second.data() == first.data() + 2048);
    writable_bytes third = pool.acquire();
    CHECK(wholes.live() == 2);
    second = writable_bytes();
    CHECK(wholes.live() == 2);
    writable_bytes again = pool.acquire();  // a half that is free, before a whole slab is cut
    CHECK(wholes.live() == 2);
    CHECK(pool.live() == 3);
  }
  CHECK(pool.live() == 0);
  CHECK(pool.peak() == 3);
  CHECK_FALSE(pool.has_free());
  CHECK(wholes.live() == 0);
  CHECK(source->allocated == 2);
  // Of a slab that was cut and is whole again.
  CHECK(wholes.acquire().capacity() == 4096);
  CHECK(source->allocated == 2);
}

TEST_CASE("two halves that are lent at one address, one after the other, differ by use()") {
  slab_pool pool = slab_pool(4096).halves();
  std::vector<std::uint32_t> uses;
  for (int i = 0; i < 10; ++i) uses.push_back(pool.acquire().share(0, 1).use());
  std::sort(uses.begin(), uses.end());
  CHECK(std::unique(uses.begin(), uses.end()) == uses.end());
}

TEST_CASE("halves, quarters and whole slabs of one pool never share memory, and all of it comes back") {
  const auto source = std::make_shared<counting_source>();
  {
    std::vector<slab_pool> pools{slab_pool(4096, source)};
    for (int i = 0; i < 3; ++i) pools.push_back(pools.back().halves());
    millrace::rng random(3);
    std::vector<writable_bytes> held;
    for (int i = 0; i < 4000; ++i) {
      if (held.size() < 40 && random.next() % 2 == 0) {
        held.push_back(pools[random.next() % pools.size()].acquire());
      } else if (!held.empty()) {
        std::swap(held[random.next() % held.size()], held.back());
        held.pop_back();
      }
      std::map<const char*, std::size_t> places;
      for (const writable_bytes& w : held) places[w.data()] = w.capacity();
      REQUIRE(places.size() == held.size());
      const char* end = nullptr;
      for (const auto& [data, size] : places) {
        REQUIRE(data >= end);
        end = data + size;
      }
    }
    held.clear();
    for (const slab_pool& pool : pools) CHECK(pool.live() == 0);
    CHECK(static_cast<std::size_t>(source->allocated) == pools[0].peak());
  }
  CHECK(source->out() == 0);
  CHECK(source->wrong == 0);
}

TEST_CASE("halves may be dropped on any thread, after their pool") {
  const auto source = std::make_shared<counting_source>();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([pool = slab_pool(4096, source).halves()]() mutable {
      std::vector<bytes> kept;
      for (int i = 0; i < 1000; ++i) {
        kept.push_back(pool.acquire().share(0, 100));
        if (kept.size() == 7) std::thread([gone = std::move(kept)] {}).join();
        if (kept.size() == 7) kept.clear();
      }
      pool = slab_pool(64);
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(source->out() == 0);
}

TEST_CASE("the CRC of a slice of a summed slab is made of the sums of its blocks") {
  constexpr std::size_t size = 64 * millrace::KiB;
  slab_pool pool(size);
  millrace::rng random(3);
  std::string text(size, 0);
  for (char& c : text) c = static_cast<char>(random.next());
  const auto of_text = [&](std::size_t begin, std::size_t end) {
    return millrace::crc32c(0, text.data() + begin, end - begin);
  };
  const auto fill = [&](writable_bytes& slab, std::size_t from, std::size_t to) {
    while (from < to) {
      const std::size_t part = std::min<std::size_t>(to - from, 1 + random.below(20'000));
      slab.note_filled(from, text.data() + from, part);
      std::memcpy(slab.data() + from, text.data() + from, part);
      from += part;
    }
  };
  for (const std::size_t filled : {size, size - 1, std::size_t(10'000), std::size_t(4096), std::size_t(100)}) {
    writable_bytes slab = pool.summed().acquire();
    fill(slab, 0, filled);
    const bytes all = slab.share(0, filled);
    REQUIRE(all.crc32c() == of_text(0, filled));
    for (int i = 0; i < 500; ++i) {
      const std::size_t begin = random.below(filled);
      const std::size_t end = begin + random.below(filled - begin + 1);
      REQUIRE(all.slice(begin, end - begin).crc32c() == of_text(begin, end));
    }
  }
  SECTION("of which little is read") {
    writable_bytes slab = pool.summed().acquire();
    fill(slab, 0, size);
    slab.data()[30'000] ^= 1;
    CHECK(slab.share(20'000, 20'000).crc32c() == of_text(20'000, 40'000));
    slab.data()[20'001] ^= 1;  // before the first block that it has in whole
    CHECK(slab.share(20'000, 20'000).crc32c() != of_text(20'000, 40'000));
  }
  SECTION("what is filled once more from the beginning counts, and what leaves a gap is read") {
    writable_bytes slab = pool.summed().acquire();
    fill(slab, 0, 30'000);
    text[5'000] ^= 1;
    fill(slab, 0, size);
    CHECK(slab.share(0, size).crc32c() == of_text(0, size));
    fill(slab, 0, 20'000);
    text[40'000] ^= 1;
    fill(slab, 36'000, size);
    CHECK(slab.share(0, size).crc32c() == of_text(0, size));
  }
  SECTION("of blocks whose CRCs are known") {
    writable_bytes slab = pool.summed().acquire();
    const std::size_t filled = 30'000;
    std::memcpy(slab.data(), text.data(), size);
    for (std::size_t from = 0; from < filled; from += 4096) {
      const std::size_t part = std::min<std::size_t>(4096, filled - from);
      slab.note_filled(from, of_text(from, from + part), part);
    }
    CHECK(slab.share(0, filled).crc32c() == of_text(0, filled));
    CHECK(slab.share(5'000, 20'000).crc32c() == of_text(5'000, 25'000));
    slab.data()[9'000] ^= 1;  // which is not read again
    CHECK(slab.share(5'000, 20'000).crc32c() == of_text(5'000, 25'000));
    slab.note_filled(40'960, 7, 4096);  // after a gap
    slab.data()[9'000] ^= 1;
    CHECK(slab.share(0, size).crc32c() == of_text(0, size));
  }
  SECTION("a slab that comes back knows nothing of what was in it") {
    {
      writable_bytes slab = pool.summed().acquire();
      fill(slab, 0, size);
    }
    for (const bool summed : {false, true}) {
      writable_bytes slab = summed ? pool.summed().acquire() : pool.acquire();
      ++text[5'000];
      std::memcpy(slab.data(), text.data(), size);  // by what does not sum
      CHECK(slab.share(0, size).crc32c() == of_text(0, size));
    }
  }
  CHECK(bytes().crc32c() == 0);
  CHECK(bytes::copy("123456789").crc32c() == 0xe3069283u);
}
