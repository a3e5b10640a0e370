// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/http/message.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/json_leaves.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// Bounds on one request for credentials or metadata.
struct request_limits {
  duration connect = duration(2'000'000'000);
  duration total = duration(5'000'000'000);
  int attempts = 3;
  std::size_t answer = 64 * KiB;
  /// Never through a proxy: the server is this machine or its host, and the answer is a secret.
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

/// Overwrites bytes when it goes out of scope; no one else may read them then.
class wiped_bytes {
 public:
  explicit wiped_bytes(bytes of) noexcept : bytes_(std::move(of)) {}
  wiped_bytes(const wiped_bytes&) = delete;
  wiped_bytes& operator=(const wiped_bytes&) = delete;
  ~wiped_bytes() {
    if (!bytes_.empty()) OPENSSL_cleanse(const_cast<char*>(bytes_.data()), bytes_.size());
  }

 private:
  const bytes bytes_;
};

inline bool is_overload(const http::response& answer) noexcept {
  return answer.head.status == 429 || answer.head.status >= 500;
}

/// Sends the request of `make()`, called for each attempt, until `again(answer)` is false, and returns the last answer.
/// Throws the error of the last attempt. Pauses: full jitter up to 100 ms, doubled each time.
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

/// Reads the JSON form of credentials, of instance metadata, containers (`token_name` Token) and processes
/// (SessionToken). Nothing when `text` is no JSON object with a key and a secret; throws configuration_error when a
/// part is there and cannot be right. No message repeats a value.
inline std::optional<credentials> json_credentials(const text::json_leaves& answer, const char* token_name,
                                                   const where& at) {
  const auto part = [&](std::string_view name) { return answer.find(name).value_or(std::string_view()); };
  const std::string_view key = part("AccessKeyId");
  const std::string_view secret = part("SecretAccessKey");
  if (key.empty() || secret.empty()) return std::nullopt;
  std::optional<std::int64_t> end;
  if (const std::optional<std::string_view> text = answer.find("Expiration")) {
    end = text::parse_iso8601(*text);
    if (!end) throw configuration_error("Expiration is not a date like 2026-01-31T12:00:00Z", at);
  }
  try {
    return credentials(key, secret, part(token_name), end);
  } catch (const configuration_error& e) {
    throw configuration_error(e.reason(), at);
  }
}

}  // namespace millrace::s3::detail
