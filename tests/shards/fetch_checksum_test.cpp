// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Damage of objects that are read in parts: what TCP's checksum lets through, or a store's disk has made.

#include <millrace/shards/fetch.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/disk_cache.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/shards/resident_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/jumping_loop.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>

#include "tests/shards/cache_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/checking_client.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using s3_server::fault;

namespace {

using sum_field = s3_server::object::field;

constexpr std::size_t part_bytes = 64 * KiB;
constexpr std::size_t size = 4 * part_bytes + 1000;  // five parts
// Two requests at a time: the third to come is not for the last part.
const fetch_options by_parts{.shards = 1, .window = 2 * part_bytes, .part = part_bytes};

std::string text_of(std::size_t n) {
  std::string body_text(n, '\0');
  for (std::size_t i = 0; i < n; ++i) body_text[i] = static_cast<char>(i * 2654435761u >> 13);
  return body_text;
}
const std::string body_text = text_of(size);

namespace digests = s3_server::detail;

sum_field sum_of(const std::string& algorithm) {
  return sum_field("x-amz-checksum-" + algorithm, digests::to_base64(digests::checksum_of(algorithm, body_text)));
}

/// An object that was uploaded in parts of these sizes, with the checksum of their checksums.
s3_server::object composed(const std::string& text, const std::vector<std::uint64_t>& parts,
                           const std::string& algorithm) {
  s3_server::object o(bytes::copy(text));
  std::string sums;
  std::size_t at = 0;
  for (std::uint64_t n : parts) {
    sums += digests::checksum_of(algorithm, std::string_view(text).substr(at, n));
    at += n;
  }
  o.parts = parts;
  o.checksums.emplace_back("x-amz-checksum-" + algorithm, digests::to_base64(digests::checksum_of(algorithm, sums)) +
                                                              '-' + std::to_string(parts.size()));
  o.checksums.emplace_back("x-amz-checksum-type", "COMPOSITE");
  return o;
}
s3_server::object composed(const std::vector<std::uint64_t>& parts, const std::string& algorithm) {
  return composed(body_text, parts, algorithm);
}
std::vector<std::uint64_t> cut(std::uint64_t each) {
  std::vector<std::uint64_t> parts;
  for (std::uint64_t at = 0; at < size; at += each) parts.push_back(std::min(each, size - at));
  return parts;
}

task<void> take(stream<chunk> in, std::string& got, bool& ended) {
  while (std::optional<chunk> c = co_await in.next()) {
    got += c->data.view();
    ended = c->last;
  }
}

class store {
 public:
  explicit store(bool validate = true) : server(any_parts()), client_(test::checking_client(server, validate)) {}

  void put(std::vector<sum_field> checksums) {
    s3_server::object o(bytes::copy(body_text));
    o.checksums = std::move(checksums);
    server.objects().put("b", "k", std::move(o));
  }
  /// A bit of the n-th part that is asked for is inverted.
  void damage(std::uint64_t nth) {
    server.faults().clear();
    server.log().clear();
    server.faults().add({.method = "GET", .key = "k", .nth = nth}, fault::flipped_bit(123));
  }
  /// Whether the n-th request since then was for a range that begins so.
  bool asked_for(const std::string& range, std::uint64_t nth) {
    for (const auto& r : server.log().entries()) {
      if (r.method == "GET" && r.key == "k" && --nth == 0) return r.range.compare(0, range.size(), range) == 0;
    }
    return false;
  }

  /// What reading the object by parts comes to.
  std::string read(bool listed = true) { return read(client_, listed); }
  template <class Store>
  std::string read(const Store& from, bool listed = true) {
    const auto loop = make_event_loop();
    auto chunks = (listed ? client_.list("s3://b/k") : shards("s3://b/k")) | fetch(from, by_parts);
    std::string got;
    bool ended = false;
    try {
      block_on(*loop, take(std::move(chunks), got, ended));
    } catch (const s3::checksum_error& e) {
      CHECK_FALSE(ended);
      CHECK(e.delivered() == got.size());
      return std::string("checksum: ") + e.what();
    } catch (const error& e) {
      CHECK_FALSE(ended);
      return e.what();
    }
    CHECK(ended);
    return got == body_text ? "right" : "wrong";
  }
  std::size_t asked(const std::string& method) {
    std::size_t n = 0;
    for (const auto& r : server.log().entries()) n += r.method == method && r.key == "k" ? 1 : 0;
    return n;
  }
  s3::client& client() { return client_; }

  s3_server::background server;

 private:
  static s3_server::options any_parts() {
    s3_server::options o;
    o.min_part_size = 1;
    return o;
  }
  s3::client client_;
};

}  // namespace

