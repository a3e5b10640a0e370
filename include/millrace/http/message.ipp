// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/http/message.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::http {

MILLRACE_INLINE void headers::add(std::string name, std::string value) {
  const auto bad = [](char c) { return c == '\r' || c == '\n' || c == '\0'; };
  for (char c : name) {
    if (bad(c) || c == ':' || c == ' ') throw configuration_error("a header name has a forbidden character");
  }
  for (char c : value) {
    if (bad(c)) throw configuration_error("the value of header " + name + " has a control character");
  }
  if (name.empty()) throw configuration_error("a header name is empty");
  fields_.emplace_back(std::move(name), std::move(value));
}

MILLRACE_INLINE const std::string* headers::find(std::string_view name) const noexcept {
  for (const field& f : fields_) {
    if (text::equal_ignoring_case(f.first, name)) return &f.second;
  }
  return nullptr;
}

MILLRACE_INLINE std::size_t headers::count(std::string_view name) const noexcept {
  std::size_t n = 0;
  for (const field& f : fields_) n += text::equal_ignoring_case(f.first, name) ? 1U : 0U;
  return n;
}

MILLRACE_INLINE std::optional<content_range> content_range::parse(std::string_view text) noexcept {
  content_range r;
  if (!text::starts_ignoring_case(text, "bytes ")) return std::nullopt;
  text.remove_prefix(6);
  if (!text.empty() && text[0] == '*') {
    text.remove_prefix(1);
  } else {
    if (!number(text, r.first) || !literal(text, '-') || !number(text, r.last) || r.first > r.last) return std::nullopt;
    r.satisfied = true;
  }
  if (!literal(text, '/')) return std::nullopt;
  if (text == "*") return r.satisfied ? std::optional<content_range>(r) : std::nullopt;
  std::uint64_t total = 0;
  if (!number(text, total) || !text.empty()) return std::nullopt;
  if (r.satisfied && r.last >= total) return std::nullopt;
  r.total = total;
  return r;
}

MILLRACE_INLINE bool content_range::number(std::string_view& text, std::uint64_t& value) noexcept {
  const std::optional<std::uint64_t> digits = text::take_decimal<std::uint64_t>(text);
  value = digits.value_or(0);
  return digits.has_value();
}

MILLRACE_INLINE bool content_range::literal(std::string_view& text, char c) noexcept {
  if (text.empty() || text[0] != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace millrace::http

namespace millrace::inline MILLRACE_ABI::http::detail {

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
  if (bodiless()) return;
  std::optional<std::uint64_t> due = head_.length;
  if (head_.status == 206 && head_.range && (goes_on_ || !head_.range->satisfied)) {
    due = head_.range->satisfied ? head_.range->last - head_.range->first + 1 : 0;
  }
  if (due && received != *due) {
    const std::string lengths = std::to_string(received) + " bytes instead of " + std::to_string(*due);
    throw error(failure::broken, told_of(request_, "the body has " + lengths), at(), head_.status);
  }
  if (goes_on_) {
    throw short_answer("the server sent " + std::to_string(received) + " of the " +
                           std::to_string(request_.range->size()) + " bytes that it was asked for",
                       at());
  }
}

MILLRACE_INLINE bool head_parser::chunked() const noexcept {
  const std::string* encoding = head_.fields.find("transfer-encoding");
  return encoding != nullptr && text::equal_ignoring_case(*encoding, "chunked") &&
         head_.fields.count("transfer-encoding") == 1;
}

MILLRACE_INLINE void head_parser::judge() {
  // We accept no other coding, so a server must not send one (RFC 9112, 7.4): its end would not be known, and its bytes
  // would be of no use.
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
    throw problem("the answer has neither a Content-Length nor chunked encoding: truncation could not be detected");
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
  if (!head_.range) throw problem("Content-Range cannot be read");
  if (!head_.range->satisfied) {  // no range of an empty object can be sent: some servers say so with a 206
    if (head_.range->total != std::uint64_t(0) || head_.length.value_or(0) != 0) {
      throw problem("Content-Range cannot be read");
    }
    return;
  }
  const content_range& got = *head_.range;
  const byte_range& want = *request_.range;
  // Fewer bytes than asked for are right only at the object's end.
  const bool to_the_end = got.total && got.last + 1 == *got.total && got.last < want.last;
  goes_on_ = may_go_on_ && got.total && got.last < want.last && !to_the_end;
  if (got.first != want.first || (got.last != want.last && !to_the_end && !goes_on_)) {
    throw problem("asked for bytes " + std::to_string(want.first) + "-" + std::to_string(want.last) + ", was sent " +
                  std::to_string(got.first) + "-" + std::to_string(got.last));
  }
  if (head_.length && *head_.length != got.last - got.first + 1) {
    throw problem("Content-Length contradicts Content-Range");
  }
}

MILLRACE_INLINE where head_parser::at() const {
  return request_.range ? place_of(request_, request_.range->first) : place_of(request_);
}

MILLRACE_INLINE where place_of(const request& r, std::optional<std::uint64_t> offset) {
  return where{r.object.empty() ? displayed(r.url) : r.object, offset, std::string()};
}

MILLRACE_INLINE std::string told_of(const request& r, std::string reason) {
  const std::string server = displayed_server(r.url);
  if (!r.object.empty() && r.object.compare(0, server.size(), server) != 0) reason += " (" + server + ")";
  return reason;
}

MILLRACE_INLINE void header_lines::add(std::string_view name, std::string_view value) {
  std::string& line = lines_.emplace_back();
  line.reserve(name.size() + 2 + value.size());  // growing would leave a copy of its beginning in freed memory
  line += name;
  line += value.empty() ? ";" : ": ";
  line += value;
}

MILLRACE_INLINE curl_slist* header_lines::list() {
  nodes_.resize(lines_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].data = lines_[i].data();
    nodes_[i].next = i + 1 < nodes_.size() ? &nodes_[i + 1] : nullptr;
  }
  return nodes_.empty() ? nullptr : nodes_.data();
}

}  // namespace millrace::http::detail
