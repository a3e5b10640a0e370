// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Data-parallel training over MPI: every rank computes the gradient of its share of a batch, MPI_Allreduce adds them
// up. Model and loader are saved together, to the store, and a restart resumes from there, on any number of ranks: the
// global batches are the same sets of samples, so the loss is the same.
//
//   mpirun -n 3 example_distributed [BUCKET [STEPS]]          stops after STEPS steps of this start
//
// Without MPI the ranks find each other by the store, under any launcher that gives each its number:
//
//   srun --ntasks 3 example_distributed --store BUCKET [STEPS]
//   torchrun --no-python --nproc-per-node 3 example_distributed --store BUCKET [STEPS]
//
// With AWS_ENDPOINT_URL_S3 (and keys) in the environment that store is used; without, and under MPI, an S3 server
// inside rank 0. The bucket, which must be there with --store, is filled with a small data set: five shards of unequal
// length, and one to validate on.

#include <unistd.h>

#include <array>
#include <bit>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/mpi.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/s3_server/background.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/rank_group.hpp>

namespace mill = millrace;

namespace {

constexpr std::size_t global_batch = 12;  // of all ranks together
constexpr std::size_t inputs = 8;
using numbers = std::array<double, inputs + 2>;  // weights, or gradients; after them losses and samples

/// Runs tasks on the training thread: checkpoints, the data set.
template <class Task>
auto wait_for(Task work) {
  const auto loop = mill::make_event_loop();
  return mill::block_on(*loop, std::move(work));
}

// --- the data set: numbers, and what a line through them says, with noise

std::string shard_of(std::uint64_t number, int samples) {
  mill::rng random(number);
  std::string tar;
  mill::tar::writer w(tar);
  for (int i = 0; i < samples; ++i) {
    std::array<double, inputs + 1> row{};
    for (std::size_t k = 0; k < inputs; ++k) row[inputs] += (row[k] = random.uniform()) * static_cast<double>(k);
    row[inputs] += 0.1 * random.uniform();
    w.add(std::to_string(number) + "/" + std::to_string(i) + ".f64",
          std::string_view(reinterpret_cast<const char*>(row.data()), sizeof row));
  }
  w.finish();
  return tar;
}

void make_data(const mill::s3::client& s3, const std::string& bucket) {
  wait_for(s3.create_bucket("s3://" + bucket));
  const int samples[] = {40, 7, 66, 21, 90, 50};  // of the last one for validation
  for (std::uint64_t n = 0; n < 6; ++n) {
    const std::string url = "s3://" + bucket + (n < 5 ? "/train/" : "/val/") + std::to_string(n) + ".tar";
    wait_for(s3.put(url, mill::bytes::copy(shard_of(n, samples[n]))));
  }
}

/// What the shards hold. A training reads the file that millrace-index has written; these shards are small.
std::shared_ptr<const mill::index_set> index_of(const mill::s3::client& s3, const std::string& prefix, int begin,
                                                int end) {
  std::vector<mill::shard_index> all;
  for (int n = begin; n < end; ++n) {
    const std::string name = std::to_string(n) + ".tar";
    all.push_back(wait_for(mill::index_shard(mill::s3::as_storage(s3), mill::shard(prefix + name), name)));
  }
  return std::make_shared<const mill::index_set>(std::move(all));
}

// --- the model

/// Adds a sample's gradient, loss and one to `sums`; padding (weight 0) adds nothing.
void add(const mill::sample& s, const numbers& weights, numbers& sums) {
  if (s.weight() == 0) return;
  std::array<double, inputs + 1> row{};
  std::memcpy(row.data(), s["f64"].data(), sizeof row);
  double error = -row[inputs];
  for (std::size_t k = 0; k < inputs; ++k) error += weights[k] * row[k];
  for (std::size_t k = 0; k < inputs; ++k) sums[k] += 2 * error * row[k];
  sums[inputs] += error * error;
  sums[inputs + 1] += 1;
}

/// The sums of all ranks. On GPUs NCCL does this; without MPI these ten numbers go by the store.
numbers over_ranks(const mill::rank_group& ranks, numbers sums) {
  if (!ranks.by_store()) {
    MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sums;
  }
  std::vector<std::uint64_t> words(sums.size());
  std::memcpy(words.data(), sums.data(), sizeof sums);
  words = ranks.gather_now(std::move(words), "sums");
  sums = {};
  for (std::size_t i = 0; i < words.size(); ++i) sums[i % sums.size()] += std::bit_cast<double>(words[i]);
  return sums;
}

// --- the checkpoint: the loader's state, the number of the step, the weights

struct checkpoint {
  std::string state;  // empty: from the beginning
  std::uint64_t step = 0;
  numbers weights{};
};

void save(const mill::s3::client& s3, const std::string& url, const checkpoint& c) {
  std::string text = c.state + "\n" + std::to_string(c.step);
  char number[64];
  for (const double w : c.weights) text.append(number, static_cast<std::size_t>(std::snprintf(number, 64, " %a", w)));
  wait_for(s3.put(url, mill::bytes::copy(text)));
}

checkpoint load(const mill::s3::client& s3, const std::string& url) {
  checkpoint c;
  try {
    const mill::bytes text = wait_for(s3.read(url));
    const std::string all(text.view());
    c.state = all.substr(0, all.find('\n'));
    char* at = nullptr;
    c.step = std::strtoull(all.c_str() + c.state.size(), &at, 10);
    for (double& w : c.weights) w = std::strtod(at, &at);
  } catch (const mill::s3::error& e) {
    if (e.status() != 404) throw;
  }
  return c;
}

void train(const mill::s3::client& s3, const std::string& bucket, const mill::rank_group& ranks, std::uint64_t steps) {
  const mill::rank& mine = ranks.mine();
  const std::string train_prefix = "s3://" + bucket + "/train/";
  const std::string val_prefix = "s3://" + bucket + "/val/";
  const std::string saved = "s3://" + bucket + "/checkpoint";
  const mill::dataset training_set(s3, index_of(s3, train_prefix, 0, 5), {.prefix = train_prefix});
  const mill::dataset validation_set(s3, index_of(s3, val_prefix, 5, 6), {.prefix = val_prefix});
  checkpoint now = load(s3, saved);
  if (global_batch % mine.world_size != 0) {
    throw mill::configuration_error("a global batch of " + std::to_string(global_batch) +
                                    " samples has no equal share for " + std::to_string(mine.world_size) +
                                    " ranks: start 1, 2, 3, 4, 6 or 12");
  }
  const std::size_t batch = global_batch / mine.world_size;
  // Seed, data, batch and state are compared: a rank that differs is an error on all, instead of a training that hangs.
  const mill::epochs_options options{.seed = 7, .epochs = 3, .batch = batch, .ranks = ranks, .tracks = 60};

  mill::runtime rt;
  // Whichever rank gets SIGTERM, all of them stop after the same step.
  auto run = rt.run(mill::epochs(training_set, options, now.state) | mill::batch(), {.stop_on = {SIGTERM}});
  for (const std::vector<mill::sample>& samples : run) {
    numbers sums{};
    for (const mill::sample& s : samples) add(s, now.weights, sums);
    sums = over_ranks(ranks, sums);  // every rank is here in every step: all have the same number of batches
    const double count = sums[inputs + 1];
    for (std::size_t k = 0; k < inputs; ++k) now.weights[k] -= 0.1 * sums[k] / count;
    ++now.step;
    if (mine.index == 0) {
      std::printf("step %llu: loss %.9f over %.0f samples\n", static_cast<unsigned long long>(now.step),
                  sums[inputs] / count, count);
    }
    if (samples.back().mark.last) {
      numbers all{};
      for (const std::vector<mill::sample>& seen :
           rt.run(mill::epochs(validation_set, {.batch = 5, .ranks = ranks, .tracks = 6}) | mill::batch())) {
        for (const mill::sample& s : seen) add(s, now.weights, all);
      }
      all = over_ranks(ranks, all);
      if (mine.index == 0)
        std::printf("validation: loss %.9f over %.0f samples\n", all[inputs] / all[inputs + 1], all[inputs + 1]);
    }
    now.state = run.state();  // the same on all ranks, so one of them saves it
    if (mine.index == 0 && now.step % 5 == 0) save(s3, saved, now);
    if (--steps == 0) break;
  }
  if (mine.index == 0 && run.stopped()) save(s3, saved, now);
}

/// The environment's store; without one, rank 0 has a server, whose address it sends to the others.
mill::s3::client store_of_all(std::optional<mill::s3_server::background>& server, const mill::rank& mine) {
  if (std::getenv("AWS_ENDPOINT_URL_S3") != nullptr) return mill::s3::client::from_environment();
  char endpoint[64] = "";
  if (mine.index == 0) std::snprintf(endpoint, sizeof endpoint, "%s", server.emplace().endpoint().c_str());
  MPI_Bcast(endpoint, sizeof endpoint, MPI_CHAR, 0, MPI_COMM_WORLD);
  mill::s3::config_options how;
  how.endpoint = endpoint;
  return mill::s3::client(mill::s3::config(how), mill::s3::credentials("test-key", "test-secret"));
}

/// Without MPI.
int train_by_store(const std::string& bucket, std::uint64_t steps) {
  try {
    const mill::s3::client s3 = mill::s3::client::from_environment();
    const mill::rank_group ranks(mill::rank_from_environment(), s3, "s3://" + bucket + "/ranks/");
    const mill::rank& mine = ranks.process();
    std::printf("rank %u of %u is process %ld\n", mine.index, mine.world_size, static_cast<long>(::getpid()));
    if (mine.index == 0) make_data(s3, bucket);
    ranks.gather_now({}, "the data are there");
    train(s3, bucket, ranks, steps);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (count > 2 && std::strcmp(arguments[1], "--store") == 0) {
    return train_by_store(arguments[2], count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 0);
  }
  MPI_Init(&count, &arguments);
  try {
    const mill::rank_group ranks = mill::mpi_ranks();
    const mill::rank& mine = ranks.process();  // on GPUs: cuda::device::for_local_rank(mine.local_index)
    std::printf("rank %u of %u is process %ld\n", mine.index, mine.world_size, static_cast<long>(::getpid()));
    std::optional<mill::s3_server::background> server;
    const mill::s3::client s3 = store_of_all(server, mine);
    const std::string bucket = count > 1 ? arguments[1] : "millrace-distributed";
    if (mine.index == 0) make_data(s3, bucket);
    MPI_Barrier(MPI_COMM_WORLD);
    train(s3, bucket, ranks, count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0);
    MPI_Barrier(MPI_COMM_WORLD);  // the server is of all
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);  // the others would wait for this rank
  }
  MPI_Finalize();
}
