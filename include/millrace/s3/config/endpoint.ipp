// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/s3/sign/signer.hpp>
#include <millrace/s3/url.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE bool is_host_label(std::string_view text) noexcept {
  if (text.empty() || text.size() > 63 || text.front() == '-' || text.back() == '-') return false;
  for (char c : text) {
    if (!text::is_alphanumeric(c) && c != '-') return false;
  }
  return true;
}

MILLRACE_INLINE bool is_host_labels(std::string_view text) noexcept {
  while (true) {
    const std::size_t dot = text.find('.');
    if (!is_host_label(text.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

MILLRACE_INLINE bool is_ipv4(std::string_view text) noexcept {
  int numbers = 0;
  while (true) {
    const std::size_t dot = text.find('.');
    const std::string_view one = text.substr(0, dot);
    if (one.size() > 3 || !text::parse_decimal<int>(one, 0, 255)) return false;
    ++numbers;
    if (dot == std::string_view::npos) return numbers == 4;
    text.remove_prefix(dot + 1);
  }
}

MILLRACE_INLINE bool is_virtual_hostable_bucket(std::string_view bucket, bool allow_dots) noexcept {
  if (bucket.size() < 3 || bucket.size() > 63 || is_ipv4(bucket)) return false;
  for (char c : bucket) {
    if (c >= 'A' && c <= 'Z') return false;
  }
  return allow_dots ? is_host_labels(bucket) : is_host_label(bucket);
}

MILLRACE_INLINE bool is_directory_bucket(std::string_view name) noexcept {
  return name.ends_with("--x-s3") || name.ends_with("--xa-s3");
}

MILLRACE_INLINE endpoint_url endpoint_url::parse(std::string_view text) {
  endpoint_url out;
  std::string_view rest = text;
  if (text::starts_ignoring_case(rest, "https://")) {
    out.scheme_ = "https";
  } else if (text::starts_ignoring_case(rest, "http://")) {
    out.scheme_ = "http";
  } else {
    refuse(text, "it must start with http:// or https://");
  }
  rest.remove_prefix(out.scheme_.size() + 3);
  if (rest.find_first_of("?#") != std::string_view::npos) refuse(text, "it must not have a query or a fragment");
  const std::size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? std::string_view() : rest.substr(slash);
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (!is_encoded_path(path)) refuse(text, "its path is not percent-encoded");
  out.prefix_ = path;
  if (authority.find('@') != std::string_view::npos) refuse(std::string_view(), "it must not contain user info");

  std::string_view port;
  if (!authority.empty() && authority.front() == '[') {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) refuse(text, "its IPv6 address lacks the ]");
    const std::string_view address = authority.substr(1, end - 1);
    if (address.find(':') == std::string_view::npos ||
        address.find_first_not_of("0123456789abcdefABCDEF:.") != std::string_view::npos) {
      refuse(text, "it has no IPv6 address between the brackets");
    }
    out.is_address_ = true;
    port = authority.substr(end + 1);
    authority = authority.substr(0, end + 1);
    if (!port.empty() && port.front() != ':') refuse(text, "something follows its IPv6 address");
  } else {
    const std::size_t colon = authority.find(':');
    if (colon != std::string_view::npos) {
      port = authority.substr(colon);
      authority = authority.substr(0, colon);
    }
    out.is_address_ = is_ipv4(authority);
  }
  if (authority.empty()) refuse(text, "it names no host");
  for (char c : authority) {
    const auto u = static_cast<unsigned char>(c);
    if (u <= 0x20 || u >= 0x7f || std::string_view("\"<>\\^`{|}%").find(c) != std::string_view::npos) {
      refuse(text, "its host has a character that no host name has");
    }
    out.host_ += text::to_lower(c);
  }
  if (!port.empty()) out.set_port(port.substr(1), text);
  return out;
}

MILLRACE_INLINE void endpoint_url::refuse(std::string_view text, const char* why) {
  where at;
  at.object = millrace::detail::without_secrets(std::string(text));
  throw configuration_error(std::string("not a usable endpoint URL: ") + why, at);
}

MILLRACE_INLINE void endpoint_url::set_port(std::string_view digits, std::string_view text) {
  const std::optional<unsigned> value = text::parse_decimal<unsigned>(digits, 1, 65535);
  if (!value) refuse(text, "its port is not a number from 1 to 65535");
  if (*value != (scheme_ == "https" ? 443u : 80u)) port_ = ":" + std::to_string(*value);
}

MILLRACE_INLINE partition partition_of(std::string_view region) noexcept {
  struct row {
    std::string_view prefix;
    partition where;
  };
  static constexpr row table[] = {
      {"cn-", {"aws-cn", "amazonaws.com.cn"}},       {"aws-cn-", {"aws-cn", "amazonaws.com.cn"}},
      {"us-gov-", {"aws-us-gov", "amazonaws.com"}},  {"aws-us-gov-", {"aws-us-gov", "amazonaws.com"}},
      {"us-iso-", {"aws-iso", "c2s.ic.gov"}},        {"aws-iso-global", {"aws-iso", "c2s.ic.gov"}},
      {"us-isob-", {"aws-iso-b", "sc2s.sgov.gov"}},  {"aws-iso-b-", {"aws-iso-b", "sc2s.sgov.gov"}},
      {"eu-isoe-", {"aws-iso-e", "cloud.adc-e.uk"}}, {"us-isof-", {"aws-iso-f", "csp.hci.ic.gov"}},
      {"eusc-", {"aws-eusc", "amazonaws.eu"}},
  };
  for (const row& r : table) {
    if (region.substr(0, r.prefix.size()) == r.prefix) return r.where;
  }
  return {"aws", "amazonaws.com"};
}

MILLRACE_INLINE service_endpoint::service_endpoint(const settings& s, std::string_view host, const char* variable,
                                                   std::string_view section, const std::string& region) {
  if (const choice url = choose_endpoint(s, variable, section); url.value()) {
    const endpoint_url parts = endpoint_url::parse(*url.value());
    scheme = parts.scheme();
    authority = parts.host() + parts.port();
    prefix = parts.prefix();
    return;
  }
  if (!is_host_label(region)) throw configuration_error("not a region: \"" + region + "\"");
  const bool fips = choose_fips(s).flag(false);
  const bool dual = choose_dual_stack(s).flag(false);
  scheme = "https";
  authority = std::string(host) + (fips ? "-fips." : ".") + region + ".";
  const partition p = partition_of(region);
  if (!dual) {
    authority += p.dns_suffix;
  } else {
    authority += p.name == "aws-cn" ? "api.amazonwebservices.com.cn" : "api.aws";
  }
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE std::string endpoint::path(std::string_view key) const {
  std::string out;
  out.reserve(base_.size() + 1 + key.size() + key.size() / 8);
  out += base_;
  if (out.empty() || !key.empty()) out += '/';
  text::append_encoded_path(out, key);
  return out;
}

MILLRACE_INLINE std::string endpoint::url(std::string_view key) const {
  std::string out(scheme_);
  out += "://";
  out += host_;
  out += path(key);
  return out;
}

MILLRACE_INLINE void endpoint::refuse(std::string why, std::string_view bucket) {
  where at;
  at.object = bucket;
  throw configuration_error(std::move(why), at);
}

MILLRACE_INLINE std::string endpoint::regional_host(const config& c, std::string_view service,
                                                    std::string_view region, std::string_view zone) {
  std::string host(service);
  if (c.fips) host += "-fips";
  if (!zone.empty()) host += '-';
  host += zone;
  if (c.dual_stack) host += ".dualstack";
  host += '.';
  host += region;
  host += '.';
  host += detail::partition_of(region).dns_suffix;
  return host;
}

MILLRACE_INLINE std::string endpoint::zonal_host(const config& c, std::string_view bucket, std::string_view region) {
  std::string_view rest = bucket.substr(0, bucket.rfind("--"));
  const std::size_t at = rest.rfind("--");
  const std::string_view zone = at == std::string_view::npos ? std::string_view() : rest.substr(at + 2);
  if (at == 0 || zone.find('-') == std::string_view::npos) {
    refuse("a directory bucket is named after its zone: expected NAME--usw2-az1--x-s3", bucket);
  }
  if (c.style == addressing::path) refuse("a directory bucket cannot be addressed in the path", bucket);
  return regional_host(c, "s3express", region, zone);
}

MILLRACE_INLINE endpoint::endpoint(const config& c, std::string_view bucket) {
  const bool custom = !c.endpoint_url.empty();
  region_ = c.region;
  if (region_.empty() && custom) region_ = "us-east-1";  // S3-alikes without regions expect it
  if (region_.empty()) refuse("no region is set: set AWS_REGION or pass one");
  if (!detail::is_host_labels(region_)) refuse("not a region name: \"" + region_ + "\"");
  if (custom && c.dual_stack) refuse("dual-stack cannot be combined with a custom endpoint");
  if (custom && c.fips) refuse("FIPS cannot be combined with a custom endpoint");
  if (c.fips && detail::partition_of(region_).name == "aws-cn") {
    refuse("there are no FIPS endpoints in the region " + region_);
  }
  if (bucket.ends_with("--op-s3")) refuse("S3 on Outposts is not supported", bucket);
  if (bucket.substr(0, 4) == "arn:") {
    use_access_point(c, bucket);
    return;
  }

  // The pseudo region aws-global, and us-east-1 on demand, stand for the one host that has no region in its name.
  const bool global = region_ == "aws-global" || (c.global_us_east_1 && region_ == "us-east-1");
  if (region_ == "aws-global") region_ = "us-east-1";

  const bool directory = detail::is_directory_bucket(bucket);
  if (directory) {
    service_ = "s3express";
    if (!detail::is_virtual_hostable_bucket(bucket, false)) {
      refuse("the name of a directory bucket may only have lower-case letters, digits and -", bucket);
    }
  }

  bool address = false;
  std::string port;
  if (custom) {
    const detail::endpoint_url url = detail::endpoint_url::parse(c.endpoint_url);
    scheme_ = url.scheme();
    host_ = url.host();
    port = url.port();
    base_ = url.prefix();
    address = url.is_address();
  } else if (directory) {
    host_ = zonal_host(c, bucket, region_);
  } else if (global && !c.fips && !c.dual_stack) {
    host_ = "s3.amazonaws.com";
  } else {
    host_ = regional_host(c, "s3", region_);
  }
  const bool in_host = !bucket.empty() && !address && c.style != addressing::path &&
                       !(custom && c.style == addressing::automatic) &&
                       detail::is_virtual_hostable_bucket(bucket, scheme_ == "http");
  if (in_host) {
    host_.insert(0, 1, '.');
    host_.insert(0, bucket);
  } else if (!bucket.empty()) {
    base_ += '/';
    text::append_encoded_query(base_, bucket);
  }
  host_ += port;
  lower_host();
}

MILLRACE_INLINE void endpoint::use_access_point(const config& c, std::string_view text) {
  const std::optional<arn> name = arn::parse(text);
  if (!name) refuse("not a complete ARN: expected arn:partition:s3:region:account:accesspoint:name", text);
  if (name->service == "s3-outposts") refuse("S3 on Outposts is not supported", text);
  if (name->service == "s3-object-lambda") refuse("S3 Object Lambda is not supported", text);
  if (name->service != "s3") refuse("the ARN is not of S3", text);
  if (name->resource_part(0) != std::string_view("accesspoint")) refuse("the ARN is not of an access point", text);
  const std::string_view point = name->resource_part(1).value_or(std::string_view());
  if (point.empty() || name->resource_part(2)) refuse("the ARN must name one access point", text);
  if (name->region.empty()) refuse("multi-region access points are not supported (they need SigV4A)", text);
  if (c.style == addressing::path) refuse("an access point cannot be addressed in the path", text);
  if (!detail::is_host_labels(name->region)) refuse("the ARN's region is not a region name", text);
  if (!detail::is_host_label(point)) refuse("the ARN's access point name may only have letters, digits and -", text);
  if (!detail::is_host_label(name->account)) refuse("the ARN's account may only have letters, digits and -", text);
  const detail::partition there = detail::partition_of(name->region);
  if (there.name != detail::partition_of(region_).name || there.name != name->partition) {
    refuse("the ARN is of another AWS partition than the region " + region_, text);
  }
  if (name->region != region_ && !c.use_arn_region) {
    refuse("the ARN's region is not " + region_ + ", and the use of other regions is switched off", text);
  }
  host_ = point;
  host_ += '-';
  host_ += name->account;
  host_ += '.';
  if (c.endpoint_url.empty()) {
    host_ += regional_host(c, "s3-accesspoint", name->region);
  } else {
    const detail::endpoint_url url = detail::endpoint_url::parse(c.endpoint_url);
    if (url.is_address()) refuse("an access point cannot be reached at an address", text);
    scheme_ = url.scheme();
    host_ += url.host();
    host_ += url.port();
    base_ = url.prefix();
  }
  lower_host();
  region_ = name->region;
}

}  // namespace millrace::s3
