// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/auth/spot_notice.hpp>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/s3/auth/detail/metadata_sources.hpp>
#include <millrace/s3/config/profile_file.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/s3/recorded_world.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

constexpr const char* root = "http://169.254.169.254";

test::recorded_exchange token(int status = 200) {
  test::recorded_exchange e;
  e.method = "PUT";
  e.url = std::string(root) + "/latest/api/token";
  e.fields = {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}};
  e.status = status;
  e.answer = "a-token";
  return e;
}
test::recorded_exchange asked(int status, std::string answer = {}) {
  test::recorded_exchange e;
  e.method = "GET";
  e.url = std::string(root) + "/latest/meta-data/spot/instance-action";
  e.fields = {{"x-aws-ec2-metadata-token", "a-token"}};
  e.status = status;
  e.answer = std::move(answer);
  return e;
}
const char* const notice = R"({"action": "terminate", "time": "2026-11-26T08:22:00Z"})";

s3::detail::instance_place place(const char* disabled = nullptr) {
  const auto look_up = [&](const char* name) -> const char* {
    return std::string_view(name) == "AWS_EC2_METADATA_DISABLED" ? disabled : nullptr;
  };
  const environment variables(look_up);
  const s3::settings s(variables, [](const std::string&) { return s3::detail::file_text(ENOENT); });
  s3::detail::instance_place here(s);
  here.limits.attempts = 1;
  return here;
}

/// The notice, and after how many seconds of virtual time.
std::pair<std::string, double> notice_of(test::recorded_world& world) {
  testing::virtual_loop loop;
  const time_point begun = loop.now();
  auto watching = s3::detail::watch_for_spot_notice(world, place(), std::chrono::seconds(5));
  std::string text = block_on(loop, std::move(watching));
  return {std::move(text), std::chrono::duration<double>(loop.now() - begun).count()};
}

}  // namespace

TEST_CASE("a spot notice is returned when the metadata service has it") {
  test::recorded_world world;
  world.exchanges = {token(), asked(404), asked(404), asked(200, notice)};
  const auto [text, after] = notice_of(world);
  CHECK(text == "spot notice: terminate at 2026-11-26T08:22:00Z");
  CHECK(after == Approx(10));
  CHECK(world.complaints.empty());
}

TEST_CASE("no answer, 5xx, an expired token and what cannot be read are no spot notice") {
  test::captured_stderr err(test::captured_stderr::into::pipe);
  test::recorded_world world;
  world.exchanges = {token(0),   token(503), token(), asked(503), asked(0), asked(200, "<html>"), asked(404),
                     asked(500), asked(401), token(), asked(200, R"({"action": "stop"})")};
  const auto [text, after] = notice_of(world);
  CHECK(text == "spot notice: stop at a time that is not given");
  CHECK(after == Approx(35));
  CHECK(world.complaints.empty());
  const std::string lines = err.text();
  INFO(lines);
  // One line until an answer comes again.
  std::size_t n = 0;
  for (std::size_t at = 0; (at = lines.find("spot notices cannot be seen now", at)) != std::string::npos; ++at) ++n;
  CHECK(n == 2);
}

TEST_CASE("spot notices of an instance without metadata are an error") {
  test::recorded_world world;
  testing::virtual_loop loop;
  auto watching = s3::detail::watch_for_spot_notice(world, place("true"), std::chrono::seconds(5));
  CHECK_THROWS_WITH(block_on(loop, std::move(watching)),
                    Catch::Matchers::Contains("AWS_EC2_METADATA_DISABLED is true"));
}
