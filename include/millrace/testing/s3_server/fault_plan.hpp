// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/testing/s3_server/fault.hpp>
#include <millrace/testing/s3_server/request.hpp>

namespace millrace::s3_server {

/// Which requests a scripted fault is for; what is left out fits every request.
struct fault_match {
  const char* method = nullptr;
  const char* bucket = nullptr;
  const char* key = nullptr;         ///< exact; "" for requests to a bucket: listings
  const char* key_prefix = nullptr;  ///< of object keys
  std::uint64_t nth = 0;             ///< only the n-th request that fits otherwise, from 1; 0: all of them
  std::uint64_t times = 0;           ///< with nth: that many from there; without: only the first ones; 0: see nth
};

/// Random faults, reproducible: whether and how a request fails depends on the seed, on what is asked for (method, key,
/// range, listing position) and on how often it was asked for before, and on nothing else.
struct random_faults {
  std::uint64_t seed = 0;
  double probability = 0.1;       ///< of each request
  std::uint64_t per_request = 2;  ///< the most faults for the same question, so that retries get through; 0: no limit
  bool silent = true;             ///< also broken answers that HTTP libraries report as success
  bool slow = false;              ///< also stalls and drips: for clients whose time-outs are short
  bool damage = false;            ///< also flipped bits in objects: only checksums find them
  duration longest_pause = std::chrono::milliseconds(10);  ///< of delays, and between the pieces of a drip
};

/// What goes wrong on a server, and when. Thread-safe: may be changed while the server runs. Scripted faults come
/// first, in the order in which they were added; the first that fits is taken.
class fault_plan {
 public:
  fault_plan() = default;
  fault_plan(const fault_plan&) = delete;
  fault_plan& operator=(const fault_plan&) = delete;

  void add(const fault_match& m, fault f) {
    std::lock_guard lock(mutex_);
    rules_.emplace_back(m, std::move(f));
  }
  void randomize(const random_faults& r);
  /// No faults from now on.
  void clear();
  /// Faults decided so far, those with nothing but fields included.
  std::uint64_t injected() const {
    std::lock_guard lock(mutex_);
    return injected_;
  }

  /// What happens to `r`; counts it.
  fault decide(const request& r);

 private:
  class rule {
   public:
    rule(const fault_match& m, fault f);

    /// Counts the requests that fit, whether or not their number is one of those that fail.
    bool fits(const request& r);
    fault action;

   private:
    std::string method_;
    std::string bucket_;
    std::string key_;
    std::string prefix_;
    bool exact_;
    std::uint64_t first_;
    std::uint64_t last_;
    std::uint64_t seen_ = 0;
  };
  class history {
   public:
    std::uint64_t asked = 0;
    std::uint64_t failed = 0;
  };

  /// What a request asks for, without date and signature.
  static std::string question(const request& r);
  static std::uint64_t hash(std::string_view text) noexcept;

  fault draw(const request& r);

  mutable std::mutex mutex_;
  std::vector<rule> rules_;
  random_faults random_;
  bool on_ = false;
  std::map<std::string, history> asked_;
  std::uint64_t injected_ = 0;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/impl/fault_plan.ipp>
#endif
