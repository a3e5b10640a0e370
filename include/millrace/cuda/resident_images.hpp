// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/cuda/stream_device.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/device/detail/slot_device.hpp>

namespace millrace::inline MILLRACE_ABI::cuda {

/// See resident_images.
struct resident_images_options {
  std::size_t bytes = 0;     ///< the most memory that is used for them; required
  bool page_locked = false;  ///< page-locked memory of the host, in place of the GPU's
};

namespace detail {

/// Pixels of images, and the copies of them. All its work is on the one stream of the copies, so a copy from here comes
/// after the one that brought the pixels. Any thread.
class MILLRACE_CUDA_DEFAULT_STREAM image_store {
 public:
  using images = std::vector<millrace::detail::image_to_decode>;
  using ids = std::vector<hash128>;

  image_store(const stream_device& on, const resident_images_options& with) : on_(on), with_(with) {
    if (with.bytes == 0) throw configuration_error("resident_images needs .bytes: how much memory may be taken");
  }
  image_store(const image_store&) = delete;
  image_store& operator=(const image_store&) = delete;
  ~image_store() { forget(); }

  static hash128 id_of(const undecoded_image& image) noexcept {
    hasher128 h;
    h.add(image.data.view());
    h.add(static_cast<std::uint64_t>(image.height));
    h.add(static_cast<std::uint64_t>(image.width));
    h.add(std::uint64_t{image.plain_jpeg});
    return h.value();
  }

  /// Enqueues the copies of those that are kept, and marks them as taken.
  void give(images& to, const ids& of) {
    const device_guard current(on_.copies().on());
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const auto found = places_.find(of[i]);
      if (found == places_.end()) continue;
      copy(to[i].place, found->second, to[i].image->pixel_bytes(), cudaMemcpyHostToDevice);
      to[i].taken = true;
    }
  }
  /// Enqueues the copies of those that are not kept yet, as far as there is room.
  void keep(const images& from, const ids& of) {
    const device_guard current(on_.copies().on());
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (places_.count(of[i]) != 0) continue;
      const std::size_t n = from[i].image->pixel_bytes();
      std::uint8_t* const place = room_for(n);
      if (place == nullptr) {
        full_ = true;
        continue;
      }
      copy(place, from[i].place, n, cudaMemcpyDeviceToHost);
      places_.emplace(of[i], place);
      kept_ += n;
    }
  }
  void forget() noexcept {
    const std::lock_guard lock(mutex_);
    if (blocks_.empty()) return;
    // Once it fails twice, nothing runs any more.
    static_cast<void>(millrace::detail::attempt_twice([this] { on_.copies().synchronize(); }));
    for (const block& b : blocks_) {
      if (with_.page_locked) {
        on_.free_pinned(b.memory, b.size);
      } else {
        on_.free_device(b.memory, b.size);
      }
    }
    blocks_.clear();
    places_.clear();
    taken_ = used_ = kept_ = 0;
  }
  std::size_t kept() const {
    const std::lock_guard lock(mutex_);
    return kept_;
  }
  std::size_t most() const noexcept { return with_.bytes; }
  /// The line that says that it is full, once; else empty.
  std::string remark() {
    const std::lock_guard lock(mutex_);
    if (!full_ || std::exchange(said_, true)) return std::string();
    return "millrace: resident images: " + format_bytes(static_cast<double>(with_.bytes)) +
           " are full: what is beyond is decoded in every epoch";
  }

 private:
  struct block {
    std::uint8_t* memory;
    std::size_t size;
  };
  struct by_low {
    std::size_t operator()(const hash128& id) const noexcept { return static_cast<std::size_t>(id.low); }
  };

  /// `across`: the direction if the images are kept by the host.
  void copy(void* to, const void* from, std::size_t n, cudaMemcpyKind across) const {
    const cudaMemcpyKind direction = with_.page_locked ? across : cudaMemcpyDeviceToDevice;
    check(cudaMemcpyAsync(to, from, n, direction, on_.copies().get()), "cudaMemcpyAsync");
  }
  /// Null if there is none.
  std::uint8_t* room_for(std::size_t n) {
    constexpr std::size_t alignment = 256;
    n = (n + alignment - 1) / alignment * alignment;
    if (blocks_.empty() || n > blocks_.back().size - used_) {
      constexpr std::size_t usual = 64 * MiB;
      const std::size_t left = with_.bytes - taken_;
      if (n > left) return nullptr;
      const std::size_t size = std::max(n, std::min(usual, left));
      blocks_.reserve(blocks_.size() + 1);
      blocks_.push_back({allocate(size), size});
      taken_ += size;
      used_ = 0;
    }
    used_ += n;
    return blocks_.back().memory + (used_ - n);
  }
  std::uint8_t* allocate(std::size_t n) const {
    try {
      return static_cast<std::uint8_t*>(with_.page_locked ? on_.allocate_pinned(n) : on_.allocate_device(n));
    } catch (const error& e) {
      throw error(e.code(), e.call(),
                  format_bytes(static_cast<double>(n)) + " for resident images, which have " +
                      format_bytes(static_cast<double>(taken_)) + " of " +
                      format_bytes(static_cast<double>(with_.bytes)));
    }
  }

