// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/config/settings.hpp>

#include <millrace/s3/config/config.hpp>

#include <cerrno>
#include <map>
#include <string>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"

namespace {

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;
using millrace::test::environment_of;
using millrace::test::variables;

/// Settings from variables and a configuration file in its default place.
s3::settings settings_of(variables& v, const std::string& config) {
  v.emplace("HOME", "/home");
  return s3::settings(environment_of(v), [&config](const std::string& path) {
    return path == "/home/.aws/config" ? s3::detail::file_text(config) : s3::detail::file_text(ENOENT);
  });
}

}  // namespace

TEST_CASE("the profile says what the variables do not", "[s3][config]") {
  const std::string file =
      "[profile train]\nregion = eu-west-3\nendpoint_url = http://profile:1\nretry_mode = adaptive\nmax_attempts = 9\n"
      "ca_bundle = /ca.pem\nuse_fips_endpoint = true\nuse_dualstack_endpoint = TRUE\n"
      "request_checksum_calculation = when_required\nresponse_checksum_validation = WHEN_REQUIRED\ns3 =\n"
      "  addressing_style = path\n  use_arn_region = false\n  us_east_1_regional_endpoint = legacy\n";
  variables v = {{"AWS_PROFILE", "train"}};
  s3::config c = s3::config::from_settings(settings_of(v, file));
  CHECK(c.region == "eu-west-3");
  CHECK(c.endpoint_url == "http://profile:1");
  CHECK(c.max_attempts == 9);
  CHECK(c.ca_bundle == "/ca.pem");
  CHECK(c.fips);
  CHECK(c.dual_stack);
  CHECK(c.style == s3::addressing::path);
  CHECK_FALSE(c.use_arn_region);
  CHECK(c.global_us_east_1);
  CHECK_FALSE(c.send_checksums);
  CHECK_FALSE(c.validate_checksums);

  v = {{"AWS_PROFILE", "train"},
       {"AWS_DEFAULT_REGION", "eu-west-1"},
       {"AWS_ENDPOINT_URL", "http://variable:1"},
       {"AWS_RETRY_MODE", "standard"},
       {"AWS_MAX_ATTEMPTS", "2"},
       {"AWS_CA_BUNDLE", "/other.pem"},
       {"AWS_USE_FIPS_ENDPOINT", "false"},
       {"AWS_USE_DUALSTACK_ENDPOINT", "false"},
       {"AWS_S3_USE_ARN_REGION", "true"},
       {"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT", "regional"},
       {"AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_SUPPORTED"},
       {"AWS_RESPONSE_CHECKSUM_VALIDATION", "when_supported"}};
  c = s3::config::from_settings(settings_of(v, file));
  CHECK(c.region == "eu-west-1");
  CHECK(c.endpoint_url == "http://variable:1");
  CHECK(c.max_attempts == 2);
  CHECK(c.ca_bundle == "/other.pem");
  CHECK_FALSE(c.fips);
  CHECK_FALSE(c.dual_stack);
  CHECK(c.use_arn_region);
  CHECK_FALSE(c.global_us_east_1);
  CHECK(c.send_checksums);
  CHECK(c.validate_checksums);
  CHECK(s3::config::from_settings(settings_of(v, file), {.style = s3::addressing::virtual_hosted}).style ==
        s3::addressing::virtual_hosted);
}

TEST_CASE("endpoints of a services section, and endpoints that are to be ignored", "[s3][config]") {
  const std::string file =
      "[default]\nservices = local\nendpoint_url = http://all:1\n[services local]\ns3 =\n"
      "  endpoint_url = http://s3:2\n[profile plain]\nendpoint_url = http://plain:3\n[profile off]\n"
      "endpoint_url = http://off:4\nignore_configured_endpoint_urls = true\n[profile broken]\nservices = gone\n";
  const auto endpoint = [&](variables v) { return s3::config::from_settings(settings_of(v, file)).endpoint_url; };
  CHECK(endpoint({}) == "http://s3:2");
  CHECK(endpoint({{"AWS_ENDPOINT_URL_S3", "http://first:0"}}) == "http://first:0");
  CHECK(endpoint({{"AWS_PROFILE", "plain"}}) == "http://plain:3");
  CHECK(endpoint({{"AWS_PROFILE", "off"}}).empty());
  CHECK(endpoint({{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"}}).empty());
  CHECK_THROWS_WITH(endpoint({{"AWS_PROFILE", "broken"}}), Contains("services section gone"));
  CHECK(endpoint({{"AWS_PROFILE", "broken"}, {"AWS_ENDPOINT_URL", "http://x"}}) == "http://x");
}

TEST_CASE("properties that make no sense are errors that name them", "[s3][config]") {
  const std::pair<const char*, const char*> bad[] = {
      {"max_attempts = 0", "max_attempts of profile default is \"0\""},
      {"retry_mode = never", "retry_mode of profile default is \"never\""},
      {"request_checksum_calculation = no", "request_checksum_calculation of profile default is \"no\""},
      {"response_checksum_validation = no", "response_checksum_validation of profile default is \"no\""},
      {"use_fips_endpoint = 1", "use_fips_endpoint of profile default is \"1\""},
      {"s3 =\n  addressing_style = both", "s3.addressing_style of profile default is \"both\""},
      {"[x", "/home/.aws/config: line 2: "},
  };
  for (const auto& [line, message] : bad) {
    variables v;
    CHECK_THROWS_WITH(s3::config::from_settings(settings_of(v, std::string("[default]\n") + line + "\n")),
                      Contains(message));
  }
  variables v;
  CHECK(s3::config::from_settings(settings_of(v, "[default]\nregion =\nmax_attempts =  \n")).max_attempts == 3);
  CHECK_FALSE(settings_of(v, "").profile_named());
  CHECK(settings_of(v, "").selected() == nullptr);
}
