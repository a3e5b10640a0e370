// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/error.hpp>

#include "tests/support/catch.hpp"

using millrace::detail::shown_url;
using millrace::detail::unsigned_url;
using millrace::detail::without_secrets;

TEST_CASE("URLs are shown without user information, query and fragment") {
  CHECK(without_secrets("https://host/a/b") == "https://host/a/b");
  CHECK(without_secrets("https://host/a?X-Amz-Signature=0123") == "https://host/a");
  CHECK(without_secrets("https://host/a#fragment?x") == "https://host/a");
  CHECK(without_secrets("https://host?sig=0123/4") == "https://host");
  CHECK(without_secrets("https://user:pass@host:81/a?x") == "https://host:81/a");
  CHECK(without_secrets("https://user@host") == "https://host");
  CHECK(without_secrets("https://user:p@ss@host/a") == "https://host/a");
  CHECK(without_secrets("https://user:pass@host?x=a@b") == "https://host");
  CHECK(without_secrets("HTTP://user:pass@[::1]:81/a") == "HTTP://[::1]:81/a");
  CHECK(without_secrets("") == "");
  CHECK(without_secrets("://") == "://");
}

TEST_CASE("an @ after the host is no end of a password") {
  CHECK(without_secrets("https://host/mail@example/b@c") == "https://host/mail@example/b@c");
  CHECK(without_secrets("https://host:81/a@b?x") == "https://host:81/a@b");
  CHECK(without_secrets("https://[::1]/a@b") == "https://[::1]/a@b");
  CHECK(without_secrets("https://[::1]:81/a@b") == "https://[::1]:81/a@b");
  CHECK(without_secrets("https://host/a?to=b@c") == "https://host/a");
  CHECK(without_secrets("https://user:pass@host/a@b?to=c@d") == "https://host/a@b");
}

TEST_CASE("a password that should have been encoded is not shown, nor a part of it") {
  for (const char* url : {"https://user:pa?ss@host/a", "https://user:pa#ss@host", "https://user:?pass@host/a?x",
                          "https://user:pa/ss@host/a"}) {
    INFO(url);

    CHECK(without_secrets(url) == "https://...");
  }
}

TEST_CASE("the scheme of a URL may be missing, and is not looked for after the host") {
  CHECK(without_secrets("host/a?sig=0123&to=https://other/b") == "host/a");
  CHECK(without_secrets("https://host?to=https://user:pass@other/") == "https://...");
  CHECK(without_secrets("host:81/a#b") == "host:81/a");
  CHECK(without_secrets("user:pass@host:81/a") == "host:81/a");
  CHECK(without_secrets("user:pa/ss@host") == "...");
}

TEST_CASE("names of objects in S3 and of files are shown whole") {
  for (const char* name : {"s3://bucket/a?b#c@d", "S3://bucket/a@b:c/?", "file:///data/a?b#c@d", "/data/a?b#c@d",
                           "data/user:a@b/?c", "a#b"}) {
    CHECK(shown_url(name) == name);
  }
  CHECK(shown_url("https://user:pass@host/a?X-Amz-Signature=0123") == "https://host/a");
  CHECK(shown_url("mem://user:pass@a?b") == "mem://a");
}

TEST_CASE("what outlives a run names objects without the signatures of their URLs") {
  CHECK(unsigned_url("https://h/k?X-Amz-Date=1&versionId=2&X-Amz-Signature=3&x-amz-checksum-mode=4&x-id=5") ==
        "https://h/k?versionId=2&x-id=5");
  CHECK(unsigned_url("https://h/k?X-Goog-Signature=1&generation=2") == "https://h/k?generation=2");
  CHECK(unsigned_url("HTTPS://h/k?snapshot=S%3D&sv=1&sr=b&sp=r&se=2&sig=3") == "HTTPS://h/k?snapshot=S%3D");
  CHECK(unsigned_url("https://h/k?sig=3") == "https://h/k");
  CHECK(unsigned_url("https://h/k?f=A+b&f=&&Expires=1&Signature=2&Key-Pair-Id=3&st=4") == "https://h/k?f=A+b&f=&&st=4");
  CHECK(unsigned_url("https://h/k?AWSAccessKeyId=1&Signature=2&Expires=3") == "https://h/k");
  for (const char* as_it_is : {"https://h/k", "https://h/k?", "https://h/k?expires=1&st=2&design=3&x-amz-date=4", "",
                               "s3://b/k?sig=1", "/data/k?sig=1", "https://h/k?asig=1&Signature"}) {
    CHECK(unsigned_url(as_it_is) == as_it_is);
  }
}
