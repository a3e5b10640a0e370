// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/options.hpp>
#include <millrace/retry/retry_options.hpp>
#include <millrace/retry/retry_quota.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace {

namespace detail {
class http_download;
}

/// Reads http:// and https:// URLs as they are (presigned ones included: nothing is added to them, and their query
/// never shows in a message). By ranges where the server serves them, else in one go. Up to five redirects are followed
/// for the first part of an object; https never leads to http.
///
/// What may pass is tried again under the policy of s3::with_retries, with one quota for all reads. A part that breaks
/// off goes on at the next byte, in the same memory, where the server gave a strong ETag; else the part is read once
/// more. An object that is sent in one go cannot be resumed: its error is thrown.
template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_http_storage final : public storage {
 public:
  explicit basic_http_storage(http::transport_options transport = http::transport_options(),
                              const retry_options& retries = retry_options())
      : transport_(std::make_shared<const http::transport_options>(std::move(transport))),
        retries_(retries),
        quota_(retries.quota) {}

  bool serves(std::string_view url) const noexcept override {
    return url.substr(0, 7) == "http://" || url.substr(0, 8) == "https://";
  }
  bool may_be_sequential() const noexcept override { return true; }

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override;

 private:
  class rest;
  task<part> attempt(const shard& object, detail::http_download& d) const;

  const std::shared_ptr<const http::transport_options> transport_;
  const retry_options retries_;
  mutable retry_quota quota_;
};
using http_storage = basic_http_storage<>;

#if defined(MILLRACE_SEPARATE_COMPILATION)
extern template class basic_http_storage<>;
#endif

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/http_storage.ipp>
#endif
