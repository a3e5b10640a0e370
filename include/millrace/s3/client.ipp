// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/http/proxy.hpp>
#include <millrace/s3/auth/credentials_provider.hpp>
#include <millrace/s3/auth/default_credentials.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/s3/ops/list_objects.hpp>
#include <millrace/s3/ops/put_object.hpp>
#include <millrace/s3/ops/read_object.hpp>
#include <millrace/s3/presign.hpp>
#include <millrace/s3/session.hpp>
#include <millrace/s3/url.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_COROUTINE_BODY client::client(config c, credentials who)
    : client(std::move(c), std::make_shared<fixed_credentials>(std::move(who))) {}

MILLRACE_INLINE void client::trust_authorities_of(const config& c, http::transport_options& transport) {
  transport.ca_file = c.ca_bundle;
  transport.ca_directory = c.ca_directory;
  transport.ca_source = c.ca_source;
}

MILLRACE_INLINE client::client(config c, std::shared_ptr<credentials_provider> provider,
                               http::transport_options transport) {
  if (transport.ca_file.empty() && transport.ca_directory.empty()) trust_authorities_of(c, transport);
  session_.reset(new session(std::move(c), std::move(provider), std::move(transport)));
}

MILLRACE_INLINE const config& client::configuration() const noexcept { return session_->base(); }

MILLRACE_COROUTINE_BODY client client::from_environment(const environment& variables, const config_options& given) {
  config c = config::from_environment(variables, given);
  http::transport_options services;
  trust_authorities_of(c, services);
  http::transport_options transport = services;
  http::proxy_choice::from_environment(variables, "https").apply_to(services);
  const bool plain = text::starts_ignoring_case(c.endpoint_url, "http://");
  http::proxy_choice::from_environment(variables, plain ? "http" : "https").apply_to(transport);
  std::shared_ptr<credentials_provider> who;
  if (given.anonymous) {
    who = std::make_shared<fixed_credentials>(credentials());
  } else {
    who = default_credentials<>(variables, std::move(services));
  }
  return client(std::move(c), std::move(who), std::move(transport));
}

MILLRACE_COROUTINE_BODY stream<shard> client::list(std::string_view prefix, list_options options) const {
  return stream<shard>(list_objects(session_, url::parse(prefix), options))
      .named("list", "name the objects, by shards(), or read them by an index");
}

MILLRACE_COROUTINE_BODY task<object_part> client::get(std::string_view object, std::uint64_t offset, std::size_t length,
                                                      std::string if_match, slab_pool slabs,
                                                      get_options options) const {
  const url u = object_of(object);
  return get_object_range(session_, u.bucket(), u.key(), offset, length, std::move(if_match), std::move(slabs),
                          options);
}

MILLRACE_COROUTINE_BODY task<bytes> client::read(std::string_view object, std::size_t max_bytes,
                                                 std::atomic<std::uint64_t>* progress) const {
  const url u = object_of(object);
  return read_object(session_, u.bucket(), u.key(), max_bytes, progress);
}

MILLRACE_COROUTINE_BODY task<std::size_t> client::read(std::string_view object, std::span<std::byte> memory,
                                                       std::atomic<std::uint64_t>* progress) const {
  const url u = object_of(object);
  return read_object_into(session_, u.bucket(), u.key(), memory, progress);
}

MILLRACE_COROUTINE_BODY task<void> client::remove(std::string_view object) const {
  const url u = object_of(object);
  return remove_object(session_, u.bucket(), u.key());
}

MILLRACE_COROUTINE_BODY task<object_info> client::head(std::string_view object) const {
  const url u = object_of(object);
  return head_object(session_, u.bucket(), u.key());
}

MILLRACE_COROUTINE_BODY task<std::unique_ptr<object_checksum>> client::checksum(std::string_view object,
                                                                                std::string if_match) const {
  const url u = object_of(object);
  return checksum_of(session_, u.bucket(), u.key(), std::move(if_match));
}

MILLRACE_COROUTINE_BODY task<std::string> client::put(std::string_view object, bytes body,
                                                      std::string_view content_type) const {
  put_options o;
  o.content_type = content_type;
  return put(object, std::move(body), o);
}

MILLRACE_COROUTINE_BODY task<std::string> client::put(std::string_view object, bytes body,
                                                      const put_options& options) const {
  const url u = object_of(object);
  return put_object(session_, u.bucket(), u.key(), std::move(body), detail::put_plan(configuration(), options));
}

MILLRACE_COROUTINE_BODY task<object_info> client::put(std::string_view object, stream<bytes> content,
                                                      const put_options& options) const {
  const url u = object_of(object);
  return put_stream(session_, u.bucket(), u.key(), std::move(content), detail::put_plan(configuration(), options));
}

MILLRACE_COROUTINE_BODY task<std::string> client::presign(std::string_view object, std::int64_t seconds,
                                                          std::string method) const {
  const url u = object_of(object);
  return s3::presign(session_, u.bucket(), u.key(), std::move(method), seconds);
}

MILLRACE_COROUTINE_BODY task<void> client::create_bucket(std::string_view bucket) const {
  return s3::create_bucket(session_, url::parse(bucket).bucket());
}

MILLRACE_COROUTINE_BODY task<void> client::remove_bucket(std::string_view bucket) const {
  const url u = url::parse(bucket);
  if (!u.key().empty()) {
    where at;
    at.object = bucket;
    throw configuration_error("the S3 URL names an object, not a bucket: expected s3://bucket", at);
  }
  return s3::remove_bucket(session_, u.bucket());
}

MILLRACE_INLINE url client::object_of(std::string_view text) {
  url u = url::parse(text);
  if (u.key().empty()) {
    where at;
    at.object = text;
    throw configuration_error("the S3 URL names a bucket and no object: expected s3://bucket/key", at);
  }
  return u;
}

}  // namespace millrace::s3
