// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/pipeline_run.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>

#include <millrace/coro/block_on.hpp>
#include <millrace/decode/decode_arrays.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/packers.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

/// What the check says; "" when it finds nothing.
std::string complaint(const std::vector<stage_bounds>& bounds, std::size_t budget) {
  try {
    check_budget(bounds, budget);
    return "";
  } catch (const configuration_error& e) {
    return e.what();
  }
}

/// Nothing in it that what() had to escape: it is one line for people.
bool is_plain_line(const std::string& text) {
  return text.find('\n') == std::string::npos && text.find('\\') == std::string::npos;
}

async_generator<std::string> words(int n) {
  for (int i = 0; i < n; ++i) {
    std::string word(1, static_cast<char>('a' + i));
    co_yield give(word);
  }
}
class numbered {
 public:
  explicit numbered(int i) : value(i) {}
  int value;
  friend void collate(const numbered& n, sample_writer& out) { out.write("value", n.value); }
};
async_generator<int> numbers(int n) {
  for (int i = 0; i < n; ++i) {
    int value = i;
    co_yield give(value);
  }
}

TEST_CASE("bounds that fit are no error, to the byte; no budget asks for nothing") {
  const std::vector<stage_bounds> bounds = {{"fetch", 4, 600}, {"buffer", 8, 400}, {"map", 0, 0}};
  CHECK(complaint(bounds, 1000) == "");
  CHECK(complaint(bounds, 999) != "");
  CHECK(complaint(bounds, 0) == "");
  CHECK(complaint({{"batch", 8, 0}}, 0) == "");
  CHECK(complaint({}, 1) == "");
}

TEST_CASE("a budget that is exceeded is an error of one line with the bound of every stage") {
  const std::string text = complaint({{"fetch", 4, 3000}, {"shuffle", 16, 2000}, {"buffer", 8, 1000}}, 5999);
  INFO(text);
  CHECK(is_plain_line(text));
  CHECK_THAT(text, Contains("6.00 kB"));
  CHECK_THAT(text, Contains("fetch 3.00 kB"));
  CHECK_THAT(text, Contains("shuffle 2.00 kB"));
  CHECK_THAT(text, Contains("buffer 1.00 kB"));
}

TEST_CASE("a stage that works ahead and states no bytes is an error of one line") {
  const std::string text = complaint({{"fetch", 4, 1000}, {"batch", 8, 0}}, 1 << 20);
  INFO(text);
  CHECK(is_plain_line(text));
  CHECK_THAT(text, Contains("stage batch states no bound in bytes"));
}

TEST_CASE("bounds whose sum is no number any more do not fit") {
  CHECK(complaint({{"fetch", 1, SIZE_MAX}, {"buffer", 1, 2}}, 1000) != "");
  CHECK(complaint({{"fetch", 1, SIZE_MAX / 2 + 1}, {"buffer", 1, SIZE_MAX / 2 + 1}}, 1000) != "");
  CHECK(complaint({{"fetch", 1, 500}, {"buffer", 1, SIZE_MAX - 100}, {"map", 1, 200}}, 1000) != "");
}

TEST_CASE("the table has a line for every stage and one for all of them") {
  const std::string table = budget_table({{"fetch", 4, 3000}, {"batch", 8, 0}, {"buffer", 2, 1000}});
  CHECK(table ==
        "stage                 items       bytes\n"
        "fetch                     4     3.00 kB\n"
        "batch                     8  not stated\n"
        "buffer                    2     1.00 kB\n"
        "together                        4.00 kB\n");
  const std::string most = budget_table({{"fetch", 1, SIZE_MAX}});
  const std::string more = budget_table({{"fetch", 1, SIZE_MAX}, {"buffer", 1, SIZE_MAX}});
  const std::string last = "together";
  CHECK(more.substr(more.find(last)) == most.substr(most.find(last)));
}

TEST_CASE("batches of strings run within a budget if their bytes are stated") {
  const auto pipeline = [] { return words(4) | batch(2, {.bytes = 1000}); };
  CHECK_THROWS_AS(run(pipeline(), {.prefetch_bytes = 1000, .budget = 1999}), configuration_error);
  auto r = run(pipeline(), {.prefetch_bytes = 1000, .budget = 2000});
  int batches = 0;
  for (auto& b : r) batches += b.size() == 2 ? 1 : 0;
  CHECK(batches == 2);
  // Untold, there is nothing to check the budget against.
  CHECK_THROWS_AS(run(words(4) | batch(2), {.prefetch_bytes = 1000, .budget = 2000}), configuration_error);
  CHECK_THROWS_WITH(run(pipeline(), {.budget = 2000}), Contains("stage run states no bound in bytes"));
}

