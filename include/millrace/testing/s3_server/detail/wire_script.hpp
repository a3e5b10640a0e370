// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/testing/s3_server/fault.hpp>
#include <millrace/testing/s3_server/reply.hpp>

namespace millrace::s3_server::detail {

/// One thing to do with the connection.
class step {
 public:
  enum class kind : std::uint8_t {
    send,   ///< the slices
    pause,  ///< nothing for a while
    stall,  ///< nothing until the client closes
    reset,  ///< RST, once the client has what was sent
    close,  ///< FIN
  };
  explicit step(kind k) : what(k) {}
  explicit step(duration d) : what(kind::pause), length(d) {}
  explicit step(std::vector<bytes> data) : what(kind::send), slices(std::move(data)) {}

  kind what;
  duration length{0};
  std::vector<bytes> slices;
};

using wire_script = std::vector<step>;

std::uint64_t total(const std::vector<bytes>& slices) noexcept;

/// `slices` in chunked coding (RFC 9112, 7.1), chunks of 64 KiB; the last one is left out when `cut`.
std::vector<bytes> in_chunks(std::vector<bytes> slices, bool cut);

/// What is done with the connection to give the answer `a` with the fault `f`: pure, so that it can be tested without a
/// socket. The script ends in close where the connection cannot go on.
wire_script make_script(reply a, fault f);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/wire_script.ipp>
#endif
