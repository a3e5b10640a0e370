// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>

#include <millrace/base/detail/refused.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::detail {

/// The store behind what a user names as one: a storage, or what as_storage(), found beside its type, makes one of.
template <class Store>
std::shared_ptr<const storage> storage_of(const Store& store) {
  if constexpr (std::is_convertible_v<const Store&, std::shared_ptr<const storage>>) {
    return store;
  } else if constexpr (requires { as_storage(store); }) {
    return as_storage(store);
  } else if constexpr (std::is_function_v<Store>) {
    static_assert(never_v<Store>, "a function is no store: call it, as in fetch(files())");
    return nullptr;
  } else {
    static_assert(never_v<Store>,
                  "this is no store to fetch from: pass an s3::client, files() or a std::shared_ptr<const storage>; "
                  "URLs come from the left side of |, as in client.list(\"s3://bucket/prefix\") | fetch(client)");
    return nullptr;
  }
}

}  // namespace millrace::detail
