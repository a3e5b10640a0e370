// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/shards/storage_set.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
/// The store of the URLs that none of a set serves.
class no_storage final : public storage {
 public:
  bool serves(std::string_view) const noexcept override { return false; }
  task<part> read(shard object, std::string, std::uint64_t offset, std::size_t, slab_pool) const override {
    throw configuration_error("no store is configured for this URL", where{object.shown(), offset, std::string()});
  }
};
}  // namespace detail

MILLRACE_INLINE storage_set::storage_set(std::vector<std::shared_ptr<const storage>> stores)
    : forwarding_storage(std::make_shared<const detail::no_storage>()), stores_(std::move(stores)) {}

MILLRACE_INLINE bool storage_set::may_be_sequential() const noexcept {
  for (const auto& s : stores_) {
    if (s->may_be_sequential()) return true;
  }
  return false;
}

MILLRACE_INLINE std::size_t storage_set::keeps() const noexcept {
  std::size_t all = 0;
  for (const auto& s : stores_) all = detail::added(all, s->keeps());
  return all;
}

MILLRACE_INLINE const storage& storage_set::target(std::string_view url) const noexcept {
  for (const auto& s : stores_) {
    if (s->serves(url)) return *s;
  }
  return *inner();
}

}  // namespace millrace
