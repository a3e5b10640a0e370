// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Directory buckets (S3 Express One Zone), by a scripted server after AWS's documentation of CreateSession and
// ListObjectsV2: a session for each bucket, its credentials, listings in no order.

#include <millrace/s3/client.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/sync/all_of.hpp>

#include "tests/s3/uploading.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

namespace {

constexpr const char* bucket = "train--usw2-az1--x-s3";

scripted_answer answered(const std::string& status, const std::string& body, const std::string& fields = "") {
  return {"HTTP/1.1 " + status + "\r\nx-amz-request-id: 1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
              fields + "Connection: close\r\n\r\n" + body,
          scripted_answer::then::fin};
}

bool has(const std::string& head, const std::string& part) { return head.find(part) != std::string::npos; }
bool creates_session(const std::string& head) { return has(head, std::string("GET /") + bucket + "?session HTTP/1.1"); }

/// What the store of the bucket does: sessions are numbered, and the requests answered by `then` must be signed by one.
class zonal_store {
 public:
  explicit zonal_store(std::function<scripted_answer(const std::string& head, int session)> then,
                       std::string expiration = "2199-01-01T00:00:00Z", std::string fields = "")
      : expiration_(std::move(expiration)),
        fields_(std::move(fields)),
        then_(std::move(then)),
        server_([this](const std::string& head) { return answer(head); }) {}

  s3::client client(const s3::config_options& given = {}) const {
    const std::string endpoint = server_.url("");
    s3::config_options o = given;
    o.endpoint = endpoint;
    o.region = "us-west-2";
    o.retry.base = std::chrono::microseconds(10);
    return s3::client(s3::config(o), s3::credentials("LONGKEY", "long-secret", "long-token"));
  }
  std::vector<std::string> requests() const { return server_.requests(); }
  int sessions() const {
    const std::vector<std::string> all = requests();
    return static_cast<int>(std::count_if(all.begin(), all.end(), creates_session));
  }

 private:
  scripted_answer answer(const std::string& head) {
    if (creates_session(head)) {
      if (!has(head, "Credential=LONGKEY/") || !has(head, "/us-west-2/s3express/aws4_request") ||
          !has(head, "\r\nx-amz-security-token: long-token\r\n") || has(head, "x-amz-s3session-token")) {
        return answered("403 Forbidden", "<Error><Code>SignatureDoesNotMatch</Code></Error>");
      }
      const std::string n = std::to_string(++session_);
      return answered("200 OK",
                      "<?xml version=\"1.0\"?><CreateSessionResult><Credentials><SessionToken>session-token-" + n +
                          "</SessionToken><SecretAccessKey>session-secret</SecretAccessKey><AccessKeyId>SESSION" + n +
                          "</AccessKeyId><Expiration>" + expiration_ +
                          "</Expiration></Credentials></CreateSessionResult>",
                      fields_);
    }
    const std::string n = std::to_string(session_);
    if (!has(head, "Credential=SESSION" + n + "/") || !has(head, "/us-west-2/s3express/aws4_request") ||
        !has(head, "\r\nx-amz-s3session-token: session-token-" + n + "\r\n") || !has(head, ";x-amz-s3session-token") ||
        has(head, "x-amz-security-token")) {
      return answered("403 Forbidden", "<Error><Code>SignatureDoesNotMatch</Code></Error>");
    }
    return then_(head, session_);
  }

  const std::string expiration_;
  const std::string fields_;
  int session_ = 0;  // on the server's thread
  std::function<scripted_answer(const std::string&, int)> then_;
  scripted_server server_;
};

scripted_answer three_bytes(const std::string& /*head*/, int /*session*/) {
  return {"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 3\r\nConnection: close\r\n\r\n",
          scripted_answer::then::fin};
}

std::string name(const std::string& key = "a/k") { return std::string("s3://") + bucket + "/" + key; }

task<std::size_t> all_at_once(std::vector<task<s3::object_info>> tasks) {
  const std::vector<s3::object_info> results = co_await all_of(std::move(tasks));
  co_return results.size();
}

std::vector<std::string> listed(const s3::client& c, const std::string& prefix) {
  const auto loop = make_event_loop();
  std::vector<std::string> keys;
  stream<shard> list = c.list(name(prefix));
  struct ask {
    static task<void> run(stream<shard>& from, std::vector<std::string>& to) {
      while (auto s = co_await from.next()) to.push_back(s->url.substr(name("").size()));
    }
  };
  block_on(*loop, ask::run(list, keys));
  return keys;
}

}  // namespace

TEST_CASE("one session with a directory bucket signs the requests of all loops") {
  const zonal_store store(three_bytes);
  const s3::client c = store.client({.requester_pays = true});
  const auto loop = make_event_loop();
  std::vector<task<s3::object_info>> several;
  for (int i = 0; i < 8; ++i) several.push_back(c.head(name()));
  CHECK(block_on(*loop, all_at_once(std::move(several))) == 8);
  const auto other = make_event_loop();
  CHECK(block_on(*other, c.head(name())).size == 3);
  CHECK(store.sessions() == 1);
  for (const std::string& head : store.requests()) CHECK_FALSE(has(head, "x-amz-request-payer"));
  const std::string url = block_on(*loop, c.presign(name(), 60));
  CHECK_THAT(url, Contains("&X-Amz-S3session-Token=session-token-1&") && Contains("%2Fs3express%2F") &&
                      !Contains("X-Amz-Security-Token"));
}

