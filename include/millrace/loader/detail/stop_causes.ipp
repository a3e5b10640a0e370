// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/root_scope.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/flow/rank_words.hpp>
#include <millrace/loader/detail/stop_causes.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The signals of this process that runs hold. Handlers read it: everything is an atomic, or is written before the
/// handler of its signal is installed. Never destroyed.
struct signal_table {
  struct place {
    std::atomic<int> fd{-1};  // -1: free
    std::atomic<std::uint64_t> wanted{0};
    std::atomic<std::uint64_t> came{0};
  };
  static constexpr std::size_t most = 64;

  place places[most];
  std::atomic<unsigned> handlers{0};  // that run now
  std::atomic<::pid_t> process{0};
  std::atomic<bool> installed[65]{};
  struct ::sigaction before[65]{};
  std::mutex mutex;
  unsigned users[65]{};  // with the mutex
};
inline constinit signal_table signals_of_process{};

/// Async-signal-safe. The first signal gives back the handler of before; one that no run takes has that effect, too.
inline void on_stop_signal(int number) {
  const int kept = errno;
  signal_table& t = signals_of_process;
  t.handlers.fetch_add(1);
  ::sigaction(number, &t.before[number], nullptr);
  t.installed[number] = false;
  bool taken = false;
  if (t.process == ::getpid()) {
    for (signal_table::place& p : t.places) {
      const int fd = p.fd;
      if (fd < 0 || (p.wanted >> (number - 1) & 1) == 0) continue;
      p.came.fetch_or(std::uint64_t{1} << (number - 1));
      const std::uint64_t one = 1;
      static_cast<void>(!::write(fd, &one, sizeof one));
      taken = true;
    }
  }
  t.handlers.fetch_sub(1);
  if (!taken) ::raise(number);  // after this handler
  errno = kept;
}

inline std::string name_of_signal(int number) {
  switch (number) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case SIGQUIT: return "SIGQUIT";
    case SIGUSR1: return "SIGUSR1";
    case SIGUSR2: return "SIGUSR2";
    case SIGXCPU: return "SIGXCPU";
    default: return "signal " + std::to_string(number);
  }
}

MILLRACE_INLINE held_signals::held_signals(stop_signals wanted) : wanted_(wanted) {
  if (!wanted.valid()) throw configuration_error(".stop_on: signals have the numbers 1 to 64");
  for (const int n : {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    if (wanted.has(n)) {
      throw configuration_error(".stop_on: no program goes on after signal " + std::to_string(n) +
                                ": name signals that ask for an end, SIGTERM, SIGINT, SIGUSR1");
    }
  }
  signal_table& t = signals_of_process;
  const std::lock_guard lock(t.mutex);
  if (t.process != ::getpid()) {  // a child of fork(): its runs are its own
    for (signal_table::place& p : t.places) p.fd = -1;
    for (int n = 1; n <= 64; ++n) {
      if (t.installed[n].exchange(false)) ::sigaction(n, &t.before[n], nullptr);
      t.users[n] = 0;
    }
    t.process = ::getpid();
  }
  while (place_ < t.most && t.places[place_].fd >= 0) ++place_;
  if (place_ == t.most) throw configuration_error(".stop_on: 64 runs of this process are waiting for signals already");
  fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd_ < 0) throw io_error::of(errno, "no eventfd for signals could be made");
  signal_table::place& p = t.places[place_];
  came_ = &p.came;
  p.came = 0;
  std::uint64_t mask = 0;
  for (int n = 1; n <= 64; ++n) mask |= std::uint64_t{wanted.has(n)} << (n - 1);
  p.wanted = mask;
  p.fd = fd_;  // before the handler is looked for: one that gives itself up meanwhile finds this place
  for (int n = 1; n <= 64; ++n) {
    if (!wanted.has(n)) continue;
    ++t.users[n];
    if (t.installed[n]) continue;
    ::sigaction(n, nullptr, &t.before[n]);
    struct ::sigaction mine {};
    mine.sa_handler = &on_stop_signal;
    mine.sa_flags = SA_RESTART;
    ::sigemptyset(&mine.sa_mask);
    t.installed[n] = true;
    ::sigaction(n, &mine, nullptr);
  }
}

