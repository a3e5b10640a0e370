// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/s3/get_object.hpp>
#include <millrace/s3/list_objects.hpp>
#include <millrace/s3/put_object.hpp>

namespace millrace::s3 {

/// A way to one S3 store: configuration and credentials. Copies are cheap and share what was learnt; any copy may be
/// used on any number of loops. It holds no connection: those belong to the loops.
///
/// Everything returns a lazy task or generator that runs on the executor that awaits it and keeps the client's state
/// alive. Failures are s3::error (the store refused) or http::error (the way failed), after the configured attempts.
class client {
 public:
  /// Explicit configuration and credentials; credentials() is anonymous.
  explicit client(config c, credentials who = credentials())
      : client(std::move(c), std::make_shared<fixed_credentials>(std::move(who))) {}
  client(config c, std::shared_ptr<credentials_provider> provider,
         http::transport_options transport = http::transport_options()) {
    if (transport.ca_file.empty()) transport.ca_file = c.ca_bundle;
    session_ = std::make_shared<const session>(std::move(c), std::move(provider), std::move(transport));
  }

  /// Region, endpoint and credentials from the variables of the AWS SDKs; see config::from_environment and
  /// credentials_from_environment. Without credentials there requests are anonymous.
  static client from_environment(const environment& variables = process_environment(),
                                 const config_options& given = config_options()) {
    std::optional<credentials> who = credentials_from_environment(variables);
    return client(config::from_environment(variables, given), who ? std::move(*who) : credentials());
  }

  /// Source: the objects under a prefix, `s3.list("s3://corpus/train/")`. See list_objects.
  async_generator<shard> list(std::string_view prefix) const {
    return list_objects(session_, url::parse(prefix)).named("list");
  }

  /// One part of an object; see get_object_range.
  task<object_part> get(std::string_view object, std::uint64_t offset, std::size_t length, std::string if_match,
                        slab_pool slabs) const {
    url u = url::parse(object);
    return with_session(
        [](const session& s, url name, std::uint64_t from, std::size_t n, std::string tag, slab_pool memory) {
          return get_object_range(s, name.bucket(), name.key(), from, n, std::move(tag), std::move(memory));
        },
        std::move(u), offset, length, std::move(if_match), std::move(slabs));
  }
  /// Size and ETag of an object.
  task<object_info> head(std::string_view object) const {
    return with_session([](const session& s, url name) { return head_object(s, name.bucket(), name.key()); },
                        url::parse(object));
  }
  /// Stores an object; gives its ETag. See put_object.
  task<std::string> put(std::string_view object, bytes body, std::string content_type = std::string()) const {
    return with_session(
        [](const session& s, url name, bytes content, std::string type) {
          return put_object(s, name.bucket(), name.key(), std::move(content), std::move(type));
        },
        url::parse(object), std::move(body), std::move(content_type));
  }
  /// Creates a bucket, `s3://name`.
  task<void> create_bucket(std::string_view bucket) const {
    return with_session([](const session& s, url name) { return s3::create_bucket(s, name.bucket()); },
                        url::parse(bucket));
  }

  const config& configuration() const noexcept { return session_->base(); }

 private:
  /// Keeps the session alive for as long as the task: it may outlive this copy of the client.
  template <class Make, class... Args>
  auto with_session(Make make, Args... args) const -> decltype(make(*session_, std::move(args)...)) {
    return keep(session_, make, std::move(args)...);
  }
  template <class Make, class... Args>
  static auto keep(std::shared_ptr<const session> s, Make make, Args... args)
      -> decltype(make(*s, std::move(args)...)) {
    auto inner = make(*s, std::move(args)...);
    co_return co_await std::move(inner);
  }

  std::shared_ptr<const session> session_;
};

}  // namespace millrace::s3
