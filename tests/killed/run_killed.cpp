// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Kills trainings, and sees that nothing is lost or comes twice:
// run_killed KILLED_TRAINING [KILLS|world [SEED [films]]].
//
// The store is a server in this process. A training of one to three ranks, each a process, is killed (SIGKILL) at a
// random batch, one rank first; it goes on, on a random number of ranks with batches of a random size, from the last
// state that all of its ranks had saved; until it ends. What was trained on after those states, one after the other,
// must be what a training trains on that is never killed: the same samples, bytes and random numbers in the same order.
// And the fingerprints of all parts must add up to each epoch's.
//
// With "films" the program is killed_films: samples are clips of the films that it draws, and the bytes are the digests
// of their frames as decode_video() has written them into rows.
//
// With "world" there is one training, whose world shrinks and grows ten times, each time after a kill. Its ranks are a
// group by the store, where the killed ones leave what they had not removed.

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/order/epoch_fingerprint.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/tar/writer.hpp>

#include "tests/support/fail.hpp"
#include "tests/support/s3_server.hpp"

namespace mill = millrace;

namespace {

using test::fail;

/// A rank's process, with what tells it to go on and what it answers.
class process {
 public:
  process(const std::string& program, std::vector<std::string> words) {
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) fail("no pipe");
    ::posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    words.insert(words.begin(), program);
    std::vector<char*> arguments;
    for (std::string& w : words) arguments.push_back(w.data());
    arguments.push_back(nullptr);
    if (::posix_spawn(&id_, program.c_str(), &actions, nullptr, arguments.data(), environ) != 0) {
      fail("the training cannot be started: " + program);
    }
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    to_ = in[1];
    from_ = out[0];
  }
  process(process&& other) noexcept
      : id_(other.id_), to_(std::exchange(other.to_, -1)), from_(std::exchange(other.from_, -1)) {}
  process& operator=(process&&) = delete;
  ~process() {
    if (to_ >= 0) ::close(to_);
    if (from_ >= 0) ::close(from_);
  }

  int from() const noexcept { return from_; }
  void allow(std::uint64_t batches) const {
    const std::string go(batches, '.');
    if (::write(to_, go.data(), go.size()) != static_cast<::ssize_t>(go.size())) fail("a rank takes no word");
  }
  void kill() const noexcept { ::kill(id_, SIGKILL); }
  /// Waits for its end: whether it came by itself, as it should.
  bool ended_well() const {
    int status = 0;
    if (::waitpid(id_, &status, 0) != id_) fail("a rank cannot be waited for");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return false;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail("a rank left with status " + std::to_string(status));
    return true;
  }

 private:
  ::pid_t id_ = 0;
  int to_ = -1;
  int from_ = -1;
};

/// What a rank had saved.
class checkpoint {
 public:
  std::string state;
  std::vector<std::string> samples;
  std::map<std::uint64_t, mill::epoch_fingerprint> seen;

  explicit checkpoint(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::getline(file, state);
    std::string line;
    while (std::getline(file, line) && line != "end") {
      std::istringstream words(line);
      std::string kind;
      std::uint64_t epoch = 0;
      std::string rest;
      words >> kind;
      if (kind == "sample") {
        samples.push_back(line.substr(7));
      } else if (words >> epoch >> rest) {
        seen[epoch] += mill::epoch_fingerprint::parse(rest).value();
      }
    }
    if (line != "end") fail("what was saved is cut: " + path.string());
  }
};

using place = std::pair<std::uint64_t, std::uint64_t>;  // epoch and position
place place_of(const std::string& sample) {
  place at;
  std::istringstream(sample) >> at.first >> at.second;
  return at;
}

class drawn_training {
 public:
  std::uint64_t seed = 0;
  std::uint64_t tracks = 24;
  std::uint64_t epochs = 3;
  std::string folder;
};

class attempt {
 public:
  std::uint64_t world = 1;
  std::uint64_t batch = 4;
  std::uint64_t every = 1;
  std::uint64_t victim = 0;
  std::uint64_t batches = UINT64_MAX;  // of the victim, until it is killed
  std::uint64_t more = 0;              // that the ranks may train on meanwhile
  bool late = false;
  bool grouped = false;
};

