// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Holds the S3 client against a real server: that of the environment's AWS_ variables, where it makes a bucket.
//
//   test_real_server_conformance BUCKET [CHECK...]

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include <millrace/base/clock.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/real_server/checks.hpp"

namespace {

struct check {
  const char* name;
  millrace::task<void> (*run)(const real_server::place&);
};

constexpr check checks[] = {
    {"hostile_keys", real_server::hostile_keys},       {"listing_rules", real_server::listing_rules},
    {"long_listing", real_server::long_listing},       {"ranges", real_server::ranges},
    {"clock_skew", real_server::clock_skew},           {"presigned", real_server::presigned},
    {"changed_objects", real_server::changed_objects}, {"wrong_keys", real_server::wrong_keys},
    {"missing_things", real_server::missing_things},   {"anonymous", real_server::anonymous},
    {"virtual_hosts", real_server::virtual_hosts},     {"streams", real_server::streams},
    {"broken_streams", real_server::broken_streams},   {"new_objects_only", real_server::new_objects_only},
};

bool wanted(std::string_view name, int count, char** arguments) {
  for (int i = 2; i < count; ++i) {
    if (name == arguments[i]) return true;
  }
  return count <= 2;
}

int run_all(int count, char** arguments) {
  const real_server::place p(arguments[1]);
  const auto loop = millrace::make_event_loop();
  millrace::block_on(*loop, p.s3.create_bucket("s3://" + p.bucket));
  int run = 0;
  int failed = 0;
  for (const check& c : checks) {
    if (!wanted(c.name, count, arguments)) continue;
    ++run;
    const std::int64_t begin = millrace::monotonic_ns();
    std::string fault;
    try {
      millrace::block_on(*loop, c.run(p));
    } catch (const std::exception& e) {
      fault = e.what();
      ++failed;
    }
    const double seconds = static_cast<double>(millrace::monotonic_ns() - begin) / 1e9;
    std::printf("%-17s %s %6.2f s %s\n", c.name, fault.empty() ? "passed" : "FAILED", seconds, fault.c_str());
    std::fflush(stdout);
  }
  if (run == 0) {
    std::printf("no check has such a name\n");
    return 2;
  }
  std::printf("%d of %d checks passed\n", run - failed, run);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s BUCKET [CHECK...]\n", arguments[0]);
    return 2;
  }
  try {
    return run_all(count, arguments);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