TEST_CASE("batches of items of a fixed size need no statement") {
  const auto pipeline = [] { return numbers(4) | batch(2); };
  constexpr std::size_t bytes = 2 * sizeof(int);
  CHECK_THROWS_AS(run(pipeline(), {.prefetch_bytes = 100, .budget = bytes + 99}), configuration_error);
  auto r = run(pipeline(), {.prefetch_bytes = 100, .budget = bytes + 100});
  CHECK(r.next()->size() == 2);
  // Nor need the items that wait for the training thread.
  auto ints = run(numbers(4), {.prefetch = 3, .budget = 3 * sizeof(int)});
  CHECK(ints.next() == 0);
  CHECK_THROWS_AS(run(numbers(4), {.prefetch = 3, .budget = 3 * sizeof(int) - 1}), configuration_error);
}

TEST_CASE("what is made ahead of the training thread is bounded in bytes") {
  const auto most_ahead = [](std::size_t prefetch_bytes) {
    std::atomic<int> made{0};
    const auto source = [](std::atomic<int>& count) -> async_generator<std::string> {
      for (int i = 0; i < 6; ++i) {
        std::string item(1000, 'x');
        ++count;
        co_yield give(item);
      }
    };
    auto r =
        run(source(made) | map([](std::string s) { return s; }), {.prefetch = 5, .prefetch_bytes = prefetch_bytes});
    int most = 0;
    for (int taken = 1; r.next(); ++taken) most = std::max(most, made.load() - taken);
    return most;
  };
  // Pulled and not yet handed to the training thread; the one that waits for room has been pulled too.
  CHECK(most_ahead(2000) <= 3);
  CHECK(most_ahead(1) <= 2);
}

TEST_CASE("pipelines that are made while another one runs count with what was stated for them") {
  const auto inner = [](int n) { return words(n) | buffer({.items = 4, .bytes = 500}); };
  const auto nested = [&](std::size_t stated) { return numbers(3) | flat_map(inner, {.inner_bytes = stated}); };
  const run_options tight{.prefetch_bytes = 100, .budget = 1000};
  CHECK_THROWS_WITH(run(nested(0), tight), Contains("flat_map, open pipeline states no bound in bytes"));
  CHECK_THROWS_AS(run(nested(901), tight), configuration_error);
  auto fits = run(nested(900), tight);
  std::string all;
  for (const std::string& w : fits) all += w;
  CHECK(all == "aab");
  // What does not keep to it is an error, with or without a budget.
  auto lies = run(nested(499));
  CHECK_THROWS_WITH(lies.next() && lies.next(), Contains("more than .inner_bytes, which is 499") && Contains("buffer"));
  const auto unknown = [](int n) { return words(n) | batch(2); };
  auto silent = run(numbers(3) | flat_map(unknown, {.inner_bytes = 499}));
  CHECK_THROWS_WITH(silent.next(), Contains("states no bound in bytes for its stage batch"));

  const auto wide = [&](std::size_t stated) {
    return numbers(3) | map(inner) | interleave({.width = 2, .ahead = 1, .bytes = 100, .inner_bytes = stated});
  };
  CHECK_THROWS_WITH(run(wide(0), tight), Contains("interleave, open sources states no bound in bytes"));
  CHECK_THROWS_AS(run(wide(401), tight), configuration_error);  // 100 + 100 + 2 * 401
  auto lying = run(wide(400), tight);
  CHECK_THROWS_WITH(lying.next(), Contains("more than .inner_bytes, which is 400"));
  std::size_t count = 0;
  for (const std::string& w : run(wide(500))) count += w.size();
  CHECK(count == 3);
}

TEST_CASE("batches of a device are in the bound of their slots, not in that of the training thread") {
  const auto pipeline = [] {
    return numbers(8) | map([](int i) { return numbered(i); }) | batch(2, {.bytes = 1000}) |
           to_device(host_device(), {.slots = 3, .slot_bytes = 64 * KiB});
  };
  const std::size_t bytes = 1000 + 2 * 3 * 64 * KiB;  // of a slot, and of what it is copied from
  CHECK_THROWS_AS(run(pipeline(), {.budget = bytes - 1}), configuration_error);
  auto r = run(pipeline(), {.budget = bytes});
  int batches = 0;
  while (r.next()) ++batches;
  CHECK(batches == 4);
}

TEST_CASE("functions that return ranges open no pipelines") {
  const auto twice = [](int n) { return std::vector<int>{n, n}; };
  auto r = run(numbers(2) | flat_map(twice), {.prefetch = 1, .budget = sizeof(int)});
  int sum = 0;
  for (const int n : r) sum += n;
  CHECK(sum == 2);
}

}  // namespace

