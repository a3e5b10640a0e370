// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include <millrace/base/detail/refused.hpp>
#include <millrace/device/batch_builder.hpp>
#include <millrace/device/device.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace {

namespace detail {

/// A device's page-locked memory as the slabs of a pool.
template <device D>
class pinned_slab_source final : public slab_source {
 public:
  explicit pinned_slab_source(const D& on) : on_(on) {}
  void* allocate(std::size_t size) override { return on_.allocate_pinned(size); }
  void free(void* memory, std::size_t size) noexcept override { on_.free_pinned(memory, size); }

 private:
  D on_;
};

/// The device of a device (itself) or of a stream (what as_device() makes of it).
template <class Target>
auto device_of(const Target& target) {
  if constexpr (device<Target>) {
    return target;
  } else if constexpr (requires { as_device(target); }) {
    return as_device(target);
  } else {
    static_assert(
        never_v<Target>,
        "this is neither a device nor a stream: pass a millrace::host_device, a millrace::cuda::stream, or a type that "
        "satisfies millrace::device");
    return refused();
  }
}

}  // namespace detail

/// Recycled memory for batches of one layout. A copy is the same pool; thread-safe.
///
///     mill::batch_layout layout(256, {{"image", mill::dtype::u8, {224, 224, 3}}, {"label", mill::dtype::i64}});
///     mill::batch_pool pool(layout, copies);    // page-locked, for the device of that stream
///
/// The program makes it once, for all epochs: its memory is freed with its last copy and last batch, and freeing
/// page-locked memory may wait for the device. start() never waits. The stages that hold batches bound their number;
/// pool.peak() tells how many there were.
class batch_pool {
 public:
  /// Ordinary memory: for host_device, or for batches that never go to a device.
  explicit batch_pool(const batch_layout& layout) : layout_(layout), slabs_(slab_size(layout)) {}

  /// Memory of a device, or of a stream's device: page-locked, unless any memory is as good to that device. (A GPU
  /// could not copy directly from what a host_device has given: to_device() moves such batches to page-locked memory.)
  template <class Target>
  batch_pool(const batch_layout& layout, const Target& target)
      : layout_(layout), slabs_(slab_size(layout), source_for(detail::device_of(target))),
        pinned_(!detail::copies_any_memory<decltype(detail::device_of(target))>) {}

  /// Slabs of another pool, of slab_size(layout) bytes at least.
  batch_pool(const batch_layout& layout, slab_pool slabs, bool page_locked)
      : layout_(layout), slabs_(std::move(slabs)), pinned_(page_locked) {}

  const batch_layout& layout() const noexcept { return layout_; }

  /// An empty batch to fill. Throws what the allocation throws.
  batch_builder start();

  /// Batches that exist now, and the most that did at once.
  std::size_t live() const { return slabs_.live(); }
  std::size_t peak() const { return slabs_.peak(); }

  /// The memory of one batch, in bytes.
  static std::size_t slab_size(const batch_layout& layout) noexcept {
    return layout.bytes() == 0 ? batch_layout::alignment : layout.bytes();
  }

 private:
  template <class D>
  static std::shared_ptr<slab_source> source_for(const D& on) {
    if constexpr (std::is_same_v<D, detail::refused>) {
      return nullptr;
    } else {
      return std::make_shared<detail::pinned_slab_source<D>>(on);
    }
  }

  batch_layout layout_;
  slab_pool slabs_;
  bool pinned_ = false;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/impl/batch_pool.ipp>
#endif
