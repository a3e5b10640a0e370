// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/auth/detail/credential_requests.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/config/profile_file.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/s3/sign/signer.hpp>
#include <millrace/s3/wire/detail/xml.hpp>
#include <millrace/s3/wire/documents.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// A role to be assumed, as it stands in a profile or in the environment.
class role_request {
 public:
  std::string arn;
  std::string session_name;  ///< empty: one of our own making
  std::string external_id;
  int duration_seconds = 0;  ///< 0: as the service likes
  std::string token_file;    ///< of a web identity
};

/// The SSO token and role of a profile in AWS IAM Identity Center.
class sso_request {
 public:
  std::string session;  ///< empty in the old form, without [sso-session]
  std::string start_url;
  std::string region;
  std::string account;
  std::string role;
};

/// Origin of the first credentials of a profile.
enum class profile_base { keys, environment, instance, container, web_identity, sso, process };

/// How a profile gives credentials: a base, and roles to be assumed one after the other. Pure: sends no requests.
///
/// The rules are those of the AWS SDKs: a profile with role_arn takes its base from exactly one of source_profile and
/// credential_source; static keys in a profile that is a source_profile end the chain there; a profile may name itself
/// as source for its own keys; loops are errors.
class profile_chain {
 public:
  /// Nothing when there is no such profile or it says nothing about credentials; configuration_error when it does and
  /// cannot work. `file` is for messages.
  static std::optional<profile_chain> of(const profile_file& files, std::string_view name,
                                         std::string_view file) {
    profile_chain out;
    out.file_ = file;
    out.sessions_ = &files;
    if (!out.follow(files, std::string(name))) return std::nullopt;
    for (std::size_t a = 0, b = out.roles.size(); a + 1 < b; ++a) std::swap(out.roles[a], out.roles[--b]);
    out.sessions_ = nullptr;
    return out;
  }

  profile_base base = profile_base::keys;
  std::string base_profile;  ///< name of the profile with the base
  credentials keys;
  role_request web_identity;
  sso_request sso;
  std::string command;
  std::vector<role_request> roles;  ///< in the order in which they are assumed

  /// `profile training: static keys, then role arn:...`, without secrets.
  std::string description() const {
    std::string text = "profile " + base_profile + ": ";
    switch (base) {
      case profile_base::keys:
        text += "static keys";
        break;
      case profile_base::environment:
        text += "the environment's keys";
        break;
      case profile_base::instance:
        text += "instance metadata";
        break;
      case profile_base::container:
        text += "the container's credentials";
        break;
      case profile_base::web_identity:
        text += "web identity " + web_identity.token_file + " for role " + web_identity.arn;
        break;
      case profile_base::sso:
        text += "SSO " + (sso.session.empty() ? sso.start_url : sso.session);
        break;
      case profile_base::process:
        text += "credential_process";  // its arguments may be secrets
        break;
    }
    for (const role_request& r : roles) text += ", then role " + r.arn;
    return text;
  }

 private:
  profile_chain() = default;

  [[noreturn]] void refuse(const std::string& why) const {
    throw configuration_error(why, where{file_, std::nullopt, std::string()});
  }

  static std::optional<std::string> text(const profile& p, std::string_view name) {
    const std::optional<std::string_view> value = p.find(name);
    if (!value || value->find_first_not_of(" \t\n") == std::string_view::npos) return std::nullopt;
    return std::string(*value);
  }

