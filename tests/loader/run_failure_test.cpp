// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Unexpected ends of a run: the loop itself fails, an item cannot be moved.

#include <millrace/loader/run.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <future>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/sleep.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

/// The epoll sets of this process.
std::set<int> epoll_sets() {
  std::set<int> found;
  for (int fd = 0; fd < 256; ++fd) {
    char target[64];
    const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target);
    if (n > 0 && std::string(target, static_cast<std::size_t>(n)).find("eventpoll") != std::string::npos) {
      found.insert(fd);
    }
  }
  return found;
}

/// Makes the one epoll set that was not there `before` something that epoll_wait(2) refuses: the loop's next poll()
/// throws. The number stays the loop's, which closes it.
void break_loop(const std::set<int>& before) noexcept {
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (const int fd : epoll_sets()) {
    if (before.count(fd) == 0) ::dup3(nothing, fd, O_CLOEXEC);
  }
  ::close(nothing);
}

/// A stage of a pipeline, and what its items know of it.
struct stage_life {
  const std::set<int> sets_before = epoll_sets();
  std::atomic<bool> alive{false};
  std::atomic<int> outlived{0};  // items that ended after their stage
  std::promise<void> ended;

  class in_frame {
   public:
    explicit in_frame(stage_life& l) noexcept : life_(l) { life_.alive = true; }
    in_frame(const in_frame&) = delete;
    in_frame& operator=(const in_frame&) = delete;
    ~in_frame() {
      life_.alive = false;
      life_.ended.set_value();
    }

   private:
    stage_life& life_;
  };
};

/// An item that refers to what its stage owns.
class borrowed {
 public:
  explicit borrowed(stage_life& l) noexcept : life_(&l) {}
  borrowed(borrowed&& other) noexcept : life_(std::exchange(other.life_, nullptr)) {}
  borrowed& operator=(borrowed&& other) noexcept {
    std::swap(life_, other.life_);
    return *this;
  }
  ~borrowed() {
    if (life_ != nullptr && !life_->alive) ++life_->outlived;
  }

 private:
  stage_life* life_;
};

async_generator<borrowed> two_and_a_broken_loop(stage_life& life) {
  const stage_life::in_frame here(life);
  borrowed first(life);
  co_yield give(first);
  borrowed second(life);
  co_yield give(second);
  break_loop(life.sets_before);
  co_await sleep_for(std::chrono::hours(1));
}

async_generator<int> sleeping() { co_await sleep_for(std::chrono::hours(1)); }

TEST_CASE("when the loop fails, the items that wait are dropped before the pipeline, and next() throws why") {
  stage_life life;
  {
    auto r = run(two_and_a_broken_loop(life), {.prefetch = 4}, {.force_epoll = true});
    life.ended.get_future().wait();  // both items wait for us, and the pipeline is gone
    try {
      const std::optional<borrowed> item = r.next();
      FAIL_CHECK("an item whose stage is gone");
    } catch (const io_error& e) {
      CHECK(e.code() == std::errc::invalid_argument);
    }
    CHECK_FALSE(r.next());
    const double seconds = r.stats().seconds;
    CHECK(r.stats().seconds == seconds);  // the run's clock stands still
  }
  CHECK(life.outlived == 0);
}

TEST_CASE("a loop that fails takes its runs with it, and fails those that come") {
  stage_life life;
  runtime rt({.loops = 1, .force_epoll = true});
  auto other = rt.run(sleeping());
  auto breaks = rt.run(two_and_a_broken_loop(life), {.prefetch = 4});
  life.ended.get_future().wait();
  CHECK_THROWS_AS(other.next(), io_error);
  CHECK_THROWS_AS(breaks.next(), io_error);
  auto late = rt.run(sleeping());
  CHECK_THROWS_AS(late.next(), io_error);
  CHECK_FALSE(late.next());
}

/// The state of a thread of this process as proc(5) tells it: 'S' while it sleeps, a lock included.
char state_of(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_ends = line.rfind(')');
  return name_ends + 2 < line.size() ? line[name_ends + 2] : 'S';
}

/// What the item and the loop's thread do to each other while the training thread takes the item.
struct meeting {
  const std::set<int> sets_before = epoll_sets();
  std::thread::id trainer = std::this_thread::get_id();
  executor* loop = nullptr;
  std::promise<void> full;         // the item waits, and the producer waits for room
  std::atomic<pid_t> breaking{0};  // the loop's thread, from when the loop is about to fail

  class message : public remote_node {
   public:
    explicit message(meeting& m) noexcept : meeting_(m) {}

   protected:
    meeting& meeting_;
  };
  class tell_full final : public message {
    using message::message;
    void run() noexcept override { meeting_.full.set_value(); }
  };
  class fail_loop final : public message {
    using message::message;
    void run() noexcept override {
      break_loop(meeting_.sets_before);
      meeting_.breaking = static_cast<pid_t>(::syscall(SYS_gettid));
    }
  };
  tell_full filled{*this};
  fail_loop failing{*this};
};

/// An item that takes its time when the training thread takes it, which holds the queue meanwhile: until the loop has
/// failed and its thread has come as far as it can.
class slow_item {
 public:
  explicit slow_item(meeting& m) noexcept : meeting_(&m) {}
  slow_item(slow_item&& other) noexcept : meeting_(std::exchange(other.meeting_, nullptr)) {
    if (meeting_ == nullptr || std::this_thread::get_id() != meeting_->trainer) return;
    meeting& m = *std::exchange(meeting_, nullptr);  // once
    m.loop->post_remote(m.failing);
    while (m.breaking == 0) std::this_thread::yield();
    while (state_of(m.breaking) != 'S') std::this_thread::yield();  // it waits for the queue
  }
  slow_item& operator=(slow_item&& other) noexcept {
    std::swap(meeting_, other.meeting_);
    return *this;
  }