MILLRACE_INLINE held_signals::~held_signals() {
  signal_table& t = signals_of_process;
  const std::lock_guard lock(t.mutex);
  t.places[place_].fd = -1;
  for (int n = 1; n <= 64; ++n) {
    if (!wanted_.has(n) || --t.users[n] != 0 || !t.installed[n]) continue;
    struct ::sigaction now {};
    ::sigaction(n, nullptr, &now);
    if (now.sa_handler == &on_stop_signal) ::sigaction(n, &t.before[n], nullptr);  // else the program has set another
    t.installed[n] = false;
  }
  while (t.handlers != 0) ::sched_yield();  // on other threads: they may be about to write
  ::close(fd_);
}

MILLRACE_INLINE int held_signals::take() noexcept {
  const std::uint64_t all = came_->load();
  if (all == 0) return 0;
  const int number = __builtin_ctzll(all) + 1;
  const std::uint64_t bit = std::uint64_t{1} << (number - 1);
  return (came_->fetch_and(~bit) & bit) != 0 ? number : 0;
}

/// A task that may end, in one of two lists.
struct stop_causes::cause {
  task<std::string> told;  // until it is waited for
  spawned<void> waiting;
  void (*wait)(stop_causes& self, cause& one);  // begins to; a pointer, as take_tasks() must not name a coroutine
  cause* next = nullptr;
};

MILLRACE_INLINE void stop_causes::drop(cause* list) noexcept {
  while (list != nullptr) delete std::exchange(list, list->next);
}

MILLRACE_INLINE stop_causes::~stop_causes() {
  drop(added_);
  drop(waiting_);
  delete signals_;
}

MILLRACE_INLINE void stop_causes::hold(stop_signals wanted, runtime_parts& log) {
  signals_ = new held_signals(wanted);
  ::sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (int n = 1; n <= 64; ++n) {
    if (!wanted.has(n) || ::sigismember(&blocked, n) != 1) continue;
    const std::string line = "millrace: " + name_of_signal(n) +
                             " is to stop a run, and the thread that begins it blocks it: it is seen only if another "
                             "thread of the program does not";
    log.log(log_record(log_level::warning, line));
  }
}

MILLRACE_COROUTINE_BODY void stop_causes::add(task<std::string> told) {
  const auto wait = [](stop_causes& self, cause& one) {
    const coroutine_context here(*self.loop_, *self.context_, nullptr);
    one.waiting = spawned<void>(here, wait_for(self, std::move(one.told)));
  };
  const std::lock_guard lock(mutex_);
  if (now_ == phase::over) return;
  added_ = new cause{std::move(told), {}, wait, added_};
  if (now_ == phase::on_loop && !std::exchange(posted_, true)) loop_->post_remote(take_tasks_);
}

MILLRACE_INLINE void stop_causes::begin(event_loop& loop, run_context& context) {
  loop_ = &loop;
  context_ = &context;
  if (signals_ != nullptr) loop.watch(*this, signals_->fd(), POLLIN);
  {
    const std::lock_guard lock(mutex_);
    now_ = phase::on_loop;
  }
  take_tasks();
}

MILLRACE_INLINE void stop_causes::end() noexcept {
  cause* dropped = nullptr;
  {
    const std::lock_guard lock(mutex_);
    now_ = phase::over;
    dropped = std::exchange(added_, nullptr);
  }
  drop(dropped);
  if (loop_ != nullptr) loop_->unwatch(*this);
  drop(std::exchange(waiting_, nullptr));
}

MILLRACE_INLINE void stop_causes::ready(unsigned) noexcept {
  std::uint64_t count = 0;
  static_cast<void>(!::read(signals_->fd(), &count, sizeof count));
  signalled(*loop_);
}

MILLRACE_INLINE void stop_causes::signalled(event_loop& loop) noexcept {
  while (const int number = signals_->take()) {
    ask_();
    try {
      log_line(loop, "millrace: " + name_of_signal(number) + " asks the run to stop", log_level::info);
    } catch (...) {  // no memory for the line
    }
  }
}

MILLRACE_INLINE void stop_causes::take_tasks() noexcept {
  cause* tasks = nullptr;
  {
    const std::lock_guard lock(mutex_);
    posted_ = false;
    tasks = std::exchange(added_, nullptr);
  }
  while (tasks != nullptr) {
    cause& one = *std::exchange(tasks, tasks->next);
    one.next = std::exchange(waiting_, &one);
    try {
      one.wait(*this, one);
    } catch (...) {
      loop_->runtime().log(
          log_record(log_level::error, "millrace: there is no memory to wait for what is to stop the run"));
    }
  }
}

