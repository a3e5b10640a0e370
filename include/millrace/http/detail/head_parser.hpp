// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/http/error.hpp>
#include <millrace/http/request.hpp>
#include <millrace/http/response_head.hpp>

namespace millrace::http::detail {

/// Reads header lines as libcurl passes them on and judges the head against the request. libcurl itself accepts heads
/// cut short, repeated Content-Length fields, ignored ranges and wrong Content-Range fields; this does not.
class head_parser {
 public:
  explicit head_parser(const request& r) : request_(r) {}

  /// Takes one line; true when it completed the final head (interim 1xx heads are skipped). Throws http::error.
  bool line(std::string_view text);

  bool any() const noexcept { return any_; }
  bool complete() const noexcept { return complete_; }
  response_head& head() noexcept { return head_; }

  /// Judges the whole body once it has ended: nothing short.
  void check_body(std::uint64_t received) const;

 private:
  bool bodiless() const noexcept { return request_.method == "HEAD" || head_.status == 204 || head_.status == 304; }
  bool chunked() const noexcept;

  void judge();
  void judge_range();

  where at() const;
  error problem(std::string reason) const { return error(failure::protocol, std::move(reason), at(), head_.status); }

  const request& request_;
  response_head head_;
  bool any_ = false;
  bool complete_ = false;
  std::size_t head_bytes_ = 0;
  std::size_t trailer_ = 0;  // bytes
};

}  // namespace millrace::http::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/detail/impl/head_parser.ipp>
#endif
