// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <liburing.h>

#include <millrace/loop/file_operation.hpp>

namespace millrace::detail {

/// What a completion is for: the low bits of a ring's user data.
enum class ring_tag : std::uint64_t { file = 0, poll = 1, wake = 2, overflow = 3, cancel = 4 };
inline constexpr std::uint64_t ring_tag_mask = 7;
static_assert(alignof(file_operation) > ring_tag_mask, "the low bits of an operation's address carry the tag");

inline std::uint64_t ring_data(ring_tag t) noexcept { return static_cast<std::uint64_t>(t); }
inline std::uint64_t ring_data(const file_operation& op) noexcept { return reinterpret_cast<std::uintptr_t>(&op); }
/// From the tag of a watch: generation in the upper half, slot (at most 29 bits) in the lower.
inline std::uint64_t ring_data_of_watch(std::uint64_t watch_tag) noexcept {
  return (watch_tag >> 32 << 32) | (watch_tag & 0xffffffffu) << 3 | ring_data(ring_tag::poll);
}
inline std::uint64_t watch_of_ring_data(std::uint64_t data) noexcept {
  return (data >> 32 << 32) | (data & 0xffffffffu) >> 3;
}

/// Fills a submission entry; the kernel moves at most 2 GiB less a page in one operation.
void prepare(io_uring_sqe* e, const file_request& r) noexcept;

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/detail/impl/ring_prepare.ipp>
#endif
