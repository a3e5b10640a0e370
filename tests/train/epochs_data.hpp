// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/detail/dataset_mix.hpp>

namespace millrace::test {

using detail::dataset_mix;

/// What is wrong with an object.
enum class harm { missing, cut, denied, changed, broken };

/// Objects in memory, whose answers take random virtual time; it notes what is under way, and does harm where it should
/// to.
class dataset_store final : public storage {
 public:
  explicit dataset_store(std::uint64_t seed = 0) : random_(seed) {}

  std::map<std::string, std::string> objects;  // by URL
  std::string etag = "\"v1\"";
  std::uint64_t delay_us = 0;  // the longest
  std::string host_name;       // empty: none
  duration first_byte{0};      // beside that delay
  std::uint64_t rate = 0;      // bytes a second of each request, after that; 0: all at once
  std::string missing;         // this one is not there
  std::string cut;             // answers for this one are a byte short
  std::map<std::string, harm> bad;  // by URL
  std::string local_below;          // URLs that begin with this are said to be on a local disk; empty: none
  mutable std::uint64_t busy_local = 0;  // requests for these, apart from `busy`
  mutable std::uint64_t most_busy_local = 0;
  mutable std::uint64_t longest_local = 0;  // bytes of one request
  mutable std::uint64_t requests = 0;
  mutable std::uint64_t read_bytes = 0;
  mutable std::uint64_t busy = 0;
  mutable std::uint64_t most_busy = 0;
  mutable std::uint64_t held = 0;  // bytes of requests under way
  mutable std::uint64_t asked_first = 0;  // bytes that were asked for before the first answer
  mutable bool answered = false;

  bool serves(std::string_view url) const noexcept override { return url.substr(0, 4) == "mem:"; }
  std::string host(std::string_view) const override { return host_name; }
  bool is_local(const shard& object, std::uint64_t, std::size_t) const override {
    return !local_below.empty() && object.url.compare(0, local_below.size(), local_below) == 0;
  }
  async_generator<shard> list(std::string below) const override {
    std::vector<shard> all;
    for (const auto& [url, content] : objects) {
      if (url.compare(0, below.size(), below) == 0) all.emplace_back(url, content.size(), etag);
    }
    return from_range(std::move(all)).generator();
  }
  bool over_network(std::string_view) const noexcept override { return false; }  // damage is its own: damaging_storage
  task<part> read(shard object, std::string wanted, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    class one_busy {
     public:
      one_busy(const dataset_store& s, bool local) : store_(s), local_(local) {
        std::uint64_t& most = local ? s.most_busy_local : s.most_busy;
        most = std::max(most, ++(local ? s.busy_local : s.busy));
      }
      ~one_busy() { --(local_ ? store_.busy_local : store_.busy); }

     private:
      const dataset_store& store_;
      const bool local_;
    } now(*this, is_local(object, offset, length));
    if (is_local(object, offset, length)) longest_local = std::max<std::uint64_t>(longest_local, length);
    ++requests;
    if (!answered) asked_first += length;
    if (delay_us != 0) co_await sleep_for(std::chrono::microseconds(random_.below(delay_us)));
    if (first_byte.count() != 0) co_await sleep_for(first_byte);
    if (rate != 0) co_await sleep_for(std::chrono::microseconds(length * 1'000'000 / rate));
    answered = true;
    const where at{object.shown(), offset, {}};
    if (object.url == missing) throw io_error(std::errc::no_such_file_or_directory, "there is no such object", at);
    if (!wanted.empty() && wanted != etag) throw changed_error("it is no longer the version " + wanted, at);
    const auto wrong = bad.find(object.url);
    const auto is = [&](harm h) { return wrong != bad.end() && wrong->second == h; };
    if (is(harm::missing)) throw io_error(std::errc::no_such_file_or_directory, "there is no such object", at);
    if (is(harm::denied)) throw io_error(std::errc::permission_denied, "access denied", at);
    if (is(harm::changed)) throw changed_error("it is no longer the version " + wanted, at);
    std::string_view all = objects.at(object.url);
    if (is(harm::cut)) all = all.substr(0, all.size() / 2);
    std::string_view asked = all.substr(std::min<std::size_t>(offset, all.size()), length);
    if (object.url == cut) asked.remove_suffix(1);
    read_bytes += asked.size();
    part p;
    p.etag = etag;
    p.first_byte = first_byte;
    p.total = all.size();
    if (length > slabs.slab_bytes() / 8) {
      writable_bytes slab = slabs.acquire();
      std::copy(asked.begin(), asked.end(), slab.data());
      p.data = slab.share(0, asked.size());
    } else {
      p.data = bytes::copy(asked);
    }
    if (is(harm::broken)) {
      std::string other(p.data.view());
      for (char& c : other) c = static_cast<char>(c ^ 1);
      p.data = bytes::copy(other);
    }
    co_return std::move(p);
  }

