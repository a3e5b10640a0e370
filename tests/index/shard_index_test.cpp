// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/formats/line_shards.hpp>
#include <millrace/index/shard_index.hpp>

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/scanned.hpp"
#include "tests/support/temporary_folder.hpp"
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
  block_on(loop, group(chunk_of(archive) | untar_plain() | group_samples(), out));
  return out;
}

shard_index indexed(std::shared_ptr<const memory_store> store, tar_shards_options how = {}, std::size_t part = 4 * MiB,
                    shard object = shard("mem:x.tar")) {
  testing::virtual_loop loop;
  const index_shard_options options{.part = part, .report = false};
  return block_on(loop, index_shard(std::move(store), std::move(object), "x.tar", tar_shards(how), options));
}
shard_index indexed(const std::string& archive, tar_shards_options how = {}) {
  return indexed(std::make_shared<const memory_store>(archive), how);
}
outcome indexed_outcome(const std::string& archive, tar_shards_options how = {}) {
  outcome out;
  try {
    const shard_index index = indexed(archive, how);
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

/// With a head of version 1.
std::string file_of_before(const std::vector<shard_index>& indexes) {
  std::string body;
  for (const shard_index& index : indexes) index.write(body);
  const auto head = [&](std::uint32_t crc) {
    std::string out("mrindset");
    detail::append_le(out, 1, 4);
    detail::append_le(out, crc, 4);
    detail::append_le(out, indexes.size(), 8);
    detail::append_le(out, body.size(), 8);
    return out;
  };
  return head(crc32c(0, head(0).data(), 32)) + body;
}

/// Of a tar of samples of one to four fields, or of a text file.
shard_index drawn_index(rng& random, const std::string& name, std::size_t samples, bool lines) {
  if (lines) {
    std::string text;
    for (std::size_t i = 0; i < samples; ++i) {
      text += std::string(static_cast<std::size_t>(random.below(5)), 'x') + '\n';
    }
    return test::scanned(detail::line_scanner(*line_shards(), name, shard("mem:" + name), 1000), text);
  }
  tar_index_builder builder(name, name, tar_index_builder::checksums::crc32c);
  std::uint64_t at = 0;
  const std::uint64_t most = 1 + random.below(4);
  for (std::size_t i = 0; i < samples; ++i) {
    const char* const extensions[] = {".jpg", ".cls", ".json", ".txt"};
    for (std::uint64_t k = 0; k <= random.below(most); ++k) {
      const std::string body(static_cast<std::size_t>(random.below(4)), 'b');
      tar::entry e;
      e.name = std::to_string(i) + extensions[k];
      e.header_offset = at;
      e.data_offset = at + 512;
      e.size = body.size();
      e.body = bytes::copy(body);
      builder.add(e);
      at += body.empty() ? 512 : 1024;
    }
  }
  return builder.finish(at + 1024, "\"v1\"");
}
std::vector<shard_index> drawn_indexes(rng& random, bool lines) {
  const std::size_t sizes[] = {0, 1, 2, 255, 256, 257, 512, 700, 1000};
  std::vector<shard_index> all;
  for (std::uint64_t n = 1 + random.below(4); n > 0; --n) {
    all.push_back(drawn_index(random, std::to_string(n) + ".data", sizes[random.below(std::size(sizes))], lines));
  }
  return all;
}

void check_rows(const shard_index& is, const shard_index& wanted, std::size_t sample) {
  REQUIRE(is.key_hash(sample) == wanted.key_hash(sample));
  REQUIRE(is.offset(sample) == wanted.offset(sample));
  REQUIRE(is.end(sample) == wanted.end(sample));
  REQUIRE(is.field_count(sample) == wanted.field_count(sample));
  for (std::size_t k = 0; k < wanted.field_count(sample); ++k) {
    const shard_index::field a = is.field_at(sample, k);
    const shard_index::field b = wanted.field_at(sample, k);
    REQUIRE((a.extension == b.extension && a.offset == b.offset && a.size == b.size && a.crc == b.crc));
  }
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
    newer[8] = 5;
    read_indexes(newer, "newer.index");
    FAIL("an index of a version that is not known was read");
  } catch (const index_error& e) {
    CHECK_THAT(e.what(), Catch::Matchers::Contains("newer.index at byte 8: the index has version 5"));
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
  const auto head = static_cast<std::size_t>(index_file_head(some).bytes());
  CHECK(head > 200);
  for (std::size_t bit = 0; bit < 8 * head; ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    CHECK_THROWS_AS(read_indexes(changed, "broken.index"), index_error);
  }
  // One index less, in a file whose length was kept, and another index in the place of one.
  CHECK_THROWS_AS(read_indexes(text.substr(0, head) + some[0].text(), "fewer.index"), index_error);
  std::string other = plain_archive();
  other[512] = 'O';
  const std::string mixed = text.substr(0, head) + indexed(other).text() + text.substr(head + some[0].text().size());
  REQUIRE(mixed.size() == text.size());
  CHECK_THROWS_AS(read_indexes(mixed, "mixed.index"), index_error);
}

TEST_CASE("files of indexes with a head of version 1 are read, and cut ones are refused") {
  const std::vector<shard_index> some{indexed(plain_archive()), indexed(test::end_block())};
  const std::string text = file_of_before(some);
  CHECK(text.substr(0, 12) == std::string("mrindset\x01\0\0\0", 12));
  CHECK(read_indexes(text, "old.index") == some);
  CHECK(read_indexes(text + text, "twice.index").size() == 4);
  for (std::size_t n = 1; n < text.size(); ++n) REQUIRE_THROWS_AS(read_indexes(text.substr(0, n), "cut"), index_error);
  for (std::size_t bit = 0; bit < 8 * 32; ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    CHECK_THROWS_AS(read_indexes(changed, "broken.index"), index_error);
  }
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
  const shard_index streamed = indexed(store, {}, 2 * MiB);
  CHECK(streamed.has_checksums());
  CHECK(streamed.samples() == 400);
  CHECK(store->read_bytes == small.size());
  CHECK(store->requests == 5);

  // What a request costs decides.
  store = std::make_shared<const memory_store>(small);
  CHECK_FALSE(indexed(store, {.hop = 512, .request_cost = 1000}, 2 * MiB).has_checksums());
  CHECK(store->read_bytes < 2 * MiB);
  // So does how many the stream takes.
  std::string medium;
  for (int i = 0; i < 60; ++i) {
    medium += test::raw_member({.name = std::to_string(i) + ".jpg"}, std::string(200000, 'i'));
  }
  medium += test::end_block();
  CHECK(indexed(std::make_shared<const memory_store>(medium), {}, 2 * MiB).has_checksums());
  CHECK_FALSE(indexed(std::make_shared<const memory_store>(medium), {}, 64 * KiB).has_checksums());
  CHECK(cost_of_stream(100 * MiB, 4 * MiB).total(MiB) == 100 * MiB + 25 * MiB);
  CHECK(cost_of_headers(100 * MiB, 10 * MiB, 16 * KiB).total(MiB) == 10 * MiB + 10 * 16 * KiB);
  CHECK(cost_of_headers(100 * MiB, 1, 16 * KiB).requests == 6400);
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

TEST_CASE("an index is made with a line on bytes that follow its tar, and of none that begins with zeros") {
  const std::string zeros(100'000, '\0');
  std::string hole = plain_archive() + zeros + plain_archive();
  const std::string wanted =
      "x.tar: the archive ends with zeros at byte " + std::to_string(plain_archive().size() - 1024);
  for (const index_way way : {index_way::stream, index_way::headers}) {
    test::captured_stderr said(test::captured_stderr::into::pipe);
    const auto made = [way](const std::string& archive) {
      testing::virtual_loop loop;
      const auto store = std::make_shared<const memory_store>(archive);
      return block_on(loop, index_shard(store, shard("mem:x.tar"), "x.tar", tar_shards({.way = way}),
                                        {.part = 64 * KiB}));
    };
    CHECK(made(hole).samples() == 2);
    CHECK_THAT(said.text(), Catch::Matchers::Contains(wanted) &&
                                Catch::Matchers::Contains("and bytes other than zero follow at byte " +
                                                          std::to_string(plain_archive().size() + zeros.size())));
    CHECK_THROWS_WITH(made(std::string(32'768, '\0') + "\1CD001\1" + zeros),
                      Catch::Matchers::Contains("not a tar archive, but an ISO 9660 image"));
    CHECK_THROWS_WITH(made(zeros + "data and more"),
                      Catch::Matchers::Contains("not a tar archive: it begins with zeros"));
  }
}

TEST_CASE("a shard that is not the one that was listed is not indexed") {
  const auto store = std::make_shared<const memory_store>(plain_archive());
  CHECK_THROWS_AS(indexed(store, {}, 4 * MiB, shard("mem:x.tar", 77)), changed_error);
  CHECK_THROWS_AS(indexed(store, {}, 4 * MiB, shard("mem:x.tar", std::nullopt, "\"v0\"")), changed_error);
  CHECK_THROWS_AS(indexed(std::string("\x1f\x8b\x08 gzip", 8) + std::string(2000, 'z')), archive_error);
}

TEST_CASE("rows that are read by need are those of an index in memory, of files of all versions") {
  test::temporary_folder folder;
  const std::string path = folder.file("all.index");
  rng random(41);
  for (int turn = 0; turn < 40; ++turn) {
    const bool lines = random.below(2) == 0;
    const std::vector<shard_index> wanted = drawn_indexes(random, lines);
    std::string text;
    switch (turn % 4) {
      case 0:
        text = file_of_before(wanted);
        break;
      case 1:
        for (const shard_index& index : wanted) index.write(text);
        break;
      default:
        write_indexes(wanted, text);
    }
    CHECK(read_indexes(text, "text") == wanted);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    const std::vector<shard_index> opened =
        turn % 4 == 3 ? detail::open_index_text(text, nullptr, path) : open_indexes(path);
    REQUIRE(opened.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      INFO("turn " << turn << ", index " << i << " of " << wanted[i].samples() << " samples");
      REQUIRE(opened[i].samples() == wanted[i].samples());
      CHECK(opened[i].fields() == wanted[i].fields());
      CHECK(opened[i].name() == wanted[i].name());
      CHECK(opened[i].etag() == wanted[i].etag());
      CHECK(opened[i].object_size() == wanted[i].object_size());
      CHECK(opened[i].digest() == wanted[i].digest());
      CHECK(opened[i].sample_bytes() == wanted[i].sample_bytes());
      CHECK(opened[i].file_bytes() == wanted[i].file_bytes());
      for (std::size_t s = 0; s < wanted[i].samples(); ++s) check_rows(opened[i], wanted[i], s);
      for (std::size_t n = wanted[i].samples(); n > 0; --n) {
        const auto s = static_cast<std::size_t>(random.below(wanted[i].samples()));
        check_rows(opened[i], wanted[i], s);
        const shard_index::rows one = opened[i].rows_of(s).only(s);
        REQUIRE((one.has(s) && !one.has(s + 1) && (s == 0 || !one.has(s - 1))));
        REQUIRE(one.end(s) == wanted[i].end(s));
        REQUIRE(one.field_count(s) == wanted[i].field_count(s));
        REQUIRE(one.field_at(s, one.field_count(s) - 1).crc == wanted[i].field_at(s, one.field_count(s) - 1).crc);
      }
      opened[i].will_need(0, opened[i].samples());
      CHECK(opened[i] == wanted[i]);
    }
    const std::vector<shard_index> copies = opened;  // of which the rows are the same
    std::string again;
    write_indexes(copies, again);
    std::string as_made;
    write_indexes(wanted, as_made);
    CHECK(again == as_made);
  }
}

TEST_CASE("a wrong byte of a file is found when the rows that have it are asked for, and no others are lost") {
  test::temporary_folder folder;
  const std::string path = folder.file("all.index");
  rng random(43);
  std::vector<shard_index> wanted{drawn_index(random, "a.tar", 300, false), drawn_index(random, "b.tar", 600, false)};
  std::string text;
  write_indexes(wanted, text);
  const std::size_t second = text.size() - static_cast<std::size_t>(wanted[1].file_bytes());
  const std::size_t rows = text.size() - 4 - 16 * (600 + wanted[1].fields());
  REQUIRE(rows > second);
  std::string changed = text;
  changed[rows + 16 * 300 + 3] ^= 8;  // the key of sample 300
  std::ofstream(path, std::ios::binary | std::ios::trunc) << changed;
  const std::vector<shard_index> opened = open_indexes(path);
  for (std::size_t s = 0; s < 300; ++s) check_rows(opened[0], wanted[0], s);
  for (const std::size_t s : {0U, 255U, 512U, 599U}) check_rows(opened[1], wanted[1], s);
  const auto failed = [&](std::size_t sample) {
    try {
      static_cast<void>(opened[1].offset(sample));
    } catch (const index_error& e) {
      CHECK(e.object() == path);
      CHECK(e.offset().value_or(0) == rows + 16 * 256);
      return e.reason();
    }
    return std::string();
  };
  for (const std::size_t s : {256U, 300U, 511U}) {
    CHECK(failed(s) == "the rows of samples 256 to 511 of \"b.tar\" have a wrong checksum");
  }
  std::string out;
  CHECK_THROWS_AS(opened[1].write(out), index_error);

  // Any byte: the file is refused, a block of it is, or nothing of what was changed is used.
  for (int turn = 0; turn < 400; ++turn) {
    changed = text;
    changed[static_cast<std::size_t>(random.below(text.size()))] ^= static_cast<char>(1 << random.below(8));
    std::ofstream(path, std::ios::binary | std::ios::trunc) << changed;
    try {
      const std::vector<shard_index> all = open_indexes(path);
      for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t s = 0; s < wanted[i].samples(); s += 50) {
          try {
            static_cast<void>(all[i].offset(s));
          } catch (const index_error&) {
            continue;
          }
          check_rows(all[i], wanted[i], s);
        }
      }
    } catch (const index_error& e) {
      CHECK(e.object() == path);
      CHECK(e.offset().has_value());
    }
  }
}

TEST_CASE("rows that were forged with right checksums are refused, or lie in their object") {
  test::temporary_folder folder;
  const std::string path = folder.file("all.index");
  rng random(47);
  const std::vector<shard_index> made{drawn_index(random, "a.tar", 20, false)};
  const std::string index = made[0].text();
  int read = 0;
  for (int turn = 0; turn < 500; ++turn) {
    std::string forged = index;
    const std::size_t rows = forged.size() - 4 - 16 * (20 + made[0].fields());
    for (std::uint64_t n = 1 + random.below(2); n > 0; --n) {
      forged[rows + static_cast<std::size_t>(random.below(forged.size() - rows - 4))] =
          static_cast<char>(random.below(3) == 0 ? random.next() : random.below(3));
    }
    index_file_head head(made);
    head.add(made[0], forged);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << head.text() << forged;
    const std::vector<shard_index> opened = open_indexes(path);
    try {
      for (std::size_t s = 0; s < 20; ++s) {
        const shard_index::rows its = opened[0].rows_of(s);
        REQUIRE(its.end(s) <= opened[0].object_size());
        for (std::size_t k = 0; k < its.field_count(s); ++k) REQUIRE(its.field_at(s, k).extension.size() < 10);
      }
      ++read;
    } catch (const index_error& e) {
      CHECK(e.object() == path);
    }
  }
  CHECK(read > 20);
}

TEST_CASE("an index file that is cut or replaced while it is in use") {
  test::temporary_folder folder;
  const std::string path = folder.file("all.index");
  rng random(53);
  const std::vector<shard_index> wanted{drawn_index(random, "a.tar", 1000, false)};
  std::string text;
  write_indexes(wanted, text);
  std::ofstream(path, std::ios::binary) << text;
  std::vector<shard_index> opened = open_indexes(path);
  check_rows(opened[0], wanted[0], 10);
  SECTION("replaced by another one of its name: it goes on") {
    std::ofstream(path + ".new", std::ios::binary) << "something else";
    std::filesystem::rename(path + ".new", path);
    for (std::size_t s = 0; s < 1000; ++s) check_rows(opened[0], wanted[0], s);
    CHECK_THROWS_AS(open_indexes(path), index_error);
  }
  SECTION("cut in its place: an error, and no signal") {
    std::filesystem::resize_file(path, text.size() / 2);
    try {
      for (std::size_t s = 0; s < 1000; ++s) static_cast<void>(opened[0].offset(s));
      FAIL("rows were read that are not there");
    } catch (const index_error& e) {
      CHECK(e.object() == path);
      CHECK(e.offset().value_or(0) == text.size() / 2);
      CHECK_THAT(e.what(), Catch::Matchers::Contains("was cut while it was in use"));
    }
  }
  SECTION("overwritten in its place: the checksum tells") {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << std::string(text.size(), 'x');
    CHECK_THROWS_AS(opened[0].offset(999), index_error);
  }
  SECTION("cut before it is opened") {
    std::filesystem::resize_file(path, text.size() - 1);
    CHECK_THROWS_AS(open_indexes(path), index_error);
  }
  SECTION("not there, or a folder") {
    CHECK_THROWS_AS(open_indexes(path + ".gone"), io_error);
    CHECK_THROWS_AS(open_indexes(folder.path()), io_error);
  }
}

TEST_CASE("of an index that is opened little is in memory") {
  test::temporary_folder folder;
  const std::string path = folder.file("all.index");
  rng random(61);
  {
    const std::vector<shard_index> made{drawn_index(random, "a.txt", 200000, true)};
    std::string text;
    write_indexes(made, text);
    std::ofstream(path, std::ios::binary) << text;
  }
  // Of allocations, small and large; 0 where a sanitizer has its own.
  const auto in_use = [] {
    const struct mallinfo2 now = ::mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  const std::size_t before = in_use();
  const std::vector<shard_index> opened = open_indexes(path);
  CHECK(in_use() - before < 30000);
  for (std::size_t s = 0; s < 200000; s += 100) static_cast<void>(opened[0].end(s));
  CHECK(in_use() - before < 500000);  // in memory they are 3.2 MB
}

TEST_CASE("several threads may ask one index for its rows") {
  test::temporary_folder folder;
  const std::string path = folder.file("all.index");
  rng random(59);
  const std::vector<shard_index> wanted{drawn_index(random, "a.tar", 20000, false)};
  std::string text;
  write_indexes(wanted, text);
  std::ofstream(path, std::ios::binary) << text;
  const std::vector<shard_index> opened = open_indexes(path);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      rng mine(t);
      for (int i = 0; i < 3000; ++i) {
        const auto s = static_cast<std::size_t>(mine.below(20000));
        if (opened[0].end(s) != wanted[0].end(s)) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}
