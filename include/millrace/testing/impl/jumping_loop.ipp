// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/deadlock.hpp>
#include <millrace/testing/jumping_loop.hpp>

namespace millrace::testing {

MILLRACE_INLINE void jumping_loop::poll(bool block, std::optional<time_point> deadline) {
  if (!block || (deadline && *deadline <= now())) {
    epoll_loop::poll(false, std::nullopt);
  } else if (operations() > 0) {  // real time first, or a virtual time-out could overtake a real job
    if (!something_within(options_.patience))
      throw deadlock(seed_.behind("an announced operation did not report back in time"));
  } else if (!something_within(deadline ? options_.grace : patience_without_timer())) {
    if (!deadline) throw deadlock(seed_.behind(reproach().c_str()));
    now_ = std::max<std::int64_t>(now_, deadline->time_since_epoch().count());
  }
}

MILLRACE_INLINE std::string jumping_loop::reproach() {
  std::string text = "nothing is ready, no timer is armed, and somebody still waits";
  const char* separator = ": for descriptor ";
  for (std::uint32_t i = 0; i < watches().size(); ++i) {
    const millrace::detail::watch_table::slot& s = watches().at(i);
    if (s.owner == nullptr) continue;
    text += separator + std::to_string(s.fd);
    if (s.events & POLLIN) text += " to be readable";
    if (s.events & POLLOUT) text += s.events & POLLIN ? " or writable" : " to be writable";
    separator = ", ";
  }
  return text;
}

}  // namespace millrace::testing
