// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE MILLRACE_NOINLINE void misused(const char* sentence) { throw usage_error(sentence); }
MILLRACE_INLINE MILLRACE_NOINLINE void misconfigured(const char* sentence) { throw configuration_error(sentence); }

MILLRACE_INLINE std::string text_of(const std::exception_ptr& failure) {
  if (failure == nullptr) return std::string();
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {  // it has no message
    return "an exception that is no std::exception";
  }
}

MILLRACE_INLINE std::string reason_of(const std::exception_ptr& failure) {
  try {
    if (failure != nullptr) std::rethrow_exception(failure);
  } catch (const error& e) {
    return e.reason();
  } catch (...) {  // it has a message alone
  }
  return text_of(failure);
}

MILLRACE_INLINE void error_notes::add(std::string_view bare, std::string_view note) {
  publish([&](state& next, const state* before) {
    const bool first = before == nullptr || !before->noted;
    next.text = before == nullptr ? std::string(bare) : before->text;
    if (first) {
      next.text += " (";
    } else {
      next.text.replace(next.text.size() - 1, 1, "; ");
    }
    next.text += note;
    next.text += ')';
    next.noted = true;
    next.at = before == nullptr ? nullptr : before->at;
    return true;
  });
}

MILLRACE_INLINE void error_notes::place(std::string_view bare, std::string_view text, where at) {
  const auto shared = std::make_shared<const where>(std::move(at));
  publish([&](state& next, const state* before) {
    if (before != nullptr && before->at != nullptr) return false;
    next.text = text;
    next.text += before == nullptr ? bare : std::string_view(before->text);
    next.noted = before != nullptr && before->noted;
    next.at = shared;
    return true;
  });
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE io_error io_error::of(int error_number, std::string what, where at) {
  const auto code = std::errc(error_number);
  if (error_number != 0) what += ": " + std::make_error_code(code).message();
  return io_error(code, std::move(what), std::move(at));
}

MILLRACE_INLINE void error::add_note(std::string_view note) {
  std::string text;
  append_escaped(text, note);
  notes_.add(std::runtime_error::what(), text);
}

MILLRACE_INLINE void error::add_place(where at) {
  if (!at_.empty() || at.empty()) return;
  std::string text = compose(std::string(), at);
  notes_.place(std::runtime_error::what(), text, std::move(at));
}

MILLRACE_INLINE std::size_t error::printable(std::string_view text) noexcept {
  const detail::utf8_character c = detail::first_utf8(text);
  const bool control = c.code < 0x20 || (c.code >= 0x7f && c.code < 0xa0);
  const bool hides = (c.code >= 0x200b && c.code <= 0x200f) || (c.code >= 0x2028 && c.code <= 0x202e) ||
                     (c.code >= 0x2060 && c.code <= 0x206f) || c.code == 0xfeff;
  return control || hides ? 0 : c.length;
}

MILLRACE_INLINE void error::append_escaped(std::string& out, std::string_view text) {
  static const char* const hex = "0123456789abcdef";
  while (!text.empty()) {
    const std::size_t n = printable(text);
    if (n > 0) {
      out.append(text.substr(0, n));
    } else {
      const auto u = static_cast<unsigned char>(text.front());
      out += "\\x";
      out += hex[u >> 4];
      out += hex[u & 15];
    }
    text.remove_prefix(n > 0 ? n : 1);
  }
}

MILLRACE_INLINE std::string error::compose(const std::string& reason, const where& at) {
  std::string text;
  append_escaped(text, at.object);
  if (at.offset) {
    text += text.empty() ? "at byte " : " at byte ";
    text += std::to_string(*at.offset);
  }
  if (!at.key.empty()) {
    if (!text.empty()) text += ", ";
    append_escaped(text, at.key);
  }
  if (!text.empty()) text += ": ";
  append_escaped(text, reason);
  return text;
}

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::string without_secrets(const std::string& url) {
  const std::size_t scheme = url.find("://");
  // A "://" after a slash or in the query belongs to another URL.
  const std::size_t begin = scheme == std::string::npos || url.find_first_of("/?#") < scheme ? 0 : scheme + 3;
  const std::size_t end = url.find_first_of("/?#", begin);  // of the authority (RFC 3986, 3.2)
  const std::size_t at = url.rfind('@', end);
  if (at != std::string::npos && at >= begin) {
    std::string text = url.substr(0, url.find_first_of("?#", at));
    return text.erase(begin, at + 1 - begin);
  }
  // A password with a slash, ? or # that should have been encoded: its end is not known.
  if (end != std::string::npos && url.find('@', end) != std::string::npos) {
    const std::size_t colon = url.rfind(':', end);
    const bool port = colon == std::string::npos || colon < begin || url[begin] == '[' ||
                      url.find_first_not_of("0123456789", colon + 1) == end;
    if (url[end] != '/' || !port) return url.substr(0, begin) + "...";
  }
  return url.substr(0, url.find_first_of("?#", begin));
}

/// `scheme` is in lower case. (Not by text/text.hpp: this header is in all that names an item, and with it that
/// namespace would be in every program that uses `namespace millrace`.)
MILLRACE_INLINE bool has_scheme(const std::string& url, std::string_view scheme) noexcept {
  if (url.size() < scheme.size()) return false;
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    const char c = url[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != scheme[i]) return false;
  }
  return true;
}

MILLRACE_INLINE std::string unsigned_url(const std::string& url) {
  const std::size_t question = url.find('?');
  if (question == std::string::npos || (!has_scheme(url, "https://") && !has_scheme(url, "http://"))) return url;
  std::string query = "&";  // in lower case
  query.append(url, question + 1);
  for (char& c : query) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::string_view own;  // parameters of a signature, beside those whose names begin with x-amz- or x-goog-
  if (query.find("&sig=") != std::string::npos) {
    own = " sig sv ss srt sr sp st se spr sip si skoid sktid skt ske sks skv skdutid saoid suoid sduoid scid sdd ses ";
  } else if (query.find("&signature=") != std::string::npos) {
    own = " signature expires awsaccesskeyid googleaccessid key-pair-id policy hash-algorithm ";
  } else if (query.find("&x-amz-signature=") == std::string::npos &&
             query.find("&x-goog-signature=") == std::string::npos) {
    return url;
  }
  std::string out = url.substr(0, question);
  char joint = '?';
  for (std::size_t at = 0; at < query.size();) {
    std::size_t end = query.find('&', at + 1);
    if (end == std::string::npos) end = query.size();
    std::string name = " ";
    name.append(query, at + 1, query.find_first_of("&=", at + 1) - at - 1);
    name += ' ';
    const bool of_signature = name.compare(0, 7, " x-amz-") == 0 || name.compare(0, 8, " x-goog-") == 0 ||
                              own.find(name) != std::string_view::npos;
    if (!of_signature) {
      out += joint;
      out.append(url, question + 1 + at, end - at - 1);
      joint = '&';
    }
    at = end;
  }
  return out;
}

MILLRACE_INLINE std::string shown_url(const std::string& url) {
  const bool name = url.find("://") == std::string::npos || has_scheme(url, "s3://") ||
                    has_scheme(url, "file://");
  return name ? url : without_secrets(url);
}

}  // namespace millrace::detail
