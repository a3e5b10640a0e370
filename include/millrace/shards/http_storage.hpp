// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/message.hpp>
#include <millrace/http/options.hpp>
#include <millrace/http/redirect.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/retry/retry_options.hpp>
#include <millrace/shards/detail/hedged_reader.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
class http_download;
}

/// The header fields that an http_storage adds to its requests, by host: a bearer token, the key of a service.
///
///     auto web = std::make_shared<mill::http_storage>(
///         mill::http::transport_options(), mill::retry_options(),
///         mill::bearer_token("data.example", [] { return read_file("/run/secrets/token"); }));
///
/// The function is called with the host of each request (with its port, if the URL has one; in small letters), and what
/// it returns is sent to that host alone: a redirect to another one is a request to that one. Where a server answers
/// 401, it is called again, and if what it returns has changed, the request is repeated with that. So it returns what
/// holds now, at once: it runs on the threads of the loops, for several requests at the same time. Its exceptions are
/// those of the read. The library's own fields (Host, Range, If-Match and those that frame a message) are refused by a
/// configuration_error. Values show in no message.
class http_fields {
 public:
  http_fields() noexcept = default;  ///< none
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, http_fields> &&
           std::is_invocable_r_v<http::headers, const std::remove_cvref_t<F>&, const std::string&>)
      http_fields(F&& of_host)
      : made_(std::make_shared<const by<std::remove_cvref_t<F>>>(std::forward<F>(of_host))) {}

  http::headers of(const std::string& host) const;

 private:
  struct maker {
    maker() = default;
    maker(const maker&) = delete;
    maker& operator=(const maker&) = delete;
    virtual ~maker() = default;
    virtual http::headers make(const std::string& host) const = 0;
  };
  template <class F>
  struct by final : maker {
    explicit by(F f) : function(std::move(f)) {}
    http::headers make(const std::string& host) const override { return function(host); }
    F function;
  };

  std::shared_ptr<const maker> made_;
};

/// `Authorization: Bearer TOKEN` for requests to `host` (with its port, if URLs have one) and to no other. `token` is
/// the text, or a function that returns the one that holds now: see http_fields.
template <class Token>
http_fields bearer_token(std::string host, Token token) {
  return http_fields([host = text::to_lower(host), token = std::move(token)](const std::string& of) {
    http::headers fields;
    if (of != host) return fields;
    if constexpr (std::is_invocable_v<const Token&>) {
      fields.add("Authorization", "Bearer " + std::string(token()));
    } else {
      fields.add("Authorization", "Bearer " + std::string(token));
    }
    return fields;
  });
}

/// Reads http:// and https:// URLs as they are (presigned ones included: nothing is added to them, and their query
/// never shows in a message). By ranges where the server serves them, else in one go. Up to five redirects are
/// followed, to any server, but from https to http never; user information of the URL is not sent to another server.
/// The target is remembered for the other parts of the object until it fails there: then the URL itself is requested
/// again. Fields of the program's own, as a token, are `fields`: see http_fields.
///
/// Transient failures are retried under the policy of s3::with_retries, with one quota for all reads. A part that
/// breaks off is continued at the next byte, in the same memory, if the server gave a strong ETag; else the part is
/// read again. A complete answer that has only the beginning of the part is always continued. A part that is late is
/// requested again (retry_options::hedges). An object that is sent without ranges cannot be resumed: its error is
/// thrown.
template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_http_storage final : public storage, private detail::hedged_reader {
 public:
  explicit basic_http_storage(http::transport_options transport = http::transport_options(),
                              const retry_options& retries = retry_options(), http_fields fields = http_fields())
      : hedged_reader(retries.hedges),
        transport_(std::make_shared<const http::transport_options>(std::move(transport))),
        retries_(retries),
        fields_(std::move(fields)),
        quota_(retries.quota) {}

  bool serves(std::string_view url) const noexcept override {
    return text::starts_ignoring_case(url, "http://") || text::starts_ignoring_case(url, "https://");
  }
  bool may_be_sequential() const noexcept override { return true; }
  std::string host(std::string_view url) const override {
    const std::size_t begin = url.find("://") + 3;
    const std::string_view authority = url.substr(begin, url.find_first_of("/?#", begin) - begin);
    return text::to_lower(authority.substr(authority.find('@') + 1));
  }

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    return read_hedged(false, std::move(object), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_again(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                        slab_pool slabs) const override {
    return read_over(std::move(object), std::move(etag), offset, length, std::move(slabs), true);
  }

 private:
  class rest;
  task<part> ask(bool /*small*/, shard object, std::string etag, std::uint64_t offset, std::size_t length,
                 slab_pool slabs) const override {
    return read_over(std::move(object), std::move(etag), offset, length, std::move(slabs), false);
  }
  task<part> read_over(shard object, std::string etag, std::uint64_t offset, std::size_t length, slab_pool slabs,
                       bool new_connection) const;
  task<part> attempt(const shard& object, detail::http_download& d) const;

  const std::shared_ptr<const http::transport_options> transport_;
  const retry_options retries_;
  const http_fields fields_;
  mutable retry_quota quota_;
  mutable http::known_redirects redirects_;
};
using http_storage = basic_http_storage<>;

#if defined(MILLRACE_SEPARATE_COMPILATION)
extern template class basic_http_storage<>;
#endif

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/http_storage.ipp>
#endif
