// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The memory that unpacking needs beside its output: windows of zstd, dictionaries of xz.

#include <millrace/shards/detail/unpack_ahead.hpp>

#include <malloc.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/tar/detail/unpacker.hpp>
#include <millrace/tar/detail/window.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/packers.hpp"

using namespace millrace;
using namespace std::string_literals;
using Catch::Matchers::Contains;

namespace {

/// `blocks` times 128 KiB, in a frame (RFC 8878, 3.1.1) with a window of 2^log bytes.
std::string zstd_frame(int log, std::size_t blocks) {
  std::string frame = "\x28\xb5\x2f\xfd\0"s + static_cast<char>((log - 10) << 3);
  for (std::size_t i = 1; i <= blocks; ++i) {
    const std::uint32_t head = std::uint32_t(128 * KiB) << 3 | 1 << 1 | (i == blocks ? 1 : 0);  // one byte, repeated
    for (int byte = 0; byte < 3; ++byte) frame += static_cast<char>(head >> (8 * byte));
    frame += 'z';
  }
  return frame;
}

async_generator<chunk> pieces(std::vector<std::string> objects) {
  for (std::size_t n = 0; n < objects.size(); ++n) {
    auto from = std::make_shared<const shard>("o" + std::to_string(n), objects[n].size());
    chunk c(from, 0, bytes::copy(objects[n]), true);
    co_yield give(c);
  }
}
tar::format any_format(std::string_view head, const shard&) { return tar::detect(head); }

async_generator<std::size_t> unpacked_sizes(std::vector<std::string> objects, unpack_options how) {
  tar::archive_options limits;
  limits.max_ratio = 0;
  auto in = detail::unpack_objects(pieces(std::move(objects)), &any_format, tar::detect_bytes, limits,
                                   detail::unpack_place(how));
  while (auto c = co_await in.next()) {
    const std::size_t size = c->data.size();
    c.reset();
    co_yield size;
  }
}

struct unpacking {
  std::size_t bytes = 0;
  std::size_t most_memory = 0;  ///< that malloc() had mapped for large blocks; slabs are not among them
  std::string error;
};

unpacking unpacked(const std::vector<std::string>& objects, std::size_t budget) {
  cpu_pool pool(4);
  runtime rt;
  unpacking out;
  const std::size_t before = ::mallinfo2().hblkhd;
  try {
    auto run = rt.run(stream<std::size_t>(unpacked_sizes(objects, {.on = pool, .bytes = 4 * MiB})),
                      {.prefetch = 1, .budget = budget});
    for (const std::size_t size : run) {
      out.bytes += size;
      out.most_memory = std::max(out.most_memory, ::mallinfo2().hblkhd - before);
    }
  } catch (const error& e) {
    out.error = e.what();
  }
  return out;
}

std::uint32_t crc_of(std::string_view text) {
  return static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const ::Bytef*>(text.data()), static_cast<::uInt>(text.size())));
}
std::string four_bytes(std::uint32_t n) {
  std::string out;
  for (int byte = 0; byte < 4; ++byte) out += static_cast<char>(n >> (8 * byte));
  return out;
}

/// The xz file format, section 3: one stream of blocks, each of one LZMA2 chunk that is not compressed.
std::string xz_stream(const std::vector<std::pair<std::string, char>>& texts_with_dictionary_bits, bool with_sizes) {
  const auto number = [](std::size_t n) {
    std::string out;
    for (; n >= 0x80; n >>= 7) out += static_cast<char>(n | 0x80);
    return out + static_cast<char>(n);
  };
  std::string out = "\xfd"s + "7zXZ\0"s + "\0\1"s;
  out += four_bytes(crc_of("\0\1"s));
  std::string index = "\0"s + number(texts_with_dictionary_bits.size());
  for (const auto& [text, bits] : texts_with_dictionary_bits) {
    std::string data;
    for (std::size_t at = 0; at < text.size(); at += 60000) {
      const std::string piece = text.substr(at, 60000);
      data += at == 0 ? '\1' : '\2';
      data += static_cast<char>((piece.size() - 1) >> 8);
      data += static_cast<char>((piece.size() - 1) & 0xff);
      data += piece;
    }
    data += '\0';
    std::string header = with_sizes ? "\xc0"s + number(data.size()) + number(text.size()) : "\0"s;
    header += "\x21\1"s + bits;
    while ((header.size() + 1) % 4 != 0) header += '\0';
    header.insert(0, 1, static_cast<char>((header.size() + 1) / 4));
    header += four_bytes(crc_of(header));
    out += header + data + std::string(-data.size() & 3, '\0') + four_bytes(crc_of(text));
    index += number(header.size() + data.size() + 4) + number(text.size());
  }
  while (index.size() % 4 != 0) index += '\0';
  index += four_bytes(crc_of(index));
  const std::string tail = four_bytes(static_cast<std::uint32_t>(index.size() / 4 - 1)) + "\0\1"s;
  return out + index + four_bytes(crc_of(tail)) + tail + "YZ";
}

std::string lines_of(const std::string& object, std::uint64_t most_window, std::size_t piece = 1 << 20) {
  testing::virtual_loop loop;
  std::string told;
  const auto chunks = [&]() -> async_generator<chunk> {
    auto from = std::make_shared<const shard>("x");
    for (std::size_t at = 0; at < object.size(); at += piece) {
      const std::string_view text = std::string_view(object).substr(at, piece);
      chunk c(from, at, bytes::copy(text), at + text.size() == object.size());
      co_yield give(c);
    }
  };
  const auto collect = [&told](stream<line_batch> in) -> task<void> {
    while (std::optional<line_batch> b = co_await in.next()) {
      for (const std::string_view l : *b) told += std::string(l) + '\n';
    }
  };
  try {
    block_on(loop, collect(chunks() | lines({.max_window_bytes = most_window})));
  } catch (const error& e) {
    return e.what();
  }
  return told;
}

