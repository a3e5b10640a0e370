// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/detail/host_copy.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/log.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using detail::host_copy;

// A text that the ranks of a machine read once.
namespace {

const std::string content = std::string(100'000, 'x') + "the listing";

rank rank_of(std::uint32_t index, std::uint32_t ranks) {
  return {.index = index, .world_size = ranks, .local_index = index, .local_world_size = ranks};
}

/// What a rank does: it takes the copy, or takes `slow_ms` to make it, and writes a byte to `begun` before.
task<std::string> got(std::string folder, rank mine, std::uint64_t slow_ms, bool& made, int begun = -1) {
  executor& ex = co_await this_executor();
  host_copy copy(folder, "the listing of x\n", mine);
  const bool there = co_await copy.find();
  made = !there;
  if (there) co_return std::string(copy.text());
  if (begun >= 0 && ::write(begun, "", 1) != 1) std::abort();
  if (slow_ms != 0) co_await sleep_for(std::chrono::milliseconds(slow_ms));
  copy.give(ex, std::string_view(content).substr(0, 50), std::string_view(content).substr(50));
  co_return content;
}

bool makes(const std::string& folder, const rank& mine) {
  testing::virtual_loop loop;
  bool made = false;
  CHECK(block_on(loop, got(folder, mine, 0, made)) == content);
  return made;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) all.push_back(entry.path().string());
  return all;
}

std::string text_in(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// Ranks that are processes.
class processes {
 public:
  processes() { REQUIRE(::pipe(begun_) == 0); }
  ~processes() {
    ::close(begun_[0]);
    ::close(begun_[1]);
    for (const pid_t p : running_) {
      if (p > 0 && ::kill(p, SIGKILL) == 0) ::waitpid(p, nullptr, 0);
    }
  }
  /// The exit status: 0 took it, 1 made it, 2 has another text, 3 for an error.
  void start(const std::string& folder, std::uint32_t index, std::uint32_t ranks, std::uint64_t slow_ms) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      set_log([](const log_record&) {});
      int status = 3;
      try {
        const auto loop = make_event_loop();
        bool made = false;
        const std::string text = block_on(*loop, got(folder, rank_of(index, ranks), slow_ms, made, begun_[1]));
        status = text != content ? 2 : made ? 1 : 0;
      } catch (...) {
        status = 3;  // which the test sees
      }
      ::_exit(status);
    }
    REQUIRE(pid > 0);
    running_.push_back(pid);
  }
  void wait_for_maker() {
    char byte = 0;
    REQUIRE(::read(begun_[0], &byte, 1) == 1);
  }
  void kill(std::size_t i) {
    ::kill(running_[i], SIGKILL);
    static_cast<void>(status_of(i));
  }
  int status_of(std::size_t i) {
    int status = 0;
    REQUIRE(::waitpid(running_[i], &status, 0) == running_[i]);
    running_[i] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int begun_[2] = {};
  std::vector<pid_t> running_;
};

}  // namespace

TEST_CASE("processes that start at once read a copy of the machine once, and none is left") {
  const test::temporary_folder at;
  for (std::uint64_t turn = 0; turn < 5; ++turn) {
    INFO("turn " << turn);
    processes ranks;
    constexpr std::uint32_t n = 8;
    for (std::uint32_t r = 0; r < n; ++r) ranks.start(at.path(), r, n, turn * 5);
    int made = 0;
    for (std::uint32_t r = 0; r < n; ++r) {
      const int status = ranks.status_of(r);
      CHECK((status == 0 || status == 1));
      made += status == 1 ? 1 : 0;
    }
    CHECK(made == 1);
    CHECK(files_in(at.path()).empty());
  }
}

TEST_CASE("a rank that is killed while it makes a copy is followed by another one") {
  const test::temporary_folder at;
  rng random(4);
  for (int turn = 0; turn < 5; ++turn) {
    INFO("turn " << turn);
    processes ranks;
    ranks.start(at.path(), 0, 4, 1'000'000);
    ranks.wait_for_maker();
    for (std::uint32_t r = 1; r < 4; ++r) ranks.start(at.path(), r, 4, 30);
    for (volatile std::uint64_t n = random.below(3'000'000); n > 0;) n = n - 1;  // some come to wait for it
    ranks.kill(0);
    int made = 0;
    for (std::uint32_t r = 1; r < 4; ++r) {
      const int status = ranks.status_of(r);
      CHECK((status == 0 || status == 1));
      made += status == 1 ? 1 : 0;
    }
    CHECK(made == 1);
    CHECK(files_in(at.path()).size() == 1);  // which rank 0 may take when it is started again
    ranks.start(at.path(), 0, 4, 0);
    CHECK(ranks.status_of(4) == 0);
    CHECK(files_in(at.path()).empty());
  }
}

