// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/log.hpp>
#include <millrace/loop/epoll_loop.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/loop/ring_loop.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::unique_ptr<event_loop> make_event_loop(const loop_options& o) {
  if (o.force_epoll) return std::unique_ptr<event_loop>(new epoll_loop);
  int refused = 0;
  std::unique_ptr<event_loop> loop = ring_loop::try_make(refused);
  return loop != nullptr ? std::move(loop) : detail::make_loop_without_ring(o, refused);
}

MILLRACE_INLINE std::unique_ptr<event_loop> detail::make_loop_without_ring(const loop_options& o, int refused) {
  std::unique_ptr<event_loop> loop(new epoll_loop);
  const std::string line =
      std::string("millrace: io_uring is not available (") + std::strerror(refused) + "); event loops use epoll";
  const log_record record(log_level::warning, line);
  if (o.log != nullptr) {
    o.log(record);
  } else if (detail::first_time(line)) {
    detail::log_to_process(record);
  }
  return loop;
}

}  // namespace millrace
