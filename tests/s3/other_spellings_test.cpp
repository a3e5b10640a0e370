// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Answers of stores that say the same as S3 in other words: what is unambiguous is understood, and never damage.

#include <millrace/s3/wire/documents.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/auth/detail/profile_sources.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/s3/wire/detail/body_checksum.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/scripted_server.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::scripted_answer;
using test::scripted_server;
using body_checksum = s3::detail::body_checksum;
using fields = std::vector<std::pair<std::string, std::string>>;

namespace {

const std::string three_parts = "\"e804ec4c85cb9a1f34d8e4f6743d46b3-3\"";

std::string text_of(std::size_t size) {
  std::string text;
  while (text.size() < size) text += "abc";
  text.resize(size);
  return text;
}
const std::string body_text = text_of(3000);
// Of all bytes, and of the parts [0, 1024), [1024, 2048) and [2048, 3000); computed with zlib and hashlib.
constexpr const char* crc_of_all = "K7lFCw==";
constexpr const char* crc_of_parts = "2nAzBQ==";
constexpr const char* sha_of_all = "Mo3o8Ylfi7CfbmtMIBLvKypvBnzQAnlLdQqgQKb22L0=";
constexpr const char* sha_of_parts = "6Q92a50xSjzNmDE0YU8vcqZ/qk+XCOBRO5AUCNc03Yg=";

std::optional<body_checksum> of(const fields& all) {
  http::headers h;
  for (const auto& [name, value] : all) h.add(name, value);
  return body_checksum::of(h);
}

/// Whether `body` is what the fields declare, with the parts where they are.
bool matches(const fields& all, const std::string& body = body_text) {
  std::optional<body_checksum> c = of(all);
  REQUIRE(c.has_value());
  if (c->parts() > 0) REQUIRE(c->cut_at(1024, body_text.size()));
  c->add(std::string_view(body).substr(0, 1500));
  c->add(std::string_view(body).substr(1500));
  return c->matches();
}

scripted_answer answer(const std::string& status, const std::string& more, const std::string& body, bool head = false) {
  return {"HTTP/1.1 " + status + "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
              more + "\r\n" + (head ? std::string() : body),
          scripted_answer::then::fin};
}

s3::client client_of(const scripted_server& server) {
  s3::config_options o;
  o.endpoint = server.url("");
  o.region = "us-east-1";
  return s3::client(s3::config(o), s3::credentials("key", "secret"));
}

/// An object of three parts as moto serves it: HEAD of a part compares If-Match with the ETag of the part, HEAD of the
/// object gives the checksum of the checksums without saying so, GET says it.
class like_moto {
 public:
  std::string object = body_text;
  std::string name = "crc32";
  std::string kept = crc_of_parts;
  bool changes = false;  // once the first part has been asked for

  like_moto() : server_([this](const std::string& head) { return answer_to(head); }) {}

  /// Read in one request, which carries the checksum.
  std::string read_whole() {
    return outcome([this](event_loop& loop, const s3::client& c) {
      slab_pool slabs(64 * KiB);
      const s3::object_part p =
          block_on(loop, c.get("s3://b/k", 0, 64 * KiB, three_parts, slabs, {.size = object.size()}));
      return std::string(p.data.view() == object ? "right" : "wrong");
    });
  }
  /// As fetch() does with an object of several parts: asks for the checksum, adds the bytes, compares.
  std::string compare_parts() {
    return outcome([this](event_loop& loop, const s3::client& c) {
      const std::unique_ptr<s3::object_checksum> sum = block_on(loop, c.checksum("s3://b/k", three_parts));
      if (sum == nullptr) return std::string("no checksum");
      sum->add(bytes::copy(object), running_crc());
      block_on(loop, sum->compare(0));
      return std::string("right");
    });
  }

 private:
  template <class Action>
  std::string outcome(Action action) {
    const auto loop = make_event_loop();
    try {
      return action(*loop, client_of(server_));
    } catch (const changed_error& e) {
      return std::string("changed: ") + e.what();
    } catch (const error& e) {
      return e.what();
    }
  }
  scripted_answer answer_to(const std::string& head) {
    const bool is_head = head.substr(0, 5) == "HEAD ";
    const bool conditional = head.find("if-match: ") != std::string::npos;
    const bool same = head.find("if-match: " + three_parts) != std::string::npos && !changed_;
    const std::size_t part = head.find("partNumber=");
    if (part != std::string::npos) {
      if (conditional) return answer("412 PRECONDITION FAILED", "", "", true);
      if (changes) changed_ = true;
      const bool last = head[part + 11] == '3';
      return answer("200 OK", "ETag: \"e8d8a81883ebacdab4cf416f71686be8\"\r\nx-amz-mp-parts-count: 3\r\n",
                    std::string(last ? 952 : 1024, ' '), true);
    }
    if (conditional && !same) return answer("412 PRECONDITION FAILED", "", "", is_head);
    std::string more = "ETag: " + (changed_ ? "\"other-3\"" : three_parts) + "\r\n";
    more += "x-amz-checksum-" + name + ": " + kept + (is_head ? "\r\n" : "-3\r\nx-amz-checksum-type: COMPOSITE\r\n");
    return answer("200 OK", more, object, is_head);
  }

