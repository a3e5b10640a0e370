// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Shards that are read from their beginning over a line that flips bits: what shows before its bytes have been
// delivered is mended by one more reading.

#include <millrace/shards/fetch.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/damaging_storage.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::damaging_storage;

namespace {

/// Objects in memory, with their CRC32C where `checksums`.
class store final : public storage {
 public:
  std::map<std::string, std::string> objects;
  bool checksums = false;

  bool serves(std::string_view) const noexcept override { return true; }
  task<part> read(shard object, std::string, std::uint64_t offset, std::size_t length, slab_pool) const override {
    const std::string& all = objects.at(object.url);
    part p;
    p.total = all.size();
    p.etag = "\"v1\"";
    p.data = bytes::copy(std::string_view(all).substr(offset, length));
    co_return std::move(p);
  }
  task<std::unique_ptr<object_check>> check(shard object, std::string) const override {
    return checksums ? of(object.url) : task<std::unique_ptr<object_check>>();
  }

 private:
  class sum final : public object_check {
   public:
    explicit sum(std::uint32_t right) : right_(right) {}
    const std::string& etag() const noexcept override { return etag_; }
    void add(const bytes& data, const running_crc&) override { is_ = crc32c(is_, data.data(), data.size()); }
    std::unique_ptr<object_check> fork() const override { return std::make_unique<sum>(*this); }
    task<void> compare(std::uint64_t delivered) override {
      if (is_ != right_) throw s3::checksum_error("the bytes do not have the crc32c of the object", where(), delivered);
      co_return;
    }

   private:
    std::string etag_ = "\"v1\"";
    std::uint32_t right_;
    std::uint32_t is_ = 0;
  };
  task<std::unique_ptr<object_check>> of(std::string url) const {
    const std::string& all = objects.at(url);
    std::unique_ptr<object_check> result = std::make_unique<sum>(crc32c(0, all.data(), all.size()));
    co_return std::move(result);
  }
};

constexpr fetch_options by_parts{.shards = 1, .window = 128 * KiB, .part = 64 * KiB};

/// Three parts: short names, pax headers that straddle two parts, a body that does.
std::string tar_of(std::vector<std::uint64_t>& headers) {
  std::string text;
  tar::writer out([&](std::string_view piece) { text += piece; });
  for (int i = 0; text.size() < 140'000; ++i) {
    headers.push_back(text.size());
    const std::string key = (i % 3 == 0 ? std::string(120, 'k') : "k") + std::to_string(i);
    out.add(key + ".bin", std::string(static_cast<std::size_t>(i * 977 % 5000), static_cast<char>('a' + i % 26)));
  }
  headers.push_back(text.size());
  out.finish();
  headers.push_back(text.size() - 512);
  return text;
}

task<void> take(stream<sample> in, std::string& got) {
  while (std::optional<sample> s = co_await in.next()) {
    got += s->key + '|';
    for (const field& f : s->fields) got += f.extension + ':' + std::string(f.data.view());
    got += '@' + std::to_string(s->from.offset) + '\n';
  }
}

template <class Untar>
std::string read(const std::shared_ptr<const storage>& from, Untar untar_stage) {
  testing::virtual_loop loop;
  std::string got;
  auto samples = shards("mem:x.tar") | fetch(from, by_parts) | std::move(untar_stage) | group_samples();
  try {
    block_on(loop, take(std::move(samples), got));
  } catch (const error& e) {
    return std::string("error: ") + e.what();
  }
  return got;
}

}  // namespace

TEST_CASE("a header that comes damaged is read once more, and the walk goes on as if nothing had been", "[damaged]") {
  const auto whole = std::make_shared<store>();
  std::vector<std::uint64_t> headers;
  whole->objects["mem:x.tar"] = tar_of(headers);
  whole->checksums = GENERATE(false, true);
  const bool plain = GENERATE(false, true);
  INFO("plain: " << plain << ", checksums: " << whole->checksums);
  const auto over = [&](const std::shared_ptr<const storage>& from) {
    return plain ? read(from, untar_plain()) : read(from, untar());
  };
  const std::string right = over(whole);
  REQUIRE_THAT(right, Contains("k0|bin:") && !Contains("error"));
  for (const std::uint64_t at : headers) {
    for (const std::uint64_t byte : {at, at + 130, at + 150, at + 156, at + 400}) {
      if (byte >= whole->objects["mem:x.tar"].size()) continue;
      INFO("byte " << byte);
      const auto line = std::make_shared<damaging_storage>(whole);
      line->damage("mem:x.tar", byte);
      CHECK(over(line) == right);
    }
  }
}

