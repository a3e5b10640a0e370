// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include <millrace/base/detail/first_time.hpp>
#include <millrace/loop/epoll_loop.hpp>
#include <millrace/loop/ring_loop.hpp>

namespace millrace {

/// A loop on io_uring, or on epoll where io_uring is refused (containers often block it) or `o` says so. The refusal is
/// told once, see loop_options::log. Throws io_error when there is no descriptor left for a loop of any kind.
template <class T = void>
std::unique_ptr<event_loop> make_event_loop(const loop_options& o = {}) {
  if (o.force_epoll) return std::make_unique<basic_epoll_loop<T>>();
  int refused = o.pretend_ring_error;
  if (refused == 0) {
    std::unique_ptr<basic_ring_loop<T>> loop = basic_ring_loop<T>::try_make(o, refused);
    if (loop != nullptr) return loop;
  }
  auto loop = std::make_unique<basic_epoll_loop<T>>();
  const std::string line =
      std::string("millrace: io_uring is not available (") + std::strerror(refused) + "); event loops use epoll";
  if (o.log != nullptr) {
    o.log(o.log_context, line.c_str());
  } else if (detail::first_time(line)) {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  return loop;
}

}  // namespace millrace
