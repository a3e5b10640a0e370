// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

namespace millrace::test {

/// A sum over ranks that are threads of the test. It fails where a rank does not come, or comes with other numbers.
class thread_sum {
 public:
  explicit thread_sum(std::size_t ranks) : ranks_(ranks) {}
  void operator()(std::span<std::uint64_t> numbers) {
    std::unique_lock lock(mutex_);
    if (arrived_ == 0) total_.assign(numbers.size(), 0);
    if (numbers.size() != total_.size()) throw std::runtime_error("ranks sum unequally many numbers");
    for (std::size_t i = 0; i < numbers.size(); ++i) total_[i] += numbers[i];
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      result_ = total_;  // until all have come again
      ++sums_;
      all_there_.notify_all();
    } else {
      const std::uint64_t before = sums_;
      if (!all_there_.wait_for(lock, std::chrono::seconds(20), [&] { return sums_ != before; })) {
        throw std::runtime_error("a rank does not come to a sum");
      }
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = result_[i];
  }
  std::uint64_t sums() const noexcept { return sums_; }

 private:
  const std::size_t ranks_;
  std::mutex mutex_;
  std::condition_variable all_there_;
  std::vector<std::uint64_t> total_;
  std::vector<std::uint64_t> result_;
  std::size_t arrived_ = 0;
  std::uint64_t sums_ = 0;
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