  const stream_device on_;
  const resident_images_options with_;
  mutable std::mutex mutex_;
  std::unordered_map<hash128, const std::uint8_t*, by_low> places_;
  std::vector<block> blocks_;  // all but the last are full
  std::size_t taken_ = 0;      // of all blocks
  std::size_t used_ = 0;       // of the last one
  std::size_t kept_ = 0;       // pixels
  bool full_ = false;          // there was no room for one
  bool said_ = false;
};

/// The state in which a device that decodes keeps a slot; for other devices an empty type.
template <class D>
auto decoding_of(const D*) {
  if constexpr (requires { typename D::decoding; }) {
    return typename D::decoding();
  } else {
    return std::false_type();
  }
}

}  // namespace detail

/// A GPU that keeps decoded images: passed to to_device() in place of a stream or a cuda::nvjpeg. Images are decoded in
/// the first epoch, and copied from memory in later ones.
///
///     const mill::cuda::resident_images gpu(mill::cuda::nvjpeg(copies), {.bytes = 40 * mill::GiB});
///     const mill::cuda::resident_images gpu(copies, {.bytes = 40 * mill::GiB});      // decoded on the host, once
///     ... | batch(256) | mill::to_device(gpu)
///
/// It keeps whole images, pixel for pixel: crops, mirrors, order and batches may differ in each epoch, and states are
/// the same as without it. Images are copied after the decoding of their batch and then found by that run and by every
/// other one whose device is a copy of this one: keep one for all epochs, training and validation.
///
/// An image is known by its bytes, its size and whether it is a plain JPEG: the same file in two places is kept once,
/// and an object that changed is another image. So the bytes are read in each epoch, and hashed, on the pool, at about
/// 2 GB/s: a resident() around the store avoids the reading. Decoders that share it have the same .upright and
/// .tolerate_corruption, which cannot be seen in the bytes.
///
/// Memory: of the GPU, or with .page_locked of the host, from where later epochs are copied without decoding and
/// without staging. It is taken in blocks of 64 MiB, or of .bytes if that is less, as images come: in the first epoch,
/// never more than .bytes, which run_options::budget counts in both cases as it does slots. An image that does not fit
/// is decoded in every epoch: one line in the runtime's log reports it, and kept() is the number of bytes. Images are
/// kept until forget(), or until the last copy of this object is destroyed; a runtime has one copy until it ends. Both
/// wait for the stream of the copies, and freeing may wait for the device.
///
/// Concurrency: any threads; two runs that miss the same image at the same time both decode it. Errors: those of the
/// device that it is made of; configuration_error if .bytes is 0; cuda::error, which says how much was wanted, if
/// there is less memory than .bytes. A batch with a corrupt image is not kept.
template <std::derived_from<stream_device> Inner>
class MILLRACE_CUDA_DEFAULT_STREAM resident_images : public Inner {
 public:
  /// A slot's state: that of the device inside, and the ids of its batch's images.
  struct decoding {
    decltype(detail::decoding_of(static_cast<const Inner*>(nullptr))) inner;
    detail::image_store::ids ids;
  };

  /// `inner`: a cuda::nvjpeg, or a stream of the copies.
  template <class Target>
  requires std::constructible_from<Inner, const Target&>
  resident_images(const Target& inner, const resident_images_options& with)
      : Inner(inner), store_(std::make_shared<detail::image_store>(*this, with)) {}

  /// For to_device(): enqueues images that are kept, and those that the device inside decodes.
  void decode(detail::image_store::images& images, decoding& with) const {
    with.ids.clear();
    for (const millrace::detail::image_to_decode& i : images) {
      with.ids.push_back(detail::image_store::id_of(*i.image));
    }
    store_->give(images, with.ids);
    if constexpr (requires { typename Inner::decoding; }) Inner::decode(images, with.inner);
  }
  /// For to_device(), when all are decoded: enqueues the copies of images that are not kept yet.
  void keep(const detail::image_store::images& images, const decoding& with) const { store_->keep(images, with.ids); }
  /// For to_device(): the most that is kept, for the run's budget.
  std::size_t keeps() const noexcept { return store_->most(); }
  /// For to_device(): a line for the runtime's log, once; else nothing.
  std::string remark() const { return store_->remark(); }

  /// Bytes of pixels that are kept now. Any thread.
  std::size_t kept() const { return store_->kept(); }
  /// Drops all of them, so that they are decoded again, and frees their memory. Any thread; waits for the copies.
  void forget() const noexcept { store_->forget(); }

 private:
  std::shared_ptr<detail::image_store> store_;
};

template <class Inner>
resident_images(const Inner&, const resident_images_options&) -> resident_images<Inner>;
resident_images(const stream&, const resident_images_options&) -> resident_images<stream_device>;

static_assert(millrace::device<resident_images<stream_device>>);

}  // namespace millrace::cuda
