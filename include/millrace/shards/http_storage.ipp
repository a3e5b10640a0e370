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
#include <string_view>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/runtime_counts.hpp>
#include <millrace/http/engine.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/http/message.hpp>
#include <millrace/http/redirect.hpp>
#include <millrace/http/unconditional_hosts.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/retry/request_rate.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/text/entity_tag.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A part on its way, over as many answers as it takes.
class http_download {
 public:
  http_download(std::string tag, std::uint64_t at, std::size_t bytes, slab_pool from)
      : etag(std::move(tag)), offset(at), length(bytes), slabs(std::move(from)) {}
  void forget() noexcept {
    partial.memory = writable_bytes();
    partial.filled = 0;
    seen.clear();
    total.reset();
  }
  const std::string etag;  ///< that the object must have; empty: any
  bool unconditional = false;  ///< the server has refused If-Match: its ETag is compared alone
  const std::uint64_t offset;
  const std::size_t length;
  const slab_pool slabs;
  http::partial_body partial;
  std::string seen;  ///< the ETag that came with the bytes in `partial`
  std::optional<std::uint64_t> total;  ///< and the size of the object
  std::optional<duration> hint;
  std::optional<time_point> held_since;  ///< when the first attempt was made that the server refused as one too many
  bool new_connection = false;  ///< and nothing that a cache on the way keeps
  bool elsewhere = false;       ///< tried again: at another address
  std::string remembered;       ///< where another part was redirected to: the present attempt has begun there
  bool ask_first = false;       ///< that has failed: the URL itself is asked
  bool refused = false;         ///< the program's fields got a 401 as answer
};

