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

MILLRACE_INLINE task<storage::part> storage_set::read(shard object, std::string etag, std::uint64_t offset,
                                                      std::size_t length, slab_pool slabs) const {
  const storage* s = find(object.url);
  if (s == nullptr) {
    throw configuration_error("no store is configured for this URL", where{object.shown(), offset, std::string()});
  }
  return s->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
}

MILLRACE_INLINE task<storage::part> storage_set::read_again(shard object, std::string etag, std::uint64_t offset,
                                                            std::size_t length, slab_pool slabs) const {
  const storage* s = find(object.url);
  if (s == nullptr) return read(std::move(object), std::move(etag), offset, length, std::move(slabs));  // says so
  return s->read_again(std::move(object), std::move(etag), offset, length, std::move(slabs));
}

MILLRACE_INLINE task<storage::part> storage_set::read_small(shard object, std::string etag, std::size_t length,
                                                            slab_pool slabs) const {
  const storage* s = find(object.url);
  if (s == nullptr) return read(std::move(object), std::move(etag), 0, length, std::move(slabs));  // says so
  return s->read_small(std::move(object), std::move(etag), length, std::move(slabs));
}

MILLRACE_INLINE task<std::unique_ptr<object_check>> storage_set::check(shard object, std::string etag) const {
  const storage* s = find(object.url);
  if (s == nullptr) return task<std::unique_ptr<object_check>>();  // read() says so
  return s->check(std::move(object), std::move(etag));
}

MILLRACE_INLINE async_generator<shard> storage_set::list(std::string prefix) const {
  const storage* s = find(prefix);
  return s == nullptr ? async_generator<shard>() : s->list(std::move(prefix));
}

MILLRACE_INLINE const storage* storage_set::find(std::string_view url) const noexcept {
  for (const auto& s : stores_) {
    if (s->serves(url)) return s.get();
  }
  return nullptr;
}

}  // namespace millrace
