// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Private certificate authorities: which variable names them, for which requests, and what is said when they are not
// right.

#include <millrace/http/authorities.hpp>

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/http_storage.hpp>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using millrace::test::environment_of;
using table = millrace::test::variables;

namespace {

/// A server over TLS with an unknown certificate and one object.
class private_server {
 public:
  private_server() : server_(encrypted()) { server_.put("b", "k", "content"); }

  std::string endpoint() const { return server_.endpoint(); }
  std::string certificate() const { return server_.certificate_file(); }

  /// What a client that is configured by these variables reads, or says.
  std::string read(table v) const {
    v.emplace("AWS_ACCESS_KEY_ID", "test-key");
    v.emplace("AWS_SECRET_ACCESS_KEY", "test-secret");
    v.emplace("AWS_ENDPOINT_URL_S3", endpoint());
    return with_files(std::move(v));
  }
  /// The same without keys: what else gives credentials, v says.
  std::string with_files(table v) const {
    v.emplace("AWS_REGION", "us-east-1");
    v.emplace("AWS_MAX_ATTEMPTS", "1");
    v.emplace("AWS_EC2_METADATA_DISABLED", "true");
    v.emplace("AWS_CONFIG_FILE", "/nonexistent/config");
    v.emplace("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials");
    const auto loop = make_event_loop();
    try {
      return std::string(block_on(*loop, s3::client::from_environment(environment_of(v)).read("s3://b/k")).view());
    } catch (const error& e) {
      return e.what();
    }
  }
  /// What an http_storage that is configured by these variables reads, or says.
  std::string read_as_web(table v) const {
    const auto loop = make_event_loop();
    retry_options once;
    once.max_attempts = 1;
    const http_storage web(http::transport_from_environment(environment_of(v)), once);
    try {
      return std::string(
          block_on(*loop, web.read(shard(endpoint() + "/b/k"), "", 0, 100, slab_pool(64 * KiB))).data.view());
    } catch (const error& e) {
      return e.what();
    }
  }

 private:
  static s3_server::options encrypted() {
    s3_server::options o;
    o.tls.enabled = true;
    o.anonymous = s3_server::anonymous_access::read;
    return o;
  }
  mutable s3_server::background server_;
};

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// Puts the certificate into a folder as `openssl rehash` does.
void add_hashed(const std::string& folder, const std::string& certificate) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(certificate.c_str(), "rb"), &std::fclose);
  REQUIRE(file != nullptr);
  const std::unique_ptr<X509, void (*)(X509*)> parsed(PEM_read_X509(file.get(), nullptr, nullptr, nullptr), &X509_free);
  REQUIRE(parsed != nullptr);
  char name[32];
  std::snprintf(name, sizeof name, "/%08lx.0", X509_subject_name_hash(parsed.get()));
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(certificate, folder + name);
}

}  // namespace

TEST_CASE("the variables that name certificate authorities are read in curl's order", "[tls]") {
  const auto choice = [](table v) {
    v.emplace("HOME", "/home/u");
    const http::authority_choice c = http::authority_choice::from_environment(environment_of(v));
    return c.file + "|" + c.directory + "|" + c.source;
  };
  CHECK(choice({}) == "||");
  CHECK(choice({{"SSL_CERT_FILE", "/f"}}) == "/f||SSL_CERT_FILE");
  CHECK(choice({{"SSL_CERT_DIR", "/d"}}) == "|/d|SSL_CERT_DIR");
  CHECK(choice({{"SSL_CERT_FILE", "/f"}, {"SSL_CERT_DIR", "/d"}}) == "/f|/d|SSL_CERT_FILE");
  CHECK(choice({{"CURL_CA_BUNDLE", "/c"}}) == "/c||CURL_CA_BUNDLE");
  CHECK(choice({{"CURL_CA_BUNDLE", "/c"}, {"SSL_CERT_FILE", "/f"}, {"SSL_CERT_DIR", "/d"}}) == "/c||CURL_CA_BUNDLE");
  CHECK(choice({{"REQUESTS_CA_BUNDLE", "/r"}}) == "/r||REQUESTS_CA_BUNDLE");
  CHECK(choice({{"REQUESTS_CA_BUNDLE", "/r"}, {"SSL_CERT_DIR", "/d"}}) == "|/d|SSL_CERT_DIR");
  CHECK(choice({{"SSL_CERT_FILE", " "}}) == "||");
  CHECK(choice({{"SSL_CERT_FILE", "~/ca.pem"}, {"SSL_CERT_DIR", "~/certs"}}) ==
        "/home/u/ca.pem|/home/u/certs|SSL_CERT_FILE");
  CHECK(choice({{"CURL_CA_BUNDLE", "~/c"}}) == "/home/u/c||CURL_CA_BUNDLE");
  CHECK(choice({{"CURL_CA_BUNDLE", "~other/c"}}) == "~other/c||CURL_CA_BUNDLE");
  CHECK(choice({{"CURL_CA_BUNDLE", "/a~/c"}}) == "/a~/c||CURL_CA_BUNDLE");
}