  bool changed_ = false;
  scripted_server server_;  // declared last: it answers from the other members
};

}  // namespace

TEST_CASE("a checksum of an upload in parts that does not say so is of the parts or of all bytes", "[s3][spelling]") {
  std::string damaged = body_text;
  damaged[1234] = 'x';
  const fields kinds[] = {
      {{"etag", three_parts}, {"x-amz-checksum-crc32", crc_of_parts}},
      {{"etag", three_parts}, {"x-amz-checksum-crc32", crc_of_all}},
      {{"etag", three_parts}, {"x-amz-checksum-sha256", sha_of_parts}},
      {{"etag", three_parts}, {"x-amz-checksum-sha256", sha_of_all}},
      {{"etag", "e804ec4c85cb9a1f34d8e4f6743d46b3-3"}, {"x-amz-checksum-crc32", crc_of_parts}},
      {{"x-amz-mp-parts-count", "3"}, {"x-amz-checksum-crc32", crc_of_parts}},
      {{"x-amz-mp-parts-count", "3"}, {"x-amz-checksum-type", "COMPOSITE"}, {"x-amz-checksum-crc32", crc_of_parts}},
      {{"etag", three_parts}, {"x-amz-checksum-type", "COMPOSITE"}, {"x-amz-checksum-sha256", sha_of_parts}},
      {{"x-amz-checksum-type", "composite"}, {"x-amz-checksum-crc32", "2nAzBQ==-3"}},
      {{"x-amz-checksum-type", "Full_Object"}, {"x-amz-checksum-crc32", crc_of_all}},
      {{"etag", three_parts}, {"x-amz-checksum-type", "FULL_OBJECT"}, {"x-amz-checksum-crc32", crc_of_all}}};
  for (const fields& f : kinds) {
    INFO(f.back().first << ": " << f.back().second);
    CHECK(matches(f));
    CHECK_FALSE(matches(f, damaged));
  }
  // moto, where Python has no crc32c: the name is another one's.
  for (const char* sum : {crc_of_parts, crc_of_all}) {
    CHECK(matches({{"etag", three_parts}, {"x-amz-checksum-crc32c", sum}}));
    CHECK_FALSE(matches({{"etag", three_parts}, {"x-amz-checksum-crc32c", sum}}, damaged));
  }
  // CRC-64/NVME is of all bytes at S3, whatever the upload; what is said is believed.
  CHECK(of({{"etag", three_parts}, {"x-amz-checksum-crc64nvme", "GtnbwQ9SgSc="}})->parts() == 0);
  CHECK_FALSE(
      matches({{"etag", three_parts}, {"x-amz-checksum-type", "FULL_OBJECT"}, {"x-amz-checksum-crc32", crc_of_parts}}));
  // "COMPOSITE" without a number, of all bytes: https://github.com/floci-io/floci/issues/3083
  CHECK(matches({{"etag", three_parts}, {"x-amz-checksum-type", "COMPOSITE"}, {"x-amz-checksum-crc32", crc_of_all}}));
  CHECK_FALSE(matches({{"x-amz-checksum-type", "COMPOSITE"}, {"x-amz-checksum-crc32", "K7lFCw==-3"}}));
  // ETags that are no MD5 of MD5s tell nothing of parts.
  for (const char* etag : {"\"e1-3\"", "\"65f0c2d1-3\"", "\"e804ec4c85cb9a1f34d8e4f6743d46b3-x\"",
                           "\"e804ec4c85cb9a1f34d8e4f6743d46b3\"", "\"g804ec4c85cb9a1f34d8e4f6743d46b3-3\""}) {
    INFO(etag);
    CHECK(of({{"etag", etag}, {"x-amz-checksum-crc32", crc_of_all}})->parts() == 0);
  }
}

