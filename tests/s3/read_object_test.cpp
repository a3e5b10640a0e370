// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/ops/get_object.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;

namespace {

class store {
 public:
  store() : client_(config(), s3::credentials("test-key", "test-secret")) {}

  std::string read(std::string_view key) { return std::string(block_on(*loop_, client_.read(url(key))).view()); }
  std::string read(std::string_view key, std::size_t max_bytes) {
    return std::string(block_on(*loop_, client_.read(url(key), max_bytes)).view());
  }

  s3_server::background server;

 private:
  static std::string url(std::string_view key) { return "s3://b/" + std::string(key); }
  s3::config config() const {
    const std::string endpoint = server.endpoint();
    s3::config_options o;
    o.endpoint = endpoint;
    return s3::config(o);
  }

  s3::client client_;
  std::unique_ptr<event_loop> loop_ = make_event_loop();
};

}  // namespace

TEST_CASE("a whole object is read into one piece of memory", "[s3][read]") {
  store s;
  std::string large;
  for (std::size_t i = 0; i < 3 * MiB + 17; ++i) large += static_cast<char>(i * i >> 7);
  s.server.put("b", "labels.json", std::string_view("{\"cat\": 1}"));
  s.server.put("b", "large", bytes::copy(large));
  s.server.put("b", "empty", std::string_view());
  CHECK(s.read("labels.json") == "{\"cat\": 1}");
  CHECK((s.read("large") == large));
  CHECK(s.read("empty").empty());
  CHECK(s.read("empty", 0).empty());
}

TEST_CASE("an object that is larger than allowed is an error that names it and both sizes", "[s3][read]") {
  store s;
  s.server.put("b", "labels.json", std::string_view("0123456789"));
  CHECK(s.read("labels.json", 10) == "0123456789");
  try {
    s.read("labels.json", 9);
    FAIL("no error");
  } catch (const http::error& e) {
    CHECK(e.what() == std::string("s3://b/labels.json: the object's 10 bytes are more than the limit of 9"));
    CHECK((e.kind() == http::failure::too_large));
  }
}

TEST_CASE("an object or bucket that is not there is S3's error, a bucket alone is none to read", "[s3][read]") {
  store s;
  s.server.put("b", "k", std::string_view("x"));
  try {
    s.read("missing");
    FAIL("no error");
  } catch (const s3::error& e) {
    CHECK(e.status() == 404);
    CHECK(e.code() == "NoSuchKey");
    CHECK(e.object() == "s3://b/missing");
  }
  CHECK_THROWS_AS(s.read(""), configuration_error);
}
