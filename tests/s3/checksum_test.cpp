// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/wire/detail/body_checksum.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/checking_client.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using s3_server::fault;
using body_checksum = s3::detail::body_checksum;

namespace {

using field = std::pair<std::string, std::string>;

std::string text_of(std::size_t size) {
  std::string body_text;
  while (body_text.size() < size) body_text += "abc";
  body_text.resize(size);
  return body_text;
}
const std::string body_text = text_of(3000);

// Computed by zlib, hashlib and a bit-by-bit CRC.
const std::vector<field> sums{{"x-amz-checksum-crc32c", "QvlYBw=="},
                              {"x-amz-checksum-crc32", "K7lFCw=="},
                              {"x-amz-checksum-crc64nvme", "GtnbwQ9SgSc="},
                              {"x-amz-checksum-sha1", "BTtN1alkJgjMC1melvSRFUs3ssY="},
                              {"x-amz-checksum-sha256", "Mo3o8Ylfi7CfbmtMIBLvKypvBnzQAnlLdQqgQKb22L0="}};

std::optional<body_checksum> of(const std::vector<field>& fields) {
  http::headers h;
  for (const auto& [name, value] : fields) h.add(name, value);
  return body_checksum::of(h);
}

bool matches(const field& sum, const std::string& body) {
  std::optional<body_checksum> c = of({sum});
  c->add(body);
  return c->matches();
}

/// An object with checksums, with faults.
class checked {
 public:
  checked(std::string content, std::vector<field> checksums, bool validate = true,
          std::vector<std::uint64_t> parts = {})
      : content_(std::move(content)), client_(test::checking_client(server, validate)) {
    s3_server::object o(bytes::copy(content_));
    o.checksums = std::move(checksums);
    o.parts = std::move(parts);
    etag_ = server.objects().put("b", "k", std::move(o));
  }

  /// What reading all of the object comes to.
  std::string get(std::size_t length = 64 * KiB, bool etag_known = true) {
    const auto loop = make_event_loop();
    try {
      const s3::get_options options{.size = content_.size()};
      const s3::object_part p =
          block_on(*loop, client_.get("s3://b/k", 0, length, etag_known ? etag_ : "", slab_pool(256 * KiB), options));
      CHECK(p.object.size == content_.size());
      if (p.data.view() == content_) return "right";
      return p.data.view() == content_.substr(0, length) ? "a part" : "wrong";
    } catch (const s3::checksum_error& e) {
      return std::string("checksum: ") + e.what();
    } catch (const error& e) {
      return e.what();
    }
  }
  std::vector<std::string> ranges() const {
    std::vector<std::string> all;
    for (const auto& r : server.log().entries()) all.push_back(r.range);
    return all;
  }

  mutable s3_server::background server;

 private:
  const std::string content_;
  s3::client client_;
  std::string etag_;
};

using ranges = std::vector<std::string>;

}  // namespace

TEST_CASE("every algorithm of S3 gives the value that others compute", "[s3][checksum]") {
  std::string damaged = body_text;
  damaged[1234] = 'x';
  for (const field& sum : sums) {
    INFO(sum.first);
    REQUIRE(of({sum}).has_value());
    CHECK("x-amz-checksum-" + std::string(of({sum})->name()) == sum.first);
    CHECK(of({sum})->parts() == 0);
    CHECK(matches(sum, body_text));
    CHECK_FALSE(matches(sum, damaged));
    CHECK_FALSE(matches(sum, body_text.substr(1)));
  }
  CHECK(of(sums)->name() == "crc32c");  // the cheapest of several
  CHECK(matches({"x-amz-checksum-crc32c", "AAAAAA=="}, ""));
}

TEST_CASE("a CRC that came with the bytes is not computed again", "[s3][checksum]") {
  std::optional<body_checksum> c = of({sums[0]});
  running_crc of_text(crc_kind::crc32c);
  of_text.add(body_text.data(), body_text.size());
  const std::string other(body_text.size(), 'x');  // not looked at
  c->add(other, of_text);
  CHECK(c->matches());
  c = of({sums[0]});
  running_crc of_another_kind(crc_kind::crc32);
  of_another_kind.add(other.data(), other.size());
  c->add(body_text, of_another_kind);
  CHECK(c->matches());
  c = of({sums[0]});
  running_crc shorter(crc_kind::crc32c);
  shorter.add(other.data(), 17);
  c->add(body_text, shorter);
  CHECK(c->matches());
}