std::string some_text(std::size_t lines, char letter) {
  std::string text;
  for (std::size_t i = 0; i < lines; ++i) text += std::string(i % 70, letter) + std::to_string(i) + '\n';
  return text;
}

}  // namespace

TEST_CASE("objects that are unpacked side by side have windows within the run's budget together", "[windows]") {
  const std::vector<std::string> objects(4, zstd_frame(26, 64));  // windows of 64 MiB, 8 MiB of output
  const unpacking free = unpacked(objects, 0);
  CHECK(free.error.empty());
  CHECK(free.bytes == 4 * 8 * MiB);
  // Two at a time.
  const unpacking bound = unpacked(objects, 150 * MiB);
  CHECK(bound.error.empty());
  CHECK(bound.bytes == 4 * 8 * MiB);
  CHECK(bound.most_memory < 150 * MiB);
  // And one at a time.
  const unpacking tight = unpacked(objects, 66 * MiB);
  CHECK(tight.error.empty());
  CHECK(tight.bytes == 4 * 8 * MiB);
  CHECK(tight.most_memory < 70 * MiB);
  CHECK_THAT(unpacked(objects, 60 * MiB).error,
             Contains("window of 67108864 bytes") && Contains("the 62914560 of the run's memory budget"));
}

TEST_CASE("a window that grows within an object is within the budget with the others, or an error", "[windows]") {
  const std::vector<std::string> objects(4, zstd_frame(20, 1) + zstd_frame(26, 64));
  const unpacking bound = unpacked(objects, 150 * MiB);
  CHECK(bound.most_memory < 150 * MiB);
  if (bound.error.empty()) {
    CHECK(bound.bytes == 4 * (8 * MiB + 128 * KiB));
  } else {
    CHECK_THAT(bound.error, Contains("window of 67108864 bytes") && Contains("157286400"));
  }
}

TEST_CASE("a window that grows beyond what the others leave is an error that says how much they have", "[windows]") {
  const auto shared = std::make_shared<tar::detail::window_budget>(100 * MiB);
  tar::archive_options limits;
  limits.members.budget_bytes = 100 * MiB;
  limits.max_ratio = 0;
  using event = tar::detail::unpacker::event;
  const auto unpack = [&](const std::string& object) {
    auto u = std::make_unique<tar::detail::unpacker>(tar::format::zstd, limits, slab_pool(MiB), object, shared);
    u->feed(bytes::copy(object));
    u->end_input();
    return u;
  };
  const auto end_of = [](tar::detail::unpacker& u) {
    event last = event::data;
    while (last == event::data) {
      last = u.run();
      u.take_data();
    }
    return last;
  };
  const std::string growing = zstd_frame(20, 1) + zstd_frame(26, 1);
  auto first = unpack(zstd_frame(26, 64));
  CHECK(first->run() == event::data);
  CHECK(shared->taken() == 64 * MiB);
  auto second = unpack(growing);
  CHECK(end_of(*second) == event::failed);
  CHECK(second->reason() ==
        "the zstd data needs a window of 67108864 bytes of memory, and with the 67108864 of the objects unpacked "
        "beside it that is more than the 104857600 of the run's memory budget: unpack fewer objects at once "
        "(unpack_options::objects)");
  CHECK(second->offset() == 128 * KiB);
  auto waiting = unpack(zstd_frame(26, 1));
  CHECK_FALSE(waiting->take_window());
  first.reset();
  second.reset();
  CHECK(shared->taken() == 0);
  CHECK(waiting->take_window());
  CHECK(end_of(*waiting) == event::done);
  waiting.reset();
  CHECK(end_of(*unpack(growing)) == event::done);
  // One that can never have room is begun, to be refused.
  auto never = unpack(zstd_frame(28, 1));
  CHECK(never->take_window());
  CHECK(end_of(*never) == event::failed);
}

TEST_CASE("the dictionary of every block of xz is judged, of every stream", "[windows]") {
  const std::string first = some_text(3000, 'a');
  const std::string second = some_text(4000, 'b');
  const char small = 0;   // 4 KiB
  const char large = 24;  // 16 MiB
  const std::string refusal = "dictionary of 16777216 bytes";
  for (const bool sizes : {false, true}) {
    for (const std::size_t piece : {std::size_t(1), std::size_t(7), std::size_t(1000), std::size_t(MiB)}) {
      INFO("with sizes: " << sizes << ", pieces of " << piece);
      const std::string plain = xz_stream({{first, small}, {second, small}}, sizes);
      CHECK((lines_of(plain, MiB, piece) == first + second));
      const std::string block = xz_stream({{first, small}, {second, large}}, sizes);
      CHECK((lines_of(block, 16 * MiB, piece) == first + second));
      CHECK_THAT(lines_of(block, MiB, piece).substr(0, 200),
                 Contains(refusal) && Contains("max_window_bytes (1048576)"));
      const std::string streams = plain + std::string(8, '\0') + block;
      CHECK((lines_of(streams, 0, piece) == first + second + first + second));
      CHECK_THAT(lines_of(streams, MiB, piece).substr(0, 200), Contains(refusal));
    }
  }
  // As a real encoder writes it, compressed.
  const std::string real = test::compress("xz", first + second);
  const std::string two = real + xz_stream({{second, large}}, true);
  CHECK((lines_of(two, 0) == first + second + second));
  CHECK_THAT(lines_of(two, 8 * MiB).substr(0, 200), Contains(refusal));
  CHECK_THAT(lines_of(real + real + two, 8 * MiB, 100).substr(0, 200), Contains(refusal));
}
