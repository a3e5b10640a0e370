// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <millrace/loop/event_loop.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A loop on io_uring, or on epoll if io_uring or one of its system calls is refused (containers often block it) or
/// `o` requires it. The refusal is logged once, see loop_options::log. Throws io_error if no descriptor is left for any
/// kind of loop.
std::unique_ptr<event_loop> make_event_loop(const loop_options& o = {});

namespace detail {
/// A loop on epoll, as io_uring is refused with this errno value; logs that.
std::unique_ptr<event_loop> make_loop_without_ring(const loop_options& o, int refused);
}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/make_event_loop.ipp>
#endif
