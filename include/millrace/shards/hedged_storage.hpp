// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/retry/retry_options.hpp>
#include <millrace/shards/detail/hedged_reader.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See hedged().
template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_hedged_storage final : public forwarding_storage, private detail::hedged_reader {
 public:
  basic_hedged_storage(std::shared_ptr<const storage> inner, double extra)
      : forwarding_storage(std::move(inner)), hedged_reader(extra) {}

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    return read_hedged(false, std::move(object), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return read_hedged(true, std::move(object), std::move(etag), 0, length, std::move(slabs));
  }

 private:
  task<part> ask(bool small, shard object, std::string etag, std::uint64_t offset, std::size_t length,
                 slab_pool slabs) const override {
    return detail::read_or_small(*this->inner(), small, std::move(object), std::move(etag), offset, length,
                                 std::move(slabs));
  }
};
using hedged_storage = basic_hedged_storage<>;

/// A storage of your own whose late parts are requested again, as s3_storage and http_storage do by themselves:
/// `fetch(hedged(mine))`. `extra` is what retry_options::hedges is for these; a configuration_error if it is not from 0
/// to 1.
template <class Store>
std::shared_ptr<const storage> hedged(const Store& store, double extra = retry_options().hedges) {
  static_assert(std::is_convertible_v<const Store&, std::shared_ptr<const storage>>,
                "hedged() takes a std::shared_ptr<const storage>; an s3::client requests late parts again by itself: "
                "fetch(client)");
  return std::make_shared<const hedged_storage>(store, extra);
}

}  // namespace millrace
