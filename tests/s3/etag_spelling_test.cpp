// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Stores that spell the ETag of a version in more ways than one, and those that do not know what If-Match means.

#include <millrace/text/entity_tag.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/wire/documents.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::scripted_answer;
using test::scripted_server;

namespace {

std::string field_of(const std::string& head, const std::string& name) {
  const std::size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return std::string();
  const std::size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

/// A store with one object, s3://b/k. The ETag of its listing, that of its answers, and what it makes of If-Match are
/// its own.
class odd_store {
 public:
  std::string listed = "&quot;e1&quot;";
  std::string answered = "\"e1\"";
  std::function<bool(const std::string&)> matches = [](const std::string& asked) { return asked == "\"e1\""; };
  bool serves_head = true;
  std::string object = std::string(200'000, 'a') + std::string(100'000, 'b');

  odd_store() : server_([this](const std::string& head) { return answer(head); }) {}

  std::string read() {
    return outcome([this](event_loop& loop) {
      const s3::client c = client();
      return block_on(loop, all(c.list("s3://b/") | fetch(c, {.shards = 1, .window = 128 * KiB, .part = 64 * KiB})));
    });
  }
  /// Read by a server on the web that knows nothing of S3, by parts of one version.
  std::string read_as_web(const std::string& etag) {
    return outcome([&](event_loop& loop) {
      std::vector<shard> one(1, shard(server_.url("/b/k"), object.size(), etag));
      const std::shared_ptr<const storage> web = std::make_shared<http_storage>();
      return block_on(
          loop, all(from_range(std::move(one)) | fetch(web, {.shards = 1, .window = 128 * KiB, .part = 64 * KiB})));
    });
  }
  s3::client client() const {
    s3::config_options o;
    o.endpoint = server_.url("");
    o.region = "us-east-1";
    o.retry.base = std::chrono::microseconds(10);
    return s3::client(s3::config(o), s3::credentials("key", "secret"));
  }
  std::vector<std::string> requests() const { return server_.requests(); }
  std::size_t asked_with_condition() const {
    const std::vector<std::string> all = requests();
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [](const std::string& r) { return !condition_of(r).empty(); }));
  }
  static std::string condition_of(const std::string& head) {
    const std::string lower = field_of(head, "if-match");
    return lower.empty() ? field_of(head, "If-Match") : lower;
  }

 private:
  static task<std::string> all(stream<chunk> in) {
    std::string text;
    while (std::optional<chunk> c = co_await in.next()) text += c->data.view();
    co_return text;
  }
  template <class Read>
  std::string outcome(Read read) {
    const auto loop = make_event_loop();
    try {
      return read(*loop) == object ? "read" : "other bytes";
    } catch (const changed_error& e) {
      return std::string("changed: ") + e.what();
    } catch (const error& e) {
      return e.what();
    }
  }
  static scripted_answer whole(const std::string& status, const std::string& fields, const std::string& body,
                               bool with_body = true) {
    return {"HTTP/1.1 " + status + "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
                fields + "\r\n" + (with_body ? body : std::string()),
            scripted_answer::then::fin};
  }
  scripted_answer answer(const std::string& head) const {
    if (head.find("list-type=2") != std::string::npos) {
      return whole("200 OK", "",
                   "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>k</Key><Size>" +
                       std::to_string(object.size()) + "</Size><ETag>" + listed +
                       "</ETag></Contents></ListBucketResult>");
    }
    const bool is_head = head.substr(0, 5) == "HEAD ";
    if (is_head && !serves_head) return whole("405 Method Not Allowed", "", "", false);
    const std::string asked = condition_of(head);
    if (!asked.empty() && !matches(asked)) return whole("412 Precondition Failed", "", "");
    const std::string etag = answered.empty() ? std::string() : "ETag: " + answered + "\r\n";
    if (is_head) return whole("200 OK", etag, object, false);
    std::string range = field_of(head, "range");
    if (range.empty()) range = field_of(head, "Range");
    if (range.empty()) return whole("200 OK", etag, object);
    const std::size_t first = std::strtoull(range.c_str() + 6, nullptr, 10);
    const std::size_t asked_last = std::strtoull(range.c_str() + range.find('-') + 1, nullptr, 10);
    const std::size_t last = std::min(object.size() - 1, asked_last);
    return whole("206 Partial Content",
                 etag + "Content-Range: bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
                     std::to_string(object.size()) + "\r\n",
                 object.substr(first, last - first + 1));
  }

