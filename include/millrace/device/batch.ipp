// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/device/batch.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::size_t batch_field::row_bytes() const {
  std::size_t n = 0;
  if (__builtin_mul_overflow(dims_.elements(), size_of(type_), &n)) throw configuration_error("a shape is too large");
  return n;
}

MILLRACE_INLINE batch_layout::batch_layout(std::size_t samples, std::vector<batch_field> fields) {
  auto made = std::make_shared<state>();
  made->samples = samples;
  made->fields = std::move(fields);
  for (std::size_t i = 0; i < made->fields.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (made->fields[i].name() == made->fields[j].name()) {
        throw configuration_error("a batch has two fields named " + made->fields[i].name());
      }
    }
    made->offsets.push_back(0);
  }
  const auto place = [&](std::size_t i) {
    made->offsets[i] = made->device_bytes;
    std::size_t n = 0;
    const std::size_t rows = made->fields[i].has_rows() ? samples : 1;
    if (__builtin_mul_overflow(made->fields[i].row_bytes(), rows, &n) || n > largest - made->device_bytes) {
      throw configuration_error("a batch of " + std::to_string(samples) + " samples of " + made->fields[i].text() +
                                " is too large");
    }
    made->device_bytes += (n + alignment - 1) / alignment * alignment;
  };
  for (std::size_t i = 0; i < made->fields.size(); ++i) {
    if (!made->fields[i].on_host()) continue;
    place(i);
    made->last = i;
  }
  made->bytes = made->device_bytes;
  for (std::size_t i = 0; i < made->fields.size(); ++i) {
    if (!made->fields[i].on_host()) place(i);
  }
  state_ = std::move(made);
}

MILLRACE_INLINE std::size_t batch_layout::find(std::string_view name) const {
  for (std::size_t i = 0; i < fields().size(); ++i) {
    if (fields()[i].name() == name) return i;
  }
  std::string known;
  for (const batch_field& f : fields()) known += (known.empty() ? "" : ", ") + f.name();
  throw configuration_error("a batch has no field named " + std::string(name) + "; it has " +
                            (known.empty() ? "none" : known));
}

namespace detail {

MILLRACE_INLINE writable_bytes batch_memory::acquire(bool& page_locked) {
  std::unique_lock lock(mutex_);
  slab_pool slabs = slabs_;
  page_locked = page_locked_;
  lock.unlock();  // the allocation is slow
  return slabs.acquire();
}

MILLRACE_INLINE void batch_memory::become(const slab_pool& page_locked) {
  const std::lock_guard lock(mutex_);
  if (page_locked_ || page_locked.slab_bytes() < slabs_.slab_bytes()) return;
  slabs_ = page_locked;
  page_locked_ = true;
}

MILLRACE_INLINE batch_parts::batch_parts(const batch_layout& l, writable_bytes m, bool p,
                                         std::shared_ptr<batch_memory> of)
    : layout(l),
      memory(std::move(m)),
      pinned(p),
      home(std::move(of)),
      keys(l.samples()),
      filled(l.samples()),
      tags(l.samples()),
      weights(l.samples(), 1.0F) {}

}  // namespace detail

MILLRACE_INLINE tensor_view host_batch::field(std::size_t i) const {
  const batch_field& f = layout().fields()[i];
  if (!f.on_host()) throw configuration_error(f.text() + " of a batch is on the device alone");
  return layout().tensor(data(), i, size());
}

MILLRACE_INLINE void host_batch::move_to(writable_bytes page_locked) {
  if (bytes() != 0) std::memcpy(page_locked.data(), data(), bytes());
  parts_->memory = std::move(page_locked);
  parts_->pinned = true;
}

namespace detail {

/// The images of a batch whose memory on the device is `memory`.
MILLRACE_INLINE std::vector<image_to_decode> find_images(const host_batch& batch, void* memory) {
  const batch_layout& layout = batch.layout();
  std::optional<std::size_t> field;
  for (std::size_t i = 0; i < layout.fields().size(); ++i) {
    if (layout.fields()[i].on_host()) continue;
    if (field) {
      throw configuration_error("a batch has one field of undecoded images, and this one has " +
                                layout.fields()[*field].name() + " and " + layout.fields()[i].name());
    }
    field = i;
  }
  std::vector<image_to_decode> found;
  if (!field) return found;
  auto* const pixels = layout.tensor(memory, *field, batch.size()).as<std::uint8_t>();
  const auto* const offsets = batch.field(layout.fields()[*field].name() + "_offsets").as<const std::int64_t>();
  const std::span<const undecoded_image> images = batch.tags<undecoded_image>();
  const std::span<const origin> from = batch.tags<origin>();
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::string& key = batch.keys()[i];
    const where at = from.empty() ? where{std::string(), std::nullopt, key} : from[i].at(key);
    const auto room = static_cast<std::size_t>(offsets[i + 1] - offsets[i]);
    if (room != images[i].pixel_bytes()) {
      throw configuration_error("the sample " + key + " has room for " + std::to_string(room) + " bytes in " +
                                layout.fields()[*field].name() + ", and its undecoded_image has " +
                                std::to_string(images[i].pixel_bytes()));
    }
    if (room == 0) continue;  // fills the batch up
    found.push_back({&images[i], pixels + offsets[i], at});
  }
  return found;
}

MILLRACE_INLINE void device_slot::allocate(std::size_t size) {
  memory_ = on_->allocate_device(size);
  size_ = size;
}

MILLRACE_INLINE bool device_slot::done() const {
  for (const user& u : users_) {
    if (u.active && !on_->query(u.done)) return false;
  }
  return copied();
}

