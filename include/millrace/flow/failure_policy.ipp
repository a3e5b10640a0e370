// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/runtime_counts.hpp>
#include <millrace/flow/failure_policy.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Lack of memory in a function of the program: still a std::bad_alloc, whose what() says for which item.
class item_bad_alloc final : public std::bad_alloc, public std::nested_exception {
 public:
  explicit item_bad_alloc(std::string text) : text_(new std::string(std::move(text))) {}
  const char* what() const noexcept override { return text_->c_str(); }

 private:
  std::shared_ptr<const std::string> text_;  // a copy of an exception must not throw
};

MILLRACE_INLINE std::exception_ptr item_place::completed() const noexcept {
  const std::exception_ptr as_it_is = std::current_exception();
  try {
    const where place = at();
    if (place.empty()) return as_it_is;
    try {
      throw;
    } catch (const configuration_error&) {
    } catch (const usage_error&) {
    } catch (error& e) {
      e.add_place(place);
    } catch (const std::bad_alloc& e) {
      return std::make_exception_ptr(item_bad_alloc(error(e.what(), place).what()));
    } catch (...) {  // another exception, which is nested in the one of its item
      return std::make_exception_ptr(item_error(text_of(as_it_is), place));
    }
  } catch (...) {  // no memory for the place
  }
  return as_it_is;
}

MILLRACE_INLINE bool failures::forgive(std::exception_ptr failure, const item_place& place) {
  if (policy_.then == on_failure::rethrow) std::rethrow_exception(std::move(failure));
  std::string message = describe(failure, place);
  ++items_;
  ++failed_;
  stage_record::add(here_.stage(), &stage_record::failed, 1);
  if (messages_.size() < 10) messages_.push_back(message);
  const skipped_item item = about(failure, place);
  if (policy_.report) report(message, item);
  if (failed_ > policy_.limit) give_up("more than the limit of " + std::to_string(policy_.limit));
  if (items_ >= 1000) check_rate();
  if (policy_.then != on_failure::skip) return false;
  if (runtime_counts* const counts = here_.runtime().counts()) counts->skipped.add(message);
  if (here_.run().tells_skipped()) here_.run().skipped(item);
  return true;
}

/// The item's own place comes before that of the error, which may be inside it.
MILLRACE_INLINE skipped_item failures::about(const std::exception_ptr& failure, const item_place& place) const {
  where at = place.at();
  skipped_item item;
  item.reason = reason_of(failure);
  try {
    std::rethrow_exception(failure);
  } catch (const error& e) {
    if (at.object.empty()) at = where{e.object(), e.offset(), at.key};
    if (at.key.empty()) at.key = e.key();
  } catch (...) {  // it names no place
  }
  item.stage = name_;
  item.shard = std::move(at.object);
  item.offset = at.offset;
  item.key = std::move(at.key);
  return item;
}

MILLRACE_INLINE void failures::finish() {
  if (failed_ == 0) return;
  check_rate();
  if (policy_.report && unreported_ > 0) print(std::to_string(unreported_) + " more were left out", skipped_item());
}

MILLRACE_INLINE std::string failures::describe(const std::exception_ptr& failure, const item_place& place) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const configuration_error&) {
    throw;
  } catch (const usage_error&) {
    throw;
  } catch (const error& e) {
    return e.what();  // names the item already
  } catch (...) {  // names no item
    return error(text_of(failure), place.at()).what();
  }
}

MILLRACE_INLINE void failures::check_rate() {
  if (static_cast<double>(failed_) <= policy_.rate * static_cast<double>(items_)) return;
  char share[32];
  std::snprintf(share, sizeof share, "%g", policy_.rate);
  give_up(std::string("more than the share of ") + share);
}

MILLRACE_INLINE void failures::give_up(const std::string& why) {
  std::string text =
      std::string(name_) + ": " + std::to_string(failed_) + " of " + std::to_string(items_) + " items failed, " + why;
  for (std::size_t i = 0; i < messages_.size(); ++i) text += (i == 0 ? ": " : "; ") + messages_[i];
  if (failed_ > messages_.size()) text += "; and " + std::to_string(failed_ - messages_.size()) + " more";
  throw too_many_failures(std::move(text), failed_, items_, std::move(messages_));
}

MILLRACE_INLINE void failures::report(const std::string& message, const skipped_item& item) {
  const std::int64_t now = here_.get_executor().now_ns();
  if (failed_ > 1 && now - reported_ns_ < 1000000000) {
    ++unreported_;
    return;
  }
  reported_ns_ = now;
  std::string text = policy_.then == on_failure::skip ? "left out: " : "ended by: ";
  text += message;
  if (unreported_ > 0) text += " (and " + std::to_string(std::exchange(unreported_, 0)) + " more)";
  print(text, item);
}

MILLRACE_INLINE void failures::print(const std::string& text, const skipped_item& item) const {
  const std::string offset = item.offset ? std::to_string(*item.offset) : std::string();
  log_line(here_.get_executor(), std::string("millrace: ") + name_ + ": " + text, log_level::warning,
           {{"stage", name_},
            {"shard", item.shard},
            {"offset", offset},
            {"key", item.key},
            {"reason", item.reason}});
}

}  // namespace millrace::detail
