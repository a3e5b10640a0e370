// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Objects that their store sends with a Content-Encoding: what is unpacked by it, and what is refused by its name.

#include <millrace/shards/untar.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/resident_storage.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/tar/packers.hpp"

using namespace millrace;
using namespace std::string_literals;
using Catch::Matchers::Contains;

namespace {

/// One object, mem:x, with a Content-Encoding.
class encoded_store final : public storage {
 public:
  encoded_store(std::string bytes, std::string encoding) : bytes_(std::move(bytes)), encoding_(std::move(encoding)) {}
  bool serves(std::string_view) const noexcept override { return true; }
  task<part> read(shard, std::string, std::uint64_t offset, std::size_t length, slab_pool) const override {
    ++reads;
    part p;
    p.etag = "\"e\"";
    p.encoding = encoding_;
    p.total = bytes_.size();
    p.data = bytes::copy(std::string_view(bytes_).substr(std::min<std::size_t>(offset, bytes_.size()), length));
    co_return std::move(p);
  }
  mutable int reads = 0;

 private:
  const std::string bytes_;
  const std::string encoding_;
};

std::shared_ptr<const storage> store_of(std::string bytes, std::string encoding) {
  return std::make_shared<const encoded_store>(std::move(bytes), std::move(encoding));
}
stream<shard> one_object() { return from_range(std::vector<shard>{shard("mem:x")}); }

/// The names of the items, or the error.
template <class Item>
std::string outcome(stream<Item> in) {
  testing::virtual_loop loop;
  std::string names;
  const auto collect = [&names](stream<Item> items) -> task<void> {
    while (std::optional<Item> i = co_await items.next()) {
      if constexpr (std::is_same_v<Item, member>) names += i->entry.name + '|';
      if constexpr (std::is_same_v<Item, sample>) names += i->key + '|';
      if constexpr (std::is_same_v<Item, line_batch>) {
        for (const std::string_view l : *i) names += std::string(l) + '|';
      }
    }
  };
  try {
    block_on(loop, collect(std::move(in)));
  } catch (const error& e) {
    return e.what();
  }
  return names;
}
std::string untarred(const std::string& bytes, const std::string& encoding) {
  return outcome(one_object() | fetch(store_of(bytes, encoding)) | untar());
}
std::string untarred_plain(const std::string& bytes, const std::string& encoding) {
  return outcome(one_object() | fetch(store_of(bytes, encoding)) | untar_plain());
}
std::string trained(const std::string& bytes, const std::string& encoding, bool with_index) {
  test::temporary_folder at;
  const dataset data(store_of(bytes, encoding), one_object(), {.index = with_index ? at.file("x.index") : ""});
  return outcome(epochs(data, {.batch = 1}));
}
std::string indexed(const std::string& bytes, const std::string& encoding, index_way way) {
  testing::virtual_loop loop;
  try {
    const shard_index made =
        block_on(loop, index_shard(store_of(bytes, encoding), shard("mem:x"), "x", tar_shards({.way = way})));
    return std::to_string(made.samples());
  } catch (const error& e) {
    return e.what();
  }
}

std::string some_tar() {
  std::string content;
  tar::writer out([&](std::string_view piece) { content += piece; });
  out.add("a.txt", "one");
  out.add("b.txt", std::string(2000, 'b'));
  out.finish();
  return content;
}
/// By stored blocks of RFC 1951.
std::string raw_deflate(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t n = std::min<std::size_t>(text.size(), 60000);
    out += static_cast<char>(n == text.size());
    for (const std::size_t number : {n, ~n}) {
      out += static_cast<char>(number & 0xff);
      out += static_cast<char>(number >> 8 & 0xff);
    }
    out += text.substr(0, n);
    text.remove_prefix(n);
  }
  return out;
}
/// No brotli, but like it nothing that a reader of archives knows.
std::string unknown_bytes() {
  std::string text;
  for (std::uint64_t i = 0; i < 5000; ++i) text += static_cast<char>((i * 2654435761u >> 13) & 0xff);
  return "\x1b\x07"s + text;
}

}  // namespace

