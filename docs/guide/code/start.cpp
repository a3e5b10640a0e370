// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The program of docs/guide/start.md, over a small data set of its own.

// begin includes
#include <millrace/decode/decode_images.hpp>
#include <millrace/millrace.hpp>
namespace mill = millrace;
// end includes

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "examples/common/painted_shards.hpp"
#include "tests/support/catch.hpp"

namespace {

// begin pipeline
auto epoch_of(const std::string& folder, std::uint64_t epoch) {
  return mill::glob(folder + "/*.tar")                                 // shards
         | mill::shuffle_shards({.seed = 7, .epoch = epoch})           //
         | mill::fetch(mill::files(), {.shards = 4})                   // chunks: slices of slabs of 8 MiB
         | mill::untar()                                               // members
         | mill::group_samples()                                       // samples: key, fields, origin
         | mill::shuffle({.window = 1000, .seed = 7, .epoch = epoch})  //
         | mill::decode_images({.height = 64, .width = 64})            // images of any size
         | mill::batch(32)                                             // tensors, decoded on a pool
         | mill::to_device(mill::host_device());                       // batches on the device
}
// end pipeline

std::size_t train(const std::string& folder) {
  std::size_t images = 0;
  const auto train_step = [&](const mill::device_batch& b) { images += b.size(); };
  // begin loop
  mill::runtime rt;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    auto batches = rt.run(epoch_of(folder, epoch), {.prefetch = 2});
    for (mill::device_batch& b : batches) train_step(b);
    std::fputs(batches.stats().table().c_str(), stderr);
  }
  // end loop
  return images;
}

}  // namespace

TEST_CASE("the guide's first program sees every image in every epoch", "[guide]") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "millrace-guide-start";
  std::filesystem::create_directories(folder);
  for (int n = 0; n < 2; ++n) {
    const std::string tar = examples::painted_shard(20, 1, n);
    std::FILE* const out = std::fopen((folder / (std::to_string(n) + ".tar")).c_str(), "wb");
    REQUIRE(out != nullptr);
    std::fwrite(tar.data(), 1, tar.size(), out);
    std::fclose(out);
  }
  CHECK(train(folder.string()) == 2 * 2 * 20);
  std::filesystem::remove_all(folder);
}
