// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/url.hpp>

#include <map>
#include <optional>
#include <string>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"

namespace {

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;
using millrace::test::json;

s3::endpoint at(const char* endpoint, const char* bucket, s3::addressing style = s3::addressing::automatic) {
  return s3::endpoint(s3::config({.region = "eu-west-1", .endpoint = endpoint, .style = style}), bucket);
}

json cases_of(const std::string& file) { return millrace::test::read_json(file).at("testCases"); }

}  // namespace

TEST_CASE("an endpoint gives host, path and region as they are sent and signed", "[s3][endpoint]") {
  const s3::endpoint e = at("", "mybucket");
  CHECK(e.scheme() == "https");
  CHECK(e.host() == "mybucket.s3.eu-west-1.amazonaws.com");
  CHECK(e.region() == "eu-west-1");
  CHECK(e.path("") == "/");
  CHECK(e.path("a b/+c%20//../d") == "/a%20b/%2Bc%2520//../d");
  CHECK(e.path("/lead") == "//lead");
  CHECK(e.url("k") == "https://mybucket.s3.eu-west-1.amazonaws.com/k");
}

TEST_CASE("a custom endpoint puts the bucket in the path unless asked otherwise", "[s3][endpoint]") {
  const s3::endpoint path = at("http://127.0.0.1:9000", "my.bucket");
  CHECK(path.host() == "127.0.0.1:9000");
  CHECK(path.path("") == "/my.bucket");
  CHECK(path.path("a b") == "/my.bucket/a%20b");
  CHECK(at("http://minio:9000/prefix/", "bucket").url("k") == "http://minio:9000/prefix/bucket/k");
  CHECK(at("http://Minio:9000", "bucket", s3::addressing::virtual_hosted).url("k") == "http://bucket.minio:9000/k");
  CHECK(at("https://store.example", "", s3::addressing::path).url("") == "https://store.example/");
  // A wildcard certificate covers one label: dots keep a bucket out of an https host name.
  CHECK(at("https://store.example", "a.bucket", s3::addressing::virtual_hosted).host() == "store.example");
}

TEST_CASE("the default port is not part of the host", "[s3][endpoint]") {
  CHECK(at("https://store.example:443", "b").host() == "store.example");
  CHECK(at("http://store.example:80", "b").host() == "store.example");
  CHECK(at("http://store.example:443", "b").host() == "store.example:443");
  CHECK(at("http://[::1]:9000", "b").host() == "[::1]:9000");
  CHECK(at("https://[::1]:443", "bucket", s3::addressing::virtual_hosted).url("k") == "https://[::1]/bucket/k");
}

TEST_CASE("without a region only a custom endpoint works", "[s3][endpoint]") {
  CHECK_THROWS_WITH(s3::endpoint(s3::config(), "bucket"), Contains("AWS_REGION"));
  CHECK(s3::endpoint(s3::config({.endpoint = "http://localhost:9000"}), "bucket").region() == "us-east-1");
}

TEST_CASE("a region that could break out of a host name is refused", "[s3][endpoint]") {
  for (const char* region : {"a b", "evil.example/", "x@y", "-a", "eu-west-1\r\nX: y", "a..b", "."}) {
    INFO(region);
    CHECK_THROWS_AS(s3::endpoint(s3::config({.region = region}), "bucket"), millrace::configuration_error);
  }
}

TEST_CASE("a region of an S3-alike keeps its case in the scope but not in a host", "[s3][endpoint]") {
  const s3::config c({.region = "RegionOne", .endpoint = "http://swift:8080"});
  CHECK(s3::endpoint(c, "bucket").region() == "RegionOne");
  CHECK(s3::endpoint(s3::config({.region = "Eu-West-1"}), "bucket").host() == "bucket.s3.eu-west-1.amazonaws.com");
}

