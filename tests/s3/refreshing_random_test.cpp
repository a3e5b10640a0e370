// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/auth/refreshing_credentials.hpp>

#include <millrace/base/rng.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/s3/auth/default_credentials.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/support/catch.hpp"

namespace {

namespace s3 = millrace::s3;
using millrace::spawned;
using millrace::task;
using millrace::testing::virtual_loop;

/// Credentials that live for 100 s of a clock that the test moves, and fail as it likes.
class moody_source {
 public:
  std::int64_t now() const noexcept { return time; }
  double random() const noexcept { return 0.5; }
  task<s3::detail::sourced_credentials> resolve() {
    if (++under_way != 1) throw std::logic_error("two refreshes at once");
    struct end {
      int& count;
      ~end() { --count; }
    } const at_end{under_way};
    const int number = ++asked;
    for (int i = number % 4; i > 0; --i) co_await millrace::yield_now();
    if (failing) throw millrace::configuration_error("away");
    s3::detail::sourced_credentials out(s3::credentials("key" + std::to_string(number), "secret", "token", time + 100),
                                        "the test");
    co_return std::move(out);
  }
  task<std::string> region() { co_return std::string("r"); }

  std::int64_t time = 1'000'000'000;
  bool failing = false;
  int asked = 0;
  int under_way = 0;
};

using provider_type = s3::refreshing_credentials<moody_source>;

/// What a get() gave: usable when it came, or the source's failure.
task<void> one(provider_type& provider, moody_source& source, s3::credentials& last, int& good, int& bad) {
  try {
    const s3::credentials who = co_await provider.get();
    if (who.expires_at().value() <= source.time) throw std::logic_error("expired credentials were given");
    last = who;
    ++good;
  } catch (const millrace::configuration_error&) {
    ++bad;
  }
}

void turn(millrace::executor& loop) {
  int left = 1;
  loop.run_until([&left] { return left-- <= 0; });
}

}  // namespace

TEST_CASE("random programs of waiting, dropping, failing and refusing on two loops end well", "[s3][credentials]") {
  const std::uint64_t first = virtual_loop::seed_from_environment(1);
  int good = 0;
  int bad = 0;
  for (std::uint64_t seed = first; seed < first + 300; ++seed) {
    INFO("MILLRACE_SEED=" << seed);
    millrace::rng random(seed);
    virtual_loop loops[2] = {virtual_loop(seed), virtual_loop(seed + 1)};
    auto source = std::make_shared<moody_source>();
    provider_type provider(source);
    s3::credentials last;
    std::list<spawned<void>> waiting[2];
    const auto sweep = [&] {
      for (auto& list : waiting) {
        for (auto it = list.begin(); it != list.end();) {
          if (!it->done()) {
            ++it;
            continue;
          }
          it->take();  // a logic_error ends the test
          it = list.erase(it);
        }
      }
    };
    for (int step = 0; step < 120; ++step) {
      const std::size_t side = random.below(2);
      switch (random.below(8)) {
        case 0:
        case 1:
          waiting[side].emplace_back(loops[side], one(provider, *source, last, good, bad));
          break;
        case 2:
        case 3:
        case 4:
          turn(loops[side]);
          break;
        case 5:
          if (!waiting[side].empty()) {
            auto it = waiting[side].begin();
            std::advance(it, static_cast<std::ptrdiff_t>(random.below(waiting[side].size())));
            waiting[side].erase(it);
          }
          break;
        case 6:
          source->time += static_cast<std::int64_t>(random.below(40));
          break;
        default:
          if (random.below(2) == 0) {
            source->failing = !source->failing;
          } else {
            provider.refused(last);
          }
          break;
      }
      sweep();
    }
    source->failing = false;
    for (int i = 0; i < 100; ++i) {
      for (virtual_loop& loop : loops) turn(loop);
    }
    sweep();
    CHECK(waiting[0].empty());
    CHECK(waiting[1].empty());
    CHECK(source->under_way == 0);
    for (virtual_loop& loop : loops) {
      loop.drain();
      CHECK(loop.frames() == 0);
    }
  }
  CHECK(good > 1000);
  CHECK(bad > 100);
}