 private:
  meeting* meeting_;
};

async_generator<slow_item> one_slow_item(meeting& m) {
  executor& ex = co_await this_executor();
  m.loop = &ex;
  m.loop->post_remote(m.filled);  // run when this turn is over, in which the item gets into the queue
  slow_item item(m);
  co_yield give(item);
}

// The training thread wakes the producer when it has taken an item. The loop that it wakes must be there, also when the
// loop fails in just this moment: else the address sanitizer sees a loop used that is gone.
TEST_CASE("a loop that fails while an item is taken is not gone before the queue has let go of it") {
  meeting m;
  auto r = run(one_slow_item(m), {.prefetch = 1}, {.force_epoll = true});
  m.full.get_future().wait();
  CHECK(r.next());
  CHECK_THROWS_AS(r.next(), io_error);
  CHECK_FALSE(r.next());
}

/// An item that the training thread cannot take: there is no memory for the copy.
class costly {
 public:
  costly(int value, std::thread::id trainer) noexcept : value_(value), trainer_(trainer) {}
  costly(const costly& other) : value_(other.value_), trainer_(other.trainer_) {
    if (value_ == 1 && std::this_thread::get_id() == trainer_) throw std::bad_alloc();
  }
  costly& operator=(const costly&) = default;
  int value() const noexcept { return value_; }

 private:
  int value_;
  std::thread::id trainer_;
};

async_generator<costly> many_costly(stage_life& life, std::thread::id trainer) {
  const stage_life::in_frame here(life);
  for (int i = 0; i < 100; ++i) {
    costly item(i, trainer);
    co_yield give(item);
  }
}

TEST_CASE("an item whose move throws is thrown by next() and ends the run") {
  for (const bool epoll : {false, true}) {
    stage_life life;
    auto r = run(many_costly(life, std::this_thread::get_id()), {.prefetch = 2}, {.force_epoll = epoll});
    const std::optional<costly> first = r.next();
    CHECK(first->value() == 0);
    CHECK_THROWS_AS(r.next(), std::bad_alloc);
    CHECK_FALSE(life.alive);  // the pipeline has been dropped
    CHECK_FALSE(r.next());
    CHECK(r.stats().items == 1);
  }
}

}  // namespace

namespace {

struct own_type {
  int code;
};
async_generator<int> numbers_up_to(int n) {
  for (int i = 0; i < n; ++i) {
    int value = i;
    co_yield give(value);
  }
}
async_generator<int> picky(async_generator<int> in, int how) {
  while (int* i = co_await in.next_in_place()) {
    if (*i == 2 && how == 0) throw std::out_of_range("vector::at");
    if (*i == 2 && how == 1) throw own_type{7};
    if (*i == 2 && how == 2) throw decode_error("no place");
    int value = *i;
    co_yield give(value);
  }
}

/// The lines that a run of the pipeline says, which must end with an exception of that type.
template <class Exception, class Pipeline>
std::vector<std::string> lines_of(Pipeline pipeline) {
  std::vector<std::string> lines;
  {
    runtime_options o;
    const auto add = [&](const log_record& r) { lines.emplace_back(r.text); };
    o.log = add;
    runtime rt(o);
    auto r = rt.run(std::move(pipeline), {.show = progress::off});
    CHECK_THROWS_AS(
        [&] {
          while (r.next()) continue;
        }(),
        Exception);
  }
  std::vector<std::string> about;
  for (const std::string& line : lines) {
    if (line.find("exception") != std::string::npos) about.push_back(line);
  }
  return about;
}

}  // namespace

TEST_CASE("an exception that has no place keeps its type, and the log names the stage that it came from") {
  using lines = std::vector<std::string>;
  const std::string of = "millrace: the run is ended by an exception of the stage ";
  const auto with = [](int how) {
    return [how](async_generator<int> in) { return picky(std::move(in), how); };
  };
  const auto same = map([](int i) { return i; });
  CHECK(lines_of<std::out_of_range>(numbers_up_to(5) | named("mine", with(0)) | same) ==
        lines{of + "mine: vector::at"});
  CHECK(lines_of<own_type>(numbers_up_to(5) | named("mine", with(1)) | same) ==
        lines{of + "mine: an exception that is no std::exception"});
  CHECK(lines_of<decode_error>(numbers_up_to(5) | named("mine", with(2))) == lines{});
  CHECK(lines_of<std::out_of_range>(numbers_up_to(5) | same | with(0) | same) == lines{of + "stage 3: vector::at"});
  const auto picks = [](int i) { return std::stoi(i == 3 ? "x" : "1"); };
  CHECK(lines_of<std::invalid_argument>(numbers_up_to(5) | same | map(picks) | same) == lines{of + "map #2: stoi"});
  CHECK(lines_of<std::invalid_argument>(numbers_up_to(5) | same | map_concurrent(picks) | same) ==
        lines{of + "map_concurrent: stoi"});
  CHECK(lines_of<std::bad_alloc>(numbers_up_to(5) | map([](int i) -> int {
                                   if (i == 3) throw std::bad_alloc();
                                   return i;
                                 })) == lines{of + "map: std::bad_alloc"});
}
