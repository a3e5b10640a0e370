// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/auth/default_credentials.hpp>

#include <millrace/coro/block_on.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/text/text.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "tests/s3/recorded_world.hpp"
#include "tests/support/catch.hpp"

namespace {

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;
using millrace::test::environment_of;
using millrace::test::json;
using millrace::test::recorded_world;
using millrace::test::variables;

std::string vectors() {
  const std::string data = millrace::test::test_data_folder();
  return data.empty() ? data : data + "/credentials/smithy-rs/aws-config";
}

/// The words of the recordings' own library, and ours for the same failure.
const std::map<std::string, std::string> our_words = {
    {"No such file or directory (os error 2)", "No such file or directory"},
    {"failed to read `/home/.aws/sso/cache/dace00cba5f8355ec9d274ceb2bcebdfbeed0e12.json`: No such file or directory "
     "(os error 2)",
     "/home/.aws/sso/cache/dace00cba5f8355ec9d274ceb2bcebdfbeed0e12.json: failed to read the SSO token: No such file "
     "or directory"},
    {"InvalidIdentityTokenException: No OpenIDConnect provider found in your account",
     "400 InvalidIdentityToken: No OpenIDConnect provider found in your account"},
    {"an error occurred while loading credentials: Error retrieving credentials: external process exited with code "
     "exit status: 1",
     "credential_process of profile default: it exited with status 1"},
    {"Error retrieving credentials from external process, could not parse response: invalid JSON in response",
     "credential_process of profile default: invalid JSON"},
    {"an error occurred while loading credentials", "503: SSO gave no credentials"},
    {"could not parse profile file", "/home/.aws/config: line 2: Property did not have a name"},
};

/// "Not enabled" is said of everything that is not configured.
const std::map<std::string, std::string> not_enabled = {
    {"empty_config", "there is no profile default"},
    {"imds_default_chain_error", "no role is attached to this instance"},
    {"imds_disabled", "AWS_EC2_METADATA_DISABLED is true"},
    {"imds_no_iam_role", "no role is attached to this instance"},
    {"profile_overrides_web_identity", "AWS_ACCESS_KEY_ID is not set"},
};

std::string expected_words(const std::string& name, const std::string& theirs) {
  if (theirs.find("was not enabled") != std::string::npos) return not_enabled.at(name);
  const auto found = our_words.find(theirs);
  return found == our_words.end() ? theirs : found->second;
}

/// The value of a parameter in a form.
std::string parameter(const std::string& form, const std::string& name) {
  const std::size_t begin = ("&" + form).find("&" + name + "=");
  if (begin == std::string::npos) return "(none)";
  const std::size_t end = form.find('&', begin);
  const std::size_t value = begin + name.size() + 1;
  return millrace::text::uri_decode(form.substr(value, end == std::string::npos ? end : end - value)).value();
}

millrace::task<s3::detail::sourced_credentials> profile_only(s3::detail::default_chain<recorded_world>& chain) {
  const s3::settings s = chain.read_settings();
  auto asking = chain.from_profile(s);
  auto found = co_await std::move(asking);
  if (!found) throw millrace::configuration_error(chain.why_no_profile(s));
  co_return std::move(*found);
}

int run_folder(const std::string& folder, bool whole_chain) {
  int cases = 0;
  for (const std::string& name : millrace::test::names_in(folder)) {
    const std::string path = folder + "/" + name;
    INFO(path);
    ++cases;
    const json expected = millrace::test::read_json(path + "/test-case.json").at("result");
    auto v = millrace::test::read_json(path + "/env.json").get<variables>();
    auto world = std::make_shared<recorded_world>();
    world->root = path + "/fs";
    world->load_traffic(millrace::test::read_json(path + "/http-traffic.json"));
    millrace::testing::virtual_loop loop;
    s3::detail::default_chain<recorded_world> chain(world, environment_of(v));
    std::string failure;
    try {
      const s3::detail::sourced_credentials found =
          millrace::block_on(loop, whole_chain ? chain.resolve() : profile_only(chain));
      REQUIRE(expected.contains("Ok"));
      const json& ok = expected.at("Ok");
      CHECK(found.who.access_key_id() == ok.at("access_key_id").get<std::string>());
      CHECK(found.who.secret_access_key() == ok.at("secret_access_key").get<std::string>());
      CHECK(found.who.session_token() == ok.value("session_token", std::string()));
      CHECK(found.who.expires_at().value_or(0) == ok.value("expiry", std::int64_t(0)));
      CHECK(world->answered == world->exchanges.size());
    } catch (const millrace::error& e) {
      failure = e.what();
      INFO(failure);
      REQUIRE(expected.contains("ErrorContains"));
      CHECK_THAT(failure, Contains(expected_words(name, expected.at("ErrorContains").get<std::string>())));
      CHECK(world->answered >= world->exchanges.size());
    }
    CHECK(world->complaints == std::vector<std::string>());
    for (std::size_t i = 0; i < std::min(world->requests.size(), world->exchanges.size()); ++i) {
      const std::string& recorded = world->exchanges[i].body;
      const std::string sent(world->requests[i].body.data(), world->requests[i].body.size());
      if (recorded.empty()) {
        CHECK(sent.empty());
        continue;
      }
      for (const char* p : {"Action", "Version"}) CHECK(parameter(sent, p) == parameter(recorded, p));
      // The recordings of these were made with another role and token than their files have.
      if (name != "web_identity_token_env" && name != "web_identity_token_profile" &&
          !(name == "web_identity_token_source_profile" && i == 0)) {
        CHECK(parameter(sent, "RoleArn") == parameter(recorded, "RoleArn"));
      }
      CHECK((parameter(sent, "WebIdentityToken") == "(none)") == (parameter(recorded, "WebIdentityToken") == "(none)"));
    }
    for (const char* secret : {"secretkeycorrect", "tokencorrect", "correct_secret", "TESTSECRET", "SECRETKEYTEST",
                               "TESTSESSIONTOKEN", "a-token", "secret-access-token", "sometoken", "imdstoken"}) {
      CHECK(failure.find(secret) == std::string::npos);
    }
  }
  return cases;
}

/// A configuration file that says what a case of assume-role-tests.json says.
std::string config_text(const json& input) {
  std::string text;
  const auto add = [&text](const std::string& title, const json& properties) {
    text += "[" + title + "]\n";
    for (const auto& [name, value] : properties.items()) text += name + " = " + value.get<std::string>() + "\n";
  };
  for (const auto& [name, properties] : input.at("profiles").items()) add("profile " + name, properties);
  const json sessions = input.value("sso_sessions", json::object());
  for (const auto& [name, properties] : sessions.items()) add("sso-session " + name, properties);
  return text;
}

/// One link of a chain in the form of the table.
json link_of(const s3::detail::profile_chain& chain) {
  json out;
  const auto put = [&out](const char* kind, const char* name, const std::string& value) {
    if (!value.empty()) out[kind][name] = value;
  };
  switch (chain.base) {
    case s3::detail::profile_base::keys:
      put("AccessKey", "access_key_id", std::string(chain.keys.access_key_id()));
      put("AccessKey", "secret_access_key", std::string(chain.keys.secret_access_key()));
      put("AccessKey", "session_token", std::string(chain.keys.session_token()));
      break;
    case s3::detail::profile_base::environment:
      out["NamedSource"] = "Environment";
      break;
    case s3::detail::profile_base::instance:
      out["NamedSource"] = "Ec2InstanceMetadata";
      break;
    case s3::detail::profile_base::container:
      out["NamedSource"] = "EcsContainer";
      break;
    case s3::detail::profile_base::web_identity:
      put("WebIdentityToken", "role_arn", chain.web_identity.arn);
      put("WebIdentityToken", "web_identity_token_file", chain.web_identity.token_file);
      put("WebIdentityToken", "role_session_name", chain.web_identity.session_name);
      break;
    case s3::detail::profile_base::sso:
      put("Sso", "sso_session", chain.sso.session);
      put("Sso", "sso_region", chain.sso.region);
      put("Sso", "sso_start_url", chain.sso.start_url);
      put("Sso", "sso_account_id", chain.sso.account);
      put("Sso", "sso_role_name", chain.sso.role);
      break;
    case s3::detail::profile_base::process:
      out["CredentialProcess"] = chain.command;
      break;
  }
  return out;
}

}  // namespace

