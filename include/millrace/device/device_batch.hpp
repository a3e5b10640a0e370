// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/device/detail/slot_ring_base.hpp>

namespace millrace {

/// A batch in the memory of a device, on its way or there already: what to_device() yields.
///
///     batch.wait(stream);                                    // the GPU waits for the copy, the host does not
///     train<<<..., stream>>>(batch.field("image").as<unsigned char>(), ...);
///     batch.release(stream);                                 // or let the batch go out of scope
///
/// Memory: a slot of a small ring, at the same few addresses from batch to batch. It is written again only after
/// everything that the streams given to wait() and release() had enqueued by the time of the release is done. Those
/// streams must be alive at the release, and capture no graph: call these functions before and after the launch of
/// one. Keys, tags and the host's copy of the tensors stay readable as long as the batch.
///
/// Misuse: to use field() though neither a stream nor the host has waited. In debug builds (without NDEBUG)
/// release(stream) throws usage_error then; where the batch is dropped, the pipeline's next batch does.
///
/// Ownership: one owner; used by one thread at a time, which may be another than the pipeline's. It may outlive the
/// pipeline and the runtime: then its release waits for the device and frees the slot.
class device_batch {
 public:
  device_batch() noexcept = default;
  device_batch(std::shared_ptr<detail::slot_ring_base> ring, std::size_t slot) noexcept
      : ring_(std::move(ring)), slot_(slot) {}
  device_batch(device_batch&& other) noexcept : ring_(std::move(other.ring_)), slot_(other.slot_) {}
  device_batch& operator=(device_batch&& other) noexcept;
  /// Releases. Waits for nothing, unless the device fails or the runtime has gone.
  ~device_batch() { MILLRACE_LAUNDER(this)->release(); }

  /// False after release() or for a batch that was moved from: there is nothing to look at then.
  explicit operator bool() const noexcept { return ring_ != nullptr; }

  /// How many samples there are.
  std::size_t size() const { return host().size(); }
  const batch_layout& layout() const { return host().layout(); }
  /// Bytes that were copied.
  std::size_t bytes() const { return host().bytes(); }
  /// Where the memory is: "cuda:0", "host".
  std::string device() const { return ring().device_name(); }

  /// A tensor of all samples in the device's memory; its outermost extent is size().
  tensor_view field(std::size_t i) const { return layout().tensor(ring().memory(slot_), i, size()); }
  tensor_view field(std::string_view name) const { return field(layout().find(name)); }
  /// The same tensor as the host sent it, to be read only: labels for a metric, say.
  tensor_view host_field(std::size_t i) const { return host().field(i); }
  tensor_view host_field(std::string_view name) const { return host().field(name); }
  /// The keys of the samples; empty strings where none was given.
  template <class Text = std::string>
  std::span<const Text> keys() const {
    return host().keys();
  }
  /// The tags of type T, one a sample; empty when no sample has one.
  template <class T>
  std::span<const T> tags() const {
    return host().template tags<T>();
  }
  /// The samples' weights, on the host; see host_batch::weights().
  template <class Weight = float>
  std::span<const Weight> weights() const {
    return host().weights();
  }
  /// Where the training stands behind this batch; see host_batch::mark().
  epoch_mark mark() const { return host().mark(); }

  /// What is enqueued on `stream` from now on starts after the copy. Does not block the host. May be called for several
  /// streams. A null stream, here and below, is the default stream of the batch's device, whichever is current. Throws
  /// configuration_error for a stream of another kind of device, for CUDA's default stream per thread (another one on
  /// the next thread) and for a stream that captures a graph, and what the device throws.
  void wait(stream_ref stream) { ring().wait(slot_, stream); }
  /// Whether the copy is done; never blocks.
  bool ready() const { return ring().ready(slot_); }
  /// Blocks the calling thread until the copy is done: for host_device and for debugging.
  void synchronize() const { ring().synchronize(slot_); }

  /// Gives the slot back behind what `stream`, and every stream that waited, has enqueued so far. The batch is empty
  /// then. Throws configuration_error, releasing nothing, for a stream of another kind of device.
  void release(stream_ref stream);
  /// Gives the slot back behind the streams that waited; at once when none did.
  void release() noexcept;

 private:
  detail::slot_ring_base& ring() const;
  const host_batch& host() const { return ring().host(slot_); }

  std::shared_ptr<detail::slot_ring_base> ring_;
  std::size_t slot_ = 0;
};

/// For the bytes column of the stage table.
inline std::size_t byte_size(const device_batch& b) { return b ? b.bytes() : 0; }
inline std::size_t sample_count(const device_batch& b) noexcept { return b ? b.size() : 0; }
inline epoch_mark mark_of(const device_batch& b) { return b ? b.mark() : epoch_mark(); }

namespace detail {
/// Its slots are in the bound of to_device().
template <>
inline constexpr bool declared_before_v<device_batch> = true;
}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/impl/device_batch.ipp>
#endif
