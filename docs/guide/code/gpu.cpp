// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/gpu.md that needs no toolkit: it runs everywhere.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

// begin collate
namespace speech {

class clip {
 public:
  explicit clip(std::int64_t n) : key(std::to_string(n)), waves(400, float(n)), speaker(n) {}
  std::string key;
  std::vector<float> waves;
  std::int64_t speaker;
};

/// How a clip becomes one row of a batch. Found beside the type.
void collate(const clip& c, millrace::sample_writer& out) {
  out.key(c.key);
  out.write("waves", c.waves);
  out.write("speaker", c.speaker);
}

}  // namespace speech
// end collate

namespace mill = millrace;

namespace {

// begin own_device
/// A device of your own; its queue is the calling thread.
class toy_device {
 public:
  struct event_type {};
  void* allocate_pinned(std::size_t n) const { return std::aligned_alloc(256, rounded(n)); }
  void free_pinned(void* memory, std::size_t) const noexcept { std::free(memory); }
  void* allocate_device(std::size_t n) const { return std::aligned_alloc(256, rounded(n)); }
  void free_device(void* memory, std::size_t) const noexcept { std::free(memory); }

  event_type make_event() const { return event_type(); }
  void copy_to_device(void* to, const void* from, std::size_t n) const { std::memcpy(to, from, n); }
  void record(event_type&) const {}                        // after the copies so far
  void record(event_type&, mill::stream_ref) const {}      // after the user's work so far
  void wait(mill::stream_ref, const event_type&) const {}  // the user's stream waits, the host does not
  bool query(const event_type&) const { return true; }
  void synchronize(const event_type&) const {}
  void synchronize(mill::stream_ref) const {}
  std::string name() const { return "toy:0"; }
  friend bool operator==(const toy_device&, const toy_device&) = default;  // all are equal

 private:
  static std::size_t rounded(std::size_t n) { return (n + 255) / 256 * 256; }
};
static_assert(mill::device<toy_device>);
// end own_device

template <class T>
std::vector<T> all_of(mill::stream<T> source) {
  mill::testing::virtual_loop loop;
  return block_on(loop, collect(std::move(source)));
}

}  // namespace

TEST_CASE("the guide's clips become batches", "[guide]") {
  auto clips = mill::iota(std::int64_t(10)) | mill::map([](std::int64_t n) { return speech::clip(n); });
  // begin to_device
  auto batches = std::move(clips)  //
                 | mill::batch(4)  //
                 | mill::to_device(mill::host_device(), {.slots = 3});
  // end to_device
  mill::testing::virtual_loop loop;
  const auto train = [](mill::stream<mill::device_batch> source) -> mill::task<std::size_t> {
    std::size_t rows = 0;
    while (auto b = co_await source.next()) {
      // begin use
      const mill::tensor_view waves = b->field("waves");  // in the device's memory: size() x 400 floats
      const float* first = waves.as<float>();
      const std::int64_t speaker = b->host_field("speaker").as<std::int64_t>()[0];  // as the host sent it
      const std::string& key = b->keys()[0];
      // end use
      CHECK(first[399] == float(speaker));
      CHECK(key == std::to_string(speaker));
      rows += b->size();
    }
    co_return rows;
  };
  CHECK(block_on(loop, train(std::move(batches))) == 10);
}

TEST_CASE("the guide's rows are written in place", "[guide]") {
  auto numbers = mill::iota(std::int64_t(10));
  // begin fill
  const mill::batch_layout layout(4, {{"waves", mill::dtype::f32, {400}}, {"speaker", mill::dtype::i64}});
  const mill::batch_pool pool(layout, mill::host_device());  // memory of that device: for a GPU, page-locked
  const auto decode = [](std::int64_t n, const mill::batch_row& row) {
    for (float& wave : row.values<float>("waves")) wave = float(n);
    row.set("speaker", n);
    row.key(std::to_string(n));
  };
  auto batches = std::move(numbers)                  //
                 | mill::fill_batches(pool, decode)  // on the runtime's pool
                 | mill::to_device(mill::host_device());
  // end fill
  std::size_t rows = 0;
  for (mill::device_batch& b : mill::run(std::move(batches))) rows += b.size();
  CHECK(rows == 10);
}

TEST_CASE("the guide's own device takes batches", "[guide]") {
  auto clips = mill::iota(std::int64_t(4)) | mill::map([](std::int64_t n) { return speech::clip(n); });
  auto batches = std::move(clips) | mill::batch(4) | mill::to_device(toy_device());
  const std::vector<mill::device_batch> all = all_of(std::move(batches));
  REQUIRE(all.size() == 1);
  CHECK(all[0].device() == "toy:0");
}