TEST_CASE("other partitions have their own domains", "[s3][endpoint]") {
  const auto host = [](const char* region) { return s3::endpoint(s3::config({.region = region}), "bbb").host(); };
  CHECK(host("cn-north-1") == "bbb.s3.cn-north-1.amazonaws.com.cn");
  CHECK(host("us-gov-west-1") == "bbb.s3.us-gov-west-1.amazonaws.com");
  CHECK(host("us-iso-east-1") == "bbb.s3.us-iso-east-1.c2s.ic.gov");
  CHECK(host("us-isob-east-1") == "bbb.s3.us-isob-east-1.sc2s.sgov.gov");
}

TEST_CASE("a directory bucket has a front end in its zone, and a name that tells it", "[s3][endpoint]") {
  const s3::endpoint e(s3::config({.region = "us-west-2"}), "my--data--usw2-az1--x-s3");
  CHECK(e.url("a/b") == "https://my--data--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com/a/b");
  CHECK(e.service() == "s3express");
  CHECK(e.region() == "us-west-2");
  CHECK_THROWS_WITH(at("", "b--usw2--x-s3"), Contains("named after its zone") && Contains("b--usw2--x-s3"));
  CHECK_THROWS_WITH(at("", "usw2-az1--x-s3"), Contains("named after its zone"));
  CHECK_THROWS_WITH(at("", "a.b--usw2-az1--x-s3"), Contains("letters, digits and -"));
  s3::config c({.region = "us-west-2"});
  c.style = s3::addressing::path;
  CHECK_THROWS_WITH(s3::endpoint(c, "b--usw2-az1--x-s3"), Contains("cannot be addressed in the path"));
  c.endpoint_url = "http://localhost:9000";
  CHECK(s3::endpoint(c, "b--usw2-az1--x-s3").url("k") == "http://localhost:9000/b--usw2-az1--x-s3/k");
}

TEST_CASE("unsupported kinds of buckets are named in the error", "[s3][endpoint]") {
  CHECK_THROWS_WITH(at("", "arn:aws:s3::123456789012:accesspoint:abc.mrap"), Contains("multi-region"));
  CHECK_THROWS_WITH(at("", "arn:aws:s3-outposts:us-east-1:123456789012:outpost/op-1/accesspoint/x"),
                    Contains("S3 on Outposts is not supported"));
  CHECK_THROWS_WITH(at("", "x--op-s3"), Contains("Outposts"));
}

TEST_CASE("endpoint URLs of the sdkutils table are read alike", "[s3][endpoint]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const json table = millrace::test::read_json(data + "/endpoints/sdkutils-parse-url.json");
  for (const json& c : table.at("testCases")) {
    const std::string text = c.at("params").at("Endpoint");
    INFO(text);
    if (c.at("expect").contains("error")) {
      CHECK_THROWS_AS(s3::detail::endpoint_url::parse(text), millrace::configuration_error);
      continue;
    }
    // The table composes an answer of the parts that it read: with the path, the port or the kind of the host.
    const s3::detail::endpoint_url url = s3::detail::endpoint_url::parse(text);
    const std::string expected = c.at("expect").at("endpoint").at("url");
    CHECK(url.is_address() == (expected.find("is-ip-addr") != std::string::npos));
    CHECK(expected.find(url.host()) != std::string::npos);
    CHECK(text.rfind(std::string(url.scheme()) + "://", 0) == 0);
    if (expected.find("nopath") != std::string::npos) CHECK(url.prefix().empty());
    if (expected.find("path-is") != std::string::npos) CHECK(url.prefix() == "/custom-path");
  }
  CHECK(table.at("testCases").size() == 14);
}

TEST_CASE("broken endpoint URLs are refused without repeating a password", "[s3][endpoint]") {
  for (const char* text : {"http://", "https:///b", "http://h:0", "http://h:65536", "http://h:", "http://h:1x",
                           "h:9000", "http://[::1", "http://[::1]x", "http://[]", "http://[host]:1", "http://a b",
                           "http://h/a b", "http://h#f", "ftp://h", "http://h\r\nx", "http://h/%zz", "", " http://h"}) {
    INFO(text);
    CHECK_THROWS_AS(s3::detail::endpoint_url::parse(text), millrace::configuration_error);
  }
  for (const char* text : {"http://user:hunter2@h", "https://user:hunter2@h/?x", "https://user:hunt?er2@h/",
                           "https://user:hunt/er2@h/a b", "user:hunter2@h", "https://h/?X-Amz-Signature=hunter2"}) {
    INFO(text);
    CHECK_THROWS_WITH(s3::detail::endpoint_url::parse(text),
                      Contains("not a usable endpoint URL") && !Contains("hunt") && !Contains("er2"));
  }
}

