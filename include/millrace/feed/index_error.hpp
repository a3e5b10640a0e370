// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/error.hpp>

namespace millrace {

/// An index of a shard that is broken, of an unknown version, or cannot be made.
class index_error : public error {
 public:
  using error::error;
};

/// An index that is whole, but of another version of its shard: the ETag or the size differ.
class stale_index_error : public index_error {
 public:
  using index_error::index_error;
};

}  // namespace millrace
