// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/http/engine.hpp>
#include <millrace/http/message.hpp>

namespace millrace::inline MILLRACE_ABI::http {

/// One request in flight and its answer.
///
///     exchange x(engine::of(co_await this_executor()), std::move(req), transport, body);
///     const response_head& head = co_await x.head();     // status and fields, judged against the request
///     for (;;) { bytes piece = co_await x.read(); if (piece.empty()) break; ... }
///
/// The request starts with the constructor. read() gives pieces of a slab each (the last may be shorter) and an empty
/// one at the end; the end is reached only when the whole body has arrived: a short body, a broken connection, a
/// contradiction between Content-Length and Content-Range, or an answer whose end cannot be known throws http::error.
/// At most body_options::window bytes are received ahead of the reader; then the connection is paused. One coroutine
/// may wait at a time. Dropping it, in any state, ends the transfer at once; an unfinished one closes its connection.
/// Errors are thrown by head(), if there is no head, and, after the pieces that did arrive, by read().
class exchange {
 public:
  exchange(engine& e, request r, std::shared_ptr<const transport_options> transport, body_options body = body_options())
      : transfer_(std::make_unique<detail::transfer>(e, std::move(r), std::move(transport), std::move(body))) {}
  exchange(exchange&&) noexcept = default;
  exchange& operator=(exchange&&) noexcept = default;

  class waiting : private millrace::detail::waiting_awaiter {
   public:
    waiting(detail::transfer& t, promise_base& promise, bool for_head) noexcept
        : waiting_awaiter(promise), transfer_(t), for_head_(for_head) {}
    ~waiting() {
      if (suspended_) transfer_.set_waiter(nullptr, for_head_);
    }
    void await_suspend(std::coroutine_handle<> handle) noexcept;

   protected:
    void resumed() noexcept {
      if (suspended_) transfer_.set_waiter(nullptr, for_head_);
      suspended_ = false;
    }
    detail::transfer& transfer_;

   private:
    const bool for_head_;
    bool suspended_ = false;
  };
  class head_awaiter : public waiting {
   public:
    head_awaiter(detail::transfer& t, promise_base& promise) noexcept : waiting(t, promise, true) {}
    bool await_ready() const noexcept { return this->transfer_.head_ready(); }
    const response_head& await_resume();
  };
  class read_awaiter : public waiting {
   public:
    read_awaiter(detail::transfer& t, promise_base& promise) noexcept : waiting(t, promise, false) {}
    bool await_ready() const noexcept { return this->transfer_.body_ready(); }
    bytes await_resume() {
      this->resumed();
      return this->transfer_.take_body();
    }
  };
  template <class Awaiter>
  using awaitable = millrace::detail::awaitable_of<Awaiter, detail::transfer>;

  awaitable<head_awaiter> head() noexcept { return awaitable<head_awaiter>(*transfer_); }
  awaitable<read_awaiter> read() noexcept { return awaitable<read_awaiter>(*transfer_); }

  /// Body bytes that have arrived so far.
  std::uint64_t received() const noexcept { return transfer_->received(); }
  const request& asked() const noexcept { return transfer_->asked(); }
  /// The proxy that an answer over plain HTTP may be of, without its user and password; empty: there is none on the
  /// way.
  std::string proxy() const { return transfer_->proxy(); }
  /// The answer is a failure of the address that it came from, `what` for the log: if others of the host do not fail
  /// connections pass it over. All that are without a doubt (5xx but 501, 503 and 505; a broken or invalid answer, none
  /// in time) count by themselves.
  void blame(const char* what) noexcept { transfer_->blame(what); }

 private:
  std::unique_ptr<detail::transfer> transfer_;
};

/// A complete answer in memory: for listings, errors and credentials, not for data.
class response {
 public:
  response_head head;
  std::string body;
};

/// Reads the rest of `x` into memory. More than `limit` bytes throws http::error (too_large): nothing that a server
/// sends may exhaust memory.
MILLRACE_COROUTINE task<std::string> read_all(exchange& x, std::size_t limit);

/// The first line of an error answer of any server on the way, for a message; of a page, the first line that has text.
/// At most 200 bytes, without possible secrets: values that the request had in Authorization and the like, queries and
/// users of URLs, values of names such as `signature`.
std::string first_words(std::string_view body, const request& asked);
/// Like the above, for the answer that `x` still has to read. Empty if nothing comes.
MILLRACE_COROUTINE task<std::string> first_words(exchange& x);

/// Sends `r` and reads the whole answer, whatever its status.
MILLRACE_COROUTINE task<response> send(request r, std::shared_ptr<const transport_options> transport,
                                       std::size_t limit);

}  // namespace millrace::http

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/exchange.ipp>
#endif
