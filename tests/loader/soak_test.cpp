// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/run.hpp>

#include <openssl/evp.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/flow/from_range.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/origin/background.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using origin_server::random_faults;

namespace {

std::string sha256(std::string_view text) {
  std::string out(32, '\0');
  REQUIRE(EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(out.data()), nullptr, EVP_sha256(),
                     nullptr) == 1);
  return out;
}

/// Name and SHA-256 of every member, by the URL of its shard.
using digests = std::map<std::string, std::vector<std::pair<std::string, std::string>>>;

/// A data set on an S3 server: shards of 1 to `members` members of up to `bytes` bytes, with checksums.
class data_set {
 public:
  data_set(origin_server::background& origin, std::string name, int shard_count, std::uint64_t members,
           std::uint64_t bytes)
      : prefix("s3://soak/" + name + "/"), last(shard_count - 1) {
    rng random(members);
    for (int n = 0; n < shard_count; ++n) {
      char key[32];
      std::snprintf(key, sizeof key, "%03d.tar", n);
      std::string archive;
      tar::writer w(archive);
      auto& content = expected["s3://soak/" + name + "/" + key];
      const std::uint64_t count = 1 + random.below(members);
      for (std::uint64_t i = 0; i < count; ++i) {
        std::string body(random.below(bytes), '\0');
        for (std::size_t at = 0; at < body.size(); at += 8) {
          const std::uint64_t word = random.next();
          for (std::size_t b = 0; b < 8 && at + b < body.size(); ++b) body[at + b] = static_cast<char>(word >> (8 * b));
        }
        const std::string member_name = std::to_string(i) + ".bin";
        content.emplace_back(member_name, sha256(body));
        w.add(member_name, body);
      }
      w.finish();
      origin_server::object o(millrace::bytes::copy(archive));
      const char* const algorithm = n % 3 == 0 ? "crc32c" : n % 3 == 1 ? "crc64nvme" : "sha256";
      o.checksums.emplace_back(
          std::string("x-amz-checksum-") + algorithm,
          origin_server::detail::to_base64(origin_server::detail::checksum_of(algorithm, archive)));
      sizes[prefix + key] = o.size;
      origin.objects().put("soak", name + "/" + key, std::move(o));
    }
  }

  const std::string prefix;
  const int last;
  digests expected;
  std::map<std::string, std::uint64_t> sizes;
};

struct how {
  random_faults faults = {};
  bool sizes_known = true;
  unsigned loops = 1;
  bool hedge = false;
};

s3::client client_of(const std::string& endpoint) {
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  o.max_attempts = 8;
  // Real pauses would be most of the time of this test.
  o.retry.base = std::chrono::microseconds(50);
  o.retry.throttling_base = std::chrono::microseconds(200);
  o.retry.max_pause = std::chrono::milliseconds(5);
  o.retry.max_over_hint = std::chrono::milliseconds(1);
  http::transport_options t;
  t.first_byte_timeout = std::chrono::milliseconds(250);
  t.stall_timeout = std::chrono::milliseconds(100);
  return s3::client(s3::config(o),
                    std::make_shared<s3::fixed_credentials>(s3::credentials("origin-key", "origin-secret")), t);
}

/// One reading of a data set under faults: the books of what came.
class reading {
 public:
  explicit reading(const data_set& d) : data_(d), missing_(d.expected) {}

  /// Reads everything; after a reported error, what lies behind the shard that it names.
  void run_all(const s3::client& c, const how& h) {
    constexpr fetch_options narrow{.shards = 6, .window = 256 * KiB, .part = 64 * KiB};
    const std::shared_ptr<const storage> plain = s3::as_storage(c);
    const std::shared_ptr<const storage> store =
        h.hedge ? hedged(plain, {.least = std::chrono::milliseconds(5)}) : plain;
    bool listed = false;
    while (!missing_.empty() && errors < data_.expected.size()) {
      async_generator<shard> source = listed ? from_range(rest(h.sizes_known))
                                      : h.sizes_known
                                          ? c.list(data_.prefix)
                                          : shards(data_.prefix + "{000..0" + std::to_string(data_.last) + "}.tar");
      listed = true;
      try {
        for (member& m : run(std::move(source) | fetch(store, narrow) | untar(), {.loops = h.loops})) take(m);
        end();
      } catch (const error& e) {
        report(e);
      }
    }
  }

