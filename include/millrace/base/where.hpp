// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace millrace {

/// What an error is about. Empty parts are left out of the message.
struct where {
  std::string object;  ///< URL or path of the shard, without query string and without secrets
  std::optional<std::uint64_t>
      offset;       ///< byte offset in the object (of the decompressed stream for compressed archives)
  std::string key;  ///< sample key or member name

  /// Whether there is nothing to name.
  bool empty() const noexcept { return object.empty() && !offset && key.empty(); }
};

}  // namespace millrace