  bool follow(const profile_file& files, std::string name) {
    std::vector<std::string> visited;
    for (;;) {
      const profile* p = files.find(name);
      if (p == nullptr) {
        if (visited.empty()) return false;
        refuse("could not find source profile " + name + " referenced from " + visited.back());
      }
      bool again = false;
      for (const std::string& v : visited) again = again || v == name;
      if (again) {
        std::string round;
        for (const std::string& v : visited) round += v + " -> ";
        refuse("profile formed an infinite loop: " + round + name);
      }
      visited.push_back(name);
      base_profile = name;
      const bool is_source = visited.size() > 1;
      if (is_source && take_keys(*p, false)) return true;
      const std::optional<std::string> role = text(*p, "role_arn");
      if (!role || text(*p, "web_identity_token_file")) return take_base(*p, is_source);
      const std::optional<std::string> source = text(*p, "source_profile");
      const std::optional<std::string> named = text(*p, "credential_source");
      if (source && named) refuse("profile contained both source_profile and credential_source: " + name);
      if (!source && !named) {
        refuse("profile must contain `source_profile` or `credential_source` beside its role_arn: " + name);
      }
      roles.push_back(role_of(*p, *role));
      if (named) return take_named_source(*named);
      if (*source == name) return take_base(*p, true);
      name = *source;
    }
  }

  role_request role_of(const profile& p, const std::string& arn) const {
    role_request r;
    r.arn = arn;
    r.session_name = text(p, "role_session_name").value_or(std::string());
    r.external_id = text(p, "external_id").value_or(std::string());
    if (text(p, "mfa_serial")) {
      refuse("profile " + base_profile + " needs a code of an MFA device, which cannot be typed here");
    }
    if (const std::optional<std::string> seconds = text(p, "duration_seconds")) {
      const std::optional<int> value = text::parse_decimal<int>(*seconds, 900, 43200);
      if (!value) refuse("duration_seconds of profile " + base_profile + " is not a number from 900 to 43200");
      r.duration_seconds = *value;
    }
    return r;
  }

  bool take_named_source(const std::string& source) {
    if (source == "Environment") {
      base = profile_base::environment;
    } else if (source == "Ec2InstanceMetadata") {
      base = profile_base::instance;
    } else if (source == "EcsContainer") {
      base = profile_base::container;
    } else {
      refuse("credential_source of profile " + base_profile + " is \"" + source +
             "\": expected Environment, Ec2InstanceMetadata or EcsContainer");
    }
    return true;
  }

  /// Takes the base from the profile itself. A source profile must have something.
  bool take_base(const profile& p, bool is_source) {
    if (take_web_identity(p) || take_sso_session(p) || take_old_sso(p)) return true;
    if (take_keys(p, true)) return true;
    if (std::optional<std::string> line = text(p, "credential_process")) {
      base = profile_base::process;
      command = std::move(*line);
      return true;
    }
    if (text(p, "login_session")) {
      refuse("profile " + base_profile + " has a login_session: the files of `aws login` are not read here");
    }
    if (is_source) refuse("profile `" + base_profile + "` did not contain credential information");
    return false;
  }

  /// `strict`: half a pair is an error; without, only a whole pair counts.
  bool take_keys(const profile& p, bool strict) {
    const std::optional<std::string_view> key = p.find("aws_access_key_id");
    const std::optional<std::string_view> secret = p.find("aws_secret_access_key");
    if (!key && !secret) return false;
    if (!key || !secret) {
      if (!strict) return false;
      refuse(std::string("profile missing ") + (key ? "aws_secret_access_key" : "aws_access_key_id") + ": " +
             base_profile);
    }
    base = profile_base::keys;
    try {
      keys = credentials(*key, *secret, p.find("aws_session_token").value_or(std::string_view()));
    } catch (const configuration_error& e) {
      refuse("profile " + base_profile + ": " + e.reason());
    }
    return true;
  }

  bool take_web_identity(const profile& p) {
    const std::optional<std::string> token = text(p, "web_identity_token_file");
    if (!token) return false;
    const std::optional<std::string> role = text(p, "role_arn");
    if (!role) {
      refuse("profile " + base_profile + ": `web_identity_token_file` was specified but `role_arn` was missing");
    }
    base = profile_base::web_identity;
    web_identity = role_of(p, *role);
    web_identity.token_file = *token;
    return true;
  }

