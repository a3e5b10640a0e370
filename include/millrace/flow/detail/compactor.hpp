// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/coro/item_bytes.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::detail {

/// The item as it should be kept for long: what `compact(item)`, found by argument-dependent lookup, returns; the item
/// changed in place where it returns nothing; the item itself where there is none.
template <class T>
T compacted(T&& item) {
  static_assert(!std::is_reference_v<T>);
  if constexpr (requires { compact(item); }) {
    if constexpr (std::is_void_v<decltype(compact(item))>) {
      compact(item);
      return std::move(item);
    } else {
      return T(compact(item));
    }
  } else {
    return std::move(item);
  }
}

template <class T>
inline constexpr bool has_slices_v = requires(const T& item) { slice_of(item); };
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

/// How much of their slabs the items of a stream show: of the sixteen that it came upon last, so that a stream which
/// takes turns between as many sources at most is judged by whole slabs too.
class slab_density {
 public:
  /// Another `size` bytes were met, `slice` among them. Returns whether slices of this stream are better copied: less
  /// than half of the slabs would be held for something, one slab aside.
  bool sparse(const bytes& slice, std::size_t size) noexcept;

 private:
  struct seen {
    const void* slab = nullptr;  // to be compared only: it may have been freed
    std::uint32_t use = 0;
    std::size_t bytes = 0;
    std::size_t shown = 0;
  };

  seen& find(const bytes& slice) noexcept;

  seen slabs_[16];
  std::size_t oldest_ = 0;
  std::size_t shown_ = 0;  // of them all
  std::size_t kept_ = 0;   // their sizes
};

/// Keeps the items that a stage holds from keeping much more memory than they show.
///
/// However small a slice is, it keeps a whole slab. Neighbours in a stream lie in one slab, so that this costs nothing,
/// unless most of the data was dropped on the way: then every label held for a batch would keep the 8 MiB that its
/// image lay in. So items of a stream that shows less than half of its slabs are compacted before they are held: what a
/// stage holds keeps about twice its bytes and a few slabs, and data that is used is not copied.
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
#include <millrace/flow/detail/impl/compactor.ipp>
#endif
