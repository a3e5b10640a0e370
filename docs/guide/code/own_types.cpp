// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/own_types.md.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/item.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/device/batch_rows.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

// begin clip
namespace recordings {

/// An item of a pipeline: a recording as it was read, and who speaks.
class clip {
 public:
  millrace::origin from;      // errors name it: the shard and the byte,
  std::string key;            // and the key
  millrace::bytes wave;       // a slice of the slab that it was read into
  millrace::epoch_mark mark;  // what epochs() has set on the sample
  std::int64_t speaker = 0;

  clip() = default;

  friend std::size_t byte_size(const clip& c) noexcept { return c.wave.size(); }
  friend const millrace::bytes* slice_of(const clip& c) noexcept { return &c.wave; }
  friend clip compact_slices(clip c) {
    c.wave = c.wave.compact();
    return c;
  }
  friend millrace::epoch_mark mark_of(const clip& c) noexcept { return c.mark; }
  friend void collate(const clip& c, millrace::sample_writer& out) {
    out.key(c.key);
    out.write("speaker", c.speaker);
    out.ragged("wave", std::span(reinterpret_cast<const std::uint8_t*>(c.wave.data()), c.wave.size()));
  }
};

}  // namespace recordings
// end clip

// begin place
namespace recordings {

/// What is made of a clip has its place, its mark and its size.
class transcript {
 public:
  clip of;
  std::string text;

  transcript() = default;
  explicit transcript(clip c) : of(std::move(c)) {}

  friend const clip& place_of(const transcript& t) noexcept { return t.of; }
  friend millrace::epoch_mark mark_of(const transcript& t) noexcept { return mark_of(t.of); }
  friend void set_mark(transcript& t, const millrace::epoch_mark& mark) noexcept { t.of.mark = mark; }
  friend std::size_t byte_size(const transcript& t) noexcept { return byte_size(t.of) + t.text.size(); }
};

}  // namespace recordings
// end place

// begin count
namespace recordings {

/// A batch of your own.
class minute {
 public:
  std::vector<clip> clips;

  friend std::size_t samples_in_batch(const minute& m) noexcept { return m.clips.size(); }
  friend std::size_t byte_size(const minute& m) noexcept {
    std::size_t all = 0;
    for (const clip& c : m.clips) all += byte_size(c);
    return all;
  }
};

}  // namespace recordings
// end count

// begin row
namespace recordings {

/// An item that writes itself into a row of a batch.
class loudness {
 public:
  explicit loudness(clip c) : of(std::move(c)) {}
  clip of;

  millrace::batch_layout layout(std::size_t samples) const {
    return millrace::batch_layout(samples, {{"loudest", millrace::dtype::u8}});
  }
  void write_to(const millrace::batch_row& row) const {
    std::uint8_t most = 0;
    for (const char c : of.wave.view()) most = std::uint8_t(c) > most ? std::uint8_t(c) : most;
    row.set("loudest", most);
    row.key(of.key);
  }
};

}  // namespace recordings
// end row

// begin function
namespace recordings {

/// A function for map_concurrent() that leaves no gap in an epoch.
class recogniser {
 public:
  transcript operator()(clip c) const {
    transcript made(std::move(c));
    if (made.of.wave.empty()) throw millrace::decode_error("the recording is empty");
    made.text = std::string(made.of.wave.view());
    return made;
  }
  transcript in_place_of(const millrace::epoch_mark& mark) const {
    clip hole;
    hole.mark = mark;
    return transcript(std::move(hole));
  }
};

}  // namespace recordings
// end function

namespace mill = millrace;

namespace {

recordings::clip clip_of(int n, std::string_view wave) {
  recordings::clip c;
  const auto shard = std::make_shared<const mill::shard>("file:///clips.tar");
  c.from = mill::origin(shard, std::uint64_t(512 * n), std::uint64_t(n));
  c.key = std::to_string(n);
  c.wave = mill::bytes::copy(wave);
  c.speaker = n;
  c.mark.known = true;
  c.mark.next = std::uint64_t(n) + 1;
  c.mark.position = std::uint64_t(n);
  c.mark.whole = true;
  return c;
}
std::vector<recordings::clip> three_clips() { return {clip_of(0, "hello"), clip_of(1, ""), clip_of(2, "you")}; }

}  // namespace

