// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/units.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/retry/detail/store_host.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::test {

/// A runtime of one loop that knows its stores, for virtual time.
class known_hosts final : public runtime_parts {
 public:
  explicit known_hosts(executor& loop) noexcept : loop_(loop) { loop.set_runtime(*this); }
  executor& next_loop() noexcept override { return loop_; }
  detail::store_hosts* hosts() noexcept override { return &hosts_; }
  detail::runtime_counts* counts() noexcept override { return &hosts_.counts; }

 private:
  executor& loop_;
  detail::store_hosts hosts_;
};

/// A store of zeros that answers after a time, and sends so much a second on each connection. Its host is the scheme of
/// the URL.
class far_store : public storage {
 public:
  explicit far_store(duration first_byte, double rate) : first_byte_(first_byte), rate_(rate) {}

  std::uint64_t object_bytes = 64 * MiB;
  mutable std::size_t reading = 0;
  mutable std::size_t most_reading = 0;
  mutable std::size_t asked = 0;  ///< bytes, of all reads

  bool serves(std::string_view) const noexcept override { return true; }
  std::string host(std::string_view url) const override { return std::string(url.substr(0, url.find(':'))); }
  task<part> read(shard, std::string, std::uint64_t offset, std::size_t length, slab_pool slabs) const override {
    class under_way {
     public:
      explicit under_way(const far_store& s) : store_(s) {
        if (++store_.reading > store_.most_reading) store_.most_reading = store_.reading;
      }
      ~under_way() { --store_.reading; }

     private:
      const far_store& store_;
    };
    const under_way counted(*this);
    if (offset + length > object_bytes) length = static_cast<std::size_t>(object_bytes - offset);
    asked += length;
    co_await sleep_for(first_byte_);
    co_await sleep_for(duration(static_cast<std::int64_t>(1e9 * static_cast<double>(length) / rate_)));
    part p;
    p.total = object_bytes;
    p.first_byte = first_byte_;
    writable_bytes slab = slabs.acquire();
    p.data = slab.share(0, length);
    co_return std::move(p);
  }

 private:
  const duration first_byte_;
  const double rate_;
};

}  // namespace millrace::test