TEST_CASE("a header that is damaged twice is an error after all before it, which says how it came", "[damaged]") {
  const auto whole = std::make_shared<store>();
  std::vector<std::uint64_t> headers;
  whole->objects["mem:x.tar"] = tar_of(headers);
  for (const std::size_t i : {std::size_t(0), std::size_t(1), headers.size() / 2, headers.size() - 3}) {
    for (const bool same : {false, true}) {
      INFO(i << ' ' << same);
      const auto line = std::make_shared<damaging_storage>(whole);
      line->damage("mem:x.tar", headers[i] + 3, 2, same);
      CHECK_THAT(read(line, untar()),
                 Contains("a header has a wrong checksum") || Contains("first header has a wrong checksum"));
      const auto other = std::make_shared<damaging_storage>(whole);
      other->damage("mem:x.tar", headers[i] + 3, 2, same);
      CHECK_THAT(read(other, untar_plain()), Contains("error: mem:x.tar at byte " + std::to_string(headers[i])) &&
                                                 Contains(same ? "read twice, and both times the same: it is so in"
                                                               : "read twice, and not the same: data are damaged"));
      CHECK(other->second_readings() == 1);
    }
  }
  SECTION("an archive that is broken in the store, or cut, is the error that it was") {
    whole->objects["mem:x.tar"][static_cast<std::size_t>(headers[5]) + 3] ^= 1;
    CHECK_THAT(read(whole, untar()), Contains("a header has a wrong checksum") &&
                                         Contains("both times the same: it is so in the store"));
    std::string& text = whole->objects["mem:x.tar"];
    text[static_cast<std::size_t>(headers[5]) + 3] ^= 1;
    text.resize(static_cast<std::size_t>(headers[7]) + 700);
    const auto line = std::make_shared<damaging_storage>(whole);
    CHECK_THAT(read(line, untar()), Contains("reach beyond the object's end") && Contains("after 7 members"));
    CHECK(line->second_readings() == 1);
  }
}

TEST_CASE("two headers of one part, and one in each part", "[damaged]") {
  const auto whole = std::make_shared<store>();
  std::vector<std::uint64_t> headers;
  whole->objects["mem:x.tar"] = tar_of(headers);
  whole->checksums = true;
  const std::string right = read(whole, untar());
  const auto line = std::make_shared<damaging_storage>(whole);
  for (std::size_t i = 2; i < headers.size(); i += 5) line->damage("mem:x.tar", headers[i]);
  CHECK(read(line, untar()) == right);
  CHECK(line->second_readings() == 3);  // of each part, from its first one on
  // The second reading has damage of its own, further on.
  const auto worse = std::make_shared<damaging_storage>(whole);
  worse->damage("mem:x.tar", headers[2]);
  worse->damage("mem:x.tar", headers[4], 2);
  CHECK(read(worse, untar()) == right);
  CHECK(worse->second_readings() == 2);
}

TEST_CASE("what has not been delivered when the store's checksum is compared is read once more", "[damaged]") {
  const auto whole = std::make_shared<store>();
  whole->checksums = true;
  std::vector<std::uint64_t> headers;
  const std::string text = tar_of(headers);
  for (const std::size_t size : {std::size_t(1000), std::size_t(64 * KiB), text.size()}) {
    INFO(size);
    const bool one_part = size <= 64 * KiB;
    whole->objects["mem:x.tar"] = text.substr(0, size);
    const auto got = [&](const std::shared_ptr<const storage>& from) {
      testing::virtual_loop loop;
      std::string all;
      auto taking = [](stream<chunk> in, std::string& to) -> task<void> {
        while (std::optional<chunk> c = co_await in.next()) to += c->data.view();
      };
      try {
        auto work = taking(shards("mem:x.tar") | fetch(from, by_parts), all);
        block_on(loop, std::move(work));
      } catch (const s3::checksum_error& e) {
        CHECK(e.delivered() == all.size());
        return std::string(e.what());
      }
      return all;
    };
    const auto line = std::make_shared<damaging_storage>(whole);
    line->damage("mem:x.tar", size - 1);
    CHECK(got(line) == whole->objects["mem:x.tar"]);
    for (const bool same : {false, true}) {
      const auto twice = std::make_shared<damaging_storage>(whole);
      twice->damage("mem:x.tar", size - 1, 2, same);
      const std::string what = got(twice);
      if (same && !one_part) {
        CHECK_THAT(what, Contains("crc32c of the object") && !Contains("twice"));  // it may be what was delivered
      } else {
        CHECK_THAT(what, Contains(same ? "(read twice, and both times the same" : "read twice, and not the same"));
      }
    }
    if (one_part) continue;
    const auto before = std::make_shared<damaging_storage>(whole);
    before->damage("mem:x.tar", 100);
    CHECK_THAT(got(before), Contains("crc32c of the object") && !Contains("twice"));
  }
}
