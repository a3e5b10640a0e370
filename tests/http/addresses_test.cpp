// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Which addresses of a name are passed over: those that cannot be connected to, and those that are slow.

#include <millrace/http/detail/addresses.hpp>

#include <chrono>
#include <string>

#include <millrace/base/units.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using http::detail::addresses;
using http::detail::socket_address;

namespace {

socket_address number(int n) { return socket_address(("192.0.2." + std::to_string(n)).c_str(), 443); }

/// Reads of the addresses of "store", each in its turn.
class reads {
 public:
  /// Each of `count` addresses is read from once, at `now` and within a millisecond; of address 1 the first byte comes
  /// after `first`, and a MiB takes `body`; of the others 10 ms each. Returns what is to be logged.
  std::string turn(duration first, duration body, int count = 4) {
    std::string line;
    for (int n = 1; n <= count; ++n) {
      now += 1ms;
      line += known.took("store", number(n), now, n == 1 ? first : 10ms, n == 1 ? body : 10ms, MiB);
    }
    return line;
  }
  std::string turns(int many, duration first, duration body, int count = 4) {
    std::string line;
    for (int i = 0; i < many; ++i) line += turn(first, body, count);
    return line;
  }

  addresses known;
  time_point now = time_point(1h);
};

}  // namespace

TEST_CASE("addresses are written as they are read") {
  CHECK(socket_address("192.0.2.1", 80).text() == "192.0.2.1:80");
  CHECK(socket_address("2001:db8::1", 443).text() == "[2001:db8::1]:443");
  CHECK(!socket_address("store", 443));
}

TEST_CASE("an address that is slow in two rounds is passed over for a minute") {
  const bool late = GENERATE(true, false);
  const int others = GENERATE(1, 3);
  reads r;
  const duration first = late ? 50ms : 10ms;
  const duration body = late ? 10ms : 50ms;
  CHECK(r.turns(8, first, body, 1 + others).empty());
  CHECK(!r.known.slow(number(1), r.now));
  const std::string line = r.turns(9, first, body, 1 + others);
  CHECK(r.known.slow(number(1), r.now));
  CHECK(r.known.passes_over(number(1), r.now));
  CHECK(!r.known.passes_over(number(2), r.now));
  CHECK(r.known.passed_over() == 1);
  CHECK(line == (late ? std::string("millrace: store: its address 192.0.2.1:443 is slow, 50 ms to the first byte where "
                                    "others take 10.0 ms: passed over for 60 s, unless all others fail")
                      : std::string("millrace: store: its address 192.0.2.1:443 is slow, 21.0 MB/s on a connection "
                                    "where others send 105 MB/s: passed over for 60 s, unless all others fail")));
  r.now += 61s;
  CHECK(!r.known.passes_over(number(1), r.now));

  // Two rounds tell again, without another line.
  CHECK(r.turns(30, first, body, 1 + others).empty());
  CHECK(r.known.slow(number(1), r.now));
  CHECK(r.known.passed_over() == 2);
  r.known.needed(number(1));
  CHECK(!r.known.slow(number(1), r.now));
}

TEST_CASE("an address is not slow for less") {
  reads r;
  SECTION("than four times") { CHECK(r.turns(100, 35ms, 35ms).empty()); }
  SECTION("than 20 ms, or above 200 MB/s") {
    for (int i = 0; i < 100; ++i) {
      for (int n = 1; n <= 4; ++n) {
        r.known.took("store", number(n), r.now += 1ms, n == 1 ? 20ms : 1ms, n == 1 ? 4ms : 500us, MiB);
      }
    }
  }
  SECTION("than two rounds in a row") {
    for (int i = 0; i < 20; ++i) {
      r.turns(8, 50ms, 10ms);
      r.turns(8, 10ms, 10ms);
    }
  }
  SECTION("than eight reads") {
    for (int i = 0; i < 20; ++i) {
      r.turns(7, 50ms, 10ms);
      r.now += 61s;
    }
  }
  SECTION("than one slow read of eight") {
    for (int i = 0; i < 100; ++i) r.turn(i % 8 == 0 ? 500ms : 10ms, 10ms);
  }
  SECTION("than others") { CHECK(r.turns(100, 50ms, 50ms, 1).empty()); }
  SECTION("than those of another server") {
    for (int i = 0; i < 100; ++i) {
      r.known.took("near", number(1), r.now += 1ms, 1ms, 1ms, MiB);
      r.known.took("far", number(2), r.now += 1ms, 100ms, 100ms, MiB);
    }
  }
  CHECK(r.known.passed_over() == 0);
}

