// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// One rank of a training that an engine starts: PROGRAM FOLDER [SECONDS A STEP].
//
// It trains on FOLDER/train/*.tar for two epochs and goes on after the state in FOLDER/state. Each rank appends what it
// was trained on to FOLDER/seen.RANK.PROCESS, "STEP EPOCH KEY" a sample. After every fifth step, and when all are asked
// to stop (SIGUSR1 or SIGTERM to one of them), the ranks meet, and rank 0 saves. The exit status is 75 then.

#include "tests/engines/training.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/train/dataset.hpp>

namespace mill = millrace;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::shared_ptr<const mill::index_set> index_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  std::vector<mill::shard_index> all;
  const auto loop = mill::make_event_loop();
  for (const std::string& name : names) {
    all.push_back(mill::block_on(*loop, mill::index_shard(mill::files(), mill::shard(folder + name), name)));
  }
  return std::make_shared<const mill::index_set>(std::move(all));
}

int train(const mill::rank_group& ranks, const std::string& folder, double seconds) {
  const mill::rank& mine = ranks.mine();
  std::printf("rank %u of %u is process %ld by %s\n", mine.index, mine.world_size, static_cast<long>(::getpid()),
              mine.source);
  const std::string saved = text_of(folder + "/state");  // "STEP\nSTATE"
  const std::size_t line = saved.find('\n');
  std::uint64_t step = std::strtoull(saved.c_str(), nullptr, 10);
  const std::string state = line == std::string::npos ? std::string() : saved.substr(line + 1);
  const std::string data = folder + "/train/";
  const mill::dataset set(mill::files(), index_of(data), {.prefix = data});
  std::ofstream seen(folder + "/seen." + std::to_string(mine.index) + "." + std::to_string(::getpid()));

  mill::runtime rt;
  auto run = rt.run(
      mill::epochs(set, {.seed = 7, .epochs = 2, .batch = 2, .ranks = ranks, .tracks = 24}, state) | mill::batch(),
      {.stop_on = {SIGUSR1, SIGTERM}});
  const auto save = [&] {
    seen.flush();
    ranks.gather_now({step}, "a checkpoint");  // what it says is on all ranks' disks
    if (mine.index != 0) return;
    std::ofstream(folder + "/state.part") << step << '\n' << run.state();
    std::filesystem::rename(folder + "/state.part", folder + "/state");
  };
  for (const std::vector<mill::sample>& batch : run) {
    ++step;
    for (const mill::sample& s : batch) {
      if (s.weight() != 0) seen << step << ' ' << s.mark.epoch << ' ' << s.key << '\n';
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    if (mine.index == 0) std::printf("step %llu\n", static_cast<unsigned long long>(step));
    if (step % 5 == 0) save();
  }
  save();
  std::printf("rank %u %s after step %llu\n", mine.index, run.stopped() ? "stops" : "ends",
              static_cast<unsigned long long>(step));
  return run.stopped() ? 75 : 0;
}

}  // namespace

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (count < 2) return 2;
  try {
    return test::with_group(count, arguments, [&](const mill::rank_group& ranks) {
      return train(ranks, arguments[1], count > 2 ? std::atof(arguments[2]) : 0.05);
    });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
