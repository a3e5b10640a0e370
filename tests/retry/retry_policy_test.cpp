// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/retry/retry.hpp>

#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"

namespace {

using millrace::duration;

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    std::string one = text.substr(begin, end == std::string::npos ? end : end - begin);
    one.erase(0, one.find_first_not_of(' '));
    one.erase(one.find_last_not_of(' ') + 1);
    out.push_back(one);
    if (end == std::string::npos) return out;
    begin = end + separator.size();
  }
}

/// The number in parentheses at the end of one step of the table: the tokens left.
std::optional<int> tokens_of(const std::string& step) {
  const std::size_t open = step.find('(');
  if (open == std::string::npos) return std::nullopt;
  const std::size_t digit = step.find_first_of("0123456789", open);
  if (digit == std::string::npos) return std::nullopt;
  return std::atoi(step.c_str() + digit);
}

/// The delay of a step "delay 1 (495)", "0.1 (472)" or "delay 0.05", in nanoseconds.
duration delay_of(const std::string& step) {
  return duration(static_cast<std::int64_t>(std::atof(step.c_str() + step.find_first_of("0123456789")) * 1e9 + 0.5));
}

millrace::failed_attempt failure_of(const std::string& response) {
  millrace::failed_attempt failed;
  if (response == "timeout") {
    failed.what = millrace::classify(0, "");
    return failed;
  }
  const std::vector<std::string> parts = split(response, " + x-amz-retry-after: ");
  std::istringstream in(parts[0]);
  int status = 0;
  std::string code;
  in >> status >> code;
  failed.what = millrace::classify(status, code);
  if (parts.size() > 1) failed.hint = millrace::parse_retry_after(parts[1]);
  return failed;
}

struct table_row {
  millrace::retry_options options;
  int tokens = 0;
  std::string responses;
  std::string expected;
};

void check_row(const table_row& row) {
  millrace::retry_quota quota(500, row.tokens);
  std::vector<std::string> steps = split(row.expected, ";");
  std::size_t step = 0;
  for (const std::string& call : split(row.responses, " then ")) {
    millrace::retry_policy policy(row.options, quota);
    for (const std::string& response : split(call, ",")) {
      if (step >= steps.size() && response != "200") FAIL("more responses than steps");
      std::string expected = step < steps.size() ? steps[step++] : std::string();
      INFO(response << " -> " << expected);
      if (response == "200") {
        policy.after_success();
        if (expected.rfind("tokens ", 0) == 0) expected = "(" + expected.substr(7) + ")";
      } else {
        const std::optional<duration> pause = policy.after_failure(failure_of(response), 1.0);
        const std::size_t colon = expected.find(':');
        if (expected.rfind("give up", 0) == 0) {
          CHECK_FALSE(pause.has_value());
        } else {
          if (colon != std::string::npos) expected.erase(0, colon + 1);  // "new call: delay", "header ignored: delay"
          REQUIRE(pause.has_value());
          CHECK(*pause == delay_of(expected));
        }
      }
      if (const std::optional<int> tokens = tokens_of(expected)) CHECK(quota.tokens() == *tokens);
    }
  }
  if (row.expected.find("no tokens taken") != std::string::npos) CHECK(quota.tokens() == row.tokens);
}

}  // namespace

TEST_CASE("the standard mode decides as the AWS SDKs do", "[s3][retry]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  std::istringstream in(millrace::test::read_file(data + "/retry/standard-mode-cases.tsv"));
  std::string line;
  std::getline(in, line);
  int rows = 0;
  while (std::getline(in, line)) {
    const std::vector<std::string> c = split(line, "\t");
    REQUIRE(c.size() == 8);
    if (c[1].rfind("2.0", 0) == 0) continue;  // the numbers before 2026
    INFO(c[0] << " " << c[1]);
    table_row row;
    row.options.max_attempts = std::atoi(c[2].c_str());
    row.options.patience = millrace::duration(0);
    if (c[3].find("throttling") != std::string::npos) {
      row.options.throttling_base = delay_of(c[3]);
    } else if (c[3] != "-") {
      CHECK(row.options.base == delay_of(c[3]));
    }
    if (c[4] != "-") row.options.max_pause = delay_of(c[4]);
    row.tokens = std::atoi(c[5].c_str());
    row.responses = c[6] == "500 + x-amz-retry-after: abc or -1" ? "500 + x-amz-retry-after: abc" : c[6];
    row.expected = c[7];
    check_row(row);
    ++rows;
  }
  CHECK(rows == 13);
}

TEST_CASE("what can be mended is tried again at once, each kind once", "[s3][retry]") {
  millrace::retry_quota quota(500, 0);
  millrace::retry_policy policy(millrace::retry_options(), quota);
  for (const millrace::retry_class what :
       {millrace::retry_class::region, millrace::retry_class::skew, millrace::retry_class::expired}) {
    millrace::failed_attempt failed;
    failed.what = what;
    CHECK(policy.after_failure(failed, 1.0) == duration(0));
    CHECK_FALSE(policy.after_failure(failed, 1.0).has_value());
  }
  CHECK(policy.attempts() == 1);
}

