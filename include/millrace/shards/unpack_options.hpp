// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/io/cpu_pool.hpp>

namespace millrace {

/// How compressed objects are unpacked, by untar() and lines(): several side by side on a pool, handed on in their
/// order. While the first one is handed on, the next ones are read and unpacked ahead, as far as `bytes` goes; the
/// first goes on in any case. So a core for each is busy where `bytes` holds as many unpacked objects; one object alone
/// keeps one core.
struct unpack_options {
  pool_ref on = nullptr;    ///< to outlive the pipeline; none: the runtime's pool, or the thread of a bare loop
  std::size_t objects = 0;  ///< unpacked at once; 0: as many as the pool has threads
  /// Of pieces that wait, declared as the stage's bound: compressed ones take at most half of it, unpacked ones the
  /// rest. 0: nothing is declared, since shards may be plain; from the first compressed one on 256 MiB, or half of what
  /// the run's memory budget leaves then, if that is less.
  std::size_t bytes = 0;
};

}  // namespace millrace
