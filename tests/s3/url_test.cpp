// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/url.hpp>

#include <string>

#include "tests/support/catch.hpp"

using Catch::Matchers::Contains;
using millrace::s3::url;

TEST_CASE("an S3 URL is a bucket and the raw bytes after its slash", "[s3][url]") {
  const auto check = [](const char* text, const char* bucket, const char* key) {
    INFO(text);
    const url u = url::parse(text);
    CHECK(u.bucket() == bucket);
    CHECK(u.key() == key);
    CHECK(url::parse(u.to_string()) == u);
  };
  check("s3://corpus/train/", "corpus", "train/");
  check("s3://corpus", "corpus", "");
  check("s3://corpus/", "corpus", "");
  check("S3://corpus/a", "corpus", "a");
  check("s3://corpus//a//b/../c", "corpus", "/a//b/../c");
  check("s3://corpus/a?b#c%20d e", "corpus", "a?b#c%20d e");
  check("s3://corpus/s3://x", "corpus", "s3://x");
  check("s3://arn:aws:s3:us-east-1:1:accesspoint/point/key/x", "arn:aws:s3:us-east-1:1:accesspoint/point", "key/x");
  check("s3://arn:aws:s3:us-east-1:1:accesspoint:point/key", "arn:aws:s3:us-east-1:1:accesspoint:point", "key");
  check("s3://arn:aws:s3:us-east-1:1:accesspoint/point", "arn:aws:s3:us-east-1:1:accesspoint/point", "");
  check("s3://arn:x/y:accesspoint/z", "arn:x", "y:accesspoint/z");
}

TEST_CASE("what is no S3 URL is refused with its text", "[s3][url]") {
  for (const char* text : {"", "s3", "s3:/b/k", "s3:b", "https://b/k", "s3a://b/k", "b/k", "/b", "s4://b"}) {
    INFO(text);
    CHECK_THROWS_WITH(url::parse(text), Contains("not an S3 URL"));
  }
  CHECK_THROWS_WITH(url::parse("s3:///key"), Contains("names no bucket") && Contains("s3:///key"));
  CHECK_THROWS_WITH(url::parse("s3://"), Contains("names no bucket"));
  CHECK_THROWS_AS(url::parse("s3://a b/k"), millrace::configuration_error);
  CHECK_THROWS_AS(url::parse("s3://a\nb/k"), millrace::configuration_error);
}

TEST_CASE("the refusal of a presigned URL does not show its signature", "[s3][url]") {
  CHECK_THROWS_WITH(url::parse("https://user:PASSWORD@b.s3.amazonaws.com/k?X-Amz-Signature=0123"),
                    Contains("https://b.s3.amazonaws.com/k: not an S3 URL") && !Contains("?"));
  CHECK_THROWS_WITH(url::parse("s3:///k?a@b"), Contains("s3:///k?a@b"));  // part of a key
}
