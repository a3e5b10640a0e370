// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/data/item.hpp>
#include <millrace/data/origin.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The treatment of an item whose function throws.
enum class on_failure {
  rethrow,  ///< the exception ends the stream
  skip,     ///< the item is left out, counted and reported
  stop,     ///< the stream ends before the item, without an exception; reported. After epochs(), for one rank alone
};

/// The treatment of bad items, and the number of them that is tolerated: `map_concurrent(decode, {.failures = {.then =
/// on_failure::skip, .limit = 100}})`.
///
/// The policy is applied in the order of delivery, so which items are yielded, and whether a limit is exceeded, depends
/// neither on threads nor on the network (with order::arrival, only on the number of bad items). Exceeding a limit
/// throws too_many_failures. Only errors about data are tolerated: out of memory and configuration_error always end the
/// stream. Failures are reported in the log: the first at once, later ones at most once a second, with their number.
/// run_options::skipped is called for every item that is left out.
///
/// With a policy and without, errors about data name their item: an exception of a stage's function for an item with a
/// member `from` (an origin), and perhaps `key`, gets these as its place if it has none. For other items,
/// place_of(item), a function beside the type, returns an object that has these members. An exception that does not
/// derive from millrace::error is nested in an item_error with that place, lack of memory in a std::bad_alloc; if the
/// item has no place, they are not changed.
struct failure_policy {
  on_failure then = on_failure::rethrow;
  /// The most items that may fail.
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  /// The largest share of the items that may fail, judged at the end of the stream and, on the way, at each failure
  /// from the 1000th item on.
  double rate = 1;
  bool report = true;  ///< in the runtime's log
};

/// An item that a failure_policy left out: see run_options::skipped.
class skipped_item {
 public:
  std::string stage;   ///< the name of the stage, as in the log: "epochs", "map_concurrent"
  std::string shard;   ///< the object that it came from, without secrets; empty: not known, as the next two
  std::optional<std::uint64_t> offset;  ///< of its first byte, in the object or the decompressed stream
  std::string key;     ///< of the sample
  std::string reason;  ///< the text of the exception
};

/// A limit of a failure_policy is exceeded: what() has the numbers and the first messages.
class too_many_failures : public error {
 public:
  too_many_failures(std::string reason, std::uint64_t failed, std::uint64_t items, std::vector<std::string> messages)
      : error(std::move(reason)), failed_(failed), items_(items), messages_(std::move(messages)) {}

  std::uint64_t failed() const noexcept { return failed_; }
  /// Items that were judged, the failed ones included.
  std::uint64_t items() const noexcept { return items_; }
  /// The texts of the first failures, ten at most.
  const std::vector<std::string>& messages() const noexcept { return messages_; }

 private:
  std::uint64_t failed_;
  std::uint64_t items_;
  std::vector<std::string> messages_;
};

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// The place of the item that a user's function works on, kept for the error that it may throw: by then the item may be
/// gone. Kept from item to item, so that an item of the shard before costs a comparison and the copy of its key.
class item_place {
 public:
  template <class T>
  void note(const T& item) {
    if constexpr (finds_origin<T>) {
      note(place_of(item));
    } else if constexpr (shows_origin<T>) {
      if (from_.from != item.from.from) from_.from = item.from.from;
      from_.offset = item.from.offset;
      if constexpr (shows_key<T>) key_ = std::string_view(item.key);
    }
  }

  void note(const origin& from, std::string_view key) {
    from_ = from;
    key_ = key;
  }

  /// Empty while nothing is known.
  where at() const { return from_.at(key_); }

  /// In a handler: the exception to throw instead of the one that is being handled. That is the exception itself; an
  /// `error` about data without a place gets this one; any other exception is nested in an item_error with this place,
  /// or, for lack of memory, in a std::bad_alloc. If the place is not known, or there is no memory for it, the
  /// exception is not changed.
  std::exception_ptr completed() const noexcept;

 private:
  origin from_;
  std::string key_;
};

/// Applies one stage's failure_policy. Used on the loop, in the order of delivery.
class failures {
 public:
  failures(failure_policy policy, const coroutine_context& here, const char* name) noexcept
      : policy_(policy), here_(here), name_(name) {}

  bool forgiving() const noexcept { return policy_.then != on_failure::rethrow; }
  void succeeded() noexcept { ++items_; }

  /// Decides about a failure: true to leave the item out, false to end the stream; throws if it is not tolerated.
  /// `place` is that of the item.
  bool forgive(std::exception_ptr failure, const item_place& place);

  /// At the end of the stream.
  void finish();

 private:
  /// The message of a failure; rethrows those that no policy tolerates.
  static std::string describe(const std::exception_ptr& failure, const item_place& place);
  /// The item that is left out, or that ends the stream.
  skipped_item about(const std::exception_ptr& failure, const item_place& place) const;
  void check_rate();
  [[noreturn]] void give_up(const std::string& why);
  void report(const std::string& message, const skipped_item& item);
  void print(const std::string& text, const skipped_item& item) const;

  const failure_policy policy_;
  const coroutine_context here_;
  const char* const name_;
  std::uint64_t items_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t unreported_ = 0;
  std::int64_t reported_ns_ = 0;
  std::vector<std::string> messages_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/flow/failure_policy.ipp>
#endif