  bool take_sso_session(const profile& p) {
    const std::optional<std::string> session = text(p, "sso_session");
    if (!session) return false;
    for (const char* name : {"sso_region", "sso_start_url"}) {
      if (text(p, name)) {
        refuse("profile " + base_profile + ": `" + name +
               "` can only be specified in the [sso-session] config when a session name is given");
      }
    }
    const profile* s = sessions_->find_sso_session(*session);
    if (s == nullptr) {
      refuse("sso-session named `" + *session + "` (referenced by profile `" + base_profile + "`) was not found");
    }
    sso.session = *session;
    return take_sso(p, *s);
  }
  bool take_old_sso(const profile& p) {
    bool any = false;
    for (const char* name : {"sso_start_url", "sso_region", "sso_account_id", "sso_role_name"}) {
      any = any || text(p, name).has_value();
    }
    return any && take_sso(p, p);
  }
  bool take_sso(const profile& p, const profile& where_from) {
    base = profile_base::sso;
    const auto need = [&](const profile& from, const char* name) {
      std::optional<std::string> value = text(from, name);
      if (!value) refuse("SSO of profile " + base_profile + ": `" + name + "` is missing");
      return std::move(*value);
    };
    const bool account = text(p, "sso_account_id").has_value();
    const bool role = text(p, "sso_role_name").has_value();
    if (!account && role) {
      refuse("profile " + base_profile + ": if `sso_role_name` is set, then `sso_account_id` must also be set");
    }
    if (account && !role) {
      refuse("profile " + base_profile + ": if `sso_account_id` is set, then `sso_role_name` must also be set");
    }
    if (!account) {
      refuse("the selected profile will resolve an access token instead of credentials: profile " + base_profile +
             " has no `sso_account_id` and no `sso_role_name`");
    }
    sso.start_url = need(where_from, "sso_start_url");
    sso.region = need(where_from, "sso_region");
    sso.account = need(p, "sso_account_id");
    sso.role = need(p, "sso_role_name");
    return true;
  }

  std::string file_;
  const profile_file* sessions_ = nullptr;  // while it is followed
};

/// Collects the credentials of an answer of STS.
class sts_answer final : public xml_handler {
 public:
  sts_answer() = default;
  sts_answer(const sts_answer&) = delete;
  sts_answer& operator=(const sts_answer&) = delete;
  ~sts_answer() {
    for (std::string* s : {&secret, &token}) OPENSSL_cleanse(s->data(), s->size());
  }
  void leaf(std::string_view path, const std::string& text) override {
    const std::size_t at = path.find("Result/Credentials/");
    if (at == std::string_view::npos) return;
    path.remove_prefix(at + 19);
    const std::string_view value = text::trimmed(text);
    if (path == "AccessKeyId") key = value;
    if (path == "SecretAccessKey") secret = value;
    if (path == "SessionToken") token = value;
    if (path == "Expiration") expiration = value;
  }

  std::string key;
  std::string secret;
  std::string token;
  std::string expiration;
};

inline credentials credentials_of_sts(std::string_view body, const std::string& url) {
  const where at{url, std::nullopt, std::string()};
  sts_answer answer;
  xml_limits limits;
  limits.document = 64 * KiB;
  xml_reader reader(answer, limits);
  const std::string wrong = reader.read(body);
  if (!wrong.empty()) throw error(200, std::string(), wrong, std::string(), at);
  const std::optional<std::int64_t> end = text::parse_iso8601(answer.expiration);
  if (answer.key.empty() || answer.secret.empty() || answer.token.empty() || !end) {
    throw error(200, std::string(), "the answer of STS lacks a part of the credentials", std::string(), at);
  }
  return credentials(answer.key, answer.secret, answer.token, end);
}

inline error refusal_of_sts(const http::response& answer, const std::string& url) {
  error_document document = error_document::parse(answer.body).value_or(error_document());
  // Some refusals repeat the signed text, with the session token in it.
  document.message.resize(std::min(document.message.size(), document.message.find('\n')));
  document.message.resize(std::min(document.message.size(), document.message.find("The Canonical String")));
  if (document.code.empty() && document.message.empty()) document.message = "STS refused the request";
  return error(answer.head.status, document.code, document.message, document.request_id,
               where{url, std::nullopt, std::string()});
}

