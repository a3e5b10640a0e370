// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/shards/detail/storage_of.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace {

/// Several stores behind one: each URL is read by the first that serves it.
template <class = void>
class basic_storage_set final : public storage {
 public:
  explicit basic_storage_set(std::vector<std::shared_ptr<const storage>> stores) : stores_(std::move(stores)) {}

  bool serves(std::string_view url) const noexcept override { return find(url) != nullptr; }
  bool may_be_sequential() const noexcept override {
    for (const auto& s : stores_) {
      if (s->may_be_sequential()) return true;
    }
    return false;
  }
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    const storage* s = find(object.url);
    if (s == nullptr) {
      throw configuration_error("no store is configured for this URL", where{object.shown(), offset, std::string()});
    }
    return s->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
  }
  task<std::unique_ptr<object_check>> check(shard object, std::string etag) const override {
    const storage* s = find(object.url);
    if (s == nullptr) return task<std::unique_ptr<object_check>>();  // read() says so
    return s->check(std::move(object), std::move(etag));
  }

 private:
  const storage* find(std::string_view url) const noexcept {
    for (const auto& s : stores_) {
      if (s->serves(url)) return s.get();
    }
    return nullptr;
  }

  const std::vector<std::shared_ptr<const storage>> stores_;
};
using storage_set = basic_storage_set<>;

/// One store made of several: `fetch(stores(s3, files()))`. Each argument is a storage or what as_storage() takes.
template <class... Stores>
std::shared_ptr<const storage> stores(const Stores&... each) {
  std::vector<std::shared_ptr<const storage>> all;
  (all.push_back(detail::storage_of(each)), ...);
  return std::make_shared<const storage_set>(std::move(all));
}

}  // namespace millrace
