// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/client.hpp>

// The type that checksum() returns is complete by that header alone, also where the bodies are compiled once.
static_assert(sizeof(millrace::s3::object_checksum) > 0);

#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/http/message.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/auth/default_credentials.hpp>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/scripted_server.hpp"
#include "tests/support/temporary_folder.hpp"

namespace {

using namespace millrace;
using Catch::Matchers::Contains;
using test::environment_of;
using test::scripted_answer;
using test::scripted_server;
using test::variables;

std::string get(const s3::client& c) {
  const auto loop = make_event_loop();
  try {
    return std::to_string(block_on(*loop, c.get("s3://b/k", 0, 64 * KiB, "", slab_pool(64 * KiB))).data.size());
  } catch (const error& e) {
    return e.what();
  }
}

std::string head(const s3::client& c, const std::string& url = "s3://b/k") {
  const auto loop = make_event_loop();
  try {
    return std::to_string(block_on(*loop, c.head(url)).size);
  } catch (const error& e) {
    return e.what();
  }
}

scripted_answer ok(const std::string& body) {
  return {"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body};
}

constexpr const char* instance_keys =
    "{\"Code\":\"Success\",\"AccessKeyId\":\"test-key\",\"SecretAccessKey\":\"test-secret\",\"Token\":\"tok\","
    "\"Expiration\":\"2999-01-01T00:00:00Z\"}";

}  // namespace

TEST_CASE("a client takes endpoint and keys from a profile, and nothing is asked before the first request",
          "[s3][client]") {
  s3_server::background server;
  server.put("b", "k", "12345");
  test::temporary_folder f;
  const std::string ran = f.file("ran");
  const std::string keys = "\\\"AccessKeyId\\\":\\\"test-key\\\",\\\"SecretAccessKey\\\":\\\"test-secret\\\"";
  variables v;
  v["AWS_CONFIG_FILE"] =
      f.file("config", "[profile p]\nregion = us-east-1\nendpoint_url = " + server.endpoint() +
                           "\ncredential_process = touch " + ran + "; echo \"{\\\"Version\\\":1," + keys + "}\"\n");
  v["AWS_PROFILE"] = "p";
  v["http_proxy"] = "http://127.0.0.1:1";  // there is no server, and it is not used
  CHECK(head(s3::client::from_environment(environment_of(v))) == "5");
  ::unlink(ran.c_str());
  const s3::client c = s3::client::from_environment(environment_of(v));
  CHECK(c.configuration().endpoint_url == server.endpoint());
  CHECK(::access(ran.c_str(), F_OK) != 0);
  CHECK(head(c) == "5");
  CHECK(::access(ran.c_str(), F_OK) == 0);
  CHECK(head(c) == "5");
}

TEST_CASE("a client whose credentials expire asks for others", "[s3][client]") {
  s3_server::options o;
  o.keys["old-key"] = s3_server::access_key("old-secret", "old-token", true);
  s3_server::background server(o);
  server.put("b", "k", "12345");
  test::temporary_folder f;
  const std::string ran = f.file("ran");
  const std::string old_keys = f.file(
      "old",
      "{\"Version\":1,\"AccessKeyId\":\"old-key\",\"SecretAccessKey\":\"old-secret\",\"SessionToken\":\"old-token\"}");
  const std::string new_keys =
      f.file("new", "{\"Version\":1,\"AccessKeyId\":\"test-key\",\"SecretAccessKey\":\"test-secret\"}");
  variables v;
  v["AWS_CONFIG_FILE"] = f.file("config", "[default]\ncredential_process = echo x >> " + ran + "; [ $(wc -l < " + ran +
                                              ") = 1 ] && cat " + old_keys + " || cat " + new_keys + "\n");
  v["AWS_REGION"] = "us-east-1";
  v["AWS_ENDPOINT_URL"] = server.endpoint();
  for (const bool by_head : {false, true}) {  // whose answer does not say so
    const s3::client c = s3::client::from_environment(environment_of(v));
    CHECK((by_head ? head(c) : get(c)) == "5");
    CHECK((by_head ? head(c) : get(c)) == "5");
    CHECK(test::read_file(ran) == "x\nx\n");
    ::unlink(ran.c_str());
  }
}

TEST_CASE("instance credentials and the instance's region are the last resort, and no proxy sees them",
          "[s3][client]") {
  scripted_server metadata({ok("t"), ok("role"), ok(instance_keys), ok("t"), ok("eu-west-7")});
  scripted_server proxy({{"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", scripted_answer::then::fin}});
  variables v;
  v["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = metadata.url("");
  for (const char* name : {"http_proxy", "https_proxy", "all_proxy"}) v[name] = proxy.url("");
  const s3::client c = s3::client::from_environment(environment_of(v), {.max_attempts = 1});
  CHECK(metadata.connections() == 0);
  const std::string said = head(c, "s3://bucket/key");
  CHECK_THAT(said, Contains("s3://bucket/key: ") && Contains("(https://bucket.s3.eu-west-7.amazonaws.com)") &&
                       Contains("the proxy " + proxy.url("") + " answers 403"));
  const std::vector<std::string> asked = metadata.requests();
  REQUIRE(asked.size() == 5);
  CHECK_THAT(asked[0], Catch::Matchers::StartsWith("PUT /latest/api/token HTTP/1.1"));
  CHECK_THAT(asked[2], Catch::Matchers::StartsWith("GET /latest/meta-data/iam/security-credentials/role HTTP/1.1"));
  CHECK_THAT(asked[4], Catch::Matchers::StartsWith("GET /latest/meta-data/placement/region HTTP/1.1"));
  REQUIRE(proxy.requests().size() == 1);
  CHECK_THAT(proxy.requests()[0], Catch::Matchers::StartsWith("CONNECT bucket.s3.eu-west-7.amazonaws.com:443"));
  head(c, "s3://bucket/key");
  CHECK(metadata.requests().size() == 5);  // both are known now
}

TEST_CASE("requests are anonymous only when that is asked for", "[s3][client]") {
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::read;
  s3_server::background server(o);
  server.put("b", "k", "12345");
  variables v = {
      {"AWS_ENDPOINT_URL", server.endpoint()}, {"AWS_REGION", "us-east-1"}, {"AWS_EC2_METADATA_DISABLED", "true"}};
  CHECK_THAT(head(s3::client::from_environment(environment_of(v))), Contains("no AWS credentials (environment: "));
  CHECK(head(s3::client::from_environment(environment_of(v), {.anonymous = true})) == "5");
  v["AWS_ACCESS_KEY_ID"] = "half";
  CHECK_THROWS_AS(s3::client::from_environment(environment_of(v)), configuration_error);
  CHECK(head(s3::client::from_environment(environment_of(v), {.anonymous = true})) == "5");
}

TEST_CASE("silence where credentials are asked for ends after seconds, not minutes", "[s3][client]") {
  scripted_server silent({{"", scripted_answer::then::stall}});
  s3::detail::surroundings world{http::transport_options()};
  s3::detail::request_limits limits;
  limits.total = std::chrono::milliseconds(5);
  limits.connect = std::chrono::seconds(100);
  const auto loop = make_event_loop();
  CHECK_THROWS_AS(block_on(*loop, world.send(http::request(silent.url()), limits)), http::error);
  CHECK(world.now() > 1'700'000'000);
  const double one = world.random();
  CHECK(one >= 0);
  CHECK(one < 1);
  CHECK(one != world.random());
}

TEST_CASE("the body of a request for credentials, a secret, is overwritten when it has been sent", "[s3][client]") {
  scripted_server server({ok("direct")});
  const s3::detail::surroundings world{http::transport_options()};
  http::request r("POST", server.url());
  r.body = bytes::copy("secret");
  const bytes body = r.body;
  const auto loop = make_event_loop();
  CHECK(block_on(*loop, world.send(std::move(r), s3::detail::request_limits())).body == "direct");
  CHECK(body.view() == std::string_view("\0\0\0\0\0\0", 6));
}

TEST_CASE("what is asked of this machine goes past the proxy", "[s3][client]") {
  scripted_server target({ok("direct")});
  scripted_server proxy({ok("by proxy")});
  http::transport_options services;
  services.proxy = proxy.url("");
  const s3::detail::surroundings world(services);
  const auto loop = make_event_loop();
  s3::detail::request_limits limits;
  CHECK(block_on(*loop, world.send(http::request(target.url()), limits)).body == "by proxy");
  limits.direct = true;
  CHECK(block_on(*loop, world.send(http::request(target.url()), limits)).body == "direct");
}