namespace {

/// A store of one object: a tar with members of these sizes, whose bytes are made as they are read, and counted.
class made_tar final : public storage {
 public:
  explicit made_tar(const std::vector<std::pair<std::string, std::uint64_t>>& members) {
    for (const auto& [name, size] : members) {
      test::header_block h;
      h.name = name;
      char digits[16];
      std::snprintf(digits, sizeof digits, "%011llo", static_cast<unsigned long long>(size));
      h.size = std::string(digits, 12);
      blocks_.emplace_back(total_, h.text());
      total_ += 512 + (size + 511) / 512 * 512;
    }
    total_ += 1024;  // the end
  }
  bool serves(std::string_view) const noexcept override { return true; }
  task<part> read(shard, std::string, std::uint64_t offset, std::size_t length, slab_pool slabs) const override {
    length = static_cast<std::size_t>(std::min<std::uint64_t>(length, total_ - offset));
    writable_bytes slab = slabs.acquire();
    std::memset(slab.data(), 0, length);
    for (const auto& [at, block] : blocks_) {
      if (at + 512 <= offset || at >= offset + length) continue;
      for (std::size_t i = 0; i < 512; ++i) {
        if (at + i >= offset && at + i < offset + length) slab.data()[at + i - offset] = block[i];
      }
    }
    *read_ += length;
    part p;
    p.total = total_;
    p.data = slab.share(0, length);
    co_return std::move(p);
  }
  std::uint64_t bytes_read() const { return *read_; }

