// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/units.hpp>
#include <millrace/http/proxy.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/auth/default_credentials.hpp>
#include <millrace/s3/ops/object_checksum.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/s3/ops/list_objects.hpp>
#include <millrace/s3/ops/put_object.hpp>
#include <millrace/s3/ops/put_stream.hpp>
#include <millrace/s3/ops/read_object.hpp>
#include <millrace/s3/presign.hpp>

namespace millrace::s3 {

/// A way to one S3 store: configuration and credentials. Copies are cheap and share what was learnt; any copy may be
/// used on any number of loops. It holds no connection: those belong to the loops.
///
/// Everything returns a lazy task or stream that runs on the executor that awaits it and keeps the client's state
/// alive. Failures are s3::error (the store refused) or http::error (the way failed), after the configured attempts.
class client {
 public:
  /// Explicit configuration and credentials; credentials() is anonymous.
  template <class = void>
  explicit client(config c, credentials who = credentials())
      : client(std::move(c), std::make_shared<fixed_credentials>(std::move(who))) {}
  template <class = void>
  client(config c, std::shared_ptr<credentials_provider> provider,
         http::transport_options transport = http::transport_options()) {
    if (transport.ca_file.empty()) transport.ca_file = c.ca_bundle;
    session_ = std::make_shared<const session>(std::move(c), std::move(provider), std::move(transport));
  }

  /// Configured as the AWS SDKs are: region, endpoint and the rest by config::from_environment, the proxy by the usual
  /// variables (http::proxy_choice), credentials by default_credentials. The configuration files are read now; what
  /// gives credentials, and the instance where nothing else names a region, is asked with the first request.
  ///
  /// Requests are anonymous only when that is asked for, `{.anonymous = true}`; without credentials anywhere the first
  /// request throws configuration_error, which says where they were looked for.
  template <class = void>
  static client from_environment(const environment& variables = process_environment(),
                                 const config_options& given = config_options()) {
    config c = config::from_environment(variables, given);
    http::transport_options services;
    services.ca_file = c.ca_bundle;
    http::transport_options transport = services;
    http::proxy_choice::from_environment(variables, "https").apply_to(services);
    const bool plain = c.endpoint_url.substr(0, 7) == "http://";
    http::proxy_choice::from_environment(variables, plain ? "http" : "https").apply_to(transport);
    std::shared_ptr<credentials_provider> who;
    if (given.anonymous) {
      who = std::make_shared<fixed_credentials>(credentials());
    } else {
      who = default_credentials<>(variables, std::move(services));
    }
    return client(std::move(c), std::move(who), std::move(transport));
  }

  /// Source: the objects under a prefix, `s3.list("s3://corpus/train/")`. See list_objects.
  template <class = void>
  stream<shard> list(std::string_view prefix) const {
    return stream<shard>(list_objects(session_, url::parse(prefix))).named("list", "");
  }

  /// One part of an object; see get_object_range.
  template <class = void>
  task<object_part> get(std::string_view object, std::uint64_t offset, std::size_t length, std::string if_match,
                        slab_pool slabs, std::optional<std::uint64_t> size = std::nullopt) const {
    const url u = object_of(object);
    return get_object_range(session_, u.bucket(), u.key(), offset, length, std::move(if_match), std::move(slabs), size);
  }
  /// A whole object, of at most `max_bytes`: for labels, indexes and configuration. See read_object.
  template <class = void>
  task<bytes> read(std::string_view object, std::size_t max_bytes = 64 * MiB) const {
    const url u = object_of(object);
    return read_object(session_, u.bucket(), u.key(), max_bytes);
  }
  /// Size and ETag of an object.
  template <class = void>
  task<object_info> head(std::string_view object) const {
    const url u = object_of(object);
    return head_object(session_, u.bucket(), u.key());
  }
  /// What the store keeps of an object to compare its bytes with; see checksum_of.
  template <class = void>
  task<std::unique_ptr<object_checksum<session>>> checksum(std::string_view object, std::string if_match = {}) const {
    const url u = object_of(object);
    return checksum_of(session_, u.bucket(), u.key(), std::move(if_match));
  }
  /// Stores an object in one request; gives its ETag. See put_object.
  template <class = void>
  task<std::string> put(std::string_view object, bytes body, std::string_view content_type = {}) const {
    put_options o;
    o.content_type = content_type;
    return put(object, std::move(body), o);
  }
  // Templates, so that only programs that use them pay for their compilation.
  template <class = void>
  task<std::string> put(std::string_view object, bytes body, const put_options& options) const {
    const url u = object_of(object);
    return put_object(session_, u.bucket(), u.key(), std::move(body), detail::put_plan(configuration(), options));
  }
  /// Sink: stores a stream as one object, in parts where it is large, and holds a few parts in memory:
  /// `co_await s3.put("s3://models/step-1000", written_by(model), {.part = 16 << 20})`. See put_options and put_stream.
  template <class = void>
  task<object_info> put(std::string_view object, stream<bytes> content, const put_options& options = {}) const {
    const url u = object_of(object);
    return put_stream(session_, u.bucket(), u.key(), std::move(content), detail::put_plan(configuration(), options));
  }
  /// A URL that lets anybody who has it do `method` with an object for a while; see s3::presign. A secret.
  template <class = void>
  task<std::string> presign(std::string_view object, std::int64_t seconds, std::string method = "GET") const {
    const url u = object_of(object);
    return s3::presign(session_, u.bucket(), u.key(), std::move(method), seconds);
  }
  /// Creates a bucket, `s3://name`; one that is ours already is fine.
  template <class = void>
  task<void> create_bucket(std::string_view bucket) const {
    return s3::create_bucket(session_, url::parse(bucket).bucket());
  }

  const config& configuration() const noexcept { return session_->base(); }

 private:
  /// The URL of an object: what is asked of a bucket instead means something else.
  static url object_of(std::string_view text) {
    url u = url::parse(text);
    if (u.key().empty()) {
      where at;
      at.object = text;
      throw configuration_error("the S3 URL names a bucket and no object: expected s3://bucket/key", at);
    }
    return u;
  }

  std::shared_ptr<const session> session_;
};

}  // namespace millrace::s3
