// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/ops/put_object.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/spawned.hpp>

#include "tests/s3/uploading.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;
using s3_server::fault;

namespace {

/// Stores `content` with parts of 1000 bytes, on a loop of its own.
std::string stored_etag(const s3::client& c, const std::string& url, stream<bytes> content,
                        s3::put_options o = small_parts) {
  const auto loop = make_event_loop();
  const s3::object_info info = block_on(*loop, c.put(url, std::move(content), o));
  CHECK(loop->frames() == 0);
  return info.etag;
}

/// What putting it throws.
template <class Error = s3::error>
Error refused(const s3::client& c, stream<bytes> content, s3::put_options o = small_parts) {
  try {
    stored_etag(c, "s3://b/k", std::move(content), o);
  } catch (const Error& e) {
    return e;
  }
  throw std::logic_error("it was stored");
}

}  // namespace

TEST_CASE("streams of every length become objects: in one request where one part holds them") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  for (const std::size_t size : {0, 1, 999, 1000, 1001, 1999, 2000, 2001, 12345}) {
    for (const std::size_t piece : {1, 300, 1000, 4096, 20000}) {
      if (size > 3000 && piece == 1) continue;
      INFO(size << " bytes in pieces of " << piece);
      server.log().clear();
      const std::string body = pattern(size);
      const std::string etag = stored_etag(c, "s3://b/k", pieces_of(body, piece));
      CHECK((content_of(server, "k") == body));
      CHECK(server.objects().find("b", "k")->etag == etag);
      const std::size_t parts = (size + 999) / 1000;
      CHECK(server.log().size() == (parts <= 1 ? 1 : parts + 2));
      CHECK(server.objects().open_uploads() == 0);
    }
  }
}

TEST_CASE("size, checksums, content type and metadata of what is stored") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  const s3::header_field about[] = {{"step", "1000"}, {"by", "a test: x=1;  y"}};
  for (const std::size_t size : {10, 2500}) {
    s3::put_options o = small_parts;
    o.content_type = "application/x-test";
    o.metadata = about;
    stored_etag(c, "s3://b/k", pieces_of(pattern(size), 700), o);
    const auto object = server.objects().find("b", "k");
    using field = s3_server::object::field;
    CHECK(object->fields.size() == 3);
    CHECK(object->fields[0] == field("content-type", "application/x-test"));
    CHECK(object->fields[1] == field("x-amz-meta-step", "1000"));
    CHECK(object->fields[2] == field("x-amz-meta-by", "a test: x=1;  y"));
    CHECK(!object->checksum("x-amz-checksum-crc32c").empty());
    o.checksums = false;
    stored_etag(c, "s3://b/k", pieces_of(pattern(size), 700), o);
    CHECK(server.objects().find("b", "k")->checksums.empty());
  }
  const auto loop = make_event_loop();
  CHECK(block_on(*loop, c.put("s3://b/k", pieces_of(pattern(2500), 700), small_parts)).size == 2500);
  CHECK(block_on(*loop, c.put("s3://b/k", pieces_of(pattern(25), 700), small_parts)).size == 25);
}

TEST_CASE("what fails on the way is asked for again, part by part") {
  const std::string body = pattern(4500);  // five parts
  const char* const methods[] = {"POST", "PUT", "PUT", "PUT", "POST"};
  const std::uint64_t numbers[] = {1, 1, 3, 5, 2};
  const fault faults[] = {fault::refuse(500, "InternalError"),
                          fault::error_in_success("InternalError"),
                          fault::page(200),
                          fault::reset_before_head(),
                          fault::close_in_head(30),
                          fault::no_etag(),
                          fault::refuse(400, "RequestTimeout")};
  for (std::size_t i = 0; i < std::size(methods); ++i) {
    for (const fault& f : faults) {
      // A lost answer to the creation leaves an upload that cannot be found.
      const bool lost = f.what != fault::kind::refuse && f.what != fault::kind::error_in_success &&
                        f.what != fault::kind::page && f.what != fault::kind::no_etag;
      if (i == 0 && lost) continue;
      INFO(methods[i] << " " << numbers[i] << ", fault " << static_cast<int>(f.what));
      s3_server::background server(small_part_server());
      server.faults().add({.method = methods[i], .nth = numbers[i]}, f);
      stored_etag(client_of(server), "s3://b/k", pieces_of(body, 700));
      CHECK(server.faults().injected() == 1);
      CHECK((content_of(server, "k") == body));
      CHECK(server.objects().open_uploads() == 0);
    }
  }
}

