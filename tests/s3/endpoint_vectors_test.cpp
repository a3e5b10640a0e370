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
using millrace::test::json;

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
  if (ends_with(bucket, "--x-s3") || ends_with(bucket, "--xa-s3")) return "refused: directory buckets (S3 Express)";
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
      // "refused: directory buckets (S3 Express)": the message says which kind it is.
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
    CHECK(scheme.at("name").get<std::string>() == "sigv4");
    CHECK(e.region() == scheme.at("signingRegion").get<std::string>());
    CHECK(e.service() == scheme.at("signingName").get<std::string>());
  }
  CHECK(number == 393);
  const std::map<std::string, int> expected_groups = {
      {"same endpoint", 127},
      {"same error", 45},
      {"no such option: Object Lambda endpoint", 8},
      {"no such option: S3 Express control plane", 16},
      {"no such option: operations without access points", 3},
      {"no such option: transfer acceleration", 30},
      {"refused: Object Lambda", 24},
      {"refused: access points on Outposts", 23},
      {"refused: buckets on Outposts", 11},
      {"refused: directory buckets (S3 Express)", 99},
      {"refused: multi-region access points (SigV4A)", 7},
  };
  for (const auto& [group, count] : groups) {
    INFO(group << ": " << count);
    CHECK(expected_groups.count(group) == 1);
    if (expected_groups.count(group) == 1) CHECK(expected_groups.at(group) == count);
  }
  CHECK(groups.size() == expected_groups.size());
}
