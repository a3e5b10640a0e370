// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/auth/default_credentials.hpp>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/s3/recorded_world.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

namespace {

namespace s3 = millrace::s3;
using Catch::Matchers::Contains;
using millrace::test::environment_of;
using millrace::test::recorded_exchange;
using millrace::test::recorded_world;
using millrace::test::variables;

recorded_exchange exchange(std::string method, std::string url, int status, std::string answer = {}) {
  recorded_exchange e;
  e.method = std::move(method);
  e.url = std::move(url);
  e.status = status;
  e.answer = std::move(answer);
  return e;
}

constexpr const char* token_url = "http://169.254.169.254/latest/api/token";
constexpr const char* roles_url = "http://169.254.169.254/latest/meta-data/iam/security-credentials/";
constexpr const char* json_keys =
    "{\"Code\":\"Success\",\"AccessKeyId\":\"AK\",\"SecretAccessKey\":\"SK\",\"Token\":\"TK\","
    "\"Expiration\":\"2030-01-01T00:00:00Z\"}";
constexpr const char* sts_keys =
    "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>SK"
    "</SecretAccessKey><SessionToken>TK</SessionToken><Expiration>2030-01-01T00:00:00Z</Expiration></Credentials>"
    "</AssumeRoleResult></AssumeRoleResponse>";

/// A chain over a recording.
class fixture {
 public:
  explicit fixture(variables table) : v(std::move(table)), chain(world, environment_of(v)) {}

  std::string get() { return std::string(millrace::block_on(loop, chain.resolve()).who.access_key_id()); }
  std::string failure() {
    try {
      return "nothing, but " + get();
    } catch (const millrace::error& e) {
      return e.what();
    }
  }
  void answer(std::vector<recorded_exchange> all) {
    world->exchanges = std::move(all);
    world->answered = 0;
    world->requests.clear();
  }

  variables v;
  std::shared_ptr<recorded_world> world = std::make_shared<recorded_world>();
  millrace::testing::virtual_loop loop;
  s3::detail::default_chain<recorded_world> chain;
};

std::string body_of(const millrace::http::request& r) { return std::string(r.body.data(), r.body.size()); }

}  // namespace

TEST_CASE("when nothing is configured the error says why each source was passed over", "[s3][credentials]") {
  fixture f(variables{{"HOME", "/home"}});
  f.answer({exchange("PUT", token_url, 0)});
  const std::string text = f.failure();
  for (const char* part :
       {"AWS_ACCESS_KEY_ID is not set", "there is no profile default", "AWS_WEB_IDENTITY_TOKEN_FILE is not set",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "no instance metadata", "recorded as unreachable", "anonymous"}) {
    CHECK_THAT(text, Contains(part));
  }
  CHECK(f.world->answered == 3);  // a few attempts, a second each
  CHECK(f.loop.elapsed() < std::chrono::seconds(2));
  for (const auto& limits : f.world->limits_of_requests) {
    CHECK(limits.direct);
    CHECK(limits.connect <= std::chrono::seconds(1));
  }

  f.world->files["/home/.aws/config"] = "[default]\nregion = x\n";
  CHECK_THAT(f.failure(), Contains("profile default says nothing of credentials"));
  f.answer({exchange("PUT", token_url, 403)});
  CHECK_THAT(f.failure(), Contains("IMDS is disabled"));
  f.answer({exchange("PUT", token_url, 404)});
  CHECK_THAT(f.failure(), Contains("version 1 is not asked"));
}

TEST_CASE("half a key pair is an error at once, and the variables are those of the beginning", "[s3][credentials]") {
  variables half = {{"AWS_ACCESS_KEY_ID", "key"}};
  CHECK_THROWS_AS(s3::default_credentials<>(environment_of(half)), millrace::configuration_error);
  millrace::testing::virtual_loop loop;
  std::shared_ptr<s3::credentials_provider> provider;
  {
    variables whole = {{"AWS_ACCESS_KEY_ID", "key"}, {"AWS_SECRET_ACCESS_KEY", "secret"}};
    provider = s3::default_credentials<>(environment_of(whole));
  }
  const s3::credentials who = millrace::block_on(loop, provider->get());
  CHECK(who.access_key_id() == "key");
  CHECK(millrace::block_on(loop, provider->get()).same_snapshot(who));
  CHECK_FALSE(provider->refused(who));  // the environment has no others
}

