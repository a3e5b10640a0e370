// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/request.hpp>
#include <millrace/http/response.hpp>
#include <millrace/io/sleep.hpp>

namespace millrace::s3::detail {

/// Bounds on one request for credentials or metadata.
struct request_limits {
  duration connect = duration(2'000'000'000);
  duration total = duration(5'000'000'000);
  int attempts = 3;
  std::size_t answer = 64 * KiB;
  /// Never through a proxy: what is asked is this machine or its host, and the answer is a secret.
  bool direct = false;
};

/// Overwrites a text when it goes out of scope: answers and requests that hold secrets.
class wiped_text {
 public:
  explicit wiped_text(std::string& text) noexcept : text_(text) {}
  wiped_text(const wiped_text&) = delete;
  wiped_text& operator=(const wiped_text&) = delete;
  ~wiped_text() { OPENSSL_cleanse(text_.data(), text_.size()); }

 private:
  std::string& text_;
};

inline bool is_overload(const http::response& answer) noexcept {
  return answer.head.status == 429 || answer.head.status >= 500;
}

/// Sends what `make()` gives, anew for each attempt, until `again(answer)` is false, and gives the last answer. Thrown
/// is what went wrong on the way to the last one. Pauses: full jitter up to 100 ms, doubled each time.
template <class World, class Make, class Again>
task<http::response> send_until(World& world, Make make, request_limits limits, Again again) {
  for (int attempt = 1;; ++attempt) {
    const bool last = attempt >= limits.attempts;
    std::exception_ptr failed;
    http::response answer;
    try {
      http::request r = make();
      answer = co_await world.send(std::move(r), limits);
    } catch (const http::error& e) {
      if (last || !e.transient()) throw;
      failed = std::current_exception();
    }
    if (!failed && (last || !again(answer))) co_return std::move(answer);
    const double longest = 1e8 * static_cast<double>(1u << (attempt < 6 ? attempt - 1 : 5));
    co_await sleep_for(duration(static_cast<std::int64_t>(longest * world.random())));
  }
}

}  // namespace millrace::s3::detail
