// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/index/shard_index.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/index/index_shard.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"

using namespace millrace;

namespace {

/// An object in memory, which counts what is asked of it.
class memory_store final : public storage {
 public:
  explicit memory_store(std::string content) : content_(std::move(content)) {}

  bool serves(std::string_view) const noexcept override { return true; }
  bool over_network(std::string_view) const noexcept override { return false; }
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length, slab_pool) const override {
    ++requests;
    if (!etag.empty() && etag != "\"v1\"") throw changed_error("the ETag differs", where{object.shown(), {}, {}});
    part p;
    const std::string_view all = content_;
    const std::string_view asked = all.substr(std::min<std::size_t>(offset, all.size()), length);
    read_bytes += asked.size();
    p.etag = "\"v1\"";
    if (ranges) {
      p.data = bytes::copy(asked);
      if (tells_size) p.total = all.size();
    } else {
      p.data = bytes::copy(all.substr(0, 1000));
      p.rest = std::make_unique<tail>(all.size() > 1000 ? std::string(all.substr(1000)) : std::string());
    }
    co_return std::move(p);
  }

  bool ranges = true;
  bool tells_size = true;
  mutable std::uint64_t requests = 0;
  mutable std::uint64_t read_bytes = 0;

 private:
  class tail final : public sequential_rest {
   public:
    explicit tail(std::string rest) : rest_(std::move(rest)) {}
    task<bytes> next() override {
      bytes piece = bytes::copy(std::string_view(rest_).substr(0, 777));
      rest_.erase(0, piece.size());
      co_return std::move(piece);
    }

   private:
    std::string rest_;
  };
  std::string content_;
};

/// A sample as both ways of reading see it.
struct seen {
  std::uint64_t key = 0;
  std::uint64_t offset = 0;
  std::vector<std::string> fields;  // extension, size and checksum
  friend bool operator==(const seen&, const seen&) = default;
};
struct outcome {
  std::vector<seen> samples;
  std::string error;
};

std::string told(std::string_view extension, std::uint64_t size, std::uint32_t crc) {
  return std::string(extension) + " " + std::to_string(size) + " " + std::to_string(crc);
}

async_generator<chunk> chunk_of(std::string content) {
  chunk c(std::make_shared<const shard>("x.tar", content.size()), 0, bytes::copy(content), true);
  co_yield give(c);
}
task<void> group(stream<sample> in, outcome& out) {
  try {
    while (std::optional<sample> s = co_await in.next()) {
      seen one{key_hash(s->key), s->from.offset, {}};
      for (const field& f : s->fields) {
        one.fields.push_back(told(f.extension, f.data.size(), crc32c(0, f.data.data(), f.data.size())));
      }
      out.samples.push_back(std::move(one));
    }
  } catch (const archive_error& e) {
    out.error = e.reason();
  }
}
outcome grouped(const std::string& archive) {
  testing::virtual_loop loop;
  outcome out;
  block_on(loop, group(chunk_of(archive) | untar_plain({.report = false}) | group_samples(), out));
  return out;
}

shard_index indexed(std::shared_ptr<const memory_store> store, index_shard_options options = {},
                    shard object = shard("mem:x.tar")) {
  testing::virtual_loop loop;
  options.report = false;
  return block_on(loop, index_shard(std::move(store), std::move(object), "x.tar", options));
}
shard_index indexed(const std::string& archive, index_shard_options options = {}) {
  return indexed(std::make_shared<const memory_store>(archive), options);
}
outcome indexed_outcome(const std::string& archive, index_shard_options options = {}) {
  outcome out;
  try {
    const shard_index index = indexed(archive, options);
    for (std::size_t i = 0; i < index.samples(); ++i) {
      seen one{index.key_hash(i), index.offset(i), {}};
      for (std::size_t k = 0; k < index.field_count(i); ++k) {
        const shard_index::field f = index.field_at(i, k);
        const std::string_view body = std::string_view(archive).substr(f.offset, f.size);
        if (!index.has_checksums()) CHECK(f.crc == 0);
        if (index.has_checksums()) CHECK(f.crc == crc32c(0, body.data(), body.size()));
        one.fields.push_back(told(f.extension, f.size, crc32c(0, body.data(), body.size())));
      }
      out.samples.push_back(std::move(one));
    }
  } catch (const archive_error& e) {
    out.error = e.reason();
  }
  return out;
}

