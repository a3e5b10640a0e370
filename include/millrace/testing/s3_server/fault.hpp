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

#include <millrace/base/clock.hpp>
#include <millrace/testing/s3_server/message.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

/// A fault of one answer. Made by its functions:
///
///     faults.add({.method = "GET", .key = "train/000.tar", .nth = 2}, fault::reset_in_body(1 << 20));
///
/// Positions count bytes of the body; one after its end means the end.
class fault {
 public:
  enum class kind : std::uint8_t {
    none,
    delay_head,
    delay_body,
    stall_head,
    stall_body,
    drip,
    reset_before_head,
    reset_in_head,
    reset_in_body,
    close_before_head,
    close_in_head,
    close_in_body,
    no_content_length,
    cut_without_length,
    wrong_content_length,
    two_content_lengths,
    longer_body,
    chunked,
    chunked_garbage,
    chunked_cut,
    garbage_status,
    early_hints,
    huge_head,
    nul_in_head,
    no_etag,
    wrong_etag,
    no_content_range,
    wrong_content_range,
    ignore_range,
    replace_object,
    flipped_bit,
    refuse,
    error_in_success,
    page,
  };

  fault() = default;

  // ---- time
  static fault delay_head(duration pause) { return fault(kind::delay_head).lasting(pause); }
  static fault delay_body(std::uint64_t at, duration pause) { return fault(kind::delay_body, at).lasting(pause); }
  /// Nothing is sent until the client gives up.
  static fault stall_head() { return fault(kind::stall_head); }
  static fault stall_body(std::uint64_t at) { return fault(kind::stall_body, at); }
  /// The body comes in pieces of `piece` bytes, one every `pause`.
  static fault drip(std::uint64_t piece, duration pause) { return fault(kind::drip, piece).lasting(pause); }

  // ---- the connection ends: by RST, or by FIN (under TLS without a close_notify)
  static fault reset_before_head() { return fault(kind::reset_before_head); }
  static fault reset_in_head(std::uint64_t at) { return fault(kind::reset_in_head, at); }
  static fault reset_in_body(std::uint64_t at) { return fault(kind::reset_in_body, at); }
  static fault close_before_head() { return fault(kind::close_before_head); }
  static fault close_in_head(std::uint64_t at) { return fault(kind::close_in_head, at); }
  static fault close_in_body(std::uint64_t at) { return fault(kind::close_in_body, at); }

  // ---- framing
  /// No Content-Length; the connection is closed after the whole body: legal, although the client cannot know its end.
  static fault no_content_length() { return fault(kind::no_content_length); }
  /// Like no_content_length(), with only `at` bytes of the body.
  static fault cut_without_length(std::uint64_t at) { return fault(kind::cut_without_length, at); }
  /// Content-Length is `declared`; the whole body is sent and the connection closed.
  static fault wrong_content_length(std::uint64_t declared) { return fault(kind::wrong_content_length, declared); }
  /// The right one and one that is `difference` bytes larger.
  static fault two_content_lengths(std::uint64_t difference = 1) {
    return fault(kind::two_content_lengths, difference);
  }
  /// `extra` bytes after the declared end.
  static fault longer_body(std::uint64_t extra) { return fault(kind::longer_body, extra); }
  static fault chunked() { return fault(kind::chunked); }
  /// Chunked, with a chunk size at `at` that is no number.
  static fault chunked_garbage(std::uint64_t at) { return fault(kind::chunked_garbage, at); }
  /// Chunked, closed after `at` bytes of content.
  static fault chunked_cut(std::uint64_t at) { return fault(kind::chunked_cut, at); }

