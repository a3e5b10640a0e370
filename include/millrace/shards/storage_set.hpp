// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Several stores as one: each URL is read from and written to the first that serves it.
class storage_set final : public forwarding_storage {
 public:
  explicit storage_set(std::vector<std::shared_ptr<const storage>> stores);

  MILLRACE_INLINE bool may_be_sequential() const noexcept override;
  MILLRACE_INLINE std::size_t keeps() const noexcept override;

 private:
  MILLRACE_INLINE const storage& target(std::string_view url) const noexcept override;

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
