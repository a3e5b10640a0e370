// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/collate.hpp>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/data/length_edges.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/device/batches.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

// Batches whose samples have lengths of their own.
namespace {

class utterance {
 public:
  utterance(std::string k, std::vector<float> w, std::vector<std::string> t)
      : words(std::move(t)), waves(std::move(w)) {
    tag.key = std::move(k);
  }
  sample tag;
  std::vector<std::string> words;
  std::vector<float> waves;

  friend epoch_mark mark_of(const utterance& u) noexcept { return u.tag.mark; }
};

void collate(const utterance& u, sample_writer& out) {
  out.key(u.tag.key);
  out.write("loud", static_cast<std::int32_t>(u.waves.size()));
  out.padded("waves", u.waves, {.value = -1, .multiple = 4, .mask = true});
  out.ragged("again", u.waves);
  out.ragged("words", u.words);
  out.ragged("key", u.tag.key);
}

std::vector<utterance> three() {
  std::vector<utterance> v;
  v.emplace_back("one", std::vector<float>{1, 2, 3}, std::vector<std::string>{"a", "bcd"});
  v.emplace_back("", std::vector<float>{}, std::vector<std::string>{});
  v.emplace_back("three", std::vector<float>{4, 5, 6, 7, 8}, std::vector<std::string>{"", "ef", "g"});
  return v;
}

template <class T>
std::vector<T> values(const host_batch& b, const char* name) {
  const std::span<T> all = b.field(name).template values<T>();
  return std::vector<T>(all.begin(), all.end());
}
std::string text(const host_batch& b, const char* name) {
  const std::vector<char> all = values<char>(b, name);
  return std::string(all.begin(), all.end());
}
using numbers = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("samples are padded to the longest of their batch", "[lengths]") {
  const host_batch b = collate_batch(three());
  REQUIRE(b.size() == 3);
  CHECK(b.field("waves").dims().text() == "3x8");
  CHECK(values<float>(b, "waves") ==
        std::vector<float>{1, 2, 3, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 4, 5, 6, 7, 8, -1, -1, -1});
  CHECK(values<std::int64_t>(b, "waves_lengths") == numbers{3, 0, 5});
  CHECK(b.field("waves_mask").dims().text() == "3x8");
  CHECK(values<std::uint8_t>(b, "waves_mask") ==
        std::vector<std::uint8_t>{1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0});
  CHECK(values<std::int32_t>(b, "loud") == std::vector<std::int32_t>{3, 0, 5});
  CHECK(b.keys()[2] == "three");
}

TEST_CASE("samples lie one after the other, with offsets", "[lengths]") {
  const host_batch b = collate_batch(three());
  CHECK(values<float>(b, "again") == std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(values<std::int64_t>(b, "again_offsets") == numbers{0, 3, 3, 8});
  CHECK(text(b, "key") == "onethree");
  CHECK(values<std::int64_t>(b, "key_offsets") == numbers{0, 3, 3, 8});
}

TEST_CASE("a list of texts has offsets of lists and of bytes", "[lengths]") {
  const host_batch b = collate_batch(three());
  CHECK(text(b, "words") == "abcdefg");
  CHECK(values<std::int64_t>(b, "words_offsets") == numbers{0, 2, 2, 5});
  CHECK(values<std::int64_t>(b, "words_item_offsets") == numbers{0, 1, 4, 4, 6, 7});
}

TEST_CASE("a field has strides", "[lengths]") {
  const host_batch b = collate_batch(three());
  CHECK(b.field("waves").strides().text() == "8x1");
  CHECK(tensor_view(nullptr, dtype::u8, {2, 3, 4}).strides().text() == "12x4x1");
  CHECK(tensor_view(nullptr, dtype::u8, shape()).strides().rank() == 0);
}

TEST_CASE("a batch of empty samples is one", "[lengths]") {
  std::vector<utterance> v;
  v.emplace_back("", std::vector<float>{}, std::vector<std::string>{});
  const host_batch b = collate_batch(v);
  CHECK(b.field("waves").dims().text() == "1x0");
  CHECK(b.field("again").dims().text() == "0");
  CHECK(values<std::int64_t>(b, "words_offsets") == numbers{0, 0});
  CHECK(values<std::int64_t>(b, "words_item_offsets") == numbers{0});
}

TEST_CASE("what fills an epoch up has length 0, padding and weight 0", "[lengths]") {
  std::vector<utterance> v = three();
  v[0].tag.mark.known = v[0].tag.mark.padding = true;
  const host_batch b = collate_batch(v);
  REQUIRE(b.size() == 3);
  CHECK(values<std::int64_t>(b, "waves_lengths") == numbers{0, 0, 5});
  CHECK(b.field("waves").values<float>()[0] == -1);
  CHECK(b.field("waves_mask").values<std::uint8_t>()[0] == 0);
  CHECK(values<std::int64_t>(b, "again_offsets") == numbers{0, 0, 0, 5});
  CHECK(values<std::int64_t>(b, "words_offsets") == numbers{0, 0, 0, 3});
  CHECK(b.weights()[0] == 0);
  CHECK(b.weights()[2] == 1);
}

TEST_CASE("only the length may differ, the rest of a shape may not", "[lengths]") {
  const std::vector<int> items{1, 2};
  const std::vector<float> data(12, 1.5f);
  const auto lay_out = [&](int n, sample_writer& out) { out.padded("mel", data.data(), {n, 3}, {.edges = {5, 9}}); };
  const host_batch b = collate_batch(items, lay_out);
  CHECK(b.field("mel").dims().text() == "2x5x3");
  CHECK(values<std::int64_t>(b, "mel_lengths") == numbers{1, 2});
  CHECK(b.field("mel").values<float>()[15 + 6] == 0);
  const auto odd = [&](int n, sample_writer& out) {
    out.key("k" + std::to_string(n));
    out.ragged("mel", data.data(), {2, n});
  };
  CHECK_THROWS_WITH(collate_batch(items, odd),
                    Contains("k2: field mel f32 ragged 2 where the first sample had mel f32 ragged 1"));
}

TEST_CASE("values of every type are padding, or are refused", "[lengths]") {
  const auto padded_with = [](dtype type, double value) {
    std::vector<std::uint64_t> there(4, 0);
    const auto lay_out = [&](int n, sample_writer& out) {
      out.padded("x", tensor_view(there.data(), type, {n}), {.value = value});
    };
    const host_batch b = collate_batch(std::vector<int>{0, 1}, lay_out);
    return std::vector<std::uint8_t>(static_cast<std::uint8_t*>(b.data()),
                                     static_cast<std::uint8_t*>(b.data()) + size_of(type));
  };
  using bytes_of = std::vector<std::uint8_t>;
  CHECK(padded_with(dtype::i64, -100) == bytes_of{0x9c, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff});
  CHECK(padded_with(dtype::i8, -1) == bytes_of{0xff});
  CHECK(padded_with(dtype::u16, 65535) == bytes_of{0xff, 0xff});
  CHECK(padded_with(dtype::f16, 1) == bytes_of{0x00, 0x3c});
  CHECK(padded_with(dtype::bf16, 1) == bytes_of{0x80, 0x3f});
  CHECK(padded_with(dtype::f32, 0.5) == bytes_of{0, 0, 0, 0x3f});
  CHECK(padded_with(dtype::f64, 0.5) == bytes_of{0, 0, 0, 0, 0, 0, 0xe0, 0x3f});
  CHECK_THROWS_WITH(padded_with(dtype::u8, 256), Contains("field x is padded with 256.0") && Contains("no u8"));
  CHECK_THROWS_AS(padded_with(dtype::u8, -1), configuration_error);
  CHECK_THROWS_AS(padded_with(dtype::i32, 0.5), configuration_error);
  CHECK_THROWS_AS(padded_with(dtype::u64, 18446744073709551616.0), configuration_error);
}

TEST_CASE("a function that writes more than it measured gets an error", "[lengths]") {
  for (const int form : {0, 1, 2}) {
    int calls = 0;
    const std::vector<float> data(64);
    const auto lay_out = [&](int, sample_writer& out) {
      const std::span<const float> some(data.data(), static_cast<std::size_t>(++calls * 8));
      if (form == 0) out.padded("x", some);
      if (form == 1) out.ragged("x", some);
      if (form == 2) out.ragged("x", std::vector<std::span<const float>>{some});
    };
    CHECK_THROWS_WITH(collate_batch(std::vector<int>{1}, lay_out),
                      Contains("field x is longer than when it was measured"));
  }
  const auto number = [](int n, sample_writer& out) { out.ragged("n", &n, shape()); };
  CHECK_THROWS_WITH(collate_batch(std::vector<int>{1}, number), Contains("field n is a number and has no length"));
}

TEST_CASE("edges of lengths ascend", "[lengths]") {
  constexpr length_edges edges{4, 8};
  static_assert(edges.bucket_of(0) == 0 && edges.bucket_of(4) == 0 && edges.bucket_of(5) == 1);
  static_assert(edges.bucket_of(8) == 1 && edges.bucket_of(9) == 2 && length_edges().bucket_of(9) == 0);
  CHECK_THROWS_AS((length_edges{4, 4}), configuration_error);
  CHECK_THROWS_AS((length_edges{0, 4}), configuration_error);
  const std::vector<std::size_t> many(33, 1);
  CHECK_THROWS_AS(length_edges(std::span<const std::size_t>(many)), configuration_error);
  CHECK(detail::padded_length(7, {.multiple = 4}) == 8);
  CHECK(detail::padded_length(7, {.multiple = 5, .edges = {4, 8}}) == 10);
  CHECK(detail::padded_length(9, {.edges = {4, 8}}) == 9);
  CHECK(detail::padded_length(9, {.multiple = 0}) == 9);
}

TEST_CASE("each batch goes to the device in a layout of its own, by one copy", "[lengths][to_device]") {
  const late_device device;
  device.control().after = 0;
  {
    testing::virtual_loop loop;
    const auto source = [](int n) -> async_generator<utterance> {
      for (int i = 0; i < n; ++i) {
        utterance u("k" + std::to_string(i), std::vector<float>(static_cast<std::size_t>(100 * (n - i)), 1.0f),
                    {"word"});
        co_yield give(u);
      }
    };
    auto stream = source(6) | batch(2) | to_device(device, {.slots = 2});
    for (int i = 0; i < 3; ++i) {
      std::deque<device_batch> one;
      block_on(loop, take(stream, one, 1));
      REQUIRE(one.size() == 1);
      device_batch& b = one[0];
      b.synchronize();
      const std::int64_t longest = 600 - 200 * i;
      CHECK(b.field("waves").dims()[1] == longest);
      CHECK(b.host_field("again_offsets").values<std::int64_t>()[2] == 2 * longest - 100);
      CHECK(std::string(b.host_field("words").as<char>(), 8) == "wordword");
      CHECK(b.field("waves").as<float>()[longest - 1] == 1);
      CHECK(b.field("waves").as<float>()[2 * longest - 1] == -1);
    }
    CHECK(device.control().copies == 3);
    CHECK(device.control().unpinned == 0);
  }
  check_all_returned(device);
}
