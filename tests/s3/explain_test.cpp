// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/auth/explain.hpp>

#include <cstring>
#include <string>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

namespace {

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;
using millrace::test::environment_of;
using millrace::test::variables;

std::string explained(variables v, const s3::config_options& given = {}) {
  return s3::explain(environment_of(v), given);
}

}  // namespace

TEST_CASE("nothing is set: every place is named", "[s3][explain]") {
  CHECK(explained({}) ==
        "credentials: instance metadata: http://169.254.169.254 (if there is an answer)\n"
        "  environment: AWS_ACCESS_KEY_ID is not set\n"
        "  profile: HOME is not set\n"
        "  web identity: AWS_WEB_IDENTITY_TOKEN_FILE is not set\n"
        "  container: no AWS_CONTAINER_CREDENTIALS_..._URI is set\n"
        "  instance metadata: http://169.254.169.254 (if there is an answer): used\n"
        "region: asked of the instance's metadata with the first request (by default)\n"
        "  the program: not given\n"
        "  AWS_REGION: not set\n"
        "  AWS_DEFAULT_REGION: not set\n"
        "  region of profile default: not set\n"
        "endpoint: AWS (by default)\n"
        "  the program: not given\n"
        "  AWS_ENDPOINT_URL_S3: not set\n"
        "  AWS_ENDPOINT_URL: not set\n"
        "  s3.endpoint_url of the services section of profile default: not set\n"
        "  endpoint_url of profile default: not set\n"
        "retry mode: standard (by default)\n"
        "  the program: not given\n"
        "  AWS_RETRY_MODE: not set\n"
        "  retry_mode of profile default: not set\n"
        "attempts: 3 (by default)\n"
        "  the program: not given\n"
        "  AWS_MAX_ATTEMPTS: not set\n"
        "  max_attempts of profile default: not set\n"
        "CA bundle: the system's (by default)\n"
        "  the program: not given\n"
        "  AWS_CA_BUNDLE: not set\n"
        "  ca_bundle of profile default: not set\n"
        "checksums of uploads: when_supported (by default)\n"
        "  the program: not given\n"
        "  AWS_REQUEST_CHECKSUM_CALCULATION: not set\n"
        "  request_checksum_calculation of profile default: not set\n"
        "checksums of answers: when_supported (by default)\n"
        "  the program: not given\n"
        "  AWS_RESPONSE_CHECKSUM_VALIDATION: not set\n"
        "  response_checksum_validation of profile default: not set\n"
        "proxy: none (no variable names one for https)\n");
}

