// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/ops/list_objects.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_COROUTINE_BODY task<list_page> list_once(const session& s, const operation& op) {
  executor& ex = co_await this_executor();
  const std::int64_t asked = ex.now_ns();
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  const std::string text = co_await http::read_all(x, 32 * MiB);
  if (millrace::detail::tracer* const trace = ex.runtime().trace()) {
    trace->add({.begin = asked,
                .end = ex.now_ns(),
                .name = "page",
                .lane = millrace::detail::trace_lane::list,
                .bytes = static_cast<std::int64_t>(text.size())});
  }
  co_return list_page::parse(text, op.bucket);
}

/// The letters and digits that a text around `at` is made of, in the order of bytes.
struct number_digits {
  number_digits(std::string_view text, std::size_t at) noexcept {
    bool lower = false, upper = false, beyond_f = false;
    const auto look = [&](char c) {
      lower = lower || (c >= 'a' && c <= 'z');
      upper = upper || (c >= 'A' && c <= 'Z');
      beyond_f = beyond_f || (c > 'F' && c <= 'Z') || c > 'f';
    };
    for (std::size_t i = at; i < text.size() && text::is_alphanumeric(text[i]); ++i) look(text[i]);
    for (std::size_t i = at; i > 0 && text::is_alphanumeric(text[i - 1]); --i) look(text[i - 1]);
    for (char c = '0'; c <= '9'; ++c) each[count++] = c;
    for (char c = 'A'; upper && c <= (beyond_f ? 'Z' : 'F'); ++c) each[count++] = c;
    for (char c = 'a'; lower && c <= (beyond_f ? 'z' : 'f'); ++c) each[count++] = c;
  }
  char each[62];
  std::size_t count = 0;
  /// How many of them are less than `c`.
  std::size_t below(char c) const noexcept {
    std::size_t n = 0;
    while (n < count && static_cast<unsigned char>(each[n]) < static_cast<unsigned char>(c)) ++n;
    return n;
  }
};

/// `text` from `at` on as a number between 0 and 1, of the digits that `like` has there; eight of them count.
MILLRACE_INLINE double fraction_of(std::string_view text, std::string_view like, std::size_t at) noexcept {
  double value = 0, unit = 1;
  for (std::size_t i = at; i < text.size() && i < at + 8; ++i) {
    const number_digits digits(like, i < like.size() ? i : like.size());
    unit /= static_cast<double>(digits.count);
    value += unit * static_cast<double>(digits.below(text[i]));
    if (!text::is_alphanumeric(text[i])) break;
  }
  return value;
}

inline std::size_t shared_front(std::string_view a, std::string_view b) noexcept {
  std::size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

MILLRACE_INLINE std::optional<std::string> split_point(std::string_view prefix, std::string_view first,
                                                       std::string_view last, const std::optional<std::string>& until,
                                                       bool wide) {
  std::size_t at = shared_front(last, until ? std::string_view(*until) : first);
  if (at >= last.size() || !text::is_alphanumeric(last[at])) return std::nullopt;
  if (!until) {
    const auto same = wide || !text::is_digit(last[at]) ? &text::is_alphanumeric : &text::is_digit;
    while (at > prefix.size() && same(last[at - 1])) --at;
    return std::string(last.substr(0, at)) + (same == &text::is_digit ? ':' : '{');  // the bytes after '9' and 'z'
  }
  const double begin = fraction_of(last, last, at);
  const double end = fraction_of(*until, last, at);
  if (shared_front(first, last) >= at && end - begin < begin - fraction_of(first, last, at)) return std::nullopt;
  double rest = (begin + end) / 2;
  std::string middle(last.substr(0, at));
  for (std::size_t i = at; i < at + 8; ++i) {
    const number_digits digits(last, i < last.size() ? i : last.size());
    rest *= static_cast<double>(digits.count);
    const std::size_t digit = rest < 1 ? 0 : static_cast<std::size_t>(rest);
    if (digit >= digits.count) return std::nullopt;
    rest -= static_cast<double>(digit);
    middle += digits.each[digit];
    if (middle > last && middle < *until) return middle;
  }
  return std::nullopt;
}

/// ": no permission"; empty for exceptions that are not the library's.
MILLRACE_INLINE std::string reason_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const millrace::error& e) {
    return ": " + e.reason();
  } catch (...) {
    return {};
  }
}