  scripted_server server_;
};

}  // namespace

TEST_CASE("ETags are compared by what they mean", "[etag]") {
  // RFC 9110, 8.8.3.2: the weak comparison; and spellings that the grammar does not know and stores use.
  for (const char* other : {"\"e1\"", "e1", "W/\"e1\"", "w/\"e1\"", "W/e1", "W/\"e1", "\"e1", "&quot;e1&quot;",
                            "&#34;e1&#34;", " \"e1\" ", "\n  e1\n", "\"\"e1\"\"", "W/&quot;e1&quot;"}) {
    INFO(other);
    CHECK(millrace::detail::same_etag("\"e1\"", other));
    CHECK(millrace::detail::same_etag(other, "e1"));
    CHECK(millrace::detail::plain_etag(other) == "\"e1\"");
    const bool weak = std::string_view(other).find('/') != std::string_view::npos;
    CHECK(millrace::detail::is_strong_etag(other) == !weak);
    CHECK(millrace::detail::quoted_etag(other) == (weak ? "W/\"e1\"" : "\"e1\""));
    // RFC 9110, 13.1.1: If-Match compares strongly.
    CHECK(millrace::detail::if_match_value(other) == (weak ? "" : "\"e1\""));
  }
  // Opaque: a suffix is that of another representation (8.8.3.3), and case counts.
  for (const char* other : {"\"e2\"", "\"E1\"", "e1-gzip", "\"e1-gzip\"", "\"e1-2\"", "\"e\"", "\"\"", "'e1'"}) {
    INFO(other);
    CHECK_FALSE(millrace::detail::same_etag("\"e1\"", other));
    CHECK_FALSE(millrace::detail::same_etag(other, "W/\"e1\""));
  }
  CHECK(millrace::detail::same_etag("W/ab=", "\"W/ab=\""));  // the slash may also be one of base64
  CHECK(millrace::detail::same_etag("", ""));
  CHECK_FALSE(millrace::detail::same_etag("", "\"e1\""));
  CHECK_FALSE(millrace::detail::same_etag("\"e1\"", ""));
  CHECK(millrace::detail::quoted_etag("").empty());
  CHECK(millrace::detail::if_match_value("").empty());
  CHECK(millrace::detail::if_match_value("a\"b").empty());
  CHECK(millrace::detail::if_match_value("a b") == "\"a b\"");
}

TEST_CASE("a listing's ETag has its quotes, however the store spells it", "[etag]") {
  const auto listed = [](const std::string& etag) {
    const std::string page = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>k</Key><Size>1</Size>" +
                             etag + "</Contents></ListBucketResult>";
    return s3::list_page::parse(page, "b").objects.at(0).etag;
  };
  CHECK(listed("<ETag>\"e1\"</ETag>") == "\"e1\"");
  CHECK(listed("<ETag>&quot;e1&quot;</ETag>") == "\"e1\"");
  CHECK(listed("<ETag>&amp;quot;e1&amp;quot;</ETag>") == "\"e1\"");
  CHECK(listed("<ETag>e1</ETag>") == "\"e1\"");
  CHECK(listed("<ETag>\n  e1\n</ETag>") == "\"e1\"");
  CHECK(listed("<ETag>W/\"e1\"</ETag>") == "W/\"e1\"");
  for (const char* none : {"", "<ETag/>", "<ETag></ETag>", "<ETag>&quot;&quot;</ETag>", "<ETag> </ETag>"}) {
    CHECK(listed(none).empty());
  }
}