  // ---- the head
  static fault garbage_status() { return fault(kind::garbage_status); }
  /// A 103 answer before the real one: legal.
  static fault early_hints() { return fault(kind::early_hints); }
  /// `size` bytes of additional fields.
  static fault huge_head(std::uint64_t size) { return fault(kind::huge_head, size); }
  static fault nul_in_head() { return fault(kind::nul_in_head); }
  static fault no_etag() { return fault(kind::no_etag); }
  static fault wrong_etag() { return fault(kind::wrong_etag); }
  static fault no_content_range() { return fault(kind::no_content_range); }
  /// Content-Range begins `shift` bytes further on.
  static fault wrong_content_range(std::uint64_t shift = 1) { return fault(kind::wrong_content_range, shift); }

  // ---- the object
  /// 200 with the whole object instead of 206.
  static fault ignore_range() { return fault(kind::ignore_range); }
  /// The object gets a new ETag before the request is served, for good: If-Match with the old one fails.
  static fault replace_object() { return fault(kind::replace_object); }
  /// One bit of the body's byte `at` is inverted.
  static fault flipped_bit(std::uint64_t at) { return fault(kind::flipped_bit, at); }

  // ---- other answers
  /// An S3 error document; the request is not served.
  static fault refuse(int status, std::string code);
  /// An S3 error document with status 200, as S3 sends for operations that had begun to answer.
  static fault error_in_success(std::string code);
  /// A web page with `status` instead of the answer: a proxy, a captive portal.
  static fault page(int status = 200);

  /// Adds a field to the fault's answer ("Retry-After", "x-amz-retry-after", "Location"). A fault() alone with fields
  /// changes nothing else.
  fault with_field(std::string name, std::string value) && {
    fields.emplace_back(std::move(name), std::move(value));
    return std::move(*this);
  }

  kind what = kind::none;
  std::uint64_t at = 0;
  duration pause{0};
  int status = 0;
  std::string text;
  std::vector<std::pair<std::string, std::string>> fields;
  bool at_is_random = false;  ///< `at` is any number, to be taken modulo the body's size + 1

  explicit fault(kind k, std::uint64_t position = 0) : what(k), at(position) {}

 private:
  fault lasting(duration d) && {
    pause = d;
    return std::move(*this);
  }
};

/// The requests that a scripted fault applies to; a member left out fits every request.
struct fault_match {
  const char* method = nullptr;
  const char* bucket = nullptr;
  const char* key = nullptr;         ///< exact; "" for requests to a bucket: listings
  const char* key_prefix = nullptr;  ///< of object keys
  std::uint64_t nth = 0;             ///< only the n-th request that fits otherwise, from 1; 0: all of them
  std::uint64_t times = 0;           ///< with nth: that many from there; without: only the first ones; 0: see nth
};

/// Random faults, reproducible: whether and how a request fails depends only on the seed, on the target (method, key,
/// range, listing position) and on the number of earlier requests for it.
struct random_faults {
  std::uint64_t seed = 0;
  double probability = 0.1;  ///< of each request
  /// The most faults for the same question, so that retries get through; 0: no limit. Ranges with the same end are one
  /// question here: a client may continue after the bytes received.
  std::uint64_t per_request = 2;
  bool silent = true;   ///< also broken answers that HTTP libraries report as success
  bool slow = false;    ///< also stalls and drips: for clients whose time-outs are short
  bool damage = false;  ///< also flipped bits in objects: only checksums find them
  duration longest_pause = std::chrono::milliseconds(10);  ///< of delays, and between the pieces of a drip
};

/// The faults of a server, and when they occur. Thread-safe: may be changed while the server runs. Scripted faults come
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

  /// Chooses the fault for `r`; counts it.
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
  /// The question of a request, without date and signature. `resumable`: a range by its end alone, which stays the same
  /// if a client continues after the bytes received.
  static std::string question(const request& r, bool resumable);
  static std::uint64_t hash(std::string_view text) noexcept;

  fault draw(const request& r);

  mutable std::mutex mutex_;
  std::vector<rule> rules_;
  random_faults random_;
  bool on_ = false;
  std::map<std::string, std::uint64_t> asked_;
  std::map<std::string, std::uint64_t> failed_;  // by what goes on with a range, too
  std::uint64_t injected_ = 0;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/fault.ipp>
#endif
