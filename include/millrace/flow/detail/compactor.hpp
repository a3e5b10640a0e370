// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/coro/item_bytes.hpp>
#include <millrace/data/item.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The item as it should be kept for long: the result of `compact_slices(item)` (see data/item.hpp), or else the item.
template <class T>
T compacted(T&& item) {
  static_assert(!std::is_reference_v<T>);
  if constexpr (has_compact_slices<T>) {
    return T(compact_slices(std::move(item)));
  } else {
    return std::move(item);
  }
}

template <class T>
inline constexpr bool has_slices_v = has_slice<T>;
template <class T, class A>
inline constexpr bool has_slices_v<std::vector<T, A>> = has_slices_v<T>;

/// A slice that the item holds, which tells the slab that it keeps; may be null.
template <class T>
const bytes* first_slice(const T& item) noexcept {
  return slice_of(item);
}
template <class T, class A>
const bytes* first_slice(const std::vector<T, A>& items) noexcept {
  return items.empty() ? nullptr : detail::first_slice(items.front());
}

template <class T>
void compact_in_place(T& item) {
  item = detail::compacted(std::move(item));
}
template <class T, class A>
void compact_in_place(std::vector<T, A>& items) {
  for (T& item : items) detail::compact_in_place(item);
}

/// Which share of their slabs the items of a stream use: over the last sixteen slabs, so that a stream which alternates
/// between up to sixteen sources is measured by whole slabs too.
class slab_density {
 public:
  /// Counts `size` more bytes, of which `slice` is a part. Returns whether slices of this stream should be copied: less
  /// than half of the slabs is used, not counting one slab.
  bool sparse(const bytes& slice, std::size_t size) noexcept;

 private:
  struct seen {
    const void* slab = nullptr;  // to be compared only: it may have been freed
    std::uint32_t use = 0;
    std::size_t bytes = 0;
    std::size_t shown = 0;
  };

  seen& find(const bytes& slice) noexcept;
  /// True if the source counts the bytes that it yields, and at least half of them have come here since.
  bool shows_what_is_given(const bytes& slice, std::size_t size) noexcept;

  seen slabs_[16];
  std::size_t oldest_ = 0;
  std::size_t shown_ = 0;  // of them all
  std::size_t kept_ = 0;   // their sizes
  std::uint64_t total_ = 0;  // bytes::given() so far
  std::uint64_t given_ = 0;  // of late
  std::uint64_t came_ = 0;   // of these
};

/// Ensures that the items that a stage holds do not keep much more memory than their size.
///
/// However small a slice is, it keeps a whole slab. Neighbours in a stream lie in one slab, so that this costs nothing,
/// unless most of the data was dropped on the way: then every label held for a batch would keep the 8 MiB that its
/// image lay in. So items of a stream that uses less than half of its slabs are compacted before they are held: a stage
/// then keeps about twice its bytes and a few slabs, and mostly used slabs are not copied. If a source holds several
/// slabs in turn, each until all of it has been yielded, and counts the bytes that it yields (bytes::given()), its
/// items are compacted only if less than half of those come, too.
template <class T>
class compactor {
 public:
  /// Call for every item that is going to be held, in their order.
  void operator()(T& item) {
    const bytes* const slice = detail::first_slice(item);
    if (slice == nullptr || slice->retained() / 2 <= slice->size()) return;
    if (density_.sparse(*slice, item_bytes(item))) detail::compact_in_place(item);
  }

 private:
  slab_density density_;
};
template <class T>
  requires(!has_slices_v<T>)
class compactor<T> {
 public:
  void operator()(T&) const noexcept {}
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/flow/detail/compactor.ipp>
#endif
