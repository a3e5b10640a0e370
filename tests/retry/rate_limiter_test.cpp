// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/retry/rate_limiter.hpp>

#include <memory>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/retry/detail/cubic_rate.hpp>
#include <millrace/s3/ops/with_retries.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

/// \file
/// The limiter of the adaptive retry mode. The numbers are those that the AWS SDKs test theirs with: botocore
/// (tests/unit/retries/test_throttling.py, test_adaptive.py, test_bucket.py), aws-sdk-go-v2
/// (aws/retry/adaptive_ratelimit_test.go), smithy-rs (aws-smithy-runtime, client_rate_limiter.rs), smithy-typescript
/// (util-retry, DefaultRateLimiter.spec.ts) and aws-sdk-php (tests/Retry/RateLimiterTest.php).

using namespace millrace;
using namespace std::chrono_literals;
using millrace::detail::cubic_rate;
using testing::virtual_loop;

namespace {

const time_point start(1000s);

Approx about(double value) { return Approx(value).epsilon(1e-9); }

/// How long `requests` one after the other have to wait at `now` and later, when the rate stays.
duration time_for(rate_limiter& limiter, int requests, time_point now) {
  duration waited(0);
  while (requests > 0) {
    const duration pause = limiter.acquire(now + waited);
    if (pause.count() == 0) --requests;
    waited += pause;
  }
  return waited;
}

/// A session in the adaptive mode.
s3::session adaptive_session() {
  s3::config_options o;
  o.max_attempts = 2;
  o.retries = millrace::s3::retry_mode::adaptive;
  o.retry.throttling_base = 0ns;
  return s3::session(s3::config(o), std::make_shared<s3::fixed_credentials>(s3::credentials("k", "s")),
                     http::transport_options());
}

/// Attempts of which the first `refused` are refused; they take no time.
class store {
 public:
  explicit store(int refused) : refused_(refused) {}
  auto attempt() {
    return [this] { return run(*this); };
  }
  int calls = 0;

 private:
  static task<int> run(store& s) {
    if (++s.calls <= s.refused_) throw s3::error(503, "SlowDown", "", "");
    co_return s.calls;
  }
  int refused_;
};

}  // namespace

TEST_CASE("a rate that met its limit comes back along the cubic function", "[s3][throttling]") {
  cubic_rate rate;
  CHECK(rate.throttled(10, 5) == about(7));
  CHECK(rate.window() == about(1.9574338205844317));
  static constexpr double grown[] = {7,
                                     9.64893600966,
                                     10.000030849917364,
                                     10.453284520772092,
                                     13.408697022224185,
                                     21.26626835427364,
                                     36.425998516920465};
  for (int i = 0; i < 7; ++i) CHECK(rate.grown(5 + i) == about(grown[i]));
  CHECK(rate.grown(5 + rate.window()) == about(10));
  CHECK(rate.grown(5 + rate.window() / 1.1) < 10);
  CHECK(rate.grown(5 + rate.window() * 1.1) > 10);

  CHECK(rate.throttled(8, 1) == about(8 * 0.7));
  CHECK(rate.window() == about(1.8171205928321397));
}

TEST_CASE("a rate that met its limit twice", "[s3][throttling]") {
  cubic_rate rate;
  rate.throttled(10, 5);
  double now = rate.grown(6);
  CHECK((now = rate.throttled(now, 7)) == about(6.754255206761999));
  CHECK((now = rate.throttled(now, 8)) == about(4.727978644733399));
  CHECK(rate.grown(9) == about(6.606547753887045));
  CHECK(rate.grown(10) == about(6.763279816944947));
  CHECK(rate.grown(11) == about(7.598174833907107));
  CHECK(rate.grown(12) == about(11.511232804773524));
}

TEST_CASE("the adaptive mode follows the measured rate and the cubic function", "[s3][throttling]") {
  struct step {
    int tenths;
    bool throttled;
    double measured;
    double rate;
  };
  static constexpr step steps[] = {{2, false, 0, 0.5},
                                   {4, false, 0, 0.5},
                                   {6, false, 4.8, 0.5},
                                   {8, false, 4.8, 0.5},
                                   {10, false, 4.16, 0.5},
                                   {12, false, 4.16, 0.6912},
                                   {14, false, 4.16, 1.0976},
                                   {16, false, 5.632, 1.6384},
                                   {18, false, 5.632, 2.3328},
                                   {20, true, 4.3264, 3.02848},
                                   {22, false, 4.3264, 3.4866391734702598},
                                   {24, false, 4.3264, 3.8218744160402554},
                                   {26, false, 5.66528, 4.053385727709987},
                                   {28, false, 5.66528, 4.200373108479455},
                                   {30, false, 4.333056, 4.282036558348658},
                                   {32, true, 4.333056, 2.99742559084406},
                                   {34, false, 4.333056, 3.4522263943863463}};
  rate_limiter limiter;
  CHECK(limiter.acquire(start) == duration(0));
  for (const step& s : steps) {
    INFO(s.tenths);
    limiter.ended(start + s.tenths * 100ms, s.throttled);
    CHECK(limiter.measured() == about(s.measured));
    CHECK(limiter.rate() == about(s.rate));
  }
}