/// True for the same fields in the same order.
MILLRACE_INLINE bool same_fields(const http::headers& a, const http::headers& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

MILLRACE_COROUTINE task<bool> has_ended(http::exchange& x) {
  const bytes more = co_await x.read();
  co_return more.empty();
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE http::headers http_fields::of(const std::string& host) const {
  if (made_ == nullptr) return http::headers();
  http::headers fields = made_->make(host);
  for (const http::headers::field& f : fields) {
    for (const char* const ours : {"host", "range", "if-match", "content-length", "transfer-encoding", "connection",
                                   "accept-encoding"}) {
      if (text::equal_ignoring_case(f.first, ours)) {
        throw configuration_error("the field " + f.first + " of a request is the library's, not one of http_fields");
      }
    }
  }
  return fields;
}

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
task<storage::part> basic_http_storage<Unused>::read_over(shard object, std::string etag, std::uint64_t offset,
                                                          std::size_t length, slab_pool slabs,
                                                          bool new_connection) const {
  retry_policy policy(retries_, quota_);
  detail::http_download d(std::move(etag), offset, length, std::move(slabs));
  d.new_connection = new_connection;
  for (;;) {
    std::exception_ptr why;
    failed_attempt failed;
    const std::size_t before = d.partial.filled;
    try {
      part result = co_await attempt(object, d);
      policy.after_success();
      co_return std::move(result);
    } catch (const http::short_answer&) {
      if (d.partial.filled == before) throw;
      continue;  // with the next byte
    } catch (const http::error& e) {
      why = std::current_exception();
      failed.what = e.kind() == http::failure::status ? classify(e.status(), {}) : classify(e.kind());
      failed.hint = d.hint;
      const bool kept = e.kind() == http::failure::broken || e.kind() == http::failure::timeout;
      if (d.partial.filled != before && (!kept || !millrace::detail::is_strong_etag(d.seen))) d.forget();
      if (!d.remembered.empty()) {  // it may have expired, or have been one of several
        redirects_.forget(object.url, d.remembered);
        d.ask_first = true;
        continue;
      }
    }
    if (d.partial.filled > before && d.partial.filled - before >= std::max(64 * KiB, length / 16)) {
      policy.made_progress();
    }
    d.elsewhere = failed.what == retry_class::transient;
    executor& ex = co_await this_executor();
    failed.now = ex.now();
    const double jitter = rng(static_cast<std::uint64_t>(monotonic_ns())).uniform();
    const std::optional<duration> pause = policy.after_failure(failed, jitter);
    if (!pause) std::rethrow_exception(why);
    detail::count_retry(ex, failed.what == retry_class::throttling, why);
    if (pause->count() > 0) co_await sleep_for(*pause);
  }
}

template <class Unused>
task<storage::part> basic_http_storage<Unused>::attempt(const shard& object, detail::http_download& d) const {
  executor& ex = co_await this_executor();
  d.remembered = d.ask_first ? std::string() : redirects_.find(object.url);
  std::string url = d.remembered.empty() ? object.url : d.remembered;
  const bool resumed = d.partial.filled > 0;
  const std::uint64_t first = d.offset + d.partial.filled;
  const std::string version = resumed ? d.seen : d.etag;
  detail::runtime_counts* const counts = ex.runtime().counts();
  if (resumed && counts != nullptr) counts->resumed.add();
  d.hint.reset();
  for (int hop = 0;; ++hop) {
    http::request r(url);
    r.object = http::displayed(object.url);
    r.range = http::byte_range{first, d.offset + d.length - 1};
    r.new_connection = d.new_connection;
    r.elsewhere = d.elsewhere;
    if (d.new_connection) r.fields.add("Cache-Control", "no-cache");
    const http::headers own = fields_.of(this->host(url));
    for (const http::headers::field& f : own) r.fields.add(f.first, f.second);
    http::unconditional_hosts& unconditional = http::unconditional_hosts::of(ex);
    const std::string_view host = http::unconditional_hosts::host_of(url);
    std::string condition = millrace::detail::if_match_value(version);
    if (d.unconditional || unconditional.has(host)) condition.clear();
    const bool conditional = !condition.empty();
    if (conditional) r.fields.add("If-Match", std::move(condition));
    http::body_options body;
    if (d.slabs.worth_a_slab(d.length)) {
      body.pool = d.slabs;
    } else {
      body.heap_chunk = std::max<std::size_t>(d.length, 1);
    }
    body.window = d.slabs.slab_bytes();
    body.resume = &d.partial;
    const std::shared_ptr<detail::request_gate> gate =
        detail::request_gates::of(ex).gate(std::string(http::unconditional_hosts::host_of(url)));
    const detail::request_gate::turn turn = co_await gate->enter();
    http::exchange x(http::engine::of(ex), std::move(r), transport_, std::move(body));
    const http::response_head& head = co_await x.head();
    const duration first_byte = ex.now() - turn.begun;
    const where at{http::displayed(object.url), first, std::string()};
    if (http::is_redirect(head.status)) {
      if (hop >= 5) throw http::error(http::failure::protocol, "too many redirects", at, head.status);
      url = http::redirect_target(url, head, at);
      continue;
    }
    if (head.status < 300) gate->succeeded(ex.now());
    part result;
    result.etag = head.etag();
    result.first_byte = first_byte;
    result.held = turn.begun - d.held_since.value_or(turn.asked);
    if (const std::string* encoding = head.fields.find("content-encoding")) result.encoding = *encoding;
    if (head.status == 412 && conditional) {
      d.unconditional = true;  // what the object is now, its answer tells
      continue;
    }
    if (head.status == 401 && own.size() != 0 && !std::exchange(d.refused, true) &&
        !detail::same_fields(own, fields_.of(this->host(url)))) {
      continue;
    }
    if (head.status == 416 && resumed) {
      throw changed_error("the object changed while it was read: it was " + version, at);
    }
    if (head.status == 416 && d.offset == 0 && head.range && head.range->total == std::uint64_t(0)) {
      result.total = 0;  // an empty object has no range
      co_return std::move(result);
    }
    if (const int status = head.status; status != 200 && status != 206) {
      if (classify(status, {}) == retry_class::throttling) {
        gate->refused(turn, ex.now(), rng(static_cast<std::uint64_t>(monotonic_ns())).uniform());
        if (!d.held_since) d.held_since = turn.asked;
      }
      d.hint = retry_hint(head.fields, static_cast<std::int64_t>(std::time(nullptr)));
      std::string reason = "the server answered " + std::to_string(head.status);
      if (url != object.url) reason += " at " + http::displayed(url);
      const std::string words = co_await http::first_words(x);
      if (!words.empty()) reason += ": " + words;
      throw http::error(http::failure::status, std::move(reason), at, status);
    }
    const bool told = resumed || d.unconditional || (millrace::detail::is_strong_etag(version) && !conditional);
    if (told && !millrace::detail::same_etag(result.etag, version)) {
      d.forget();
      throw millrace::detail::version_changed(version, result.etag, at);
    }
    if (d.unconditional) unconditional.add(ex, host);
    if (url != object.url && url != d.remembered) redirects_.remember(object.url, url);
    if (head.status == 200) {
      if (first != 0) throw http::error(http::failure::protocol, "the server stopped serving ranges", at, 200);
      if (head.length == std::uint64_t(0)) {
        result.total = 0;
        co_return std::move(result);
      }
      result.data = co_await x.read();  // in memory that no later request may go on with
      result.rest = std::make_unique<rest>(std::move(x));
      co_return std::move(result);
    }
    result.total = head.range->total;
    if (resumed && d.total && result.total && *d.total != *result.total) {
      const std::uint64_t before = *d.total;
      d.forget();
      throw changed_error("the object changed while it was read: " + std::to_string(before) + " bytes became " +
                              std::to_string(*result.total),
                          at);
    }
    d.seen = result.etag;
    d.total = result.total;
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
