// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/retry/request_rate.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/testing/store_model.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI::testing::detail {

/// Memory that a client has for parts.
struct client_memory {
  std::atomic<std::size_t> now{0};  // parts are dropped on any thread
  std::size_t peak = 0;

  void add(std::size_t n) noexcept { peak = std::max(peak, now.fetch_add(n, std::memory_order_relaxed) + n); }
};

/// The memory of a part, which shares that of an object and counts as a slab of the client's.
struct lent_part final : millrace::detail::block {
  lent_part(bytes content, std::size_t slab, std::shared_ptr<client_memory> of)
      : content_(std::move(content)), of_(std::move(of)) {
    data = const_cast<char*>(content_.data());
    capacity = slab;
    recycle = [](block* b) noexcept { delete static_cast<lent_part*>(b); };
    of_->add(capacity);
  }
  ~lent_part() { of_->now.fetch_sub(capacity, std::memory_order_relaxed); }

 private:
  const bytes content_;
  const std::shared_ptr<client_memory> of_;
};

class store_model_state {
 public:
  explicit store_model_state(const store_model_options& o) : options(o) {}

  struct object {
    std::uint64_t size = 0;
    bytes content;             // all of it; empty: of `fill`
    store_model::filler fill;  // null: zeros
    std::string etag;
  };

  std::string put(std::string url, object o) {
    o.etag = '"' + std::to_string(++versions_) + '"';
    return (objects[std::move(url)] = std::move(o)).etag;
  }

  /// "s3://corpus/train/" for "s3://corpus/train/000.tar".
  static std::string prefix_of(const std::string& url) {
    const std::size_t bucket = url.find('/', std::min<std::size_t>(5, url.size()));
    if (bucket == std::string::npos) return url;
    return url.substr(0, bucket + 1).append(counted_prefix(std::string_view(url).substr(bucket + 1)));
  }

  /// True if a request is answered.
  bool admits(const std::string& of, time_point now) {
    store_counts& counted = counts[of];
    ++counted.requests;
    const bool stray = ++requests_ == options.stray;
    if (buckets_[of].take(options.reads, now) && !stray) return true;
    ++counted.refused;
    return false;
  }

  /// When the last of `length` bytes comes to client `number`, whose first has come at `now`.
  time_point last_byte(std::uint64_t number, time_point now, std::size_t length) {
    const auto through = [&](double rate, time_point& free_at) {
      free_at = std::max(free_at, now) + millrace::detail::nanoseconds(1e9 * static_cast<double>(length) / rate);
      return free_at;
    };
    time_point connection = now;
    return std::max({through(options.connection_rate, connection),
                     through(options.host_rate, hosts_[number / options.clients_of_host]),
                     through(options.store_rate, store_free_at_)});
  }

  bytes content(const object& of, std::uint64_t offset, std::size_t length) {
    if (!of.content.empty()) return of.content.slice(static_cast<std::size_t>(offset), length);
    if (of.fill) {
      writable_bytes memory = writable_bytes::allocate(length);
      of.fill(offset, std::span<char>(memory.data(), length));
      return memory.share(0, length);
    }
    if (zeros_.size() < length) zeros_ = bytes::copy(std::string(length, '\0'));
    return zeros_.slice(0, length);
  }

  std::shared_ptr<client_memory> memory_of(std::uint64_t number) {
    std::shared_ptr<client_memory>& found = memories_[number];
    if (found == nullptr) found = std::make_shared<client_memory>();
    return found;
  }

  store_model_options options;
  std::map<std::string, object> objects;
  std::map<std::string, store_counts> counts;

 private:
  std::map<std::string, request_bucket> buckets_;
  std::map<std::uint64_t, time_point> hosts_;  // when each has received its bytes
  std::map<std::uint64_t, std::shared_ptr<client_memory>> memories_;
  time_point store_free_at_{};
  std::uint64_t requests_ = 0;
  std::uint64_t versions_ = 0;
  bytes zeros_;
};

/// A client of a store_model: its gates, its policy of retries, and requests that take the model's time.
template <class Unused = void>  // coroutines are virtual: see MILLRACE_COROUTINE
class model_client final : public storage {
 public:
  model_client(std::shared_ptr<store_model_state> model, std::uint64_t number, const retry_options& retry)
      : model_(std::move(model)),
        number_(number),
        memory_(model_->memory_of(number)),
        retry_(retry),
        random_(model_->options.seed, 1 + number, 0),
        quota_(retry.quota) {}

  bool serves(std::string_view url) const noexcept override { return url.substr(0, 5) == "s3://"; }
  std::string host(std::string_view) const override {
    return "client " + std::to_string(number_) + " of a store_model";
  }