class driver {
 public:
  driver(std::string program, std::uint64_t seed, bool films)
      : program_(std::move(program)), films_(films), random_(seed) {
    root_ = std::filesystem::temp_directory_path() / ("run_killed." + std::to_string(::getpid()));
    std::filesystem::create_directory(root_);
    mill::s3::config_options how;
    how.endpoint = server_.endpoint();
    how.region = "us-east-1";
    const mill::s3::client s3{mill::s3::config(how), mill::s3::credentials("test-key", "test-secret")};
    const auto format = films ? mill::video_shards({.seconds = 1}) : mill::tar_shards();
    if (films && !process(program_, {"draw", root_.string()}).ended_well()) fail("the films were not drawn");
    std::vector<mill::shard_index> made;
    std::string indexes;
    for (std::size_t n = 0; n < 5; ++n) {
      const std::string name = std::to_string(n) + (films ? ".mp4" : ".tar");
      server_.put("corpus", "train/" + name, films ? film(name) : tar(n));
      const auto loop = mill::make_event_loop();
      made.push_back(mill::block_on(
          *loop, mill::index_shard(mill::s3::as_storage(s3), mill::shard("s3://corpus/train/" + name), name, format)));
      indexes += made.back().text();
    }
    std::ofstream(root_ / "index", std::ios::binary) << indexes;
    counts_ = mill::index_set(std::move(made)).counts();
  }
  ~driver() { std::filesystem::remove_all(root_); }

  /// Kills trainings until that has been done `kills` times, and lets the last one end.
  void run(std::uint64_t kills) {
    while (killed_ < kills) {
      const drawn_training t = draw();
      const std::vector<std::string> wanted = uninterrupted(t);
      const std::vector<std::string> got = killed(t, kills, false);
      if (got != wanted) fail(difference(got, wanted));
      ++trainings_;
    }
    std::printf(
        "%llu kills of %llu trainings, %llu processes; %llu went on on another number of ranks, %llu of them "
        "from 2 on 3; %llu from the beginning\n",
        static_cast<unsigned long long>(killed_), static_cast<unsigned long long>(trainings_),
        static_cast<unsigned long long>(processes_), static_cast<unsigned long long>(changes_),
        static_cast<unsigned long long>(two_to_three_), static_cast<unsigned long long>(fresh_));
    if (changes_ < kills / 4 || two_to_three_ == 0) fail("the number of ranks changed too seldom");
  }
  /// A training goes on in a world of another size after each kill.
  void change_world() {
    const drawn_training t = draw();
    const std::vector<std::string> wanted = uninterrupted(t);
    std::vector<std::string> all;
    std::map<std::uint64_t, mill::epoch_fingerprint> seen;
    for (const std::uint64_t world : {1U, 2U, 4U, 3U, 1U, 5U, 2U, 4U, 1U, 3U, 2U}) {
      attempt a;
      a.world = world;
      a.batch = 1 + random_.below(2);
      a.victim = random_.below(world);
      a.more = 1 + random_.below(3);
      a.grouped = true;
      if (killed_ < 10) a.batches = 3 + random_.below(4);
      const std::size_t before = all.size();
      const bool over = go(t, a);
      collect(t, world, all, seen);
      if (over != (killed_ == 10)) fail("the training ended too early, or not at all");
      if (!over) ++killed_;
      if (all.size() == before) fail("a world of " + std::to_string(world) + " has not been trained on");
    }
    if (all != wanted) fail(difference(all, wanted));
    verify(t, seen);
    std::printf("the world changed after each of %llu kills: every sample once an epoch\n",
                static_cast<unsigned long long>(killed_));
  }
  /// A state that is saved a batch late must be noticed.
  void see_a_late_state() {
    const drawn_training t = draw();
    const std::vector<std::string> wanted = uninterrupted(t);
    const std::uint64_t before = killed_;
    if (killed(t, UINT64_MAX, true) == wanted) fail("a state that is a batch late was not noticed");
    killed_ = before;
    std::puts("a state that is saved a batch late is noticed");
  }