void check_agreement(const std::string& archive) {
  const outcome wanted = grouped(archive);
  for (const index_way way : {index_way::stream, index_way::headers, index_way::cheaper}) {
    INFO("way " << static_cast<int>(way));
    const outcome got = indexed_outcome(archive, {.way = way, .hop = 512});
    // An archive that breaks off has samples up to there, and no index.
    CHECK(got.error == wanted.error);
    if (wanted.error.empty()) CHECK(got.samples == wanted.samples);
  }
}

/// Members of all kinds with names of which samples are made, and of which none are.
std::string random_archive(rng& random) {
  static const std::vector<std::string> names{
      "a.jpg",     "a.cls",     "a.JPG",  "a.seg.png", "b.jpg",           "b.json",    "dir/a.jpg",
      "dir/a.txt", "dir/b.txt", "readme", ".hidden",   "dir/.hidden.jpg", "__meta__",  "__x__/a.jpg",
      "./a.jpg",   "./a.txt",   "c.",     "c.txt",     "a.b/c.txt",       "a.__key__", "d.1",
      "d.2",       "d.3",       "d.4",    "\xff.x",    "\xff.y"};
  std::string archive;
  for (std::uint64_t n = random.below(14); n > 0; --n) {
    const std::string& name = names[static_cast<std::size_t>(random.below(names.size()))];
    const std::string body(static_cast<std::size_t>(random.below(3) == 0 ? 0 : random.below(3000)),
                           static_cast<char>('a' + random.below(26)));
    switch (random.below(8)) {
      case 0:
        archive += test::pax_header(test::pax_record("path", name)) + test::raw_member({}, body);
        break;
      case 1:
        archive += test::raw_member({.type = 'L'}, name + '\0') + test::raw_member({}, body);
        break;
      case 2:
        archive += test::raw_member({.name = name, .type = "123456"[random.below(6)]}, "");
        break;
      case 3:
        archive += test::pax_header(test::pax_record("comment", std::string(700, 'c')), 'g');
        [[fallthrough]];
      default:
        archive += test::raw_member({.name = name, .type = random.below(9) == 0 ? '7' : '0'}, body);
    }
  }
  switch (random.below(6)) {
    case 0:  // no end
      break;
    case 1:
      archive += test::end_block() + std::string(2000, 'x');
      break;
    case 2:
      if (!archive.empty()) archive.resize(static_cast<std::size_t>(random.below(archive.size())));
      break;
    default:
      archive += test::end_block();
  }
  return archive;
}

std::string plain_archive() {
  return test::raw_member({.name = "a.jpg"}, "one") + test::raw_member({.name = "a.cls"}, "2") +
         test::raw_member({.name = "b.jpg"}, std::string(1500, 'x')) + test::end_block();
}

}  // namespace

TEST_CASE("an index has the samples of group_samples") {
  rng random(29);
  int whole = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string archive = random_archive(random);
    INFO("archive " << i);
    check_agreement(archive);
    whole += grouped(archive).error.empty() ? 1 : 0;
  }
  CHECK(whole > 500);  // and the others were refused by both
  CHECK(whole < 1400);
}

TEST_CASE("an index agrees with group_samples about the archives that others test with") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data");
  int archives = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder + "/tar")) {
    if (entry.path().extension() != ".tar" || entry.file_size() > 4000000) continue;
    INFO(entry.path().filename().string());
    check_agreement(test::read_file(entry.path().string()));
    ++archives;
  }
  CHECK(archives > 20);
}

