// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/ops/objects.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "tests/s3/uploading.hpp"
#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

namespace {

s3::client client_of(const std::string& endpoint, variables v) {
  v["AWS_REGION"] = "us-east-1";
  v["AWS_ENDPOINT_URL"] = endpoint;
  s3::config_options o;
  o.retry.base = std::chrono::microseconds(1);
  return s3::client(s3::config::from_environment(environment_of(v), o), s3::credentials("test-key", "test-secret"));
}

const std::string sha256_of_text = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1";  // of "text"

/// The head of the request that stores "text".
std::string head_of_put(variables v, std::optional<bool> checksums = std::nullopt) {
  const scripted_server server(
      {{"HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\n\r\n", scripted_answer::then::fin}});
  s3::put_options o;
  o.checksums = checksums;
  const auto loop = make_event_loop();
  const s3::client c = client_of(server.url(""), std::move(v));
  CHECK(block_on(*loop, c.put("s3://b/k", bytes::copy("text"), o)) == "\"x\"");
  REQUIRE(server.requests().size() == 1);
  return server.requests().front();
}

constexpr const char* whole = "200 OK\r\n";
constexpr const char* range = "206 Partial Content\r\nContent-Range: bytes 0-3/4\r\n";

/// The head of the request that reads "text", an object whose length is known; the store answers `how` and says that
/// the CRC-32C is `sum`.
std::string head_of_get(variables v, const std::string& how, const std::string& sum) {
  const scripted_server server(
      {{"HTTP/1.1 " + how + "ETag: \"x\"\r\nx-amz-checksum-crc32c: " + sum + "\r\nContent-Length: 4\r\n\r\ntext",
        scripted_answer::then::fin}});
  const auto loop = make_event_loop();
  const s3::client c = client_of(server.url(""), std::move(v));
  const s3::object_part part = block_on(*loop, c.get("s3://b/k", 0, 64 * KiB, "", slab_pool(64 * KiB), {.size = 4}));
  CHECK(part.data.view() == "text");
  REQUIRE(server.requests().size() == 1);
  return server.requests().front();
}

const char* const of_uploads = "AWS_REQUEST_CHECKSUM_CALCULATION";
const char* const of_answers = "AWS_RESPONSE_CHECKSUM_VALIDATION";

}  // namespace

TEST_CASE("uploads carry a checksum where that is supported, or only where it is asked for", "[s3][checksum]") {
  const auto carries = Contains("\r\nx-amz-checksum-crc32c: ");
  const auto signed_payload = Contains("\r\nx-amz-content-sha256: " + sha256_of_text + "\r\n");
  CHECK_THAT(head_of_put({}), carries && signed_payload);
  CHECK_THAT(head_of_put({{of_uploads, "when_supported"}}), carries && signed_payload);
  CHECK_THAT(head_of_put({}, false), !Contains("checksum") && signed_payload);
  CHECK_THAT(head_of_put({{of_uploads, "when_required"}}), !Contains("checksum") && signed_payload);
  CHECK_THAT(head_of_put({{of_uploads, "when_required"}}, true), carries && signed_payload);
  CHECK_THAT(head_of_put({{of_answers, "when_required"}}), carries);
}

TEST_CASE("uploads in parts without checksums: neither the parts nor the object have one", "[s3][checksum]") {
  s3_server::background server(small_part_server());
  server.objects().create_bucket("b");
  const std::string body = pattern(2500);
  for (const char* mode : {"when_supported", "WHEN_REQUIRED"}) {
    const auto loop = make_event_loop();
    const s3::client c = client_of(server.endpoint(), {{of_uploads, mode}});
    CHECK(block_on(*loop, c.put("s3://b/k", pieces_of(body, 700), small_parts)).size == body.size());
    CHECK((content_of(server, "k") == body));
    CHECK(server.objects().find("b", "k")->checksums.empty() == (mode[0] == 'W'));
  }
}

TEST_CASE("checksums of answers are asked for and compared, or not at all", "[s3][checksum]") {
  const std::string right = "L1MZ4Q==";
  const std::string wrong = "AAAAAA==";
  const auto asks = Contains("\r\nx-amz-checksum-mode: ENABLED\r\n");
  CHECK_THAT(head_of_get({}, whole, right), asks);
  CHECK_THAT(head_of_get({{of_answers, "when_supported"}}, whole, right), asks);
  CHECK_THAT(head_of_get({{of_uploads, "when_required"}}, whole, right), asks);
  CHECK_THROWS_AS(head_of_get({}, whole, wrong), s3::checksum_error);
  // A store may send one all the same: it does not count.
  CHECK_THAT(head_of_get({{of_answers, "when_required"}}, range, wrong), !Contains("checksum"));
}
