// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Kills processes that save checkpoints, and sees that each is whole: killed_checkpoint [KILLS [SEED]].
//
// A process of this program saves one checkpoint after the other, of one to three ranks at the same time, and is killed
// (SIGKILL) at a random moment, KILLS times in files and KILLS times in S3. After each kill every complete checkpoint
// is loaded: all of its values, and the loader's state, must be of one save, and the newest must not be older than one
// that the process has said to be committed.

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/train/checkpoint.hpp>

#include "tests/support/fail.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"

namespace mill = millrace;

namespace {

using test::fail;

constexpr std::uint64_t rows = 600;

/// The store of a folder: S3 at `endpoint`, or files if that is "files".
std::shared_ptr<const mill::storage> store_at(const std::string& endpoint) {
  if (endpoint == "files") return mill::files();
  mill::s3::config_options how;
  how.endpoint = endpoint;
  how.region = "us-east-1";
  const mill::s3::client s3(mill::s3::config(how), mill::s3::credentials("test-key", "test-secret"));
  return mill::s3::as_storage(s3);
}

mill::tensor_view view(std::vector<std::uint64_t>& values) {
  return mill::tensor_view(values.data(), mill::dtype::u64, {static_cast<std::int64_t>(values.size())});
}

mill::task<void> all_ranks(std::vector<mill::task<void>> writes) { co_await mill::all_of(std::move(writes)); }

/// Saves until it is killed. Every value of a save is its number, which no other save has.
int save(const std::string& endpoint, const std::string& folder, std::uint64_t first, std::uint32_t world) {
  const auto loop = mill::make_event_loop();
  const auto store = store_at(endpoint);
  const std::vector<std::uint64_t> before =
      mill::block_on(*loop, mill::checkpoints(store, folder, mill::rank()).complete());
  std::uint64_t step = before.empty() ? 1 : before.back() + 1;
  for (std::uint64_t number = first;; ++number, ++step) {
    // Every fourth is stored by parts.
    std::vector<std::uint64_t> w(rows, number), large(number % 4 == 0 ? 9 * mill::MiB / 8 : 1, number);
    std::vector<mill::checkpoints> ranks;
    for (std::uint32_t r = 0; r < world; ++r) ranks.emplace_back(store, folder, mill::rank{r, world});
    std::vector<mill::task<void>> writes;
    for (std::uint32_t r = 0; r < world; ++r) {
      const std::uint64_t begin = rows * r / world;
      const auto own = static_cast<std::int64_t>(rows * (r + 1) / world - begin);
      std::vector<mill::tensor_slice> mine;
      mine.emplace_back("w", mill::tensor_view(w.data() + begin, mill::dtype::u64, {own}), begin, rows);
      if (r == 0) mine.emplace_back("large", view(large));
      writes.push_back(ranks[r].write(step, std::move(mine)));
    }
    if (number == first) std::fputs("0\n", stdout);
    std::fflush(stdout);
    mill::block_on(*loop, all_ranks(std::move(writes)));
    mill::block_on(*loop, ranks[0].commit(step, "state of " + std::to_string(number), 2));
    std::printf("%llu\n", static_cast<unsigned long long>(step));
    std::fflush(stdout);
  }
}

class driver {
 public:
  driver(std::string program, std::string endpoint, std::string folder, std::uint64_t seed)
      : program_(std::move(program)), endpoint_(std::move(endpoint)), folder_(std::move(folder)), random_(seed) {}

  void run(std::uint64_t kills) {
    for (std::uint64_t i = 0; i < kills; ++i) kill_one();
    std::printf("%s: %llu kills, %llu of them while a checkpoint was saved, %llu steps: each one was whole\n",
                endpoint_ == "files" ? "files" : "S3", static_cast<unsigned long long>(kills),
                static_cast<unsigned long long>(torn_), static_cast<unsigned long long>(last_));
    if (torn_ < kills / 10 || last_ < kills / 10) fail("the kills came too early or too late");
  }

