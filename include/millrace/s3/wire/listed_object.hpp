// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace millrace::s3 {

/// An object as a listing shows it.
struct listed_object {
  listed_object() = default;
  listed_object(std::string object_key, std::uint64_t bytes, std::string entity_tag, std::int64_t modified)
      : key(std::move(object_key)), size(bytes), etag(std::move(entity_tag)), last_modified(modified) {}

  std::string key;                 ///< raw bytes
  std::uint64_t size = 0;          ///< bytes
  std::string etag;                ///< with its quotes, as If-Match wants it; may be empty
  std::int64_t last_modified = 0;  ///< unix seconds; 0 when the store does not say
};

}  // namespace millrace::s3
