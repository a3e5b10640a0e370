// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/testing/s3_server/detail/stream.hpp>
#include <millrace/testing/s3_server/request.hpp>

namespace millrace::s3_server::detail {

/// The receiving side of a connection: heads, and bodies of either framing. What was read ahead waits for the next
/// call.
class input {
 public:
  input(stream& from, std::size_t max_head) : stream_(from), memory_(max_head) {}

  /// A head without its empty line (each field with its CR LF); empty at the end of the connection. Throws refusal when
  /// it is too long.
  MILLRACE_COROUTINE task<std::string> head();

  /// A body of `size` bytes in memory of its own.
  MILLRACE_COROUTINE task<bytes> body(std::uint64_t size);

  /// Reads a body and forgets it.
  MILLRACE_COROUTINE task<void> skip(std::uint64_t size);

  /// A body in chunked coding, of at most `limit` bytes; its trailing fields go to `r`.
  MILLRACE_COROUTINE task<bytes> chunked_body(request& r, std::uint64_t limit);

 private:
  [[noreturn]] static void throw_cut() { throw io_error(ECONNRESET, "the client closed the connection in a request"); }

  std::string_view view() const noexcept { return {memory_.data() + begin_, end_ - begin_}; }

  MILLRACE_COROUTINE task<bool> fill();

  std::size_t take(char* to, std::size_t limit) noexcept;

  MILLRACE_COROUTINE task<std::string> line();

  stream& stream_;
  std::vector<char> memory_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/input.ipp>
#endif