  std::size_t members = 0;
  std::size_t errors = 0;

 private:
  std::vector<shard> rest(bool sizes_known) const {
    std::vector<shard> out;
    for (const auto& [url, left] : missing_) {
      out.push_back(sizes_known ? shard(url, data_.sizes.at(url)) : shard(url));
    }
    return out;
  }

  /// The members of a shard come in order, and all of them before those of the next shard.
  void take(const member& m) {
    if (current_ != m.from.url()) {
      finish_current();
      current_ = m.from.url();
      at_ = 0;
      REQUIRE(missing_.count(current_) == 1);
      REQUIRE(missing_.begin()->first == current_);
    }
    const auto& due = missing_.at(current_);
    REQUIRE(at_ < due.size());
    REQUIRE(m.entry.name == due[at_].first);
    const bool equal = sha256(m.entry.body.view()) == due[at_].second;
    REQUIRE(equal);
    ++at_;
    ++members;
  }
  void finish_current() {
    if (current_.empty()) return;
    REQUIRE(at_ == missing_.at(current_).size());
    missing_.erase(current_);
    current_.clear();
  }
  void end() {
    finish_current();
    REQUIRE(missing_.empty());
  }
  /// An error names its shard; those before it have come whole.
  void report(const error& e) {
    ++errors;
    const std::string what = e.what();
    std::fprintf(stderr, "soak: reported: %s\n", what.c_str());
    std::string failed;
    for (const auto& [url, left] : missing_) {
      if (what.find(url.substr(5)) != std::string::npos) failed = url;
    }
    if (failed.empty()) {  // the listing
      REQUIRE(current_.empty());
      return;
    }
    if (current_ != failed) finish_current();
    current_.clear();
    REQUIRE(missing_.begin()->first == failed);
    missing_.erase(failed);
  }

  const data_set& data_;
  digests missing_;
  std::string current_;
  std::size_t at_ = 0;
};

}  // namespace

TEST_CASE("soak: thousands of transfers under random faults deliver every member as it was stored, or say which not") {
  const std::uint64_t seed = testing::virtual_loop::seed_from_environment(20'261'121);
  std::fprintf(stderr, "soak: MILLRACE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  INFO("MILLRACE_SEED=" << seed);
  origin_server::options o;
  o.list_page = 7;
  origin_server::background origin(o);
  const data_set large(origin, "large", 40, 40, 40'000);  // shards of several parts
  const data_set small(origin, "small", 60, 4, 12'000);   // of one part: their checksums are compared
  const s3::client c = client_of(origin.endpoint());

  const auto round = [&](const data_set& data, how h, std::uint64_t number) {
    INFO("round " << number);
    h.faults.seed = seed + number;
    origin.faults().clear();
    origin.faults().randomize(h.faults);
    reading r(data);
    r.run_all(c, h);
    CHECK(r.errors <= data.expected.size() / 10);  // retries are there for that
    CHECK(r.members > 0);
  };
  std::uint64_t number = 0;
  for (int i = 0; i < 3; ++i) {
    round(large, {.faults = {.probability = 0.1}}, ++number);
    round(large, {.faults = {.probability = 0.1}, .sizes_known = false}, ++number);
    round(large, {.faults = {.probability = 0.1}, .loops = 2}, ++number);
    round(large, {.faults = {.probability = 0.2, .silent = false}}, ++number);
    round(small, {.faults = {.probability = 0.2, .damage = true}}, ++number);
  }
  round(large, {.faults = {.probability = 0.05, .slow = true}}, ++number);
  round(large, {.faults = {.probability = 0.05, .slow = true}, .hedge = true}, ++number);
  const std::uint64_t requests = origin.stats().requests;
  std::fprintf(stderr, "soak: %llu requests, %llu faults\n",
               static_cast<unsigned long long>(requests), static_cast<unsigned long long>(origin.faults().injected()));
  CHECK(requests > 4000);
}