/// A range of the keys under a prefix, listed page after page: those after `after`, up to `until`.
class key_range {
 public:
  key_range(std::string begin, std::optional<std::string> end, bool w)
      : after(std::move(begin)), until(std::move(end)), wide(w), last(after) {}

  /// Throws if the pages of a listing go in circles or have no keys.
  void check(const list_page& page, std::uint64_t most_empty, const operation& op, const url& prefix);
  /// True if the keys of a page ascend from those before.
  bool ascends(const list_page& page) const noexcept;

  const std::string after;           // start-after; empty: from the prefix's beginning
  std::optional<std::string> until;  // the `after` of the next range; nullopt: there is none
  const bool wide;                   // see split_point()
  std::string token;
  std::string last;                    // key, or `after`
  std::string page_first;              // key of the latest page, if that was one of many
  std::optional<std::string> opens;    // the first key after `after`
  std::vector<listed_object> ready;    // not yet delivered
  std::vector<listed_object> beyond;   // of the last page, after `until`
  bool more_beyond = false;            // and its token leads to more
  bool done = false;                   // there are no more, but for those beyond
  bool odd = false;                    // its next keys do not ascend: they cannot be used
  std::exception_ptr failure;          // after `ready`
  std::unique_ptr<key_range> next;
  spawned<void> worker;  // declared last: it refers to the rest

 private:
  std::string seen_;  // an earlier token, moved on at every power of two: no cycle is missed (Brent)
  std::uint64_t pages_ = 0;
  std::uint64_t mark_ = 1;
  std::uint64_t empty_ = 0;  // pages since the last key; a few are right if many versions have been deleted
};

MILLRACE_INLINE void key_range::check(const list_page& page, std::uint64_t most_empty, const operation& op,
                                      const url& prefix) {
  if (page.truncated && (page.next_continuation_token == token || page.next_continuation_token == seen_)) {
    throw error(200, std::string(), "the listing repeats its continuation token", std::string(), op.at());
  }
  if (++pages_ == mark_) {
    seen_ = page.next_continuation_token;
    mark_ *= 2;
  }
  empty_ = page.objects.empty() ? empty_ + 1 : 0;
  if (page.truncated && empty_ > most_empty) {
    throw error(200, std::string(),
                "the listing does not end: more than " + std::to_string(most_empty) + " pages in a row have no key",
                std::string(), where{prefix.to_string(), std::nullopt, std::string()});
  }
}

MILLRACE_INLINE bool key_range::ascends(const list_page& page) const noexcept {
  std::string_view before = last;
  for (const listed_object& o : page.objects) {
    if (o.key <= before) return false;
    before = o.key;
  }
  return true;
}

/// A listing in ranges of keys, in order. See list_objects().
class split_listing {
 public:
  MILLRACE_COROUTINE split_listing(std::shared_ptr<const session> s, url prefix, list_options options,
                                   std::uint64_t most_empty, const coroutine_context& here)
      : session_(std::move(s)),
        prefix_(std::move(prefix)),
        most_workers_(options.ranges),
        most_empty_(most_empty),
        here_(here) {
    start(*first_);
  }
  split_listing(const split_listing&) = delete;
  split_listing& operator=(const split_listing&) = delete;

  /// The next objects; none at the end.
  MILLRACE_COROUTINE task<std::vector<listed_object>> next();
  /// True if keys that have been given come again.
  bool lists_again() const noexcept { return lists_again_; }
  /// Logs a line about the listing, once.
  void log(const std::string& what) const;

 private:
  static constexpr std::size_t most_ahead = 64000;  // keys
  /// Keys of a page that may be worth more requests.
  static constexpr std::size_t many = 100;

  MILLRACE_COROUTINE void start(key_range& r) {
    r.worker = spawned<void>(here_, work(*this, r));
    ++workers_;
  }
  MILLRACE_COROUTINE static task<void> work(split_listing& self, key_range& r);
  MILLRACE_COROUTINE task<list_page> page_of(key_range& r);
  /// Splits the rest of a range, if that may be worth it.
  MILLRACE_COROUTINE void split(key_range& r);
  void take(key_range& r, list_page page);
  /// From `r` on, whose keys up to here are right, page after page.
  void go_on_alone(key_range& r, const std::string& why);
  /// True if `n` begins with the keys that `r`, before it, has seen after its end, as far as both are known.
  static bool joins(const key_range& r, const key_range& n) noexcept;
  /// Lists all after the first range again, page after page: start-after may leave keys out in ranges whose keys do not
  /// ascend. `r`, the range that is given now, goes on by itself if it is the first.
  MILLRACE_COROUTINE void list_again(key_range& r, const std::string& why);
  /// `r` continues with the keys after its end.
  MILLRACE_COROUTINE void take_up(key_range& r);