MILLRACE_INLINE void device_slot::clear() noexcept {
  host_ = host_batch();
  pixels_.clear();
  for (user& u : users_) u.active = false;
  if (users_.size() > 16) users_.clear();  // a program that makes a stream for every step would fill it without end
}

MILLRACE_INLINE bool device_slot::fence() noexcept {
  return attempt_twice([this] {
    if (unfenced_) record_copy();
  });
}

MILLRACE_INLINE void device_slot::retire() noexcept {
  static_cast<void>(attempt_twice([this] {
    if (done()) return;
    if (copied_ != nullptr) on_->synchronize(copied_);
    for (user& u : users_) {
      if (u.active) on_->synchronize(u.done);
    }
  }));
  decoding_.reset();
  if (memory_ != nullptr) on_->free_device(std::exchange(memory_, nullptr), size_);
  clear();
}

MILLRACE_INLINE void device_slot::fill(host_batch batch) {
  if (copied_ == nullptr) copied_ = on_->make_event();
  host_ = std::move(batch);
  unfenced_ = true;
  if (const std::size_t n = host_.bytes(); n != 0) on_->copy_to_device(memory_, host_.data(), n);
  record_copy();
  number_ = address_looks::next();
  waited_ = false;
}

MILLRACE_INLINE void device_slot::decode() {
  unfenced_ = true;
  try {
    std::vector<image_to_decode> found = find_images(host_, memory_);
    on_->decode(found, decoding_);
    for (const image_to_decode& i : found) {
      if (i.taken) continue;
      pixel_buffer pixels = i.image->on_host->pixels(i.image->data, i.from);
      if (pixels.size() != i.image->pixel_bytes()) throw decode_error("the image has changed its size", i.from);
      on_->copy_to_device(i.place, pixels.data(), pixels.size());
      pixels_.push_back(std::move(pixels));  // until the event after its copy is reached
    }
    on_->keep(found, decoding_);
  } catch (...) {
    record_copy();  // a part of it may be on its way
    throw;
  }
  record_copy();
}

MILLRACE_INLINE void device_slot::record_copy() {
  on_->record(copied_);
  unfenced_ = false;
}

MILLRACE_INLINE void device_slot::wait(stream_ref stream) {
  user& u = find_or_add(stream);
  on_->wait(stream, copied_);
  waited_ = true;
  u.active = true;
}

MILLRACE_INLINE bool device_slot::ready() {
  const bool done = on_->query(copied_);
  if (done) waited_ = true;
  return done;
}

MILLRACE_INLINE void device_slot::synchronize() {
  on_->synchronize(copied_);
  waited_ = true;
}

MILLRACE_INLINE void device_slot::finish(stream_ref stream) noexcept {
  static_cast<void>(attempt_twice([stream, this] { on_->synchronize(stream); }));
}

MILLRACE_INLINE device_slot::user& device_slot::find_or_add(stream_ref stream) {
  for (user& u : users_) {
    if (u.stream == stream) return u;
  }
  user made{stream, on_->make_event(), false};
  // A stream that cannot be fenced (another GPU's) is refused before its first use.
  on_->record(made.done, stream);
  users_.push_back(std::move(made));
  return users_.back();
}

/// A batch that was used without waiting for its copy is misuse, on whatever stream that was. Not so on a device like
/// host_device, whose memory is the host's. Debug builds alone note who takes an address.
MILLRACE_INLINE void device_slot::check_waited() const {
  if (waited_ || on_->copies_any_memory() || !address_looks::noted(number_)) return;
  misused(
      "a batch was used without waiting for its copy: call its wait(stream) before the work that reads field(), or "
      "synchronize() where the host waits");
}

MILLRACE_INLINE void device_slot::mark(stream_ref stream) {
  check_waited();
  try {
    user& u = find_or_add(stream);
    u.active = true;  // recorded by release(), too
    on_->record(u.done, stream);
  } catch (const configuration_error&) {
    throw;  // of another runtime: it cannot have used the slot
  } catch (...) {
    try {
      unmarked_.push_back(stream);  // it may use the slot: release() tries again
    } catch (...) {
      finish(stream);
    }
    throw;
  }
}

MILLRACE_INLINE void device_slot::release() noexcept {
  std::exception_ptr failed;
  try {
    check_waited();
  } catch (...) {
    failed = std::current_exception();
  }
  // The streams may be gone once this returns: one that cannot be marked is waited for now.
  for (const stream_ref stream : unmarked_) {
    try {
      find_or_add(stream).active = true;
    } catch (...) {
      failed = std::current_exception();
      finish(stream);
    }
  }
  unmarked_.clear();
  for (user& u : users_) {
    if (!u.active) continue;
    try {
      on_->record(u.done, u.stream);
    } catch (...) {
      failed = std::current_exception();
      finish(u.stream);
      u.active = false;
    }
  }
  returned_(*this, std::move(failed));  // another user may have the slot now, or it is gone
}

}  // namespace detail

MILLRACE_INLINE device_batch& device_batch::operator=(device_batch&& other) noexcept {
  if (this != &other) {
    release();
    slot_ = std::move(other.slot_);
  }
  return *this;
}

MILLRACE_INLINE void device_batch::release(stream_ref stream) {
  slot().mark(stream);
  release();
}

MILLRACE_INLINE void device_batch::release() noexcept {
  if (slot_ == nullptr) return;
  if (!slot_->process.here()) return detail::leak(slot_);  // a child of fork() cannot use the device
  const std::shared_ptr<detail::device_slot> last = std::move(slot_);
  last->release();
}

MILLRACE_INLINE detail::device_slot& device_batch::slot() const {
  if (slot_ == nullptr) detail::misused("a device_batch was used after its release, or is empty");
  return *slot_;
}

}  // namespace millrace
