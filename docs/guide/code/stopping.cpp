// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/stopping.md. The training that a signal stops is a process here, ranks are threads.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

std::string load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}
void save(const std::string& path, const std::string& state) { std::ofstream(path, std::ios::binary) << state; }

/// Writes what it is trained on to a pipe, and waits until that was read.
class model {
 public:
  model(int to, int from) : to_(to), from_(from) {}
  void train(const std::vector<mill::sample>& batch) const {
    std::string keys;
    for (const mill::sample& s : batch) {
      if (s.weight() != 0) keys += std::to_string(s.mark.epoch) + " " + s.key + "\n";
    }
    char go = 0;
    if (::write(to_, keys.data(), keys.size()) < 0 || ::read(from_, &go, 1) != 1) ::_exit(3);
  }

 private:
  int to_;
  int from_;
};

// begin signal
/// 0: it is trained to the end. 75: start it again.
int train(mill::runtime& rt, const mill::dataset& corpus, const std::string& checkpoint, const model& m) {
  auto run = rt.run(mill::epochs(corpus, {.seed = 7, .epochs = 3, .batch = 4}, load(checkpoint)) | mill::batch(),
                    {.stop_on = {SIGTERM, SIGUSR1, SIGINT}});
  for (const std::vector<mill::sample>& batch : run) m.train(batch);
  save(checkpoint, run.state());
  return run.stopped() ? 75 : 0;
}
// end signal

// begin world
/// One world, for `steps` batches on every rank. Whether there is more.
bool train(mill::runtime& rt, const mill::dataset& corpus, mill::rank mine, std::uint64_t steps, std::string& state,
           std::vector<std::string>& keys) {
  auto run = rt.run(mill::epochs(corpus, {.seed = 7, .epochs = 3, .batch = 4, .rank = mine}, state) | mill::batch());
  run.stop_after(steps);  // all ranks have agreed on it
  for (const std::vector<mill::sample>& batch : run) {
    for (const mill::sample& s : batch) {
      if (s.weight() != 0) keys.push_back(s.key);
    }
  }
  state = run.state();
  return run.stopped();
}
// end world

std::vector<std::size_t> counts() { return {9, 14, 3, 20}; }

}  // namespace

TEST_CASE("guide: a training is stopped by SIGTERM, and goes on in another process") {
  mill::test::temporary_folder folder;
  const std::string checkpoint = folder.file("checkpoint");
  const mill::test::tar_dataset data(counts(), 100);
  const auto pipe_before = ::signal(SIGPIPE, SIG_IGN);  // a child that ends too early fails the test
  std::multiset<std::string> seen;
  int status = 75;
  std::size_t starts = 0;
  for (; status == 75 && starts < 100; ++starts) {
    int out[2];
    int in[2];
    REQUIRE((::pipe(out) == 0 && ::pipe(in) == 0));
    const ::pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(out[0]);
      ::close(in[1]);
      int result = 4;
      {
        mill::runtime rt;
        result = train(rt, mill::dataset(data.store, data.indexes, {.prefix = "mem:"}), checkpoint, {out[1], in[0]});
      }
      ::_exit(result);
    }
    ::close(out[1]);
    ::close(in[0]);
    char text[4096];
    std::string all;
    for (std::size_t batches = 0;; ++batches) {
      const ::ssize_t n = ::read(out[0], text, sizeof text);
      if (n <= 0) break;
      all.append(text, static_cast<std::size_t>(n));
      if (batches == 2 + starts) ::kill(child, SIGTERM);  // while it is in train()
      static_cast<void>(!::write(in[1], ".", 1));
    }
    int left = 0;
    REQUIRE(::waitpid(child, &left, 0) == child);
    REQUIRE(WIFEXITED(left));
    status = WEXITSTATUS(left);
    ::close(out[0]);
    ::close(in[1]);
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t end = all.find('\n', at);
      seen.insert(all.substr(at, end - at));
      at = end + 1;
    }
  }
  ::signal(SIGPIPE, pipe_before);
  CHECK(status == 0);
  CHECK(starts > 3);
  std::multiset<std::string> wanted;
  for (std::uint64_t e = 0; e < 3; ++e) {
    for (const std::string& key : data.order(7, e, {.tracks = 4, .slice = mill::default_slice(*data.indexes, 1)})) {
      wanted.insert(std::to_string(e) + " " + key);
    }
  }
  CHECK(seen == wanted);
}

TEST_CASE("guide: a world shrinks and grows") {
  const mill::test::tar_dataset data(counts(), 100);
  const mill::dataset corpus(data.store, data.indexes, {.prefix = "mem:"});
  std::vector<mill::runtime> runtimes(5);
  mill::rng random(3);
  std::string state;
  std::multiset<std::string> seen;
  bool more = true;
  std::size_t worlds = 0;
  for (; more; ++worlds) {
    const std::size_t world = 1 + random.below(5);
    const std::uint64_t steps = 1 + random.below(3);
    std::vector<std::string> states(world, state);
    std::vector<std::vector<std::string>> keys(world);
    std::vector<int> going_on(world);
    const auto errors = mill::test::on_ranks(world, [&](std::size_t r) {
      const mill::rank mine{.index = static_cast<std::uint32_t>(r), .world_size = static_cast<std::uint32_t>(world)};
      going_on[r] = train(runtimes[r], corpus, mine, steps, states[r], keys[r]) ? 1 : 0;
    });
    REQUIRE(errors == std::vector<std::string>(world));
    CHECK(going_on == std::vector<int>(world, going_on[0]));
    CHECK(states == std::vector<std::string>(world, states[0]));
    more = going_on[0] != 0;
    state = states[0];
    for (const auto& each : keys) seen.insert(each.begin(), each.end());
  }
  CHECK(worlds > 5);
  const std::uint64_t slice = mill::default_slice(*data.indexes, 1);
  const std::vector<std::string> epoch = data.order(7, 0, {.tracks = 4, .slice = slice});
  std::multiset<std::string> wanted;
  for (int e = 0; e < 3; ++e) wanted.insert(epoch.begin(), epoch.end());
  CHECK(seen == wanted);
}
