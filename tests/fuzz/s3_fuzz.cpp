// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: everything in s3/ that reads what others have written. Each input goes to every reader: listings and error
// documents, configuration files, URLs, ARNs, endpoints, JSON, credentials, dates, percent encoding. They must end,
// throw nothing but what they say, and keep their promises about what they give.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/s3_fuzz.cpp -lexpat -lcrypto

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/s3/auth/detail/credential_requests.hpp>
#include <millrace/s3/auth/detail/metadata_sources.hpp>
#include <millrace/s3/auth/detail/profile_sources.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/config/profile_file.hpp>
#include <millrace/s3/url.hpp>
#include <millrace/s3/wire/detail/xml.hpp>
#include <millrace/s3/wire/documents.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/text.hpp>

namespace {

namespace mill = millrace;
namespace s3 = millrace::s3;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Runs `read`, which may throw an `Error` and nothing else.
template <class Error, class Action>
void allow(Action read) {
  try {
    read();
  } catch (const Error& e) {
    require(e.what()[0] != '\0');
  }
}

bool is_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c != 0x7f; });
}

void documents(std::string_view text) {
  allow<s3::error>([&] {
    const s3::list_page page = s3::list_page::parse(text, "bucket");
    require(page.truncated == !page.next_continuation_token.empty());
    for (const s3::listed_object& o : page.objects) require(!o.key.empty());
  });
  if (const std::optional<s3::error_document> d = s3::error_document::parse(text)) {
    require(!d->code.empty());
    for (const std::string* part : {&d->code, &d->message, &d->region, &d->request_id}) require(part->size() <= 1024);
  }
  allow<s3::error>([&] {
    const mill::where at;
    require(!s3::detail::element_of(text, "InitiateMultipartUploadResult/UploadId", at).empty());
  });
  const std::string legal = s3::detail::xml_legal(text);
  require(legal.size() <= text.size() && s3::detail::xml_legal(legal) == legal);
}

void configuration(std::string_view text) {
  const std::size_t half = text.size() / 2;
  allow<mill::configuration_error>([&] {
    const s3::profile_file file = s3::profile_file::parse(text, text.substr(half));
    for (const auto& one : file.profiles()) {
      const std::string& name = one.first;
      require(file.find(name) == &one.second);
      allow<mill::configuration_error>([&] {
        const auto chain = s3::detail::profile_chain::of(file, name, "config");
        if (chain) require(!chain->description().empty());
      });
    }
  });
  allow<mill::configuration_error>([&] {
    std::string value(text);
    const auto look_up = [&](const char* name) -> const char* {
      return std::string_view(name) == "AWS_CONTAINER_CREDENTIALS_FULL_URI" ? value.c_str() : nullptr;
    };
    const mill::environment variables(look_up);
    const s3::settings nothing_else(variables, [](const std::string&) { return s3::detail::file_text(ENOENT); });
    const std::optional<std::string> url = s3::detail::container_url(nothing_else);
    require(!url || (is_text(*url) &&
                     (url->rfind("https://", 0) == 0 || url->find("127.") == 7 || url->find("169.254.170.2") == 7 ||
                      url->find('[') == 7 || millrace::text::equal_ignoring_case(url->substr(7, 9), "localhost"))));
  });
  allow<mill::configuration_error>([&] {
    s3::config_options o;
    o.endpoint = text.substr(0, half);
    o.region = "us-east-1";
    o.style = s3::addressing::virtual_hosted;
    const s3::endpoint to(s3::config(o), text.substr(half));
    require(is_text(to.host()) && to.host().find_first_of("/?#@") == std::string::npos);
    require(is_text(to.url(text)) && to.path(text).front() == '/');
  });
  allow<mill::configuration_error>([&] {
    s3::config_options o;
    o.region = text.substr(0, half);
    const s3::endpoint to(s3::config(o), text.substr(half));
    const std::string home = "." + std::string(s3::detail::partition_of(to.region()).dns_suffix);
    require(is_text(to.url(text)) && to.host().size() > home.size());
    require(to.host().compare(to.host().size() - home.size(), home.size(), home) == 0);  // AWS, whatever the region
  });
}

void names(std::string_view text) {
  allow<mill::configuration_error>([&] {
    const s3::url u = s3::url::parse(text);
    require(!u.bucket().empty() && s3::url::parse(u.to_string()) == u);
  });
  const std::string query = millrace::text::encode_query(text);
  require(is_text(query) && millrace::text::uri_decode(query) == text);
  require(millrace::text::uri_decode(millrace::text::encode_path(text)) == text);
  millrace::text::uri_decode(text, millrace::text::plus_sign::space);
  s3::arn::parse(text);
}

void values(std::string_view text) {
  millrace::text::parse_http_date(text, 1'800'000'000);
  millrace::text::parse_iso8601(text);
  allow<mill::error>([&] { require(!s3::detail::credentials_of_sts(text, "sts").session_token().empty()); });
  if (const std::optional<mill::text::json_leaves> json = mill::text::json_leaves::parse(text)) {
    allow<mill::configuration_error>([&] { s3::detail::json_credentials(*json, "Token", mill::where()); });
    json->find("Expiration");
    json->find_number("expiresAt");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  documents(text);
  configuration(text);
  names(text);
  values(text);
  return 0;
}
