// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The end of a transfer comes inside of libcurl's turn, where nothing may be thrown: it asks for no memory.

#include <millrace/http/engine.hpp>

#include <memory>
#include <new>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/replaced_new.hpp"
#include "tests/support/scripted_server.hpp"

#if !MILLRACE_ASAN && !MILLRACE_TSAN

using namespace millrace;

namespace {

thread_local bool none_left = false;  // memory

}  // namespace

bool millrace::test::allocation_fails() noexcept { return none_left; }

TEST_CASE("a transfer ends where there is no memory, and what has come of its body is read", "[http]") {
  constexpr std::size_t piece = 1000;
  for (std::size_t whole = 0; whole <= 50; ++whole) {
    INFO(whole << " pieces and a few bytes");
    const std::string body(whole * piece + 7, 'x');
    const test::scripted_server server(
        {{"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + body, test::scripted_answer::then::stall}});
    const auto loop = make_event_loop();
    http::body_options small;
    small.heap_chunk = piece;
    http::request r(server.url());
    http::detail::transfer t(http::engine::of(*loop), std::move(r), std::make_shared<const http::transport_options>(),
                             std::move(small));
    loop->run_until([&] { return t.received() == body.size(); });
    none_left = true;
    t.transfer_ended(CURLE_RECV_ERROR);
    none_left = false;
    std::size_t read = 0;
    for (;;) {
      REQUIRE(t.body_ready());
      try {
        const bytes next = t.take_body();
        read += next.size();
      } catch (const std::bad_alloc&) {  // there was none to say what has happened
        break;
      }
    }
    CHECK(read == body.size());
  }
}

#endif