TEST_CASE("a store that asks for fewer requests is waited for, by time alone", "[s3][retry]") {
  millrace::retry_quota quota(500, 0);  // nothing left for failures
  millrace::retry_policy policy(millrace::retry_options(), quota);
  millrace::failed_attempt failed;
  failed.what = millrace::retry_class::throttling;
  const millrace::time_point began(millrace::duration(5'000'000'000));
  const auto after = [&](double seconds) {
    failed.now = began + millrace::duration(static_cast<std::int64_t>(1e9 * seconds));
    return policy.after_failure(failed, 1.0);
  };
  for (int i = 0; i < 599; ++i) CHECK(after(i) == millrace::duration(1'000'000'000));
  CHECK(after(599.5) == millrace::duration(500'000'000));
  CHECK_FALSE(policy.out_of_patience());
  CHECK_FALSE(after(600).has_value());
  CHECK(policy.out_of_patience());
  CHECK(policy.attempts() == 1);
  CHECK(quota.tokens() == 0);
}

TEST_CASE("pauses are jittered and never overflow", "[s3][retry]") {
  millrace::retry_quota quota(1 << 30);
  millrace::retry_options options;
  options.max_attempts = 1000;
  millrace::retry_policy policy(options, quota);
  millrace::failed_attempt failed;
  failed.what = millrace::retry_class::transient;
  for (int i = 1; i < 1000; ++i) {
    const std::optional<duration> pause = policy.after_failure(failed, 0.5);
    REQUIRE(pause.has_value());
    CHECK(pause->count() > 0);
    CHECK(*pause <= duration(options.max_pause.count() / 2));
  }
  CHECK_FALSE(policy.after_failure(failed, 0.5).has_value());
  millrace::retry_policy fresh(options, quota);
  CHECK(fresh.after_failure(failed, 0.0) == duration(0));
  CHECK(fresh.after_failure(failed, -3.0) == duration(0));
  CHECK(fresh.after_failure(failed, 7.0) == duration(4 * options.base.count()));
}

TEST_CASE("pauses that may be as long as can be said do not overflow", "[s3][retry]") {
  millrace::retry_options options;
  options.max_attempts = 100;
  options.max_over_hint = options.max_pause = duration::max();
  options.base = std::chrono::hours(24);
  millrace::retry_quota quota(1'000'000);
  millrace::retry_policy asked(options, quota);
  const millrace::failed_attempt slow_down{millrace::retry_class::throttling, std::chrono::seconds(10)};
  CHECK(asked.after_failure(slow_down, 0.5) == std::chrono::seconds(10));
  millrace::retry_policy alone(options, quota);
  duration before(0);
  for (int i = 0; i < 40; ++i) {
    const std::optional<duration> pause = alone.after_failure({millrace::retry_class::transient, {}}, 1.0);
    REQUIRE(pause);
    CHECK(*pause >= before);
    before = *pause;
  }
  CHECK(before == duration::max());
}

TEST_CASE("the quota is never above its capacity nor below nothing", "[s3][retry]") {
  millrace::retry_quota quota(10);
  quota.give(5);
  CHECK(quota.tokens() == 10);
  CHECK_FALSE(quota.take(11));
  CHECK(quota.take(10));
  CHECK_FALSE(quota.take(1));
  CHECK(quota.tokens() == 0);
  CHECK(millrace::retry_quota(10, 99).tokens() == 10);
  CHECK(millrace::retry_quota(10, -1).tokens() == 0);
}

TEST_CASE("the header x-amz-retry-after is milliseconds", "[s3][retry]") {
  CHECK(millrace::parse_retry_after("3000") == duration(3'000'000'000));
  CHECK(millrace::parse_retry_after("0") == duration(0));
  for (const char* text : {"", "-1", "abc", "1.5", "3000 ", "99999999999999"}) {
    CHECK_FALSE(millrace::parse_retry_after(text).has_value());
  }
}

TEST_CASE("all 5xx but two, and four others, may pass", "[retry]") {
  using millrace::classify;
  using millrace::retry_class;
  for (const int status : {408, 425, 499, 500, 502, 504, 507, 509, 520, 521, 522, 523, 524, 525, 526, 527, 530, 598}) {
    INFO(status);
    CHECK(classify(status, "") == retry_class::transient);
    CHECK(millrace::http::error(millrace::http::failure::status, "", {}, status).transient());
  }
  for (const int status : {400, 401, 403, 404, 407, 409, 412, 416, 418, 501, 505, 600}) {
    INFO(status);
    CHECK(classify(status, "") == retry_class::permanent);
    CHECK(!millrace::http::error(millrace::http::failure::status, "", {}, status).transient());
  }
}