TEST_CASE("the rate is measured over half seconds, the recent ones counting most", "[s3][throttling]") {
  const auto measured_after = [](std::vector<int> hundredths) {
    rate_limiter limiter;
    limiter.acquire(start);
    for (int at : hundredths) limiter.ended(start + at * 10ms, false);
    return limiter.measured();
  };
  CHECK(measured_after({}) == 0);
  CHECK(measured_after({100}) == about(0.8));
  CHECK(measured_after({10, 20, 30, 40, 49}) == 0);
  CHECK(measured_after({10, 20, 30, 40, 49, 50}) == about(12 * 0.8));
  std::vector<int> one_a_second;
  for (int i = 1; i <= 20; ++i) one_a_second.push_back(i * 100);
  CHECK(measured_after(one_a_second) == Approx(1));
  const double two_a_second = measured_after({100, 150, 200, 250, 300, 350, 400});
  CHECK(two_a_second >= 1.99);
  CHECK(two_a_second <= 2);
  CHECK(measured_after({100, 150, 200, 250, 300, 350, 400, 1400}) == about(0.08 + two_a_second * 0.2));
  CHECK(measured_after({100, 100, 100, 200, 300}) >= 1);
  // The rate after a throttling at 5 to 9 seconds is known for these, before the least rate is applied.
  static constexpr double throttled[] = {0.112, 0.09333333, 0.08, 0.07, 0.06222222};
  for (int i = 0; i < 5; ++i) {
    CHECK(cubic_rate().throttled(measured_after({500 + 100 * i}), 5 + i) == Approx(throttled[i]).epsilon(1e-6));
  }
}

TEST_CASE("the first request after a throttling waits for its token", "[s3][throttling]") {
  struct wait {
    duration at;
    duration pause;
  };
  for (const wait w : {wait{500ms, 892857143ns}, wait{1s, 1785714286ns}, wait{2s, 2s}}) {
    rate_limiter limiter;
    CHECK(limiter.acquire(start) == duration(0));
    limiter.ended(start + w.at, true);
    CHECK(limiter.acquire(start + w.at) == w.pause);
    CHECK(limiter.acquire(start + w.at + w.pause) == duration(0));
  }
}

TEST_CASE("the adaptive mode holds nothing back before it is throttled, then keeps to its rate", "[s3][throttling]") {
  rate_limiter limiter;
  for (int i = 0; i < 100; ++i) {
    CHECK(limiter.acquire(start + i * 10ms) == duration(0));
    limiter.ended(start + i * 10ms, false);
  }
  limiter.ended(start + 1s, true);
  const double rate = limiter.rate();
  CHECK(rate == Approx(limiter.measured() * 0.7));
  // At once what has gathered, a second's requests at the most, and then one after the other.
  const double seconds = static_cast<double>(time_for(limiter, 1000, start + 1s).count()) * 1e-9;
  CHECK(seconds >= Approx((1000 - rate) / rate));
  CHECK(seconds <= Approx(1000 / rate));
  // What was not used does not gather beyond that either, however long nobody asked.
  CHECK(time_for(limiter, static_cast<int>(rate), start + 1h) == duration(0));
  CHECK(limiter.acquire(start + 1h) > duration(0));
}

TEST_CASE("one request may gather at the least rate, and who only asks owes nothing", "[s3][throttling]") {
  rate_limiter limiter;
  limiter.acquire(start);
  limiter.ended(start, true);
  CHECK(limiter.rate() == 0.5);
  for (int i = 0; i < 1000; ++i) CHECK(limiter.acquire(start) == 2s);
  CHECK(limiter.acquire(start + 1s) == 1s);
  CHECK(limiter.acquire(start + 2s) == duration(0));
  CHECK(limiter.acquire(start + 2s) == 2s);
  CHECK(limiter.acquire(start + 60s) == duration(0));
  CHECK(limiter.acquire(start + 60s) == 2s);
}

TEST_CASE("requests wait for their turn in the adaptive mode", "[s3][throttling]") {
  const s3::session s = adaptive_session();
  virtual_loop loop;
  store one(1);
  CHECK(block_on(loop, s3::with_retries<int>(s, one.attempt())) == 2);
  CHECK(s.limiter()->rate() > 0);
  CHECK(loop.elapsed() == 2s);  // half a request per second is the least rate
}

TEST_CASE("many that wait at a low rate are let through as the rate recovers", "[s3][throttling]") {
  const s3::session s = adaptive_session();
  virtual_loop loop;
  store busy(1);
  std::vector<spawned<int>> all;
  for (int i = 0; i < 100; ++i) all.emplace_back(loop, s3::with_retries<int>(s, busy.attempt()));
  all.erase(all.begin() + 40, all.begin() + 60);  // some give up: nobody waits for their sake
  const auto done = [&all] {
    for (const spawned<int>& one : all) {
      if (!one.done()) return false;
    }
    return true;
  };
  loop.run_until(done);
  CHECK(busy.calls == 81);
  CHECK(loop.elapsed() > 2s);
  CHECK(loop.elapsed() < 10s);  // it would be 160 s at the rate of the beginning
}
