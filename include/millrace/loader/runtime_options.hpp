// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <millrace/data/rank.hpp>
#include <millrace/http/options.hpp>

namespace millrace {

/// What a runtime is made of.
struct runtime_options {
  unsigned loops = 1;  ///< event loops; fetch spreads its transfers over them (one loop carries ~16 Gbit/s of TLS)
  millrace::http::engine_options http = {};  ///< connections and receive buffers, of each loop
  /// Of the pool for functions that compute. 0: the machine's cores divided by the ranks on it (`rank`), at most those
  /// that this process may run on (launchers often bind a rank to its share already), at least one.
  unsigned threads = 0;
  /// Who this process is among the ranks: `rank_from_environment()`. Not given: alone on its machine, as far as the
  /// pool is concerned.
  std::optional<millrace::rank> rank = {};
  bool force_epoll = false;  ///< epoll even where io_uring works
  /// Told the lines that loops and stages say beside the progress line, one at a time, on any loop's thread. By default
  /// they go to standard error.
  void (*log)(void* context, const char* line) = nullptr;
  void* log_context = nullptr;
};

}  // namespace millrace
