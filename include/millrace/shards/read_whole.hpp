// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// `Storage` is storage. A template, in which all that names a coroutine depends on it: so it is not emitted where it
/// is not used. `caller` is who says that the store does not serve the URL.
template <class Storage>
task<bytes> whole_object(std::shared_ptr<const Storage> store, std::string url, const char* caller) {
  if (!store->serves(url)) {
    throw configuration_error(std::string(caller) + ": the store does not serve this URL",
                              where{shard(url).shown(), std::nullopt, {}});
  }
  std::vector<std::enable_if_t<sizeof(Storage) != 0, shard>> one;
  one.emplace_back(std::move(url));
  stream<chunk> pieces = from_range(std::move(one)) | fetch(std::move(store));
  writable_bytes memory;
  std::size_t filled = 0;
  while (std::optional<chunk> piece = co_await pieces.next()) {
    const std::string_view part = piece->data.view();
    if (filled + part.size() > memory.capacity()) {
      const auto size = static_cast<std::size_t>(piece->from->size.value_or(2 * memory.capacity()));
      writable_bytes larger = writable_bytes::allocate(std::max(size, filled + part.size()));
      std::copy(memory.data(), memory.data() + filled, larger.data());
      memory = std::move(larger);
    }
    std::copy(part.begin(), part.end(), memory.data() + filled);
    filled += part.size();
  }
  co_return memory ? memory.share(0, filled) : bytes();
}

}  // namespace detail

/// All bytes of one object, from any store: a checkpoint or a model through disk_cache(), so that of the processes of a
/// host one reads it from the store, and the others read the first part there and the rest from the disk.
///
///     mill::bytes model = block_on(*mill::make_event_loop(), mill::read_whole(cache, "s3://models/7b.safetensors"));
///
/// `store` is as in fetch(), which reads it by parts, several at a time, and copies them into place. s3::client::read()
/// reads into the program's memory, without that copy. Takes the memory of the object and that of fetch(). Dropping the
/// task ends the transfers. Errors: those of fetch(), and configuration_error for a URL that the store does not serve.
template <class Store>
task<bytes> read_whole(const Store& store, std::string url) {
  return detail::whole_object(detail::storage_of(store), std::move(url), "read_whole");
}

}  // namespace millrace