TEST_CASE("credentials are found where the AWS SDKs find them", "[s3][credentials]") {
  if (vectors().empty()) MILLRACE_SKIP("no test data");
  CHECK(run_folder(vectors() + "/default-credential-provider-chain", true) == 29);
}

TEST_CASE("profiles give credentials as with the AWS SDKs", "[s3][credentials]") {
  if (vectors().empty()) MILLRACE_SKIP("no test data");
  CHECK(run_folder(vectors() + "/profile-provider", false) == 18);
}

TEST_CASE("profiles are followed as the AWS SDKs follow them", "[s3][credentials]") {
  if (vectors().empty()) MILLRACE_SKIP("no test data");
  const json table = millrace::test::read_json(vectors() + "/assume-role-tests.json");
  CHECK(table.size() == 28);
  for (const json& c : table) {
    INFO(c.dump());
    const json& output = c.at("output");
    // Not applicable: a profile that gives a bearer token, for services that take one. S3 takes none.
    if (c.at("docs") == "SSO token profile selected") {
      CHECK_THROWS_WITH(
          s3::detail::profile_chain::of(s3::profile_file::parse(config_text(c.at("input")), ""),
                                          c.at("input").at("selected_profile").get<std::string>(), "config"),
          Contains("an access token instead of credentials"));
      continue;
    }
    std::string failure;
    try {
      const s3::profile_file files = s3::profile_file::parse(config_text(c.at("input")), "");
      const std::string selected = c.at("input").at("selected_profile").get<std::string>();
      const auto chain = s3::detail::profile_chain::of(files, selected, "config");
      if (!chain) {
        // Not configured is not an error here: the search goes on.
        failure = files.find(selected) == nullptr ? "No profiles were defined"
                                                  : "profile `" + selected + "` did not contain credential information";
      } else {
        REQUIRE(output.contains("ProfileChain"));
        json expected = output.at("ProfileChain");
        for (json& link : expected) {
          if (link.contains("AccessKey")) link["AccessKey"].erase("account_id");  // S3 has no use for it
        }
        CHECK(link_of(*chain) == expected.at(0));
        REQUIRE(chain->roles.size() == expected.size() - 1);
        for (std::size_t i = 0; i < chain->roles.size(); ++i) {
          const json& role = expected.at(i + 1).at("AssumeRole");
          CHECK(chain->roles[i].arn == role.at("role_arn").get<std::string>());
          CHECK(chain->roles[i].session_name == role.value("role_session_name", std::string()));
          CHECK(chain->roles[i].external_id == role.value("external_id", std::string()));
        }
      }
    } catch (const millrace::configuration_error& e) {
      failure = e.what();
    }
    INFO(failure);
    CHECK(failure.empty() == !output.contains("Error"));
    if (output.contains("Error")) CHECK_THAT(failure, Contains(output.at("Error").get<std::string>()));
  }
}

