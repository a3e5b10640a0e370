// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/checkpoints.md. Ranks are one after the other here.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/train/checkpoint.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

namespace mill = millrace;

namespace {

// begin save
/// This rank's rows of a weight of 1000 x 64, and of rank 0 the bias.
void save(mill::event_loop& loop, const mill::checkpoints& saved, const mill::rank& mine, std::uint64_t step,
          std::vector<float>& weight, std::vector<float>& bias) {
  const std::int64_t rows = 1000 / mine.world_size;
  std::vector<mill::tensor_slice> tensors;
  tensors.emplace_back("weight", mill::tensor_view(weight.data(), mill::dtype::f32, {rows, 64}),
                       static_cast<std::uint64_t>(rows) * mine.index, 1000);
  if (mine.index == 0) tensors.emplace_back("bias", mill::tensor_view(bias.data(), mill::dtype::f32, {64}));
  block_on(loop, saved.write(step, std::move(tensors)));
}

/// One rank, after save() has ended on all of them: a barrier, or rank_group::gather_now().
void commit(mill::event_loop& loop, const mill::checkpoints& saved, std::uint64_t step, const std::string& state) {
  block_on(loop, saved.commit(step, state, 3));
}
// end save

// begin load
/// The rows from `first` on of the newest checkpoint; gives the loader's state, empty if there is no checkpoint.
std::string load(mill::event_loop& loop, const mill::checkpoints& saved, std::uint64_t first,
                 std::vector<float>& weight) {
  const std::vector<std::uint64_t> steps = block_on(loop, saved.complete());
  if (steps.empty()) return "";
  const mill::tensor_files stored = block_on(loop, saved.open(steps.back()));
  const auto rows = static_cast<std::int64_t>(weight.size() / 64);
  std::vector<mill::tensor_slice> into;
  into.emplace_back("weight", mill::tensor_view(weight.data(), mill::dtype::f32, {rows, 64}), first);
  block_on(loop, stored.load(std::move(into)));
  return stored.state();
}
// end load

}  // namespace

TEST_CASE("guide: two ranks save, one loads", "[guide]") {
  mill::s3_server::background server;
  mill::s3::config_options o;
  const std::string endpoint = server.endpoint();
  o.endpoint = endpoint;
  const mill::s3::client s3(mill::s3::config(o), mill::s3::credentials("test-key", "test-secret"));
  server.objects().create_bucket("runs");
  const auto loop = mill::make_event_loop();
  std::vector<float> all(1000 * 64);
  const mill::checkpoints reader(s3, "s3://runs/17/");
  CHECK(load(*loop, reader, 0, all).empty());
  for (std::uint32_t r = 0; r < 2; ++r) {
    const mill::rank mine{.index = r, .world_size = 2};
    std::vector<float> weight(500 * 64, 1.0f + static_cast<float>(r)), bias(64, 3.0f);
    const mill::checkpoints saved(s3, "s3://runs/17/", mine);
    save(*loop, saved, mine, 100, weight, bias);
    if (r == 1) commit(*loop, saved, 100, "state");
  }
  CHECK(load(*loop, reader, 0, all) == "state");
  CHECK(std::count(all.begin(), all.end(), 1.0f) == 500 * 64);
  CHECK(std::count(all.begin(), all.end(), 2.0f) == 500 * 64);
  std::string names;
  // begin model
  const mill::tensor_files model = block_on(*loop, mill::open_safetensors(s3, "s3://runs/17/step-000100/"));
  for (const mill::stored_tensor& t : model.tensors()) names += t.name + ' ' + t.dims.text() + '\n';
  // end model
  CHECK(names == "bias 64\nweight 1000x64\n");
}
