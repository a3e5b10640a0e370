// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A reader of shards that drops its next() again and again gets every sample, whole and in order, whatever the store's
// timing: sizes known and not, stores with ranges and without, windows of one part and of many.

#include <millrace/shards/fetch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/io/timeout.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using seen = std::vector<std::pair<std::string, std::size_t>>;  // keys, and the bytes of their fields

namespace {

duration pause(rng& random, std::uint64_t most) {
  return duration(static_cast<std::int64_t>(random.below(most + 1)) * 1'000'000);
}

/// Objects in memory that take their time. Those of `whole` are only to be had from their beginning to their end.
class slow_store final : public storage {
 public:
  explicit slow_store(rng& random) : random_(random) {}

  std::map<std::string, std::string> objects;
  std::string whole;

  bool serves(std::string_view) const noexcept override { return true; }
  bool may_be_sequential() const noexcept override { return true; }
  task<part> read(shard object, std::string, std::uint64_t offset, std::size_t length, slab_pool slabs) const override {
    co_await sleep_for(pause(random_, 4));
    const std::string& content = objects.at(object.url);
    part p;
    p.etag = "\"v\"";
    if (object.url == whole) {
      p.rest = std::make_unique<rest>(content, random_);
      co_return p;
    }
    p.total = content.size();
    const std::size_t n = std::min<std::size_t>(length, content.size() - static_cast<std::size_t>(offset));
    writable_bytes slab = slabs.acquire();
    std::memcpy(slab.data(), content.data() + offset, n);
    p.data = slab.share(0, n);
    co_return p;
  }

 private:
  class rest final : public sequential_rest {
   public:
    rest(const std::string& content, rng& random) noexcept : content_(content), random_(random) {}
    task<bytes> next() override {
      co_await sleep_for(pause(random_, 2));
      const std::size_t n = std::min<std::size_t>(content_.size() - at_, 1 + random_.below(60'000));
      bytes piece = bytes::copy(std::string_view(content_).substr(at_, n));
      at_ += n;
      co_return piece;
    }

   private:
    const std::string& content_;
    rng& random_;
    std::size_t at_ = 0;
  };

  rng& random_;
};

seen::value_type entry_of(const sample& s) {
  std::size_t total = 0;
  for (const field& f : s.fields) total += f.data.size();
  return {s.key, total};
}

task<seen> taken(stream<sample> g) {
  seen all;
  while (std::optional<sample> s = co_await g.next()) all.push_back(entry_of(*s));
  co_return all;
}

task<std::optional<sample>> next_of(stream<sample>& g) { co_return co_await g.next(); }

task<seen> taken_impatiently(stream<sample> g, rng& random) {
  seen all;
  for (int in_vain = 0; in_vain < 1000; ++in_vain) {  // as often in a row only where a stage waits for ever
    task<std::optional<sample>> asking = with_timeout(pause(random, 3), next_of(g));
    std::optional<sample> item;
    bool late = false;
    try {
      item = co_await std::move(asking);
    } catch (const timeout_error&) {
      late = true;
    }
    if (late) {
      co_await sleep_for(pause(random, 4));
      continue;
    }
    if (!item) co_return all;
    all.push_back(entry_of(*item));
    in_vain = 0;
  }
  co_return all;
}

}  // namespace

TEST_CASE("a reader of shards that drops its next() again and again gets every sample, in order") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    rng random(seed);
    const auto store = std::make_shared<slow_store>(random);
    std::vector<shard> shards;
    seen stored;
    for (int i = 0; i < 5; ++i) {
      const std::string url = "mem:" + std::to_string(i);
      std::string& text = store->objects[url];
      tar::writer archive(text);
      for (std::uint64_t k = random.below(6); k > 0; --k) {
        const std::string key = "s" + std::to_string(i) + "-" + std::to_string(k);
        const std::size_t size = random.below(90'000);
        archive.add(key + ".jpg", std::string(size, 'j'));
        archive.add(key + ".cls", "1");
        stored.emplace_back(key, size + 1);
      }
      archive.finish();
      if (random.below(4) == 0) store->whole = url;
      shards.push_back(random.below(2) == 0 && store->whole != url ? shard(url, text.size()) : shard(url));
    }
    fetch_options options;
    options.part = 64 * KiB * (1 + random.below(2));
    options.shards = 1 + random.below(3);
    options.window = options.part * (1 + random.below(4));
    const bool buffered = random.below(2) == 0;
    const std::shared_ptr<const storage> s = store;
    const auto pipeline = [&]() -> stream<sample> {
      auto samples = from_range(shards) | fetch(s, options) | untar() | group_samples();
      if (!buffered) return samples;
      return std::move(samples) | buffer({.items = 1});
    };
    {
      testing::virtual_loop loop;
      REQUIRE(block_on(loop, taken(pipeline())) == stored);
    }
    testing::virtual_loop loop(seed + 1);
    REQUIRE(block_on(loop, taken_impatiently(pipeline(), random)) == stored);
  }
}
