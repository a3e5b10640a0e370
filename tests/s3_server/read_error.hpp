// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/coro/task.hpp>
#include <millrace/testing/s3_server/stream_socket.hpp>

namespace millrace::test {

using s3_server::stream_socket;

/// Reads to the end of the stream: 0 there, else the error.
inline task<int> read_error(stream_socket& s) {
  try {
    char memory[16];
    while (co_await s.read_some(memory) > 0) continue;
    co_return 0;
  } catch (const io_error& e) {
    co_return e.code().value();
  }
}

}  // namespace millrace::test
