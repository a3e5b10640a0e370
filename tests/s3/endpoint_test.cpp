// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/url.hpp>

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

TEST_CASE("unsupported kinds of buckets are named in the error", "[s3][endpoint]") {
  CHECK_THROWS_WITH(at("", "b--usw2-az1--x-s3"), Contains("directory buckets") && Contains("b--usw2-az1--x-s3"));
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