  bool has_room(const key_range& r) const noexcept {
    return (waited_for_ && &r == first_.get() && r.ready.empty()) || (reads_ahead_ && ahead_ < most_ahead);
  }

  const std::shared_ptr<const session> session_;
  const url prefix_;
  const std::size_t most_workers_;
  const std::uint64_t most_empty_;
  const coroutine_context here_;
  bool waited_for_ = false;   // by the consumer
  bool begun_ = false;
  bool reads_ahead_ = false;  // from the second page on
  bool alone_ = false;        // nothing is split any more
  std::size_t ahead_ = 0;     // keys that are ready
  std::size_t workers_ = 0;
  bool lists_again_ = false;
  notifier changed_;
  /// The first range, once another one is given: its keys after its end, and its token.
  std::unique_ptr<key_range> begin_;
  std::unique_ptr<key_range> first_ = std::make_unique<key_range>(std::string(), std::nullopt, false);
};

MILLRACE_COROUTINE_BODY task<list_page> split_listing::page_of(key_range& r) {
  operation op("GET", prefix_.bucket(), std::string());
  op.prefix = prefix_.key();
  text::append_query_parameter(op.query, "list-type", "2");
  text::append_query_parameter(op.query, "encoding-type", "url");
  if (!prefix_.key().empty()) text::append_query_parameter(op.query, "prefix", prefix_.key());
  if (!r.token.empty()) {
    text::append_query_parameter(op.query, "continuation-token", r.token);
  } else if (!r.after.empty()) {
    text::append_query_parameter(op.query, "start-after", r.after);
  }
  auto attempt = [&] { return list_once(*session_, op); };
  list_page page = co_await with_retries<list_page>(*session_, op, attempt);
  r.check(page, most_empty_, op, prefix_);
  co_return std::move(page);
}

MILLRACE_COROUTINE_BODY task<void> split_listing::work(split_listing& self, key_range& r) {
  try {
    while (!r.done) {
      while (!self.has_room(r)) co_await self.changed_.wait();
      self.split(r);
      list_page page = co_await self.page_of(r);
      self.take(r, std::move(page));
      self.changed_.notify();
    }
  } catch (...) {
    r.failure = std::current_exception();
    r.done = true;
  }
  --self.workers_;
  self.changed_.notify();
}

MILLRACE_COROUTINE_BODY void split_listing::split(key_range& r) {
  if (alone_ || !reads_ahead_ || r.page_first.empty() || workers_ >= most_workers_ || ahead_ >= most_ahead) return;
  std::optional<std::string> at = split_point(prefix_.key(), r.page_first, r.last, r.until, r.wide);
  if (!at) return;
  auto made = std::make_unique<key_range>(*at, r.until, r.wide || !r.until);
  r.until = std::move(at);
  made->next = std::move(r.next);
  r.next = std::move(made);
  start(*r.next);
}

MILLRACE_INLINE void split_listing::take(key_range& r, list_page page) {
  r.token = std::move(page.next_continuation_token);
  r.done = !page.truncated;
  r.page_first.clear();
  if (!page.common_prefixes.empty() && !is_directory_bucket(prefix_.bucket())) {  // there they are of open uploads
    log("leaves out all keys that begin with \"" + page.common_prefixes.front() +
        "\", and maybe others: the store has rolled them up, and was not asked to");
  }
  if (page.objects.empty()) return;
  if (!r.ascends(page)) {
    if (!r.after.empty()) {
      r.odd = r.done = true;
      return;
    }
    // The first range is listed as it comes. Its further keys may lie anywhere.
    if (r.next != nullptr || r.until) go_on_alone(r, "keys do not ascend");
    alone_ = true;
  }
  if (!r.opens) r.opens = page.objects.front().key;
  if (r.until) {
    std::size_t n = page.objects.size();
    while (n > 0 && page.objects[n - 1].key > *r.until) --n;
    if (n < page.objects.size()) {
      r.beyond.assign(std::make_move_iterator(page.objects.begin() + static_cast<std::ptrdiff_t>(n)),
                      std::make_move_iterator(page.objects.end()));
      page.objects.resize(n);
      r.more_beyond = page.truncated;
      r.done = true;
      if (n == 0) return;
    }
  }
  r.last = page.objects.back().key;
  if (page.objects.size() >= many) r.page_first = page.objects.front().key;
  ahead_ += page.objects.size();
  if (r.ready.empty()) {
    r.ready = std::move(page.objects);
  } else {
    for (listed_object& o : page.objects) r.ready.push_back(std::move(o));
  }
}