TEST_CASE("a store that lists an ETag in one spelling and answers in another is read", "[etag][s3]") {
  const auto as_text = [](const std::string& wanted) {
    return [wanted](const std::string& asked) { return asked == wanted; };
  };
  const auto any = [](const std::string&) { return true; };
  struct spelling {
    const char* listed;
    const char* answered;
    std::function<bool(const std::string&)> matches;
  };
  const spelling all[] = {{"e1", "\"e1\"", as_text("\"e1\"")},  // NetApp ONTAP
                          {"&quot;e1&quot;", "e1", as_text("\"e1\"")},
                          {"&quot;e1&quot;", "e1", as_text("e1")},  // compares texts: always refuses what is proper
                          {"&amp;quot;e1&amp;quot;", "\"e1\"", as_text("\"e1\"")},
                          {"W/\"e1\"", "\"e1\"", as_text("\"e1\"")},
                          {"\"e1\"", "W/\"e1\"", as_text("nothing")},  // a weak one never matches (13.1.1)
                          {"\"e1\"", "W/\"e1\"", any},
                          {"W/\"e1\"", "W/\"e1\"", as_text("nothing")},
                          {"", "\"e1\"", as_text("\"e1\"")},
                          {"&quot;&quot;", "\"e1\"", as_text("\"e1\"")},
                          {"\n\"e1\"\n", "\"e1\"", as_text("\"e1\"")}};
  for (const spelling& s : all) {
    INFO(s.listed << " and " << s.answered);
    const test::captured_stderr said(test::captured_stderr::into::pipe);
    odd_store store;
    store.listed = s.listed;
    store.answered = s.answered;
    store.matches = s.matches;
    CHECK(store.read() == "read");
    for (const std::string& head : store.requests()) {
      const std::string condition = odd_store::condition_of(head);
      CHECK((condition.empty() || condition == "\"e1\""));
    }
  }
}

TEST_CASE("a store that refuses If-Match for the version it has is read without, and that is said once", "[etag][s3]") {
  for (const bool serves_head : {true, false}) {
    test::captured_stderr captured(test::captured_stderr::into::pipe);
    odd_store store;
    store.matches = [](const std::string&) { return false; };
    store.serves_head = serves_head;
    CHECK(store.read() == "read");
    // Those that were under way when the first one was refused, and no later one; of a HEAD for the checksum, one.
    CHECK(store.asked_with_condition() <= 4);
    CHECK(store.read() == "read");
    const std::string said = captured.text();
    CHECK_THAT(said, Contains("127.0.0.1:") && Contains("refuses If-Match"));
    CHECK(said.find("refuses If-Match") == said.rfind("refuses If-Match"));
  }
}

TEST_CASE("a version that has truly changed is refused with both ETags", "[etag][s3]") {
  for (const bool serves_head : {true, false}) {
    for (const bool ignores : {true, false}) {
      odd_store store;
      store.answered = "\"e2\"";
      store.serves_head = serves_head;
      store.matches = [=](const std::string& asked) { return ignores || asked == "\"e2\""; };
      CHECK_THAT(store.read(), Contains("changed: s3://b/k") && Contains("ETag \"e1\" became \"e2\""));
      CHECK_THAT(store.read_as_web("\"e1\""), Contains("changed: ") && Contains("ETag \"e1\" became \"e2\""));
    }
  }
  odd_store silent;  // refuses, and does not say what it has
  silent.answered.clear();
  silent.matches = [](const std::string&) { return false; };
  CHECK_THAT(silent.read(), Contains("s3://b/k"));
  CHECK_THAT(silent.read_as_web("\"e1\""), Contains("changed: "));
}

TEST_CASE("a web server that refuses If-Match for the version it has is read without", "[etag][http_storage]") {
  for (const char* etag : {"\"e1\"", "e1", "W/\"e1\""}) {
    test::captured_stderr captured(test::captured_stderr::into::pipe);
    odd_store store;
    store.matches = [](const std::string&) { return false; };
    CHECK(store.read_as_web(etag) == "read");
    CHECK(store.read_as_web(etag) == "read");
    const std::string said = captured.text();
    CHECK((said.find("refuses If-Match") != std::string::npos) == millrace::detail::is_strong_etag(etag));
    CHECK(said.find("refuses If-Match") == said.rfind("refuses If-Match"));
  }
  for (const char* etag : {"\"e1\"", "e1", "W/\"e1\"", "\"e2\""}) {  // one that knows If-Match, listed by another
    odd_store store;
    const bool same = std::string_view(etag).find("e1") != std::string_view::npos;
    CHECK((store.read_as_web(etag) == "read") == same);
  }
}
