// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/background.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/s3_server/raw_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

namespace {

namespace s3_server = millrace::s3_server;
using millrace::bytes;
using millrace::test::raw_client;

s3_server::options open_to_all() {
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::write;
  o.min_part_size = 4;
  return o;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The content of the first element of that name.
std::string element(const std::string& xml, const std::string& name) {
  const std::size_t begin = xml.find('<' + name + '>');
  if (begin == std::string::npos) return "(no " + name + ")";
  const std::size_t content = begin + name.size() + 2;
  return xml.substr(content, xml.find("</" + name + '>') - content);
}

TEST_CASE("GET, HEAD and ranges of one object on one connection") {
  s3_server::background server(open_to_all());
  const std::string etag = server.put("b", "dir/key", std::string_view("0123456789"));
  CHECK(etag == "\"781e5e245d69b566979b86e28d23f2c7\"");
  raw_client client(server.port());
  const auto whole = client.ask("GET /b/dir/key");
  CHECK(whole.status == 200);
  CHECK(whole.body == "0123456789");
  CHECK(whole.field("ETag") == etag);
  CHECK(whole.field("Content-Length") == "10");
  CHECK(whole.field("Last-Modified").size() == 29);
  CHECK(!whole.field("x-amz-request-id").empty());
  CHECK(!whole.field("Date").empty());
  const auto head = client.ask("HEAD /b/dir/key");
  CHECK(head.status == 200);
  CHECK(head.field("Content-Length") == "10");
  const auto part = client.ask("GET /b/dir/key", "Range: bytes=2-4\r\nIf-Match: " + etag + "\r\n");
  CHECK(part.status == 206);
  CHECK(part.body == "234");
  CHECK(part.field("Content-Range") == "bytes 2-4/10");
  CHECK(client.ask("GET /b/dir/key", "Range: bytes=-3\r\n").body == "789");
  const auto behind = client.ask("GET /b/dir/key", "Range: bytes=10-\r\n");
  CHECK(behind.status == 416);
  CHECK(element(behind.body, "Code") == "InvalidRange");
  CHECK(client.ask("GET /b/dir/key", "If-Match: \"x\"\r\n").status == 412);
  CHECK(client.ask("GET /b/dir/key", "If-None-Match: " + etag + "\r\n").status == 304);
  CHECK(server.stats().connections == 1);
  CHECK(server.stats().requests == 7);
  CHECK(server.stats().peak_in_flight == 1);
  const auto log = server.log().entries();
  REQUIRE(log.size() == 7);
  CHECK(log[2].range == "bytes=2-4");
  CHECK(log[2].if_match == etag);
  CHECK(log[2].status == 206);
  CHECK(log[2].connection == 1);
}

TEST_CASE("empty objects, missing keys and buckets") {
  s3_server::background server(open_to_all());
  server.put("b", "empty", std::string_view());
  raw_client client(server.port());
  const auto empty = client.ask("GET /b/empty");
  CHECK(empty.status == 200);
  CHECK(empty.field("Content-Length") == "0");
  CHECK(client.ask("GET /b/empty", "Range: bytes=0-\r\n").status == 416);
  CHECK(element(client.ask("GET /b/none").body, "Code") == "NoSuchKey");
  CHECK(element(client.ask("GET /c/none").body, "Code") == "NoSuchBucket");
  const auto missing = client.ask("HEAD /b/none");
  CHECK(missing.status == 404);
  CHECK(client.ask("HEAD /b").field("x-amz-bucket-region") == "us-east-1");
  CHECK(client.ask("HEAD /c").status == 404);
  CHECK(element(client.ask("GET /c?list-type=2").body, "Code") == "NoSuchBucket");
}

TEST_CASE("listings: pages, delimiter, encoding") {
  s3_server::options o = open_to_all();
  o.list_page = 2;
  s3_server::background server(o);
  for (const char* key : {"a&<b", "dir/1", "dir/2 x+y", "dir/\x01", "z"}) server.put("b", key, std::string_view("1"));
  raw_client client(server.port());
  const auto first = client.ask("GET /b?list-type=2");
  CHECK(element(first.body, "Key") == "a&amp;&lt;b");
  CHECK(element(first.body, "KeyCount") == "2");
  CHECK(element(first.body, "IsTruncated") == "true");
  CHECK(has(first.body, "<Key>dir/&#x1;</Key>"));
  const std::string token = element(first.body, "NextContinuationToken");
  const auto second = client.ask("GET /b/?list-type=2&encoding-type=url&continuation-token=" + token);
  CHECK(has(second.body, "<Key>dir/1</Key>"));
  CHECK(has(second.body, "<Key>dir/2+x%2By</Key>"));
  CHECK(element(second.body, "ContinuationToken") == token);
  const auto rolled = client.ask("GET /b?list-type=2&delimiter=%2F&prefix=&max-keys=1000");
  CHECK(has(rolled.body, "<CommonPrefixes><Prefix>dir/</Prefix></CommonPrefixes>"));
  const auto after = client.ask("GET /b?list-type=2&start-after=dir%2F2&max-keys=1");
  CHECK(element(after.body, "Key") == "dir/2 x+y");
  CHECK(client.ask("GET /b?list-type=2&continuation-token=zz").status == 400);
  CHECK(client.ask("GET /b?list-type=2&max-keys=x").status == 400);
  CHECK(client.ask("GET /b?list-type=2&encoding-type=base64").status == 400);
  const auto none = client.ask("GET /b?list-type=2&max-keys=0");
  CHECK(element(none.body, "KeyCount") == "0");
  CHECK(element(none.body, "IsTruncated") == "false");
}

TEST_CASE("PUT with its conditions and digests; DELETE; buckets") {
  s3_server::background server(open_to_all());
  raw_client client(server.port());
  CHECK(element(client.ask("PUT /bucket/k", "", "x").body, "Code") == "NoSuchBucket");
  CHECK(client.ask("PUT /bucket", "", "", true).status == 200);
  CHECK(client.ask("PUT /bucket", "", "", true).status == 409);
  CHECK(client.ask("PUT /x", "", "", true).status == 400);
  const auto put = client.ask("PUT /bucket/a%20b", "Content-Type: text/x\r\nx-amz-meta-color: red\r\n", "hello");
  CHECK(put.status == 200);
  CHECK(put.field("ETag") == "\"5d41402abc4b2a76b9719d911017c592\"");
  const auto got = client.ask("GET /bucket/a%20b");
  CHECK(got.body == "hello");
  CHECK(got.field("content-type") == "text/x");
  CHECK(got.field("x-amz-meta-color") == "red");
  CHECK(client.ask("PUT /bucket/a%20b", "If-None-Match: *\r\n", "other").status == 412);
  CHECK(client.ask("PUT /bucket/new", "If-None-Match: *\r\n", "other").status == 200);
  CHECK(client.ask("PUT /bucket/new", "If-Match: \"x\"\r\n", "other").status == 412);
  CHECK(client.ask("PUT /bucket/new", "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n", "hello").status == 200);
  CHECK(element(client.ask("PUT /bucket/new", "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n", "hellp").body, "Code") ==
        "BadDigest");
  CHECK(client.ask("PUT /bucket/new", "x-amz-checksum-crc32: NhCmhg==\r\n", "hello").status == 200);
  CHECK(client.ask("GET /bucket/new", "x-amz-checksum-mode: ENABLED\r\n").field("x-amz-checksum-crc32") == "NhCmhg==");
  CHECK(client.ask("PUT /bucket/new", "x-amz-checksum-crc32: NhCmhw==\r\n", "hello").status == 400);
  CHECK(client.ask("PUT /bucket/new", "x-amz-checksum-crc32c: mnG7TA==\r\n", "hello").status == 200);
  CHECK(client.ask("PUT /bucket/none").status == 411);
  CHECK(client.read_to_end().end == "FIN");
  raw_client again(server.port());
  CHECK(again.ask("DELETE /bucket/new").status == 204);
  CHECK(again.ask("DELETE /bucket/new").status == 204);
  CHECK(again.ask("GET /bucket/new").status == 404);
  CHECK(again.ask("PATCH /bucket/new").status == 405);
  const auto version = again.ask("GET /bucket/a%20b?versionId=1");
  CHECK(version.status == 501);
  CHECK(element(version.body, "Code") == "NotImplemented");
  CHECK(element(again.ask("POST /bucket", "", "x").body, "Code") == "NotImplemented");
  CHECK(element(again.ask("GET /bucket?list-type=1").body, "Code") == "NotImplemented");
  CHECK(element(again.ask("DELETE /bucket").body, "Code") == "BucketNotEmpty");
  CHECK(again.ask("DELETE /bucket/a%20b").status == 204);
  CHECK(again.ask("DELETE /bucket").status == 204);
  CHECK(element(again.ask("DELETE /bucket").body, "Code") == "NoSuchBucket");
}

TEST_CASE("bodies: chunked, aws-chunked, expected, too large, cut") {
  s3_server::options o = open_to_all();
  o.max_object_size = 1000;
  s3_server::background server(o);
  server.objects().create_bucket("b");
  raw_client client(server.port());
  client.send(
      "PUT /b/chunked HTTP/1.1\r\nHost: localhost:1\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;x=y\r\nhello\r\n0A\r\n0123456789\r\n0\r\nX-Trailing: 1\r\n\r\n");
  CHECK(client.read().status == 200);
  CHECK(client.ask("GET /b/chunked").body == "hello0123456789");
  client.send("PUT /b/expected HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  CHECK(client.read().status == 100);
  client.send("hello");
  CHECK(client.read().status == 200);
  const auto large = client.ask("PUT /b/large", "", std::string(1001, 'x'));
  CHECK(element(large.body, "Code") == "EntityTooLarge");
  CHECK(client.read_to_end().end == "FIN");
  raw_client broken(server.port());
  broken.send("PUT /b/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
  CHECK(broken.read().status == 400);
  raw_client both(server.port());
  both.send("PUT /b/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n");
  CHECK(both.read().status == 400);
  raw_client cut(server.port());
  cut.send("PUT /b/cut HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n01234");
  cut.shutdown();
  CHECK(cut.read_to_end().body.empty());
  CHECK(server.objects().find("b", "cut") == nullptr);
}

TEST_CASE("multipart uploads") {
  s3_server::background server(open_to_all());
  server.objects().create_bucket("b");
  raw_client client(server.port());
  const auto started = client.ask("POST /b/big?uploads", "Content-Type: application/x-tar\r\n", "", true);
  const std::string id = element(started.body, "UploadId");
  const std::string target = " /b/big?uploadId=" + id;
  const std::string etag1 = client.ask("PUT" + target + "&partNumber=1", "", "aaaa").field("ETag");
  const std::string etag3 = client.ask("PUT" + target + "&partNumber=3", "", "b").field("ETag");
  CHECK(client.ask("PUT" + target + "&partNumber=0", "", "b").status == 400);
  CHECK(client.ask("PUT" + target + "&partNumber=10001", "", "b").status == 400);
  CHECK(client.ask("PUT /b/big?uploadId=none&partNumber=1", "", "b").status == 404);
  CHECK(client.ask("PUT /b/other?partNumber=1&uploadId=" + id, "", "b").status == 404);
  const auto parts = client.ask("GET" + target + "&max-parts=1");
  CHECK(element(parts.body, "PartNumber") == "1");
  CHECK(element(parts.body, "IsTruncated") == "true");
  CHECK(element(client.ask("GET" + target + "&part-number-marker=1").body, "PartNumber") == "3");
  CHECK(client.ask("GET /b/big").status == 404);

  const auto part = [](int number, const std::string& etag) {
    return "<Part><ETag>" + etag + "</ETag><PartNumber>" + std::to_string(number) + "</PartNumber></Part>";
  };
  const auto complete = [&](const std::string& listed) {
    return client.ask("POST" + target, "", "<CompleteMultipartUpload>" + listed + "</CompleteMultipartUpload>");
  };
  CHECK(element(complete("").body, "Code") == "MalformedXML");
  CHECK(element(complete("<Part/>").body, "Code") == "MalformedXML");
  CHECK(element(complete(part(3, etag3) + part(1, etag1)).body, "Code") == "InvalidPartOrder");
  CHECK(element(complete(part(1, etag3)).body, "Code") == "InvalidPart");
  CHECK(element(complete(part(1, etag1) + part(2, etag3)).body, "Code") == "InvalidPart");
  const auto done = complete(part(1, etag1) + part(3, "&quot;" + etag3.substr(1, 32) + "&quot;"));
  CHECK(done.status == 200);
  // md5(md5("aaaa") md5("b")) and the number of parts
  CHECK(element(done.body, "ETag") == "&quot;1c0de90ae8f336732437c692476f5803-2&quot;");
  const auto got = client.ask("GET /b/big", "Range: bytes=2-4\r\n");
  CHECK(got.body == "aab");
  CHECK(got.field("content-type") == "application/x-tar");
  CHECK(server.objects().open_uploads() == 0);
  CHECK(client.ask("DELETE" + target).status == 404);

  const std::string second = element(client.ask("POST /b/small?uploads", "", "", true).body, "UploadId");
  const std::string tag = client.ask("PUT /b/small?partNumber=1&uploadId=" + second, "", "abc").field("ETag");
  CHECK(client.ask("PUT /b/small?partNumber=2&uploadId=" + second, "", "abc").status == 200);
  const auto small =
      client.ask("POST /b/small?uploadId=" + second, "",
                 "<CompleteMultipartUpload>" + part(1, tag) + part(2, tag) + "</CompleteMultipartUpload>");
  CHECK(element(small.body, "Code") == "EntityTooSmall");
  CHECK(server.objects().open_uploads() == 1);
  CHECK(client.ask("DELETE /b/small?uploadId=" + second).status == 204);
  CHECK(server.objects().open_uploads() == 0);
}

TEST_CASE("uploads with checksums, listed uploads, uploads that must make a new object") {
  s3_server::background server(open_to_all());
  server.objects().create_bucket("b");
  raw_client client(server.port());
  CHECK(client.ask("POST /b/k?uploads", "x-amz-checksum-algorithm: CRC31\r\n", "", true).status == 400);
  const std::string id =
      element(client.ask("POST /b/k%20k?uploads", "x-amz-checksum-algorithm: CRC32C\r\n", "", true).body, "UploadId");
  const std::string other = element(client.ask("POST /b/a?uploads", "", "", true).body, "UploadId");
  const std::string all = client.ask("GET /b?uploads").body;
  CHECK(all.find("<Key>a</Key>") < all.find("<Key>k k</Key>"));
  CHECK(has(all, "<UploadId>" + id + "</UploadId>"));
  CHECK(!has(client.ask("GET /b?uploads&prefix=k").body, other));
  CHECK(has(client.ask("GET /b?uploads&encoding-type=url").body, "<Key>k+k</Key>"));
  CHECK(client.ask("GET /none?uploads").status == 404);

  // The CRC-32C of 32 zero bytes is that of RFC 3720, B.4.
  const std::string target = " /b/k%20k?uploadId=" + id;
  const std::string zeros(32, '\0');
  const std::string sum = "x-amz-checksum-crc32c: ipE2qg==\r\n";
  CHECK(element(client.ask("PUT" + target + "&partNumber=1", "", zeros).body, "Code") == "InvalidRequest");
  CHECK(element(client.ask("PUT" + target + "&partNumber=1", sum, "other").body, "Code") == "BadDigest");
  const auto stored = client.ask("PUT" + target + "&partNumber=1", sum, zeros);
  CHECK(stored.field("x-amz-checksum-crc32c") == "ipE2qg==");
  const auto complete = [&](const std::string& listed, const std::string& fields) {
    return client.ask("POST" + target, fields,
                      "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" + stored.field("ETag") +
                          "</ETag>" + listed + "</Part></CompleteMultipartUpload>");
  };
  const std::string listed = "<ChecksumCRC32C>ipE2qg==</ChecksumCRC32C>";
  CHECK(element(complete("", "").body, "Code") == "InvalidRequest");
  CHECK(element(complete("<ChecksumCRC32C>AAAAAA==</ChecksumCRC32C>", "").body, "Code") == "InvalidPart");
  CHECK(element(complete("<ChecksumCRC32>ipE2qg==</ChecksumCRC32>", "").body, "Code") == "InvalidRequest");
  server.put("b", "k k", std::string_view("was here first"));
  CHECK(complete(listed, "If-None-Match: *\r\n").status == 412);
  CHECK(server.objects().open_uploads() == 2);
  server.objects().erase("b", "k k");
  CHECK(complete(listed, "If-None-Match: *\r\n").status == 200);
  const auto got = client.ask("GET /b/k%20k", "x-amz-checksum-mode: ENABLED\r\n");
  CHECK(got.body == zeros);
  // The CRC-32C of the bytes 8a 91 36 aa.
  CHECK(got.field("x-amz-checksum-crc32c") == "7QiEBw==-1");
  CHECK(got.field("x-amz-checksum-type") == "COMPOSITE");
  CHECK(server.objects().open_uploads() == 1);
}

TEST_CASE("anonymous access is what the options say") {
  s3_server::options o;
  s3_server::background closed(o);
  closed.put("b", "k", std::string_view("x"));
  raw_client a(closed.port());
  CHECK(element(a.ask("GET /b/k").body, "Code") == "AccessDenied");
  CHECK(a.ask("HEAD /b/k").status == 403);
  CHECK(a.ask("PUT /b/k", "", "hello").status == 403);  // the body is skipped, the connection goes on
  CHECK(a.ask("GET /b/k").status == 403);
  o.anonymous = s3_server::anonymous_access::read;
  s3_server::background readable(o);
  readable.put("b", "k", std::string_view("x"));
  raw_client b(readable.port());
  CHECK(b.ask("GET /b/k").body == "x");
  CHECK(b.ask("PUT /b/k", "", "y").status == 403);
}

TEST_CASE("virtual-hosted style, foreign hosts, HTTP/1.0") {
  s3_server::options o = open_to_all();
  o.host_names.push_back("s3.test");
  s3_server::background server(o);
  server.put("my.bucket", "dir/k", std::string_view("x"));
  const auto ask = [&](const std::string& host, const std::string& path) {
    raw_client c(server.port());
    c.send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return c.read().status;
  };
  CHECK(ask("my.bucket.s3.test:80", "/dir/k") == 200);
  CHECK(ask("MY.bucket.s3.test", "/dir/k") == 200);
  CHECK(ask("s3.test", "/my.bucket/dir/k") == 200);
  CHECK(ask("127.0.0.1", "/my.bucket/dir/k") == 200);
  CHECK(ask("my.bucket.s3.tes", "/dir/k") == 400);
  CHECK(ask("xs3.test", "/dir/k") == 400);
  raw_client old(server.port());
  old.send("GET /my.bucket/dir/k HTTP/1.0\r\n\r\n");
  CHECK(old.read_to_end().end == "FIN");
}

TEST_CASE("requests one after the other in one packet; heads that are wrong or too long") {
  s3_server::background server(open_to_all());
  server.put("b", "k", std::string_view("x"));
  raw_client client(server.port());
  const std::string get = "GET /b/k HTTP/1.1\r\nHost: localhost\r\n\r\n";
  client.send(get + get + "HEAD /b/k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  CHECK(client.read().body == "x");
  CHECK(client.read().body == "x");
  CHECK(client.read(true).status == 200);
  CHECK(client.read_to_end().end == "FIN");
  raw_client wrong(server.port());
  wrong.send("GET\r\n\r\n");
  CHECK(wrong.read().status == 400);
  raw_client endless(server.port());
  endless.send("GET /b/k HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(70000, 'x'));
  CHECK(endless.read().status == 400);
}

TEST_CASE("objects of several slices, larger than what a socket holds") {
  s3_server::background server(open_to_all());
  std::string text(5 << 20, 'a');
  for (std::size_t i = 0; i < text.size(); i += 7) text[i] = static_cast<char>('b' + i % 20);
  s3_server::object o;
  const bytes memory = bytes::copy(text);
  for (std::size_t at = 0; at < text.size(); at += 40000) {
    o.content.push_back(memory.slice(at, std::min<std::size_t>(40000, text.size() - at)));
  }
  o.size = text.size();
  o.etag = "\"given\"";
  server.put("b", "k", std::move(o));
  raw_client client(server.port());
  const auto whole = client.ask("GET /b/k");
  CHECK((whole.body == text));
  CHECK(whole.field("ETag") == "\"given\"");
  CHECK((client.ask("GET /b/k", "Range: bytes=39999-3999999\r\n").body == text.substr(39999, 3960001)));
  // What a connection has sent is counted by the time that it reads the next request.
  CHECK(client.ask("GET /b/k", "Range: bytes=0-0\r\n").body == text.substr(0, 1));
  CHECK(server.stats().bytes_sent > text.size() + 3960001);
}

TEST_CASE("a server on the caller's loop stops, with requests under way too") {
  const auto loop = millrace::make_event_loop();
  {
    s3_server::server server(open_to_all());
    server.objects().put("b", "k", std::string_view("x"));
    server.faults().add({}, s3_server::fault::stall_head());
    raw_client client(server.port());
    client.send("GET /b/k HTTP/1.1\r\nHost: localhost\r\n\r\n");
    {
      const millrace::spawned<void> serving(*loop, server.serve());
      loop->run_until([&] { return server.stats().in_flight == 1; });
    }
    CHECK(server.stats().in_flight == 0);
    CHECK(server.stats().open_connections == 0);
    CHECK(client.read_to_end().body.empty());
    server.stop();
    millrace::block_on(*loop, server.serve());
  }
  CHECK(loop->frames() == 0);
}

}  // namespace
