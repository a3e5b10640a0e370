// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/http/proxy.hpp>

#include <map>
#include <string>

#include "tests/support/catch.hpp"

namespace {

using table = std::map<std::string, std::string>;

millrace::http::proxy_choice choose(table values, const char* scheme) {
  const auto look_up = [&](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
  return millrace::http::proxy_choice::from_environment(millrace::environment(look_up), scheme);
}

}  // namespace

TEST_CASE("the proxy variables are read in curl's order", "[http][proxy]") {
  CHECK(choose({}, "https").url.empty());
  CHECK(choose({{"HTTPS_PROXY", "b"}, {"https_proxy", "a"}, {"all_proxy", "c"}}, "https").url == "a");
  CHECK(choose({{"HTTPS_PROXY", "b"}, {"all_proxy", "c"}}, "https").source == "HTTPS_PROXY");
  CHECK(choose({{"http_proxy", "a"}, {"ALL_PROXY", "d"}}, "https").url == "d");
  CHECK(choose({{"http_proxy", "a"}, {"https_proxy", "b"}}, "http").url == "a");
  CHECK(choose({{"HTTP_PROXY", "header"}}, "http").url.empty());
  CHECK(choose({{"HTTP_PROXY", "header"}, {"all_proxy", "c"}}, "http").url == "c");
  CHECK(choose({{"https_proxy", " "}, {"HTTPS_PROXY", "b"}}, "https").url == "b");
  CHECK(choose({{"NO_PROXY", "x"}, {"no_proxy", "y"}}, "https").no_proxy == "y");
  millrace::http::transport_options o;
  choose({{"https_proxy", "a"}, {"NO_PROXY", "x"}}, "https").apply_to(o);
  CHECK(o.proxy == "a");
  CHECK(o.no_proxy == "x,localhost,127.0.0.1,::1");
  choose({{"https_proxy", "a"}, {"NO_PROXY", "*"}}, "https").apply_to(o);
  CHECK(o.no_proxy == "*");
  choose({}, "https").apply_to(o);
  CHECK(o.proxy.empty());
}

TEST_CASE("a proxy is shown without its user, and its port is known", "[http][proxy]") {
  using millrace::http::displayed_proxy;
  using millrace::http::proxy_port;
  CHECK(displayed_proxy("user:p/w@proxy:3128") == "http://proxy:3128");
  CHECK(displayed_proxy("https://u@[::1]") == "https://[::1]");
  CHECK(proxy_port("user:9@proxy:3128/") == 3128);
  CHECK(proxy_port("http://proxy") == 1080);
  CHECK(proxy_port("https://[::1]") == 443);
  CHECK(proxy_port("http://[::1]:99") == 99);
}