TEST_CASE("an answer that breaks off after the ETag of what is stored is a success") {
  for (const bool only_new : {false, true}) {
    for (const std::size_t size : {5, 2500}) {
      INFO(size << " bytes, only new: " << only_new);
      s3_server::background server(small_part_server());
      s3::put_options o = small_parts;
      o.only_new = only_new;
      server.faults().add({.method = "PUT"}, fault::chunked_cut(0));
      const std::string etag = stored_etag(client_of(server), "s3://b/k", pieces_of(pattern(size), 700), o);
      CHECK(etag == server.objects().find("b", "k")->etag);
      CHECK((content_of(server, "k") == pattern(size)));
      CHECK(server.log().size() == (size < 1000 ? 1 : 5));
    }
  }
}

TEST_CASE("an answer that breaks off in a document, or without an ETag, is no success") {
  for (const char* answer : {"ETag: \"x\"\r\nContent-Length: 99\r\n\r\n<Error><Code>", "Content-Length: 99\r\n\r\n"}) {
    const scripted_server server({{"HTTP/1.1 200 OK\r\n" + std::string(answer), scripted_answer::then::fin}});
    const std::string endpoint = server.url("");
    s3::config_options o;
    o.endpoint = endpoint;
    o.retry.base = std::chrono::microseconds(1);
    const s3::client c(s3::config(o), s3::credentials("key", "secret"));
    CHECK_THROWS_AS(stored_etag(c, "s3://b/k", pieces_of("text", 4)), http::error);
    CHECK(server.requests().size() == 3);
  }
}

TEST_CASE("a store under random faults holds what was put, or what was there before") {
  int stored = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    s3_server::background server(small_part_server());
    server.put("b", "k", std::string_view("before"));
    server.faults().randomize({.seed = seed, .probability = 0.25, .per_request = 1});
    const std::string body = pattern(3300 + 100 * seed);
    INFO("seed " << seed);
    try {
      stored_etag(client_of(server), "s3://b/k", pieces_of(body, 512));
      ++stored;
      CHECK((content_of(server, "k") == body));
    } catch (const error&) {
      const std::string there = content_of(server, "k");
      CHECK((there == "before" || there == body));
    }
  }
  CHECK(stored > 6);
}

TEST_CASE("what fails for good leaves neither object nor upload") {
  for (const std::uint64_t part : {1, 2, 5}) {
    s3_server::background server(small_part_server());
    server.faults().add({.method = "PUT", .nth = part}, fault::refuse(403, "AccessDenied"));
    const s3::error e = refused(client_of(server), pieces_of(pattern(4500), 700));
    CHECK(e.code() == "AccessDenied");
    CHECK(e.object() == "s3://b/k");
    CHECK(server.objects().open_uploads() == 0);
    CHECK(server.objects().size("b") == 0);
  }
  for (const std::uint64_t request : {1, 2}) {  // the creation and the completion
    s3_server::background server(small_part_server());
    server.faults().add({.method = "POST", .nth = request}, fault::refuse(403, "AccessDenied"));
    CHECK(refused(client_of(server), pieces_of(pattern(4500), 700)).code() == "AccessDenied");
    CHECK(server.objects().open_uploads() == 0);
    CHECK(server.objects().size("b") == 0);
  }
  {
    // Completed, and every answer an error: the client cannot know, and says so.
    s3_server::background server(small_part_server());
    server.faults().add({.method = "POST", .nth = 2, .times = 5}, fault::error_in_success("InternalError"));
    const s3::error e = refused(client_of(server), pieces_of(pattern(4500), 700));
    CHECK(e.status() == 200);
    CHECK(e.code() == "InternalError");
    CHECK(server.objects().open_uploads() == 0);
  }
}