TEST_CASE("a checksum of the checksums of three parts needs to know where they end", "[s3][checksum]") {
  // Of the bytes [0, 1024), [1024, 2048) and [2048, 3000), computed with zlib and hashlib.
  const field crc("x-amz-checksum-crc32", "2nAzBQ==-3");
  const field sha("x-amz-checksum-sha256", "6Q92a50xSjzNmDE0YU8vcqZ/qk+XCOBRO5AUCNc03Yg=-3");
  for (const field& sum : {crc, sha}) {
    INFO(sum.first);
    std::optional<body_checksum> c = of({sum, {"x-amz-checksum-type", "COMPOSITE"}});
    REQUIRE(c.has_value());
    CHECK(c->parts() == 3);
    CHECK(c->cut_at(1024, body_text.size()));
    c->add(body_text.substr(0, 7));
    c->add(body_text.substr(7));
    CHECK(c->matches());
    c = of({sum});
    CHECK(c->cut_at(1025, body_text.size()));
    c->add(body_text);
    CHECK_FALSE(c->matches());
    CHECK_FALSE(of({sum})->cut_at(0, body_text.size()));
    CHECK_FALSE(of({sum})->cut_at(body_text.size(), body_text.size()));
    CHECK_FALSE(of({sum})->cut_at(999, body_text.size()));
  }
}

TEST_CASE("what cannot be checked against the object's bytes is not a checksum of them", "[s3][checksum]") {
  CHECK_FALSE(of({}).has_value());
  CHECK_FALSE(of({{"x-amz-checksum-crc32c", "QvlYBw=="}, {"x-amz-checksum-type", "COMPOSITE"}}).has_value());
  CHECK_FALSE(of({{"x-amz-checksum-crc32c", "QvlYBw==-2"}, {"x-amz-checksum-type", "FULL_OBJECT"}}).has_value());
  CHECK_FALSE(of({{"x-amz-checksum-crc32c", "QvlYBw=="}, {"x-amz-checksum-type", "OTHER"}}).has_value());
  CHECK(of({{"x-amz-checksum-crc32c", "QvlYBw=="}, {"x-amz-checksum-type", "FULL_OBJECT"}}).has_value());
  CHECK_FALSE(of({{"x-amz-checksum-sha512", "QvlYBw=="}}).has_value());
  for (const char* value : {"", "QvlY", "QvlYBw=", "=", "====", "not base64!!", "QvlYBwAA",
                            "QvlYBw==QvlYBw==", "QvlYBw==-", "QvlYBw==-0", "QvlYBw==-x", "QvlYBw==-123456", "-7"}) {
    INFO(value);
    CHECK_FALSE(of({{"x-amz-checksum-crc32c", value}}).has_value());
  }
  CHECK_FALSE(of({{"x-amz-checksum-crc32c", std::string(1000, 'A')}}).has_value());
}

TEST_CASE("an object of one part is read whole and compared with its checksum", "[s3][checksum]") {
  for (const field& sum : sums) {
    checked o(body_text, {sum});
    CHECK(o.get() == "right");
    CHECK(o.ranges() == ranges{""});
  }
  checked none(body_text, {});
  CHECK(none.get() == "right");
  checked larger(body_text, sums);
  CHECK(larger.get(1000) == "a part");
  CHECK(larger.ranges() == ranges{"bytes=0-999"});
}

TEST_CASE("an object that is likely small is read whole and compared; a longer one by its range", "[s3][checksum]") {
  checked o(body_text, sums);
  const auto loop = make_event_loop();
  const s3::client client = test::checking_client(o.server);
  const auto get = [&](std::size_t likely) {
    o.server.log().clear();
    return block_on(*loop, client.get("s3://b/k", 0, likely, "", slab_pool(256 * KiB), {.likely_whole = true}));
  };
  s3::object_part p = get(body_text.size());
  CHECK(p.data.view() == body_text);
  CHECK(p.whole);
  CHECK(p.object.size == body_text.size());
  CHECK(o.ranges() == ranges{""});
  p = get(body_text.size() - 1);
  CHECK(p.data.view() == body_text.substr(0, body_text.size() - 1));
  CHECK_FALSE(p.whole);
  CHECK(p.object.size == body_text.size());
  CHECK(o.ranges() == ranges{"", "bytes=0-2998"});

  o.server.faults().add({.key = "k", .times = 1}, fault::flipped_bit(1234));
  p = get(4000);
  CHECK(p.data.view() == body_text);
  CHECK(p.again);
  CHECK(o.ranges() == ranges{"", ""});
  o.server.faults().clear();
  o.server.faults().add({.key = "k", .times = 1}, fault::close_in_body(1000));
  p = get(4000);
  CHECK(p.data.view() == body_text);
  CHECK(p.whole);
  CHECK(o.ranges() == ranges{"", "bytes=1000-3999"});
  o.server.faults().clear();
  o.server.faults().add({.key = "k", .times = 1}, fault::page(200));
  p = get(4000);
  CHECK(p.data.view() == body_text);
  CHECK_FALSE(p.whole);
  CHECK(o.ranges() == ranges{"", "bytes=0-3999"});
  o.server.faults().clear();
  o.server.put("b", "k", std::string());
  p = get(4000);
  CHECK(p.data.empty());
  CHECK(p.object.size == 0);
  CHECK(o.ranges() == ranges{""});
}

