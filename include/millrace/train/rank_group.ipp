// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/root_scope.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/text/text.hpp>
#include <millrace/train/rank_group.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// A few small objects that all ranks see, in a folder of a store: where a group by the store keeps its words. Names
/// have no prefix.
class rank_board {
 public:
  rank_board(std::shared_ptr<const storage> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {
    if (prefix_.empty() || prefix_.back() != '/') {
      throw configuration_error("rank_group: the prefix must be a folder, with '/' at its end",
                                where{shown(), std::nullopt, {}});
    }
    require_writing(*store_, prefix_ + "roll/");
  }

  std::string shown() const { return shown_url(prefix_); }
  /// Also in place of one.
  MILLRACE_COROUTINE task<void> put(std::string name, std::string text) const {
    const std::string tag = co_await put_text(*store_, prefix_ + name, std::move(text));
  }
  /// Empty if there is none.
  MILLRACE_COROUTINE task<std::string> get(std::string name) const {
    std::optional<std::string> text = co_await text_if_there(store_, shard(prefix_ + name), 256 * KiB);
    co_return text ? std::move(*text) : std::string();
  }
  /// The names that begin with `folder`. An object that was stored before is among them, one that was removed is not.
  MILLRACE_COROUTINE task<std::vector<std::string>> list(std::string folder) const {
    std::vector<std::string> names;
    const std::vector<shard> all = co_await all_objects(store_, prefix_ + folder);
    for (const shard& s : all) names.push_back(s.url.substr(prefix_.size()));
    co_return std::move(names);
  }
  task<void> remove(std::string name) const { return store_->remove(prefix_ + name); }

 private:
  const std::shared_ptr<const storage> store_;
  const std::string prefix_;
};

/// The state that the copies of a group share.
class group_core {
 public:
  group_core(const rank& mine, gather_words function, std::shared_ptr<const rank_notes> engine,
             std::shared_ptr<const rank_board> objects, duration limit)
      : process(mine),
        gather(std::move(function)),
        notes(std::move(engine)),
        board(std::move(objects)),
        timeout(limit) {
    process.check();
    std::uint64_t random[2] = {};
    if (!alone() && ::getrandom(random, sizeof random, 0) != static_cast<::ssize_t>(sizeof random)) {
      throw io_error(std::errc(errno), "rank_group: the system gives no random numbers");
    }
    id = hash128{random[0], random[1]};
    nonce = id.text();
  }
  static const std::shared_ptr<group_core>& of(const rank_group& group) noexcept { return group.core_; }
  bool alone() const noexcept { return process.world_size == 1; }

  const rank process;
  const gather_words gather;
  const std::shared_ptr<const rank_notes> notes;  // beside the function; null: none
  const std::shared_ptr<const rank_board> board;  // null: by the function
  const duration timeout;
  hash128 id;         // random; names this process among all that ever use the board
  std::string nonce;  // its text
  std::atomic<std::uint64_t> rounds{0};
  std::atomic<std::uint64_t> runs{0};
  std::atomic<bool> joined{false};  // a round by the board has given this process its words

  /// The nonce of rank 0, in which all are one group; empty until words were gathered.
  std::string group_nonce() const {
    const std::lock_guard lock(mutex_);
    return group_nonce_;
  }
  void know_rank_0(const hash128& its) {
    const std::lock_guard lock(mutex_);
    if (group_nonce_.empty()) group_nonce_ = its.text();
  }

  // Of rank 0: who its group is, and others that came later.
  void come_together(std::vector<std::string> others) {
    const std::lock_guard lock(mutex_);
    members_ = std::move(others);
    joined = true;
  }
  bool is_member(const std::string& its_nonce) const {
    const std::lock_guard lock(mutex_);
    return its_nonce == nonce || std::find(members_.begin(), members_.end(), its_nonce) != members_.end();
  }
  /// False the first time.
  bool knows_stranger(const std::string& its_nonce) const {
    const std::lock_guard lock(mutex_);
    return std::find(strangers_.begin(), strangers_.end(), its_nonce) != strangers_.end();
  }
  void note_stranger(const std::string& its_nonce) {
    const std::lock_guard lock(mutex_);
    strangers_.push_back(its_nonce);
  }

