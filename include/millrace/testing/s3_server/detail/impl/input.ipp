// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/writable_bytes.hpp>
#include <millrace/testing/s3_server/detail/body_check.hpp>
#include <millrace/testing/s3_server/detail/input.hpp>
#include <millrace/testing/s3_server/detail/parse_head.hpp>
#include <millrace/testing/s3_server/refusal.hpp>

namespace millrace::s3_server::detail {

MILLRACE_COROUTINE_BODY task<std::string> input::head() {
  std::size_t searched = 0;
  for (;;) {
    const std::size_t end = view().find("\r\n\r\n", searched);
    if (end != std::string_view::npos) {
      std::string text(view().substr(0, end + 2));
      begin_ += end + 4;
      co_return text;
    }
    searched = view().size() < 3 ? 0 : view().size() - 3;
    if (view().size() == memory_.size()) {
      throw refusal(400, "RequestHeaderSectionTooLarge", "Your request header section exceeds the maximum allowed");
    }
    if (!co_await fill()) co_return std::string();
  }
}

MILLRACE_COROUTINE_BODY task<bytes> input::body(std::uint64_t size) {
  writable_bytes whole = writable_bytes::allocate(static_cast<std::size_t>(size));
  std::size_t have = take(whole.data(), static_cast<std::size_t>(size));
  while (have < size) {
    const std::size_t n = co_await stream_.read_some({whole.data() + have, static_cast<std::size_t>(size) - have});
    if (n == 0) throw_cut();
    have += n;
  }
  co_return whole.share(0, have);
}

MILLRACE_COROUTINE_BODY task<void> input::skip(std::uint64_t size) {
  while (size > 0) {
    if (view().empty() && !co_await fill()) throw_cut();
    const std::uint64_t n = std::min<std::uint64_t>(size, view().size());
    begin_ += static_cast<std::size_t>(n);
    size -= n;
  }
}

MILLRACE_COROUTINE_BODY task<bytes> input::chunked_body(request& r, std::uint64_t limit) {
  std::string whole;
  for (;;) {
    const std::string size_line = co_await line();
    const std::optional<std::uint64_t> size = parse_chunk_size(size_line);
    if (!size) throw refusal(400, "InvalidRequest", "A chunk has no valid size");
    if (*size > limit - whole.size()) throw refusal(400, "EntityTooLarge", "The body is too large");
    if (*size == 0) break;
    const bytes chunk = co_await body(*size);
    whole.append(chunk.data(), chunk.size());
    const std::string end = co_await line();
    if (!end.empty()) throw refusal(400, "InvalidRequest", "A chunk is longer than its size");
  }
  for (;;) {
    const std::string field = co_await line();
    if (field.empty()) break;
    if (parse_fields(field + "\r\n", r.trailer) != nullptr) {
      throw refusal(400, "InvalidRequest", "A trailing field is malformed");
    }
  }
  co_return bytes::copy(whole);
}

MILLRACE_COROUTINE_BODY task<bool> input::fill() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (end_ == memory_.size()) {
    std::memmove(memory_.data(), memory_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t n = co_await stream_.read_some({memory_.data() + end_, memory_.size() - end_});
  end_ += n;
  co_return n > 0;
}

MILLRACE_INLINE std::size_t input::take(char* to, std::size_t limit) noexcept {
  const std::size_t n = std::min(limit, end_ - begin_);
  if (n > 0) std::memcpy(to, memory_.data() + begin_, n);
  begin_ += n;
  return n;
}

MILLRACE_COROUTINE_BODY task<std::string> input::line() {
  for (;;) {
    const std::size_t end = view().find("\r\n");
    if (end != std::string_view::npos) {
      std::string text(view().substr(0, end));
      begin_ += end + 2;
      co_return text;
    }
    if (view().size() == memory_.size()) throw refusal(400, "InvalidRequest", "A line of the body is too long");
    if (!co_await fill()) throw_cut();
  }
}

}  // namespace millrace::s3_server::detail
