// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/sign/credentials.hpp>

#include <string>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;
using millrace::test::environment_of;
using millrace::test::variables;

TEST_CASE("credentials share one immutable snapshot", "[s3][credentials]") {
  const s3::credentials a("AKID", "secret", "token", 1000);
  const s3::credentials b = a;
  CHECK(a.same_snapshot(b));
  CHECK(b.access_key_id() == "AKID");
  CHECK(b.secret_access_key() == "secret");
  CHECK(b.session_token() == "token");
  CHECK(b.expires_at() == 1000);
  CHECK(b.expires_within(300, 700));
  CHECK_FALSE(b.expires_within(299, 700));
  CHECK_FALSE(s3::credentials("AKID", "secret").expires_within(1 << 30, 1 << 30));
  CHECK_FALSE(a.same_snapshot(s3::credentials("AKID", "secret", "token", 1000)));
  CHECK(s3::credentials().is_anonymous());
  CHECK(s3::credentials::anonymous().access_key_id().empty());
  CHECK_FALSE(a.is_anonymous());
}

TEST_CASE("keys that no header may carry are refused and never shown", "[s3][credentials]") {
  const std::string bad[] = {"key\n", "ke\ry", std::string("k\0y", 3), "k\x7fy", "k\xc3\xa9y"};
  for (const std::string& text : bad) {
    for (int part = 0; part < 3; ++part) {
      try {
        s3::credentials(part == 0 ? text : "AKID", part == 1 ? text : "hidden", part == 2 ? text : "hidden");
        FAIL("taken");
      } catch (const millrace::configuration_error& e) {
        CHECK(std::string(e.what()).find("hidden") == std::string::npos);
        CHECK(std::string(e.what()).find("k") != std::string::npos);
        CHECK(std::string(e.what()).find(text) == std::string::npos);
      }
    }
  }
  CHECK_THROWS_WITH(s3::credentials("", "secret"), Contains("access key id is empty"));
  CHECK_THROWS_WITH(s3::credentials("AKID", ""), Contains("secret access key is empty"));
  CHECK_THROWS_WITH(s3::credentials("AK ID", "secret"), Contains("white space"));
  CHECK(s3::credentials("AKID", "two words").secret_access_key() == "two words");
}

TEST_CASE("credentials come from the environment in pairs", "[s3][credentials]") {
  variables v;
  CHECK_FALSE(s3::credentials_from_environment(environment_of(v)).has_value());
  v = {{"AWS_ACCESS_KEY_ID", "AKID"}};
  CHECK_THROWS_WITH(s3::credentials_from_environment(environment_of(v)), Contains("AWS_SECRET_ACCESS_KEY is not"));
  v = {{"AWS_SECRET_ACCESS_KEY", "hunter2"}};
  CHECK_THROWS_WITH(s3::credentials_from_environment(environment_of(v)),
                    Contains("AWS_ACCESS_KEY_ID is not") && !Contains("hunter2"));
  v = {{"AWS_ACCESS_KEY_ID", "AKID"}, {"AWS_SECRET_ACCESS_KEY", " \t\n"}};
  CHECK_THROWS_AS(s3::credentials_from_environment(environment_of(v)), millrace::configuration_error);

  v = {{"AWS_ACCESS_KEY_ID", "AKID"}, {"AWS_SECRET_ACCESS_KEY", "secret"}};
  auto c = s3::credentials_from_environment(environment_of(v));
  REQUIRE(c.has_value());
  CHECK(c->access_key_id() == "AKID");
  CHECK(c->session_token().empty());
  CHECK_FALSE(c->expires_at().has_value());

  v["AWS_SECURITY_TOKEN"] = "old";
  CHECK(s3::credentials_from_environment(environment_of(v))->session_token() == "old");
  v["AWS_SESSION_TOKEN"] = "new";
  CHECK(s3::credentials_from_environment(environment_of(v))->session_token() == "new");
  v["AWS_CREDENTIAL_EXPIRATION"] = "2013-01-10T21:45:09Z";
  CHECK(s3::credentials_from_environment(environment_of(v))->expires_at() == 1357854309);
  v["AWS_CREDENTIAL_EXPIRATION"] = "soon";
  CHECK_THROWS_WITH(s3::credentials_from_environment(environment_of(v)), Contains("AWS_CREDENTIAL_EXPIRATION"));
}

TEST_CASE("the chain cases that end at the environment", "[s3][credentials]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const std::string chain = data + "/credentials/smithy-rs/aws-config/default-credential-provider-chain/";
  variables v = millrace::test::read_json(chain + "environment_variables/env.json").get<variables>();
  const auto expected = millrace::test::read_json(chain + "environment_variables/test-case.json")["result"]["Ok"];
  const auto c = s3::credentials_from_environment(environment_of(v));
  REQUIRE(c.has_value());
  CHECK(c->access_key_id() == expected.at("access_key_id").get<std::string>());
  CHECK(c->secret_access_key() == expected.at("secret_access_key").get<std::string>());
  CHECK(c->session_token() == expected.value("session_token", std::string()));

  v = millrace::test::read_json(chain + "environment_variables_blank/env.json").get<variables>();
  CHECK_FALSE(s3::credentials_from_environment(environment_of(v)).has_value());
}

TEST_CASE("the process environment is the real one", "[s3][environment]") {
  ::setenv("MILLRACE_TEST_VARIABLE", "set", 1);
  CHECK(millrace::process_environment().get("MILLRACE_TEST_VARIABLE") == std::string("set"));
  ::setenv("MILLRACE_TEST_VARIABLE", " ", 1);
  CHECK_FALSE(millrace::process_environment().get("MILLRACE_TEST_VARIABLE").has_value());
  ::unsetenv("MILLRACE_TEST_VARIABLE");
  CHECK_FALSE(millrace::process_environment().get("MILLRACE_TEST_VARIABLE").has_value());
}