TEST_CASE("a source that fails, ends early or goes on makes no object") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  s3::put_options o = small_parts;
  for (const std::uint64_t promised : {0, 10, 500, 2499, 2501, 4000}) {
    o.size = promised;
    const error e = refused<error>(c, pieces_of(pattern(2500), 700), o);
    CHECK(e.object() == "s3://b/k");
    CHECK(e.offset() == std::min<std::uint64_t>(promised, 2500));
    CHECK(server.objects().open_uploads() == 0);
  }
  o.size = 2500;
  for (const std::size_t size : {100, 1000, 1800, 2499}) {
    CHECK(refused<decode_error>(c, failing_after(size, 300), small_parts).reason() == "the source broke");
    CHECK(server.objects().open_uploads() == 0);
  }
  CHECK(server.objects().size("b") == 0);
  stored_etag(c, "s3://b/k", pieces_of(pattern(2500), 700), o);
  CHECK((content_of(server, "k") == pattern(2500)));
}

TEST_CASE("an object that is there already is left alone on demand") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  s3::put_options o = small_parts;
  o.only_new = true;
  for (const std::size_t size : {5, 5000}) {
    server.objects().erase("b", "k");
    stored_etag(c, "s3://b/k", pieces_of(pattern(size), 700), o);
    const s3::error e = refused(c, pieces_of(pattern(size + 1), 700), o);
    CHECK(e.status() == 412);
    CHECK(e.code() == "PreconditionFailed");
    CHECK((content_of(server, "k") == pattern(size)));
    CHECK(server.objects().open_uploads() == 0);
  }
  const auto loop = make_event_loop();
  CHECK_THROWS_AS(block_on(*loop, c.put("s3://b/k", bytes::copy("x"), o)), s3::error);
  block_on(*loop, c.put("s3://b/new", bytes::copy("x"), o));
  CHECK(content_of(server, "new") == "x");
  block_on(*loop, c.put("s3://b/new", bytes::copy("y"), "text/plain"));
  CHECK(content_of(server, "new") == "y");
  CHECK(server.objects().find("b", "new")->fields.size() == 1);
}

TEST_CASE("what is stored only where it is new is no refusal of itself when the answer was lost") {
  const fault kinds[] = {fault::reset_before_head(), fault::close_before_head(),
                         fault::close_in_head(30),   fault::no_etag(),
                         fault::garbage_status(),    fault::error_in_success("InternalError")};
  s3::put_options o = small_parts;
  o.only_new = true;
  for (const std::size_t size : {5, 2500}) {
    for (const fault& f : kinds) {
      for (const bool checksums : {true, false}) {
        if (f.what == fault::kind::no_etag && size > 1000) continue;  // of a completion the document has it
        INFO(size << " bytes, fault " << static_cast<int>(f.what) << ", checksums " << checksums);
        s3_server::background server(small_part_server());
        const s3::client c = client_of(server);
        o.checksums = checksums;
        const std::string body = pattern(size);
        server.faults().add({.method = size > 1000 ? "POST" : "PUT", .nth = size > 1000 ? 2u : 1u}, f);
        std::string etag;
        CHECK(failure_of([&] { etag = stored_etag(c, "s3://b/k", pieces_of(body, 700), o); }) == "no error");
        CHECK((content_of(server, "k") == body && etag == server.objects().find("b", "k")->etag));
        CHECK(server.objects().open_uploads() == 0);
      }
    }
    // Another client's object is a refusal, also after a failure.
    s3_server::background server(small_part_server());
    const s3::client c = client_of(server);
    server.put("b", "k", std::string_view("another"));
    server.faults().add({.method = size > 1000 ? "POST" : "PUT", .nth = size > 1000 ? 2u : 1u},
                        fault::refuse(500, "InternalError"));
    CHECK(refused(c, pieces_of(pattern(size), 700), o).code() == "PreconditionFailed");
    CHECK(content_of(server, "k") == "another");
    // The refusal says so if it cannot be looked at.
    server.faults().add({.method = size > 1000 ? "POST" : "PUT", .nth = size > 1000 ? 2u : 1u},
                        fault::refuse(500, "InternalError"));
    server.faults().add({.method = "HEAD"}, fault::refuse(403, "AccessDenied"));
    CHECK_THAT(refused(c, pieces_of(pattern(size), 700), o).what(), Contains("an earlier attempt may have stored it"));
  }
}

