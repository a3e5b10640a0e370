// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/sign/signer.hpp>
#include <millrace/text/dates.hpp>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"

namespace {

namespace s3 = millrace::s3;
using millrace::test::json;
using millrace::test::read_file;

/// A request read from text or JSON: owns what a signing_request only views.
struct request_text {
  std::string method, host, path, query, body;
  std::vector<std::pair<std::string, std::string>> headers;

  std::vector<s3::header_field> fields() const {
    std::vector<s3::header_field> out;
    for (const auto& [name, value] : headers) out.push_back({name, value});
    return out;
  }
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// The request.txt of the suites: a request line, headers (folded lines are joined as RFC 9112 has it), a body.
request_text parse_request(const std::string& text) {
  request_text out;
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  out.method = line.substr(0, first);
  std::string target = line.substr(first + 1, last - first - 1);
  const std::size_t question = target.find('?');
  out.path = target.substr(0, question);
  if (question != std::string::npos) out.query = target.substr(question + 1);
  while (std::getline(in, line) && !line.empty()) {
    if (line[0] == ' ' || line[0] == '\t') {
      out.headers.back().second += line;
      continue;
    }
    const std::size_t colon = line.find(':');
    out.headers.emplace_back(line.substr(0, colon), line.substr(colon + 1));
  }
  if (in) out.body.assign(std::istreambuf_iterator<char>(in), {});
  const auto host =
      std::find_if(out.headers.begin(), out.headers.end(), [](const auto& h) { return lower(h.first) == "host"; });
  out.host = host->second;
  out.headers.erase(host);
  return out;
}

std::vector<std::string> sorted_parameters(std::string query) {
  std::vector<std::string> out;
  std::istringstream in(query);
  std::string one;
  while (std::getline(in, one, '&')) out.push_back(one);
  std::sort(out.begin(), out.end());
  return out;
}

s3::credentials credentials_of(const json& c) {
  return s3::credentials(c.at("access_key_id").get<std::string>(), c.at("secret_access_key").get<std::string>(),
                         c.value("token", std::string()));
}

/// Signs one case of the aws-c-auth suite both ways and compares every intermediate text.
void check_suite_case(const std::string& folder) {
  const json context = millrace::test::read_json(folder + "/context.json");
  if (context.value("omit_session_token", false)) return;  // S3 signs the token
  const request_text r = parse_request(read_file(folder + "/request.txt"));
  s3::signing_options options;
  options.encode_path = true;  // the suite gives raw paths
  options.normalize_path = context.at("normalize").get<bool>();
  options.send_content_sha256 = context.at("sign_body").get<bool>();
  s3::signer signer(options);

  const std::string payload = signer.payload_sha256(r.body);
  const std::vector<s3::header_field> fields = r.fields();
  s3::signing_request request;
  request.method = r.method;
  request.host = r.host;
  request.path = r.path;
  request.query = r.query;
  request.headers = fields;
  const std::string region = context.at("region");
  const std::string service = context.at("service");
  request.region = region;
  request.service = service;
  request.payload = payload;
  const s3::credentials who = credentials_of(context.at("credentials"));
  const auto now = millrace::text::parse_iso8601(context.at("timestamp").get<std::string>());
  REQUIRE(now.has_value());

  const s3::signed_headers added = signer.sign(request, who, *now);
  CHECK(signer.canonical_request() == read_file(folder + "/header-canonical-request.txt"));
  CHECK(signer.string_to_sign() == read_file(folder + "/header-string-to-sign.txt"));
  const std::string signed_request = read_file(folder + "/header-signed-request.txt");
  CHECK(signed_request.find("Authorization:" + std::string(added["authorization"]) + "\n") != std::string::npos);
  for (const s3::header_field& field : added) {
    CHECK(lower(signed_request).find(lower(std::string(field.name) + ":" + std::string(field.value))) !=
          std::string::npos);
  }

  const std::string query = signer.presign(request, who, *now, context.at("expiration_in_seconds").get<int>());
  CHECK(signer.canonical_request() == read_file(folder + "/query-canonical-request.txt"));
  CHECK(signer.string_to_sign() == read_file(folder + "/query-string-to-sign.txt"));
  const request_text signed_query = parse_request(read_file(folder + "/query-signed-request.txt"));
  // The suite leaves the parameters of the request as they were sent, and so does presign().
  CHECK(sorted_parameters(query) == sorted_parameters(signed_query.query));
}

}  // namespace

TEST_CASE("every case of the aws-c-auth suite is signed alike, in headers and in the query", "[s3][signer]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const std::string suite = data + "/sigv4/aws-c-auth/v4";
  int cases = 0;
  for (const std::string& name : millrace::test::names_in(suite)) {
    INFO(name);
    check_suite_case(suite + "/" + name);
    ++cases;
  }
  CHECK(cases == 38);
}

TEST_CASE("double encoding gives the canonical requests of smithy", "[s3][signer]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  for (const std::string name : {"double-encode-path", "double-url-encode"}) {
    INFO(name);
    const std::string folder = data + "/sigv4/smithy-rs/v4/" + name;
    request_text r = parse_request(read_file(folder + "/request.txt"));
    r.headers.clear();  // only the date, which is the signer's to write
    s3::signing_options options;
    options.encode_path = true;
    options.send_content_sha256 = false;
    s3::signer signer(options);
    s3::signing_request request;
    request.method = r.method;
    request.host = r.host;
    request.path = r.path;
    request.region = "us-east-2";
    request.service = "lambda";
    const s3::credentials who("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
    const std::int64_t now = *millrace::text::parse_iso8601("2021-05-11T15:40:45Z");
    const s3::signed_headers added = signer.sign(request, who, now);
    std::string expected = read_file(folder + "/header-canonical-request.txt");
    while (!expected.empty() && expected.back() == '\n') expected.pop_back();
    CHECK(signer.canonical_request() == expected);
    if (name == "double-url-encode") {
      // The other case is signed upstream for another host and day than its canonical request says.
      CHECK(added["authorization"].find("Signature=4b93abbcc68be32bd64c18e2c71150660ab4c29bbd6c32a383a7517a88fc1804") !=
            std::string_view::npos);
    }
  }
}

TEST_CASE("every S3 vector is signed alike, four of them printed in the AWS documentation", "[s3][signer]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const json vectors = millrace::test::read_json(data + "/sigv4/s3/s3-vectors.json");
  s3::signer signer;  // one for all cases, as in a client: the caches must keep them apart
  int presigned_cases = 0;
  int signed_cases = 0;
  for (const json& c : vectors.at("cases")) {
    INFO(c.at("name").get<std::string>());
    const std::string url = c.at("url");
    const std::size_t scheme_end = url.find("://");
    const std::string scheme = url.substr(0, scheme_end);
    const std::size_t path_begin = url.find('/', scheme_end + 3);
    std::string host = url.substr(scheme_end + 3, path_begin - scheme_end - 3);
    if (scheme == "https" && host.size() > 4 && host.substr(host.size() - 4) == ":443") host.resize(host.size() - 4);
    std::string target = url.substr(path_begin);
    const std::size_t question = target.find('?');
    const std::string query = question == std::string::npos ? "" : target.substr(question + 1);
    const std::string path = target.substr(0, question);
    const std::string method = c.at("method");
    const std::string region = c.at("region");
    const std::map<std::string, std::string> headers = c.at("headers");
    std::vector<s3::header_field> fields;
    for (const auto& [name, value] : headers) fields.push_back({name, value});

    const std::string body = c.at("body");
    const std::string payload =
        c.at("payload") == "signed" ? signer.payload_sha256(body) : std::string(s3::unsigned_payload);
    const std::string token = c.at("session_token").is_null() ? "" : c.at("session_token").get<std::string>();
    const s3::credentials who(c.at("access_key_id").get<std::string>(), c.at("secret_access_key").get<std::string>(),
                              token);
    const std::string stamp = c.at("timestamp");
    const auto now =
        millrace::text::parse_iso8601(stamp.substr(0, 4) + "-" + stamp.substr(4, 2) + "-" + stamp.substr(6, 5) + ":" +
                                      stamp.substr(11, 2) + ":" + stamp.substr(13));
    REQUIRE(now.has_value());

    s3::signing_request request;
    request.method = method;
    request.host = host;
    request.path = path;
    request.query = query;
    request.headers = fields;
    request.region = region;
    request.payload = payload;
    if (c.contains("presign_expires")) {
      const std::string presigned = signer.presign(request, who, *now, c.at("presign_expires").get<int>());
      CHECK(url.substr(0, url.find('?')) + "?" + presigned == c.at("presigned_url").get<std::string>());
      ++presigned_cases;
    } else {
      const s3::signed_headers added = signer.sign(request, who, *now);
      CHECK(added["authorization"] == c.at("authorization").get<std::string>());
      std::size_t expected_fields = 1;
      for (const auto& [name, value] : c.at("added_headers").items()) {
        CHECK(added[lower(name)] == value.get<std::string>());
        ++expected_fields;
      }
      CHECK(added.size() == expected_fields);
      ++signed_cases;
    }
    CHECK(signer.canonical_request() == c.at("canonical_request").get<std::string>());
    CHECK(signer.string_to_sign().find(s3::amz_date(*now).timestamp()) != std::string::npos);
  }
  CHECK(signed_cases == 33);
  CHECK(presigned_cases == 3);
}
