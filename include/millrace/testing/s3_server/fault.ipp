// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/testing/s3_server/fault.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

MILLRACE_INLINE fault fault::refuse(int status, std::string code) {
  fault f(kind::refuse);
  f.status = status;
  f.text = std::move(code);
  return f;
}

MILLRACE_INLINE fault fault::error_in_success(std::string code) {
  fault f(kind::error_in_success);
  f.text = std::move(code);
  return f;
}

MILLRACE_INLINE fault fault::page(int status) {
  fault f(kind::page);
  f.status = status;
  return f;
}

MILLRACE_INLINE void fault_plan::randomize(const random_faults& r) {
  std::lock_guard lock(mutex_);
  random_ = r;
  on_ = true;
  asked_.clear();
  failed_.clear();
}

MILLRACE_INLINE void fault_plan::clear() {
  std::lock_guard lock(mutex_);
  rules_.clear();
  on_ = false;
  asked_.clear();
  failed_.clear();
}

MILLRACE_INLINE fault fault_plan::decide(const request& r) {
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

MILLRACE_INLINE fault_plan::rule::rule(const fault_match& m, fault f)
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

MILLRACE_INLINE bool fault_plan::rule::fits(const request& r) {
  if (!method_.empty() && r.method != method_) return false;
  if (!bucket_.empty() && r.bucket != bucket_) return false;
  if (exact_ && r.key != key_) return false;
  if (!prefix_.empty() && r.key.compare(0, prefix_.size(), prefix_) != 0) return false;
  ++seen_;
  return seen_ >= first_ && seen_ <= last_;
}

MILLRACE_INLINE std::string fault_plan::question(const request& r, bool resumable) {
  std::string text = r.method + '\n' + r.bucket + '\n' + r.key;
  for (const auto& [name, value] : r.query) {
    if (name.compare(0, 6, "X-Amz-") != 0) text += '\n' + name + '=' + value;
  }
  if (const std::string* range = r.field("range")) {
    text += '\n';
    text.append(*range, resumable ? std::min(range->rfind('-'), range->size()) : 0);
  }
  return text;
}

MILLRACE_INLINE std::uint64_t fault_plan::hash(std::string_view text) noexcept {  // FNV-1a: the same on every platform
  std::uint64_t h = 0xcbf29ce484222325u;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

MILLRACE_INLINE fault fault_plan::draw(const request& r) {
  using k = fault::kind;
  // Every client notices these: errors, broken connections, broken framing.
  static constexpr k loud[] = {k::delay_head,      k::delay_body,     k::reset_before_head,
                               k::reset_in_head,   k::reset_in_body,  k::close_before_head,
                               k::close_in_body,   k::garbage_status, k::chunked_cut,
                               k::chunked_garbage, k::refuse,         k::refuse};
  // These look like success to libcurl (and to most libraries): only the client's own checks find them.
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

  const std::string asked = question(r, false);
  rng random(random_.seed, hash(asked), ++asked_[asked]);
  std::uint64_t& failed = failed_[question(r, true)];
  if (random_.per_request != 0 && failed >= random_.per_request) return fault();
  if (random.uniform() >= random_.probability) return fault();
  ++failed;
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

}  // namespace millrace::s3_server
