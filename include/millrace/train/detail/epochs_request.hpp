// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <millrace/base/units.hpp>
#include <millrace/train/epochs_options.hpp>

namespace millrace::inline MILLRACE_ABI {
class shard_format;
}  // namespace millrace::inline MILLRACE_ABI

namespace millrace::inline MILLRACE_ABI::detail {

/// Where an index comes from.
enum class index_use : unsigned char {
  build,     ///< a file; if it does not exist, it is made and written there
  required,  ///< a file, or an object; if it does not exist, that is an error
  none,      ///< there is no index: see window_reader
};

/// What the readers of epochs() are given: options of the training and of one dataset, and the state. The texts are the
/// caller's.
struct epochs_request : epochs_options {
  std::uint64_t slice = 0;
  std::string_view prefix = {};
  std::string_view resume = {};
  index_use index = index_use::build;
  std::string_view index_file = {};
  std::shared_ptr<const shard_format> format = nullptr;
  std::size_t shards = 8;
  std::size_t window = 4096;
  std::size_t window_bytes = 512 * MiB;
  std::uint64_t cached = 0;  ///< storage::caches_on_disk()
  std::uint64_t held = 0;    ///< of `held_of` bytes of samples, those that the disk cache has: see note_held()
  std::uint64_t held_of = 0;  ///< 0: not known
  bool compared = false;  ///< the ranks' settings are compared, by a group; .rank is this one then
};

}  // namespace millrace::detail
