// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <millrace/loop/event_loop.hpp>
#include <millrace/loop/loop_options.hpp>

namespace millrace {

/// A loop on io_uring, or on epoll where io_uring is refused (containers often block it) or `o` says so. The refusal is
/// told once, see loop_options::log. Throws io_error when there is no descriptor left for a loop of any kind.
std::unique_ptr<event_loop> make_event_loop(const loop_options& o = {});

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/impl/make_event_loop.ipp>
#endif