TEST_CASE("a copy of the machine is of one start, whole and of this user, or it is made anew") {
  const test::temporary_folder at;
  const std::string& in = at.path();
  const test::captured_stderr log(test::captured_stderr::into::pipe);
  CHECK(makes(in, rank_of(0, 1)));  // alone: no file
  CHECK(files_in(in).empty());
  CHECK(makes(in, rank_of(0, 3)));
  REQUIRE(files_in(in).size() == 1);
  const std::string file = files_in(in).front();
  struct stat is {};
  REQUIRE(::stat(file.c_str(), &is) == 0);
  CHECK((is.st_mode & 0777) == 0600);
  CHECK_THAT(file, Contains("/millrace-" + std::to_string(::geteuid()) + "-"));
  CHECK(makes(in, rank_of(0, 3)));  // again
  CHECK(!makes(in, rank_of(1, 3)));
  CHECK(makes(in, rank_of(1, 3)));
  CHECK(makes(in, rank_of(0, 2)));  // another machine's number of ranks
  CHECK(files_in(in).size() == 2);
  CHECK(!makes(in, rank_of(1, 2)));
  CHECK(files_in(in).size() == 1);
  // Every byte but the marks is checked.
  const std::string whole = text_in(file);
  for (std::size_t n : {std::size_t{0}, std::size_t{9}, std::size_t{13}, std::size_t{17}, std::size_t{26},
                        std::size_t{40}, std::size_t{48}, whole.size() - 4}) {
    INFO("byte " << n);
    std::string wrong = whole;
    wrong[n] ^= 1;
    std::ofstream(file, std::ios::binary) << wrong;
    CHECK(makes(in, rank_of(2, 3)));
  }
  for (const std::size_t n : {std::size_t{1}, std::size_t{47}, std::size_t{60}, whole.size() - 1}) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, n);
    CHECK(makes(in, rank_of(2, 3)));
  }
  // An old one; and one that no rank takes is removed by who makes another.
  std::string old = whole;
  std::string begun;
  detail::append_le(begun, static_cast<std::uint64_t>(::time(nullptr) - 700), 8);
  old.replace(16, 8, begun);
  std::string sum;
  detail::append_le(sum, crc32c(0, old.data() + 16, old.size() - 16 - 3), 4);
  old.replace(8, 4, sum);
  std::ofstream(file, std::ios::binary) << old;
  const std::string left = at.file("millrace-" + std::to_string(::geteuid()) + "-0123", "what a killed one has left");
  const std::string other = at.file("millrace-other", "of something else");
  for (const std::string& f : {left, other}) {
    std::filesystem::last_write_time(f, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  CHECK(makes(in, rank_of(2, 3)));
  CHECK(!std::filesystem::exists(left));
  CHECK(std::filesystem::exists(other));
  // A link is no file of ours.
  std::filesystem::remove(file);
  std::filesystem::create_symlink(at.file("elsewhere", whole), file);
  CHECK(makes(in, rank_of(2, 3)));
  CHECK(text_in(at.file("elsewhere")) == whole);
}

TEST_CASE("without a folder, without space, and beside a rank that stands still, each rank reads for itself") {
  std::vector<std::string> lines;
  const auto keep = [&lines](const log_record& r) { lines.emplace_back(r.text); };
  set_log(keep);
  CHECK(makes("/no/such/folder", rank_of(0, 2)));
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.back(), Contains("millrace: the listing of x is not shared by the ranks of this machine, and each "
                                    "reads it: /no/such/folder/millrace-") &&
                               Contains(": No such file or directory"));
  CHECK(makes("", rank_of(0, 2)));
  CHECK(lines.size() == 1);
  const test::temporary_folder at;
  {
    struct rlimit before {};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const struct rlimit small { 4096, before.rlim_max };
    const auto handler = ::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    const bool made = makes(at.path(), rank_of(0, 3));
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    ::signal(SIGXFSZ, handler);
    CHECK(made);
  }
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines.back(), Contains(": File too large"));
  CHECK(makes(at.path(), rank_of(1, 3)));  // at once
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines.back(), Contains("another rank could not leave it"));
  // A process that holds the lock and does nothing, for 30 s of virtual time.
  std::filesystem::remove(files_in(at.path()).front());
  processes ranks;
  ranks.start(at.path(), 0, 3, 1'000'000);
  ranks.wait_for_maker();
  CHECK(makes(at.path(), rank_of(1, 3)));
  CHECK_THAT(lines.back(), Contains("the rank that reads it has not moved for 30 s"));
  set_log(nullptr);
}