TEST_CASE("an address so slow that others have many rounds meanwhile is passed over") {
  reads r;
  for (int i = 0; i < 60 && r.known.passed_over() == 0; ++i) {  // a read of it in two seconds
    r.now += 2s;
    for (int n = 1; n <= 4; ++n) {
      for (int m = n == 1 ? 3 : 0; m < 4; ++m) r.known.took("store", number(n), r.now, n == 1 ? 2s : 10ms, 10ms, MiB);
    }
  }
  CHECK(r.known.slow(number(1), r.now));
}

TEST_CASE("the only address that was seen is logged when another one of the same server answers") {
  const std::string said = "millrace: store: its address 192.0.2.1:443 could not be connected to: passed over for 60 "
                           "s, unless all others fail";
  addresses known;
  time_point now(1h);
  CHECK(known.reached("store", number(2), now).empty());
  CHECK(known.failed("store", number(1), now, true).empty());
  CHECK(known.reached("another", number(2), now).empty());
  CHECK(known.passed_over() == 0);
  CHECK(known.reached("store", number(2), now += 30s) == said);
  CHECK(known.reached("store", number(2), now).empty());
  CHECK(known.passed_over() == 1);

  // Its one address, which answers again: nothing was passed over.
  CHECK(known.failed("single", number(3), now, true).empty());
  CHECK(known.reached("single", number(3), now).empty());
  CHECK(known.reached("single", number(4), now).empty());
  // Too long ago.
  CHECK(known.failed("late", number(5), now, true).empty());
  CHECK(known.reached("late", number(6), now += 61s).empty());
  CHECK(known.passed_over() == 1);
}

TEST_CASE("what cannot be connected to is logged once in ten minutes, and sixteen addresses at most") {
  addresses known;
  time_point now(1h);
  CHECK(known.failed("store", number(1), now, true).empty());
  CHECK(known.passes_over(number(1), now));
  CHECK(!known.slow(number(1), now));
  CHECK(known.passed_over() == 0);
  const std::string said = "millrace: store: its address 192.0.2.2:443 could not be connected to: passed over for 60 "
                           "s, unless all others fail";
  CHECK(known.failed("store", number(2), now) == said);
  CHECK(known.failed("store", number(2), now += 30s).empty());
  CHECK(known.passed_over() == 1);
  CHECK(known.failed("store", number(2), now += 90s).empty());
  CHECK(known.passed_over() == 2);
  CHECK(known.failed("store", number(2), now += 10min) == said);
  int lines = 0;
  std::string last;
  for (int n = 3; n < 40; ++n) {
    const std::string line = known.failed("store", number(n), now);
    lines += line.empty() ? 0 : 1;
    if (!line.empty()) last = line;
  }
  CHECK(lines == 15);
  CHECK(last.find("are only counted") != std::string::npos);
  CHECK(known.passed_over() == 3 + 37);
}

TEST_CASE("an address whose requests fail is passed over where others are well") {
  addresses known;
  time_point now(1h);
  const auto fail = [&](int n, const char* host = "store") { return known.unwell(host, number(n), now, "status 500"); };
  // Alone, or with others that fail: nothing better is known.
  for (int i = 0; i < 10; ++i) {
    CHECK(fail(1).empty());
    CHECK(fail(2).empty());
  }
  CHECK(known.suspect(number(1), now));
  CHECK(!known.passes_over(number(1), now));
  known.well("store", number(1));
  CHECK(!known.suspect(number(1), now));
  CHECK(known.suspect(number(2), now));
  CHECK(!known.suspect(number(2), now + 61s));
  for (int i = 0; i < 2; ++i) known.well("store", number(1));
  for (int i = 0; i < 9; ++i) known.well("another", number(3));
  CHECK(fail(2).empty());
  known.well("store", number(1));
  CHECK(fail(2) ==
        "millrace: store: its address 192.0.2.2:443 fails while others do not (12 times in a row, status 500): "
        "passed over for 60 s, unless all others fail");
  CHECK(known.passes_over(number(2), now));
  CHECK(known.slow(number(2), now));
  now += 61s;
  CHECK(!known.passes_over(number(2), now));
  fail(2);  // not yet well again
  CHECK(known.passes_over(number(2), now));
  // One failure now and then is none of the address.
  for (int i = 0; i < 100; ++i) {
    for (int k = 0; k < 3; ++k) CHECK(fail(4).empty());
    known.well("store", number(4));
    known.well("store", number(1));
  }
  CHECK(!known.passes_over(number(4), now));
}