/// The form that STS is sent; in the order of its documentation.
inline std::string sts_form(std::string_view action, const role_request& role, std::int64_t now) {
  std::string form;
  text::append_query_parameter(form, "Action", action);
  text::append_query_parameter(form, "Version", "2011-06-15");
  text::append_query_parameter(form, "RoleArn", role.arn);
  text::append_query_parameter(form, "RoleSessionName",
                         role.session_name.empty() ? "millrace-" + std::to_string(now) : role.session_name);
  if (role.duration_seconds != 0)
    text::append_query_parameter(form, "DurationSeconds", std::to_string(role.duration_seconds));
  if (!role.external_id.empty()) text::append_query_parameter(form, "ExternalId", role.external_id);
  return form;
}

inline http::request sts_request(const service_endpoint& to, std::string_view form) {
  http::request r("POST", to.url("/"));
  r.fields.add("content-type", "application/x-www-form-urlencoded");
  r.body = bytes::copy(form);
  return r;
}

/// The region whose STS is used; without one, the region that always exists.
inline std::string sts_region(const settings& s) {
  std::string region = choose_region(s).value_or_empty();
  return region.empty() ? "us-east-1" : region;
}

/// AssumeRole, signed with `base`. Throws s3::error if STS refuses, http::error if the transport fails.
template <class World>
task<credentials> assume_role(World& world, const settings& s, role_request role, credentials base) {
  const std::string region = sts_region(s);
  const service_endpoint to(s, "sts", "AWS_ENDPOINT_URL_STS", "sts", region);
  const std::string url = to.url("/");
  signing_options style;
  style.encode_path = true;
  style.normalize_path = true;
  style.send_content_sha256 = false;
  signer sign(style);
  const std::string path = to.prefix + "/";
  std::int64_t skew = 0;
  const auto make = [&] {
    const std::int64_t now = world.now() + skew;
    const std::string form = sts_form("AssumeRole", role, now);
    http::request r = sts_request(to, form);
    const std::string hash = sign.payload_sha256(form);
    const header_field type{"content-type", "application/x-www-form-urlencoded"};
    signing_request q;
    q.method = "POST";
    q.host = to.authority;
    q.path = path;
    q.headers = std::span<const header_field>(&type, 1);
    q.region = region;
    q.service = "sts";
    q.payload = hash;
    for (const header_field& f : sign.sign(q, base, now)) r.fields.add(std::string(f.name), std::string(f.value));
    return r;
  };
  // A server whose clock is far from ours may refuse for that reason: signed again with its time, once.
  const auto again = [&](const http::response& answer) {
    if (is_overload(answer)) return true;
    const std::string* date = answer.head.fields.find("date");
    if (answer.head.status < 400 || date == nullptr || skew != 0) return false;
    const std::optional<std::int64_t> theirs = text::parse_http_date(*date, world.now());
    const std::int64_t off = theirs ? *theirs - world.now() : 0;
    if (off > -240 && off < 240) return false;
    skew = off;
    return true;
  };
  const request_limits limits;
  http::response answer = co_await send_until(world, make, limits, again);
  const wiped_text wiped(answer.body);
  if (answer.head.status != 200) throw refusal_of_sts(answer, url);
  co_return credentials_of_sts(answer.body, url);
}

