// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/signature_check.hpp>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/s3_server/parsed.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"

namespace {

namespace s3_server = millrace::s3_server;
using millrace::test::parsed;
using json = nlohmann::json;

/// The code with which a request is refused, "" when it passes.
std::string verdict(const s3_server::options& o, const s3_server::request& r, std::int64_t now) {
  try {
    s3_server::signature_check(o).verify(r, now);
    return std::string();
  } catch (const s3_server::refusal& why) {
    return why.code;
  }
}

s3_server::options example_options() {
  s3_server::options o;
  o.keys = {{"AKIAIOSFODNN7EXAMPLE", s3_server::access_key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")}};
  return o;
}

constexpr std::int64_t may_2013 = 1369353600;  // 2013-05-24T00:00:00Z

const std::string empty_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

// The first example of the AWS documentation ("Signature Calculations for the Authorization Header").
std::vector<std::pair<std::string, std::string>> example_fields() {
  return {{"Host", "examplebucket.s3.amazonaws.com"},
          {"Range", "bytes=0-9"},
          {"x-amz-content-sha256", empty_hash},
          {"x-amz-date", "20130524T000000Z"},
          {"Authorization",
           "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
           "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
           "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"}};
}

std::string head(const std::string& line, const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string text = line + " HTTP/1.1\r\n";
  for (const auto& [name, value] : fields) text += name + ": " + value + "\r\n";
  return text;
}

const std::string example_url =
    "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3"
    "%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
    "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("the example of the documentation passes, at any time in the window") {
  const s3_server::request r = parsed(head("GET /test.txt", example_fields()));
  CHECK(verdict(example_options(), r, may_2013) == "");
  CHECK(verdict(example_options(), r, may_2013 + 900) == "");
  CHECK(verdict(example_options(), r, may_2013 - 900) == "");
  CHECK(verdict(example_options(), r, may_2013 + 901) == "RequestTimeTooSkewed");
  CHECK(verdict(example_options(), r, may_2013 - 901) == "RequestTimeTooSkewed");
  const s3_server::caller who = s3_server::signature_check(example_options()).verify(r, may_2013);
  CHECK(!who.anonymous);
  CHECK(who.payload == empty_hash);
}

TEST_CASE("every part of a signed request is covered by the signature") {
  struct change {
    const char* field;
    const char* from;
    const char* to;
    const char* code;
  };
  const change changes[] = {
      {"Host", "examplebucket", "otherbucket", "SignatureDoesNotMatch"},
      {"Range", "0-9", "0-8", "SignatureDoesNotMatch"},
      {"x-amz-content-sha256", "e3b0", "e3b1", "SignatureDoesNotMatch"},
      {"x-amz-content-sha256", "e3b0", "E3B0", "InvalidArgument"},
      {"x-amz-date", "000000Z", "000001Z", "SignatureDoesNotMatch"},
      {"x-amz-date", "000000Z", "000000", "AccessDenied"},
      {"x-amz-date", "20130524T000000Z", "20130525T000000Z", "AuthorizationHeaderMalformed"},
      {"Authorization", "bdb41", "bdb42", "SignatureDoesNotMatch"},
      {"Authorization", "AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLF", "InvalidAccessKeyId"},
      {"Authorization", "us-east-1", "us-east-2", "AuthorizationHeaderMalformed"},
      {"Authorization", "/s3/", "/s4/", "AuthorizationHeaderMalformed"},
      {"Authorization", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA512", "InvalidRequest"},
      {"Authorization", "host;range", "range;host", "SignatureDoesNotMatch"},
      {"Authorization", "host;range", "Host;range", "SignatureDoesNotMatch"},
      {"Authorization", "host;range", "host;nothing;range", "SignatureDoesNotMatch"},
      {"Authorization", "host;range", "range", "AccessDenied"},
      {"Authorization", ";x-amz-date", "", "AccessDenied"},
      {"Authorization", "Signature=", "Signatur=", "AuthorizationHeaderMalformed"},
  };
  for (const change& c : changes) {
    auto fields = example_fields();
    for (auto& [name, value] : fields) {
      if (name == c.field) value = replaced(value, c.from, c.to);
    }
    INFO(c.field << ": " << c.from << " -> " << c.to);
    CHECK(verdict(example_options(), parsed(head("GET /test.txt", fields)), may_2013) == c.code);
  }
  CHECK(verdict(example_options(), parsed(head("HEAD /test.txt", example_fields())), may_2013) ==
        "SignatureDoesNotMatch");
  CHECK(verdict(example_options(), parsed(head("GET /test.tx", example_fields())), may_2013) ==
        "SignatureDoesNotMatch");
  CHECK(verdict(example_options(), parsed(head("GET /test.txt?a=", example_fields())), may_2013) ==
        "SignatureDoesNotMatch");
  s3_server::options other = example_options();
  other.keys["AKIAIOSFODNN7EXAMPLE"].secret += 'x';
  CHECK(verdict(other, parsed(head("GET /test.txt", example_fields())), may_2013) == "SignatureDoesNotMatch");
}

TEST_CASE("headers that S3 wants, and x-amz-* headers that were not signed") {
  for (const char* removed : {"x-amz-content-sha256", "x-amz-date"}) {
    auto fields = example_fields();
    std::erase_if(fields, [&](const auto& f) { return f.first == removed; });
    const std::string code = verdict(example_options(), parsed(head("GET /test.txt", fields)), may_2013);
    CHECK(code == (removed == std::string("x-amz-date") ? "AccessDenied" : "MissingSecurityHeader"));
  }
  auto fields = example_fields();
  fields.emplace_back("X-Amz-Meta-Extra", "1");
  CHECK(verdict(example_options(), parsed(head("GET /test.txt", fields)), may_2013) == "AccessDenied");
  fields = example_fields();
  fields.push_back(fields.back());
  CHECK(verdict(example_options(), parsed(head("GET /test.txt", fields)), may_2013) == "AuthorizationHeaderMalformed");
  CHECK(verdict(example_options(), parsed(head("GET " + example_url, example_fields())), may_2013) ==
        "InvalidArgument");
}

TEST_CASE("a wrong region names the right one") {
  s3_server::options o = example_options();
  o.region = "eu-west-1";
  try {
    s3_server::signature_check(o).verify(parsed(head("GET /test.txt", example_fields())), may_2013);
    FAIL("accepted");
  } catch (const s3_server::refusal& why) {
    CHECK(why.status == 400);
    CHECK(why.document("/", "1").find("<Region>eu-west-1</Region>") != std::string::npos);
  }
}

TEST_CASE("presigned: the example of the documentation, its window and its parameters") {
  const s3_server::options o = example_options();
  const std::string host = "Host: examplebucket.s3.amazonaws.com\r\n";
  const auto judge = [&](const std::string& url, std::int64_t now, const std::string& more = std::string()) {
    return verdict(o, parsed("GET " + url + " HTTP/1.1\r\n" + host + more), now);
  };
  CHECK(judge(example_url, may_2013) == "");
  CHECK(judge(example_url, may_2013 + 86400) == "");
  CHECK(judge(example_url, may_2013 + 86401) == "AccessDenied");
  CHECK(judge(example_url, may_2013 - 901) == "AccessDenied");
  CHECK(judge(replaced(example_url, "f604d404", "f604d405"), may_2013) == "SignatureDoesNotMatch");
  CHECK(judge(replaced(example_url, "test.txt", "test.txu"), may_2013) == "SignatureDoesNotMatch");
  CHECK(judge(replaced(example_url, "86400", "86401"), may_2013) == "SignatureDoesNotMatch");
  CHECK(judge(replaced(example_url, "86400", "604801"), may_2013) == "AuthorizationQueryParametersError");
  CHECK(judge(replaced(example_url, "Expires=86400", "Expires=0"), may_2013) == "AuthorizationQueryParametersError");
  CHECK(judge(replaced(example_url, "&X-Amz-Expires=86400", ""), may_2013) == "AuthorizationQueryParametersError");
  CHECK(judge(example_url + "&X-Amz-Date=20130524T000000Z", may_2013) == "AuthorizationQueryParametersError");
  CHECK(judge(example_url + "&versionId=1", may_2013) == "SignatureDoesNotMatch");
  // SigV4 encodes a slash in a query; S3 would not mind, this server does.
  CHECK(judge(replaced(example_url, "%2F20130524", "/20130524"), may_2013) == "SignatureDoesNotMatch");
  CHECK(judge(replaced(example_url, "%2F20130524", "%2f20130524"), may_2013) == "SignatureDoesNotMatch");
  CHECK(judge(example_url, may_2013, "x-amz-checksum-mode: ENABLED\r\n") == "AccessDenied");
}

TEST_CASE("session tokens are required, compared, and never shown") {
  s3_server::options o = example_options();
  o.keys["AKIAIOSFODNN7EXAMPLE"].session_token = "the-token";
  const auto request = parsed(head("GET /test.txt", example_fields()));
  CHECK(verdict(o, request, may_2013) == "InvalidToken");
  o = example_options();
  o.keys["AKIAIOSFODNN7EXAMPLE"].expired = true;
  CHECK(verdict(o, request, may_2013) == "ExpiredToken");

  auto fields = example_fields();
  fields.emplace_back("X-Amz-Security-Token", "very-secret-token");
  fields[4].second = replaced(fields[4].second, ";x-amz-date", ";x-amz-date;x-amz-security-token");
  try {
    s3_server::signature_check(example_options()).verify(parsed(head("GET /test.txt", fields)), may_2013);
    FAIL("accepted");
  } catch (const s3_server::refusal& why) {
    const std::string document = why.document("/", "1");
    CHECK(why.code == "SignatureDoesNotMatch");
    CHECK(document.find("x-amz-security-token:(token)") != std::string::npos);
    CHECK(document.find("very-secret") == std::string::npos);
    CHECK(document.find("wJalrXUtn") == std::string::npos);
  }
}

/// Signs a GET of exactly this target, with the names in exactly this order: the signature is right, whatever the form.
s3_server::request signed_as_sent(const std::string& target, const std::vector<std::string>& names) {
  const std::size_t mark = target.find('?');
  std::string fields;
  std::string list;
  for (const std::string& name : names) {
    const std::string lower = s3_server::detail::lower_case(name);
    const std::string value = lower == "host" ? "localhost" : lower == "x-amz-date" ? "20130524T000000Z" : empty_hash;
    fields += name + ':' + value + '\n';
    list += (list.empty() ? "" : ";") + name;
  }
  const std::string canonical = "GET\n" + target.substr(0, mark) + '\n' +
                                (mark == std::string::npos ? "" : target.substr(mark + 1)) + '\n' + fields + '\n' +
                                list + '\n' + empty_hash;
  const std::string scope = "20130524/us-east-1/s3/aws4_request";
  std::string key = "AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
  for (const char* step : {"20130524", "us-east-1", "s3", "aws4_request"})
    key = s3_server::detail::hmac_sha256(key, step);
  const std::string signature = s3_server::detail::to_hex(s3_server::detail::hmac_sha256(
      key, "AWS4-HMAC-SHA256\n20130524T000000Z\n" + scope + '\n' +
               s3_server::detail::to_hex(s3_server::detail::digest_of("SHA256", canonical))));
  return parsed(head("GET " + target, {{"Host", "localhost"},
                                       {"X-Amz-Date", "20130524T000000Z"},
                                       {"X-Amz-Content-SHA256", empty_hash},
                                       {"Authorization", "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/" + scope +
                                                             ", SignedHeaders=" + list + ", Signature=" + signature}}));
}

TEST_CASE("a right signature does not excuse a form that only S3 would repair") {
  const std::vector<std::string> sorted{"host", "x-amz-content-sha256", "x-amz-date"};
  const auto judge = [&](const std::string& target, const std::vector<std::string>& names) {
    return verdict(example_options(), signed_as_sent(target, names), may_2013);
  };
  for (const char* sound : {"/", "/b/%C3%A9/a%20b", "/b//..//c", "/b?list-type=2&prefix=a%20b%2Fc", "/b?a=&a=1&b="}) {
    INFO(sound);
    CHECK(judge(sound, sorted) == "");
  }
  for (const char* loose : {"/b/%c3%a9", "/b/%61", "/b/a+b", "/b/a%2Fb", "/b/a:b", "/b?prefix=a+b", "/b?prefix=a/b",
                            "/b?prefix=%2f", "/b?p%72efix=", "/b?b=&a=", "/b?list-type"}) {
    INFO(loose);
    CHECK(judge(loose, sorted) == "SignatureDoesNotMatch");
  }
  CHECK(judge("/b", {"host", "x-amz-date", "x-amz-content-sha256"}) == "SignatureDoesNotMatch");
  CHECK(judge("/b", {"host", "host", "x-amz-content-sha256", "x-amz-date"}) == "SignatureDoesNotMatch");
  CHECK(judge("/b", {"Host", "x-amz-content-sha256", "x-amz-date"}) == "SignatureDoesNotMatch");
}

TEST_CASE("no signature at all is anonymous") {
  CHECK(s3_server::signature_check(example_options()).verify(parsed("GET / HTTP/1.1\r\nHost: x\r\n"), 0).anonymous);
}

/// Rebuilds the signed request of one vector.
s3_server::request vector_request(const json& c) {
  const std::string canonical = c.at("canonical_request").get<std::string>();
  const std::size_t host = canonical.find("\nhost:") + 6;
  std::string url = c.value("presigned_url", c.at("url").get<std::string>());
  const std::size_t path = url.find('/', url.find("://") + 3);
  std::vector<std::pair<std::string, std::string>> fields{
      {"Host", canonical.substr(host, canonical.find('\n', host) - host)}};
  for (const char* group : {"headers", "added_headers"}) {
    if (!c.contains(group)) continue;
    for (const auto& [name, value] : c.at(group).items()) fields.emplace_back(name, value.get<std::string>());
  }
  if (c.contains("authorization")) fields.emplace_back("Authorization", c.at("authorization").get<std::string>());
  return parsed(head(c.at("method").get<std::string>() + ' ' + url.substr(path), fields));
}

TEST_CASE("botocore's signatures for S3 pass; each with a digit changed does not") {
  const std::string folder = millrace::test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("the shared test data is not here");
  const json vectors = json::parse(millrace::test::read_file(folder + "/sigv4/s3/s3-vectors.json"));
  int judged = 0;
  for (const json& c : vectors.at("cases")) {
    INFO(c.at("name").get<std::string>());
    s3_server::options o;
    o.region = c.at("region").get<std::string>();
    const std::string token = c.at("session_token").is_null() ? "" : c.at("session_token").get<std::string>();
    o.keys = {{c.at("access_key_id").get<std::string>(),
               s3_server::access_key(c.at("secret_access_key").get<std::string>(), token)}};
    const auto when = s3_server::detail::parse_basic_date(c.at("timestamp").get<std::string>());
    REQUIRE(when);
    s3_server::request r = vector_request(c);
    CHECK(verdict(o, r, *when) == "");
    o.keys.begin()->second.secret += 'x';
    CHECK(verdict(o, r, *when) == "SignatureDoesNotMatch");
    ++judged;
  }
  CHECK(judged == 36);
}

}  // namespace