 private:
  mutable rng random_;
};

/// What a test says of a training and of its data: options of both, and the state.
struct settings {
  std::uint64_t seed = 0;
  std::uint64_t epochs = 1;
  std::uint64_t first_epoch = 0;
  std::size_t batch = 1;
  std::uint64_t take_batches = 0;
  rank_group_ref ranks = {};
  millrace::rank rank = {};
  std::uint64_t hosts = 1;
  bool pad = true;
  std::uint64_t tracks = 0;
  std::uint64_t slice = 0;
  std::string prefix = {};
  std::string resume = {};
  std::string index_file = {};  // of listed shards
  bool make_index = true;
  bool streamed = false;        // they have no index
  std::size_t shards = 8;
  std::size_t window = 4096;
  std::size_t window_bytes = 512 * MiB;
  const equal_batches* equal = nullptr;
  bool uneven = false;
  bool verify = true;
  failure_policy failures = {};
  std::size_t ahead = 4096;
  std::size_t bytes = 0;
  std::size_t requests = 64;
  std::size_t part = 8 * MiB;
  std::size_t gap = 256 * KiB;

  epochs_options training() const {
    epochs_options o;
    o.seed = seed;
    o.epochs = epochs;
    o.first_epoch = first_epoch;
    o.batch = batch;
    o.take_batches = take_batches;
    o.ranks = ranks;
    o.rank = rank;
    o.hosts = hosts;
    o.pad = pad;
    o.tracks = streamed ? 0 : tracks;
    o.equal = equal;
    o.uneven = uneven;
    o.verify = verify;
    o.failures = failures;
    o.ahead = ahead;
    o.bytes = bytes;
    o.requests = requests;
    o.part = part;
    o.gap = gap;
    return o;
  }
  dataset_options listed() const {
    if (streamed) return {.shards = shards, .window = window, .window_bytes = window_bytes};
    return {.index = index_file, .make_index = make_index, .prefix = prefix, .slice = slice};
  }
};

/// A training on shards whose indexes are given.
inline stream<sample> train_on(std::shared_ptr<const index_set> indexes, std::shared_ptr<const storage> store,
                               const settings& o) {
  return epochs(dataset(store, std::move(indexes), {.prefix = o.prefix, .slice = o.slice}), o.training(), o.resume);
}
/// On a list of them.
inline stream<sample> train_on(stream<shard> list, std::shared_ptr<const storage> store, const settings& o) {
  return epochs(dataset(store, std::move(list), o.listed()), o.training(), o.resume);
}
/// On several data sets.
inline stream<sample> train_on(const dataset_mix& mix, std::shared_ptr<const storage> store, const settings& o) {
  std::vector<weighted_dataset> members;
  for (const dataset_mix::member& m : mix.members) {
    const std::string prefix = m.prefix.empty() ? o.prefix : m.prefix;
    members.push_back({dataset(store, m.indexes, {.prefix = prefix}), m.weight, m.seed});
  }
  const dataset all(std::move(members), {.until = mix.until, .samples = mix.samples, .slice = o.slice});
  return epochs(all, o.training(), o.resume);
}

/// Shards with so many samples of two fields each, and their index. Several may lie in one store, in folders ("a/").
class tar_dataset {
 public:
  tar_dataset(const std::vector<std::size_t>& counts, std::size_t largest, std::uint64_t seed = 1,
          const std::string& folder = {}, std::shared_ptr<dataset_store> in = nullptr)
      : store(in != nullptr ? std::move(in) : std::make_shared<dataset_store>(seed)), prefix("mem:" + folder) {
    rng random(seed);
    std::vector<shard_index> all;
    for (std::size_t n = 0; n < counts.size(); ++n) {
      std::string content;
      tar::writer out([&](std::string_view piece) { content += piece; });
      for (std::size_t i = 0; i < counts[n]; ++i) {
        const std::string key = folder + "s" + std::to_string(n) + "/" + std::to_string(i);
        out.add(key + ".bin", std::string(random.below(largest + 1), static_cast<char>('a' + i % 26)));
        out.add(key + ".txt", key);
      }
      out.finish();
      const std::string name = std::to_string(100 + n) + ".tar";
      store->objects[prefix + name] = std::move(content);
      testing::virtual_loop loop;
      all.push_back(block_on(loop, index_shard(std::shared_ptr<const storage>(store), shard(prefix + name), name)));
    }
    indexes = std::make_shared<const index_set>(std::move(all));
    store->requests = store->read_bytes = 0;
  }

  std::shared_ptr<dataset_store> store;
  std::string prefix;
  std::shared_ptr<const index_set> indexes;

