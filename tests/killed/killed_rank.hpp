// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// One rank of a training that expects to be killed at any moment: the programs killed_training and killed_films.
//
//   PROGRAM ENDPOINT INDEX FOLDER SEED TRACKS EPOCHS BATCH RANK WORLD EVERY [late | PREFIX]
//
// It goes on after the state in FOLDER/state, if there is one. Before each batch it reads a byte from its standard
// input, after each it writes one. After every EVERY-th batch, and at the end, it saves FOLDER/RANK.N, N the batches
// since it was started: the loader's state, and beside it its model, which is what it was trained on. With "late" it
// makes the mistake that the test must notice: the state is that of the batch before. With a PREFIX the ranks are a
// group by objects there.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/log.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/epoch_fingerprint.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/rank_group.hpp>

namespace killed {

inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ::ssize_t n = ::write(file, text.data(), text.size());
    if (n < 0) std::exit(4);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// The file is there as a whole or not at all, whenever the process is killed.
inline void save(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".part";
  const int file = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  write_all(file, text);
  if (::fsync(file) != 0 || ::close(file) != 0 || std::rename(unfinished.c_str(), path.c_str()) != 0) std::exit(4);
}

class model {
 public:
  explicit model(std::shared_ptr<const millrace::index_set> indexes) : indexes_(std::move(indexes)) {}
  /// `line` begins with the sample's epoch and its position in it.
  void add(const std::string& line, std::uint64_t epoch, const millrace::origin& from) {
    lines_ += "sample " + line + "\n";
    const std::size_t shard = indexes_->find(std::string_view(from.from->url).substr(prefix.size())).value();
    seen_[epoch].add({shard, from.ordinal}, epoch);
  }
  std::string text() const {
    std::string all = lines_;
    for (const auto& [epoch, print] : seen_) all += "seen " + std::to_string(epoch) + " " + print.text() + "\n";
    return all + "end\n";
  }

  static constexpr std::string_view prefix = "s3://corpus/train/";

 private:
  std::shared_ptr<const millrace::index_set> indexes_;
  std::string lines_;
  std::map<std::uint64_t, millrace::epoch_fingerprint> seen_;
};

/// `batches` makes batches of epochs(), and `learn` adds one to the model.
template <class Batches, class Learn>
int train(const std::vector<std::string>& words, std::shared_ptr<const millrace::shard_format> format,
          const Batches& batches_of, const Learn& learn) {
  const auto number = [&](std::size_t i) { return std::strtoull(words.at(i).c_str(), nullptr, 10); };
  millrace::s3::config_options store;
  store.endpoint = words.at(0);
  store.region = "us-east-1";
  const millrace::s3::client s3(millrace::s3::config(store), millrace::s3::credentials("test-key", "test-secret"));
  const auto indexes =
      std::make_shared<const millrace::index_set>(millrace::read_indexes(text_of(words.at(1)), words.at(1)));
  const std::string& folder = words.at(2);
  const millrace::dataset data(s3, indexes,
                               {.format = std::move(format), .prefix = std::string(model::prefix), .slice = 4});
  millrace::epochs_options options{.seed = number(3), .epochs = number(5), .batch = number(6)};
  options.tracks = number(4);
  const millrace::rank mine{.index = static_cast<std::uint32_t>(number(7)),
                            .world_size = static_cast<std::uint32_t>(number(8))};
  const std::uint64_t every = number(9);
  const std::string how = words.size() > 10 ? words[10] : std::string();
  const bool late = how == "late";
  std::optional<millrace::rank_group> group;
  if (how.empty() || late) {
    options.rank = mine;
  } else {
    group.emplace(mine, s3, how, millrace::rank_group_options{.timeout = std::chrono::minutes(1)});
    options.ranks = *group;
  }

  millrace::runtime rt;
  auto run = rt.run(batches_of(millrace::epochs(data, options, text_of(folder + "/state"))), {.prefetch = 3});
  const std::string path = folder + "/" + words.at(7) + ".";
  model trained(indexes);
  std::uint64_t batches = 0;
  std::string before = run.state();
  std::string saved = before;  // what goes into a checkpoint now
  for (const auto& batch : run) {
    char go = 0;
    if (::read(STDIN_FILENO, &go, 1) != 1) return 3;
    learn(batch, trained);
    const std::string state = run.state();
    saved = late ? before : state;
    if (++batches % every == 0) save(path + std::to_string(batches), saved + "\n" + trained.text());
    before = state;
    write_all(STDOUT_FILENO, ".");
  }
  // Where ranks are killed at the end, one may have saved these batches in the loop and another one here: the state
  // must be the same, the late one as well.
  if (!late) saved = run.state();
  save(path + std::to_string(batches), saved + "\n" + trained.text());
  return 0;
}

/// Runs a program's main function; `train` gets its words.
template <class Train>
int main_of(int count, char** arguments, const Train& train) {
  // Hundreds of ranks run without a group, and shuffle few samples in many tracks, on purpose; their lines would hide
  // what went wrong with one.
  millrace::set_log([](const millrace::log_record& r) {
    for (const char* expected : {"without a rank_group", "tracks are many"}) {
      if (r.text.find(expected) != std::string_view::npos) return;
    }
    std::fprintf(stderr, "%.*s\n", static_cast<int>(r.text.size()), r.text.data());
  });
  try {
    return train(std::vector<std::string>(arguments + 1, arguments + count));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}

}  // namespace killed
