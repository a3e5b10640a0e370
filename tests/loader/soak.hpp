// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/tar/writer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

/// What the soak tests read, and the books that they keep of what came.
namespace millrace::soak {

inline std::string sha256(std::string_view text) {
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
  data_set(s3_server::store& objects, const std::string& name, int shard_count, std::uint64_t members,
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
      s3_server::object o(millrace::bytes::copy(archive));
      const char* const algorithm = n % 3 == 0 ? "crc32c" : n % 3 == 1 ? "crc64nvme" : "sha256";
      o.checksums.emplace_back(
          std::string("x-amz-checksum-") + algorithm,
          s3_server::detail::to_base64(s3_server::detail::checksum_of(algorithm, archive)));
      sizes[prefix + key] = o.size;
      objects.put("soak", name + "/" + key, std::move(o));
    }
  }

  const std::string prefix;
  const int last;
  digests expected;
  std::map<std::string, std::uint64_t> sizes;
};

/// One reading of a data set under faults: the books of what came.
class reading {
 public:
  explicit reading(const data_set& d) : data_(d), missing_(d.expected) {}

  /// Reads everything; after a reported error, what follows the shard that it names. `deliver(source)` runs a
  /// pipeline after `source` and calls take() for every member.
  template <class Deliver>
  void read_all(const s3::client& c, bool sizes_known, Deliver deliver) {
    bool listed = false;
    while (!missing_.empty() && errors < data_.expected.size()) {
      stream<shard> source = listed ? from_range(rest(sizes_known))
                                      : sizes_known
                                          ? c.list(data_.prefix)
                                          : shards(data_.prefix + "{000..0" + std::to_string(data_.last) + "}.tar");
      listed = true;
      try {
        deliver(std::move(source));
        end();
      } catch (const error& e) {
        report(e);
      }
    }
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

  /// What would come next, for the report of a hang.
  std::string position() const {
    auto next = missing_.begin();
    std::size_t at = 0;
    if (next != missing_.end() && next->first == current_) {
      at = at_;
      if (at == next->second.size()) {
        ++next;
        at = 0;
      }
    }
    return next == missing_.end() ? "the end" : "member " + next->second[at].first + " of " + next->first;
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

}  // namespace millrace::soak