  stream<sample> open(settings options) const {
    options.prefix = prefix;
    return train_on(indexes, store, options);
  }
  /// The keys of an epoch in the canonical order, as the index alone tells them.
  std::vector<std::string> order(std::uint64_t seed, std::uint64_t epoch, order_options o) const {
    const sample_order by_index(indexes->counts(), seed, epoch, o);
    std::vector<std::string> keys;
    for (std::uint64_t g = 0; g < by_index.size(); ++g) {
      const sample_place p = by_index.at(g);
      keys.push_back(prefix.substr(4) + "s" + std::to_string(p.shard) + "/" + std::to_string(p.ordinal));
    }
    return keys;
  }
};

/// The keys of a mix's epoch, each with the number of its data set and of its round there ("1/0:b/s0/3"), by counting
/// through all epochs before; `sets` are the members' data.
inline std::vector<std::string> order_of_mix(const dataset_mix& mix, const std::vector<const tar_dataset*>& sets,
                                             const settings& o, std::uint64_t epoch) {
  std::vector<std::uint64_t> weights;
  std::vector<std::uint64_t> sizes;
  for (const dataset_mix::member& m : mix.members) {
    weights.push_back(m.weight);
    sizes.push_back(m.indexes->samples());
  }
  const sample_mix places(weights, sizes, o.tracks, mix.until, mix.samples);
  std::vector<std::uint64_t> next(sets.size(), 0);  // of each data set
  std::vector<std::string> keys;
  for (std::uint64_t e = 0; e <= epoch; ++e) {
    for (std::uint64_t g = 0; g < places.size(); ++g) {
      const std::size_t d = places.owner(g % o.tracks);
      const std::uint64_t n = next[d]++;
      if (e < epoch) continue;
      const std::uint64_t seed = detail::key_of(o.seed, d, mix.members[d].seed);
      const std::uint64_t slice = o.slice != 0 ? o.slice : sets[d]->indexes->slice();
      const sample_order by_index(sets[d]->indexes->counts(), seed, n / sizes[d],
                                  {.tracks = places.tracks(d), .slice = slice});
      const sample_place p = by_index.at(n % sizes[d]);
      keys.push_back(std::to_string(d) + "/" + std::to_string(n / sizes[d]) + ":" + sets[d]->prefix.substr(4) + "s" +
                     std::to_string(p.shard) + "/" + std::to_string(p.ordinal));
    }
  }
  return keys;
}

/// What a rank got: keys by position, and the padding.
class delivered {
 public:
  std::vector<std::pair<std::uint64_t, std::string>> samples;  // epoch * 2^32 + position, key
  std::size_t padding = 0;
  std::vector<std::uint64_t> empty;  // where that stands, as in `samples`
  std::vector<lost_shard> lost;
  std::vector<std::uint64_t> batches;  // by epoch
  std::string state;                   // after the last one
};

/// Takes batches of `batch` entries, at most `most` of them.
inline task<void> take_batches_of(stream<sample> in, std::size_t batch, std::size_t most, delivered& out) {
  const std::shared_ptr<const stream_position> position = in.position();
  epoch_mark mark;
  for (std::size_t n = 0; n < most * batch; ++n) {
    std::optional<sample> s = co_await in.next();
    if (!s) break;
    mark.join(s->mark);
    const std::uint64_t epoch = s->mark.epoch;
    if (s->weight() == 0) {
      ++out.padding;
      out.empty.push_back(epoch << 32 | s->mark.position);
    } else {
      const bool right = s->fields.size() == 2 && (*s)["txt"].view() == s->key && s->from.from->epoch == epoch;
      out.samples.emplace_back(epoch << 32 | s->mark.position, right ? s->key : "wrong: " + s->key);
    }
    if ((n + 1) % batch == 0) {
      if (out.batches.size() <= epoch) out.batches.resize(static_cast<std::size_t>(epoch) + 1);
      ++out.batches[static_cast<std::size_t>(epoch)];
    }
  }
  out.lost = position->lost();
  out.state = mark.known && !mark.whole ? "inside a step" : position->state(mark);
}

inline delivered delivered_by(stream<sample> in, std::size_t batch, std::size_t most = SIZE_MAX / 65536,
                              std::uint64_t loop_seed = 0) {
  testing::virtual_loop loop(loop_seed);
  delivered out;
  block_on(loop, take_batches_of(std::move(in), batch, most, out));
  return out;
}

/// A state as version 1 wrote it: without a check word, so that a test can change a member of it.
inline std::string without_check_word(std::string state) {
  state.erase(state.find(",\"check\""), 19);
  state.replace(state.find("\"version\":2"), 11, "\"version\":1");
  return state;
}

}  // namespace millrace::test