MILLRACE_INLINE void split_listing::go_on_alone(key_range& r, const std::string& why) {
  alone_ = true;
  for (const key_range* each = r.next.get(); each != nullptr; each = each->next.get()) {
    ahead_ -= each->ready.size();
    if (!each->worker.done()) --workers_;
  }
  r.next.reset();
  r.until.reset();
  log("goes on page after page: " + why);
}

MILLRACE_INLINE void split_listing::log(const std::string& what) const {
  const std::string line = "millrace: the listing of " + prefix_.to_string() + ' ' + what;
  if (millrace::detail::first_time(line)) millrace::detail::log_line(here_.get_executor(), line);
}

MILLRACE_INLINE bool split_listing::joins(const key_range& r, const key_range& n) noexcept {
  if (!n.opens) return !n.odd && !n.failure && r.beyond.empty();
  if (r.beyond.empty()) return false;
  const std::size_t ready = n.ready.size();
  const std::size_t known = ready + n.beyond.size();
  for (std::size_t i = 0; i < r.beyond.size(); ++i) {
    if (i == known) return !n.done || n.odd || n.failure;  // else its keys have ended
    if (r.beyond[i].key != (i < ready ? n.ready[i] : n.beyond[i - ready]).key) return false;
  }
  return true;
}

MILLRACE_COROUTINE_BODY void split_listing::take_up(key_range& r) {
  ahead_ += r.beyond.size();
  r.ready = std::exchange(r.beyond, std::vector<listed_object>());
  if (!r.ready.empty()) r.last = r.ready.back().key;
  r.done = !r.more_beyond;
  if (!r.done) start(r);
}

MILLRACE_COROUTINE_BODY void split_listing::list_again(key_range& r, const std::string& why) {
  go_on_alone(r, why);
  if (begin_ != nullptr) {
    lists_again_ = true;
    first_ = std::move(begin_);
    first_->until.reset();
  }
  take_up(*first_);
}

MILLRACE_COROUTINE_BODY task<std::vector<listed_object>> split_listing::next() {
  reads_ahead_ = begun_;
  begun_ = true;
  waited_for_ = true;
  changed_.notify();
  for (;;) {
    key_range& r = *first_;
    if (!r.ready.empty()) {
      std::vector<listed_object> ready = std::exchange(r.ready, std::vector<listed_object>());
      ahead_ -= ready.size();
      waited_for_ = false;
      changed_.notify();
      co_return std::move(ready);
    }
    if (!r.done) {
      co_await changed_.wait();
      continue;
    }
    if (r.failure) std::rethrow_exception(r.failure);
    if (r.odd) {
      list_again(r, "keys do not ascend");
      continue;
    }
    if (!r.until) co_return std::vector<listed_object>();
    key_range& n = *r.next;
    if (!n.opens && !n.done) {
      co_await changed_.wait();
      continue;
    }
    if (joins(r, n)) {
      std::unique_ptr<key_range> rest = std::move(r.next);
      if (begin_ == nullptr) begin_ = std::move(first_);
      first_ = std::move(rest);
      changed_.notify();
      continue;
    }
    if (n.odd) {
      list_again(r, "keys do not ascend");
      continue;
    }
    std::string why = "the store did not list what follows \"" + *r.until + '"';
    if (n.failure && !n.opens) why += reason_of(n.failure);
    go_on_alone(r, why);
    take_up(r);
  }
}