TEST_CASE("the CRC of a range is computed as it comes, unless nothing will compare it", "[s3][checksum]") {
  const std::string kind = GENERATE("crc32", "crc32c", "crc64nvme");
  const std::string text = text_of(30'000);
  namespace digests = s3_server::detail;
  checked o(text, {{"x-amz-checksum-" + kind, digests::to_base64(digests::checksum_of(kind, text))}});
  const auto loop = make_event_loop();
  const s3::client client = test::checking_client(o.server);
  const slab_pool slabs(64 * KiB);
  const auto get = [&](const slab_pool& into, std::uint64_t offset, std::optional<std::uint64_t> size) {
    s3::object_part p = block_on(*loop, client.get("s3://b/k", offset, 10'000, "", into, {.size = size}));
    CHECK(p.data.view() == text.substr(offset, 10'000));
    return p.crc;
  };
  block_on(*loop, client.checksum("s3://b/k"));  // from now on this kind is expected
  CHECK(get(slabs, 10'000, {}).size() == 10'000);
  CHECK(get(slabs.uncompared(), 10'000, {}).kind() == crc_kind::none);
  CHECK(get(slabs.uncompared().summed(), 10'000, {}).kind() == crc_kind::none);
  // A whole object is compared with what comes with it, whatever memory it is read into.
  const auto whole = [&](const slab_pool& into) {
    return block_on(*loop, client.get("s3://b/k", 0, 64 * KiB, "", into, {.size = text.size()}));
  };
  CHECK(whole(slabs.uncompared()).crc.size() == text.size());
  o.server.faults().add({.key = "k", .times = 1}, fault::flipped_bit(12'345));
  CHECK(whole(slabs.uncompared()).again);
}

TEST_CASE("where blocks of memory are summed, the CRC-32C of an object is made of their sums", "[s3][checksum]") {
  const std::string text = text_of(30'000);
  running_crc right(crc_kind::crc32c);
  right.add(text.data(), text.size());
  std::string base64(8, '\0');
  {
    unsigned char raw[4];
    for (int i = 0; i < 4; ++i) raw[i] = static_cast<unsigned char>(right.value() >> (24 - 8 * i));
    base64 = s3_server::detail::to_base64(std::string_view(reinterpret_cast<const char*>(raw), 4));
  }
  checked o(text, {{"x-amz-checksum-crc32c", base64}});
  const auto loop = make_event_loop();
  const s3::client client = test::checking_client(o.server);
  const auto get = [&] {
    o.server.log().clear();
    const slab_pool summed = slab_pool(64 * KiB).summed();
    s3::object_part p = block_on(*loop, client.get("s3://b/k", 0, 64 * KiB, "", summed, {.size = text.size()}));
    CHECK(p.data.view() == text);
    CHECK(p.crc.kind() == crc_kind::crc32c);
    CHECK(p.crc.value() == right.value());
    CHECK(p.crc.size() == text.size());
    return p.again;
  };
  CHECK_FALSE(get());
  CHECK_FALSE(get());
  o.server.faults().add({.key = "k", .times = 1}, fault::flipped_bit(12'345));
  CHECK(get());
  o.server.faults().clear();
  o.server.faults().add({.key = "k", .times = 1}, fault::close_in_body(10'000));
  CHECK_FALSE(get());
  CHECK(o.ranges() == ranges{"", "bytes=10000-29999"});
  o.server.faults().clear();
  o.server.faults().add({.key = "k"}, fault::flipped_bit(12'345));
  CHECK_THROWS_AS(get(), s3::checksum_error);
}

TEST_CASE("a damaged object is read once more, then named", "[s3][checksum]") {
  checked o(body_text, sums);
  o.server.faults().add({.key = "k", .times = 1}, fault::flipped_bit(1234));
  CHECK(o.get() == "right");
  CHECK(o.ranges().size() == 2);
  o.server.faults().clear();
  o.server.log().clear();
  o.server.faults().add({.key = "k"}, fault::flipped_bit(1234));
  CHECK_THAT(o.get(), Contains("checksum: s3://b/k: ") && Contains("crc32c") &&
                          Contains("read twice, and both times the same: it is so in the store"));
  CHECK(o.ranges().size() == 2);
  o.server.faults().clear();
  o.server.faults().add({.key = "k", .nth = 1}, fault::flipped_bit(1234));
  o.server.faults().add({.key = "k", .nth = 2}, fault::flipped_bit(1235));
  CHECK_THAT(o.get(), Contains("read twice, and not the same: data are damaged on their way"));
  // Without the check it would not be noticed.
  checked blind(body_text, sums, false);
  blind.server.faults().add({.key = "k"}, fault::flipped_bit(1234));
  CHECK(blind.get() == "wrong");
  CHECK(blind.ranges() == ranges{"bytes=0-65535"});
}

TEST_CASE("what came damaged is read over another connection than that it came over", "[s3][checksum]") {
  checked o(body_text, sums);
  o.server.faults().add({.key = "k", .nth = 2}, fault::flipped_bit(1234));
  const auto loop = make_event_loop();
  const slab_pool slabs(256 * KiB);
  s3::client client = test::checking_client(o.server);
  const auto got = [&](bool new_connection) {
    return block_on(*loop, client.get("s3://b/k", 0, 64 * KiB, "", slabs,
                                      {.size = body_text.size(), .new_connection = new_connection}));
  };
  CHECK_FALSE(got(false).again);
  CHECK(got(false).again);
  CHECK_FALSE(got(false).again);
  CHECK_FALSE(got(true).again);  // asked for by who has other means to tell
  std::vector<std::uint64_t> connections;
  for (const auto& r : o.server.log().entries()) connections.push_back(r.connection);
  REQUIRE(connections.size() == 5);
  CHECK(connections[1] == connections[0]);
  CHECK(connections[2] != connections[1]);
  CHECK(connections[4] > connections[3]);
}

TEST_CASE("a whole object that breaks off is resumed, and its checksum covers both pieces", "[s3][checksum]") {
  checked o(body_text, sums);
  o.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(1000));
  CHECK(o.get() == "right");
  CHECK(o.ranges() == ranges{"", "bytes=1000-2999"});
  // The second piece is damaged: all of it once more.
  o.server.faults().clear();
  o.server.log().clear();
  o.server.faults().add({.key = "k", .nth = 1}, fault::close_in_body(1000));
  o.server.faults().add({.key = "k", .nth = 2}, fault::flipped_bit(7));
  CHECK(o.get() == "right");
  CHECK(o.ranges() == ranges{"", "bytes=1000-2999", ""});
}

TEST_CASE("an object of one part that was uploaded in several is compared with the checksum of theirs",
          "[s3][checksum]") {
  checked o(body_text, {{"x-amz-checksum-crc32", "2nAzBQ==-3"}, {"x-amz-checksum-type", "COMPOSITE"}}, true,
            {1024, 1024, 952});
  CHECK(o.get() == "right");
  o.server.faults().add({.method = "GET", .key = "k", .times = 1}, fault::flipped_bit(1234));
  CHECK(o.get() == "right");  // the second time
  o.server.faults().clear();
  o.server.faults().add({.method = "GET", .key = "k"}, fault::flipped_bit(1234));
  CHECK_THAT(o.get(), Contains("checksum: s3://b/k: ") && Contains("crc32"));
  checked uneven(body_text, {{"x-amz-checksum-crc32", "2nAzBQ==-3"}}, true, {1024, 1000, 976});
  CHECK(uneven.get() == "right");  // it cannot be known
}

TEST_CASE("an object that is not as long as it was listed has changed", "[s3][checksum]") {
  checked o(body_text, {});
  o.server.put("b", "k", body_text.substr(1));
  CHECK_THAT(o.get(), Contains("s3://b/k") && Contains("changed"));
  CHECK_THAT(o.get(64 * KiB, false), Contains("3000 bytes became 2999"));
  checked page(body_text, {});  // what has no ETag is no object of the store's
  page.server.faults().add({.key = "k", .nth = 1}, fault::page(200));
  CHECK(page.get() == "right");
  page.server.faults().add({.key = "k", .nth = 1}, fault::page(200));
  CHECK(page.get(64 * KiB, false) == "right");
  CHECK(page.server.faults().injected() == 2);
}
