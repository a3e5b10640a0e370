// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/http/exchange.hpp>
#include <millrace/http/response.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace {

/// Reads http:// and https:// URLs as they are (presigned ones included: nothing is added to them, and their query
/// never shows in a message). By ranges where the server serves them, else in one go. Up to five redirects are followed
/// for the first part of an object; https never leads to http.
template <class = void>
class basic_http_storage final : public storage {
 public:
  explicit basic_http_storage(http::transport_options transport = http::transport_options())
      : transport_(std::make_shared<const http::transport_options>(std::move(transport))) {}

  bool serves(std::string_view url) const noexcept override {
    return url.substr(0, 7) == "http://" || url.substr(0, 8) == "https://";
  }
  bool may_be_sequential() const noexcept override { return true; }

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    executor& ex = co_await this_executor();
    std::string url = object.url;
    for (int hop = 0;; ++hop) {
      http::request r(url);
      r.range = http::byte_range{offset, offset + length - 1};
      // Only strong validators may be used with If-Match (RFC 9110, 13.1.1).
      if (!etag.empty() && etag.substr(0, 2) != "W/") r.fields.add("If-Match", etag);
      http::body_options body;
      body.pool = slabs;
      http::exchange x(http::engine::of(ex), std::move(r), transport_, std::move(body));
      const http::response_head& head = co_await x.head();
      const where at{http::displayed(object.url), offset, std::string()};
      if (head.status >= 301 && head.status <= 308 && head.status != 304) {
        url = redirected(url, head, hop, at);
        continue;
      }
      if (head.status == 412) throw changed_error("the object changed while it was read: it was " + etag, at);
      part result;
      result.etag = head.etag();
      if (head.status == 416 && offset == 0 && head.range && head.range->total == std::uint64_t(0)) {
        result.total = 0;  // an empty object has no range
        co_return result;
      }
      if (head.status != 200 && head.status != 206) {
        throw http::error(http::failure::status, "the server answered " + std::to_string(head.status), at, head.status);
      }
      result.data = co_await x.read();
      if (head.status == 206) {
        result.total = head.range->total;
        if (!result.data.empty() && !(co_await ended(x))) {
          throw http::error(http::failure::protocol, "more bytes than asked for", at, head.status);
        }
        co_return result;
      }
      if (offset != 0) throw http::error(http::failure::protocol, "the server stopped serving ranges", at, head.status);
      result.rest = std::make_unique<rest>(std::move(x));
      co_return result;
    }
  }

 private:
  class rest final : public sequential_rest {
   public:
    explicit rest(http::exchange x) : exchange_(std::move(x)) {}
    task<bytes> next() override { co_return co_await exchange_.read(); }

   private:
    http::exchange exchange_;
  };

  static task<bool> ended(http::exchange& x) {
    const bytes more = co_await x.read();
    co_return more.empty();
  }

  static std::string redirected(const std::string& from, const http::response_head& head, int hop, const where& at) {
    const std::string* location = head.fields.find("location");
    if (location == nullptr) throw http::error(http::failure::protocol, "a redirect without Location", at, head.status);
    if (hop >= 5) throw http::error(http::failure::protocol, "too many redirects", at, head.status);
    if (!location->empty() && location->front() == '/' && location->substr(0, 2) != "//") {
      return from.substr(0, from.find('/', from.find("://") + 3)) + *location;
    }
    const bool https = location->substr(0, 8) == "https://";
    if (!https && location->substr(0, 7) != "http://") {
      throw http::error(http::failure::protocol, "a redirect to something that is not an http(s) URL", at, head.status);
    }
    if (!https && from.substr(0, 8) == "https://") {
      throw http::error(http::failure::protocol, "a redirect from https to http is not followed", at, head.status);
    }
    return *location;
  }

  const std::shared_ptr<const http::transport_options> transport_;
};
using http_storage = basic_http_storage<>;

}  // namespace millrace