MILLRACE_COROUTINE_BODY task<void> stop_causes::wait_for(stop_causes& self, task<std::string> told) {
  std::string line;
  log_level level = log_level::warning;
  try {
    const std::string why = co_await std::move(told);
    self.ask_();
    line = "millrace: the run is asked to stop: " + why;
    level = log_level::info;
  } catch (const std::exception& e) {
    line = std::string("millrace: what was to stop the run has failed, and the run goes on: ") + e.what();
  } catch (...) {
    line = "millrace: what was to stop the run has failed, and the run goes on: an exception that is no std::exception";
  }
  log_line(*self.loop_, line, level);
}

MILLRACE_INLINE bool stop_vote::gathered(std::uint64_t taken, bool asked) {
  constexpr std::size_t words = 4;
  const std::int64_t begun = now_();
  const std::uint64_t since = taken == 0 ? 0 : static_cast<std::uint64_t>(begun - ended_);
  const std::vector<std::uint64_t> all = ranks_->gather({taken, asked ? 1U : 0U, since, cost_});
  ended_ = now_();
  cost_ = static_cast<std::uint64_t>(ended_ - begun);
  bool stop = false;
  std::uint64_t longest = 0;
  std::uint64_t cost = UINT64_MAX;  // of the rank that came last, and did not wait for others
  for (std::size_t r = 0; r * words < all.size(); ++r) {
    const std::uint64_t* const w = all.data() + r * words;
    if (w[0] != taken) {
      throw usage_error("ranks have taken unequally many items of a run, rank " + std::to_string(r) + " " +
                        std::to_string(w[0]) + " and this one " + std::to_string(taken) +
                        ": all must take as many, or say .uneven");
    }
    stop = stop || w[1] != 0;
    longest = w[2] > longest ? w[2] : longest;
    cost = w[3] < cost ? w[3] : cost;
  }
  const std::uint64_t span = taken - last_;
  std::uint64_t items = 2 * span + 1;
  if (longest != 0 && span != 0) {
    const std::uint64_t wanted = cost < 5'000'000 ? 500'000'000 : cost < 10'000'000 ? 100 * cost : 1'000'000'000;
    const std::uint64_t fit = wanted / (longest / span + 1);
    if (fit < items) items = fit < 1 ? 1 : fit;
  }
  last_ = taken;
  next_ = taken + items;
  return stop;
}

MILLRACE_INLINE bool stop_vote::by_notes() const noexcept { return ranks_->notes() != nullptr; }

MILLRACE_INLINE bool stop_vote::over(std::uint64_t taken, bool asked) {
  return by_notes() ? over_by_notes(taken) : taken >= next_ && gathered(taken, asked);
}

MILLRACE_INLINE std::uint64_t stop_vote::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
  return passed_;
}

MILLRACE_INLINE void stop_vote::go_on(std::uint64_t until) {
  {
    const std::lock_guard lock(mutex_);
    held_ = false;
    until_ = until;
  }
  changed_.notify_all();
}

MILLRACE_INLINE bool stop_vote::is_held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

MILLRACE_INLINE bool stop_vote::over_by_notes(std::uint64_t taken) {
  std::unique_lock lock(mutex_);
  while (held_) changed_.wait(lock);
  if (taken >= until_) return true;
  passed_ = taken + 1;
  return false;
}

/// The note in which a rank says how many items it has taken: rank 0's says where all stop.
inline std::string items_note(const std::string& run, std::uint32_t index) {
  return run + (index == 0 ? std::string("-end") : "-at-" + std::to_string(index));
}

// Templates of their types, since g++ would look up and instantiate all that does not depend on one wherever the header
// is included.

/// Of a rank whose run has ended: others that are to stop would wait for it.
template <class Text>
task<void> note_items(std::shared_ptr<const rank_words> ranks, Text run, std::uint64_t items) {
  executor& ex = co_await this_executor();
  const std::uint32_t index = ranks->process().index;
  Text why;
  try {
    co_await ranks->notes()->put(items_note(run, index), std::to_string(items));
    const Text before = ranks->name_before();
    if (!before.empty()) co_await ranks->notes()->remove(items_note(before, index));
  } catch (const error& e) {
    why = e.what();
  }
  if (!why.empty()) {
    log_line(ex, "millrace: rank " + std::to_string(index) + " cannot tell the others that its run has ended, and " +
                     "they wait for it if one of them is to stop: " + why);
  }
}