TEST_CASE("a sample's bytes are where its index says") {
  const std::string archive = test::raw_member({.name = "readme"}, "not a sample") + plain_archive();
  const shard_index index = indexed(archive);
  REQUIRE(index.samples() == 2);
  CHECK(index.fields() == 3);
  CHECK(index.name() == "x.tar");
  CHECK(index.etag() == "\"v1\"");
  CHECK(index.object_size() == archive.size());
  CHECK(index.key_hash(0) == key_hash("a"));
  CHECK(index.offset(0) == 1024);
  CHECK(index.end(0) == 3 * 512 + 2 * 512 + 1);
  CHECK(index.offset(1) == 3 * 1024);
  CHECK(index.end(1) == 3 * 1024 + 512 + 1500);
  CHECK(index.field_at(0, 1).extension == "cls");
  CHECK(archive.substr(index.field_at(0, 1).offset, index.field_at(0, 1).size) == "2");
  // A reader that is given exactly these bytes has the sample.
  tar::reader_options how;
  how.start = index.offset(0);
  tar::reader reader("x.tar", how);
  reader.feed(bytes::copy(std::string_view(archive).substr(1024, static_cast<std::size_t>(index.end(0)) - 1024)));
  reader.finish();
  tar::entry e;
  REQUIRE(reader.next(e));
  CHECK(e.body.view() == "one");
  REQUIRE(reader.next(e));
  CHECK(e.body.view() == "2");
  CHECK_FALSE(reader.next(e));
}

TEST_CASE("a sample of two fields takes 48 bytes of an index") {
  std::string archive;
  for (int i = 0; i < 100; ++i) {
    const std::string key = std::to_string(i);
    archive += test::raw_member({.name = key + ".jpg"}, "x") + test::raw_member({.name = key + ".cls"}, "1");
  }
  const std::string text = indexed(archive + test::end_block()).text();
  CHECK(text.size() - 100 * 48 < 120);
}

TEST_CASE("the file of an index is as its format says") {
  const std::string text = indexed(test::raw_member({.name = "a.Txt"}, "one") + test::end_block()).text();
  const std::string wanted(
      "mrindex\n\x01\0\0\0\x07\0\0\0\x74\0\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"
      "\x05\0\0\0\x04\0\0\0\x01\0\0\0\x05\0\0\0x.tar\"v1\"\x03\0txt\0\0",
      80);
  REQUIRE(text.size() == 116);
  CHECK(text.substr(0, 80) == wanted);
  CHECK(detail::read_le(text, 80, 8) == key_hash("a"));
  CHECK(text.substr(88, 8) == std::string("\0\0\0\0\0\0\x01\0", 8));
  CHECK(detail::read_le(text, 96, 4) == 1);
  CHECK(detail::read_le(text, 100, 4) == crc32c(0, "one", 3));
  CHECK(text.substr(104, 8) == std::string("\x03\0\0\0\0\0\0\0", 8));
  CHECK(detail::read_le(text, 112, 4) == crc32c(0, text.data(), 112));
  // Part of the contract, as files have it.
  CHECK(key_hash("") == 0xc3817c016ba4ff30u);
  CHECK(key_hash("train/0001") == 0x6a92e170e61582bu);
}

TEST_CASE("an index is read as it was written") {
  rng random(31);
  for (int i = 0; i < 200; ++i) {
    std::optional<shard_index> index;
    try {
      index = indexed(random_archive(random), {.way = random.below(2) == 0 ? index_way::stream : index_way::headers});
    } catch (const archive_error&) {
      continue;
    }
    const std::string text = index->text();
    std::string_view rest = text;
    CHECK(shard_index::read(rest, "i") == *index);
    CHECK(rest.empty());
  }
  const std::string both = indexed(plain_archive()).text() + indexed(test::end_block()).text();
  const std::vector<shard_index> all = read_indexes(both, "all.index");
  REQUIRE(all.size() == 2);
  CHECK(all[0].samples() == 2);
  CHECK(all[1].samples() == 0);
}

TEST_CASE("an index that is cut, or has a bit that is wrong, is refused") {
  const std::string text = indexed(plain_archive()).text();
  const auto refused = [](const std::string& changed) {
    try {
      const std::vector<shard_index> all = read_indexes(changed, "broken.index");
      return false;
    } catch (const index_error& e) {
      CHECK(e.object() == "broken.index");
      CHECK(e.offset().has_value());
      return true;
    }
  };
  for (std::size_t n = 0; n < text.size(); ++n) REQUIRE(refused(text.substr(0, n)));
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    if (!refused(changed)) FAIL("bit " << bit % 8 << " of byte " << bit / 8 << " may be wrong");
  }
  CHECK(refused(text + "x"));
  // The second of two is at fault: the offset is that in the file.
  try {
    read_indexes(text + text.substr(0, 100), "two.index");
    FAIL("a cut index was read");
  } catch (const index_error& e) {
    CHECK(e.offset().value() >= text.size());
  }
  try {
    std::string newer = text;
    newer[8] = 3;
    read_indexes(newer, "newer.index");
    FAIL("an index of a version that is not known was read");
  } catch (const index_error& e) {
    CHECK_THAT(e.what(), Catch::Matchers::Contains("newer.index at byte 8: the index has version 3"));
  }
}

