// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/detail/wipe.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/base/units.hpp>
#include <millrace/http/error.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI::http {

/// Header fields in the order of the message. Names compare without regard to ASCII case (RFC 9110, 5.1). Values may be
/// secrets (signatures, session tokens): they are overwritten before their memory is freed.
class headers {
 public:
  using field = std::pair<std::string, std::string>;

  headers() = default;
  headers(const headers&) = default;
  headers(headers&&) noexcept = default;
  headers& operator=(headers other) noexcept {
    fields_.swap(other.fields_);
    return *this;
  }
  ~headers() { clear(); }

  /// Appends a field. Refuses CR, LF and NUL in either part and an empty name: values from files, keys and environment
  /// variables must not be able to add fields of their own.
  void add(std::string name, std::string value);

  /// The first field of that name, null when there is none.
  const std::string* find(std::string_view name) const noexcept;
  std::size_t count(std::string_view name) const noexcept;

  std::size_t size() const noexcept { return fields_.size(); }
  void clear() noexcept {
    for (field& f : fields_) millrace::detail::wipe(f.second);
    fields_.clear();
  }
  auto begin() const noexcept { return fields_.begin(); }
  auto end() const noexcept { return fields_.end(); }

 private:
  std::vector<field> fields_;
};

/// The bytes [first, last] of an object, both included (RFC 9110, 14.1.2).
struct byte_range {
  std::uint64_t first;
  std::uint64_t last;
  std::uint64_t size() const noexcept { return last - first + 1; }
  std::string header_value() const { return "bytes=" + std::to_string(first) + "-" + std::to_string(last); }
};

/// One request. The URL is sent as it is: no normalisation, no re-encoding, no redirect is followed.
class request {
 public:
  explicit request(std::string request_url) : url(std::move(request_url)) {}
  request(std::string request_method, std::string request_url)
      : method(std::move(request_method)), url(std::move(request_url)) {}

  std::string method = "GET";
  std::string url;
  /// The object that errors name; empty: the URL. They then name the server in their text.
  std::string object;
  headers fields;
  bytes body;
  /// Checks the answer when set; the Range header is added by the exchange, unless `fields` has it.
  std::optional<byte_range> range;
  /// Sent over a new connection, not over an open one: data may have been damaged there.
  bool new_connection = false;
  /// Tried again after a failure: sent over a new connection, to an address of the host whose latest request has not
  /// failed, if there is one.
  bool elsewhere = false;
};

/// Memory whose first `filled` bytes were received by earlier exchanges.
class partial_body {
 public:
  writable_bytes memory;
  std::size_t filled = 0;
  running_crc crc;  ///< of these bytes and of those that have followed; of no kind unless the owner gives it one
};

/// Memory for the body: from `pool` (or, without one, from the heap), at most `window` bytes ahead of the reader.
/// Answers that are no success never go into the pool's memory.
class body_options {
 public:
  /// When set, and the answer is as requested (206 to a range, 200 without one), the first piece continues after the
  /// bytes filled there, and if the exchange fails or is dropped before that piece is full, it is left there instead of
  /// being read. A 206 that has only the beginning of the range is treated likewise; without this it is an error, and
  /// read() throws short_answer. Must outlive the exchange.
  partial_body* resume = nullptr;
  std::optional<slab_pool> pool;
  std::size_t window = 2 * slab_pool::default_slab_bytes;  ///< at least one slab is always allowed
  std::size_t heap_chunk = 64 * KiB;
};

/// A Content-Range of a 206 ("bytes 0-9/100") or a 416 ("bytes */100"); RFC 9110, 14.4.
struct content_range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::optional<std::uint64_t> total;
  bool satisfied = false;  ///< false for the "*" of a 416

  /// Strict: anything but the grammar, overflow, first > last or last >= total gives nullopt.
  static std::optional<content_range> parse(std::string_view text) noexcept;

  /// Removes decimal digits from the front of `text`; false if there are none or they overflow.
  static bool number(std::string_view& text, std::uint64_t& value) noexcept;

 private:
  static bool literal(std::string_view& text, char c) noexcept;
};

/// Status and fields of an answer whose head arrived completely.
class response_head {
 public:
  int status = 0;
  headers fields;
  /// Length of the body from the one Content-Length field; nullopt for a chunked body.
  std::optional<std::uint64_t> length;
  /// Checked against the request when that had a range and the status is 206.
  std::optional<content_range> range;

  /// The ETag, quotes included (also if the server left them out); empty when there is none.
  std::string etag() const {
    const std::string* value = fields.find("etag");
    return value == nullptr ? std::string() : millrace::detail::quoted_etag(*value);
  }
};

}  // namespace millrace::http

namespace millrace::inline MILLRACE_ABI::http::detail {

/// The place that errors about a request name: its object, or its URL.
where place_of(const request& r, std::optional<std::uint64_t> offset = std::nullopt);
/// `reason`, with the name of the server if the object does not name it.
std::string told_of(const request& r, std::string reason);

/// Reads header lines as libcurl delivers them and checks the head against the request. libcurl itself accepts
/// truncated heads, repeated Content-Length fields, ignored ranges and wrong Content-Range fields; this does not.
class head_parser {
 public:
  /// `may_go_on`: a 206 may be the beginning of the range alone.
  explicit head_parser(const request& r, bool may_go_on = false) : request_(r), may_go_on_(may_go_on) {}

  /// Takes one line; true when it completed the final head (interim 1xx heads are skipped). Throws http::error.
  bool line(std::string_view text);

  bool any() const noexcept { return any_; }
  bool complete() const noexcept { return complete_; }
  response_head& head() noexcept { return head_; }

  /// Checks that the body is complete once it has ended. Throws short_answer if the range continues.
  void check_body(std::uint64_t received) const;

 private:
  bool bodiless() const noexcept { return request_.method == "HEAD" || head_.status == 204 || head_.status == 304; }
  bool chunked() const noexcept;

  void judge();
  void judge_range();

  where at() const;
  error problem(std::string reason) const {
    return error(failure::protocol, told_of(request_, std::move(reason)), at(), head_.status);
  }

  const request& request_;
  const bool may_go_on_;
  response_head head_;
  bool any_ = false;
  bool complete_ = false;
  bool goes_on_ = false;
  std::size_t head_bytes_ = 0;
  std::size_t trailer_ = 0;  // bytes
};

/// The fields of a request as libcurl takes them (CURLOPT_HTTPHEADER), in our own memory: some are secrets, which are
/// overwritten when it is freed. libcurl makes a copy in its buffer for sending, which it frees as it is.
class header_lines {
 public:
  header_lines() = default;
  header_lines(const header_lines&) = delete;
  header_lines& operator=(const header_lines&) = delete;
  ~header_lines() {
    for (std::string& line : lines_) millrace::detail::wipe(line);
  }

  /// "name: value"; a field without a value is sent as one.
  void add(std::string_view name, std::string_view value);
  /// libcurl leaves out the field that it would add.
  void suppress(std::string_view name) {
    std::string& line = lines_.emplace_back(name);
    line += ':';
  }

  /// Valid until the next line is added.
  curl_slist* list();

 private:
  std::vector<std::string> lines_;
  std::vector<curl_slist> nodes_;
};

}  // namespace millrace::http::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/message.ipp>
#endif
