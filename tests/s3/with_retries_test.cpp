// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/ops/send.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using testing::virtual_loop;

namespace {

/// A session of `attempts` per request without a server.
std::shared_ptr<const s3::session> session_of(int attempts, retry_options retry = {}) {
  s3::config_options o;
  o.max_attempts = attempts;
  o.retry = retry;
  return std::make_shared<const s3::session>(
      s3::config(o), std::make_shared<s3::fixed_credentials>(s3::credentials("k", "s")), http::transport_options());
}

using script = std::vector<std::function<void()>>;  // what each attempt throws; after the end: success

std::function<void()> refused(int status, std::string code, std::optional<duration> hint = std::nullopt) {
  return [=] { throw s3::error(status, code, "no", "id", where(), hint); };
}
std::function<void()> failed(http::failure kind) {
  return [=] { throw http::error(kind, "failed"); };
}

/// An attempt that does what the script says; gives its number.
class scripted {
 public:
  scripted(const script& s, int& calls) : script_(&s), calls_(&calls) {}
  task<int> operator()() const { return once(*script_, *calls_); }

 private:
  static task<int> once(const script& s, int& calls) {
    const auto i = static_cast<std::size_t>(calls++);
    if (i < s.size()) s[i]();
    co_return calls;
  }
  const script* script_;
  int* calls_;
};

class scripted_with_progress : public scripted {
 public:
  using scripted::scripted;
  bool progressed() const { return true; }
};

struct outcome {
  int calls = 0;
  bool succeeded = false;
  std::string what;
  duration elapsed{0};
};

template <class Attempt = scripted>
outcome run(const s3::session& s, const script& steps) {
  virtual_loop loop;
  outcome o;
  try {
    Attempt attempt(steps, o.calls);
    block_on(loop, s3::with_retries<int>(s, attempt));
    o.succeeded = true;
  } catch (const std::exception& e) {
    o.what = e.what();
  }
  o.elapsed = loop.elapsed();
  CHECK(loop.frames() == 0);
  CHECK(loop.timers() == 0);
  return o;
}

}  // namespace

TEST_CASE("transient failures are tried again, up to the configured number of attempts", "[s3][retry]") {
  const auto s = session_of(3);
  outcome o = run(*s, {refused(500, "InternalError"), failed(http::failure::broken)});
  CHECK(o.succeeded);
  CHECK(o.calls == 3);
  CHECK(o.elapsed <= 150ms);  // at most 50 + 100 ms
  o = run(*s, {refused(500, "InternalError"), refused(503, ""), refused(502, "Last"), refused(500, "NotAsked")});
  CHECK_FALSE(o.succeeded);
  CHECK(o.calls == 3);
  CHECK(o.what.find("502 Last") != std::string::npos);
}

TEST_CASE("what the way may mend by itself is tried again, what it cannot is not", "[s3][retry]") {
  using k = http::failure;
  const auto s = session_of(2);
  for (k kind : {k::resolve, k::connect, k::timeout, k::broken, k::protocol}) CHECK(run(*s, {failed(kind)}).calls == 2);
  for (k kind : {k::tls, k::too_large, k::status}) CHECK(run(*s, {failed(kind)}).calls == 1);
  for (int status : {400, 403, 404, 412, 416}) CHECK(run(*s, {refused(status, "")}).calls == 1);
  // One answer that contradicts what is known may have a wrong bit: once more, whatever attempts are left.
  const auto foreign = [] { throw changed_error("changed"); };
  const auto damaged = [] { throw s3::checksum_error("damaged"); };
  for (const auto& alone : {session_of(1), session_of(3)}) {
    CHECK(run(*alone, {foreign}).calls == 2);
    CHECK(run(*alone, {damaged}).calls == 2);
    CHECK(run(*alone, {foreign, damaged}).calls == 2);
  }
}

TEST_CASE("the pause that the store names is kept, within five seconds of ours", "[s3][retry]") {
  const auto s = session_of(2);
  CHECK(run(*s, {refused(503, "SlowDown", 3s)}).elapsed == 3s);
  const outcome longer = run(*s, {refused(503, "SlowDown", 3600s)});
  CHECK(longer.elapsed >= 5s);
  CHECK(longer.elapsed <= 6s);
  CHECK(run(*s, {refused(503, "SlowDown")}).elapsed <= 1s);
}

