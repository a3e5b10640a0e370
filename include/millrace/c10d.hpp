// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/flow/rank_words.hpp>
#include <millrace/train/rank_group.hpp>

/// \file
/// Joins a training under torchrun, Kubeflow or Ray Train to the library, by the store that PyTorch's processes meet
/// in. It needs no header of libtorch: the program includes <torch/csrc/distributed/c10d/TCPStore.hpp> and the like
/// itself.

namespace millrace::inline MILLRACE_ABI {

/// The group of processes that have a c10d::Store in common. `Store` is a pointer that shares it
/// (c10::intrusive_ptr<c10d::Store>), to set(), get(), check() and deleteKey() that several threads may call, as those
/// of TCPStore and PrefixStore are.
///
///     c10d::TCPStoreOptions how;
///     how.port = 29500;  // MASTER_PORT; torchrun's agent keeps the server
///     auto store = c10::make_intrusive<c10d::TCPStore>("10.0.0.1", how);  // MASTER_ADDR
///     const mill::rank_group mine = mill::c10d_ranks(mill::rank_from_environment(), store, mill::c10d_attempt());
///
/// Names of keys begin with `prefix`, which is for one start of one group: c10d_attempt() where torchrun starts again
/// after a failure and keeps the store. Each process constructs it. What they gather costs rank 0 two requests for each
/// of the others, and each of these three or so. The ranks agree on a stop on the runs' loops, which ask the store
/// twice a second: give the group a connection of its own, as another call that waits in a TCPStore keeps them waiting.
/// Errors: those of the store, and a configuration_error that names the ranks that have not come in `timeout`.
template <class Store>
rank_group c10d_ranks(const rank& mine, Store store, std::string prefix, const rank_group_options& options = {});

/// "millrace/N/", N being the number of times that torchrun has started the processes again.
std::string c10d_attempt();

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

/// The keys of a group: words that its processes gather, and their notes.
template <class Store>
class c10d_keys final : public rank_notes {
 public:
  c10d_keys(const rank& mine, Store store, std::string prefix, duration timeout)
      : mine_(mine), store_(std::move(store)), prefix_(std::move(prefix)), timeout_(timeout) {}

  /// Not from several threads at once.
  void gather(std::span<const std::uint64_t> words, std::span<std::uint64_t> all) {
    const std::uint64_t round = round_++;
    const std::string begin = prefix_ + "words/" + std::to_string(round) + '/';
    const std::string result = begin + "all";
    if (mine_.index != 0) {
      store_->set(begin + std::to_string(mine_.index), bytes_of(words));
      wait_for({result});
      return take(store_->get(result), all);
    }
    std::vector<std::string> keys;
    for (std::uint32_t r = 1; r < mine_.world_size; ++r) keys.push_back(begin + std::to_string(r));
    wait_for(keys);
    std::copy(words.begin(), words.end(), all.begin());
    for (std::size_t r = 1; r < mine_.world_size; ++r) {
      take(store_->get(keys[r - 1]), all.subspan(r * words.size(), words.size()));
      store_->deleteKey(keys[r - 1]);
    }
    store_->set(result, bytes_of(all));
    // All have read the one before, since they have come to this one.
    if (round != 0) store_->deleteKey(prefix_ + "words/" + std::to_string(round - 1) + "/all");
  }

  task<void> put(std::string name, std::string text) const override {
    store_->set(prefix_ + name, std::vector<std::uint8_t>(text.begin(), text.end()));
    co_return;
  }
  task<std::string> get(std::string name) const override {
    std::string text;
    if (store_->check({prefix_ + name})) {
      const std::vector<std::uint8_t> bytes = store_->get(prefix_ + name);
      text.assign(bytes.begin(), bytes.end());
    }
    co_return text;
  }
  task<void> remove(std::string name) const override {
    store_->deleteKey(prefix_ + name);
    co_return;
  }

 private:
  static std::vector<std::uint8_t> bytes_of(std::span<const std::uint64_t> words) {
    std::vector<std::uint8_t> bytes(words.size_bytes());
    if (!bytes.empty()) std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
  }
  static void take(const std::vector<std::uint8_t>& bytes, std::span<std::uint64_t> words) {
    if (bytes.size() != words.size_bytes()) {
      throw usage_error(
          "c10d_ranks: ranks gather unequally many words: all must make the same calls in the same order");
    }
    if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  }
  /// Asks again and again: a call of the store that waits would keep others of this process from it.
  void wait_for(const std::vector<std::string>& keys) const {
    const std::int64_t begun = monotonic_ns();
    for (std::int64_t pause = 1'000'000; !keys.empty() && !store_->check(keys); pause += pause / 2) {
      if (monotonic_ns() - begun >= timeout_.count()) refuse(keys);
      if (pause > 50'000'000) pause = 50'000'000;
      const timespec rest{0, static_cast<long>(pause)};
      ::nanosleep(&rest, nullptr);
    }
  }
  [[noreturn]] void refuse(const std::vector<std::string>& keys) const {
    std::string missing;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (store_->check({keys[i]})) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(mine_.index == 0 ? i + 1 : 0);
    }
    throw configuration_error(
        "c10d_ranks: rank " + std::to_string(mine_.index) + " of " + std::to_string(mine_.world_size) + " has waited " +
        std::to_string(timeout_.count() / 1'000'000'000) + " s for ranks that did not come: " + missing);
  }

  const rank mine_;
  const Store store_;
  const std::string prefix_;
  const duration timeout_;
  std::uint64_t round_ = 0;
};

}  // namespace detail

template <class Store>
rank_group c10d_ranks(const rank& mine, Store store, std::string prefix, const rank_group_options& options) {
  if (options.timeout <= duration(0)) throw configuration_error("c10d_ranks: .timeout must be above 0");
  auto keys = std::make_shared<detail::c10d_keys<Store>>(mine, std::move(store), std::move(prefix), options.timeout);
  return rank_group(
      mine, [keys](std::span<const std::uint64_t> words, std::span<std::uint64_t> all) { keys->gather(words, all); },
      keys);
}

inline std::string c10d_attempt() {
  return "millrace/" + process_environment().get("TORCHELASTIC_RESTART_COUNT").value_or("0") + '/';
}

}  // namespace millrace::inline MILLRACE_ABI
