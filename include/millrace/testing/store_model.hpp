// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/retry/retry_options.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/testing/store_limits.hpp>

namespace millrace::inline MILLRACE_ABI::testing {

namespace detail {
class store_model_state;
}

/// See store_model. The defaults are those of S3, read by hosts with 100 Gbit/s.
struct store_model_options {
  /// Reads of objects and pages of listings that a prefix takes: the keys of a bucket with the same first component.
  request_limit reads{.each_second = 5500};
  latency_curve first_byte{};
  duration refusal = std::chrono::milliseconds(5);  ///< from a request to a 503
  double connection_rate = 85e6;                    ///< bytes in a second of one request's answer
  double host_rate = 12.5e9;                        ///< of all clients of a host together
  double store_rate = 200e9;                        ///< of the store
  std::uint64_t clients_of_host = 8;                ///< clients 0 to 7 are on the first host
  std::size_t list_page = 1000;                     ///< objects in a page of a listing
  std::uint64_t stray = 0;  ///< the number, from 1, of a request that is refused whatever the rate; 0: none
  std::uint64_t seed = 1;   ///< of times and pauses
};

/// What a store_model has counted.
struct store_counts {
  std::uint64_t requests = 0;  ///< all that came, refused ones included
  std::uint64_t refused = 0;   ///< of these, answered with 503
  std::uint64_t reads = 0;     ///< answered with bytes of an object
  std::uint64_t pages = 0;     ///< answered with a page of a listing
  std::uint64_t bytes = 0;     ///< of objects, sent

  friend store_counts operator-(store_counts a, const store_counts& b) noexcept {
    a.requests -= b.requests;
    a.refused -= b.refused;
    a.reads -= b.reads;
    a.pages -= b.pages;
    a.bytes -= b.bytes;
    return a;
  }
};

/// A model of an object store and of the ways to it, for one loop of virtual time: what a pipeline does beside a
/// thousand others shows in seconds, without a network and the same in each run.
///
///     testing::virtual_loop loop;
///     testing::store_model store;
///     for (int i = 0; i < 100; ++i) store.put("s3://corpus/train/" + std::to_string(i) + ".tar", tar);
///     std::vector<spawned<void>> ranks;
///     for (std::uint64_t r = 0; r < 256; ++r) ranks.emplace_back(loop, train(store.client(r), r));
///     loop.run_for(60s);
///     CHECK(store.counts().refused < store.counts().requests / 50);
///
/// A request for more than its prefix takes is answered with 503 SlowDown. Any other is answered after a time of
/// store_model_options::first_byte, and its bytes come as fast as connection, host and store allow. A client waits for
/// its turn, tries again, requests late parts again and gives up as s3::client does: a refusal makes its requests
/// fewer. Not in the model: connections that are opened, the CPU time of clients, checksums of the store, writing.
///
/// All on one thread. Clients and what they have read may outlive the model.
class store_model {
 public:
  /// Writes bytes [offset, offset + to.size()) of an object.
  using filler = std::function<void(std::uint64_t offset, std::span<char> to)>;

  explicit store_model(const store_model_options& options = {});
  store_model(const store_model&) = delete;
  store_model& operator=(const store_model&) = delete;

  /// Stores an object, in place of one that is there, as another version: s3://bucket/key. One piece of memory may be
  /// the content of many. Gives its ETag.
  std::string put(std::string url, bytes content);
  /// An object of zeros, which takes no memory.
  std::string put(std::string url, std::uint64_t size);
  /// An object whose bytes are made when they are read.
  std::string put(std::string url, std::uint64_t size, filler fill);

  /// From now on.
  void set_reads(const request_limit& reads);

  /// The storage of client `number`, as a process has it: with a request_gate of its own for each prefix, and a quota
  /// of retries. Each call makes another.
  MILLRACE_COROUTINE std::shared_ptr<const storage> client(std::uint64_t number, const retry_options& retry = {});

  /// So far, of all prefixes and of each: "s3://corpus/train/".
  store_counts counts() const;
  const std::map<std::string, store_counts>& counts_of_prefixes() const;
  /// The most bytes of memory that client `number` has had for parts at once: those on their way, and those that were
  /// not dropped yet, each as the slab that it would lie in.
  std::size_t peak_memory(std::uint64_t number) const;

 private:
  const std::shared_ptr<detail::store_model_state> state_;
};

}  // namespace millrace::inline MILLRACE_ABI::testing

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/store_model.ipp>
#endif
