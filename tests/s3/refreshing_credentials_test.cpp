// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/auth/refreshing_credentials.hpp>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/loop_thread.hpp>
#include <millrace/io/run_on.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/s3/auth/default_credentials.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;
using millrace::block_on;
using millrace::duration;
using millrace::executor;
using millrace::spawned;
using millrace::task;
using millrace::testing::virtual_loop;

constexpr duration seconds(std::int64_t n) { return duration(n * 1'000'000'000); }

/// A source whose credentials live for an hour, on the clock of a loop.
class fake_source {
 public:
  explicit fake_source(const executor& clock) : clock_(clock) {}

  std::int64_t now() const noexcept { return 1'000'000'000 + clock_.now_ns() / 1'000'000'000; }
  double random() const noexcept { return 0.5; }

  task<s3::detail::sourced_credentials> resolve() {
    ++asked;
    co_await millrace::sleep_for(latency);
    if (failing) throw millrace::configuration_error("the source is away");
    s3::detail::sourced_credentials out(
        s3::credentials("key" + std::to_string(asked), "secret", "token",
                        endless ? std::nullopt : std::optional<std::int64_t>(now() + life)),
        "the test");
    out.of_instance = of_instance;
    out.constant = constant;
    co_return std::move(out);
  }
  task<std::string> region() {
    ++regions_asked;
    co_await millrace::sleep_for(latency);
    if (failing) throw millrace::configuration_error("the source is away");
    co_return std::string("eu-west-1");
  }

  int asked = 0;
  int regions_asked = 0;
  duration latency = seconds(2);
  std::int64_t life = 3600;
  bool failing = false;
  bool endless = false;
  bool of_instance = false;
  bool constant = false;

 private:
  const executor& clock_;
};

using provider_type = s3::refreshing_credentials<fake_source>;

class fixture {
 public:
  fixture() : source(std::make_shared<fake_source>(loop)), provider(source) {}

  std::string get() { return std::string(block_on(loop, provider.get()).access_key_id()); }
  /// What get() throws.
  std::string failure() {
    try {
      get();
      return "nothing";
    } catch (const millrace::error& e) {
      return e.what();
    }
  }
  void pass(duration d) { block_on(loop, wait(d)); }

  virtual_loop loop;
  std::shared_ptr<fake_source> source;
  provider_type provider;

 private:
  static task<void> wait(duration d) { co_await millrace::sleep_for(d); }
};

/// A source that answers when eight have come.
class patient_source {
 public:
  std::int64_t now() const noexcept {
    looked.fetch_add(1);
    return 1'000'000'000;
  }
  double random() const noexcept { return 0.5; }
  task<s3::detail::sourced_credentials> resolve() {
    asked.fetch_add(1);
    while (looked.load() < 8) co_await millrace::yield_now();  // until all wait
    s3::detail::sourced_credentials out(s3::credentials("key", "secret"), "the test");
    co_return std::move(out);
  }
  task<std::string> region() { co_return std::string(); }
  mutable std::atomic<int> looked{0};
  std::atomic<int> asked{0};
};

/// One turn of a loop.
void turn(executor& loop) {
  int left = 1;
  loop.run_until([&left] { return left-- <= 0; });
}

}  // namespace

TEST_CASE("a run of twelve hours outlives its credentials and waits for none but the first", "[s3][credentials]") {
  fixture f;
  const auto run = [](provider_type& provider, virtual_loop& loop, fake_source& source,
                      duration& waited) -> task<void> {
    for (int i = 0; i < 12 * 360; ++i) {
      const duration before = loop.elapsed();
      const s3::credentials who = co_await provider.get();
      waited += loop.elapsed() - before;
      if (who.expires_at().value() <= source.now()) throw std::logic_error("expired credentials were given");
      co_await millrace::sleep_for(seconds(10));
    }
  };
  duration waited{};
  block_on(f.loop, run(f.provider, f.loop, *f.source, waited));
  CHECK(waited == seconds(2));
  // Each set is replaced 675 s before its end: every 2930 s, asked every 10 s.
  CHECK(f.source->asked == 15);
  CHECK(f.provider.refreshes() == 15);
  CHECK(f.provider.failures() == 0);
  CHECK(f.provider.source() == "the test");
}

TEST_CASE("a refresh that fails while the old credentials are good has no effect", "[s3][credentials]") {
  fixture f;
  f.source->latency = duration(20'000'000);  // a drain waits so long
  CHECK(f.get() == "key1");
  f.pass(seconds(3000));
  f.source->failing = true;
  CHECK(f.get() == "key1");  // begins the refresh; its failure is not ours
  CHECK(f.provider.failures() == 1);
  f.pass(seconds(30));
  CHECK(f.get() == "key1");
  CHECK(f.source->asked == 2);  // a minute or two of peace
  f.source->failing = false;
  f.pass(seconds(60));
  CHECK(f.get() == "key1");
  CHECK(f.get() == "key3");
}

TEST_CASE("a refresh that fails after the end is the failure of who waits, and the next one asks again",
          "[s3][credentials]") {
  fixture f;
  CHECK(f.get() == "key1");
  f.pass(seconds(4000));
  f.source->failing = true;
  CHECK_THAT(f.failure(), Contains("the source is away"));
  CHECK_THAT(f.failure(), Contains("the source is away"));
  CHECK(f.source->asked == 3);
  f.source->failing = false;
  CHECK(f.get() == "key4");

  fixture expired;
  expired.source->life = -5;
  CHECK_THAT(expired.failure(), Contains("had expired when they came"));
}

TEST_CASE("all who wait share one refresh, and its failure", "[s3][credentials]") {
  fixture f;
  const auto one = [](provider_type& provider, int& good, int& bad) -> task<void> {
    try {
      const s3::credentials who = co_await provider.get();
      ++good;
    } catch (const millrace::configuration_error&) {
      ++bad;
    }
  };
  for (const bool failing : {true, false}) {
    f.source->failing = failing;
    f.source->asked = 0;
    int good = 0;
    int bad = 0;
    std::vector<spawned<void>> all;
    for (int i = 0; i < 100; ++i) all.emplace_back(f.loop, one(f.provider, good, bad));
    f.loop.run_until([&] { return good + bad == 100; });
    f.loop.drain();
    CHECK(f.source->asked == 1);
    CHECK(bad == (failing ? 100 : 0));
  }
}

TEST_CASE("dropping one who waits, or who began the refresh, disturbs no other", "[s3][credentials]") {
  for (int dropped = 0; dropped < 4; ++dropped) {
    for (int turns = 0; turns < 4; ++turns) {
      for (const bool with_provider : {false, true}) {
        INFO("dropped " << dropped << " after " << turns);
        virtual_loop loop;
        auto source = std::make_shared<fake_source>(loop);
        auto provider = std::make_unique<provider_type>(source);
        std::vector<spawned<s3::credentials>> all;
        for (int i = 0; i < 3; ++i) all.emplace_back(loop, provider->get());
        for (int i = 0; i < turns; ++i) turn(loop);
        if (dropped < 3) {
          all.erase(all.begin() + dropped);
        } else {
          all.clear();
        }
        if (with_provider) provider.reset();
        if (!all.empty()) {
          loop.run_until([&] { return all[0].done() && all[1].done(); });
          CHECK(all[0].take().access_key_id() == "key1");
          CHECK(all[1].take().access_key_id() == "key1");
        }
        loop.drain();
        // Those that were dropped before they ran have asked for nothing.
        CHECK(source->asked == (dropped == 3 && turns == 0 ? 0 : 1));
        all.clear();
        CHECK(loop.frames() == 0);
        CHECK(loop.timers() == 0);
      }
    }
  }
}

TEST_CASE("who waits on another loop is woken there, and may be dropped there at any moment", "[s3][credentials]") {
  for (int moment = 0; moment < 5; ++moment) {
    INFO("moment " << moment);
    virtual_loop asking;
    auto other = std::make_unique<virtual_loop>();
    auto source = std::make_shared<fake_source>(asking);
    provider_type provider(source);
    spawned<s3::credentials> first(asking, provider.get());
    turn(asking);
    auto second = std::make_unique<spawned<s3::credentials>>(*other, provider.get());
    if (moment == 0) second.reset();
    turn(*other);
    if (moment == 1) second.reset();
    if (moment == 2) {
      second.reset();
      other.reset();  // while the refresh is under way
    }
    asking.run_until([&] { return first.done(); });
    CHECK(first.take().access_key_id() == "key1");
    if (moment == 3) {
      second.reset();  // its ticket is on the way
      other.reset();
    }
    if (moment == 4) {
      other->run_until([&] { return second->done(); });
      CHECK(second->take().access_key_id() == "key1");
    }
    second.reset();
    asking.drain();
    CHECK(source->asked == 1);
  }
}

TEST_CASE("a loop that ends does not wait for a slow refresh, and who waits on another loop begins anew",
          "[s3][credentials]") {
  virtual_loop clock;
  auto asking = std::make_unique<virtual_loop>();
  virtual_loop other;
  auto source = std::make_shared<fake_source>(clock);
  source->latency = seconds(3600);
  provider_type provider(source);
  auto first = std::make_unique<spawned<s3::credentials>>(*asking, provider.get());
  auto region = std::make_unique<spawned<std::string>>(*asking, provider.region());
  turn(*asking);
  turn(*asking);
  spawned<s3::credentials> second(other, provider.get());
  spawned<std::string> second_region(other, provider.region());
  turn(other);
  CHECK(source->asked == 1);
  CHECK(source->regions_asked == 1);
  first.reset();
  region.reset();
  asking->drain();
  CHECK(asking->elapsed() == millrace::root_scope::patience);
  CHECK(asking->frames() == 0);
  asking.reset();
  other.run_until([&] { return second.done() && second_region.done(); });
  CHECK(second.take().access_key_id() == "key2");
  CHECK(second_region.take() == "eu-west-1");
  CHECK(source->asked == 2);
  CHECK(source->regions_asked == 2);
  CHECK(provider.failures() == 0);
}

TEST_CASE("a slow refresh ahead of time is begun again later, and waited for in the end", "[s3][credentials]") {
  fixture f;
  CHECK(f.get() == "key1");
  f.pass(seconds(3000));
  CHECK(f.get() == "key1");  // begins one that takes two seconds, and does not stay for it
  CHECK(f.loop.elapsed() < seconds(3003));
  for (int i = 0; i < 100; ++i) CHECK(f.get() == "key1");
  CHECK(f.source->asked == 2);  // a minute or two of peace
  CHECK(f.loop.elapsed() < seconds(3003));
  f.pass(seconds(120));
  CHECK(f.get() == "key1");
  CHECK(f.source->asked == 3);
  f.pass(seconds(600));
  CHECK(f.get() == "key4");  // the old ones have ended: now it is waited for
  CHECK(f.provider.failures() == 0);
}

TEST_CASE("loops on threads of their own share one refresh", "[s3][credentials]") {
  auto source = std::make_shared<patient_source>();
  s3::refreshing_credentials<patient_source> provider(source);
  {
    virtual_loop home;
    millrace::loop_thread threads[4];
    std::vector<spawned<s3::credentials>> all;
    const auto ask = [](millrace::executor& there, s3::credentials_provider& p) -> task<s3::credentials> {
      auto make = [&p] { return p.get(); };
      co_return co_await millrace::run_on(there, make);
    };
    for (int i = 0; i < 8; ++i) all.emplace_back(home, ask(threads[i % 4].loop(), provider));
    home.run_until([&] {
      for (const auto& one : all) {
        if (!one.done()) return false;
      }
      return true;
    });
    for (auto& one : all) CHECK(one.take().access_key_id() == "key");
  }
  CHECK(source->asked == 1);
}

TEST_CASE("credentials that the store refuses are replaced once", "[s3][credentials]") {
  fixture f;
  f.source->endless = true;
  const s3::credentials first = block_on(f.loop, f.provider.get());
  f.pass(seconds(100'000));
  CHECK(f.get() == "key1");  // without an end they are kept
  CHECK(f.provider.refused(first));
  CHECK(f.provider.refused(first));  // a second request that was refused
  const s3::credentials second = block_on(f.loop, f.provider.get());
  CHECK(second.access_key_id() == "key2");
  CHECK(f.provider.refused(first));  // newer ones are there already
  CHECK_FALSE(f.provider.refused(second));
  CHECK(f.get() == "key2");
  f.pass(seconds(61));
  CHECK(f.provider.refused(second));
  CHECK(f.get() == "key3");

  fixture fixed;
  fixed.source->constant = true;
  const s3::credentials constant = block_on(fixed.loop, fixed.provider.get());
  CHECK_FALSE(fixed.provider.refused(constant));
  CHECK(fixed.get() == "key1");
}

TEST_CASE("credentials of an instance are used beyond their end while its metadata is away", "[s3][credentials]") {
  fixture f;
  f.source->of_instance = true;
  CHECK(f.get() == "key1");
  f.source->failing = true;
  for (int minute = 0; minute < 180; ++minute) {
    f.pass(seconds(60));
    REQUIRE(f.get() == "key1");
  }
  CHECK(f.provider.failures() > 5);
  CHECK(f.provider.failures() < 60);  // and it is not pestered
  f.source->failing = false;
  f.pass(seconds(900));
  f.get();
  CHECK(f.get() != "key1");

  // What it gives may have ended already.
  fixture stale;
  stale.source->of_instance = true;
  stale.source->life = -100;
  CHECK(stale.get() == "key1");
  stale.pass(seconds(200));
  CHECK(stale.get() == "key1");
  CHECK(stale.source->asked == 1);
  // Refused ones are not.
  const s3::credentials who = block_on(stale.loop, stale.provider.get());
  stale.source->failing = true;
  CHECK(stale.provider.refused(who));
  CHECK_THAT(stale.failure(), Contains("the source is away"));
}

TEST_CASE("the region is asked for once, by all who want to know it", "[s3][credentials]") {
  fixture f;
  const auto one = [](provider_type& provider, int& good, int& bad) -> task<void> {
    try {
      const std::string region = co_await provider.region();
      if (region == "eu-west-1") ++good;
    } catch (const millrace::configuration_error&) {
      ++bad;
    }
  };
  f.source->failing = true;
  for (const bool dropping : {false, true}) {
    int good = 0;
    int bad = 0;
    std::vector<spawned<void>> all;
    for (int i = 0; i < 10; ++i) all.emplace_back(f.loop, one(f.provider, good, bad));
    if (dropping) {
      turn(f.loop);
      all.erase(all.begin());  // the one that asks
    }
    f.loop.run_until([&] { return good + bad == (dropping ? 9 : 10); });
    CHECK(bad == (dropping ? 0 : 10));
    CHECK(f.source->regions_asked == (dropping ? 2 : 1));
    f.source->failing = false;
  }
  CHECK(block_on(f.loop, f.provider.region()) == "eu-west-1");
  CHECK(f.source->regions_asked == 2);
  s3::fixed_credentials fixed{s3::credentials()};
  CHECK_FALSE(fixed.region());
}