/// AssumeRoleWithWebIdentity: unsigned; the token file is read now, since it is replaced from time to time. The request
/// is repeated while STS cannot reach the identity provider, and while it does not know a new token.
template <class World>
task<credentials> assume_web_identity(World& world, const settings& s, role_request role) {
  const where at{role.token_file, std::nullopt, std::string()};
  const service_endpoint to(s, "sts", "AWS_ENDPOINT_URL_STS", "sts", sts_region(s));
  const std::string url = to.url("/");
  std::string form = sts_form("AssumeRoleWithWebIdentity", role, world.now());
  {
    const file_text token = world.read_file(role.token_file);
    if (token.error != 0) throw configuration_error("failed to read the web identity token: " + token.reason(), at);
    std::string_view text = token.text;
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
    if (text.empty()) throw configuration_error("the web identity token is empty", at);
    form.reserve(form.size() + 3 * text.size() + 32);
    text::append_query_parameter(form, "WebIdentityToken", text);
  }
  const wiped_text wiped_form(form);
  const auto make = [&] { return sts_request(to, form); };
  const auto again = [](const http::response& answer) {
    if (is_overload(answer)) return true;
    if (answer.head.status < 400) return false;
    const std::optional<error_document> document = error_document::parse(answer.body);
    return document && (document->code == "IDPCommunicationError" || document->code == "InvalidIdentityToken");
  };
  const request_limits limits;
  http::response answer = co_await send_until(world, make, limits, again);
  const wiped_text wiped(answer.body);
  if (answer.head.status != 200) throw refusal_of_sts(answer, url);
  co_return credentials_of_sts(answer.body, url);
}

inline std::string sha1_hex(std::string_view text) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), hash, &size, EVP_sha1(), nullptr) != 1) {
    throw configuration_error("OpenSSL cannot compute SHA-1, which names the files of SSO tokens");
  }
  static constexpr char hex[] = "0123456789abcdef";
  std::string out;
  for (unsigned i = 0; i < size; ++i) {
    out += hex[hash[i] >> 4];
    out += hex[hash[i] & 15];
  }
  return out;
}

/// "2026-01-31T12:00:00Z"
inline std::string iso8601(std::int64_t seconds) {
  const text::civil_time t = text::civil_from_unix(seconds);
  char out[40];
  std::snprintf(out, sizeof out, "%04d-%02d-%02dT%02d:%02d:%02dZ", t.year, t.month, t.day, t.hour, t.minute, t.second);
  return out;
}

/// `document`, an intact object of JSON, with `access`, `until` and `again` in place of the strings accessToken,
/// expiresAt and refreshToken. All else, which other programs may have written there, stays as it is, byte by byte.
inline std::string with_token(std::string_view document, std::string_view access, std::string_view until,
                              std::string_view again) {
  std::string out;
  // All of it: growing would leave secrets in freed memory.
  out.reserve(document.size() + 6 * (access.size() + until.size() + again.size()) + 8);
  std::string_view name;
  bool of_value = false;  // and not a name
  int depth = 0;
  for (std::size_t i = 0; i < document.size(); ++i) {
    const char c = document[i];
    if (c == '"') {
      const std::size_t begin = i++;
      while (document[i] != '"') i += document[i] == '\\' ? 2u : 1u;
      const std::string_view text = document.substr(begin, i + 1 - begin);
      if (depth == 1 && !of_value) name = text;
      const bool member = depth == 1 && of_value;
      if (member && name == "\"accessToken\"") {
        text::append_json_string(out, access);
      } else if (member && name == "\"expiresAt\"") {
        text::append_json_string(out, until);
      } else if (member && name == "\"refreshToken\"") {
        text::append_json_string(out, again);
      } else {
        out += text;
      }
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ':' || c == ',') of_value = c == ':';
    out += c;
  }
  return out;
}

/// A file that `aws sso login` has left in ~/.aws/sso/cache, and that is renewed there. Its texts are secrets.
class sso_token {
 public:
  /// Throws configuration_error, with `remedy`, if the file is none.
  sso_token(file_text file, const where& at, const std::string& remedy) : file_(std::move(file)) {
    if (file_.error != 0) throw configuration_error("failed to read the SSO token: " + file_.reason() + remedy, at);
    std::optional<text::json_leaves> read = text::json_leaves::parse(file_.text);
    if (read) leaves_.emplace(std::move(*read));
    const std::optional<std::int64_t> ends = text::parse_iso8601(part("expiresAt"));
    if (part("accessToken").empty() || !ends) throw configuration_error("this is no SSO token" + remedy, at);
    end = *ends;
  }