TEST_CASE("untar() unpacks what a Content-Encoding says, or refuses it by that name", "[encoding]") {
  const std::string tar = some_tar();
  for (const char* encoding : {"gzip", "x-gzip", "zstd", "xz", "gzip, aws-chunked"}) {
    INFO(encoding);
    const std::string filter = std::string_view(encoding) == "xz"     ? "xz"
                               : std::string_view(encoding) == "zstd" ? "zstd"
                                                                      : "gzip";
    CHECK(untarred(test::compress(filter, tar), encoding) == "a.txt|b.txt|");
  }
  CHECK(untarred(raw_deflate(tar), "deflate") == "a.txt|b.txt|");
  CHECK(untarred(raw_deflate(tar), "Deflate, aws-chunked") == "a.txt|b.txt|");
  for (const char* encoding : {"br", "compress", "dcb", "zstd", "gzip", "deflate, gzip", "gzip, br"}) {
    CHECK_THAT(untarred(unknown_bytes(), encoding),
               Contains("mem:x at byte 0: its Content-Encoding is "s + encoding + ": "));
  }
  CHECK_THAT(untarred(test::compress("gzip", unknown_bytes()), "br, gzip"), Contains("Content-Encoding is br, gzip"));
  CHECK_THAT(untarred(unknown_bytes(), "identity"), Contains("not an archive") && !Contains("Encoding"));
  CHECK_THAT(untarred(unknown_bytes(), "aws-chunked"), Contains("not an archive") && !Contains("Encoding"));
}

TEST_CASE("a plain tar is read, whatever Content-Encoding its store says, and that is logged once", "[encoding]") {
  const std::string tar = some_tar();
  test::captured_stderr log(test::captured_stderr::into::pipe);
  for (int times = 0; times < 2; ++times) {
    CHECK(untarred(tar, "br") == "a.txt|b.txt|");
    CHECK(untarred_plain(tar, "gzip") == "a.txt|b.txt|");
    CHECK(trained(tar, "br", false).size() == 4);
    CHECK(trained(tar, "br", true).size() == 4);
    CHECK(indexed(tar, "br", index_way::stream) == "2");
    CHECK(indexed(tar, "br", index_way::headers) == "2");
  }
  const std::string text = log.text();
  const std::size_t at = text.find("its Content-Encoding is br, but its bytes are a tar: read as they are");
  REQUIRE(at != std::string::npos);
  CHECK(text.find("Content-Encoding", at + 10) == std::string::npos);
}

TEST_CASE("what reads plain tars alone refuses what is encoded by the name of its Content-Encoding", "[encoding]") {
  const std::string packed = test::compress("gzip", some_tar());
  for (const std::string& bytes : {packed, unknown_bytes()}) {
    for (const char* encoding : {"gzip", "br"}) {
      const auto names_it = Contains("mem:x at byte 0: its Content-Encoding is "s + encoding + ": ");
      CHECK_THAT(untarred_plain(bytes, encoding), names_it);
      CHECK_THAT(trained(bytes, encoding, false), names_it);
      CHECK_THAT(trained(bytes, encoding, true), names_it);
      for (const index_way way : {index_way::cheaper, index_way::stream, index_way::headers}) {
        CHECK_THAT(indexed(bytes, encoding, way), names_it);
      }
    }
  }
  // It is no damage that another reading could mend.
  const auto store = std::make_shared<const encoded_store>(packed, "gzip");
  testing::virtual_loop loop;
  CHECK_THROWS_AS(block_on(loop, index_shard(std::shared_ptr<const storage>(store), shard("mem:x"), "x")),
                  archive_error);
  CHECK(store->reads == 1);
}

TEST_CASE("lines() over objects in memory is lines() over the store", "[encoding][resident]") {
  struct {
    std::string bytes;
    std::string encoding;
    std::string expected;
  } const objects[] = {
      {raw_deflate("one\ntwo\n"), "deflate", "one|two|"},
      {unknown_bytes(), "br", "mem:x at byte 0: its Content-Encoding is br: it is not unpacked"},
      {test::compress("gzip", "one\n"), "br, gzip", "Content-Encoding is br, gzip: one layer"},
      {"one\n", "identity", "one|"},
  };
  for (const auto& o : objects) {
    const auto kept = resident(store_of(o.bytes, o.encoding), {.bytes = 1 << 20});
    for (int epoch = 0; epoch < 3; ++epoch) {
      INFO(o.encoding << ", epoch " << epoch);
      CHECK_THAT(outcome(one_object() | fetch(kept) | lines()), Contains(o.expected));
    }
    CHECK(kept->kept() == o.bytes.size());
  }
}