TEST_CASE("a file of several indexes that is cut anywhere is refused") {
  std::vector<shard_index> some;
  for (int i = 0; i < 3; ++i) some.push_back(indexed(plain_archive()));
  some.push_back(indexed(test::end_block()));
  std::string text;
  write_indexes(some, text);
  CHECK(read_indexes(text, "all.index") == some);
  CHECK(read_indexes(text + text, "twice.index").size() == 8);  // appended to one another
  CHECK(read_indexes(some[0].text() + text, "both.index").size() == 5);
  for (const std::string& before : {std::string(), text, some[0].text()}) {
    for (std::size_t n = 1; n < text.size(); ++n) {
      try {
        read_indexes(before + text.substr(0, n), "cut.index");
        FAIL("cut after " << n << " bytes, it was read");
      } catch (const index_error& e) {
        REQUIRE(e.object() == "cut.index");
        REQUIRE(e.offset().value_or(0) >= before.size());
      }
    }
  }
  // Every bit of the head counts.
  for (std::size_t bit = 0; bit < 8 * index_file_head::bytes; ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    CHECK_THROWS_AS(read_indexes(changed, "broken.index"), index_error);
  }
  // One index less, in a file whose length was kept.
  std::string fewer = index_file_head(some).text();
  CHECK_THROWS_AS(read_indexes(fewer + some[0].text(), "fewer.index"), index_error);
}

TEST_CASE("files of indexes without a head, as they were written before, are read") {
  const std::string both = indexed(plain_archive()).text() + indexed(test::end_block()).text();
  CHECK(read_indexes(both, "old.index").size() == 2);
}

TEST_CASE("an index whose checksum was made right again is refused, or means what it says") {
  rng random(37);
  const std::string text = indexed(plain_archive()).text();
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string changed = text;
    for (std::uint64_t n = 1 + random.below(3); n > 0; --n) {
      const auto at = static_cast<std::size_t>(random.below(changed.size() - 4));
      changed[at] = static_cast<char>(random.below(3) == 0 ? random.next() : random.below(3));
    }
    if (random.below(4) == 0) changed.resize(64 + static_cast<std::size_t>(random.below(text.size() - 64)));
    const std::uint32_t crc = crc32c(0, changed.data(), changed.size() - 4);
    changed.resize(changed.size() - 4);
    detail::append_le(changed, crc, 4);
    try {
      const std::vector<shard_index> all = read_indexes(changed, "x");
      REQUIRE(all.size() == 1);
      REQUIRE(all[0].text() == changed);
      for (std::size_t s = 0; s < all[0].samples(); ++s) {
        REQUIRE(all[0].offset(s) < all[0].end(s));
        REQUIRE(all[0].end(s) <= all[0].object_size());
        for (std::size_t k = 0; k < all[0].field_count(s); ++k) REQUIRE(all[0].field_at(s, k).extension.size() < 100);
      }
      ++read;
    } catch (const index_error&) {
    }
  }
  CHECK(read > 1000);
}

TEST_CASE("an index of another version of its shard is refused by name") {
  const shard_index index = indexed(plain_archive());
  const std::uint64_t size = plain_archive().size();
  index.check(shard("s3://b/x.tar"));
  index.check(shard("s3://b/x.tar", size, "\"v1\""));
  try {
    index.check(shard("s3://b/x.tar", size, "\"v2\""));
    FAIL("another ETag was taken");
  } catch (const stale_index_error& e) {
    CHECK_THAT(e.what(), Catch::Matchers::Contains("s3://b/x.tar: the index \"x.tar\" is of another version"));
    CHECK_THAT(e.what(), Catch::Matchers::Contains("its ETag was \"v1\" and is \"v2\""));
  }
  try {
    index.check(shard("s3://b/x.tar", size + 512));
    FAIL("another size was taken");
  } catch (const stale_index_error& e) {
    CHECK_THAT(e.what(), Catch::Matchers::Contains("it had 5120 bytes and has 5632"));
  }
}

