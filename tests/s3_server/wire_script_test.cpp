// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/detail/connection.hpp>

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

namespace s3_server = millrace::s3_server;
using millrace::bytes;
using s3_server::fault;
using s3_server::detail::step;

const std::string content = "0123456789";

s3_server::reply ranged() {
  s3_server::reply a(206);
  a.add("ETag", "\"e\"").add("Content-Range", "bytes 5-14/20").add("Content-Length", "10");
  a.set_body({bytes::copy("0123"), bytes::copy("456789")});
  return a;
}

/// What a script does, in text: sent bytes as they are, with the head up to its empty line left out; [pause] and so on.
struct played {
  std::string head;
  std::string rest;
};
played play(s3_server::reply a, fault f) {
  std::string text;
  for (const step& s : s3_server::detail::make_script(std::move(a), std::move(f))) {
    for (const bytes& b : s.slices) text += b.view();
    if (s.what == step::kind::pause) text += "[pause]";
    if (s.what == step::kind::stall) text += "[stall]";
    if (s.what == step::kind::reset) text += "[reset]";
    if (s.what == step::kind::close) text += "[close]";
  }
  const std::size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return {std::string(), text};
  return {text.substr(0, end + 2), text.substr(end + 4)};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("without a fault an answer is one write without copies") {
  const s3_server::reply a = ranged();
  const auto script = s3_server::detail::make_script(a, fault());
  REQUIRE(script.size() == 1);
  REQUIRE(script[0].slices.size() == 3);
  CHECK(script[0].slices[1].data() == a.body[0].data());
  CHECK(script[0].slices[2].data() == a.body[1].data());
  CHECK(play(a, fault()).head ==
        "HTTP/1.1 206 Partial Content\r\nETag: \"e\"\r\nContent-Range: bytes 5-14/20\r\nContent-Length: 10\r\n");
  CHECK(play(a, fault()).rest == content);
}

TEST_CASE("faults of time and of the connection") {
  const millrace::duration pause(5);
  CHECK(play(ranged(), fault::delay_head(pause)).rest == content);
  CHECK(play(ranged(), fault::delay_head(pause)).head.substr(0, 7) == "[pause]");
  CHECK(play(ranged(), fault::delay_body(3, pause)).rest == "012[pause]3456789");
  CHECK(play(ranged(), fault::delay_body(99, pause)).rest == "0123456789[pause]");
  CHECK(play(ranged(), fault::stall_head()).rest == "[stall][close]");
  CHECK(play(ranged(), fault::stall_body(4)).rest == "0123[stall][close]");
  CHECK(play(ranged(), fault::drip(4, pause)).rest == "[pause]0123[pause]4567[pause]89");
  CHECK(play(ranged(), fault::drip(0, pause)).rest.size() == 10 * 8);
  fault random(fault::kind::drip, 12345);  // in a few pieces, however long the body is
  random.at_is_random = true;
  CHECK(play(ranged(), random).rest == "[pause]01[pause]23[pause]45[pause]67[pause]89");
  CHECK(play(ranged(), fault::reset_before_head()).rest == "[reset]");
  CHECK(play(ranged(), fault::reset_in_head(9)).rest == "HTTP/1.1 [reset]");
  CHECK(play(ranged(), fault::reset_in_body(5)).rest == "01234[reset]");
  CHECK(play(ranged(), fault::close_before_head()).rest == "[close]");
  CHECK(play(ranged(), fault::close_in_head(4)).rest == "HTTP[close]");
  CHECK(play(ranged(), fault::close_in_body(0)).rest == "[close]");
  CHECK(play(ranged(), fault::close_in_body(9)).rest == "012345678[close]");
}

TEST_CASE("faults of framing") {
  played p = play(ranged(), fault::no_content_length());
  CHECK(!has(p.head, "Content-Length"));
  CHECK(has(p.head, "Connection: close"));
  CHECK(p.rest == "0123456789[close]");
  CHECK(play(ranged(), fault::cut_without_length(7)).rest == "0123456[close]");
  p = play(ranged(), fault::wrong_content_length(12));
  CHECK(has(p.head, "Content-Length: 12\r\n"));
  CHECK(p.rest == "0123456789[close]");
  p = play(ranged(), fault::two_content_lengths(5));
  CHECK(has(p.head, "Content-Length: 10\r\nContent-Length: 15\r\n"));
  CHECK(play(ranged(), fault::longer_body(3)).rest == "0123456789xxx[close]");
  p = play(ranged(), fault::chunked());
  CHECK(has(p.head, "Transfer-Encoding: chunked"));
  CHECK(!has(p.head, "Content-Length"));
  CHECK(p.rest == "a\r\n0123456789\r\n0\r\n\r\n");
  CHECK(play(ranged(), fault::chunked_garbage(2)).rest == "2\r\n01\r\nnot a size\r\n[close]");
  CHECK(play(ranged(), fault::chunked_cut(2)).rest == "2\r\n01\r\n[close]");
  s3_server::reply big;
  big.set_body({bytes::copy(std::string(70000, 'x'))});
  CHECK(has(play(big, fault::chunked()).rest, "\r\n1170\r\n"));
}

TEST_CASE("faults of the head and of the content") {
  CHECK(play(ranged(), fault::garbage_status()).head.substr(0, 9) == "ICY ???\r\n");
  CHECK(play(ranged(), fault::early_hints()).head.substr(0, 12) == "HTTP/1.1 103");
  CHECK(play(ranged(), fault::huge_head(300000)).head.size() > 300000);
  CHECK(play(ranged(), fault::nul_in_head()).head.find('\0') != std::string::npos);
  CHECK(!has(play(ranged(), fault::no_etag()).head, "ETag"));
  CHECK(has(play(ranged(), fault::wrong_etag()).head, "ETag: \"0000"));
  CHECK(!has(play(ranged(), fault::no_content_range()).head, "Content-Range"));
  CHECK(has(play(ranged(), fault::wrong_content_range(2)).head, "Content-Range: bytes 7-16/20\r\n"));
  const s3_server::reply a = ranged();
  CHECK(play(a, fault::flipped_bit(5)).rest == "0123446789");
  CHECK(play(a, fault()).rest == content);
  CHECK(has(play(a, fault().with_field("Retry-After", "3")).head, "Retry-After: 3\r\n"));
}

TEST_CASE("an answer to HEAD stays without a body under every fault") {
  s3_server::reply a = ranged();
  a.without_body = true;
  for (int k = 0; k <= static_cast<int>(fault::kind::page); ++k) {
    fault f(static_cast<fault::kind>(k), 3);
    if (f.what == fault::kind::early_hints) continue;  // two heads, no body
    const std::string rest = play(a, f).rest;
    INFO(k << ": " << rest);
    CHECK(rest.find_first_of("0123456789x") == std::string::npos);
  }
}

TEST_CASE("random positions lie inside the answer") {
  for (std::uint64_t n : {0u, 7u, 10u, 11u, 1000u}) {
    fault f = fault::close_in_body(n);
    f.at_is_random = true;
    CHECK(play(ranged(), f).rest == content.substr(0, n % 11) + "[close]");
  }
}

TEST_CASE("answers in the place of the real one") {
  const s3_server::reply slow = s3_server::detail::substitute(fault::refuse(503, "SlowDown"), "/b/k", "1");
  CHECK(slow.status == 503);
  CHECK(has(std::string(slow.body[0].view()), "<Code>SlowDown</Code>"));
  CHECK(s3_server::detail::substitute(fault::error_in_success("InternalError"), "/", "1").status == 200);
  CHECK(has(std::string(s3_server::detail::substitute(fault::page(), "/", "1").body[0].view()), "<html>"));
}

}  // namespace
