// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Several stores as one: each URL is read by the first that serves it.
class storage_set final : public storage {
 public:
  explicit storage_set(std::vector<std::shared_ptr<const storage>> stores) : stores_(std::move(stores)) {}

  bool serves(std::string_view url) const noexcept override { return find(url) != nullptr; }
  MILLRACE_INLINE bool may_be_sequential() const noexcept override;
  MILLRACE_INLINE std::size_t keeps() const noexcept override;
  MILLRACE_INLINE task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                                  slab_pool slabs) const override;
  MILLRACE_INLINE task<part> read_again(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                                        slab_pool slabs) const override;
  MILLRACE_INLINE task<part> read_small(shard object, std::string etag, std::size_t length,
                                        slab_pool slabs) const override;
  bool over_network(std::string_view url) const noexcept override {
    const storage* s = find(url);
    return s == nullptr || s->over_network(url);
  }
  bool is_local(const shard& object, std::uint64_t offset, std::size_t length) const override {
    const storage* s = find(object.url);
    return s != nullptr && s->is_local(object, offset, length);
  }
  std::uint64_t caches_on_disk(std::string_view url) const override {
    const storage* s = find(url);
    return s == nullptr ? 0 : s->caches_on_disk(url);
  }
  std::uint64_t held_on_disk(const shard& object, std::uint64_t offset, std::uint64_t length) const override {
    const storage* s = find(object.url);
    return s == nullptr ? 0 : s->held_on_disk(object, offset, length);
  }
  std::string host(std::string_view url) const override {
    const storage* s = find(url);
    return s == nullptr ? std::string() : s->host(url);
  }
  MILLRACE_INLINE task<std::unique_ptr<object_check>> check(shard object, std::string etag) const override;
  MILLRACE_INLINE async_generator<shard> list(std::string prefix) const override;

 private:
  const storage* find(std::string_view url) const noexcept;

  const std::vector<std::shared_ptr<const storage>> stores_;
};

/// One store made of several: `fetch(stores(s3, files()))`. Each argument is a storage or an argument of as_storage().
template <class... Stores>
std::shared_ptr<const storage> stores(const Stores&... each) {
  std::vector<std::shared_ptr<const storage>> all;
  (all.push_back(detail::storage_of(each)), ...);
  return std::make_shared<const storage_set>(std::move(all));
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/storage_set.ipp>
#endif