  std::string_view access() const noexcept { return part("accessToken"); }
  std::string_view text() const noexcept { return file_.text; }
  /// True if it has the values that the service wants for a new one, and the registration of the client still stands.
  bool renewable(std::int64_t now) const {
    for (const char* name : {"refreshToken", "clientId", "clientSecret"}) {
      if (part(name).empty()) return false;
    }
    const std::optional<std::int64_t> registered = text::parse_iso8601(part("registrationExpiresAt"));
    return !registered || *registered > now;
  }
  /// The body of CreateToken.
  std::string request() const {
    std::string out;
    out.reserve(6 * file_.text.size() + 128);  // growing would leave secrets in freed memory
    for (const char* name : {"clientId", "clientSecret", "refreshToken"}) append_member(out, name, part(name));
    append_member(out, "grantType", "refresh_token");
    out += '}';
    return out;
  }
  /// The file with the new token in it, of `answer`; empty if the answer has none.
  file_text renewed(const text::json_leaves& answer, std::int64_t now) const {
    const std::optional<std::int64_t> lasts = answer.find_number("expiresIn");
    const std::string_view fresh = answer.find("accessToken").value_or(std::string_view());
    if (fresh.empty() || !lasts) return file_text(std::string());
    const std::string until = iso8601(now + *lasts);
    const std::string_view again = answer.find("refreshToken").value_or(part("refreshToken"));
    return file_text(with_token(file_.text, fresh, until, again));
  }

  std::int64_t end = 0;  ///< unix seconds

 private:
  static void append_member(std::string& out, std::string_view name, std::string_view value) {
    out += out.empty() ? '{' : ',';
    text::append_json_string(out, name);
    out += ':';
    text::append_json_string(out, value);
  }
  std::string_view part(std::string_view name) const noexcept {
    return leaves_ ? leaves_->find(name).value_or(std::string_view()) : std::string_view();
  }
  file_text file_;
  std::optional<text::json_leaves> leaves_;
};