TEST_CASE("buckets and labels of the sdkutils tables are judged alike", "[s3][endpoint]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  for (const json& c : cases_of(data + "/endpoints/sdkutils-is-virtual-hostable-s3-bucket.json")) {
    const std::string bucket = c.at("params").at("BucketName");
    INFO(bucket);
    const bool https = !c["expect"].contains("error") && c["expect"]["endpoint"]["url"].get<std::string>()[4] == 's';
    const bool http = https || !c["expect"].contains("error");
    CHECK(s3::detail::is_virtual_hostable_bucket(bucket, false) == https);
    CHECK(s3::detail::is_virtual_hostable_bucket(bucket, true) == http);
  }
  for (const json& c : cases_of(data + "/endpoints/sdkutils-valid-hostlabel.json")) {
    const std::string region = c.at("params").at("Region");
    INFO(region);
    const std::string url = c["expect"].contains("error") ? "" : c["expect"]["endpoint"]["url"].get<std::string>();
    CHECK(s3::detail::is_host_label(region) == (!url.empty() && url.find("-subdomains") == std::string::npos));
    CHECK(s3::detail::is_host_labels(region) == !url.empty());
  }
}

TEST_CASE("ARNs of the sdkutils table are read alike", "[s3][endpoint]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  for (const json& c : cases_of(data + "/endpoints/sdkutils-parse-arn.json")) {
    const std::string text = c.at("params").value("Bucket", std::string());
    INFO(text);
    const auto name = s3::arn::parse(text);
    const std::string expected = c["expect"].contains("error") ? c["expect"]["error"].get<std::string>()
                                                               : c["expect"]["endpoint"]["url"].get<std::string>();
    if (expected.find("is not a valid ARN") != std::string::npos || text.rfind("arn:", 0) != 0) {
      CHECK_FALSE(name.has_value());
      continue;
    }
    REQUIRE(name.has_value());
    if (expected.find("outpostId was not set") != std::string::npos) CHECK_FALSE(name->resource_part(1).has_value());
    if (expected.find("OutpostId was empty") != std::string::npos) CHECK(name->resource_part(1) == std::string_view());
    if (expected.find("op-1234") != std::string::npos) CHECK(name->resource_part(1) == std::string_view("op-1234"));
    if (expected.find("A valid ARN was parsed") != std::string::npos) {
      CHECK(expected == "Test case passed: A valid ARN was parsed: service: `" + std::string(name->service) +
                            "`, partition: `" + std::string(name->partition) + ", region: `" +
                            std::string(name->region) + "`, accountId: `" + std::string(name->account) +
                            "`, resource: `" + std::string(name->resource) + "`");
    }
  }
}

