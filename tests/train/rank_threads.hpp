// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <millrace/data/rank.hpp>
#include <millrace/train/rank_group.hpp>

namespace millrace::test {

/// Gathers words of processes that are threads of the test. It fails where one does not come, or comes with more or
/// fewer words.
class thread_gather {
 public:
  explicit thread_gather(std::size_t processes) : processes_(processes) {}

  /// The group of process `number`, which says that it is rank `mine`.
  rank_group group(const rank& mine, std::size_t number) {
    return rank_group(mine, [this, number](std::span<const std::uint64_t> words, std::span<std::uint64_t> all) {
      gather(number, words, all);
    });
  }
  rank_group group(const rank& mine) { return group(mine, mine.index); }
  rank_group group(std::size_t number) {
    return group({.index = static_cast<std::uint32_t>(number), .world_size = static_cast<std::uint32_t>(processes_)});
  }
  std::uint64_t gathers() const noexcept { return gathers_; }

 private:
  void gather(std::size_t number, std::span<const std::uint64_t> words, std::span<std::uint64_t> all) {
    std::unique_lock lock(mutex_);
    if (arrived_ == 0) coming_.assign(processes_ * words.size(), 0);
    if (processes_ * words.size() != coming_.size()) throw std::runtime_error("ranks gather unequally many words");
    std::copy(words.begin(), words.end(), coming_.begin() + static_cast<std::ptrdiff_t>(number * words.size()));
    if (++arrived_ == processes_) {
      arrived_ = 0;
      result_ = coming_;  // until all have come again
      ++gathers_;
      all_there_.notify_all();
    } else {
      const std::uint64_t before = gathers_;
      if (!all_there_.wait_for(lock, std::chrono::seconds(20), [&] { return gathers_ != before; })) {
        throw std::runtime_error("a rank does not come to a gather");
      }
    }
    std::copy_n(result_.begin(), std::min(all.size(), result_.size()), all.begin());
  }

  const std::size_t processes_;
  std::mutex mutex_;
  std::condition_variable all_there_;
  std::vector<std::uint64_t> coming_;
  std::vector<std::uint64_t> result_;
  std::size_t arrived_ = 0;
  std::uint64_t gathers_ = 0;
};

/// What each rank, a thread, threw; empty where it did not.
template <class F>
std::vector<std::string> on_ranks(std::size_t ranks, F f) {
  std::vector<std::string> errors(ranks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        f(r);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

}  // namespace millrace::test
