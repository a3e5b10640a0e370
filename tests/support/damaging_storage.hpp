// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::test {

/// A line that flips bits: what a store answers, with one bit wrong in answers that are drawn from a seed (of each
/// byte, with the same small probability), or in those that hold a byte that was named. What the store says of its
/// objects (check()) is right.
class damaging_storage final : public forwarding_storage {
 public:
  explicit damaging_storage(std::shared_ptr<const storage> inner, std::uint64_t seed = 0, double of_bytes = 0)
      : forwarding_storage(std::move(inner)), random_(seed), of_bytes_(of_bytes) {}

  /// The next `times` answers that hold this byte of an object have a bit of it wrong, another one each time.
  void damage(std::string url, std::uint64_t byte, std::uint64_t times = 1, bool same_bit = false) {
    const std::lock_guard lock(mutex_);
    named_.push_back(wrong{std::move(url), byte, times, same_bit ? 0u : 1u, 0u});
  }
  std::uint64_t flips() const {
    const std::lock_guard lock(mutex_);
    return flips_;
  }
  std::uint64_t second_readings() const {
    const std::lock_guard lock(mutex_);
    return second_readings_;
  }
  std::uint64_t read_bytes() const {
    const std::lock_guard lock(mutex_);
    return read_bytes_;
  }

  bool over_network(std::string_view) const noexcept override { return true; }
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    std::string url = object.url;
    part p = co_await inner()->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
    pass(url, offset, p);
    co_return std::move(p);
  }
  task<part> read_again(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                        slab_pool slabs) const override {
    count_second();
    return read(std::move(object), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return read(std::move(object), std::move(etag), 0, length, std::move(slabs));
  }

 private:
  struct wrong {
    std::string url;
    std::uint64_t byte;
    std::uint64_t times;
    unsigned step;
    unsigned bit;
  };
  void count_second() const {
    const std::lock_guard lock(mutex_);
    ++second_readings_;
  }
  void pass(const std::string& url, std::uint64_t offset, part& p) const {
    const std::lock_guard lock(mutex_);
    read_bytes_ += p.data.size();
    const bool drawn = random_.uniform() < of_bytes_ * static_cast<double>(p.data.size());
    if (drawn) flip(p, random_.below(p.data.size()), 0);
    for (wrong& w : named_) {
      if (w.times == 0 || w.url != url || w.byte < offset || w.byte - offset >= p.data.size()) continue;
      --w.times;
      flip(p, w.byte - offset, w.bit);
      w.bit = (w.bit + w.step) % 8;
    }
  }
  void flip(part& p, std::uint64_t at, unsigned bit) const {
    std::string text(p.data.view());
    char& c = text[static_cast<std::size_t>(at)];
    c = static_cast<char>(c ^ (1 << bit));
    p.data = bytes::copy(text);
    p.crc = running_crc();
    ++flips_;
  }

  mutable std::mutex mutex_;
  mutable rng random_;
  const double of_bytes_;
  mutable std::vector<wrong> named_;
  mutable std::uint64_t flips_ = 0;
  mutable std::uint64_t second_readings_ = 0;
  mutable std::uint64_t read_bytes_ = 0;
};

}  // namespace millrace::test