TEST_CASE("the page on own types: the stages know a type's size, mark and rows") {
  using recordings::clip;
  static_assert(mill::detail::has_byte_size<clip>);
  static_assert(mill::detail::has_compact_slices<clip>);
  static_assert(mill::detail::has_slice<clip>);
  static_assert(mill::detail::has_mark<clip>);
  static_assert(mill::detail::has_place<clip>);
  static_assert(mill::detail::has_place<recordings::transcript>);
  static_assert(mill::detail::has_samples_in_batch<recordings::minute>);
  static_assert(mill::row_item<recordings::loudness>);
  static_assert(mill::detail::has_in_place_of<recordings::recogniser, recordings::transcript>);

  mill::testing::virtual_loop loop;
  auto clips = mill::from_range(three_clips());
  // begin use
  auto batches = std::move(clips)                                       //
                 | mill::buffer({.items = 2, .bytes = 64 * mill::KiB})  // counted by byte_size()
                 | mill::batch(3)                                       // has the mark of its last clip
                 | mill::to_device(mill::host_device());                // laid out by collate()
  // end use
  const auto first = [&]() -> mill::task<void> {
    std::optional<mill::device_batch> b = co_await batches.next();
    const bool there = b.has_value();
    REQUIRE(there);
    CHECK(b->keys()[2] == "2");
    CHECK(b->mark().position == 2);
    CHECK(b->host_field("wave_offsets").values<std::int64_t>()[3] == 8);
  };
  mill::block_on(loop, first());
}

TEST_CASE("the page on own types: an error names the item") {
  mill::testing::virtual_loop loop;
  auto texts = mill::from_range(three_clips()) | mill::map(recordings::recogniser());
  const auto all = [&]() -> mill::task<void> {
    while (std::optional<recordings::transcript> t = co_await texts.next()) CHECK(t->text == "hello");
  };
  try {
    mill::block_on(loop, all());
    FAIL("nothing was thrown");
  } catch (const mill::decode_error& e) {
    CHECK(std::string(e.what()) == "file:///clips.tar at byte 512, 1: the recording is empty");
  }
}

TEST_CASE("the page on own types: a clip that fails leaves no gap") {
  mill::testing::virtual_loop loop;
  mill::cpu_pool cores(1);
  const mill::failure_policy skip{.then = mill::on_failure::skip, .report = false};
  auto texts = mill::from_range(three_clips())  //
               | mill::map_concurrent(recordings::recogniser(), {.on = &cores, .failures = skip});
  const auto all = [&]() -> mill::task<std::string> {
    std::string seen;
    while (std::optional<recordings::transcript> t = co_await texts.next()) {
      seen += t->of.mark.padding ? "-" : t->text;
    }
    co_return seen;
  };
  CHECK(mill::block_on(loop, all()) == "hello-you");
}

TEST_CASE("the page on own types: items that write their rows, and batches of your own") {
  std::int64_t loudest = 0;
  const auto measured = [](recordings::clip c) { return recordings::loudness(std::move(c)); };
  for (mill::host_batch& b : mill::run(mill::from_range(three_clips()) | mill::map(measured) | mill::batch(3))) {
    loudest = b.field("loudest").values<std::uint8_t>()[2];
  }
  CHECK(loudest == 'y');

  const auto whole = [](std::vector<recordings::clip> clips) {
    recordings::minute m;
    m.clips = std::move(clips);
    return m;
  };
  auto minutes = mill::run(mill::from_range(three_clips()) | mill::batch(2) | mill::map(whole));
  while (minutes.next()) {
  }
  CHECK(minutes.stats().samples == 3);
}