TEST_CASE("a store that asks for fewer requests is waited for until the patience is at its end", "[s3][retry]") {
  const auto s = session_of(2);
  const outcome o = run(*s, script(500, refused(503, "SlowDown")));
  CHECK(o.succeeded);
  CHECK(o.calls == 501);
  script mixed(20, refused(429, ""));
  mixed.insert(mixed.begin() + 7, refused(500, "InternalError"));
  CHECK(run(*s, mixed).succeeded);
  mixed.insert(mixed.begin() + 9, refused(500, "InternalError"));
  CHECK(run(*s, mixed).calls == 10);
  CHECK(s->quota().tokens() <= retry_options().quota);
  const outcome never = run(*s, script(100'000, refused(503, "SlowDown")));
  CHECK_FALSE(never.succeeded);
  CHECK(never.elapsed >= 600s);
  CHECK(never.elapsed < 602s);
  CHECK(never.what.find("503 SlowDown") != std::string::npos);
  CHECK(never.what.find("for 600 s") != std::string::npos);
  retry_options hasty;
  hasty.patience = 0s;
  CHECK(run(*session_of(2, hasty), script(5, refused(503, "SlowDown"))).calls == 2);
}

TEST_CASE("pauses are those of the configuration", "[s3][retry]") {
  retry_options quick;
  quick.base = 1us;
  quick.throttling_base = 2us;
  quick.max_over_hint = 0s;
  const auto s = session_of(2, quick);
  CHECK(run(*s, {refused(500, "")}).elapsed <= 1us);
  CHECK(run(*s, {refused(503, "SlowDown", 10s)}).elapsed <= 2us);
}

TEST_CASE("the requests of a session share one quota: a store that is down is not asked ever more often",
          "[s3][retry]") {
  const auto s = session_of(1000);
  constexpr int cost = 14;
  const int quota = retry_options().quota;
  const script always(10'000, failed(http::failure::connect));
  const outcome first = run(*s, always);
  CHECK(first.calls == 1 + quota / cost);
  CHECK(run(*s, always).calls == 1);
  CHECK(run(*s, {}).succeeded);
  CHECK(s->quota().tokens() == quota % cost + 1);
  // Another session has a quota of its own.
  CHECK(run(*session_of(2), always).calls == 2);
}

TEST_CASE("all connections of a loop may break at once and come back", "[s3][retry]") {
  const auto s = session_of(2);
  virtual_loop loop;
  const script once{failed(http::failure::broken)};
  std::vector<int> calls(256);
  std::vector<spawned<int>> all;
  for (int& n : calls) {
    scripted attempt(once, n);
    all.emplace_back(loop, s3::with_retries<int>(*s, attempt));
  }
  for (spawned<int>& one : all) {
    loop.run_until([&] { return one.done(); });
    CHECK(one.take() == 2);
  }
}

TEST_CASE("region, clock and credentials are mended at once, each once", "[s3][retry]") {
  const auto s = session_of(1);
  const outcome o = run(*s, {refused(400, "AuthorizationHeaderMalformed"), refused(403, "RequestTimeTooSkewed"),
                             refused(400, "ExpiredToken")});
  CHECK(o.succeeded);
  CHECK(o.calls == 4);
  CHECK(o.elapsed == 0s);
  CHECK(run(*s, {refused(301, "PermanentRedirect"), refused(301, "PermanentRedirect")}).calls == 2);
}

TEST_CASE("an attempt goes elsewhere after a failure of the server, and not after one that asks for fewer requests",
          "[s3][retry]") {
  const auto s = session_of(3);
  s3::operation op("GET", "bucket", "key");
  int calls = 0;
  std::vector<bool> went;
  const script steps{refused(500, "InternalError"), refused(503, "SlowDown"), failed(http::failure::broken)};
  const auto attempt = [&] {
    went.push_back(op.elsewhere);
    return scripted(steps, calls)();
  };
  virtual_loop loop;
  CHECK(block_on(loop, s3::with_retries<int>(*s, op, attempt)) == 4);
  CHECK(went == std::vector<bool>{false, true, false, true});
}

TEST_CASE("attempts that bring a good part of the answer do not count, but cost", "[s3][retry]") {
  const auto s = session_of(2);
  const script often(200, failed(http::failure::broken));
  CHECK(run<scripted_with_progress>(*s, often).calls == 201);
  CHECK(run<scripted_with_progress>(*s, often).calls < 200);  // the quota has run dry
}

TEST_CASE("dropping a request in its pause leaves nothing", "[s3][retry]") {
  const auto s = session_of(2);
  virtual_loop loop;
  int calls = 0;
  const script steps{refused(503, "SlowDown", 3s)};
  {
    scripted attempt(steps, calls);
    spawned<int> running(loop, s3::with_retries<int>(*s, attempt));
    loop.run_until([&] { return calls == 1; });
    CHECK_FALSE(running.done());
  }
  CHECK(loop.frames() == 0);
  CHECK(loop.timers() == 0);
}

TEST_CASE("the pause that an answer asks for is read from its fields", "[s3][retry]") {
  constexpr std::int64_t now = 784111777;  // Sun, 06 Nov 1994 08:49:37 GMT
  const auto hint = [](std::vector<std::pair<std::string, std::string>> fields) {
    http::headers h;
    for (auto& [name, value] : fields) h.add(name, value);
    return retry_hint(h, now);
  };
  CHECK(hint({{"x-amz-retry-after", "1500"}}) == duration(1500ms));
  CHECK(hint({{"Retry-After", "120"}}) == duration(120s));
  CHECK(hint({{"Retry-After", "120"}, {"x-amz-retry-after", "7"}}) == duration(7ms));
  CHECK(hint({{"Retry-After", "Sun, 06 Nov 1994 08:49:47 GMT"}}) == duration(10s));
  CHECK(hint({{"Retry-After", "Sun, 06 Nov 1994 08:49:07 GMT"}}) == duration(0));
  CHECK_FALSE(hint({}).has_value());
  CHECK_FALSE(hint({{"Retry-After", "soon"}}).has_value());
  CHECK_FALSE(hint({{"Retry-After", "-1"}}).has_value());
  CHECK_FALSE(hint({{"x-amz-retry-after", "1.5"}}).has_value());
}