namespace {

bool flag(const json& params, const char* name) { return params.contains(name) && params[name].get<bool>(); }

bool ends_with(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

/// Why a case of the AWS table is not ours to pass; empty for the cases that must pass.
///
/// "no such option" cases ask for something that a config cannot express. The other groups are refused with an error,
/// which the test below sees: they name buckets of kinds that are not supported.
std::string out_of_scope(const json& params) {
  const std::string bucket = params.value("Bucket", std::string());
  if (flag(params, "Accelerate")) return "no such option: transfer acceleration";
  if (flag(params, "UseS3ExpressControlEndpoint")) return "no such option: S3 Express control plane";
  if (flag(params, "UseObjectLambdaEndpoint")) return "no such option: Object Lambda endpoint";
  if (flag(params, "DisableAccessPoints")) return "no such option: operations without access points";
  if (ends_with(bucket, "--op-s3")) return "refused: buckets on Outposts";
  const std::optional<s3::arn> name = s3::arn::parse(bucket);
  if (name && name->service == "s3-outposts") return "refused: access points on Outposts";
  if (name && name->service == "s3-object-lambda") return "refused: Object Lambda";
  if (name && name->service == "s3" && name->region.empty()) return "refused: multi-region access points (SigV4A)";
  return std::string();
}

s3::config config_of(const json& params) {
  s3::config c;
  c.region = params.value("Region", std::string());
  c.endpoint_url = params.value("Endpoint", std::string());
  c.style = flag(params, "ForcePathStyle") ? s3::addressing::path : s3::addressing::virtual_hosted;
  c.dual_stack = flag(params, "UseDualStack");
  c.fips = flag(params, "UseFIPS");
  c.use_arn_region = params.value("UseArnRegion", true);
  c.global_us_east_1 = flag(params, "UseGlobalEndpoint");
  return c;
}

}  // namespace

TEST_CASE("all 393 endpoints of the AWS table are the same, or of a kind that is refused", "[s3][endpoint]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const json table = millrace::test::read_json(data + "/endpoints/s3-endpoint-tests-1.json");
  std::map<std::string, int> groups;
  int number = 0;
  for (const json& c : table.at("testCases")) {
    const json& params = c.at("params");
    INFO("case " << number++ << ": " << c.at("documentation").get<std::string>() << " " << params.dump());
    const std::string scope = out_of_scope(params);
    const std::string bucket = params.value("Bucket", std::string());
    ++groups[scope.empty() ? (c.at("expect").contains("error") ? "same error" : "same endpoint") : scope];
    if (scope.rfind("no such option", 0) == 0) continue;
    if (!scope.empty() && !c.at("expect").contains("error")) {
      // "refused: multi-region access points (SigV4A)": the message says which kind it is.
      const std::string kind = scope.substr(9, scope.find(" (") - 9);
      const std::string word = ends_with(kind, "Outposts") ? "Outposts" : kind;
      CHECK_THROWS_WITH(s3::endpoint(config_of(params), bucket), Catch::Matchers::Contains(word));
    }
    if (!scope.empty() || c.at("expect").contains("error")) {
      CHECK_THROWS_AS(s3::endpoint(config_of(params), bucket), millrace::configuration_error);
      continue;
    }
    const json& expected = c.at("expect").at("endpoint");
    const s3::endpoint e(config_of(params), bucket);
    std::string url = e.url("");
    if (e.path("") == "/") url.pop_back();  // the table writes the root without its slash
    CHECK(url == expected.at("url").get<std::string>());
    const json& scheme = expected.at("properties").at("authSchemes").at(0);
    // Without sessions ("DisableS3ExpressSessionAuth") the address of a directory bucket is the same.
    CHECK(scheme.at("name").get<std::string>().substr(0, 5) == "sigv4");
    CHECK(s3::detail::is_directory_bucket(bucket) == (scheme.at("signingName") == "s3express"));
    CHECK(e.region() == scheme.at("signingRegion").get<std::string>());
    CHECK(e.service() == scheme.at("signingName").get<std::string>());
  }
  CHECK(number == 393);
  const std::map<std::string, int> expected_groups = {
      {"same endpoint", 214},
      {"same error", 57},
      {"no such option: Object Lambda endpoint", 8},
      {"no such option: S3 Express control plane", 16},
      {"no such option: operations without access points", 3},
      {"no such option: transfer acceleration", 30},
      {"refused: Object Lambda", 24},
      {"refused: access points on Outposts", 23},
      {"refused: buckets on Outposts", 11},
      {"refused: multi-region access points (SigV4A)", 7},
  };
  for (const auto& [group, count] : groups) {
    INFO(group << ": " << count);
    CHECK(expected_groups.count(group) == 1);
    if (expected_groups.count(group) == 1) CHECK(expected_groups.at(group) == count);
  }
  CHECK(groups.size() == expected_groups.size());
}