TEST_CASE("a completion that is refused as there, after one whose answer was lost, is looked for") {
  // This server no longer knows the upload then; S3 looks at the object first.
  s3::put_options o = small_parts;
  o.only_new = true;
  for (const bool checksums : {true, false}) {
    s3_server::background server(small_part_server());
    o.checksums = checksums;
    server.faults().add({.method = "POST", .nth = 2}, fault::close_before_head());
    server.faults().add({.method = "POST", .nth = 3}, fault::refuse(412, "PreconditionFailed"));
    CHECK(failure_of([&] { stored_etag(client_of(server), "s3://b/k", pieces_of(pattern(2500), 700), o); }) ==
          "no error");
    CHECK((content_of(server, "k") == pattern(2500)));
  }
}

TEST_CASE("an object is replaced only while it is the version that was named, also when an answer was lost") {
  for (const std::size_t size : {5, 2500}) {
    INFO(size << " bytes");
    s3_server::background server(small_part_server());
    const s3::client c = client_of(server);
    s3::put_options o = small_parts;
    o.if_match = stored_etag(c, "s3://b/k", pieces_of("before", 700), small_parts);
    server.faults().add({.method = size > 1000 ? "POST" : "PUT", .nth = size > 1000 ? 2u : 1u},
                        fault::reset_before_head());
    const std::string etag = stored_etag(c, "s3://b/k", pieces_of(pattern(size), 700), o);
    CHECK(etag == server.objects().find("b", "k")->etag);
    CHECK(server.faults().injected() == 1);
    CHECK(refused(c, pieces_of(pattern(size + 1), 700), o).code() == "PreconditionFailed");
    CHECK((content_of(server, "k") == pattern(size)));
    server.objects().erase("b", "k");
    CHECK(refused(c, pieces_of(pattern(size), 700), o).code() == "NoSuchKey");
    CHECK(server.objects().open_uploads() == 0);
    o.if_match = "a\nb";
    CHECK_THROWS_WITH(c.put("s3://b/k", bytes::copy("x"), o), Contains("an ETag may hold printable ASCII only"));
  }
}

TEST_CASE("requests for one name that meet are asked for again") {
  s3::put_options o = small_parts;
  o.only_new = true;
  for (const char* code : {"ConditionalRequestConflict", "OperationAborted"}) {
    for (const std::size_t size : {5, 2500}) {
      s3_server::background server(small_part_server());
      server.faults().add({.method = size > 1000 ? "POST" : "PUT", .nth = size > 1000 ? 2u : 1u},
                          fault::refuse(409, code));
      INFO(code << ", " << size << " bytes");
      CHECK(failure_of([&] { stored_etag(client_of(server), "s3://b/k", pieces_of(pattern(size), 700), o); }) ==
            "no error");
      CHECK(content_of(server, "k") == pattern(size));
    }
  }
}

TEST_CASE("an answer to the completion that is lost is looked for") {
  const std::string body = pattern(3000);
  for (const bool other : {false, true}) {
    s3_server::background server(small_part_server());
    server.faults().add({.method = "POST", .nth = 2}, fault::reset_in_body(10));
    // Another client stores an object of that name at once: ours is not there, although it was.
    if (other) server.faults().add({.method = "HEAD"}, fault::replace_object());
    if (other) {
      s3::put_options without_sums = small_parts;
      without_sums.checksums = false;
      CHECK(refused(client_of(server), pieces_of(body, 700), without_sums).code() == "NoSuchUpload");
    } else {
      const std::string etag = stored_etag(client_of(server), "s3://b/k", pieces_of(body, 700));
      CHECK(etag == server.objects().find("b", "k")->etag);
    }
    CHECK((content_of(server, "k") == body));
  }
}

