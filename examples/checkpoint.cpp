// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Writes a checkpoint to S3 as it is made, in parts, and reads it back: a tar archive with a member per tensor. Writing
// and reading hold a few parts in memory.
//
//   example_checkpoint [BUCKET]
//
// With AWS_ENDPOINT_URL_S3 (and keys) in the environment that store is used; without, an S3 server inside this program.

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/writer.hpp>

#include "examples/common/connect.hpp"

namespace mill = millrace;

namespace {

struct tensor {
  std::string name;
  std::vector<float> values;
};
using model = std::vector<tensor>;

std::string_view raw(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// The checkpoint as a stream; yielded pieces may be freed while the next tensor is written.
mill::async_generator<mill::bytes> checkpoint_of(const model& m) {
  std::string text;
  mill::tar::writer archive(text);
  for (const tensor& t : m) {
    archive.add(t.name, raw(t.values));
    mill::bytes written = mill::bytes::copy(text);
    text.clear();
    co_yield give(written);
  }
  archive.finish();
  mill::bytes end = mill::bytes::copy(text);
  co_yield give(end);
}

model load(const mill::s3::client& s3, const std::string& url) {
  model m;
  auto members = mill::shards(url) | mill::fetch(s3, {.shards = 1}) | mill::untar();
  for (const mill::member& found : mill::run(std::move(members))) {
    const mill::bytes& body = found.entry.body;
    tensor t{found.entry.name, std::vector<float>(body.size() / sizeof(float))};
    std::memcpy(t.values.data(), body.data(), t.values.size() * sizeof(float));
    m.push_back(std::move(t));
  }
  return m;
}

int save_and_load(const std::string& bucket) {
  model m;
  for (int layer = 0; layer < 6; ++layer) {
    m.push_back(
        {"layer" + std::to_string(layer) + "/weight", std::vector<float>(1 << 20, 0.25f * static_cast<float>(layer))});
    m.push_back({"layer" + std::to_string(layer) + "/bias", std::vector<float>(1024, 1.0f)});
  }
  std::optional<mill::s3_server::background> server;
  const mill::s3::client s3 = examples::connect(server);
  const std::string url = "s3://" + bucket + "/checkpoints/step-001000.tar";

  const auto loop = mill::make_event_loop();
  mill::block_on(*loop, s3.create_bucket("s3://" + bucket));
  const mill::s3::object_info stored = mill::block_on(*loop, s3.put(url, checkpoint_of(m), {.part = 5 * mill::MiB}));
  std::printf("stored %s: %s\n", url.c_str(), mill::format_bytes(static_cast<double>(stored.size)).c_str());

  const model loaded = load(s3, url);
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