/// Renews `token`, of the file that `at` names, by its refresh token (sso-oidc CreateToken), there too. Gives why not;
/// empty: it is done, or another process has done it. `token` must outlive the task.
template <class World>
task<std::string> renew_sso_token(World& world, const settings& s, sso_request what, where at, std::string remedy,
                                  std::optional<sso_token>& token) {
  executor& ex = co_await this_executor();
  // A refresh token may serve once: it is not spent if the new one has no place.
  if (const int refused = world.new_file_refused(at.object)) {
    co_return "its file cannot be replaced: " + std::generic_category().message(refused);
  }
  // True if another process has replaced the file: then `token` is the new one.
  const auto replaced = [&] {
    sso_token there(world.read_file(at.object), at, remedy);
    if (there.access() == token->access()) return false;
    token.emplace(std::move(there));
    return true;
  };
  const service_endpoint to(s, "oidc", "AWS_ENDPOINT_URL_SSO_OIDC", "sso_oidc", what.region);
  std::string body = token->request();
  const wiped_text wiped_body(body);
  const auto make = [&] {
    http::request r("POST", to.url("/token"));
    r.fields.add("content-type", "application/json");
    r.body = bytes::copy(body);
    return r;
  };
  const request_limits limits;
  std::string why;
  try {
    http::response answer = co_await send_until(world, make, limits, is_overload);
    const wiped_text wiped(answer.body);
    const std::optional<text::json_leaves> said = text::json_leaves::parse(answer.body);
    if (answer.head.status == 200 && said) {
      file_text file = token->renewed(*said, world.now());
      if (file.text.empty()) co_return "the answer to its refresh token lacks a part";
      sso_token fresh(std::move(file), at, remedy);
      if (replaced()) co_return std::string();
      if (const int failed = world.replace_file(at.object, fresh.text())) {
        millrace::detail::log_line(ex, "millrace: the new SSO token cannot be written to " + at.object + ": " +
                                           std::generic_category().message(failed) +
                                           "; this process uses it to its end" + remedy + " before that");
      }
      token.emplace(std::move(fresh));
      co_return std::string();
    }
    why = "its refresh token gave " + std::to_string(answer.head.status);
    if (said) why += " " + std::string(said->find("error").value_or(std::string_view()));
  } catch (const http::error& e) {
    why = "its refresh token could not be used: " + e.reason();
  }
  // If several processes use it at once, one may be served, and about to write the file.
  for (int looks = 0; looks < 4; ++looks) {
    if (looks > 0) co_await sleep_for(duration(1'000'000'000));
    if (replaced()) co_return std::string();
  }
  co_return why;
}

/// The credentials of a role of IAM Identity Center, by the token that `aws sso login` has left in
/// ~/.aws/sso/cache. Five minutes before its end it is renewed there, if it has a refresh token ([sso-session]). This
/// never starts a login: without a valid token it throws and names the command to run.
template <class World>
task<credentials> sso_credentials(World& world, const settings& s, sso_request what) {
  const std::string remedy =
      ": run `aws sso login" + (s.profile_name() == "default" ? std::string() : " --profile " + s.profile_name()) + "`";
  const std::optional<std::string> home = s.variable("HOME");
  if (!home) throw configuration_error("SSO needs HOME to find the token" + remedy);
  const std::string path =
      *home + "/.aws/sso/cache/" + sha1_hex(what.session.empty() ? what.start_url : what.session) + ".json";
  const where at{path, std::nullopt, std::string()};
  const service_endpoint to(s, "portal.sso", "AWS_ENDPOINT_URL_SSO", "sso", what.region);
  std::string query;
  text::append_query_parameter(query, "account_id", what.account);
  text::append_query_parameter(query, "role_name", what.role);
  http::request wanted(to.url("/federation/credentials?" + query));
  {
    std::optional<sso_token> token;
    token.emplace(world.read_file(path), at, remedy);
    std::string why;
    if (token->end <= world.now() + 5 * 60 && !what.session.empty() && token->renewable(world.now())) {
      task<std::string> renewing = renew_sso_token(world, s, what, at, remedy, token);
      why = co_await std::move(renewing);
    }
    if (token->end <= world.now()) {
      throw configuration_error("the SSO token has expired" + (why.empty() ? why : ", and " + why) + remedy, at);
    }
    wanted.fields.add("x-amz-sso_bearer_token", std::string(token->access()));
  }
  const auto make = [&] { return wanted; };
  const request_limits limits;
  http::response answer = co_await send_until(world, make, limits, is_overload);
  const wiped_text wiped(answer.body);
  const where portal{http::displayed(wanted.url), std::nullopt, std::string()};
  if (answer.head.status == 401) throw configuration_error("the SSO token is not accepted" + remedy, portal);
  if (answer.head.status != 200) {
    const std::optional<text::json_leaves> body = text::json_leaves::parse(answer.body);
    const std::string why(body ? body->find("message").value_or(std::string_view()) : std::string_view());
    throw error(answer.head.status, std::string(), why.empty() ? "SSO gave no credentials" : why, std::string(),
                portal);
  }
  const std::optional<text::json_leaves> body = text::json_leaves::parse(answer.body);
  const auto part = [&](const char* name) {
    return body ? body->find(std::string("roleCredentials/") + name).value_or(std::string_view()) : std::string_view();
  };
  const std::optional<std::int64_t> end = body ? body->find_number("roleCredentials/expiration") : std::nullopt;
  if (part("accessKeyId").empty() || part("secretAccessKey").empty() || part("sessionToken").empty() || !end) {
    throw error(200, std::string(), "the answer of SSO lacks a part of the credentials", std::string(), portal);
  }
  co_return credentials(part("accessKeyId"), part("secretAccessKey"), part("sessionToken"), *end / 1000);
}

}  // namespace millrace::s3::detail