TEST_CASE("an upload in parts is read from a store whose parts have ETags of their own", "[s3][spelling]") {
  for (const char* sum : {crc_of_parts, crc_of_all}) {
    like_moto store;
    store.kept = sum;
    CHECK(store.compare_parts() == "right");
  }
  like_moto whole;
  CHECK(whole.read_whole() == "right");
  for (const bool in_parts : {true, false}) {
    test::captured_stderr captured(test::captured_stderr::into::pipe);
    like_moto misnamed;
    misnamed.name = "crc32c";
    for (int i = 0; i < 2; ++i) CHECK((in_parts ? misnamed.compare_parts() : misnamed.read_whole()) == "right");
    const std::string said = captured.text();
    CHECK_THAT(said, Contains("calls a CRC-32 of uploads in parts a CRC-32C"));
    CHECK(said.find("calls a CRC-32") == said.rfind("calls a CRC-32"));
    misnamed.object[1234] = 'x';
    CHECK_THAT(in_parts ? misnamed.compare_parts() : misnamed.read_whole(), Contains("do not have the crc32c"));
  }
  for (const bool in_parts : {true, false}) {
    like_moto damaged;
    damaged.object[1234] = 'x';
    CHECK_THAT(in_parts ? damaged.compare_parts() : damaged.read_whole(), Contains("do not have the crc32"));
    like_moto changed;
    changed.object[1234] = 'x';
    changed.changes = true;
    CHECK_THAT(in_parts ? changed.compare_parts() : changed.read_whole(),
               Contains("changed: ") && Contains(three_parts) && Contains("other-3"));
  }
}

TEST_CASE("a completed upload is understood whatever its document is called", "[s3][spelling]") {
  const auto etag = [](const std::string& body) {
    try {
      return s3::detail::element_of(body, "ETag", where());
    } catch (const s3::error& e) {
      return std::string("error: ") + e.what();
    }
  };
  const std::string space = " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
  for (const char* root : {"CompleteMultipartUploadResult", "CompleteMultipartUploadResponse",
                           "CompleteMultipartUploadOutput", "s3:CompleteMultipartUploadResult"}) {
    INFO(root);
    const std::string name = root;
    const std::string names = name[1] == '3' ? " xmlns:s3=\"x\"" : space;
    const std::string end = "</" + name + ">";
    CHECK(etag("<" + name + names + "><Bucket>b</Bucket><ETag>&quot;e1&quot;</ETag>" + end) == "\"e1\"");
    CHECK(etag("<?xml version=\"1.0\"?>\n<" + name + names + ">\n  <ETag>\n    \"e1\"\n  </ETag>\n" + end) == "\"e1\"");
    CHECK_THAT(etag("<" + name + names + "><Bucket>b</Bucket>" + end), Contains("error: ") && Contains("lacks <ETag>"));
  }
  CHECK(etag("<R><CompleteMultipartUploadResult><ETag>e1</ETag></CompleteMultipartUploadResult></R>") == "e1");
  CHECK_THAT(etag("<Error><Code>InternalError</Code><ETag>e1</ETag></Error>"), Contains("InternalError"));
  CHECK_THAT(etag("<R><ETag>e1</ETag><ETag>e2</ETag></R>"), Contains("several <ETag>"));
  CHECK_THAT(etag(""), Contains("error: "));
  CHECK_THAT(etag("<html><body>busy</body></html>"), Contains("lacks <ETag>"));
}

TEST_CASE("a stream is stored in parts in a store that names its answers after the operations", "[s3][spelling]") {
  scripted_server server([](const std::string& head) {
    if (head.find("?uploads") != std::string::npos) {
      return answer("200 OK", "",
                    "<CreateMultipartUploadResponse><UploadId> u1 </UploadId></CreateMultipartUploadResponse>");
    }
    if (head.substr(0, 4) == "PUT ") return answer("200 OK", "ETag: e8d8a81883ebacdab4cf416f71686be8\r\n", "");
    return answer("200 OK", "",
                  "<CompleteMultipartUploadResponse xmlns=\"x\"><ETag>e804ec4c85cb9a1f34d8e4f6743d46b3-3</ETag>"
                  "</CompleteMultipartUploadResponse>");
  });
  std::vector<bytes> pieces;
  for (int i = 0; i < 3; ++i) pieces.push_back(bytes::copy(std::string(1000, 'a')));
  s3::put_options o;
  o.part = 1000;
  o.parts = 1;
  const auto loop = make_event_loop();
  const s3::object_info stored = block_on(*loop, client_of(server).put("s3://b/k", from_range(std::move(pieces)), o));
  CHECK(stored.etag == three_parts);
  CHECK(stored.size == 3000);
  for (const std::string& head : server.requests()) {
    if (head.substr(0, 4) == "PUT ") CHECK_THAT(head, Contains("uploadId=u1 "));
  }
}