 private:
  void kill_one() {
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) fail("no pipe");
    ::posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::vector<std::string> words{
        program_, "save", endpoint_, folder_, std::to_string(saves_), std::to_string(1 + random_.below(3))};
    std::vector<char*> arguments;
    for (std::string& w : words) arguments.push_back(w.data());
    arguments.push_back(nullptr);
    ::pid_t id = 0;
    if (::posix_spawn(&id, program_.c_str(), &actions, nullptr, arguments.data(), environ) != 0) fail("no process");
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    ::pollfd first{out[0], POLLIN, 0};
    if (::poll(&first, 1, 60000) <= 0) fail("nothing is saved for a minute");
    ::usleep(static_cast<::useconds_t>(random_.below(40'000)));
    ::kill(id, SIGKILL);
    int status = 0;
    ::waitpid(id, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) fail("the process ended by itself");
    std::string said(1 << 16, '\0');
    said.resize(static_cast<std::size_t>(std::max<::ssize_t>(0, ::read(out[0], said.data(), said.size()))));
    ::close(out[0]);
    saves_ += 1 + static_cast<std::uint64_t>(std::count(said.begin(), said.end(), '\n'));
    if (said.ends_with('\n')) said.pop_back();
    const std::uint64_t acknowledged = std::strtoull(said.c_str() + said.rfind('\n') + 1, nullptr, 10);
    look(acknowledged);
  }

  /// Loads all complete checkpoints.
  void look(std::uint64_t acknowledged) {
    const auto loop = mill::make_event_loop();
    const auto store = store_at(endpoint_);
    const mill::checkpoints saved(store, folder_, mill::rank());
    const std::vector<std::uint64_t> steps = mill::block_on(*loop, saved.complete());
    const std::uint64_t newest = steps.empty() ? 0 : steps.back();
    if (newest < acknowledged || newest < last_) fail("step " + std::to_string(acknowledged) + " is lost");
    last_ = newest;
    for (const std::uint64_t step : steps) {
      const mill::tensor_files there = mill::block_on(*loop, saved.open(step));
      const mill::stored_tensor* const stored = there.find("large");
      if (stored == nullptr) fail("a tensor is lost");
      std::vector<std::uint64_t> all(rows), large(stored->dims.elements());
      std::vector<mill::tensor_slice> into;
      into.emplace_back("w", view(all));
      into.emplace_back("large", view(large));
      mill::block_on(*loop, there.load(std::move(into)));
      all.insert(all.end(), large.begin(), large.end());
      const auto same = static_cast<std::size_t>(std::count(all.begin(), all.end(), all[0]));
      if (same != all.size() || there.state() != "state of " + std::to_string(all[0])) {
        fail("step " + std::to_string(step) + " is of several saves, with the " + there.state());
      }
    }
    for (const mill::shard& s : mill::block_on(*loop, mill::detail::all_objects(store, folder_))) {
      const std::size_t digits = s.url.rfind("step-") + 5;
      if (std::strtoull(s.url.c_str() + digits, nullptr, 10) > newest) {
        ++torn_;
        break;
      }
    }
  }

  const std::string program_;
  const std::string endpoint_;
  const std::string folder_;
  mill::rng random_;
  std::uint64_t saves_ = 1;
  std::uint64_t torn_ = 0;
  std::uint64_t last_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments, arguments + count);
  try {
    const auto number = [&](int i, std::uint64_t otherwise) {
      return count > i ? std::strtoull(arguments[i], nullptr, 10) : otherwise;
    };
    if (count == 6) return save(words[2], words[3], number(4, 0), static_cast<std::uint32_t>(number(5, 0)));
    const std::uint64_t kills = number(1, 40);
    const std::uint64_t seed = number(2, 1);
    const mill::test::temporary_folder folder;
    driver(words[0], "files", folder.path() + "/", seed).run(kills);
    mill::s3_server::background server;
    server.objects().create_bucket("runs");
    driver(words[0], server.endpoint(), "s3://runs/17/", seed).run(kills);
  } catch (const mill::error& e) {
    fail(e.what());
  }
  return 0;
}