/// Lets the training thread go on when the run's end drops what waits for a stop, and notes its items then.
template <class Text>
class run_end {
 public:
  run_end(executor& ex, stop_vote& vote) : executor_(ex), vote_(&vote) {}
  run_end(const run_end&) = delete;
  run_end& operator=(const run_end&) = delete;
  ~run_end() {
    if (vote_ == nullptr) return;
    const std::uint64_t items = vote_->hold();
    vote_->go_on(UINT64_MAX);
    try {
      Text run = vote_->ranks()->name();
      if (!run.empty()) root_scope::of(executor_).adopt(note_items(vote_->ranks(), std::move(run), items));
    } catch (...) {  // no memory for the note: the others wait until their time is up
    }
  }
  void settle(std::uint64_t until) { std::exchange(vote_, nullptr)->go_on(until); }

 private:
  executor& executor_;
  stop_vote* vote_;  // null: settled
};

/// The number of the last item, once this rank has said how many it has taken.
template <class Text, class Number>
task<Number> last_item(const rank_words& ranks, Text run, Number taken) {
  const coroutine_context here = co_await this_context();
  executor& ex = here.get_executor();
  const rank mine = ranks.process();
  const time_point due = added(ex.now(), ranks.timeout());
  if (mine.index != 0) co_await ranks.notes()->put(items_note(run, mine.index), std::to_string(taken));
  std::vector<std::uint32_t> silent;
  for (std::uint32_t r = 1; mine.index == 0 && r < mine.world_size; ++r) silent.push_back(r);
  if (mine.index != 0) silent.push_back(0);
  Number last = taken;
  for (;;) {
    std::vector<spawned<Text>> reads;  // side by side
    for (const std::uint32_t r : silent) reads.emplace_back(here, ranks.notes()->get(items_note(run, r)));
    std::vector<std::uint32_t> still;
    for (std::size_t i = 0; i < reads.size(); ++i) {
      const Text noted = co_await reads[i];
      const auto items = text::parse_decimal<Number>(noted);
      if (!items) still.push_back(silent[i]);
      if (items && *items > last) last = *items;
    }
    silent = std::move(still);
    if (silent.empty()) break;
    if (ex.now() >= due) {
      throw io_error("rank " + std::to_string(mine.index) + " is to stop with the others, and rank " +
                     std::to_string(silent[0]) + " does not say how many items it has taken");
    }
    co_await sleep_for(std::chrono::milliseconds(100));
  }
  if (mine.index == 0) co_await ranks.notes()->put(items_note(run, 0), std::to_string(last));
  co_return last;
}

template <class Text, class Number>
task<Text> agree_by_notes(stop_vote& vote, const std::atomic<bool>& asked) {
  executor& ex = co_await this_executor();
  const rank_words& ranks = *vote.ranks();
  const rank mine = ranks.process();
  run_end<Text> end(ex, vote);
  Text run;
  Text who;
  bool said = false;
  while (who.empty()) {
    co_await sleep_for(std::chrono::milliseconds(500));
    if (run.empty()) run = ranks.name();
    if (run.empty()) continue;
    try {
      if (asked.load(std::memory_order_acquire)) {
        co_await ranks.notes()->put(run + "-ask", std::to_string(mine.index));
        who = std::to_string(mine.index);
      } else {
        who = co_await ranks.notes()->get(run + "-ask");
      }
    } catch (const error& e) {
      if (std::exchange(said, true)) continue;
      log_line(ex, Text("millrace: this rank cannot learn whether another one is to stop: ") + e.what());
    }
  }
  Number last = vote.hold();
  try {
    last = co_await last_item<Text, Number>(ranks, run, last);
  } catch (...) {  // the run goes on, and its log says why
    end.settle(UINT64_MAX);
    throw;
  }
  end.settle(last);
  co_return "rank " + who + " of " + std::to_string(mine.world_size) + " asks all of them to, after item " +
      std::to_string(last);
}

MILLRACE_COROUTINE_BODY task<std::string> stop_by_notes(stop_vote& vote, const std::atomic<bool>& asked) {
  return agree_by_notes<std::string, std::uint64_t>(vote, asked);
}

}  // namespace millrace::detail