TEST_CASE("the digest of an index tells every change") {
  const shard_index index = indexed(plain_archive());
  CHECK(index.digest() == indexed(plain_archive()).digest());
  std::string other = plain_archive();
  other[512] = 'O';  // a body
  CHECK_FALSE(indexed(other).digest() == index.digest());
  CHECK_FALSE(indexed(plain_archive() + std::string(512, '\0')).digest() == index.digest());
  const shard_index headers = indexed(plain_archive(), {.way = index_way::headers});
  CHECK_FALSE(headers.digest() == index.digest());
  const std::string text = index.digest().text();
  CHECK(text.size() == 32);
  CHECK(hash128::parse(text) == index.digest());
  CHECK_FALSE(hash128::parse(text.substr(1)).has_value());
  CHECK_FALSE(hash128::parse("x" + text.substr(1)).has_value());
}

TEST_CASE("large members are hopped over, small ones are streamed") {
  std::string large;
  for (int i = 0; i < 6; ++i) {
    large += test::raw_member({.name = std::to_string(i) + ".mp4"}, std::string(5000000, 'v')) +
             test::raw_member({.name = std::to_string(i) + ".json"}, "{}");
  }
  large += test::end_block();
  auto store = std::make_shared<const memory_store>(large);
  const shard_index hopped = indexed(store);
  CHECK_FALSE(hopped.has_checksums());
  CHECK(hopped.samples() == 6);
  CHECK(store->read_bytes < 3 * MiB);
  CHECK(store->requests <= 14);
  CHECK(hopped.object_size() == large.size());

  std::string small;
  for (int i = 0; i < 400; ++i)
    small += test::raw_member({.name = std::to_string(i) + ".jpg"}, std::string(20000, 'i'));
  small += test::end_block();
  store = std::make_shared<const memory_store>(small);
  const shard_index streamed = indexed(store, {.part = 2 * MiB});
  CHECK(streamed.has_checksums());
  CHECK(streamed.samples() == 400);
  CHECK(store->read_bytes == small.size());
  CHECK(store->requests == 5);

  // What a request costs decides.
  store = std::make_shared<const memory_store>(small);
  CHECK_FALSE(indexed(store, {.part = 2 * MiB, .hop = 512, .request_cost = 1000}).has_checksums());
  CHECK(store->read_bytes < 2 * MiB);
  CHECK(cost_of_stream(100 * MiB, {}).total(MiB) == 100 * MiB + 13 * MiB);
  CHECK(cost_of_headers(100 * MiB, 10 * MiB, {}).total(MiB) == 10 * MiB + 10 * 16 * KiB);
  CHECK(cost_of_headers(100 * MiB, 1, {}).requests == 6400);
}

TEST_CASE("a store without ranges, or one that does not say sizes, is read as a stream") {
  const std::string archive = plain_archive() + std::string(5000, 'j');  // something after the end
  auto store = std::make_shared<memory_store>(archive);
  store->ranges = false;
  const shard_index sequential = indexed(store, {.way = index_way::headers});
  CHECK(sequential.has_checksums());
  CHECK(sequential.samples() == 2);
  CHECK(sequential.object_size() == archive.size());
  store = std::make_shared<memory_store>(archive);
  store->tells_size = false;
  const shard_index sizeless = indexed(store, {.way = index_way::headers});
  CHECK(sizeless == sequential);
}

TEST_CASE("a shard that is not the one that was listed is not indexed") {
  const auto store = std::make_shared<const memory_store>(plain_archive());
  CHECK_THROWS_AS(indexed(store, {}, shard("mem:x.tar", 77)), changed_error);
  CHECK_THROWS_AS(indexed(store, {}, shard("mem:x.tar", std::nullopt, "\"v0\"")), changed_error);
  CHECK_THROWS_AS(indexed(std::string("\x1f\x8b\x08 gzip", 8) + std::string(2000, 'z')), archive_error);
}
