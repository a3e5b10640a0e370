// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <millrace/memory/bytes.hpp>
#include <millrace/memory/writable_bytes.hpp>
#include <millrace/tar/detail/input.hpp>

namespace millrace::tar::detail {

/// A body that was not all there when its header was read: shared if it still turns out to lie in one piece, gathered
/// into memory of its own if not, or passed over.
class body_collector {
 public:
  void begin(std::uint64_t size) noexcept {
    wanted_ = size;
    done_ = 0;
  }

  /// True when `out` is the whole body; false: more input is needed.
  bool collect(input& in, bytes& out) {
    const auto wanted = static_cast<std::size_t>(wanted_);
    if (!memory_) {
      const std::size_t together = in.together();
      if (together == 0 && wanted != 0) return false;
      if (together >= wanted) {
        in.take(wanted, out);
        return true;
      }
      memory_ = writable_bytes::allocate(wanted);
    }
    done_ += in.copy(memory_.data() + done_, wanted - static_cast<std::size_t>(done_));
    if (done_ != wanted_) return false;
    out = memory_.share(0, wanted);
    memory_ = writable_bytes();
    return true;
  }

  /// True when the whole body has been passed over.
  bool skip(input& in) {
    done_ += in.skip(wanted_ - done_);
    return done_ == wanted_;
  }

  /// Passes over what is there; says how many bytes more that is not, and takes them for passed over.
  std::uint64_t jump(input& in) {
    skip(in);
    return wanted_ - std::exchange(done_, wanted_);
  }

  void drop() noexcept { memory_ = writable_bytes(); }

 private:
  writable_bytes memory_;
  std::uint64_t wanted_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace millrace::tar::detail
