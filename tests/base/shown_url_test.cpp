// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/error.hpp>

#include "tests/support/catch.hpp"

using millrace::detail::shown_url;
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