TEST_CASE("a store that tells another checksum than was sent has not stored it") {
  for (const char* sum : {"x-amz-checksum-crc32c: AAAAAA==\r\n", ""}) {
    const scripted_server server(
        {{"HTTP/1.1 200 OK\r\nETag: \"x\"\r\n" + std::string(sum) + "Content-Length: 0\r\n\r\n",
          scripted_answer::then::fin}});
    const std::string endpoint = server.url("");
    s3::config_options o;
    o.endpoint = endpoint;
    o.retry.base = std::chrono::microseconds(1);
    const s3::client c(s3::config(o), s3::credentials("key", "secret"));
    if (*sum == '\0') {
      CHECK(stored_etag(c, "s3://b/k", pieces_of("text", 4)) == "\"x\"");
    } else {
      CHECK_THROWS_WITH(stored_etag(c, "s3://b/k", pieces_of("text", 4)), Contains("another checksum"));
      CHECK(server.requests().size() == 3);
    }
  }
}

TEST_CASE("a store that knows no checksums gets none when an upload is completed") {
  s3_server::options o = small_part_server();
  o.checksums = false;
  s3_server::background server(o);
  const s3::client c = client_of(server);
  const auto loop = make_event_loop();
  const std::string text = pattern(2500);
  for (std::size_t size : {std::size_t(700), text.size()}) {
    auto stream = pieces_of(text.substr(0, size), 300);
    const s3::object_info stored = block_on(*loop, c.put("s3://b/k", std::move(stream), small_parts));
    CHECK(stored.size == size);
    CHECK(content_of(server, "k") == text.substr(0, size));
  }
  CHECK(server.objects().open_uploads() == 0);
}

