// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
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
  void randomize(const random_faults& r) {
    std::lock_guard lock(mutex_);
    random_ = r;
    on_ = true;
    asked_.clear();
  }
  /// No faults from now on.
  void clear() {
    std::lock_guard lock(mutex_);
    rules_.clear();
    on_ = false;
    asked_.clear();
  }
  /// Faults decided so far, those with nothing but fields included.
  std::uint64_t injected() const {
    std::lock_guard lock(mutex_);
    return injected_;
  }

  /// What happens to `r`; counts it.
  fault decide(const request& r) {
    std::lock_guard lock(mutex_);
    const rule* chosen = nullptr;
    for (rule& candidate : rules_) {
      const bool fits = candidate.fits(r);  // asked of all: each counts
      if (fits && chosen == nullptr) chosen = &candidate;
    }
    if (chosen != nullptr) {
      ++injected_;
      return chosen->action;
    }
    fault f = on_ ? draw(r) : fault();
    if (f.what != fault::kind::none) ++injected_;
    return f;
  }

 private:
  class rule {
   public:
    rule(const fault_match& m, fault f)
        : action(std::move(f)),
          method_(m.method == nullptr ? "" : m.method),
          bucket_(m.bucket == nullptr ? "" : m.bucket),
          key_(m.key == nullptr ? "" : m.key),
          prefix_(m.key_prefix == nullptr ? "" : m.key_prefix),
          exact_(m.key != nullptr),
          first_(m.nth == 0 ? 1 : m.nth),
          last_(m.times != 0 ? first_ + m.times - 1
                : m.nth != 0 ? m.nth
                             : UINT64_MAX) {}

    /// Counts the requests that fit, whether or not their number is one of those that fail.
    bool fits(const request& r) {
      if (!method_.empty() && r.method != method_) return false;
      if (!bucket_.empty() && r.bucket != bucket_) return false;
      if (exact_ && r.key != key_) return false;
      if (!prefix_.empty() && r.key.compare(0, prefix_.size(), prefix_) != 0) return false;
      ++seen_;
      return seen_ >= first_ && seen_ <= last_;
    }
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
  static std::string question(const request& r) {
    std::string text = r.method + '\n' + r.bucket + '\n' + r.key;
    for (const auto& [name, value] : r.query) {
      if (name.compare(0, 6, "X-Amz-") != 0) text += '\n' + name + '=' + value;
    }
    if (const std::string* range = r.field("range")) text += '\n' + *range;
    return text;
  }
  static std::uint64_t hash(std::string_view text) noexcept {  // FNV-1a: the same on every platform
    std::uint64_t h = 0xcbf29ce484222325u;
    for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return h;
  }

  fault draw(const request& r) {
    using k = fault::kind;
    // Every client notices these: errors, broken connections, broken framing.
    static constexpr k loud[] = {k::delay_head,      k::delay_body,     k::reset_before_head,
                                 k::reset_in_head,   k::reset_in_body,  k::close_before_head,
                                 k::close_in_body,   k::garbage_status, k::chunked_cut,
                                 k::chunked_garbage, k::refuse,         k::refuse};
    // These look like success to libcurl (and to most libraries): only checks of one's own find them.
    static constexpr k silent[] = {k::close_in_head,
                                   k::cut_without_length,
                                   k::two_content_lengths,
                                   k::longer_body,
                                   k::wrong_content_range,
                                   k::no_content_range,
                                   k::ignore_range,
                                   k::no_etag,
                                   k::page};
    static constexpr k slow[] = {k::stall_head, k::stall_body, k::drip};
    static constexpr k damage[] = {k::flipped_bit, k::flipped_bit, k::flipped_bit};
    static constexpr std::size_t louds = sizeof loud / sizeof *loud;
    static constexpr std::size_t silents = sizeof silent / sizeof *silent;

    const std::string asked = question(r);
    history& h = asked_[asked];
    ++h.asked;
    rng random(random_.seed, hash(asked), h.asked);
    if (random_.per_request != 0 && h.failed >= random_.per_request) return fault();
    if (random.uniform() >= random_.probability) return fault();
    ++h.failed;
    std::vector<k> kinds(loud, loud + louds);
    if (random_.silent) kinds.insert(kinds.end(), silent, silent + silents);
    if (random_.slow) kinds.insert(kinds.end(), std::begin(slow), std::end(slow));
    if (random_.damage && !r.key.empty()) kinds.insert(kinds.end(), std::begin(damage), std::end(damage));
    const k drawn = kinds[random.below(kinds.size())];
    fault f(drawn, random.next());
    f.at_is_random = true;
    const auto most = static_cast<std::uint64_t>(random_.longest_pause / std::chrono::milliseconds(1));
    f.pause = std::chrono::milliseconds(most == 0 ? 0 : 1 + random.below(most));
    f.status = f.what == k::page ? 200 : 0;
    if (f.what == k::refuse) {
      static constexpr std::pair<int, const char*> errors[] = {
          {500, "InternalError"}, {503, "SlowDown"},       {503, "ServiceUnavailable"},
          {502, "BadGateway"},    {504, "GatewayTimeout"}, {429, "TooManyRequestsException"},
          {400, "RequestTimeout"}};
      const auto& [status, code] = errors[random.below(sizeof errors / sizeof *errors)];
      f.status = status;
      f.text = code;
    }
    return f;
  }

  mutable std::mutex mutex_;
  std::vector<rule> rules_;
  random_faults random_;
  bool on_ = false;
  std::map<std::string, history> asked_;
  std::uint64_t injected_ = 0;
};

}  // namespace millrace::s3_server
