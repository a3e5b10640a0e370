// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/options.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/s3/auth/credentials_provider.hpp>
#include <millrace/s3/config/config.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/ops/object_checksum.hpp>
#include <millrace/s3/ops/objects.hpp>
#include <millrace/s3/sign/credentials.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

class session;
class url;

/// A client of one S3 store: configuration and credentials. Copies are cheap and share the state learnt from the store;
/// any copy may be used on any number of loops. It holds no connection: those belong to the loops.
///
/// Everything returns a lazy task or stream that runs on the executor that awaits it and keeps the client's state
/// alive. Failures are s3::error (the store refused) or http::error (the transport failed), after the configured
/// attempts.
class client {
 public:
  /// Explicit configuration and credentials; credentials() is anonymous.
  MILLRACE_COROUTINE explicit client(config c, credentials who = credentials());
  client(config c, std::shared_ptr<credentials_provider> provider,
         http::transport_options transport = http::transport_options());

  /// Configured as the AWS SDKs are: region, endpoint and the rest by config::from_environment, the proxy by the usual
  /// variables (http::proxy_choice), credentials by default_credentials. The configuration files are read now; the
  /// sources of credentials, and the instance if nothing else names a region, are asked with the first request.
  ///
  /// Requests are anonymous only when that is asked for, `{.anonymous = true}`; without credentials anywhere the first
  /// request throws configuration_error, which says where they were looked for.
  MILLRACE_COROUTINE static client from_environment(const environment& variables = process_environment(),
                                                    const config_options& given = config_options());

  /// Source: the objects under a prefix, `s3.list("s3://corpus/train/")`. See list_objects.
  MILLRACE_COROUTINE stream<shard> list(std::string_view prefix, list_options options = {}) const;

  /// One part of an object; see get_object_range.
  MILLRACE_COROUTINE task<object_part> get(std::string_view object, std::uint64_t offset, std::size_t length,
                                           std::string if_match, slab_pool slabs, get_options options = {}) const;
  /// A whole object, of at most `max_bytes`, in one piece of memory; large ones in parallel parts. See read_object.
  MILLRACE_COROUTINE task<bytes> read(std::string_view object, std::size_t max_bytes = SIZE_MAX,
                                      std::atomic<std::uint64_t>* progress = nullptr) const;
  /// Reads straight into `memory`, which the object must fit into; gives its size. See read_object_into.
  MILLRACE_COROUTINE task<std::size_t> read(std::string_view object, std::span<std::byte> memory,
                                            std::atomic<std::uint64_t>* progress = nullptr) const;
  /// Size and ETag of an object.
  MILLRACE_COROUTINE task<object_info> head(std::string_view object) const;
  /// The checksum that the store keeps of an object; see checksum_of.
  MILLRACE_COROUTINE task<std::unique_ptr<object_checksum>> checksum(std::string_view object,
                                                                     std::string if_match = {}) const;
  /// Stores an object in one request; gives its ETag. See put_object.
  MILLRACE_COROUTINE task<std::string> put(std::string_view object, bytes body,
                                           std::string_view content_type = {}) const;
  // Templates, so that only programs that use them pay for their compilation.
  MILLRACE_COROUTINE task<std::string> put(std::string_view object, bytes body, const put_options& options) const;
  /// Sink: stores a stream as one object, in parts if it is large, and holds a few parts in memory:
  /// `co_await s3.put("s3://models/step-1000", written_by(model), {.part = 16 << 20})`. See put_options and put_stream.
  MILLRACE_COROUTINE task<object_info> put(std::string_view object, stream<bytes> content,
                                           const put_options& options = {}) const;
  /// A URL that allows its holder one `method` on an object for a while; see s3::presign. A secret.
  MILLRACE_COROUTINE task<std::string> presign(std::string_view object, std::int64_t seconds,
                                               std::string method = "GET") const;
  /// Deletes an object; one that is not there is fine. See remove_object.
  MILLRACE_COROUTINE task<void> remove(std::string_view object) const;
  /// Creates a bucket, `s3://name`; one that is ours already is fine.
  MILLRACE_COROUTINE task<void> create_bucket(std::string_view bucket) const;
  /// Deletes an empty bucket, `s3://name`; one that is not there is fine. See s3::remove_bucket.
  MILLRACE_COROUTINE task<void> remove_bucket(std::string_view bucket) const;

  const config& configuration() const noexcept;

 private:
  /// The URL of an object: a request to a bucket has another meaning.
  static url object_of(std::string_view text);
  static void trust_authorities_of(const config& c, http::transport_options& transport);

  std::shared_ptr<const session> session_;
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/client.ipp>
#endif