TEST_CASE("containers are asked where the AWS SDKs ask them", "[s3][credentials]") {
  if (vectors().empty()) MILLRACE_SKIP("no test data");
  const json table = millrace::test::read_json(vectors() + "/ecs-tests.json").at("tests");
  CHECK(table.size() == 11);
  for (const json& c : table) {
    INFO(c.dump());
    auto v = c.at("env").get<variables>();
    const s3::settings s(environment_of(v), [](const std::string&) { return s3::detail::file_text(ENOENT); });
    const json& result = c.at("result");
    if (result.contains("Ok")) {
      CHECK(s3::detail::container_url(s) == result.at("Ok").get<std::string>());
    } else if (v.empty()) {
      CHECK(s3::detail::container_url(s) == std::nullopt);
    } else {
      CHECK_THROWS_WITH(s3::detail::container_url(s), Contains(result.at("ErrorContains").get<std::string>()));
    }
  }
}

TEST_CASE("instance metadata is asked where the AWS SDKs ask it", "[s3][credentials]") {
  if (vectors().empty()) MILLRACE_SKIP("no test data");
  const json table = millrace::test::read_json(vectors() + "/imds-config/imds-endpoint-tests.json").at("tests");
  CHECK(table.size() == 14);
  int not_applicable = 0;
  for (const json& c : table) {
    INFO(c.dump());
    auto v = c.at("env").get<variables>();
    const auto files = c.at("fs").get<std::map<std::string, std::string>>();
    const s3::settings s(environment_of(v), [&files](const std::string& path) {
      const auto found = files.find(path);
      return found == files.end() ? s3::detail::file_text(ENOENT) : s3::detail::file_text(found->second);
    });
    const json& result = c.at("result");
    // Not applicable: here nothing but the variables and the profile says where it is.
    if (c.contains("endpoint_override") || (c.contains("mode_override") && v.count("AWS_CONFIG_FILE") != 0)) {
      ++not_applicable;
      continue;
    }
    if (result.contains("Ok")) {
      CHECK(s3::detail::instance_place(s).root + "/latest/api/token" == result.at("Ok").get<std::string>());
    } else {
      const std::string theirs = result.at("Err").get<std::string>();
      CHECK_THROWS_WITH(s3::detail::instance_place(s),
                        Contains(theirs == "invalid uri character" ? "not a usable endpoint URL" : theirs));
    }
  }
  CHECK(not_applicable == 2);
}

TEST_CASE("profiles of aws login are refused", "[s3][credentials]") {
  // login-provider-test-cases.json is not run: that provider exchanges the token of `aws login` and signs a proof of
  // possession with a key of the user's. It belongs to a person's machine; what it would be for says so.
  const s3::profile_file files = s3::profile_file::parse("[profile A]\nlogin_session = arn:aws:sts::1:x\n", "");
  CHECK_THROWS_WITH(s3::detail::profile_chain::of(files, "A", "config"), Contains("login_session"));
}