 private:
  std::vector<std::pair<std::uint64_t, std::string>> blocks_;
  std::uint64_t total_ = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> read_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

constexpr fetch_options narrow{.shards = 1, .window = 2 * MiB, .part = MiB};

/// What ends a run of that budget; "" for nothing.
template <class Pipeline>
std::string end_of(Pipeline pipeline, std::size_t budget) {
  try {
    auto r = run(std::move(pipeline), {.prefetch_bytes = MiB, .budget = budget});
    while (r.next()) continue;
    return "";
  } catch (const error& e) {
    return e.what();
  }
}

async_generator<chunk> text_of(std::size_t bytes) {
  auto from = std::make_shared<const shard>("x.txt", bytes + 6);
  chunk first(from, 0, bytes::copy(std::string_view("first\n")), false);
  co_yield give(first);
  for (std::size_t at = 0; at < bytes; at += MiB) {
    chunk c(from, at + 6, bytes::copy(std::string(MiB, 'x')), at + MiB >= bytes);
    co_yield give(c);
  }
}

}  // namespace

TEST_CASE("no member is larger than the budget of its run") {
  const auto store = std::make_shared<made_tar>(
      std::vector<std::pair<std::string, std::uint64_t>>{{"a.bin", 5 * MiB}, {"b.bin", 64 * MiB + 7}});
  const std::string refused =
      "x.tar at byte 5243392, b.bin: the member's 67108871 bytes are more than the 16777216 of the run's memory budget";
  CHECK_THAT(end_of(shards("x.tar") | fetch(store, narrow) | untar_plain(), 16 * MiB), Contains(refused));
  CHECK(store->bytes_read() <= 16 * MiB);  // nothing of it was waited for
  CHECK_THAT(end_of(shards("x.tar") | fetch(store, narrow) | untar(), 16 * MiB), Contains(refused));
  CHECK(store->bytes_read() <= 32 * MiB);
  // The stage's own bound counts as before, and no budget is none.
  CHECK_THAT(end_of(shards("x.tar") | fetch(store, narrow) | untar_plain({.max_member_bytes = MiB}), 16 * MiB),
             Contains("a.bin: the member's 5242880 bytes are more than max_member_bytes"));
  CHECK(end_of(shards("x.tar") | fetch(store, narrow) | untar_plain(), 0) == "");
  CHECK(end_of(shards("x.tar") | fetch(store, narrow) | untar_plain(), 80 * MiB) == "");
}

TEST_CASE("no sample is larger than the budget of its run, however many members it has") {
  std::vector<std::pair<std::string, std::uint64_t>> members;
  for (int i = 0; i < 20; ++i) members.emplace_back("s.part" + std::to_string(i), MiB);
  const auto store = std::make_shared<made_tar>(members);
  CHECK_THAT(end_of(shards("x.tar") | fetch(store, narrow) | untar_plain() | group_samples(), 8 * MiB),
             Contains("s.part8: the sample's first 9437184 bytes are more than the 8388608 of the run's memory "
                      "budget"));
  CHECK(store->bytes_read() <= 16 * MiB);
  CHECK(end_of(shards("x.tar") | fetch(store, narrow) | untar_plain() | group_samples(), 32 * MiB) == "");
}

TEST_CASE("no member of an archive that libarchive unpacks is larger than the budget of its run") {
  for (const char* const format : {"zip", "newc"}) {
    INFO(format);
    const std::string zip = test::pack(format, {{"large.bin", std::string(9 * MiB, '\0')}});
    const auto chunk_of = [](std::string content) -> async_generator<chunk> {
      chunk c(std::make_shared<const shard>("x.zip", content.size()), 0, bytes::copy(content), true);
      co_yield give(c);
    };
    const auto run_of = [&](std::size_t budget) {
      return end_of(chunk_of(zip) | untar({.members = {}, .max_ratio = 1'000'000}), budget);
    };
    CHECK_THAT(run_of(4 * MiB), Contains(" bytes are more than the 4194304 of the run's memory budget"));
    CHECK(run_of(32 * MiB) == "");
  }
}

TEST_CASE("no window of compressed data is larger than the budget of its run, whatever the option allows") {
  // A zstd frame (RFC 8878, 3.1.1.1.2: exponent 18, 256 MiB) with one raw block; the second of two frames; an xz.
  using namespace std::string_literals;
  const std::string frame = "\x28\xb5\x2f\xfd\x00\x90\x19\x00\x00"s + "ab\n"s;
  const std::string small = test::compress("zstd", "text\n");
  const std::string xz = test::compress("xz", "text\n");  // a dictionary of 8 MiB
  const auto chunk_of = [](std::string content) -> async_generator<chunk> {
    chunk c(std::make_shared<const shard>("x.txt", content.size()), 0, bytes::copy(content), true);
    co_yield give(c);
  };
  const auto lines_of = [&](const std::string& content, std::size_t budget) {
    return end_of(chunk_of(content) | lines({.max_window_bytes = 0}), budget);
  };
  const auto beyond = Contains("268435456 bytes of memory, more than the 67108864 of the run's memory budget");
  CHECK_THAT(lines_of(frame, 64 * MiB), beyond);
  CHECK_THAT(lines_of(small + frame, 64 * MiB), beyond);
  CHECK_THAT(end_of(chunk_of(frame) | untar({.max_window_bytes = 0}), 64 * MiB), beyond);
  CHECK_THAT(lines_of(xz, 4 * MiB), Contains("a dictionary of 8388608 bytes of memory, more than the 4194304"));
  CHECK(lines_of(frame, 512 * MiB) == "");
  CHECK(lines_of(frame, 0) == "");
  CHECK(lines_of(xz, 64 * MiB) == "");
}

TEST_CASE("no line is longer than the budget of its run") {
  CHECK_THAT(end_of(text_of(6 * MiB) | lines(), 4 * MiB),
             Contains("x.txt at byte 6: the line's first 5242880 bytes are more than the 4194304 of the run's memory "
                      "budget"));
  CHECK_THAT(end_of(text_of(20 * MiB) | lines(), 64 * MiB), Contains("a line is longer than 16777216 bytes"));
  CHECK(end_of(text_of(6 * MiB) | lines(), 64 * MiB) == "");
  CHECK(end_of(text_of(6 * MiB) | lines(), 0) == "");
}

TEST_CASE("no sample that an index names is larger than the budget of its run") {
  const auto store = std::make_shared<made_tar>(
      std::vector<std::pair<std::string, std::uint64_t>>{{"a.bin", MiB}, {"b.bin", 12 * MiB}, {"c.bin", MiB}});
  testing::virtual_loop loop;
  const shard_index index =
      block_on(loop, index_shard(std::shared_ptr<const storage>(store), shard("x.tar"), "x.tar"));
  const auto epoch = [&] {
    const dataset data(store, std::make_shared<const index_set>(std::vector<shard_index>{index}));
    return epochs(data, {.batch = 1, .ahead = 1, .bytes = MiB});
  };
  CHECK_THAT(end_of(epoch(), 8 * MiB),
             Contains("x.tar at byte ") && Contains(" bytes are more than the 8388608 of the run's memory budget"));
  CHECK(end_of(epoch(), 32 * MiB) == "");
}

TEST_CASE("what is decoded to more than the budget of its run is refused") {
  const auto one = [](std::string extension, std::string content) -> async_generator<sample> {
    sample s("k", origin(std::make_shared<const shard>("x.tar"), 512, 0));
    s.fields.emplace_back(std::move(extension), bytes::copy(content));
    co_yield give(s);
  };
  std::string npy = "\x93NUMPY\x01";
  npy += std::string("\0\x76\0", 3);
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (3145728,), }";
  header.resize(117, ' ');
  npy += header + '\n' + std::string(3 * MiB, '\0');
  const std::string npz = test::pack("zip", {{"x.npy", npy}});
  const auto arrays = [&](std::size_t budget) {
    return end_of(one("npz", npz) | decode_arrays({.limit = 1, .bytes = MiB}), budget);
  };
  CHECK_THAT(arrays(2 * MiB), Contains("x.tar at byte 512, k: the .npz cannot be unpacked"));
  CHECK(arrays(16 * MiB) == "");
  CHECK(arrays(0) == "");
}