TEST_CASE("files that cannot be read are errors if a variable names them", "[s3][credentials]") {
  class unreadable_world : public recorded_world {
   public:
    s3::detail::file_text read_file(const std::string&) const { return s3::detail::file_text(EACCES); }
  };
  millrace::testing::virtual_loop loop;
  auto world = std::make_shared<unreadable_world>();
  world->exchanges = {exchange("GET", "http://169.254.170.2/x", 200, json_keys)};
  // The home of another user: skipped.
  variables v = {{"HOME", "/root"}, {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x"}};
  s3::detail::default_chain<unreadable_world> chain(world, environment_of(v));
  CHECK(millrace::block_on(loop, chain.resolve()).source == "the container");
  v["AWS_CONFIG_FILE"] = "/etc/aws";
  s3::detail::default_chain<unreadable_world> named(world, environment_of(v));
  CHECK_THROWS_WITH(millrace::block_on(loop, named.resolve()), "/etc/aws: cannot be read: Permission denied");

  fixture f(variables{{"HOME", "/home"}, {"AWS_PROFILE", "missing"}});
  f.world->files["/home/.aws/credentials"] = "[default]\naws_access_key_id = a\naws_secret_access_key = b\n";
  CHECK_THAT(f.failure(), Contains("AWS_PROFILE is \"missing\", but there is no such profile"));
  f.world->files["/home/.aws/credentials"] = "[default]\nhidden-secret\n";
  CHECK(f.failure() == "/home/.aws/credentials: line 2: Expected an '=' sign defining a property");
}

TEST_CASE("instance metadata: a token that has run out is replaced once", "[s3][credentials]") {
  fixture f(variables{});
  recorded_exchange first = exchange("GET", roles_url, 401);
  f.answer({exchange("PUT", token_url, 200, "t1"), first, exchange("PUT", token_url, 200, "t2"),
            exchange("GET", roles_url, 200, "my role\nother"),
            exchange("GET", std::string(roles_url) + "my%20role", 503),
            exchange("GET", std::string(roles_url) + "my%20role", 200, "not JSON"),
            exchange("GET", std::string(roles_url) + "my%20role", 200, json_keys)});
  CHECK(f.get() == "AK");
  CHECK(f.world->answered == 7);
  CHECK(*f.world->requests[1].fields.find("x-aws-ec2-metadata-token") == "t1");
  CHECK(*f.world->requests[3].fields.find("x-aws-ec2-metadata-token") == "t2");

  f.answer({exchange("PUT", token_url, 200, "t1"), first, exchange("PUT", token_url, 200, "t2"), first});
  CHECK_THAT(f.failure(), Contains("401: the instance metadata service refused"));
  CHECK(f.world->answered == 4);

  f.answer({exchange("PUT", token_url, 200, "t"), exchange("GET", roles_url, 200, "r"),
            exchange("GET", std::string(roles_url) + "r", 200,
                     "{\"Code\":\"AssumeRoleUnauthorizedAccess\",\"Message\":\"EC2 cannot assume the role\"}")});
  CHECK_THAT(f.failure(), Contains("AssumeRoleUnauthorizedAccess: EC2 cannot assume the role"));
  f.answer({exchange("PUT", token_url, 200, "t"), exchange("GET", roles_url, 200, "r"),
            exchange("GET", std::string(roles_url) + "r", 200, "{\"AccessKeyId\":\"a\"}")});
  CHECK_THAT(f.failure(), Contains("lacks a part"));
  f.answer({exchange("PUT", token_url, 200, "bad\r\nheader: x")});
  CHECK_THAT(f.failure(), Contains("no token"));
}

TEST_CASE("instance metadata: the variables and the profile say how", "[s3][credentials]") {
  fixture f(variables{{"AWS_METADATA_SERVICE_NUM_ATTEMPTS", "1"},
                      {"AWS_METADATA_SERVICE_TIMEOUT", "3"},
                      {"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://other:8/"}});
  f.answer({exchange("PUT", "http://other:8/latest/api/token", 0)});
  f.failure();
  CHECK(f.world->answered == 1);
  CHECK(f.world->complaints.size() == 1);  // a header that was not recorded
  CHECK(f.world->limits_of_requests[0].connect == std::chrono::seconds(3));
  for (const char* bad : {"0", "x", "1000", "-1"}) {
    fixture wrong(variables{{"AWS_METADATA_SERVICE_TIMEOUT", bad}});
    CHECK_THAT(wrong.failure(), Contains("AWS_METADATA_SERVICE_TIMEOUT"));
  }
  f.answer({exchange("PUT", "http://other:8/latest/api/token", 200, "t"),
            exchange("GET", "http://other:8/latest/meta-data/placement/region", 200, "eu-central-1\n")});
  CHECK(millrace::block_on(f.loop, f.chain.region()) == "eu-central-1");
  fixture off(variables{{"AWS_EC2_METADATA_DISABLED", "tRuE"}});
  CHECK_THROWS_WITH(millrace::block_on(off.loop, off.chain.region()), Contains("AWS_EC2_METADATA_DISABLED"));
  CHECK(off.world->answered == 0);
}

TEST_CASE("containers: exclusive, direct, with a token that is read anew", "[s3][credentials]") {
  const std::string url = "http://169.254.170.23/v1/credentials";
  fixture f(variables{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url},
                      {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "not this one"},
                      {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/token"}});
  f.world->files["/token"] = "first";
  f.answer({exchange("GET", url, 200, json_keys)});
  CHECK(f.get() == "AK");
  f.world->files["/token"] = "second";
  CHECK(f.get() == "AK");
  CHECK(*f.world->requests[0].fields.find("authorization") == "first");
  CHECK(*f.world->requests[1].fields.find("authorization") == "second");
  for (const auto& limits : f.world->limits_of_requests) CHECK(limits.direct);

  f.answer({exchange("GET", url, 403, "{\"code\":\"AccessDenied\",\"message\":\"no\"}")});
  CHECK_THAT(f.failure(), Contains("403 AccessDenied: no"));
  CHECK(f.world->answered == 1);  // and the instance is not asked
  f.answer({exchange("GET", url, 500)});
  CHECK_THAT(f.failure(), Contains("500"));
  CHECK(f.world->answered == 3);
  f.answer({exchange("GET", url, 200, "{}")});
  CHECK_THAT(f.failure(), Contains("no credentials in it"));

  f.world->files["/token"] = "tok\r\nX-Evil: 1";
  CHECK_THAT(f.failure(), Contains("line end") && !Contains("Evil"));
  f.world->files["/token"] = "";
  CHECK_THAT(f.failure(), Contains("empty"));
  f.world->files.clear();
  CHECK_THAT(f.failure(), Contains("/token") && Contains("No such file"));

  for (const char* bad :
       {"http://169.254.170.3/x", "http://example.com/x", "http://127.0.0.1.example.com/", "http://[fd00:ec2::24]/",
        "http://user@127.0.0.1/", "ftp://127.0.0.1/", "http://127.0.0.1 /"}) {
    fixture wrong(variables{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", bad}});
    INFO(bad);
    CHECK_THAT(wrong.failure(), !Contains("nothing"));
    CHECK(wrong.world->answered == 0);
  }
  fixture slash(variables{{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@evil.example/"}});
  CHECK_THAT(slash.failure(), Contains("does not start with /"));
}

TEST_CASE("web identity: the token is read at every refresh, and STS asked again where that helps",
          "[s3][credentials]") {
  const std::string url = "https://sts.eu-west-1.amazonaws.com/";
  fixture f(variables{{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token"},
                      {"AWS_ROLE_ARN", "arn:aws:iam::1:role/r"},
                      {"AWS_REGION", "eu-west-1"}});
  f.world->files["/token"] = "first\n";
  f.answer(
      {exchange("POST", url, 400, "<ErrorResponse><Error><Code>IDPCommunicationError</Code></Error></ErrorResponse>"),
       exchange("POST", url, 200, sts_keys)});
  CHECK(f.get() == "AK");
  CHECK(f.world->answered == 2);
  CHECK_THAT(body_of(f.world->requests[1]),
             Contains("&WebIdentityToken=first") && Contains("RoleSessionName=millrace-"));
  CHECK_FALSE(f.world->limits_of_requests[0].direct);
  f.world->files["/token"] = "second";
  f.answer({exchange("POST", url, 200, sts_keys)});
  CHECK(f.get() == "AK");
  CHECK_THAT(body_of(f.world->requests[0]), Contains("&WebIdentityToken=second"));

  f.answer({exchange("POST", url, 403,
                     "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>")});
  CHECK_THAT(f.failure(), Contains("403 AccessDenied: no") && !Contains("second"));
  CHECK(f.world->answered == 1);
  f.answer({exchange("POST", url, 200, "<AssumeRoleResponse/>")});
  CHECK_THAT(f.failure(), Contains("lacks a part"));
  f.answer({exchange("POST", url, 200, "{}")});
  CHECK_THAT(f.failure(), Contains("not intact XML"));
  f.world->files["/token"] = "\n";
  CHECK_THAT(f.failure(), Contains("/token: the web identity token is empty"));
  f.world->files.clear();
  CHECK_THAT(f.failure(), Contains("/token: failed to read"));
  fixture no_role(variables{{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token"}});
  CHECK_THAT(no_role.failure(), Contains("AWS_ROLE_ARN is not"));
}

TEST_CASE("assumed roles: what is asked, and no secret in what is refused", "[s3][credentials]") {
  fixture f(variables{{"HOME", "/home"}});
  f.world->files["/home/.aws/config"] =
      "[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\nexternal_id = a b&c\n"
      "duration_seconds = 1200\nrole_session_name = me\n[profile base]\naws_access_key_id = id\n"
      "aws_secret_access_key = very-secret\naws_session_token = base-token\n";
  const std::string url = "https://sts.us-east-1.amazonaws.com/";
  f.answer({exchange("POST", url, 200, sts_keys)});
  CHECK(f.get() == "AK");
  CHECK(body_of(f.world->requests[0]) ==
        "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=me"
        "&DurationSeconds=1200&ExternalId=a%20b%26c");
  CHECK_THAT(*f.world->requests[0].fields.find("authorization"),
             Contains("Credential=id/20090207/us-east-1/sts/aws4_request, "
                      "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token"));
  CHECK(*f.world->requests[0].fields.find("x-amz-security-token") == "base-token");

  f.answer({exchange("POST", url, 403,
                     "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>It does not match.\n\nThe "
                     "Canonical String for this request should have been\n'x-amz-security-token:base-token'</Message>"
                     "</Error></ErrorResponse>")});
  CHECK_THAT(f.failure(), Contains("SignatureDoesNotMatch: It does not match.") && !Contains("base-token"));

  // A clock that is off is put right once.
  recorded_exchange skewed = exchange("POST", url, 403, "<ErrorResponse><Error><Code>X</Code></Error></ErrorResponse>");
  skewed.date = "Sat, 07 Feb 2009 10:46:40 GMT";  // 54 minutes ahead
  f.answer({skewed, exchange("POST", url, 200, sts_keys)});
  CHECK(f.get() == "AK");
  CHECK(*f.world->requests[0].fields.find("x-amz-date") == "20090207T094640Z");
  CHECK(*f.world->requests[1].fields.find("x-amz-date") == "20090207T104640Z");
  f.answer({skewed});
  CHECK_THAT(f.failure(), Contains("403 X"));
  CHECK(f.world->answered == 2);
  skewed.date = "Sat, 07 Feb 2009 09:47:40 GMT";  // a minute is nothing
  f.answer({skewed});
  CHECK_THAT(f.failure(), Contains("403 X"));
  CHECK(f.world->answered == 1);

  for (const char* bad : {"899", "43201", "1h", "99999999999999999999", "-5"}) {
    f.world->files["/home/.aws/config"] =
        "[default]\nrole_arn = r\nduration_seconds = " + std::string(bad) + "\ncredential_source = Environment\n";
    CHECK_THAT(f.failure(), Contains("duration_seconds of profile default"));
  }
  f.world->files["/home/.aws/config"] = "[default]\nrole_arn = r\nmfa_serial = m\ncredential_source = Environment\n";
  CHECK_THAT(f.failure(), Contains("MFA"));
  f.world->files["/home/.aws/config"] = "[default]\nrole_arn = r\ncredential_source = environment\n";
  CHECK_THAT(f.failure(), Contains("expected Environment, Ec2InstanceMetadata or EcsContainer"));
  f.world->files["/home/.aws/config"] = "[default]\nrole_arn = r\ncredential_source = EcsContainer\n";
  CHECK_THAT(f.failure(), Contains("AWS_CONTAINER_CREDENTIALS_"));
  f.world->files["/home/.aws/config"] =
      "[default]\nrole_arn = r\nsource_profile = base\nservices = gone\n[profile base]\naws_access_key_id = id\n"
      "aws_secret_access_key = s\n";
  CHECK_THAT(f.failure(), Contains("services section gone"));
}

TEST_CASE("SSO says what to run when there is no good token", "[s3][credentials]") {
  fixture f(variables{{"HOME", "/home"}, {"AWS_PROFILE", "dev"}});
  f.world->files["/home/.aws/config"] =
      "[profile dev]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = r\n[sso-session corp]\n"
      "sso_region = eu-west-1\nsso_start_url = https://x\n";
  // sha1("corp")
  const std::string path = "/home/.aws/sso/cache/" + s3::detail::sha1_hex("corp") + ".json";
  CHECK(s3::detail::sha1_hex("abc") == "a9993e364706816aba3e25717850c26c9cd0d89d");  // FIPS 180-4
  CHECK_THAT(f.failure(), Contains(path) && Contains("run `aws sso login --profile dev`"));
  f.world->files[path] = "{\"accessToken\":\"hidden\",\"expiresAt\":\"2001-01-01T00:00:00Z\"}";
  CHECK_THAT(f.failure(), Contains("expired: run `aws sso login --profile dev`") && !Contains("hidden"));
  f.world->files[path] = "{\"accessToken\":\"hidden\"";
  CHECK_THAT(f.failure(), Contains("no SSO token") && !Contains("hidden"));
  f.world->files[path] = "{\"accessToken\":\"hidden\\r\\nX: 1\",\"expiresAt\":\"2101-01-01T00:00:00Z\"}";
  CHECK_THAT(f.failure(), !Contains("nothing") && !Contains("hidden"));
  f.world->files[path] = "{\"accessToken\":\"hidden\",\"expiresAt\":\"2101-01-01T00:00:00Z\"}";
  const std::string url = "https://portal.sso.eu-west-1.amazonaws.com/federation/credentials?account_id=1&role_name=r";
  f.answer({exchange("GET", url, 401, "{\"message\":\"Session token not found or invalid\"}")});
  CHECK_THAT(f.failure(), Contains("not accepted: run `aws sso login"));
  f.answer({exchange("GET", url, 403, "{\"message\":\"No access\"}")});
  CHECK_THAT(f.failure(), Contains("403: No access"));
  f.answer({exchange("GET", url, 200, "{\"roleCredentials\":{\"accessKeyId\":\"a\"}}")});
  CHECK_THAT(f.failure(), Contains("lacks a part"));
}

TEST_CASE("credential_process: what is accepted of a process", "[s3][credentials]") {
  fixture f(variables{{"HOME", "/home"}});
  const auto with = [&f](const std::string& command) {
    f.world->files["/home/.aws/config"] = "[default]\ncredential_process = " + command + "\n";
    return f.failure();
  };
  const std::string good = "{\"Version\":1,\"AccessKeyId\":\"AK\",\"SecretAccessKey\":\"SK\"}";
  CHECK(with("echo '" + good + "'") == "nothing, but AK");
  CHECK_THAT(with("echo '{\"Version\":2,\"AccessKeyId\":\"AK\",\"SecretAccessKey\":\"SK\"}'"),
             Contains("Version is not 1"));
  CHECK_THAT(with("echo '{\"AccessKeyId\":\"AK\",\"SecretAccessKey\":\"SK\"}'"), Contains("Version is not 1"));
  CHECK_THAT(with("echo '{\"Version\":1,\"AccessKeyId\":\"AK\"}'"), Contains("is missing"));
  CHECK_THAT(
      with("echo '{\"Version\":1,\"AccessKeyId\":\"AK\",\"SecretAccessKey\":\"hidden\",\"Expiration\":\"soon\"}'"),
      Contains("Expiration is not a date") && !Contains("hidden"));
  CHECK_THAT(with("echo hidden"), Contains("invalid JSON") && !Contains("hidden"));
  CHECK_THAT(with("exit 9"), Contains("status 9"));
  CHECK_THAT(with("kill -9 $$"), Contains("signal"));
}

TEST_CASE("an SSO token is renewed by its refresh token, and the file that has it", "[s3][credentials]") {
  fixture f(variables{{"HOME", "/home"}, {"AWS_PROFILE", "dev"}});
  f.world->files["/home/.aws/config"] =
      "[profile dev]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = r\n[sso-session corp]\n"
      "sso_region = eu-west-1\nsso_start_url = https://x\n";
  const std::string path = "/home/.aws/sso/cache/" + s3::detail::sha1_hex("corp") + ".json";
  const auto file = [](const std::string& ends, const std::string& more = "") {
    return "{\"startUrl\":\"https://x\",\"accessToken\":\"old\",\"expiresAt\":\"" + ends +
           "\",\"clientId\":\"id\",\"clientSecret\":\"se\\\"cret\"" + more + ",\"refreshToken\":\"hidden\"}";
  };
  const std::string oidc = "https://oidc.eu-west-1.amazonaws.com/token";
  recorded_exchange token =
      exchange("POST", oidc, 200, "{\"accessToken\":\"new\",\"expiresIn\":3600,\"refreshToken\":\"next\"}");
  token.fields["content-type"] = "application/json";
  recorded_exchange keys = exchange(
      "GET", "https://portal.sso.eu-west-1.amazonaws.com/federation/credentials?account_id=1&role_name=r", 200,
      "{\"roleCredentials\":{\"accessKeyId\":\"AK\",\"secretAccessKey\":\"s\",\"sessionToken\":\"t\",\"expiration\":"
      "1234003600000}}");
  keys.fields["x-amz-sso_bearer_token"] = "new";
  // The clock says 2009-02-07T09:46:40Z: ended, or ending soon.
  for (const char* ends : {"2009-02-07T09:00:00Z", "2009-02-07T09:50:00Z"}) {
    f.world->files[path] = file(ends);
    f.answer({token, keys});
    CHECK(f.get() == "AK");
    CHECK(body_of(f.world->requests[0]) ==
          "{\"clientId\":\"id\",\"clientSecret\":\"se\\\"cret\",\"refreshToken\":\"hidden\","
          "\"grantType\":\"refresh_token\"}");
    CHECK(f.world->files[path] ==
          "{\"startUrl\":\"https://x\",\"accessToken\":\"new\",\"expiresAt\":\"2009-02-07T10:46:40Z\",\"clientId\":"
          "\"id\",\"clientSecret\":\"se\\\"cret\",\"refreshToken\":\"next\"}");
  }
  // Not yet.
  keys.fields["x-amz-sso_bearer_token"] = "old";
  f.world->files[path] = file("2009-02-07T09:52:00Z");
  f.answer({keys});
  CHECK(f.get() == "AK");
  // It is refused: the old one serves as long as it lasts.
  token.status = 400;
  token.answer = "{\"error\":\"invalid_grant\"}";
  f.world->files[path] = file("2009-02-07T09:50:00Z");
  f.answer({token, keys});
  CHECK(f.get() == "AK");
  f.world->files[path] = file("2009-02-07T09:00:00Z");
  f.answer({token, keys});
  CHECK_THAT(f.failure(),
             Contains("expired, and its refresh token gave 400 invalid_grant: run `aws sso login --profile") &&
                 !Contains("hidden"));
  // No client that it may be used by any more.
  f.world->files[path] = file("2009-02-07T09:00:00Z", ",\"registrationExpiresAt\":\"2009-01-01T00:00:00Z\"");
  f.answer({token, keys});
  CHECK_THAT(f.failure(), Contains("expired: run"));
  CHECK(f.world->answered == 0);
  // The new one has nowhere to go: the old one is not spent.
  token.status = 200;
  token.answer = "{\"accessToken\":\"new\",\"expiresIn\":3600}";
  f.world->refuses_files = EROFS;
  f.world->files[path] = file("2009-02-07T09:00:00Z");
  f.answer({token, keys});
  CHECK_THAT(f.failure(), Contains("expired, and its file cannot be replaced: Read-only file system: run `aws sso"));
  CHECK(f.world->answered == 0);
  // The disk turns out to be full: this process goes on with the new one, and says so.
  f.world->refuses_files = 0;
  f.world->replacing_fails = ENOSPC;
  keys.fields["x-amz-sso_bearer_token"] = "new";
  f.answer({token, keys});
  millrace::test::captured_stderr said(millrace::test::captured_stderr::into::pipe);
  CHECK(f.get() == "AK");
  CHECK_THAT(said.text(), Contains("the new SSO token cannot be written to " + path + ": No space left on device") &&
                              !Contains("hidden"));
  CHECK(f.world->complaints.empty());
}

TEST_CASE("all that others have written into the file of an SSO token stays", "[s3][credentials]") {
  const auto end = millrace::text::parse_iso8601("2009-02-07T09:00:00Z");
  const std::string rest =
      ", \"scopes\":[\"a\",{\"accessToken\":\"x\"}],\n \"n\": 1.50, \"yes\":true, \"no\":null,"
      "\"in\":{\"expiresAt\":\"\\u00e4\\\"\"}}\n";
  const auto text = [&](const std::string& access, const std::string& ends, const std::string& again) {
    return "{ \"refreshToken\" : \"" + again + "\",\"accessToken\":\"" + access + "\", \"expiresAt\":\"" + ends + "\"" +
           rest;
  };
  const s3::detail::sso_token token(s3::detail::file_text(text("o\\n", "2009-02-07T09:00:00Z", "r")), {}, "");
  CHECK(token.access() == "o\n");
  CHECK(token.end == end);
  const auto answer = millrace::text::json_leaves::parse("{\"accessToken\":\"n\\\"\",\"expiresIn\":60}");
  CHECK(token.renewed(*answer, *end).text == text("n\\\"", "2009-02-07T09:01:00Z", "r"));
  const auto both =
      millrace::text::json_leaves::parse("{\"accessToken\":\"n\",\"expiresIn\":60,\"refreshToken\":\"s\"}");
  CHECK(token.renewed(*both, *end).text == text("n", "2009-02-07T09:01:00Z", "s"));
}

TEST_CASE("of processes that renew an SSO token at once, those that are refused take what one has got",
          "[s3][credentials]") {
  fixture f(variables{{"HOME", "/home"}, {"AWS_PROFILE", "dev"}});
  f.world->files["/home/.aws/config"] =
      "[profile dev]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = r\n[sso-session corp]\n"
      "sso_region = eu-west-1\nsso_start_url = https://x\n";
  const std::string path = "/home/.aws/sso/cache/" + s3::detail::sha1_hex("corp") + ".json";
  const auto file = [](const std::string& access, const std::string& ends) {
    return "{\"accessToken\":\"" + access + "\",\"expiresAt\":\"" + ends +
           "\",\"clientId\":\"id\",\"clientSecret\":\"secret\",\"refreshToken\":\"once\"}";
  };
  recorded_exchange refused =
      exchange("POST", "https://oidc.eu-west-1.amazonaws.com/token", 400, "{\"error\":\"invalid_grant\"}");
  refused.fields["content-type"] = "application/json";
  recorded_exchange keys = exchange(
      "GET", "https://portal.sso.eu-west-1.amazonaws.com/federation/credentials?account_id=1&role_name=r", 200,
      "{\"roleCredentials\":{\"accessKeyId\":\"AK\",\"secretAccessKey\":\"s\",\"sessionToken\":\"t\",\"expiration\":"
      "1234003600000}}");
  keys.fields["x-amz-sso_bearer_token"] = "theirs";
  f.world->files[path] = file("old", "2009-02-07T09:00:00Z");
  f.answer({refused, keys});
  const auto other_process = [&]() -> millrace::task<void> {
    co_await millrace::sleep_for(std::chrono::milliseconds(2500));
    f.world->files[path] = file("theirs", "2009-02-07T10:00:00Z");
  };
  const millrace::spawned<void> writing(f.loop, other_process());
  CHECK(f.get() == "AK");
  CHECK(f.world->complaints.empty());
}

TEST_CASE("a file of secrets is replaced as a whole, and is the user's alone", "[s3][credentials]") {
  char folder[] = "/tmp/millrace-test-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/token.json";
  { std::ofstream(path) << "old"; }
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  CHECK(s3::detail::replace_secret_file(path, "new") == 0);
  CHECK(s3::detail::read_small_file(path).text == "new");
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(s3::detail::replace_secret_file(std::string(folder) + "/none/x", "new") == ENOENT);
  CHECK(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()) == 1);
  std::filesystem::remove_all(folder);
}