TEST_CASE("it is said which source won, which are overruled, and no secret", "[s3][explain]") {
  millrace::test::temporary_folder folder;
  const std::string config =
      folder.file("config",
                  "[profile p]\naws_access_key_id = profile-key\naws_secret_access_key = hidden1\n"
                  "region = eu-west-3\nretry_mode = adaptive\n");
  const std::string text = explained({{"AWS_CONFIG_FILE", config},
                                      {"AWS_PROFILE", "p"},
                                      {"AWS_ACCESS_KEY_ID", "env-key"},
                                      {"AWS_SECRET_ACCESS_KEY", "hidden2"},
                                      {"AWS_SESSION_TOKEN", "hidden3"},
                                      {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x?hidden4"},
                                      {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "hidden5"},
                                      {"AWS_EC2_METADATA_DISABLED", "true"},
                                      {"AWS_REGION", "eu-west-1"},
                                      {"AWS_ENDPOINT_URL", "https://store"},
                                      {"HTTPS_PROXY", "user:hidden6@proxy:3128"},
                                      {"NO_PROXY", "inside"},
                                      {"AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED"}},
                                     {.max_attempts = 7, .validate_checksums = false});
  for (const char* part :
       {"credentials: environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY\n",
        "  profile: profile p: static keys: not asked, as those above win\n",
        "  container: http://169.254.170.2/x: not asked, as those above win\n",
        "  instance metadata: AWS_EC2_METADATA_DISABLED is true\n", "region: eu-west-1 (AWS_REGION)\n",
        "  region of profile p: set, but overruled\n", "endpoint: https://store (AWS_ENDPOINT_URL)\n",
        "retry mode: adaptive (retry_mode of profile p)\n", "attempts: 7 (the program)\n  the program: used\n",
        "checksums of uploads: WHEN_REQUIRED (AWS_REQUEST_CHECKSUM_CALCULATION)\n",
        "checksums of answers: when_required (the program)\n", "proxy: http://proxy:3128 (HTTPS_PROXY)\n",
        "  past it: inside (NO_PROXY), this machine"}) {
    CHECK_THAT(text, Contains(part));
  }
  CHECK_THAT(text, !Contains("hidden"));
}

TEST_CASE("a proxy is shown without any part of its password, whatever is in that", "[s3][explain]") {
  const struct {
    const char* proxy;
    const char* shown;
  } cases[] = {{"http://user:hid/den@127.0.0.1:9", "http://127.0.0.1:9"},
               {"http://user:hid den@127.0.0.1:9", "http://127.0.0.1:9"},
               {"foo://user:hidden@127.0.0.1:9", "foo://127.0.0.1:9"},
               {"user:hid/den@proxy:3128", "http://proxy:3128"},
               {"http://user:hid#den@127.0.0.1:9", "http://127.0.0.1:9"},
               {"http://user:hid@den@127.0.0.1:9", "http://127.0.0.1:9"},
               {"http://user:hid?den@127.0.0.1:9", "http://127.0.0.1:9"},
               {"https://127.0.0.1:9", "https://127.0.0.1:9"}};
  for (const auto& c : cases) {
    const std::string text = explained({{"https_proxy", c.proxy}});
    CHECK_THAT(text, Contains("proxy: " + std::string(c.shown) + " (https_proxy)\n"));
    CHECK_THAT(text, !Contains("hid") && !Contains("den@"));
  }
}

TEST_CASE("what is broken is said in its place", "[s3][explain]") {
  CHECK_THAT(explained({{"AWS_ACCESS_KEY_ID", "half"}}),
             Contains("credentials: environment: broken: AWS_ACCESS_KEY_ID is set but"));
  CHECK_THAT(explained({{"AWS_PROFILE", "gone"}}), Contains("  profile: broken: AWS_PROFILE is \"gone\""));
  CHECK_THAT(explained({{"AWS_WEB_IDENTITY_TOKEN_FILE", "/t"}}),
             Contains("web identity: broken: ") && Contains("AWS_ROLE_ARN"));
  CHECK_THAT(explained({{"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "v7"}}),
             Contains("instance metadata: broken: `v7`"));
  CHECK_THAT(explained({}, {.anonymous = true}), Contains("credentials: the program: anonymous requests\n"));
  CHECK_THAT(explained({{"AWS_EC2_METADATA_DISABLED", "true"}}), Contains("region: none (by default)\n"));
  CHECK_THAT(explained({{"AWS_ENDPOINT_URL", "http://x"}}), Contains("region: us-east-1 (by default)\n"));
  CHECK_THAT(explained({{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"}}),
             Contains("are to be ignored (by default)\n"));
  CHECK_THAT(explained({{"AWS_MAX_ATTEMPTS", "many"}}),
             Contains("configuration: broken: AWS_MAX_ATTEMPTS is \"many\""));
  millrace::test::temporary_folder folder;
  const std::string config = folder.file("config", "[default\n");
  const std::string text = explained({{"AWS_CONFIG_FILE", config}, {"AWS_REGION", "r"}});
  CHECK_THAT(text,
             Contains("configuration files: broken: " + config + ": line 1: ") && Contains("region: r (AWS_REGION)"));
  const std::string services = folder.file("services", "[default]\nservices = gone\n");
  CHECK_THAT(explained({{"AWS_CONFIG_FILE", services}}), Contains("endpoint: broken: ") && Contains("proxy: broken: "));
}