 private:
  std::string tar(std::size_t n) {
    std::string text;
    mill::tar::writer w(text);
    for (std::size_t i = 0; i < 20 + 10 * n; ++i) {
      const std::string key = std::to_string(n) + "/" + std::to_string(i);
      w.add(key + ".bin", std::string(random_.below(3000), static_cast<char>('a' + i % 26)));
      w.add(key + ".cls", key);
    }
    w.finish();
    return text;
  }
  std::string film(const std::string& name) const {
    std::ifstream file(root_ / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  drawn_training draw() {
    drawn_training t;
    t.seed = random_.below(1000000);
    const std::uint64_t tracks[] = {24, 20, 7};
    t.tracks = tracks[random_.below(3)];
    t.folder = (root_ / std::to_string(folders_++)).string();
    std::filesystem::create_directory(t.folder);
    return t;
  }

  std::vector<std::string> uninterrupted(const drawn_training& t) {
    drawn_training alone = t;
    alone.folder += ".whole";
    std::filesystem::create_directory(alone.folder);
    std::map<std::uint64_t, mill::epoch_fingerprint> seen;
    std::vector<std::string> all;
    if (!go(alone, attempt())) fail("the uninterrupted training was interrupted");
    collect(alone, 1, all, seen);
    verify(alone, seen);
    if (all.size() != t.epochs * counts_->samples()) fail("the uninterrupted training has another length");
    return all;
  }

  /// What it was trained on after the states that it went on from.
  std::vector<std::string> killed(const drawn_training& t, std::uint64_t kills, bool late) {
    std::vector<std::string> all;
    std::map<std::uint64_t, mill::epoch_fingerprint> seen;
    std::uint64_t last_world = 0;
    for (bool over = false; !over;) {
      attempt a;
      a.world = 1 + random_.below(3);
      a.batch = 1 + random_.below(4);
      a.every = 1 + random_.below(3);
      a.victim = random_.below(a.world);
      a.more = 1 + random_.below(3);
      a.late = late;
      if (killed_ < kills) a.batches = random_.below(films_ ? 8 : 25);  // of films there are fewer samples
      const bool from_state = std::filesystem::exists(t.folder + "/state");
      if (last_world != 0 && from_state && a.world != last_world) ++changes_;
      if (last_world == 2 && from_state && a.world == 3) ++two_to_three_;
      if (last_world != 0 && !from_state) ++fresh_;
      last_world = a.world;
      over = go(t, a);
      if (!over) ++killed_;
      collect(t, a.world, all, seen);
      if (late && all.size() > t.epochs * counts_->samples()) return all;
    }
    if (!late) verify(t, seen);
    return all;
  }

  /// Starts all ranks, and kills them where the attempt says so: whether the training came to its end before.
  bool go(const drawn_training& t, const attempt& a) {
    std::vector<process> ranks;
    for (std::uint64_t r = 0; r < a.world; ++r) {
      std::vector<std::string> words{server_.endpoint(), (root_ / "index").string(), t.folder};
      for (const std::uint64_t n : {t.seed, t.tracks, t.epochs, a.batch, r, a.world, a.every}) {
        words.push_back(std::to_string(n));
      }
      if (a.late) words.emplace_back("late");
      if (a.grouped) words.emplace_back("s3://corpus/ranks/");
      ranks.emplace_back(program_, std::move(words));
      ++processes_;
      ranks.back().allow(a.batches == UINT64_MAX ? 10000 : a.batches + a.more);
    }
    const bool kills = a.batches != UINT64_MAX;
    bool due = kills && a.batches == 0;
    std::vector<std::uint64_t> done(ranks.size());  // batches
    std::vector<::pollfd> open;
    for (const process& p : ranks) open.push_back({p.from(), POLLIN, 0});
    while (!due && std::any_of(open.begin(), open.end(), [](const ::pollfd& f) { return f.fd >= 0; })) {
      if (::poll(open.data(), open.size(), 60000) <= 0) fail("no rank does anything for a minute");
      for (std::size_t r = 0; r < open.size(); ++r) {
        std::array<char, 512> answers{};
        if (open[r].revents == 0) continue;
        const ::ssize_t n = ::read(open[r].fd, answers.data(), answers.size());
        if (n <= 0) {
          open[r].fd = -1;  // it has ended
        } else {
          done[r] += static_cast<std::uint64_t>(n);
          // The ranks of a group begin together, some tenths of a second apart.
          due = kills && done[static_cast<std::size_t>(a.victim)] >= a.batches &&
                (!a.grouped || std::find(done.begin(), done.end(), 0U) == done.end());
        }
      }
    }
    if (due) {
      ranks[static_cast<std::size_t>(a.victim)].kill();
      for (const process& p : ranks) p.kill();
    }
    bool well = true;
    for (const process& p : ranks) well = p.ended_well() && well;
    return well;
  }

  /// Takes what all ranks had saved last after the same number of batches, and makes its state the one to go on from.
  void collect(const drawn_training& t, std::uint64_t world, std::vector<std::string>& all,
               std::map<std::uint64_t, mill::epoch_fingerprint>& seen) {
    std::vector<std::uint64_t> last(static_cast<std::size_t>(world), 0);
    std::vector<std::filesystem::path> old;
    for (const auto& file : std::filesystem::directory_iterator(t.folder)) {
      const std::string name = file.path().filename().string();
      if (name == "state") continue;
      old.push_back(file.path());
      const std::string n = file.path().extension().string();
      if (n == ".part") continue;
      std::uint64_t& known = last.at(std::stoul(file.path().stem().string()));
      known = std::max<std::uint64_t>(known, std::stoull(n.substr(1)));
    }
    const std::uint64_t common = *std::min_element(last.begin(), last.end());
    if (common != 0) {
      std::vector<std::string> samples;
      std::string state;
      for (std::uint64_t r = 0; r < world; ++r) {
        const checkpoint saved(t.folder + "/" + std::to_string(r) + "." + std::to_string(common));
        if (r != 0 && saved.state != state) fail("ranks have other states after as many batches");
        state = saved.state;
        samples.insert(samples.end(), saved.samples.begin(), saved.samples.end());
        for (const auto& [epoch, print] : saved.seen) seen[epoch] += print;
      }
      std::sort(samples.begin(), samples.end(),
                [](const std::string& x, const std::string& y) { return place_of(x) < place_of(y); });
      all.insert(all.end(), samples.begin(), samples.end());
      std::ofstream(t.folder + "/state") << state;
    }
    for (const std::filesystem::path& path : old) std::filesystem::remove(path);
  }

  void verify(const drawn_training& t, const std::map<std::uint64_t, mill::epoch_fingerprint>& seen) const {
    if (seen.size() != t.epochs) fail("there are samples of another number of epochs");
    for (const auto& [epoch, print] : seen) {
      if (const std::string wrong = mill::verify_epoch(*counts_, epoch, print); !wrong.empty()) fail(wrong);
    }
  }

  static std::string difference(const std::vector<std::string>& got, const std::vector<std::string>& wanted) {
    const auto at = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end());
    return "sample " + std::to_string(at.first - got.begin()) + " is \"" +
           (at.first == got.end() ? std::string("none") : *at.first) + "\" and not \"" +
           (at.second == wanted.end() ? std::string("none") : *at.second) + "\"";
  }

  mill::s3_server::background server_;
  std::string program_;
  const bool films_;
  mill::rng random_;
  std::filesystem::path root_;
  std::shared_ptr<const mill::shard_counts> counts_;
  std::uint64_t folders_ = 0;
  std::uint64_t killed_ = 0;
  std::uint64_t trainings_ = 0;
  std::uint64_t processes_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t two_to_three_ = 0;
  std::uint64_t fresh_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::printf("usage: %s KILLED_TRAINING [KILLS|world [SEED [films]]]\n", arguments[0]);
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  const bool world = count > 2 && std::string(arguments[2]) == "world";
  const std::uint64_t kills = count > 2 && !world ? std::strtoull(arguments[2], nullptr, 10) : 100;
  const std::uint64_t seed = count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  try {
    driver all(arguments[1], seed, count > 4 && std::string(arguments[4]) == "films");
    if (world) {
      all.change_world();
      return 0;
    }
    all.run(kills);
    all.see_a_late_state();
    return 0;
  } catch (const std::exception& e) {
    fail(e.what());
  }
}
