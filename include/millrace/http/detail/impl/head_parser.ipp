// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/http/detail/head_parser.hpp>
#include <millrace/text/ascii.hpp>

namespace millrace::http::detail {

MILLRACE_INLINE bool head_parser::line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  if (complete_) {  // trailer of a chunked body; libcurl keeps it, however long it is
    trailer_ += text.size() + 2;
    if (trailer_ > 64 * 1024) throw problem("the trailer is too long");
    return false;
  }
  head_bytes_ += text.size() + 2;  // of interim heads too: they may go on for ever
  if (head_bytes_ > 256 * 1024) throw problem("the head is too long");
  if (text.substr(0, 5) == "HTTP/") {
    head_ = response_head();
    any_ = true;
    const std::size_t space = text.find(' ');
    if (space != std::string_view::npos) {
      std::uint64_t status = 0;
      std::string_view rest = text.substr(space + 1);
      content_range::number(rest, status);
      head_.status = static_cast<int>(status > 999 ? 0 : status);
    }
    if (head_.status < 100) throw problem("the status line is not HTTP");
    return false;
  }
  if (text.empty()) {
    if (!any_) throw problem("the head has no status line");
    if (head_.status < 200) return false;
    judge();
    complete_ = true;
    return true;
  }
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) throw problem("a header line has no colon");
  std::string_view value = text.substr(colon + 1);
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
  try {
    head_.fields.add(std::string(text.substr(0, colon)), std::string(value));
  } catch (const configuration_error& e) {
    throw problem(e.reason());
  }
  return false;
}

MILLRACE_INLINE void head_parser::check_body(std::uint64_t received) const {
  if (bodiless() || !head_.length || received == *head_.length) return;
  throw error(failure::broken,
              "the body has " + std::to_string(received) + " bytes instead of " + std::to_string(*head_.length), at(),
              head_.status);
}

MILLRACE_INLINE bool head_parser::chunked() const noexcept {
  const std::string* encoding = head_.fields.find("transfer-encoding");
  return encoding != nullptr && text::equal_ignoring_case(*encoding, "chunked") &&
         head_.fields.count("transfer-encoding") == 1;
}

MILLRACE_INLINE void head_parser::judge() {
  // We name no other coding, so none may come (RFC 9112, 7.4): its end could not be told, nor its bytes be used.
  if (head_.fields.find("transfer-encoding") != nullptr && !chunked()) throw problem("unknown transfer encoding");
  const std::size_t lengths = head_.fields.count("content-length");
  if (lengths > 1) throw problem("the answer has several Content-Length fields");
  if (lengths == 1) {
    std::string_view text = *head_.fields.find("content-length");
    std::uint64_t value = 0;
    if (!content_range::number(text, value) || !text.empty()) throw problem("Content-Length is not a number");
    if (!chunked()) head_.length = value;
  }
  if (lengths == 0 && !chunked() && head_.status < 300 && !bodiless()) {
    throw problem("the answer has neither a Content-Length nor chunked encoding: a cut could not be told from the end");
  }
  if (head_.status == 206) judge_range();
  if (head_.status == 416) {
    if (const std::string* text = head_.fields.find("content-range")) head_.range = content_range::parse(*text);
  }
}

MILLRACE_INLINE void head_parser::judge_range() {
  if (!request_.range && request_.method == "HEAD") return;  // of a part of an upload, by its number
  if (!request_.range) throw problem("206 without a Range in the request");
  const std::string* text = head_.fields.find("content-range");
  if (text == nullptr || head_.fields.count("content-range") != 1) throw problem("206 without one Content-Range");
  head_.range = content_range::parse(*text);
  if (!head_.range || !head_.range->satisfied) throw problem("Content-Range cannot be read");
  const content_range& got = *head_.range;
  const byte_range& want = *request_.range;
  // Fewer bytes than asked for are right only where the object ends.
  const bool to_the_end = got.total && got.last + 1 == *got.total && got.last < want.last;
  if (got.first != want.first || (got.last != want.last && !to_the_end)) {
    throw problem("asked for bytes " + std::to_string(want.first) + "-" + std::to_string(want.last) + ", was sent " +
                  std::to_string(got.first) + "-" + std::to_string(got.last));
  }
  if (head_.length && *head_.length != got.last - got.first + 1) {
    throw problem("Content-Length contradicts Content-Range");
  }
}

MILLRACE_INLINE where head_parser::at() const {
  where w;
  w.object = displayed(request_.url);
  if (request_.range) w.offset = request_.range->first;
  return w;
}

}  // namespace millrace::http::detail