  task<part> read(shard wanted, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    executor& ex = co_await this_executor();
    const answer first = co_await ask(store_model_state::prefix_of(wanted.url));
    const where at{wanted.url, offset, {}};
    const auto found = model_->objects.find(wanted.url);
    if (found == model_->objects.end()) {
      throw s3::error(404, "NoSuchKey", "The specified key does not exist.", "model", at);
    }
    const store_model_state::object& there = found->second;
    if (!etag.empty() && !millrace::detail::same_etag(etag, there.etag)) {
      throw changed_error("it is another version", at);
    }
    part p;
    p.total = there.size;
    p.etag = there.etag;
    p.first_byte = first.first_byte;
    p.held = first.held;
    const std::size_t n =
        static_cast<std::size_t>(offset < there.size ? std::min<std::uint64_t>(length, there.size - offset) : 0);
    const std::size_t slab = slabs.worth_a_slab(length) ? slabs.slab_bytes() : n;
    bytes content = model_->content(there, offset, n);
    const char* const begin = content.data();
    p.data = bytes(new lent_part(std::move(content), slab, memory_), begin, n);
    const time_point last = model_->last_byte(number_, ex.now(), n);
    store_counts& counted = model_->counts[store_model_state::prefix_of(wanted.url)];
    ++counted.reads;
    counted.bytes += n;
    co_await sleep_until(last);
    co_return std::move(p);
  }

  async_generator<shard> list(std::string prefix) const override {
    const std::string counted = store_model_state::prefix_of(prefix);
    std::string after;  // the latest name
    for (bool more = true; more;) {
      co_await ask(counted);
      ++model_->counts[counted].pages;
      std::vector<shard> page;
      auto each = after.empty() ? model_->objects.lower_bound(prefix) : model_->objects.upper_bound(after);
      for (; each != model_->objects.end() && each->first.compare(0, prefix.size(), prefix) == 0; ++each) {
        if (page.size() == model_->options.list_page) break;
        page.emplace_back(each->first, each->second.size, each->second.etag);
      }
      more = page.size() == model_->options.list_page;
      if (!page.empty()) after = page.back().url;
      for (shard& s : page) {
        if (!millrace::detail::is_index_beside(prefix, s.url)) co_yield give(s);
      }
    }
  }

 private:
  struct answer {
    duration first_byte{0};  // from the request that was answered
    duration held{0};        // before that, while the store refused
  };

  /// One request, which is asked again while it is refused: until the first byte of its answer.
  task<answer> ask(std::string prefix) const {
    executor& ex = co_await this_executor();
    millrace::detail::request_gate& gate = gates_[prefix];
    retry_policy policy(retry_, quota_);
    std::optional<time_point> held_since;
    for (;;) {
      const millrace::detail::request_gate::turn turn = co_await gate.enter();
      if (model_->admits(prefix, turn.begun)) {
        gate.succeeded(ex.now());
        answer a;
        a.first_byte = model_->options.first_byte.draw(random_);
        a.held = turn.begun - held_since.value_or(turn.asked);
        co_await sleep_for(a.first_byte);
        policy.after_success();
        co_return a;
      }
      co_await sleep_for(model_->options.refusal);
      gate.refused(turn, ex.now(), random_.uniform());
      if (!held_since) held_since = turn.asked;
      failed_attempt failed;
      failed.what = retry_class::throttling;
      failed.now = ex.now();
      const std::optional<duration> pause = policy.after_failure(failed, random_.uniform());
      if (!pause) {
        throw s3::error(503, "SlowDown", "Please reduce your request rate.", "model", where{prefix, std::nullopt, {}});
      }
      co_await sleep_for(*pause);
    }
  }

  const std::shared_ptr<store_model_state> model_;
  const std::uint64_t number_;
  const std::shared_ptr<client_memory> memory_;
  const retry_options retry_;
  mutable rng random_;
  mutable retry_quota quota_;
  mutable std::map<std::string, millrace::detail::request_gate> gates_;
};

}  // namespace millrace::inline MILLRACE_ABI::testing::detail

namespace millrace::inline MILLRACE_ABI::testing {

MILLRACE_INLINE store_model::store_model(const store_model_options& options)
    : state_(std::make_shared<detail::store_model_state>(options)) {}

MILLRACE_INLINE std::string store_model::put(std::string url, bytes content) {
  detail::store_model_state::object o;
  o.size = content.size();
  o.content = std::move(content);
  return state_->put(std::move(url), std::move(o));
}

MILLRACE_INLINE std::string store_model::put(std::string url, std::uint64_t size) {
  return put(std::move(url), size, nullptr);
}

MILLRACE_INLINE std::string store_model::put(std::string url, std::uint64_t size, filler fill) {
  detail::store_model_state::object o;
  o.size = size;
  o.fill = std::move(fill);
  return state_->put(std::move(url), std::move(o));
}

MILLRACE_INLINE void store_model::set_reads(const request_limit& reads) { state_->options.reads = reads; }

MILLRACE_COROUTINE_BODY std::shared_ptr<const storage> store_model::client(std::uint64_t number,
                                                                           const retry_options& retry) {
  return hedged(std::make_shared<const detail::model_client<>>(state_, number, retry), retry.hedges);
}

MILLRACE_INLINE store_counts store_model::counts() const {
  store_counts all;
  for (const auto& [prefix, n] : state_->counts) {
    all.requests += n.requests;
    all.refused += n.refused;
    all.reads += n.reads;
    all.pages += n.pages;
    all.bytes += n.bytes;
  }
  return all;
}

MILLRACE_INLINE const std::map<std::string, store_counts>& store_model::counts_of_prefixes() const {
  return state_->counts;
}

MILLRACE_INLINE std::size_t store_model::peak_memory(std::uint64_t number) const {
  return state_->memory_of(number)->peak;
}

}  // namespace millrace::inline MILLRACE_ABI::testing
