// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/http/redirect.hpp>

#include <string>
#include <utility>

#include <millrace/http/error.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using http::resolve_reference;

namespace {

std::string led(const std::string& from, const std::string& location) {
  http::response_head head;
  head.status = 302;
  head.fields.add("Location", location);
  try {
    return http::redirect_target(from, head, where{"shard", std::nullopt, std::string()});
  } catch (const http::error& e) {
    CHECK(e.object() == "shard");
    return e.reason();
  }
}

}  // namespace

TEST_CASE("references are resolved as in the tables of RFC 3986, 5.4") {
  const std::pair<const char*, const char*> table[] = {
      // 5.4.1, normal
      {"g:h", "g:h"},
      {"g", "http://a/b/c/g"},
      {"./g", "http://a/b/c/g"},
      {"g/", "http://a/b/c/g/"},
      {"/g", "http://a/g"},
      {"//g", "http://g"},
      {"?y", "http://a/b/c/d;p?y"},
      {"g?y", "http://a/b/c/g?y"},
      {"#s", "http://a/b/c/d;p?q#s"},
      {"g#s", "http://a/b/c/g#s"},
      {"g?y#s", "http://a/b/c/g?y#s"},
      {";x", "http://a/b/c/;x"},
      {"g;x", "http://a/b/c/g;x"},
      {"g;x?y#s", "http://a/b/c/g;x?y#s"},
      {"", "http://a/b/c/d;p?q"},
      {".", "http://a/b/c/"},
      {"./", "http://a/b/c/"},
      {"..", "http://a/b/"},
      {"../", "http://a/b/"},
      {"../g", "http://a/b/g"},
      {"../..", "http://a/"},
      {"../../", "http://a/"},
      {"../../g", "http://a/g"},
      // 5.4.2, abnormal
      {"../../../g", "http://a/g"},
      {"../../../../g", "http://a/g"},
      {"/./g", "http://a/g"},
      {"/../g", "http://a/g"},
      {"g.", "http://a/b/c/g."},
      {".g", "http://a/b/c/.g"},
      {"g..", "http://a/b/c/g.."},
      {"..g", "http://a/b/c/..g"},
      {"./../g", "http://a/b/g"},
      {"./g/.", "http://a/b/c/g/"},
      {"g/./h", "http://a/b/c/g/h"},
      {"g/../h", "http://a/b/c/h"},
      {"g;x=1/./y", "http://a/b/c/g;x=1/y"},
      {"g;x=1/../y", "http://a/b/c/y"},
      {"g?y/./x", "http://a/b/c/g?y/./x"},
      {"g?y/../x", "http://a/b/c/g?y/../x"},
      {"g#s/./x", "http://a/b/c/g#s/./x"},
      {"g#s/../x", "http://a/b/c/g#s/../x"},
      {"http:g", "http:g"},
  };
  for (const auto& [reference, target] : table) {
    INFO(reference);
    CHECK(resolve_reference("http://a/b/c/d;p?q", reference) == target);
  }
  CHECK(resolve_reference("http://a", "g") == "http://a/g");
  CHECK(resolve_reference("http://a?q", "g") == "http://a/g");
  CHECK(resolve_reference("http://a/x/y:z", "g:/h") == "g:/h");
  CHECK(resolve_reference("http://a/x", "./y:z") == "http://a/y:z");
}

TEST_CASE("a redirect leads to what its Location means, or is refused") {
  const std::string from = "http://host:81/data/shard.tar?sig=a/b";
  CHECK(led(from, "real.tar") == "http://host:81/data/real.tar");
  CHECK(led(from, "../x") == "http://host:81/x");
  CHECK(led(from, "?v=2") == "http://host:81/data/shard.tar?v=2");
  CHECK(led(from, "//cdn.test/x") == "http://cdn.test/x");
  CHECK(led(from, "HTTPS://Host.test/a?b=/../c") == "HTTPS://Host.test/a?b=/../c");
  CHECK(led(from, "https://cdn.test") == "https://cdn.test");
  CHECK(led(from, "https://cdn.test/a#part") == "https://cdn.test/a");
  CHECK(led(from, "#part") == from);
  CHECK(led(from, "") == from);
  CHECK(led(from, "a b\xc3\xa9.tar?x= y") == "http://host:81/data/a%20b%C3%A9.tar?x=%20y");
  CHECK(led(from, "a%20b%2f") == "http://host:81/data/a%20b%2f");
  CHECK(led("http://u:secret@host/x", "y") == "http://u:secret@host/y");  // to the same server
  CHECK(led("http://u:secret@host/x", "//other/y") == "http://other/y");
  CHECK(led("https://host/x", "y") == "https://host/y");
  CHECK(led("HTTPS://host/x", "//other/y") == "HTTPS://other/y");

  CHECK(led(from, "https://u:p@cdn.test/x") == "a redirect that names a user is not followed");
  CHECK(led(from, "//u@cdn.test/x") == "a redirect that names a user is not followed");
  for (const char* other : {"ftp://cdn.test/x", "file:///etc/passwd", "http:x", "http:///x", "data:,x", "s3://b/k"}) {
    CHECK(led(from, other) == "a redirect to something that is not an http(s) URL");
  }
  for (const char* plain : {"http://cdn.test/x", "HTTP://cdn.test/x"}) {
    CHECK(led("https://host/x", plain) == "a redirect from https to http is not followed");
    CHECK(led("HTTPS://host/x", plain) == "a redirect from https to http is not followed");
  }
  CHECK(led(from, "a\tb") == "a redirect with a control character");
}

TEST_CASE("statuses that are redirects") {
  for (const int status : {301, 302, 303, 307, 308}) CHECK(http::is_redirect(status));
  for (const int status : {200, 206, 300, 304, 305, 306, 309, 404}) CHECK(!http::is_redirect(status));
}
