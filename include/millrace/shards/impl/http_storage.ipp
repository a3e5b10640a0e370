// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/http/engine.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/http/response.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/retry/retry_class.hpp>
#include <millrace/retry/retry_policy.hpp>
#include <millrace/shards/http_storage.hpp>

namespace millrace::detail {

/// A part on its way, over as many answers as it takes.
class http_download {
 public:
  http_download(std::string tag, std::uint64_t at, std::size_t bytes, slab_pool from)
      : etag(std::move(tag)), offset(at), length(bytes), slabs(std::move(from)) {}
  void forget() noexcept {
    partial.memory = writable_bytes();
    partial.filled = 0;
    seen.clear();
  }
  const std::string etag;  ///< that the object must have; empty: any
  const std::uint64_t offset;
  const std::size_t length;
  const slab_pool slabs;
  http::partial_body partial;
  std::string seen;  ///< the ETag that came with what is in `partial`
  std::optional<duration> hint;
};

/// Only strong validators may be used with If-Match (RFC 9110, 13.1.1).
MILLRACE_INLINE bool is_strong_etag(const std::string& etag) noexcept {
  return !etag.empty() && etag.compare(0, 2, "W/") != 0;
}

/// Where the answer `head` to a request for `from` leads.
MILLRACE_INLINE std::string redirected(const std::string& from, const http::response_head& head, int hop,
                                       const where& at) {
  const std::string* location = head.fields.find("location");
  if (location == nullptr) throw http::error(http::failure::protocol, "a redirect without Location", at, head.status);
  if (hop >= 5) throw http::error(http::failure::protocol, "too many redirects", at, head.status);
  if (!location->empty() && location->front() == '/' && location->substr(0, 2) != "//") {
    return from.substr(0, from.find_first_of("/?#", from.find("://") + 3)) + *location;
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

MILLRACE_COROUTINE task<bool> has_ended(http::exchange& x) {
  const bytes more = co_await x.read();
  co_return more.empty();
}

}  // namespace millrace::detail

namespace millrace {

/// The rest of a body that the server sends in one go.
template <class Unused>
class basic_http_storage<Unused>::rest final : public sequential_rest {
 public:
  explicit rest(http::exchange x) : exchange_(std::move(x)) {}
  task<bytes> next() override { co_return co_await exchange_.read(); }

 private:
  http::exchange exchange_;
};

template <class Unused>
task<storage::part> basic_http_storage<Unused>::read(shard object, std::string etag, std::uint64_t offset,
                                                     std::size_t length, slab_pool slabs) const {
  retry_policy policy(retries_, quota_);
  detail::http_download d(std::move(etag), offset, length, std::move(slabs));
  for (;;) {
    std::exception_ptr why;
    failed_attempt failed;
    const std::size_t before = d.partial.filled;
    try {
      part result = co_await attempt(object, d);
      policy.after_success();
      co_return std::move(result);
    } catch (const http::error& e) {
      why = std::current_exception();
      failed.what = e.kind() == http::failure::status ? classify(e.status(), {}) : classify(e.kind());
      failed.timed_out = e.kind() == http::failure::timeout;
      failed.hint = d.hint;
      const bool kept = e.kind() == http::failure::broken || e.kind() == http::failure::timeout;
      if (d.partial.filled != before && (!kept || !detail::is_strong_etag(d.seen))) d.forget();
    }
    if (d.partial.filled > before && d.partial.filled - before >= std::max(64 * KiB, length / 16)) {
      policy.made_progress();
    }
    const double jitter = rng(static_cast<std::uint64_t>(monotonic_ns())).uniform();
    const std::optional<duration> pause = policy.after_failure(failed, jitter);
    if (!pause) std::rethrow_exception(why);
    if (pause->count() > 0) co_await sleep_for(*pause);
  }
}

template <class Unused>
task<storage::part> basic_http_storage<Unused>::attempt(const shard& object, detail::http_download& d) const {
  executor& ex = co_await this_executor();
  std::string url = object.url;
  const bool resumed = d.partial.filled > 0;
  const std::uint64_t first = d.offset + d.partial.filled;
  const std::string version = resumed ? d.seen : d.etag;
  d.hint.reset();
  for (int hop = 0;; ++hop) {
    http::request r(url);
    r.range = http::byte_range{first, d.offset + d.length - 1};
    if (detail::is_strong_etag(version)) r.fields.add("If-Match", version);
    http::body_options body;
    if (d.length > d.slabs.slab_bytes() / 8) {
      body.pool = d.slabs;
    } else {
      // A whole slab would be mostly empty, and fetch() has not reserved one.
      body.heap_chunk = std::max<std::size_t>(d.length, 1);
    }
    body.window = d.slabs.slab_bytes();
    body.resume = &d.partial;
    http::exchange x(http::engine::of(ex), std::move(r), transport_, std::move(body));
    const http::response_head& head = co_await x.head();
    const where at{http::displayed(object.url), first, std::string()};
    if (head.status >= 301 && head.status <= 308 && head.status != 304) {
      url = detail::redirected(url, head, hop, at);
      continue;
    }
    part result;
    result.etag = head.etag();
    if (head.status == 412 || (head.status == 416 && resumed)) {
      throw changed_error("the object changed while it was read: it was " + version, at);
    }
    if (head.status == 416 && d.offset == 0 && head.range && head.range->total == std::uint64_t(0)) {
      result.total = 0;  // an empty object has no range
      co_return std::move(result);
    }
    if (head.status != 200 && head.status != 206) {
      d.hint = retry_hint(head.fields, static_cast<std::int64_t>(std::time(nullptr)));
      throw http::error(http::failure::status, "the server answered " + std::to_string(head.status), at, head.status);
    }
    if (resumed && result.etag != version) {
      d.forget();
      throw changed_error("the object changed while it was read: ETag " + version + " became " + result.etag, at);
    }
    if (head.status == 200) {
      if (first != 0) throw http::error(http::failure::protocol, "the server stopped serving ranges", at, 200);
      result.data = co_await x.read();  // in memory that no later request may go on with
      result.rest = std::make_unique<rest>(std::move(x));
      co_return std::move(result);
    }
    d.seen = result.etag;
    result.total = head.range->total;
    result.data = co_await x.read();
    if (!result.data.empty() && !(co_await detail::has_ended(x))) {
      throw http::error(http::failure::protocol, "more bytes than asked for", at, head.status);
    }
    co_return std::move(result);
  }
}

#if defined(MILLRACE_SEPARATE_COMPILATION)
template class basic_http_storage<>;
#endif

}  // namespace millrace