TEST_CASE("an S3 client trusts what AWS's variables name, then what those of other programs name", "[s3][tls]") {
  millrace::test::temporary_folder folder;
  const auto from = [&](table v, const std::string& config = std::string()) {
    v.emplace("HOME", "/home/u");
    if (!config.empty()) v["AWS_CONFIG_FILE"] = folder.file("config", config);
    const s3::config c = s3::config::from_environment(environment_of(v));
    return c.ca_bundle + "|" + c.ca_directory + "|" + c.ca_source;
  };
  CHECK(from({{"AWS_CA_BUNDLE", "/a"}, {"CURL_CA_BUNDLE", "/c"}, {"SSL_CERT_DIR", "/d"}}) == "/a||AWS_CA_BUNDLE");
  CHECK(from({{"AWS_CA_BUNDLE", "~/a"}}) == "/home/u/a||AWS_CA_BUNDLE");
  CHECK(from({{"SSL_CERT_FILE", "/f"}}, "[default]\nca_bundle = ~/p\n") == "/home/u/p||ca_bundle of profile default");
  CHECK(from({{"SSL_CERT_FILE", "/f"}, {"SSL_CERT_DIR", "/d"}}) == "/f|/d|SSL_CERT_FILE");
  table given{{"SSL_CERT_FILE", "/f"}, {"SSL_CERT_DIR", "/d"}};
  const s3::config own = s3::config::from_environment(environment_of(given), {.ca_bundle = "/own"});
  CHECK(own.ca_bundle == "/own");
  CHECK(own.ca_directory.empty());
}

TEST_CASE("a private authority is trusted whichever variable names it", "[s3][tls]") {
  const private_server server;
  millrace::test::temporary_folder folder;
  const std::string home = folder.file("ca.pem", text_of(server.certificate()));
  const std::string parent = home.substr(0, home.rfind('/'));
  const std::string hashed = parent + "/certs";
  add_hashed(hashed, server.certificate());
  for (const char* name : {"AWS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    INFO(name);
    CHECK(server.read({{name, server.certificate()}}) == "content");
    CHECK(server.read({{name, "~/ca.pem"}, {"HOME", parent}}) == "content");
    if (std::string_view(name) != "AWS_CA_BUNDLE")
      CHECK(server.read_as_web({{name, "~/ca.pem"}, {"HOME", parent}}) == "content");
  }
  CHECK(server.read({{"SSL_CERT_DIR", hashed}}) == "content");
  CHECK(server.read({{"SSL_CERT_DIR", "~/certs"}, {"HOME", parent}}) == "content");
  CHECK(server.read_as_web({{"SSL_CERT_DIR", hashed}}) == "content");
  CHECK(server.read({{"AWS_CONFIG_FILE", folder.file("config", "[default]\nca_bundle = ~/ca.pem\n")},
                     {"HOME", parent}}) == "content");
  // The credentials' own requests: STS is this server, which is no STS, and is trusted or not.
  const std::string config =
      folder.file("roles",
                  "[default]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = base\n"
                  "[profile base]\naws_access_key_id = k\naws_secret_access_key = s\n");
  const table role{{"AWS_CONFIG_FILE", config},
                   {"AWS_ENDPOINT_URL_S3", server.endpoint()},
                   {"AWS_ENDPOINT_URL_STS", server.endpoint()}};
  table trusting = role;
  trusting["SSL_CERT_FILE"] = server.certificate();
  CHECK_THAT(server.with_files(role), Contains("AWS_CA_BUNDLE or SSL_CERT_FILE names"));
  CHECK_THAT(server.with_files(trusting), !Contains("certificate"));
}

TEST_CASE("what is wrong with an authority is said with the variable that named it, or that should", "[s3][tls]") {
  const private_server server;
  const private_server other;
  millrace::test::temporary_folder folder;
  const std::string letter = folder.file("letter.pem", "Dear customer\n");
  const std::string empty = folder.file("empty.pem", "");
  const std::string cut = folder.file("cut.pem", text_of(server.certificate()).substr(0, 200));
  const std::string directory = letter.substr(0, letter.rfind('/'));
  CHECK_THAT(server.read({}), Contains("the system's authorities are trusted; AWS_CA_BUNDLE or SSL_CERT_FILE names"));
  CHECK_THAT(server.read_as_web({}), Contains("AWS_CA_BUNDLE or SSL_CERT_FILE names"));
  for (const char* name : {"AWS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    INFO(name);
    const std::string names = std::string(name) + " names ";
    CHECK_THAT(server.read({{name, "/nonexistent/ca.pem"}}),
               Contains(names + "/nonexistent/ca.pem: No such file or directory"));
    CHECK_THAT(server.read({{name, directory}}), Contains(names + directory + ": it is a directory"));
    for (const std::string& bad : {letter, empty, cut}) {
      CHECK_THAT(server.read({{name, bad}}), Contains(names + bad + ": it holds no certificates in PEM"));
    }
    CHECK_THAT(server.read({{name, other.certificate()}}),
               Contains("the authorities of " + std::string(name) + " (" + other.certificate() + ") are trusted"));
  }
  CHECK_THAT(server.read({{"SSL_CERT_DIR", "/nonexistent/certs"}}),
             Contains("SSL_CERT_DIR names /nonexistent/certs: No such file or directory"));
  CHECK_THAT(server.read({{"SSL_CERT_DIR", letter}}),
             Contains("SSL_CERT_DIR names " + letter + ": it is no directory"));
  const std::string config = folder.file("config", "[default]\nca_bundle = /nonexistent/p.pem\n");
  CHECK_THAT(server.read({{"AWS_CONFIG_FILE", config}}),
             Contains("ca_bundle of profile default names /nonexistent/p.pem: No such file or directory"));
}
