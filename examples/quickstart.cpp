// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The whole main job: labelled JPEG images of mixed sizes are written into an S3 bucket as WebDataset tar shards, then
// a small classifier is trained on them for a few epochs, straight from s3://.
//
//   example_quickstart [BUCKET]
//
// With AWS_ENDPOINT_URL_S3 (and keys) in the environment that store is used; without, an S3 server inside this program.
// The bucket is made if there is none. At the end what was written is removed, and the bucket if it is empty then.
// Built with the CUDA Toolkit it trains on the GPU when there is one; with several GPUs, each process of a machine
// takes its own.

#include <cstdio>
#include <optional>
#include <string>

#include <millrace/decode/decode_images.hpp>
#include <millrace/millrace.hpp>
#include <millrace/testing/s3_server/background.hpp>

#include "examples/common/connect.hpp"
#include "examples/common/models.hpp"
#include "examples/common/painted_shards.hpp"

namespace mill = millrace;

namespace {

constexpr int train_shards = 12, test_shards = 2;

/// The pipeline of one epoch, into the memory of `target`: a CUDA stream or host_device.
template <class Target>
auto epoch_of(const mill::s3::client& s3, const std::string& prefix, std::uint64_t epoch, const mill::image_crop& crop,
              const Target& target) {
  const int side = examples::image_side;
  // clang-format off
  return s3.list(prefix)                                              // objects under the prefix
       | mill::shuffle_shards({.seed = 7, .epoch = epoch})            // another order for every epoch
       | mill::split_by_rank(mill::rank_from_environment())           // this process's share
       | mill::fetch(s3, {.shards = 4, .window = 8 * mill::MiB})      // ranged GETs, ahead
       | mill::untar()                                                // members, not copied
       | mill::group_samples()                                        // WebDataset samples
       | mill::shuffle({.window = 1024, .seed = 7, .epoch = epoch})   // among those that are near
       | mill::decode_images({.height = side, .width = side, .crop = crop})  // of any size, to tensors of one,
       | mill::batch(64)                                              // on the pool, each into its row of the batch
       | mill::to_device(target, {.slots = 3});                       // copied ahead
  // clang-format on
}

/// Removes what was written, and the bucket where nothing else is in it.
void clear(const mill::s3::client& s3, const std::string& bucket) {
  examples::remove_painted_shards(s3, bucket, "train/", train_shards);
  examples::remove_painted_shards(s3, bucket, "test/", test_shards);
  try {
    mill::block_on(*mill::make_event_loop(), s3.remove_bucket("s3://" + bucket));
  } catch (const mill::s3::error& e) {
    std::printf("the bucket %s is left: %s\n", bucket.c_str(), e.what());
  }
}

template <class Model>
int train(const std::string& bucket, Model& model) {
  std::optional<mill::s3_server::background> server;
  const mill::s3::client s3 = examples::connect(server);
  const std::string train = "s3://" + bucket + "/train/";
  const std::string test = "s3://" + bucket + "/test/";
  examples::write_painted_shards(s3, bucket, "train/", train_shards, 400, 1);
  examples::write_painted_shards(s3, bucket, "test/", test_shards, 300, 2);

  mill::runtime rt({.rank = mill::rank_from_environment()});  // keeps connections, memory and threads for all epochs
  const mill::crop::random_resized part{.scale = {0.7, 1}};   // of every image, another one in every epoch
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
    auto batches = rt.run(epoch_of(s3, train, epoch, part, model.target()),
                          {.prefetch = 2, .show = mill::progress::automatic});
    std::size_t images = 0;
    for (mill::device_batch& b : batches) {
      images += b.size();
      model.train_step(b);
    }
    const double loss = model.take_loss();
    const mill::run_stats stats = batches.stats();
    std::printf("epoch %d: loss %.3f, %zu images, %.0f images/s\n", static_cast<int>(epoch),
                loss / static_cast<double>(images), images, static_cast<double>(images) / stats.seconds);
    if (epoch == 4) std::printf("\n%s\n", stats.table().c_str());
  }

  model.take_right();
  std::size_t images = 0;
  for (mill::device_batch& b : rt.run(epoch_of(s3, test, 0, mill::crop::none, model.target()))) {
    images += b.size();
    model.count_right(b);
  }
  const double accuracy = 100.0 * static_cast<double>(model.take_right()) / static_cast<double>(images);
  std::printf("accuracy on %zu images it has not seen: %.1f%%\n", images, accuracy);
  clear(s3, bucket);
  return accuracy > 90 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const std::string bucket = count > 1 ? arguments[1] : "millrace-quickstart";
#if EXAMPLE_WITH_CUDA
    if (examples::choose_gpu(mill::rank_from_environment())) {
      std::printf("training on the GPU\n");
      examples::gpu_model model(examples::image_side, examples::classes);
      return train(bucket, model);
    }
#endif
    std::printf("training on the CPU: no GPU, or built without the CUDA Toolkit\n");
    examples::host_model model(examples::image_side, examples::classes);
    return train(bucket, model);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
