// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <millrace/base/error.hpp>
#include <millrace/data/origin.hpp>

namespace millrace::detail {

/// Items with a member `from`, an origin; their name is the member `key`, where they have one.
template <class T>
concept shows_origin = requires(const T& item) {
  requires std::is_same_v<std::remove_cvref_t<decltype(item.from)>, origin>;
};
/// Items that carry it elsewhere: place_of(item), found beside the type, returns what has these members.
template <class T>
concept finds_origin = requires(const T& item) { place_of(item); };
template <class T>
concept has_place = shows_origin<T> || finds_origin<T>;

/// Where the item comes from that a user's function works on, kept for the error that it may throw: by then the item
/// may be gone. Kept from item to item, so that an item of the shard before costs a comparison and the copy of its key.
class item_place {
 public:
  template <class T>
  void note(const T& item) {
    if constexpr (finds_origin<T>) {
      note(place_of(item));
    } else if constexpr (shows_origin<T>) {
      if (from_.from != item.from.from) from_.from = item.from.from;
      from_.offset = item.from.offset;
      if constexpr (requires { std::string_view(item.key); }) key_ = std::string_view(item.key);
    }
  }

  /// Empty while nothing is known.
  where at() const { return from_.at(key_); }

  /// In a handler: completes the error that is being handled, where it is one about data and has no place of its own.
  void complete() const noexcept;

 private:
  origin from_;
  std::string key_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/flow/detail/impl/item_place.ipp>
#endif