TEST_CASE("a bit that flips in any part of an object is an error before the object's end, in the last one none at all",
          "[checksum]") {
  for (const char* algorithm : {"crc32", "crc32c", "crc64nvme", "sha1", "sha256"}) {
    INFO(algorithm);
    store s;
    s.put({sum_of(algorithm)});
    CHECK(s.read(true) == "right");
    CHECK(s.read(false) == "right");
    CHECK(s.asked("HEAD") == 2);
    for (std::uint64_t nth = 1; nth <= 5; ++nth) {
      INFO(nth);
      s.damage(nth);
      const std::string what = s.read(nth % 2 == 0);
      if (s.asked_for("bytes=262144-", nth)) {  // it has not been delivered when it is compared: once more
        CHECK(what == "right");
      } else {
        CHECK_THAT(what, Contains("checksum: s3://b/k: ") && Contains(algorithm) &&
                             Contains("262144 of them were delivered"));
      }
    }
  }
}

TEST_CASE("an object that begins with small parts is compared, though it would fit one part", "[checksum]") {
  const std::string text = text_of(900 * KiB);
  const fetch_options one_part{.shards = 2, .window = MiB, .part = MiB};
  s3_server::object whole(bytes::copy(text));
  whole.checksums.emplace_back("x-amz-checksum-crc64nvme",
                               digests::to_base64(digests::checksum_of("crc64nvme", text)));
  // Parts of the upload that end inside of those that are read.
  for (const s3_server::object& o : {whole, composed(text, {400'000, 400'000, text.size() - 800'000}, "crc32c")}) {
    store s;
    s.server.objects().put("b", "k", o);
    for (const bool listed : {true, false}) {
      for (std::uint64_t damaged = 0; damaged <= 3; ++damaged) {
        INFO(listed << ' ' << damaged);
        s.server.faults().clear();
        if (damaged > 0) s.damage(damaged);
        const auto loop = make_event_loop();
        auto chunks = (listed ? s.client().list("s3://b/k") : shards("s3://b/k")) | fetch(s.client(), one_part);
        std::string got;
        bool ended = false;
        bool failed = false;
        try {
          block_on(*loop, take(std::move(chunks), got, ended));
          CHECK(got == text);
        } catch (const s3::checksum_error&) {
          failed = true;
        }
        CHECK(ended != failed);
        CHECK(failed == (damaged > 0 && !s.asked_for("bytes=786432-", damaged)));  // the last part: once more
      }
    }
  }
}

TEST_CASE("checksums of an upload's parts are compared, wherever the parts end", "[checksum]") {
  for (const char* algorithm : {"crc32", "crc64nvme", "sha256"}) {
    for (std::uint64_t each : {part_bytes, 2 * part_bytes, std::size_t(50'000), part_bytes / 2, size}) {
      INFO(algorithm << " " << each);
      store s;
      s.server.objects().put("b", "k", composed(cut(each), algorithm));
      CHECK(s.read() == "right");
      CHECK(s.read() == "right");  // the algorithm is known now, and computed as bytes come
      s.damage(3);
      CHECK_THAT(s.read(), Contains("checksum: s3://b/k: ") && Contains(algorithm));
    }
  }
}

TEST_CASE("an upload whose parts differ in size is not taken for damaged", "[checksum]") {
  const std::vector<std::uint64_t> uneven[] = {
      {100, size - 100},                                              // their number does not fit the first
      {part_bytes, part_bytes - 1, part_bytes + 1, part_bytes, 1000}  // it fits, and yet
  };
  for (const auto& parts : uneven) {
    store s;
    s.server.objects().put("b", "k", composed(parts, "crc32"));
    CHECK(s.read() == "right");
  }
  store s;  // one that does not tell its parts
  s.server.objects().put("b", "k", composed(cut(part_bytes), "crc32"));
  s.server.faults().add({.method = "HEAD", .key = "k", .nth = 2}, fault::refuse(501, "NotImplemented"));
  CHECK(s.read() == "right");
}

TEST_CASE("what put() stores in parts is compared when it is read", "[checksum]") {
  store s;
  const auto loop = make_event_loop();
  auto content = []() -> async_generator<bytes> {
    bytes all = bytes::copy(body_text);
    co_yield give(all);
  };
  s.server.put("b", "other", std::string());
  s3::put_options options;
  options.part = 100'000;
  auto stream = content();
  block_on(*loop, s.client().put("s3://b/k", std::move(stream), options));
  REQUIRE(s.server.objects().find("b", "k")->parts.size() == 3);
  CHECK(s.read() == "right");
  s.damage(2);
  CHECK_THAT(s.read(), Contains("checksum: s3://b/k: ") && Contains("crc32c"));
}

TEST_CASE("an object without a checksum is read as it comes, and so is one whose store serves no HEAD", "[checksum]") {
  store s;
  s.put({});
  CHECK(s.read() == "right");
  CHECK(s.asked("HEAD") == 1);
  s.damage(2);
  CHECK(s.read() == "wrong");
  s.put({sum_of("crc32")});
  s.server.faults().clear();
  s.server.faults().add({.method = "HEAD"}, fault::refuse(405, "MethodNotAllowed"));
  CHECK(s.read() == "right");
}

TEST_CASE("checksums are not asked for when they are not wanted", "[checksum]") {
  store s(false);
  s.put({sum_of("crc32")});
  s.damage(2);
  CHECK(s.read() == "wrong");
  CHECK(s.asked("HEAD") == 0);
}

TEST_CASE("an object of one part is compared too when its size is not known", "[checksum]") {
  store s;
  const std::string one(1000, 'x');
  s3_server::object o(bytes::copy(one));
  o.checksums.emplace_back("x-amz-checksum-crc32", digests::to_base64(digests::checksum_of("crc32", one)));
  s.server.objects().put("b", "k", std::move(o));
  s.damage(1);
  CHECK(s.read(false) == "wrong");  // the end of an object is reached that is not the body_text
  CHECK(s.asked("GET") == 2);  // the second time it is right
  s.server.faults().clear();
  s.server.faults().add({.method = "GET", .key = "k"}, fault::flipped_bit(123));
  CHECK_THAT(s.read(false), Contains("checksum: s3://b/k: ") && !Contains("were delivered") &&
                                Contains("read twice, and both times the same"));
}

TEST_CASE("small objects that are read by their names take one request each, and are compared", "[checksum]") {
  constexpr int count = 60;
  constexpr int large = 40;  // one that is not small
  store s;
  std::string all;
  std::string names;
  for (int i = 0; i < count; ++i) {
    const std::string text(i == large ? 300'000 : 1000 + 10 * i, static_cast<char>('a' + i % 26));
    s3_server::object o(bytes::copy(text));
    o.checksums.emplace_back("x-amz-checksum-crc32", digests::to_base64(digests::checksum_of("crc32", text)));
    s.server.objects().put("b", std::to_string(i), std::move(o));
    all += text;
  }
  // The stores that read another one ask it in the same way.
  const std::string through = GENERATE("", "hedged", "resident", "disk_cache");
  const auto read_all = [&] {
    const test::cache_folder folder;
    std::shared_ptr<const storage> from = as_storage(s.client());
    if (through == "hedged") from = hedged(from);
    if (through == "resident") from = resident(from, {.bytes = MiB});
    if (through == "disk_cache") {
      from = disk_cache(from, {.directory = folder.path, .bytes = 16 * detail::disk_slots::slot_bytes, .keep_free = 0});
    }
    s.server.log().clear();
    std::string got;
    bool ended = false;
    const auto loop = make_event_loop();
    auto chunks = shards("s3://b/{0.." + std::to_string(count - 1) + "}") | fetch(from, {.shards = 4});
    block_on(*loop, take(std::move(chunks), got, ended));
    return got == all;
  };
  CHECK(read_all());
  std::size_t heads = 0;
  std::size_t gets = 0;
  std::size_t ranges = 0;
  for (const auto& r : s.server.log().entries()) {
    heads += r.method == "HEAD" ? 1 : 0;
    gets += r.method == "GET" ? 1 : 0;
    ranges += r.range.empty() ? 0 : 1;
  }
  // The first ones, of which nothing is known yet, have a range and a HEAD; and so has the large one, in two parts.
  CHECK(heads <= 4 + 1);
  CHECK(gets <= count + 2);
  CHECK(ranges <= 4 + 2);
  s.server.faults().add({.method = "GET", .key = "30"}, fault::flipped_bit(123));
  CHECK_THROWS_WITH(read_all(), Contains("s3://b/30: ") && Contains("read twice, and both times the same"));
  s.server.faults().clear();
  s.server.faults().add({.method = "GET", .key = "40"}, fault::flipped_bit(123));
  CHECK_THROWS_WITH(read_all(), Contains("s3://b/40: "));
}

TEST_CASE("parts that break off and go on are added up once", "[checksum]") {
  store s;
  s.put({sum_of("crc64nvme")});
  CHECK(s.read() == "right");
  for (int round = 0; round < 2; ++round) {
    s.server.faults().clear();
    s.server.faults().add({.method = "GET", .key = "k", .nth = 1, .times = 3}, fault::close_in_body(500));
    s.server.faults().add({.method = "GET", .key = "k", .nth = 4}, fault::refuse(503, "SlowDown"));
    if (round == 1) s.server.faults().add({.method = "GET", .key = "k", .nth = 6}, fault::flipped_bit(77));
    CHECK_THAT(s.read(), Contains(round == 0 ? "right" : "checksum: "));
  }
}

TEST_CASE("a checksum of another version of the object is a change", "[checksum]") {
  store s;
  s.put({sum_of("crc32")});
  s.server.faults().add({.method = "HEAD"}, fault::wrong_etag());
  CHECK_THAT(s.read(false), Contains("changed while it was read"));
  s.server.faults().clear();
  s.server.faults().add({.method = "HEAD"}, fault::refuse(412, "PreconditionFailed"));
  CHECK_THAT(s.read(), Contains("changed while it was read"));
}

TEST_CASE("a store among others compares as it does alone", "[checksum]") {
  store s;
  s.put({sum_of("crc32")});
  s.damage(2);
  CHECK_THAT(s.read(stores(s.client())), Contains("checksum: "));
  s.damage(2);
  CHECK_THAT(s.read(hedged(as_storage(s.client()))), Contains("checksum: "));
}

TEST_CASE("a bit that flips on the way is an error also where a cache has agreed with the checksum", "[checksum]") {
  store s;
  s.put({sum_of("crc64nvme")});
  const test::cache_folder in;
  const auto cached = [&] {
    return std::shared_ptr<const storage>(disk_cache(
        as_storage(s.client()), {.directory = in.path, .bytes = 16 * detail::disk_slots::slot_bytes, .keep_free = 0}));
  };
  CHECK(s.read(cached()) == "right");
  CHECK(s.read(cached()) == "right");
  CHECK(s.asked("HEAD") == 1);
  std::fstream(in.path + "/headers", std::ios::in | std::ios::out | std::ios::binary) << std::string(4096, '\0');
  s.damage(2);
  CHECK_THAT(s.read(cached()), Contains("checksum: s3://b/k: ") && Contains("crc32c") && Contains("were delivered"));
  s.server.faults().clear();
  CHECK(s.read(cached()) == "right");
  s.server.log().clear();
  CHECK(s.read(cached()) == "right");
  CHECK(s.asked("GET") == 0);
}

TEST_CASE("a reader that leaves at any moment leaves nothing of the comparison", "[checksum]") {
  bool finished = false;
  for (std::size_t turns = 0; !finished; turns += 1 + turns / 8) {
    INFO("dropped after " << turns << " turns");
    testing::census process;
    process.count_descriptors();
    {
      testing::jumping_loop loop;
      s3_server::server server{s3_server::options()};
      const spawned<void> serving(loop, server.serve());
      server.objects().put("b", "k", composed(cut(50'000), "sha256"));
      s3::config_options o;
      o.endpoint = server.endpoint();
      o.region = "us-east-1";
      const s3::client client(s3::config(o), s3::credentials("test-key", "test-secret"));
      std::string got;
      bool ended = false;
      {
        spawned<void> running(loop, take(shards("s3://b/k") | fetch(client, by_parts), got, ended));
        std::size_t turn = 0;
        loop.run_until([&] { return running.done() || turn++ == turns; });
        finished = running.done();
      }
      if (finished) CHECK(got == body_text);
    }
    CHECK(process.difference() == "");
  }
}

TEST_CASE("samples before the damage is known are the only ones, and the shard does not end", "[checksum]") {
  std::string tar;
  tar::writer w(tar);
  for (int i = 0; i < 20; ++i) w.add(std::to_string(i) + ".bin", text_of(20'000));
  w.finish();
  store s;
  s3_server::object o(bytes::copy(tar));
  o.checksums.emplace_back("x-amz-checksum-crc32c", digests::to_base64(digests::checksum_of("crc32c", tar)));
  s.server.objects().put("b", "k", std::move(o));
  s.server.faults().add({.method = "GET", .key = "k", .nth = 1}, fault::flipped_bit(5000));  // inside of a member
  const auto loop = make_event_loop();
  auto samples = s.client().list("s3://b/k") | fetch(s.client(), by_parts) | untar() | group_samples();
  int seen = 0;
  auto count = [](stream<sample> in, int& n) -> task<void> {
    while (co_await in.next()) ++n;
  };
  auto counting = count(std::move(samples), seen);
  std::uint64_t delivered = 0;
  try {
    block_on(*loop, std::move(counting));
  } catch (const s3::checksum_error& e) {
    delivered = e.delivered();
  } catch (const error& e) {
    FAIL(e.what());
  }
  CHECK(delivered == tar.size() / part_bytes * part_bytes);
  CHECK(seen < 20);
}