TEST_CASE("a session that the store no longer takes is replaced, by one request") {
  const zonal_store store([](const std::string& head, int session) {
    if (session == 1) return answered("400 Bad Request", "<Error><Code>ExpiredToken</Code></Error>");
    return three_bytes(head, session);
  });
  const s3::client c = store.client();
  const auto loop = make_event_loop();
  CHECK(block_on(*loop, c.head(name())).size == 3);  // whose refusal has no text
  CHECK(store.sessions() == 2);
  CHECK(block_on(*loop, c.head(name())).size == 3);
  CHECK(store.sessions() == 2);
}

TEST_CASE("a session lasts by the clock of the store that ends it") {
  const zonal_store store(three_bytes, "2020-01-01T00:05:00Z", "Date: Wed, 01 Jan 2020 00:00:00 GMT\r\n");
  const s3::client c = store.client();
  const auto loop = make_event_loop();
  for (int i = 0; i < 3; ++i) CHECK(block_on(*loop, c.head(name())).size == 3);
  CHECK(store.sessions() == 1);
}

TEST_CASE("without a session nothing is read, and the error is that of CreateSession") {
  for (const std::string body : {"<Error><Code>AccessDenied</Code><Message>no CreateSession</Message></Error>",
                                 "<CreateSessionResult><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>hidden"
                                 "</SecretAccessKey><SessionToken>hidden</SessionToken></Credentials>"
                                 "</CreateSessionResult>",
                                 "<CreateSessionResult><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>hidden"
                                 "</SecretAccessKey><SessionToken>hidden</SessionToken><Expiration>soon</Expiration>"
                                 "</Credentials></CreateSessionResult>"}) {
    const bool refused = has(body, "AccessDenied");
    const scripted_server server({answered(refused ? "403 Forbidden" : "200 OK", body)});
    s3::config_options o;
    const std::string endpoint = server.url("");
    o.endpoint = endpoint;
    const s3::client c(s3::config(o), s3::credentials("LONGKEY", "long-secret"));
    const auto loop = make_event_loop();
    try {
      block_on(*loop, c.head(name()));
      FAIL("read without a session");
    } catch (const s3::error& e) {
      CHECK(e.object() == name(""));
      CHECK_THAT(e.what(),
                 Contains(refused ? "403 AccessDenied: no CreateSession" : "Expiration") && !Contains("hidden"));
    }
    CHECK(server.requests().size() == (refused ? 1 : 3));  // a broken answer may be whole the next time
  }
}

TEST_CASE("a directory bucket lists a folder in no order, and is given in that of the keys") {
  const auto page = [](const std::string& keys, const std::string& rest) {
    std::string body = "<ListBucketResult><EncodingType>url</EncodingType>" + rest;
    for (const char k : keys) {
      body += std::string("<Contents><Key>a/b/") + k + (k == '/' ? "" : ".tar") + "</Key><Size>" +
              (k == '/' ? "0" : "7") + "</Size><ETag>e</ETag></Contents>";
    }
    return answered("200 OK", body + "</ListBucketResult>");
  };
  const zonal_store store([&](const std::string& head, int) {
    if (!has(head, "continuation-token=")) {
      return page("zmc/",
                  "<IsTruncated>true</IsTruncated><NextContinuationToken>two</NextContinuationToken>"
                  "<CommonPrefixes><Prefix>a/b/open/</Prefix></CommonPrefixes>");
    }
    if (has(head, "continuation-token=two")) {
      return page("qa", "<IsTruncated>true</IsTruncated><NextContinuationToken>three</NextContinuationToken>");
    }
    return page("xb", "<IsTruncated>false</IsTruncated>");
  });
  const s3::client c = store.client();
  const std::vector<std::string> all = {"a/b/a.tar", "a/b/b.tar", "a/b/c.tar", "a/b/m.tar",
                                        "a/b/q.tar", "a/b/x.tar", "a/b/z.tar"};
  CHECK(listed(c, "a/b/") == all);
  CHECK(store.requests().size() == 4);
  CHECK(listed(c, "a/b/m") == std::vector<std::string>{"a/b/m.tar"});
  const std::vector<std::string> asked = store.requests();
  CHECK(asked.size() == 7);
  for (const std::string& head : asked) {
    if (!creates_session(head)) CHECK_THAT(head, Contains("&prefix=a%2Fb%2F") && !Contains("start-after"));
  }
  CHECK_THROWS_WITH(listed(c, "a/b/none"), Contains("a/b/none") && Contains("no object has this prefix"));
  CHECK(listed(c, "") == all);
  CHECK_FALSE(has(store.requests().back(), "prefix="));
  CHECK(store.sessions() == 1);
}

TEST_CASE("directory buckets take no keys of a program's own, and are not created") {
  const zonal_store store(three_bytes);
  s3::config own = store.client().configuration();
  own.encryption_key = s3::customer_key(std::string(32, 'k'));
  const s3::client c(own, s3::credentials("LONGKEY", "long-secret", "long-token"));
  const auto loop = make_event_loop();
  CHECK_THROWS_WITH(block_on(*loop, c.head(name())), Contains("directory buckets take no customer-provided keys"));
  CHECK_THROWS_WITH(block_on(*loop, c.create_bucket(name(""))), Contains("created by the tools of AWS"));
}
