// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <millrace/base/compiler.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The limit of ranged reads while their consumer waits.
enum class read_limit : unsigned char {
  none,      ///< nothing was seen to, or the consumer does not wait: then the consumer is the limit
  memory,    ///< the bound in bytes
  requests,  ///< the bound of .requests: each connection has its full rate, and more connections would add to it
  link,      ///< more would not raise the rate: the link, or the rate of the store in all
  shards,    ///< the bound of .shards: all objects that may be open are asked for
  disk,      ///< the disk of a cache, which is read instead of the store
};

/// Measurements of a store's host, and the numbers chosen for its readers: all fetch() and epochs(), indexes in the
/// making and whole objects. Returned by runtime::hosts() and found in run_stats::hosts.
class host_stats {
 public:
  std::string name;              ///< "https://store.example:9000"
  std::size_t in_flight = 0;     ///< ranged reads, each on a connection of its own
  std::size_t requests = 0;      ///< how many may be, all readers together
  std::size_t part = 0;          ///< bytes of one of them, at most
  std::size_t readers = 0;       ///< that there are now
  bool measured = false;         ///< if not, the figures above are initial ones, and those below are 0
  double first_byte = 0;         ///< seconds from a request to the first byte, if nothing else limits a read
  double connection_rate = 0;    ///< bytes per second of one connection after that, likewise
  double rate = 0;               ///< bytes per second of all of them, when it was measured last
  read_limit limit = read_limit::none;  ///< when it was measured last

  /// One line for people.
  std::string text() const;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/host_stats.ipp>
#endif
