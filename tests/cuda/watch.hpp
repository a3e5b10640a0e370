// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <new>

#include <millrace/device/batch.hpp>

#include "tests/cuda/kernels.hpp"
#include "tests/cuda/session.hpp"

namespace millrace::test {

/// Looks at batches on the GPU, twice, while the host goes on; and says at the end what was found.
///
/// Between the two looks a kernel waits for a gate that the host opens when it has done all that it can: what
/// happens too early has happened then, on every machine. No kernel waits for more than two seconds.
class watch {
 public:
  watch() {
    void* memory = nullptr;
    REQUIRE(cudaHostAlloc(&memory, sizeof(page), cudaHostAllocPortable | cudaHostAllocMapped) == cudaSuccess);
    page_ = new (memory) page();
  }
  watch(const watch&) = delete;
  watch& operator=(const watch&) = delete;
  ~watch() {
    open();
    static_cast<void>(cudaDeviceSynchronize());
    static_cast<void>(cudaFreeHost(page_));
  }

  void close() { __atomic_store_n(&page_->gate, 0, __ATOMIC_RELAXED); }
  void open() { __atomic_store_n(&page_->gate, 1, __ATOMIC_RELAXED); }

  /// The result of the next look().
  const looks& next() const {
    REQUIRE(used_ < most);
    return page_->all[used_];
  }
  /// A kernel on `stream` that finds the numbers from `from` on in the field "id", before the gate opens, or before
  /// `limit` is over, and after it.
  void look(cudaStream_t stream, const device_batch& b, std::int64_t from, duration limit = std::chrono::seconds(2)) {
    look(stream, b.field("id"), from, limit);
  }
  void look(cudaStream_t stream, const tensor_view& ids, std::int64_t from, duration limit) {
    REQUIRE(used_ < most);
    launch_look_twice(stream, ids.as<std::int64_t>(), ids.elements(), from, &page_->gate, limit.count(),
                      &page_->all[used_++]);
  }
  /// Does the same for pixels that are all about `level`.
  void look_at_pixels(cudaStream_t stream, const tensor_view& pixels, int level,
                      duration limit = std::chrono::seconds(2)) {
    REQUIRE(used_ < most);
    launch_look_twice_at_pixels(stream, pixels.as<std::uint8_t>(), pixels.bytes(), level, &page_->gate, limit.count(),
                                &page_->all[used_++]);
  }
  /// Nothing behind it on `stream` begins before the gate opens.
  void hold(cudaStream_t stream) {
    launch_hold(stream, &page_->gate, std::chrono::nanoseconds(std::chrono::seconds(2)).count());
  }
  /// Nothing behind it on `stream` begins before the kernel of `until` has looked once, or `limit` is over.
  static void hold(cudaStream_t stream, const looks& until, duration limit) {
    launch_hold(stream, &until.begun, limit.count());
  }

  /// Waits for the GPU; every look must have found what it should.
  void check() {
    open();
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    for (std::size_t i = 0; i < used_; ++i) {
      const looks& found = page_->all[i];
      if (found.ended == 1 && found.first == 0 && found.second == 0) continue;
      FAIL_CHECK("look " << i << (found.ended == 1 ? "" : " did not happen") << ": " << found.first
                         << " numbers were wrong at first, " << found.second << " later");
    }
    used_ = 0;
    *page_ = page();
  }

 private:
  static constexpr std::size_t most = 256;
  struct page {
    int gate = 1;
    looks all[most];
  };
  page* page_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace millrace::test
