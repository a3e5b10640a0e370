// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/config/profile_file.hpp>

#include <map>
#include <string>
#include <utility>

#include "tests/s3/vectors.hpp"
#include "tests/support/catch.hpp"

namespace {

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;
using millrace::test::environment_of;
using millrace::test::json;
using millrace::test::variables;

using plain_table = std::map<std::string, std::map<std::string, std::string>>;

plain_table plain(const s3::profile_file::table& from) {
  plain_table out;
  for (const auto& [name, section] : from) {
    auto& properties = out[name];
    for (const auto& property : section.properties()) properties[property.first] = property.second;
  }
  return out;
}

}  // namespace

TEST_CASE("profile files are read as the AWS SDKs read them", "[s3][profile]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const json table =
      millrace::test::read_json(data + "/credentials/smithy-rs/aws-runtime/profile-parser-tests.json").at("tests");
  CHECK(table.size() == 65);
  for (const json& c : table) {
    INFO(c.dump());
    const std::string config = c.at("input").value("configFile", std::string());
    const std::string credentials = c.at("input").value("credentialsFile", std::string());
    const json& output = c.at("output");
    if (output.contains("errorContaining")) {
      CHECK_THROWS_WITH(s3::profile_file::parse(config, credentials),
                        Contains(output.at("errorContaining").get<std::string>()) && Contains("line "));
      continue;
    }
    const s3::profile_file file = s3::profile_file::parse(config, credentials);
    CHECK(plain(file.profiles()) == output.at("config").at("profiles").get<plain_table>());
    CHECK(plain(file.sso_sessions()) == output.at("config").value("sso_sessions", json::object()).get<plain_table>());
  }
}

TEST_CASE("the files are found where the AWS SDKs find them", "[s3][profile]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const json table =
      millrace::test::read_json(data + "/credentials/smithy-rs/aws-runtime/file-location-tests.json").at("tests");
  int cases = 0;
  for (const json& c : table) {
    if (c.at("platform").get<std::string>() != "linux") continue;
    INFO(c.at("name").get<std::string>());
    variables v = c.at("environment").get<variables>();
    const s3::profile_location where = s3::profile_location::from_environment(environment_of(v));
    CHECK(where.config_path == c.at("configLocation").get<std::string>());
    CHECK(where.credentials_path == c.at("credentialsLocation").get<std::string>());
    CHECK(where.profile_name == c.value("profile", std::string("default")));
    ++cases;
  }
  CHECK(cases == 4);
  variables v = {{"AWS_CONFIG_FILE", "~/own"}, {"HOME", "/home/user"}};
  CHECK(s3::profile_location::from_environment(environment_of(v)).config_path == "/home/user/own");
  v.clear();
  CHECK(s3::profile_location::from_environment(environment_of(v)).config_path.empty());
}

TEST_CASE("whatever is in a file, it is read or refused", "[s3][profile]") {
  const std::string data = millrace::test::test_data_folder();
  if (data.empty()) MILLRACE_SKIP("no test data");
  const std::string corpus = data + "/profiles/aws-c-auth-fuzz-corpus/";
  int files = 0;
  int refused = 0;
  for (const std::string& folder : {corpus + "parse_config_profile/", corpus + "parse_credentials_profile/"}) {
    for (const std::string& name : millrace::test::names_in(folder)) {
      const std::string text = millrace::test::read_file(folder + name);
      for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        for (const bool config : {true, false}) {
          try {
            s3::profile_file::parse(config ? std::string_view(text).substr(0, cut) : std::string_view(),
                                    config ? std::string_view() : std::string_view(text).substr(0, cut));
          } catch (const millrace::configuration_error&) {
            ++refused;
          }
        }
      }
      ++files;
    }
  }
  CHECK(files > 60);
  CHECK(refused > 0);
}

