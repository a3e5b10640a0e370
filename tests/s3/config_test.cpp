// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/config/config.hpp>

#include <string>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;
using millrace::test::environment_of;
using millrace::test::variables;

TEST_CASE("an empty environment gives the defaults", "[s3][config]") {
  variables v;
  const s3::config c = s3::config::from_environment(environment_of(v));
  CHECK(c.region.empty());
  CHECK(c.endpoint_url.empty());
  CHECK(c.style == s3::addressing::automatic);
  CHECK_FALSE(c.dual_stack);
  CHECK_FALSE(c.fips);
  CHECK(c.use_arn_region);
  CHECK_FALSE(c.global_us_east_1);
  CHECK(c.ca_bundle.empty());
  CHECK(c.max_attempts == 3);
}

TEST_CASE("the variables of the AWS SDKs are read in their order", "[s3][config]") {
  variables v = {{"AWS_DEFAULT_REGION", "eu-west-2"},    {"AWS_ENDPOINT_URL", "http://all:1"},
                 {"AWS_USE_DUALSTACK_ENDPOINT", "True"}, {"AWS_USE_FIPS_ENDPOINT", "TRUE"},
                 {"AWS_S3_USE_ARN_REGION", "false"},     {"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT", "legacy"},
                 {"AWS_CA_BUNDLE", "/etc/ca.pem"},       {"AWS_MAX_ATTEMPTS", "7"},
                 {"AWS_RETRY_MODE", "Adaptive"}};
  s3::config c = s3::config::from_environment(environment_of(v));
  CHECK(c.region == "eu-west-2");
  CHECK(c.endpoint_url == "http://all:1");
  CHECK(c.dual_stack);
  CHECK(c.fips);
  CHECK_FALSE(c.use_arn_region);
  CHECK(c.global_us_east_1);
  CHECK(c.ca_bundle == "/etc/ca.pem");
  CHECK(c.max_attempts == 7);

  v["AWS_REGION"] = "eu-west-1";
  v["AWS_ENDPOINT_URL_S3"] = "http://s3:2";
  c = s3::config::from_environment(environment_of(v));
  CHECK(c.region == "eu-west-1");
  CHECK(c.endpoint_url == "http://s3:2");

  v["AWS_REGION"] = "  ";
  v["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true";
  c = s3::config::from_environment(environment_of(v));
  CHECK(c.region == "eu-west-2");
  CHECK(c.endpoint_url.empty());
  CHECK(s3::config::from_environment(environment_of(v), {.endpoint = "http://given:3"}).endpoint_url ==
        "http://given:3");
}

TEST_CASE("explicit values win, and what they replace is not even looked at", "[s3][config]") {
  variables v = {{"AWS_REGION", "eu-west-1"},
                 {"AWS_ENDPOINT_URL", "http://all:1"},
                 {"AWS_CA_BUNDLE", "/etc/ca.pem"},
                 {"AWS_MAX_ATTEMPTS", "many"}};
  s3::config_options given;
  given.region = "us-west-2";
  given.endpoint = "http://given:3";
  given.style = s3::addressing::path;
  given.ca_bundle = "/own.pem";
  given.max_attempts = 1;
  const s3::config c = s3::config::from_environment(environment_of(v), given);
  CHECK(c.region == "us-west-2");
  CHECK(c.endpoint_url == "http://given:3");
  CHECK(c.style == s3::addressing::path);
  CHECK(c.ca_bundle == "/own.pem");
  CHECK(c.max_attempts == 1);
}

TEST_CASE("options keep their texts: what they were made of may end first", "[s3][config]") {
  const auto long_text = [](const char* text) { return std::string(text) + ".long.enough.for.memory.of.its.own"; };
  s3::config_options given;
  given.region = long_text("region");
  given.endpoint = long_text("http://endpoint");
  given.ca_bundle = long_text("/ca");
  const s3::config c(given);
  CHECK(c.region == long_text("region"));
  CHECK(c.endpoint_url == long_text("http://endpoint"));
  CHECK(c.ca_bundle == long_text("/ca"));
  CHECK(s3::config({.endpoint = long_text("http://endpoint")}).endpoint_url == long_text("http://endpoint"));
  const char* unset = nullptr;  // as from std::getenv
  CHECK(s3::config({.region = "eu-west-1", .endpoint = unset}).endpoint_url.empty());
  CHECK_THROWS_AS(s3::config({.endpoint = std::string(5000, 'x')}), millrace::configuration_error);
}

TEST_CASE("checksums of answers are validated by default", "[s3][config]") {
  const auto validates = [](variables v, s3::config_options given = {}) {
    return s3::config::from_environment(environment_of(v), given).validate_checksums;
  };
  const char* const name = "AWS_RESPONSE_CHECKSUM_VALIDATION";
  CHECK(s3::config().validate_checksums);
  CHECK(validates({}));
  CHECK(validates({{name, "when_supported"}}));
  CHECK_FALSE(validates({{name, "WHEN_REQUIRED"}}));
  CHECK(validates({{name, "when_required"}}, {.validate_checksums = true}));
  CHECK_FALSE(validates({{name, "when_supported"}}, {.validate_checksums = false}));
  CHECK(validates({{name, "not looked at"}}, {.validate_checksums = true}));
  CHECK(validates({{"AWS_REQUEST_CHECKSUM_CALCULATION", "when_required"}}));
}

TEST_CASE("uploads carry checksums by default", "[s3][config]") {
  const auto sends = [](variables v) { return s3::config::from_environment(environment_of(v)).send_checksums; };
  const char* const name = "AWS_REQUEST_CHECKSUM_CALCULATION";
  CHECK(s3::config().send_checksums);
  CHECK(sends({}));
  CHECK(sends({{name, "When_Supported"}}));
  CHECK_FALSE(sends({{name, "When_Required"}}));
  CHECK(sends({{"AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required"}}));
}

TEST_CASE("values that make no sense are errors that name the variable", "[s3][config]") {
  const std::pair<const char*, const char*> bad[] = {
      {"AWS_USE_DUALSTACK_ENDPOINT", "1"},
      {"AWS_USE_FIPS_ENDPOINT", "yes"},
      {"AWS_S3_USE_ARN_REGION", "no"},
      {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "0"},
      {"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT", "global"},
      {"AWS_MAX_ATTEMPTS", "0"},
      {"AWS_MAX_ATTEMPTS", "-1"},
      {"AWS_MAX_ATTEMPTS", "3x"},
      {"AWS_MAX_ATTEMPTS", "99999999999999999999"},
      {"AWS_RETRY_MODE", "never"},
      {"AWS_RESPONSE_CHECKSUM_VALIDATION", "always"},
      {"AWS_RESPONSE_CHECKSUM_VALIDATION", "true"},
      {"AWS_REQUEST_CHECKSUM_CALCULATION", "never"},
      {"AWS_REQUEST_CHECKSUM_CALCULATION", "when_require"},
  };
  for (const auto& [name, value] : bad) {
    variables v = {{name, value}};
    CHECK_THROWS_WITH(s3::config::from_environment(environment_of(v)), Contains(name) && Contains(value));
  }
  CHECK_THROWS_AS(s3::config({.max_attempts = 0}), millrace::configuration_error);
}
