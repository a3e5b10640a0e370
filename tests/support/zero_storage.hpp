// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/units.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::test {

/// A store whose every object is of 1 MiB; what is in it does not matter.
class zero_storage final : public storage {
 public:
  bool serves(std::string_view) const noexcept override { return true; }
  task<part> read(shard, std::string, std::uint64_t offset, std::size_t length, slab_pool slabs) const override {
    part p;
    p.total = MiB;
    writable_bytes slab = slabs.acquire();
    p.data = slab.share(0, offset >= MiB ? 0 : length);
    co_return std::move(p);
  }
};

}  // namespace millrace::test
