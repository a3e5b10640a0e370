// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Writes a checkpoint of a model to S3, in safetensors with the loader's state, and reads it back.
//
//   example_checkpoint [BUCKET]
//
// With AWS_ENDPOINT_URL_S3 (and keys) in the environment that store is used; without, an S3 server inside this program.

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/train/checkpoint.hpp>

#include "examples/common/connect.hpp"

namespace mill = millrace;

namespace {

struct tensor {
  std::string name;
  std::vector<float> values;
};
using model = std::vector<tensor>;

/// The memory of all tensors, by their names.
std::vector<mill::tensor_slice> memory_of(model& m) {
  std::vector<mill::tensor_slice> all;
  for (tensor& t : m) {
    const mill::shape dims{static_cast<std::int64_t>(t.values.size())};
    all.emplace_back(t.name, mill::tensor_view(t.values.data(), mill::dtype::f32, dims));
  }
  return all;
}

/// Memory for what is stored, filled with it.
model load(mill::event_loop& loop, const mill::tensor_files& stored) {
  model m;
  for (const mill::stored_tensor& t : stored.tensors()) m.push_back({t.name, std::vector<float>(t.dims.elements())});
  mill::block_on(loop, stored.load(memory_of(m)));
  return m;
}

int save_and_load(const std::string& bucket) {
  model m;
  for (int layer = 0; layer < 6; ++layer) {
    m.push_back({"layer" + std::to_string(layer) + "/bias", std::vector<float>(1024, 1.0f)});
    m.push_back(
        {"layer" + std::to_string(layer) + "/weight", std::vector<float>(1 << 20, 0.25f * static_cast<float>(layer))});
  }
  std::optional<mill::s3_server::background> server;
  const mill::s3::client s3 = examples::connect(server);
  const auto loop = mill::make_event_loop();
  mill::block_on(*loop, s3.create_bucket("s3://" + bucket));
  const mill::checkpoints saved(s3, "s3://" + bucket + "/checkpoints/");
  const std::vector<std::uint64_t> before = mill::block_on(*loop, saved.complete());
  const std::uint64_t step = before.empty() ? 1000 : before.back() + 1000;
  mill::block_on(*loop, saved.write(step, memory_of(m)));                   // every rank writes its own
  mill::block_on(*loop, saved.commit(step, "the state of the loader", 3));  // then one makes it visible; 3 are kept
  std::uint64_t bytes = 0;
  const mill::tensor_files stored = mill::block_on(*loop, saved.open(step));
  for (const mill::tensor_files::file& f : stored.files()) bytes += f.object.size.value_or(0);
  std::printf("stored %s: %s\n", stored.files().front().object.url.c_str(),
              mill::format_bytes(static_cast<double>(bytes)).c_str());

  const model loaded = load(*loop, stored);
  bool equal = loaded.size() == m.size();
  for (std::size_t i = 0; equal && i < m.size(); ++i) {
    equal = loaded[i].name == m[i].name && loaded[i].values == m[i].values;
  }
  std::printf("loaded %zu tensors: %s\n", loaded.size(), equal ? "the same" : "NOT the same");
  return equal ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return save_and_load(count > 1 ? arguments[1] : "millrace-checkpoint");
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
