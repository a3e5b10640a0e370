// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/arn.hpp>
#include <millrace/s3/config/detail/endpoint_url.hpp>
#include <millrace/s3/config/detail/host_name.hpp>
#include <millrace/s3/config/detail/partition.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3 {

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
                                                    std::string_view region) {
  std::string host(service);
  if (c.fips) host += "-fips";
  if (c.dual_stack) host += ".dualstack";
  host += '.';
  host += region;
  host += '.';
  host += detail::partition_of(region).dns_suffix;
  return host;
}

MILLRACE_INLINE endpoint::endpoint(const config& c, std::string_view bucket) {
  const bool custom = !c.endpoint_url.empty();
  region_ = c.region;
  if (region_.empty() && custom) region_ = "us-east-1";  // what S3-alikes without regions expect
  if (region_.empty()) refuse("no region is set: set AWS_REGION or pass one");
  if (!detail::is_host_labels(region_)) refuse("not a region name: \"" + region_ + "\"");
  if (custom && c.dual_stack) refuse("dual-stack cannot be combined with a custom endpoint");
  if (custom && c.fips) refuse("FIPS cannot be combined with a custom endpoint");
  if (c.fips && detail::partition_of(region_).name == "aws-cn") {
    refuse("there are no FIPS endpoints in the region " + region_);
  }
  refuse_unsupported(bucket);
  if (bucket.substr(0, 4) == "arn:") {
    use_access_point(c, bucket);
    return;
  }

  // The pseudo region aws-global, and us-east-1 on demand, stand for the one host that has no region in its name.
  const bool global = region_ == "aws-global" || (c.global_us_east_1 && region_ == "us-east-1");
  if (region_ == "aws-global") region_ = "us-east-1";

  bool address = false;
  std::string port;
  if (custom) {
    const detail::endpoint_url url = detail::endpoint_url::parse(c.endpoint_url);
    scheme_ = url.scheme();
    host_ = url.host();
    port = url.port();
    base_ = url.prefix();
    address = url.is_address();
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

MILLRACE_INLINE void endpoint::refuse_unsupported(std::string_view bucket) {
  const auto ends_with = [&](std::string_view suffix) {
    return bucket.size() > suffix.size() && bucket.substr(bucket.size() - suffix.size()) == suffix;
  };
  if (ends_with("--x-s3") || ends_with("--xa-s3")) {
    refuse("directory buckets (S3 Express One Zone) are not supported", bucket);
  }
  if (ends_with("--op-s3")) refuse("S3 on Outposts is not supported", bucket);
}

}  // namespace millrace::s3
