// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loop/event_loop.hpp>

namespace millrace {

MILLRACE_INLINE event_loop& event_loop::of(executor& ex) {
  event_loop* loop = ex.as_event_loop();
  if (loop == nullptr) {
    throw configuration_error("files and sockets need a real event loop: make one with millrace::make_event_loop()");
  }
  return *loop;
}

}  // namespace millrace