 private:
  mutable std::mutex mutex_;  // of the next three: rounds may be on several threads
  std::string group_nonce_;
  std::vector<std::string> members_;
  std::vector<std::string> strangers_;  // whose objects rank 0 has removed once
};

MILLRACE_INLINE std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i > 2) {
      parts.push_back(std::to_string(ranks[i]) + " to " + std::to_string(ranks[end - 1]));
    } else {
      end = i + 1;
      parts.push_back(std::to_string(ranks[i]));
    }
    i = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i != 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

// --- The collective. Each process sends: what for, its number, how many it believes in, its nonce, and the words.

inline constexpr std::size_t sent_before = 5;

MILLRACE_INLINE std::vector<std::uint64_t> to_send(const group_core& core, const char* purpose,
                                                   const std::vector<std::uint64_t>& words) {
  hasher128 what;
  what.add(std::string_view(purpose));
  std::vector<std::uint64_t> all{what.value().low, core.process.index, core.process.world_size, core.id.high,
                                 core.id.low};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

/// The words alone, once it is clear that they are those of the group's processes.
MILLRACE_INLINE std::vector<std::uint64_t> received(group_core& core, const char* purpose,
                                                    const std::vector<std::uint64_t>& all) {
  const std::size_t world = core.process.world_size;
  const std::size_t each = all.size() / world;
  std::vector<std::uint64_t> words;
  for (std::size_t r = 0; r < world; ++r) {
    const std::uint64_t* const sent = all.data() + r * each;
    if (sent[1] != r || sent[2] != world) {
      throw configuration_error("rank_group: the process that is number " + std::to_string(r) + " of " +
                                std::to_string(world) + " where words are gathered says that it is rank " +
                                std::to_string(sent[1]) + " of " + std::to_string(sent[2]) +
                                ": give each process the rank that its launcher says");
    }
    if (sent[0] != all[0]) {
      throw usage_error("rank_group: " + ranks_text({static_cast<std::uint32_t>(r)}) +
                        " gathers something else than rank 0 does (here " + purpose +
                        "): all ranks must make the same calls in the same order");
    }
    words.insert(words.end(), sent + sent_before, sent + each);
  }
  core.know_rank_0(hash128{all[3], all[4]});
  return words;
}

// --- By a board. Rank 0 opens a round, by an object whose name has its random number; the others put their words into
// objects beside it, each named by a random number too; rank 0 puts all of them, or an error, into one. What an earlier
// start has left is answered in vain: no living process will read it, and an answer counts only if it has one's number.

class board_claim {
 public:
  std::uint32_t index = 0;
  std::uint32_t world = 0;
  std::string nonce;
  std::string name;  // of the object
};

MILLRACE_INLINE std::string words_text(const std::vector<std::uint64_t>& words) {
  std::string text;
  for (const std::uint64_t w : words) text += ' ' + std::to_string(w);
  return text;
}

MILLRACE_INLINE std::vector<std::uint64_t> parse_words(std::string_view text) {
  std::vector<std::uint64_t> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (const auto w = text::parse_decimal<std::uint64_t>(text.substr(0, end))) words.push_back(*w);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

/// The claim in a name, "in/ROUND+INDEX.WORLD.NONCE" or "roll/INDEX.WORLD.NONCE".
MILLRACE_INLINE std::optional<board_claim> claim_of(const std::string& name) {
  const std::string_view last = std::string_view(name).substr(name.find_last_of("/+") + 1);
  const std::size_t one = std::min(last.find('.'), last.size());
  const std::size_t two = std::min(last.find('.', one + 1), last.size());
  const auto index = text::parse_decimal<std::uint32_t>(last.substr(0, one));
  const auto world = two > one ? text::parse_decimal<std::uint32_t>(last.substr(one + 1, two - one - 1)) : std::nullopt;
  if (!index || !world || two == last.size()) return std::nullopt;
  board_claim claim;
  claim.index = *index;
  claim.world = *world;
  claim.nonce = std::string(last.substr(two + 1));
  claim.name = name;
  return claim;
}

/// The contradiction between the processes that have come; empty: none.
MILLRACE_INLINE std::string wrong_claims(const group_core& core, const std::vector<board_claim>& claims) {
  const std::uint32_t world = core.process.world_size;
  std::vector<std::uint32_t> times(world, 0);
  times[0] = 1;
  for (const board_claim& c : claims) {
    if (c.world != world) {
      return "rank " + std::to_string(c.index) + " says that there are " + std::to_string(c.world) +
             " processes, and rank 0 that there are " + std::to_string(world);
    }
    if (c.index < world) ++times[c.index];
  }
  for (std::uint32_t r = 0; r < world; ++r) {
    if (times[r] > 1) {
      return std::to_string(times[r]) + " processes say that they are rank " + std::to_string(r) + " of " +
             std::to_string(world) + ": give each process the rank that its launcher says";
    }
  }
  return std::string();
}

MILLRACE_INLINE std::vector<std::uint32_t> missing_ranks(const group_core& core,
                                                         const std::vector<board_claim>& claims) {
  std::vector<char> there(core.process.world_size, 0);
  there[0] = 1;
  for (const board_claim& c : claims) {
    if (c.index < there.size()) there[c.index] = 1;
  }
  std::vector<std::uint32_t> missing;
  for (std::uint32_t r = 0; r < core.process.world_size; ++r) {
    if (there[r] == 0) missing.push_back(r);
  }
  return missing;
}

/// Processes that came when the group was complete: one that waits to be let in shows itself by an object in "roll/",
/// and stores it again where it is removed. So an object that comes back is that of a process that runs.
MILLRACE_INLINE std::vector<board_claim> strangers_in(const group_core& core, const std::vector<std::string>& rolls) {
  std::vector<board_claim> strangers;
  if (!core.joined) return strangers;
  for (const std::string& name : rolls) {
    const std::size_t dash = std::min(name.rfind('-'), name.size());
    std::optional<board_claim> s;
    if (name.compare(dash, std::string::npos, "-waits") == 0) {
      s = claim_of(name.substr(0, dash));
    } else if (name.compare(dash, std::string::npos, "-open") == 0) {  // another rank 0
      s.emplace();
      s->world = core.process.world_size;
      s->nonce = name.substr(5, std::min(name.find('.'), name.size()) - 5);
    }
    if (!s || core.is_member(s->nonce)) continue;
    s->name = name;
    strangers.push_back(std::move(*s));
  }
  return strangers;
}

MILLRACE_INLINE bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

MILLRACE_INLINE std::string seconds_text(duration d) { return std::to_string(d.count() / 1000000000) + " s"; }

/// Pauses between two looks, and a line in the log where it takes long.
class board_wait {
 public:
  board_wait(const group_core& core, executor& ex)
      : executor_(ex),
        begin_(ex.now()),
        limit_(core.timeout),
        pause_(std::chrono::milliseconds(50) + std::chrono::microseconds(500) * core.process.world_size) {}

  bool over() const { return executor_.now() - begin_ >= limit_; }
  /// For a round that ends with an error: true once it has waited for ranks that have not come.
  bool over_after_error() {
    if (!error_at_) error_at_ = executor_.now();
    return executor_.now() - *error_at_ >= std::chrono::seconds(5);
  }
  duration limit() const noexcept { return limit_; }
  /// Others have begun: the time counts from now on, and a little longer than theirs, as they say more.
  void begin_anew(duration more) {
    begin_ = executor_.now();
    if (!std::exchange(more_given_, true)) limit_ = added(limit_, more);
  }
  duration next_pause() {
    const duration now = pause_;
    pause_ = std::min<duration>(pause_ + pause_ / 2, std::chrono::seconds(1));
    return std::max<duration>(now, duration(1));
  }
  /// True when it is time for the line, once.
  bool long_wait() {
    if (said_ || executor_.now() - begin_ < std::chrono::seconds(30)) return false;
    said_ = true;
    return true;
  }

 private:
  executor& executor_;
  time_point begin_;
  duration limit_;
  duration pause_;
  std::optional<time_point> error_at_;
  bool said_ = false;
  bool more_given_ = false;
};

/// Removes objects; where that is not allowed, they stay, and the log says so.
template <class Text>
task<void> remove_all(std::shared_ptr<const rank_board> board, std::vector<Text> names) {
  executor& ex = co_await this_executor();
  std::string why;
  for (const Text& name : names) {
    try {
      co_await board->remove(name);
    } catch (const error& e) {
      why = e.what();
    }
  }
  if (!why.empty()) log_line(ex, "millrace: rank_group: objects stay in " + board->shown() + ": " + why);
}

/// For rank 0, after a round: once all have read its result, or after 10 s, it is removed, with objects that earlier
/// starts have left.
template <class Text>
task<void> close_round(std::shared_ptr<group_core> core, Text round, bool leftovers) {
  executor& ex = co_await this_executor();
  const std::shared_ptr<const rank_board> board = core->board;
  const time_point end = added(ex.now(), std::chrono::seconds(10));
  const Text inbox = "in/" + round + '+';
  for (;;) {
    std::vector<std::string> unread = co_await board->list(inbox);
    if (unread.empty()) break;
    if (ex.now() >= end) {
      co_await remove_all<std::string>(board, std::move(unread));
      break;
    }
    co_await sleep_for(std::chrono::milliseconds(250));
  }
  std::vector<std::string> old;
  old.push_back("roll/" + round + "-all");
  if (leftovers) {
    std::vector<std::string> all = co_await board->list(std::string());
    for (std::string& name : all) {
      const std::size_t begin = name.find('/') + 1;
      const bool known = name.compare(0, begin, "roll/") == 0 || name.compare(0, begin, "in/") == 0;
      if (known && name.compare(begin, core->nonce.size(), core->nonce) != 0) old.push_back(std::move(name));
    }
  }
  co_await remove_all<std::string>(board, std::move(old));
}

/// Rank 0's side of a round, named "NONCE.ROUND".
template <class Word>
task<std::vector<Word>> gather_at_rank_0(std::shared_ptr<group_core> core, std::string round, std::vector<Word> words) {
  executor& ex = co_await this_executor();
  const std::shared_ptr<const rank_board> board = core->board;
  const std::string mine = core->nonce + '.' + round;
  const std::string end_of_name = '.' + round + "-open";
  co_await board->put("roll/" + mine + "-open", "open");
  std::vector<std::string> answered;  // rounds that other processes have opened as rank 0, once
  std::vector<board_claim> claims;
  std::vector<board_claim> intruders;  // that run beside the group
  time_point sure_at = ex.now();       // that there are no others
  std::string refusal;                 // by the rank 0 of a group that this process is not one of
  std::string wrong;
  board_wait wait(*core, ex);
  for (;;) {
    const std::vector<std::string> rolls = co_await board->list("roll/");
    const std::vector<board_claim> strangers = strangers_in(*core, rolls);
    intruders.clear();
    for (const board_claim& s : strangers) {
      if (core->knows_stranger(s.nonce)) {
        intruders.push_back(s);
        continue;
      }
      try {
        co_await board->remove(s.name);
        core->note_stranger(s.nonce);
        sure_at = added(ex.now(), std::chrono::seconds(3));
      } catch (const error&) {  // whether it runs cannot be known
      }
    }
    if (!core->joined) {
      if (!has_name(rolls, "roll/" + mine + "-open")) co_await board->put("roll/" + mine + "-open", "open");
      if (has_name(rolls, "roll/" + core->nonce + "-no")) refusal = co_await board->get("roll/" + core->nonce + "-no");
    }
    for (const std::string& name : rolls) {
      if (name.size() < 5 + end_of_name.size() || name.compare(5, core->nonce.size(), core->nonce) == 0) continue;
      if (name.compare(name.size() - end_of_name.size(), std::string::npos, end_of_name) != 0) continue;
      const std::string other = name.substr(5, name.size() - 10);
      if (std::find(answered.begin(), answered.end(), other) != answered.end()) continue;
      answered.push_back(other);
      co_await board->put("in/" + other + "+0." + std::to_string(core->process.world_size) + '.' + core->nonce, "0");
    }
    const std::vector<std::string> names = co_await board->list("in/" + mine + '+');
    claims.clear();
    for (const std::string& name : names) {
      if (std::optional<board_claim> c = claim_of(name)) claims.push_back(std::move(*c));
    }
    for (const board_claim& c : claims) {  // another rank 0 learns of this one, too
      const std::string other = c.nonce + '.' + round;
      if (c.index != 0 || std::find(answered.begin(), answered.end(), other) != answered.end()) continue;
      answered.push_back(other);
      co_await board->put("in/" + other + "+0." + std::to_string(core->process.world_size) + '.' + core->nonce, "0");
    }
    wrong = refusal.empty() ? wrong_claims(*core, claims) : refusal;
    const std::vector<std::uint32_t> missing = missing_ranks(*core, claims);
    if (missing.empty() && !intruders.empty()) {
      claims.push_back(intruders.front());
      wrong = wrong_claims(*core, claims);
      break;
    }
    if (missing.empty() && ex.now() >= sure_at) break;
    if (!refusal.empty()) break;
    if (!wrong.empty() && wait.over_after_error()) break;
    if (wrong.empty() && wait.over()) {
      wrong = ranks_text(missing) + " of " + std::to_string(core->process.world_size) + " did not come within " +
              seconds_text(wait.limit());
      break;
    }
    if (wait.long_wait()) {
      log_line(ex, "millrace: rank 0 waits for " + ranks_text(missing) + " of " +
                       std::to_string(core->process.world_size) + " (" + board->shown() + ')');
    }
    co_await sleep_for(wait.next_pause());
  }
  std::vector<std::uint64_t> all(words.begin(), words.end());
  const std::size_t each = words.size();
  std::string result;
  if (wrong.empty()) {
    all.resize(each * core->process.world_size);
    for (std::size_t begin = 0; begin < claims.size(); begin += 32) {
      const std::size_t end = std::min(begin + 32, claims.size());
      std::vector<task<std::string>> reads;
      for (std::size_t i = begin; i < end; ++i) reads.push_back(board->get(claims[i].name));
      const std::vector<std::string> texts = co_await all_of(std::move(reads));
      for (std::size_t i = begin; i < end; ++i) {
        const std::vector<std::uint64_t> its = parse_words(texts[i - begin]);
        if (its.size() != each) {
          wrong = "rank " + std::to_string(claims[i].index) + " gathers something else than rank 0 does: all ranks " +
                  "must make the same calls in the same order";
          break;
        }
        std::copy(its.begin(), its.end(), all.begin() + static_cast<std::ptrdiff_t>(claims[i].index * each));
      }
    }
  }
  result = wrong.empty() ? std::string("words") : "error " + wrong;
  for (const board_claim& c : claims) result += '\n' + c.nonce;
  if (wrong.empty()) result += '\n' + words_text(all);
  co_await board->put("roll/" + mine + "-all", result);
  if (!wrong.empty() && core->joined) {
    for (const board_claim& s : intruders) co_await board->put("roll/" + s.nonce + "-no", wrong);
  }
  if (wrong.empty() && !core->joined) {
    std::vector<std::string> others;
    for (const board_claim& c : claims) others.push_back(c.nonce);
    core->come_together(std::move(others));
  }
  try {
    co_await board->remove("roll/" + mine + "-open");
  } catch (const error&) {  // close_round() says it
  }
  if (!refusal.empty()) co_await board->remove("roll/" + core->nonce + "-no");
  root_scope::of(ex).adopt(close_round<std::string>(core, mine, wrong.empty()));
  if (!wrong.empty()) throw configuration_error("rank_group: " + wrong, where{board->shown(), std::nullopt, {}});
  co_return std::move(all);
}

/// The side of all other ranks.
template <class Word>
task<std::vector<Word>> gather_at_others(std::shared_ptr<group_core> core, std::string round,
                                         std::vector<Word> words) {
  executor& ex = co_await this_executor();
  const std::shared_ptr<const rank_board> board = core->board;
  const std::string mine =
      std::to_string(core->process.index) + '.' + std::to_string(core->process.world_size) + '.' + core->nonce;
  const std::string opened = '.' + round + "-open";
  const std::string closed = '.' + round + "-all";
  const std::string sent = words_text(words);
  std::vector<std::string> answered;  // rounds, of this start and of earlier ones
  std::vector<std::string> of_others;  // of these, such as were closed without this process
  std::string all;
  const std::string waits = "roll/" + mine + "-waits";
  const std::string refused = "roll/" + core->nonce + "-no";
  std::vector<std::string> old;  // to be removed
  const time_point shown_from = added(ex.now(), std::chrono::seconds(2));
  board_wait wait(*core, ex);
  while (all.empty()) {
    const std::vector<std::string> rolls = co_await board->list("roll/");
    if (!core->joined && ex.now() >= shown_from && !has_name(rolls, waits)) {
      co_await board->put(waits, "waits");
      if (old.empty()) old.push_back(waits);
    }
    if (has_name(rolls, refused)) {
      const std::string why = co_await board->get(refused);
      all = "error " + why;
      old.push_back(refused);
      break;
    }
    for (const std::string& name : rolls) {
      const auto ends = [&](const std::string& end) {
        return name.size() > 5 + end.size() && name.compare(name.size() - end.size(), std::string::npos, end) == 0;
      };
      const auto has = [](const std::vector<std::string>& in, const std::string& what) {
        return std::find(in.begin(), in.end(), what) != in.end();
      };
      if (ends(opened)) {
        const std::string its = name.substr(5, name.size() - 10);
        if (has(answered, its)) continue;
        co_await board->put("in/" + its + '+' + mine, sent);
        answered.push_back(its);
        wait.begin_anew(std::chrono::seconds(10));
      } else if (ends(closed)) {
        const std::string its = name.substr(5, name.size() - 9);
        if (!has(answered, its) || has(of_others, its)) continue;
        std::string text = co_await board->get(name);
        if (text.find('\n' + core->nonce) != std::string::npos) {
          all = std::move(text);
          break;
        }
        of_others.push_back(its);
      }
    }
    if (!all.empty()) break;
    if (wait.over()) break;
    if (wait.long_wait()) {
      log_line(ex, "millrace: " + ranks_text({core->process.index}) + " waits for rank 0 (" + board->shown() + ')');
    }
    co_await sleep_for(wait.next_pause());
  }
  for (const std::string& its : answered) old.push_back("in/" + its + '+' + mine);
  root_scope::of(ex).adopt(remove_all<std::string>(board, std::move(old)));
  const where at{board->shown(), std::nullopt, {}};
  if (all.empty()) {
    throw configuration_error("rank_group: rank " + std::to_string(core->process.index) + " of " +
                                  std::to_string(core->process.world_size) + " has waited " +
                                  seconds_text(wait.limit()) + " for rank 0, which did not " +
                                  (answered.empty() ? "come" : "answer") +
                                  (of_others.empty() ? "" : ", or took another process for this rank"),
                              at);
  }
  const std::string first = all.substr(0, all.find('\n'));
  if (first.compare(0, 6, "error ") == 0) throw configuration_error("rank_group: " + first.substr(6), at);
  const std::vector<std::uint64_t> numbers = parse_words(std::string_view(all).substr(all.rfind('\n') + 1));
  if (numbers.size() != words.size() * core->process.world_size) {
    throw usage_error("rank_group: rank 0 gathers something else than rank " + std::to_string(core->process.index) +
                      " does: all ranks must make the same calls in the same order");
  }
  core->joined = true;
  std::vector<Word> result(numbers.begin(), numbers.end());
  co_return std::move(result);
}

/// `sent`: with what stands before the words.
template <class Word>
task<std::vector<Word>> gather_by_board(std::shared_ptr<group_core> core, const char* purpose, std::string round,
                                        std::vector<Word> sent) {
  std::vector<Word> all;
  if (core->alone()) {
    all = sent;
  } else if (core->process.index == 0) {
    all = co_await gather_at_rank_0<Word>(core, std::move(round), std::move(sent));
  } else {
    all = co_await gather_at_others<Word>(core, std::move(round), std::move(sent));
  }
  std::vector<Word> words = received(*core, purpose, all);
  co_return std::move(words);
}

inline std::string round_name(std::uint64_t number, std::uint64_t part) {
  return std::to_string(number) + '-' + std::to_string(part);
}

/// On the calling thread.
template <class Word>
std::vector<Word> gather_waiting(const std::shared_ptr<group_core>& core, const char* purpose, std::string round,
                                 const std::vector<Word>& words) {
  std::vector<Word> sent = to_send(*core, purpose, words);
  if (core->board != nullptr && !core->alone()) {
    const std::unique_ptr<event_loop> loop = make_event_loop();
    return block_on(*loop, gather_by_board<Word>(core, purpose, std::move(round), std::move(sent)));
  }
  std::vector<Word> all(sent.size() * core->process.world_size);
  if (core->alone()) {
    all = sent;
  } else {
    core->gather(sent, all);
  }
  return received(*core, purpose, all);
}

/// Names of notes begin as those of rank 0's rounds do: the next start removes them with what is left of these.
template <class Word>
class group_words final : public rank_words, public rank_notes {
 public:
  explicit group_words(rank_group group) : group_(std::move(group)), number_(core().runs.fetch_add(1)) {}

  std::vector<Word> gather(std::vector<Word> mine) const override {
    return group_.gather_now(std::move(mine), "whether a rank was asked to stop");
  }
  const rank& process() const noexcept override { return core().process; }
  const rank_notes* notes() const noexcept override {
    return core().board != nullptr ? this : core().notes.get();
  }
  std::string name() const override { return named(number_); }
  std::string name_before() const override { return number_ == 0 ? std::string() : named(number_ - 1); }
  duration timeout() const noexcept override { return core().timeout; }

  task<void> put(std::string name, std::string text) const override {
    return core().board->put("in/" + name, std::move(text));
  }
  task<std::string> get(std::string name) const override { return core().board->get("in/" + name); }
  task<void> remove(std::string name) const override { return core().board->remove("in/" + name); }

 private:
  group_core& core() const noexcept { return *group_core::of(group_); }
  std::string named(Word number) const {
    const std::string begin = core().group_nonce();
    return begin.empty() ? begin : begin + "-stop-" + std::to_string(number);
  }

  const rank_group group_;
  const Word number_;
};

MILLRACE_COROUTINE_BODY std::shared_ptr<const rank_words> words_of(const rank_group& group) {
  return std::make_shared<const group_words<std::uint64_t>>(group);
}

}  // namespace detail

MILLRACE_INLINE rank_group::rank_group(const rank& mine, gather_words gather, std::shared_ptr<const rank_notes> notes)
    : core_(std::make_shared<detail::group_core>(mine, std::move(gather), std::move(notes), nullptr,
                                                 rank_group_options().timeout)),
      mine_(mine) {
  if (!core_->alone() && !core_->gather) {
    throw usage_error("rank_group: the function that gathers the words of " + std::to_string(mine.world_size) +
                      " processes is empty");
  }
}

MILLRACE_INLINE rank_group::rank_group(const rank& mine, std::shared_ptr<const storage> store, std::string prefix,
                                       const rank_group_options& options)
    : core_(std::make_shared<detail::group_core>(
          mine, gather_words(), nullptr,
          std::make_shared<const detail::rank_board>(std::move(store), std::move(prefix)), options.timeout)),
      mine_(mine) {
  if (options.timeout <= duration(0)) throw configuration_error("rank_group: .timeout must be above 0");
  constexpr std::uint32_t most = 64;
  if (mine.world_size <= most) return;
  throw configuration_error("rank_group: " + std::to_string(mine.world_size) + " processes cannot meet by objects of a "
                            "store, which is for " + std::to_string(most) + " at most: use mpi_ranks() "
                            "(<millrace/mpi.hpp>), pmix_ranks() (<millrace/pmix.hpp>), c10d_ranks() "
                            "(<millrace/c10d.hpp>) or a function that gathers");
}

MILLRACE_INLINE const rank& rank_group::process() const noexcept { return core_->process; }
MILLRACE_INLINE bool rank_group::by_store() const noexcept { return core_->board != nullptr || core_->alone(); }

MILLRACE_INLINE rank_group rank_group::replicas(std::uint32_t processes) const {
  const rank& p = process();
  if (processes == 0 || p.world_size % processes != 0) {
    throw configuration_error("rank_group: " + std::to_string(p.world_size) + " processes cannot be divided into " +
                              "replicas of " + std::to_string(processes));
  }
  return replica(p.index / processes, p.world_size / processes);
}

MILLRACE_INLINE rank_group rank_group::replica(std::uint32_t index, std::uint32_t of) const {
  if (of == 0 || index >= of || process().world_size % of != 0) {
    throw configuration_error("rank_group: replica " + std::to_string(index) + " of " + std::to_string(of) +
                              " does not exist among " + std::to_string(process().world_size) + " processes");
  }
  rank_group other = *this;
  other.mine_.index = index;
  other.mine_.world_size = of;
  other.mine_.source = "replica";
  return other;
}

MILLRACE_COROUTINE_BODY std::vector<std::uint64_t> rank_group::gather_now(std::vector<std::uint64_t> words,
                                                                          const char* purpose) const {
  const std::uint64_t number = core_->rounds.fetch_add(1, std::memory_order_relaxed);
  return detail::gather_waiting(core_, purpose, detail::round_name(number, 0), words);
}

MILLRACE_COROUTINE_BODY task<std::vector<std::uint64_t>> rank_group::gather(std::vector<std::uint64_t> words,
                                                                            const char* purpose) const {
  if (!by_store()) throw usage_error("rank_group: gather() of a group by a function: call gather_now()");
  const std::uint64_t number = core_->rounds.fetch_add(1, std::memory_order_relaxed);
  return detail::gather_by_board<std::uint64_t>(core_, purpose, detail::round_name(number, 0),
                                                detail::to_send(*core_, purpose, words));
}

}  // namespace millrace

// compare(). At the end: it includes this file.
#include <millrace/train/detail/agreement.hpp>
