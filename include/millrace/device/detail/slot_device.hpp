// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/type_id.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/undecoded_image.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// An image of a batch.
struct image_to_decode {
  const undecoded_image* image = nullptr;
  std::uint8_t* place = nullptr;  ///< on the device, for the pixels
  where from;                     ///< for errors
  bool taken = false;             ///< by the device; the host decodes the others
};

/// Tries `action` twice, because the first call may report an error of earlier work. Returns whether one of them
/// succeeded: if not, the device is broken for good, and nothing runs on it any more.
template <class Action>
bool attempt_twice(Action action) noexcept {
  for (int i = 0; i < 2; ++i) {
    try {
      action();
      return true;
    } catch (...) {
    }
  }
  return false;
}

/// A `device` whose type is not known: a batch takes a few of these calls. As a slab_source it gives the device's
/// page-locked memory.
class slot_device : public slab_source {
 public:
  /// An event of the device, or what it keeps for one slot: made by this class, and passed back to an equal device.
  using object = std::shared_ptr<void>;

  virtual type_id kind() const noexcept = 0;
  virtual bool equals(const slot_device& other) const = 0;
  virtual void* allocate_device(std::size_t n) = 0;
  virtual void free_device(void* memory, std::size_t n) noexcept = 0;
  virtual object make_event() = 0;
  virtual void copy_to_device(void* to, const void* from, std::size_t n) = 0;
  virtual void record(const object& event) = 0;
  virtual void record(const object& event, stream_ref stream) = 0;
  virtual void wait(stream_ref stream, const object& event) = 0;
  virtual bool query(const object& event) = 0;
  virtual void synchronize(const object& event) = 0;
  virtual void synchronize(stream_ref stream) = 0;
  virtual std::string name() = 0;

  // ---- what the concept leaves to the device

  virtual bool copies_any_memory() const noexcept = 0;
  /// Empty: it has none.
  virtual std::string pci_address() = 0;
  /// Enqueues what the device decodes of the images, and marks these as taken. `state`: of the slot, from batch to
  /// batch; null before the first one.
  virtual void decode(std::vector<image_to_decode>& images, object& state) = 0;
  /// All are decoded: enqueues the copies of those that the device keeps.
  virtual void keep(const std::vector<image_to_decode>& images, const object& state) = 0;
  /// Bytes of images that it keeps at most.
  virtual std::size_t keeps() const noexcept = 0;
  /// A line for the log, once; else nothing.
  virtual std::string remark() = 0;
};

template <device D>
class slot_device_on final : public slot_device {
 public:
  explicit slot_device_on(const D& on) : on_(on) {}

  void* allocate(std::size_t n) override { return on_.allocate_pinned(n); }
  void free(void* memory, std::size_t n) noexcept override { on_.free_pinned(memory, n); }

  type_id kind() const noexcept override { return type_id::of<D>(); }
  bool equals(const slot_device& other) const override {
    return kind() == other.kind() && on_ == static_cast<const slot_device_on&>(other).on_;
  }
  void* allocate_device(std::size_t n) override { return on_.allocate_device(n); }
  void free_device(void* memory, std::size_t n) noexcept override { on_.free_device(memory, n); }
  object make_event() override { return std::make_shared<event>(on_.make_event()); }
  void copy_to_device(void* to, const void* from, std::size_t n) override { on_.copy_to_device(to, from, n); }
  void record(const object& e) override { on_.record(as<event>(e)); }
  void record(const object& e, stream_ref stream) override { on_.record(as<event>(e), stream); }
  void wait(stream_ref stream, const object& e) override { on_.wait(stream, as<event>(e)); }
  bool query(const object& e) override { return on_.query(as<event>(e)); }
  void synchronize(const object& e) override { on_.synchronize(as<event>(e)); }
  void synchronize(stream_ref stream) override { on_.synchronize(stream); }
  std::string name() override { return on_.name(); }

  bool copies_any_memory() const noexcept override { return detail::copies_any_memory<D>; }
  std::string pci_address() override {
    if constexpr (requires { on_.pci_address(); }) return on_.pci_address();
    return std::string();
  }
  void decode([[maybe_unused]] std::vector<image_to_decode>& images, [[maybe_unused]] object& state) override {
    if constexpr (requires { typename D::decoding; }) {
      if (state == nullptr) state = std::make_shared<typename D::decoding>();
      on_.decode(images, as<typename D::decoding>(state));
    }
  }
  void keep([[maybe_unused]] const std::vector<image_to_decode>& images,
            [[maybe_unused]] const object& state) override {
    if constexpr (requires { on_.keep(images, as<typename D::decoding>(state)); }) {
      on_.keep(images, as<typename D::decoding>(state));
    }
  }
  std::size_t keeps() const noexcept override {
    if constexpr (requires { on_.keeps(); }) return on_.keeps();
    return 0;
  }
  std::string remark() override {
    if constexpr (requires { on_.remark(); }) return on_.remark();
    return std::string();
  }

 private:
  using event = typename D::event_type;
  template <class T>
  static T& as(const object& o) noexcept {
    return *static_cast<T*>(o.get());
  }

  const D on_;
};

}  // namespace millrace::detail