TEST_CASE("sub-properties, services and sso sessions are found by name", "[s3][profile]") {
  const s3::profile_file file = s3::profile_file::parse(
      "\xef\xbb\xbf[default]\r\nS3 =\r\n  addressing_style = path\r\n\tuse_dualstack_endpoint=true\r\n"
      "  addressing_style =\tvirtual \r\nservices = local\r\n[services local]\ns3 =\n  endpoint_url = http://h:1\n"
      "[sso-session corp]\nsso_region = eu-west-1\n[services bad name]\na = b\n",
      "");
  const s3::profile* p = file.find("default");
  REQUIRE(p != nullptr);
  CHECK(p->find("s3", "addressing_style") == std::string_view("virtual"));
  CHECK(p->find("s3", "use_dualstack_endpoint") == std::string_view("true"));
  CHECK_FALSE(p->find("s3", "addressing").has_value());
  CHECK_FALSE(p->find("s4", "addressing_style").has_value());
  CHECK_FALSE(p->find("S3").has_value());
  const s3::profile* services = file.find_services(*p->find("services"));
  REQUIRE(services != nullptr);
  CHECK(services->find("s3", "endpoint_url") == std::string_view("http://h:1"));
  REQUIRE(file.find_sso_session("corp") != nullptr);
  CHECK(file.find_sso_session("corp")->find("sso_region") == std::string_view("eu-west-1"));
  CHECK(file.find("Default") == nullptr);
  CHECK(file.find_services("bad") == nullptr);
}

TEST_CASE("an error names file and line and keeps the secret", "[s3][profile]") {
  try {
    s3::profile_file::parse("", "[default]\n\n; comment\naws_secret_access_key: hunter2\n", "/c", "/home/u/creds");
    FAIL("taken");
  } catch (const millrace::configuration_error& e) {
    CHECK(std::string(e.what()) == "/home/u/creds: line 4: Expected an '=' sign defining a property");
  }
}

TEST_CASE("names of profiles may be quoted, as botocore reads them", "[s3][profile]") {
  // What botocore 1.44 makes of each title of the config file (botocore.configloader: shlex.split, two words).
  const std::pair<const char*, const char*> titles[] = {{"profile \"my team\"", "my team"},
                                                        {"profile 'my team'", "my team"},
                                                        {"profile my\" \"team", "my team"},
                                                        {"profile my\\ team", "my team"},
                                                        {"\"profile\" 'my team'", "my team"},
                                                        {"  profile\t\"my team\"  ", "my team"},
                                                        {"profile \"plain\"", "plain"},
                                                        {"profile 'it is \"it\"'", "it is \"it\""},
                                                        {"profile \"a \\\"b\\\" \\c\"", "a \"b\" \\c"},
                                                        {"profile 'a\\b'", "a\\b"},
                                                        {"profile \" a \"", " a "},
                                                        {"profile \"a#b;c\"", "a#b;c"},
                                                        {"profile \"a]b\"", "a]b"},
                                                        {"profile \"m\xc3\xa4x m\"", "m\xc3\xa4x m"}};
  for (const auto& [title, name] : titles) {
    for (const char* end : {"]", "] # a comment with ] and \"quotes\"", "]\r"}) {
      INFO(title << end);
      const s3::profile_file file = s3::profile_file::parse("[" + std::string(title) + end + "\nregion = r\n", "");
      CHECK(plain(file.profiles()) == plain_table{{name, {{"region", "r"}}}});
    }
  }
  for (const char* none : {"profile my team", "profile \"open", "profile 'open", "profile \"\"", "profile \"a\" b",
                           "\"profile my team\"", "profile", "profile o'brien"}) {
    INFO(none);
    CHECK(s3::profile_file::parse("[" + std::string(none) + "]\nregion = r\n", "").profiles().empty());
  }
  CHECK_THROWS_WITH(s3::profile_file::parse("[profile \"a\" # b\nregion = r\n", ""), Contains("must end with ']'"));
  // Both spellings of one name are one profile; so are those of the default one, of sessions and of services.
  const s3::profile_file file = s3::profile_file::parse(
      "[profile \"a\"]\nregion = r\n[profile a]\noutput = o\n[profile 'default']\nregion = d\n[default]\nregion = e\n"
      "[sso-session \"our sso\"]\nsso_region = s\n",
      "");
  CHECK(plain(file.profiles()) ==
        plain_table{{"a", {{"region", "r"}, {"output", "o"}}}, {"default", {{"region", "d"}}}});
  CHECK(plain(file.sso_sessions()) == plain_table{{"our sso", {{"sso_region", "s"}}}});
  // The credentials file has names as they stand: what `aws configure --profile "my team"` writes into both, or into
  // this one alone.
  for (const char* title : {"my team", "\"my team\"", "'my team'"}) {
    for (const char* config : {"[profile 'my team']\nregion = r\n", ""}) {
      const s3::profile_file both =
          s3::profile_file::parse(config, "[" + std::string(title) + "]\naws_access_key_id = k\n");
      const s3::profile* found = both.find("my team");
      REQUIRE(found != nullptr);
      CHECK(found->find("aws_access_key_id") == "k");
      CHECK(found->find("region").value_or("") == std::string(*config == 0 ? "" : "r"));
    }
  }
}
