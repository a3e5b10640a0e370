// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::http {

MILLRACE_INLINE void exchange::waiting::await_suspend(std::coroutine_handle<> handle) noexcept {
  suspend(handle);
  transfer_.set_waiter(&node(), for_head_, stage());
  suspended_ = true;
}

MILLRACE_INLINE const response_head& exchange::head_awaiter::await_resume() {
  this->resumed();
  if (!this->transfer_.head_complete()) this->transfer_.rethrow_if_failed();
  return this->transfer_.head();
}

}  // namespace millrace::http

namespace millrace::inline MILLRACE_ABI::http::detail {

/// True if there is text outside of tags.
MILLRACE_INLINE bool says_something(std::string_view line) noexcept {
  bool inside = false;
  for (const char c : line) {
    if (!inside && c != '<' && c != ' ') return true;
    inside = c == '<' || (inside && c != '>');
  }
  return false;
}

/// The end of a message about the answer `text` to a URL that was signed too long ago, by the codes of S3, Google Cloud
/// Storage and Azure; else empty.
MILLRACE_INLINE const char* if_expired(std::string_view text) noexcept {
  constexpr std::size_t none = std::string_view::npos;
  if (text.find("<Message>Request has expired") != none || text.find("<Code>ExpiredToken</Code>") != none) {
    return "; the signature of the URL has expired: it has to be signed anew";
  }
  if (text.find("<Code>AuthenticationFailed</Code>") != none &&
      text.find("Signature not valid in the specified time frame") != none) {
    return "; the signature of the URL has expired, or does not hold yet: it has to be signed anew";
  }
  return "";
}

/// Overwrites `line` from `begin` up to `end` with dots; gives where they end.
MILLRACE_INLINE std::size_t mask(std::string& line, std::size_t begin, std::size_t end) {
  end = std::min(end, line.size());
  if (begin >= end) return end;
  line.replace(begin, end - begin, "...");
  return begin + 3;
}

/// Pages of proxies repeat requests: fields, URLs with their signatures and users.
MILLRACE_INLINE void mask_secrets(std::string& line, const request& asked) {
  const auto mask_all = [&](std::string_view secret) {
    if (secret.size() < 4) return;
    for (std::size_t at; (at = line.find(secret)) != std::string::npos;) mask(line, at, at + secret.size());
  };
  for (const auto& [name, value] : asked.fields) {
    for (const char* secret : {"authorization", "x-amz-security-token", "cookie", "x-amz-s3session-token",
                               "x-amz-server-side-encryption-customer-key"}) {
      if (text::equal_ignoring_case(name, secret)) mask_all(value);
    }
  }
  const std::size_t query = asked.url.find('?');
  if (query != std::string::npos) mask_all(std::string_view(asked.url).substr(query + 1));
  // User information, and queries.
  for (std::size_t at = 0; (at = line.find("://", at)) != std::string::npos; at += 3) {
    const std::size_t begin = at + 3;
    const std::size_t end = std::min(line.find_first_of(" \"'<>", begin), line.size());
    const std::size_t user = line.rfind('@', end == 0 ? 0 : end - 1);
    if (user != std::string::npos && user >= begin) mask(line, begin, user);
    const std::size_t question = line.find('?', begin);
    if (question != std::string::npos) mask(line, question + 1, line.find_first_of(" \"'<>", question));
  }
  const std::string lower = text::to_lower(line);
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = 0; at < lower.size(); ++at) {
    static constexpr std::string_view names[] = {"authorization", "signature", "credential", "token", "password",
                                                 "secret",        "sig",       "keyid",      "cookie"};
    for (const std::string_view name : names) {
      if (lower.compare(at, name.size(), name) != 0) continue;
      std::size_t i = at + name.size();
      const bool quoted = i < lower.size() && (lower[i] == '"' || lower[i] == '\'');
      i += quoted ? 1 : 0;
      while (i < lower.size() && lower[i] == ' ') ++i;
      const bool whole = name == "authorization" || name == "cookie";
      const bool encoded = lower.compare(i, 3, "%3d") == 0;
      const bool colon = i < lower.size() && lower[i] == ':' && (quoted || whole);
      if (!encoded && !colon && (i >= lower.size() || lower[i] != '=')) continue;
      i += encoded ? 3 : 1;
      while (i < lower.size() && (lower[i] == ' ' || lower[i] == '"' || lower[i] == '\'')) ++i;
      const std::size_t end = std::min(lower.find_first_of(whole ? "\"'<>" : "\"'<>&, %", i), lower.size());
      if (end <= i) continue;
      out.append(line, done, i - done);
      out += "...";
      done = end;
      at = end - 1;
      break;
    }
  }
  out.append(line, done);
  line = std::move(out);
}

}  // namespace millrace::http::detail

namespace millrace::inline MILLRACE_ABI::http {

MILLRACE_COROUTINE_BODY task<std::string> read_all(exchange& x, std::size_t limit) {
  std::string text;
  for (;;) {
    const bytes piece = co_await x.read();
    if (piece.empty()) break;
    if (piece.size() > limit - text.size()) {
      throw error(failure::too_large, "the answer is longer than " + std::to_string(limit) + " bytes",
                  detail::place_of(x.asked()));
    }
    text.append(piece.data(), piece.size());
  }
  co_return text;
}

MILLRACE_COROUTINE_BODY task<response> send(request r, std::shared_ptr<const transport_options> transport,
                                            std::size_t limit) {
  executor& ex = co_await this_executor();
  exchange x(engine::of(ex), std::move(r), std::move(transport));
  response answer;
  answer.head = co_await x.head();
  answer.body = co_await read_all(x, limit);
  co_return answer;
}

MILLRACE_COROUTINE_BODY task<std::string> first_words(exchange& x) {
  std::string text;
  try {
    while (text.size() < 4 * KiB) {
      const bytes piece = co_await x.read();
      if (piece.empty()) break;
      text.append(piece.data(), std::min<std::size_t>(piece.size(), 4 * KiB));
    }
  } catch (const error&) {  // the part received is enough
  }
  std::string words = first_words(text, x.asked());
  words += detail::if_expired(text);
  co_return words;
}

MILLRACE_INLINE std::string first_words(std::string_view body, const request& asked) {
  std::string line;
  for (int lines = 0; !body.empty() && lines < 8;) {
    const std::size_t end = std::min(body.find_first_of("\r\n"), body.size());
    std::string_view one = body.substr(0, std::min<std::size_t>(end, 1024));
    body.remove_prefix(end == body.size() ? end : end + 1);
    while (!one.empty() && (one.front() == ' ' || one.front() == '\t')) one.remove_prefix(1);
    while (!one.empty() && (one.back() == ' ' || one.back() == '\t')) one.remove_suffix(1);
    if (one.empty()) continue;
    ++lines;
    if (!line.empty()) line += ' ';
    line += one;
    if (detail::says_something(one)) break;
  }
  detail::mask_secrets(line, asked);
  constexpr std::size_t most = 200;
  if (line.size() > most) {
    std::size_t cut = most;
    while (cut > 0 && (static_cast<unsigned char>(line[cut]) & 0xc0) == 0x80) --cut;
    line = line.substr(0, cut) + "...";
  }
  return line;
}

}  // namespace millrace::http