/// The keys of a listing, by hashes of 128 bits: those that come twice are found, also if keys do not ascend.
class given_keys {
 public:
  /// Notes `key`; false if it is there already.
  bool is_new(const std::string& key) {
    hasher128 hasher;
    hasher.add(key);
    const hash128 hash = hasher.value();
    if (ascending_ && key > last_) {
      last_ = key;
    } else if (std::exchange(ascending_, false)) {
      make_table();
    }
    if (!ascending_) {
      if (4 * count_ >= words_.size()) make_table();
      if (!insert(hash)) return false;
    } else {
      words_.push_back(hash.high);
      words_.push_back(hash.low);
    }
    ++count_;
    return true;
  }
  std::size_t size() const noexcept { return count_; }

 private:
  /// Makes a table of the hashes that are there, with room for as many again.
  void make_table() {
    std::size_t entries = 1024;
    while (entries < 4 * count_) entries *= 2;
    const std::vector<std::uint64_t> before = std::exchange(words_, std::vector<std::uint64_t>(2 * entries));
    for (std::size_t i = 0; i < before.size(); i += 2) {
      if ((before[i] | before[i + 1]) != 0) insert({before[i], before[i + 1]});
    }
  }
  bool insert(const hash128& hash) noexcept {
    for (std::size_t i = 2 * hash.low;; i += 2) {
      i &= words_.size() - 1;
      if (words_[i] == hash.high && words_[i + 1] == hash.low) return false;
      if ((words_[i] | words_[i + 1]) != 0) continue;
      words_[i] = hash.high;
      words_[i + 1] = hash.low;
      return true;
    }
  }

  bool ascending_ = true;
  std::string last_;
  std::size_t count_ = 0;
  std::vector<std::uint64_t> words_;  // two of each, one after the other while keys ascend; then a hash table
};

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_COROUTINE_BODY async_generator<shard> list_objects(std::shared_ptr<const session> s, url prefix,
                                                            list_options options, std::uint64_t most_empty) {
  if (options.ranges == 0) {
    throw configuration_error("a listing has at least one range", where{prefix.to_string(), std::nullopt, {}});
  }
  std::size_t found = 0;
  std::size_t expected = 0;  // keys that come again because they are listed again
  bool again = false;
  bool told = false;
  detail::given_keys given;
  const coroutine_context here = co_await this_context();
  const bool directory = detail::is_directory_bucket(prefix.bucket());
  std::vector<shard> unordered;
  url folder = prefix;
  if (directory) {
    folder = url(prefix.bucket(), prefix.key().substr(0, prefix.key().rfind('/') + 1));
    options.ranges = 1;
  }
  detail::split_listing pages(std::move(s), std::move(folder), options, most_empty, here);
  for (;;) {
    std::vector<listed_object> page = co_await pages.next();
    if (page.empty()) break;
    if (pages.lists_again() && !std::exchange(again, true)) expected = given.size();
    std::size_t repeated = 0;
    for (listed_object& o : page) {
      if (!given.is_new(o.key)) {
        if (expected > 0) {
          --expected;
          continue;
        }
        if (!std::exchange(told, true)) pages.log("has keys twice, which are given once: " + o.key);
        if (++repeated < page.size()) continue;
        throw error(200, std::string(), "the listing repeats its keys: it may not end", std::string(),
                    where{prefix.to_string(), std::nullopt, std::string()});
      }
      if (o.size == 0 && o.key.back() == '/') continue;
      if (directory && !o.key.starts_with(prefix.key())) continue;
      if (millrace::detail::is_index_beside(prefix.key(), o.key)) {
        const std::string name = millrace::detail::shown_beside(url(prefix.bucket(), std::move(o.key)).to_string());
        const std::string line = "millrace: the listing leaves out an index: " + name;
        if (millrace::detail::first_time(line)) {
          millrace::detail::log_line(here.get_executor(), line, log_level::info, {{"shard", name}});
        }
        continue;
      }
      ++found;
      shard item(url(prefix.bucket(), std::move(o.key)).to_string(), o.size, std::move(o.etag));
      if (directory) {
        unordered.push_back(std::move(item));
      } else {
        co_yield give(item);
      }
    }
  }
  std::sort(unordered.begin(), unordered.end(), [](const shard& a, const shard& b) { return a.url < b.url; });
  for (shard& item : unordered) co_yield give(item);
  if (found == 0) {
    throw configuration_error("no object has this prefix", where{prefix.to_string(), std::nullopt, std::string()});
  }
}

}  // namespace millrace::s3