TEST_CASE("streams are stored over TLS") {
  s3_server::options o = small_part_server();
  o.tls.enabled = true;
  s3_server::background server(o);
  server.objects().create_bucket("b");
  s3::config_options at;
  const std::string endpoint = server.endpoint();
  const std::string authority = server.certificate_file();
  at.endpoint = endpoint;
  at.ca_bundle = authority;
  const s3::client c(s3::config(at), s3::credentials("test-key", "test-secret"));
  const std::string body = pattern(300'000);
  s3::put_options large;
  large.part = 70'000;
  for (const bool checksums : {true, false}) {
    INFO("checksums " << checksums);
    const std::size_t before = server.log().entries().size();
    large.checksums = checksums;
    stored_etag(c, "s3://b/k", pieces_of(body, 30'000), large);
    CHECK((content_of(server, "k") == body));
    const std::vector<s3_server::logged_request> asked = server.log().entries();
    int parts = 0;
    for (std::size_t i = before; i < asked.size(); ++i) {
      const bool part = asked[i].method == "PUT";
      parts += part;
      // The checksum of a part stands in for its hash.
      CHECK((asked[i].payload == "UNSIGNED-PAYLOAD") == (part && checksums));
    }
    CHECK(parts == 5);
  }
}

TEST_CASE("parts of an upload go out side by side, as many as the bounds allow, and no more are held") {
  struct bound {
    std::size_t parts;
    std::size_t window;
    std::size_t expected;
  };
  for (const bound& b : {bound{4, 1 << 20, 4}, bound{100, 3999, 3}, bound{1, 1 << 20, 1}, bound{5, 10, 1}}) {
    s3_server::background server(small_part_server());
    server.faults().add({.method = "PUT"}, fault::stall_head());
    const s3::client c = client_of(server);
    std::size_t made = 0;
    const auto loop = make_event_loop();
    {
      s3::put_options o = small_parts;
      o.parts = b.parts;
      o.window = b.window;
      const spawned<s3::object_info> running(*loop, c.put("s3://b/k", endless(100, made), o));
      // The creation, and that many parts.
      while (server.log().size() < b.expected + 1) block_on(*loop, one_turn());
      for (int turn = 0; turn < 20; ++turn) block_on(*loop, one_turn());
      CHECK(server.log().size() == b.expected + 1);
      // One piece more, to know that the part before is not the last.
      CHECK(made == b.expected * 1000 + 100);
    }
    loop->drain();
    CHECK(loop->frames() == 0);
    CHECK(server.objects().open_uploads() == 0);
  }
}

TEST_CASE("memory stays bounded while a long stream is stored") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  const std::size_t total = 200'000;
  std::size_t most = 0;
  s3::put_options o = small_parts;
  o.parts = 3;
  stored_etag(c, "s3://b/k", watched(total, 250, server, most), o);
  CHECK(content_of(server, "k").size() == total);
  CHECK(most <= 3 * 1000 + 250);
}

TEST_CASE("dropped at any moment, an upload leaves nothing behind") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  const std::string body = pattern(5500);
  int whole = 0;
  int uploads = 0;
  for (std::uint64_t turns = 0; turns < 120; ++turns) {
    server.objects().erase("b", "k");
    server.log().clear();
    const auto loop = make_event_loop();
    std::uint64_t turn = 0;
    {
      const spawned<s3::object_info> running(*loop, c.put("s3://b/k", pieces_of(body, 400), small_parts));
      loop->run_until([&] { return running.done() || turn++ >= turns; });
    }
    loop->drain();
    CHECK(loop->frames() == 0);
    CHECK(loop->operations() == 0);
    INFO("dropped after " << turns << " turns");
    CHECK(server.objects().open_uploads() == 0);
    if (server.objects().find("b", "k") != nullptr) {
      ++whole;
      CHECK((content_of(server, "k") == body));
    }
    if (server.log().size() > 0) ++uploads;
  }
  CHECK(uploads > 0);
  CHECK(whole < 120);
}

TEST_CASE("options that cannot work, and text that no header may carry, are refused before anything is sent") {
  s3_server::background server(small_part_server());
  const s3::client c = client_of(server);
  const auto refuses = [&](const s3::put_options& o) {
    CHECK_THROWS_AS(c.put("s3://b/k", pieces_of("x", 1), o), configuration_error);
    CHECK_THROWS_AS(c.put("s3://b/k", bytes::copy("x"), o), configuration_error);
  };
  refuses({.part = 0});
  refuses({.part = 6 * GiB});
  const std::string_view bad_text[] = {"a\r\nx-evil: 1", "a\nb", "a\rb", {"a\0b", 3}, "a\tb", "\xc3\xa4", "\x7f"};
  for (const std::string_view bad : bad_text) {
    s3::put_options o;
    o.content_type = bad;
    refuses(o);
    const s3::header_field value[] = {{"name", bad}};
    const s3::header_field name[] = {{bad, "value"}};
    o = s3::put_options();
    o.metadata = value;
    refuses(o);
    o.metadata = name;
    refuses(o);
  }
  for (const std::string_view name : {"", "a b", "a:b", "a/b"}) {
    const s3::header_field field[] = {{name, "value"}};
    s3::put_options o;
    o.metadata = field;
    refuses(o);
  }
  CHECK(server.log().size() == 0);

  s3::config_options aws;
  aws.region = "us-east-1";
  CHECK_THROWS_AS(s3::detail::put_plan(s3::config(aws), {.part = 5 * MiB - 1}), configuration_error);
  const s3::config plain(aws);
  CHECK(s3::detail::put_plan(plain, {.part = 5 * MiB}).limit == 4);
  CHECK(s3::detail::put_plan(plain, {.part = 5 * MiB, .size = 50'000 * MiB - 1}).part == 5 * MiB);
  CHECK(s3::detail::put_plan(plain, {.part = 5 * MiB, .size = 50'000 * MiB}).part == 6 * MiB);
  CHECK_THROWS_AS(s3::detail::put_plan(plain, {.size = 60'000 * GiB}), configuration_error);

  const auto session = std::make_shared<const s3::session>(
      c.configuration(), std::make_shared<s3::fixed_credentials>(s3::credentials()), http::transport_options());
  const auto loop = make_event_loop();
  s3::detail::object_chunk chunk(10001, 1000000, bytes::copy("x"), false);
  CHECK_THROWS_WITH(block_on(*loop, s3::detail::store_part(session, "b", "k", "id", std::move(chunk), true)),
                    Contains("s3://b/k at byte 1000000"));
  CHECK(server.log().size() == 0);
}
