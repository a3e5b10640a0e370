// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/background.hpp>

#include <curl/curl.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <string_view>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

namespace {

namespace s3_server = millrace::s3_server;
using s3_server::fault;
using handshake = s3_server::tls_options::handshake;

struct fetched {
  CURLcode code = CURLE_OK;
  long status = 0;
  std::string body;
};

/// One GET by libcurl, trusting `ca_file` alone.
fetched get(const std::string& url, const std::string& ca_file) {
  fetched out;
  const std::unique_ptr<CURL, void (*)(CURL*)> easy(curl_easy_init(), &curl_easy_cleanup);
  curl_easy_setopt(easy.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_CAINFO, ca_file.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_CAPATH, nullptr);
  curl_easy_setopt(easy.get(), CURLOPT_PROXY, "");
  curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT_MS, 20000L);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &out.body);
  curl_easy_setopt(
      easy.get(), CURLOPT_WRITEFUNCTION, +[](char* data, std::size_t, std::size_t n, void* to) {
        static_cast<std::string*>(to)->append(data, n);
        return n;
      });
  out.code = curl_easy_perform(easy.get());
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &out.status);
  return out;
}

s3_server::options secure() {
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::read;
  o.tls.enabled = true;
  return o;
}

bool exists(const std::string& path) {
  struct stat s;
  return ::stat(path.c_str(), &s) == 0;
}

TEST_CASE("objects over TLS; the certificate file goes with the server") {
  std::string ca_file;
  {
    s3_server::background server(secure());
    ca_file = server.certificate_file();
    CHECK(server.endpoint().substr(0, 20) == "https://127.0.0.1:" + std::to_string(server.port()).substr(0, 2));
    std::string text(3000000, 'a');
    for (std::size_t i = 0; i < text.size(); i += 11) text[i] = static_cast<char>('b' + i % 20);
    server.put("b", "k", std::string_view(text));
    const fetched whole = get(server.endpoint() + "/b/k", ca_file);
    CHECK(whole.code == CURLE_OK);
    CHECK(whole.status == 200);
    CHECK((whole.body == text));
    CHECK(get("https://localhost:" + std::to_string(server.port()) + "/b/k", ca_file).code == CURLE_OK);
    // Another server's certificate is not this one's.
    s3_server::background other(secure());
    CHECK(get(server.endpoint() + "/b/k", other.certificate_file()).code == CURLE_PEER_FAILED_VERIFICATION);
    // A body that is cut is noticed where its length is known; elsewhere by newer versions of libcurl only, which take
    // a TLS connection that ends without a farewell for broken, and may then keep what they have read to themselves.
    server.faults().add({.nth = 1}, fault::cut_without_length(1000));
    server.faults().add({.nth = 2}, fault::close_in_body(1000));
    const fetched unknown = get(server.endpoint() + "/b/k", ca_file);
    CHECK((unknown.code == CURLE_OK || unknown.code == CURLE_RECV_ERROR));
    CHECK((unknown.body.size() == 1000 || unknown.code == CURLE_RECV_ERROR));
    const CURLcode cut = get(server.endpoint() + "/b/k", ca_file).code;
    CHECK((cut == CURLE_PARTIAL_FILE || cut == CURLE_RECV_ERROR));
    CHECK(exists(ca_file));
  }
  CHECK(!exists(ca_file));
}

TEST_CASE("certificates that a client must refuse") {
  s3_server::options o = secure();
  o.tls.certificate_name = "other.test";
  s3_server::background misnamed(o);
  CHECK(get(misnamed.endpoint() + "/", misnamed.certificate_file()).code == CURLE_PEER_FAILED_VERIFICATION);
  o = secure();
  o.tls.expired = true;
  s3_server::background expired(o);
  CHECK(get(expired.endpoint() + "/", expired.certificate_file()).code == CURLE_PEER_FAILED_VERIFICATION);
}

TEST_CASE("handshakes that fail") {
  for (const auto& [greeting, code] :
       {std::pair(handshake::reset, CURLE_SSL_CONNECT_ERROR), std::pair(handshake::close, CURLE_SSL_CONNECT_ERROR),
        std::pair(handshake::plain_text, CURLE_SSL_CONNECT_ERROR)}) {
    s3_server::options o = secure();
    o.tls.greeting = greeting;
    s3_server::background server(o);
    CHECK(get(server.endpoint() + "/", server.certificate_file()).code == code);
    CHECK(server.stats().requests == 0);
  }
}

}  // namespace