TEST_CASE("numbers and truth values of a listing may have blanks around them; names keep theirs", "[s3][spelling]") {
  const auto parse = [](const std::string& inside, const std::string& root = "ListBucketResult") {
    return s3::list_page::parse("<" + root + ">" + inside + "</" + root + ">", "b");
  };
  for (const char* no : {"false", " false", "false ", "\n  false\n  ", "\tfalse\r\n", "False", "FALSE", "0", " 0 "}) {
    INFO(no);
    CHECK_FALSE(parse("<IsTruncated>" + std::string(no) + "</IsTruncated>").truncated);
  }
  for (const char* yes : {"true", " true ", "True", "TRUE", "1", "\n1\n"}) {
    INFO(yes);
    const s3::list_page page =
        parse("<IsTruncated>" + std::string(yes) + "</IsTruncated><NextContinuationToken> t </NextContinuationToken>");
    CHECK(page.truncated);
    CHECK(page.next_continuation_token == " t ");  // opaque
  }
  CHECK(parse("<NextContinuationToken>t</NextContinuationToken>").truncated);  // a token says it as well
  // Left out where it is false: https://github.com/johannesboyne/gofakes3/issues/40
  const std::string one = "<Contents><Key>k</Key><Size>1</Size></Contents>";
  CHECK_FALSE(parse("<MaxKeys> 1000 </MaxKeys>" + one).truncated);
  CHECK_FALSE(parse("<MaxKeys>2</MaxKeys>" + one).truncated);
  CHECK_THROWS_AS(parse("<MaxKeys>1</MaxKeys>" + one), s3::error);
  CHECK_THROWS_AS(parse("<MaxKeys></MaxKeys>" + one), s3::error);
  CHECK_THROWS_AS(parse(one), s3::error);
  CHECK_THROWS_AS(parse("<IsTruncated>tr ue</IsTruncated>"), s3::error);
  CHECK_THROWS_AS(parse("<IsTruncated> </IsTruncated>"), s3::error);
  CHECK_THROWS_AS(parse("<IsTruncated>true</IsTruncated>"), s3::error);

  const s3::list_page page = parse(
      "<IsTruncated> false </IsTruncated><EncodingType> URL </EncodingType><Contents><Key> a%20 </Key>"
      "<Size>\n  12\n</Size><LastModified> 2013-01-10T21:45:09Z\n</LastModified><ETag> \"e1\" </ETag></Contents>"
      "<CommonPrefixes><Prefix> p/ </Prefix></CommonPrefixes>");
  REQUIRE(page.objects.size() == 1);
  CHECK(page.objects[0].key == " a  ");
  CHECK(page.objects[0].size == 12);
  CHECK(page.objects[0].last_modified == 1357854309);
  CHECK(page.objects[0].etag == "\"e1\"");
  CHECK(page.common_prefixes == std::vector<std::string>{" p/ "});
  for (const char* size : {"1 2", "", " ", "-1", "1.0", "+1"}) {
    CHECK_THROWS_AS(parse("<IsTruncated>false</IsTruncated><Contents><Key>k</Key><Size>" + std::string(size) +
                          "</Size></Contents>"),
                    s3::error);
  }

  for (const char* root :
       {"ListObjectsV2Result", "ListObjectsV2Output", "ListObjectsV2Response", "ListBucketResponse"}) {
    const s3::list_page named =
        parse("<IsTruncated>false</IsTruncated><Contents><Key>k</Key><Size>1</Size></Contents>", root);
    CHECK(named.objects.size() == 1);
  }
  CHECK_THROWS_AS(parse("<IsTruncated>false</IsTruncated>", "ListAllMyBucketsResult"), s3::error);
}

TEST_CASE("blanks around what STS and errors say are none of it", "[s3][spelling]") {
  const s3::credentials who = s3::detail::credentials_of_sts(
      "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId> AK\n</AccessKeyId><SecretAccessKey>\n SK "
      "</SecretAccessKey>"
      "<SessionToken> ST </SessionToken><Expiration>\n 2030-01-01T00:00:00Z "
      "</Expiration></Credentials></AssumeRoleResult>"
      "</AssumeRoleResponse>",
      "https://sts");
  CHECK(who.access_key_id() == "AK");
  CHECK(who.secret_access_key() == "SK");
  CHECK(who.session_token() == "ST");
  const auto error = s3::error_document::parse(
      "<Error>\n  <Code>\n    NoSuchKey\n  </Code>\n  <Message> gone </Message><RequestId> r1\n</RequestId></Error>");
  REQUIRE(error.has_value());
  CHECK(error->code == "NoSuchKey");
  CHECK(error->message == "gone");
  CHECK(error->request_id == "r1");
  CHECK_FALSE(s3::error_document::parse("<Error><Code> </Code></Error>").has_value());
}
