// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The programs of docs/guide/images.md, over a small data set of their own.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/decode/augment.hpp>
#include <millrace/decode/decode_images.hpp>
#include <millrace/records/tf_example.hpp>
#include <millrace/train.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "examples/common/painted_shards.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

namespace mill = millrace;

namespace {

auto samples_of(const std::string& folder, std::uint64_t epoch) {
  return mill::glob(folder + "/*.tar") | mill::shuffle_shards({.seed = 7, .epoch = epoch}) |
         mill::fetch(mill::files()) | mill::untar() | mill::group_samples();
}

// begin training
auto training(const std::string& folder, std::uint64_t epoch) {
  const mill::image_options images{.height = 224,
                                   .width = 224,
                                   .crop = mill::crop::random_resized{.scale = {0.08, 1}},
                                   .flip = 0.5,
                                   .layout = mill::image_layout::chw,
                                   .type = mill::dtype::f16,
                                   .mean = {0.485f, 0.456f, 0.406f},
                                   .std = {0.229f, 0.224f, 0.225f}};
  return samples_of(folder, epoch) | mill::decode_images(images) | mill::batch(8) |
         mill::to_device(mill::host_device());
}
// end training

// begin validation
auto validation(const std::string& folder) {
  const mill::image_options images{.height = 224, .width = 224, .crop = mill::crop::center{.fraction = 0.875}};
  const mill::batch_options how{.failures = {.then = mill::on_failure::skip, .limit = 10}};
  return samples_of(folder, 0) | mill::decode_images(images) | mill::batch(8, how);
}
// end validation

// begin jitter
auto jittered(const std::string& folder, std::uint64_t epoch) {
  const mill::image_options images{.height = 64,
                                   .width = 64,
                                   .crop = mill::crop::random_resized{},
                                   .flip = 0.5,
                                   .layout = mill::image_layout::chw,
                                   .type = mill::dtype::f32,
                                   .mean = {0.485f, 0.456f, 0.406f},
                                   .std = {0.229f, 0.224f, 0.225f},
                                   .one_hot = 1000};
  const mill::augment::color_jitter jitter{.brightness = 0.4f, .contrast = 0.4f, .saturation = 0.4f, .hue = 0.1f};
  const mill::augment::random_erasing erasing{.probability = 0.25};
  const auto change = [jitter, erasing](const mill::pixels<float>& chw, mill::sample_rng& numbers) {
    jitter(chw, numbers);
    if (numbers.uniform() < 0.1) mill::augment::gaussian_blur(chw, 9, 0.1 + 1.9 * numbers.uniform());
    for (int i = 0; i < 3; ++i) chw.row(i, 0)[0] = 0;  // any code of yours
    erasing(chw, numbers);
  };
  return samples_of(folder, epoch) | mill::decode_images(images, change) | mill::batch(8);
}
// end jitter

// begin mixup
mill::host_batch mixed(mill::host_batch b) {
  mill::augment::mixup(b, 0.2);  // or cutmix(b, 1)
  return b;
}

auto mixed_batches(const std::string& folder, std::uint64_t epoch) {
  return jittered(folder, epoch) | mill::map_concurrent(mixed) | mill::to_device(mill::host_device());
}
// end mixup

// begin row
/// An image in two sizes, for a model that looks twice.
class two_sizes {
 public:
  void operator()(const mill::sample& s, const mill::batch_row& row) const {
    mill::sample_rng numbers = s.random(1);
    large_.into(row.field("large"), s["jpg"], numbers);
    small_.into(row.field("small"), s["jpg"], numbers);
    row.key(s.key);
  }
  mill::batch_layout layout(std::size_t samples) const {
    return mill::batch_layout(
        samples, {{"large", mill::dtype::u8, large_.dims()}, {"small", mill::dtype::u8, small_.dims()}});
  }

 private:
  mill::image_decoder large_{{.height = 64, .width = 64}};
  mill::image_decoder small_{{.height = 16, .width = 16, .crop = mill::crop::random_resized{}}};
};

auto pairs(const std::string& folder) {
  const two_sizes write;
  return samples_of(folder, 0) | mill::fill_batches(mill::batch_pool(write.layout(8)), write);
}
// end row

// begin ranks
/// On whatever number of ranks this start has; `saved` is what run.state() gave, on any number of them.
auto training_on(const mill::dataset& photos, mill::rank mine, std::string saved) {
  return mill::epochs(photos, {.seed = 7, .epochs = 2, .batch = 4, .rank = mine}, std::move(saved)) |
         mill::decode_images({.height = 32, .width = 32, .crop = mill::crop::random_resized{}, .flip = 0.5}) |
         mill::batch();
}
// end ranks

// begin tfrecord
auto training_on_records(const std::string& folder, mill::rank mine, std::string saved) {
  const mill::dataset records(mill::files(), folder + "/imagenet-train",  // all files whose names begin so
                              {.index = folder + "/train.index", .format = mill::tfrecord_shards()});
  return mill::epochs(records, {.seed = 7, .epochs = 2, .batch = 4, .rank = mine}, std::move(saved)) |
         mill::map(mill::tf_fields({"image/encoded", "image/class/label"})) |
         mill::decode_images({.height = 32, .width = 32, .field = "image/encoded", .label = "image/class/label"}) |
         mill::batch();
}
// end tfrecord

/// The pixels of each image in each epoch, and how often it came.
using seen_images = std::map<std::pair<std::uint64_t, std::string>, std::pair<std::string, int>>;

/// What a rank takes in so many batches; the state after them.
std::string take(mill::runtime& rt, const mill::dataset& photos, mill::rank mine, const std::string& saved,
                 std::size_t batches, seen_images& seen) {
  auto run = rt.run(training_on(photos, mine, saved));
  for (std::size_t n = 0; n < batches; ++n) {
    const std::optional<mill::host_batch> b = run.next();
    if (!b) break;
    const mill::tensor_view images = b->field("image");
    const std::size_t each = images.bytes() / b->size();
    for (std::size_t i = 0; i < b->size(); ++i) {
      if (b->weights()[i] == 0) continue;
      auto& [pixels, times] = seen[{b->mark().epoch, b->keys()[i]}];
      pixels.assign(static_cast<const char*>(images.data()) + i * each, each);
      ++times;
    }
  }
  return run.state();
}

// What writes TFRecords.

std::string part(int number, const std::string& data) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  std::size_t size = data.size();
  for (; size > 127; size /= 128) out += static_cast<char>(size % 128 + 128);
  return out + static_cast<char>(size) + data;
}
std::string feature(const std::string& name, int kind, const std::string& value) {
  return part(1, part(1, name) + part(2, part(kind, part(1, value))));
}
void append_record(std::string& file, const std::string& record) {
  const auto append = [&file](std::uint64_t value, int size) {
    for (; size > 0; --size, value >>= 8) file += static_cast<char>(value & 255);
  };
  const auto append_checksum = [&](const char* data, std::size_t size) {
    const std::uint32_t crc = mill::crc32c(0, data, size);
    append(static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8U), 4);
  };
  append(record.size(), 8);
  append_checksum(file.data() + file.size() - 8, 8);
  file += record;
  append_checksum(record.data(), record.size());
}

}  // namespace

TEST_CASE("the guide's programs for images see every image", "[guide]") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "millrace-guide-images";
  std::filesystem::create_directories(folder);
  const std::string tar = examples::painted_shard(20, 1, 0);
  std::FILE* const out = std::fopen((folder / "0.tar").c_str(), "wb");
  REQUIRE(out != nullptr);
  std::fwrite(tar.data(), 1, tar.size(), out);
  std::fclose(out);
  mill::runtime rt;
  std::size_t trained = 0;
  for (const mill::device_batch& b : rt.run(training(folder.string(), 0))) trained += b.size();
  CHECK(trained == 20);
  std::size_t validated = 0;
  for (const mill::host_batch& b : rt.run(validation(folder.string()))) validated += b.field("label").elements();
  CHECK(validated == 20);
  for (const mill::device_batch& b : rt.run(mixed_batches(folder.string(), 0))) {
    const mill::tensor_view labels = b.host_field("label");
    CHECK(labels.dims() == mill::shape{static_cast<std::int64_t>(b.size()), 1000});
    float sum = 0;
    for (const float share : labels.values<float>()) sum += share;
    CHECK(sum == Approx(static_cast<double>(b.size())));
  }
  const auto bytes_of_epoch = [&] {
    std::string all;
    for (const mill::device_batch& b : rt.run(mixed_batches(folder.string(), 0))) {
      all.append(static_cast<const char*>(b.host_field("image").data()), b.host_field("image").bytes());
    }
    return all;
  };
  const bool same_again = bytes_of_epoch() == bytes_of_epoch();
  CHECK(same_again);
  std::size_t twice = 0;
  for (const mill::host_batch& b : rt.run(pairs(folder.string()))) twice += b.field("small").bytes();
  CHECK(twice == 20 * 16 * 16 * 3);
  std::filesystem::remove_all(folder);
}

TEST_CASE("the guide's images on 4 ranks, killed and resumed on 3, are those of one rank", "[guide]") {
  mill::test::temporary_folder at;
  std::filesystem::create_directories(at.file("photos"));
  for (int n = 0; n < 3; ++n) {
    const std::string tar = examples::painted_shard(17, 1 + static_cast<std::uint64_t>(n), n * 17);
    std::ofstream(at.file("photos/" + std::to_string(n) + ".tar"), std::ios::binary) << tar;
  }
  const mill::dataset photos(mill::files(), at.file("photos"), {.index = at.file("photos.index")});
  mill::runtime rt;
  seen_images whole;
  take(rt, photos, mill::rank(), {}, 1000, whole);
  CHECK(whole.size() == 2 * 3 * 17);

  seen_images got;
  std::string saved;
  for (std::uint32_t r = 0; r < 4; ++r) saved = take(rt, photos, {.index = r, .world_size = 4}, {}, 5, got);
  seen_images lost;  // after the checkpoint, before the processes are killed
  for (std::uint32_t r = 0; r < 4; ++r) take(rt, photos, {.index = r, .world_size = 4}, saved, 1, lost);
  CHECK(!lost.empty());
  for (std::uint32_t r = 0; r < 3; ++r) take(rt, photos, {.index = r, .world_size = 3}, saved, 1000, got);
  CHECK(got == whole);  // each once an epoch, with the same crops and flips
}

TEST_CASE("the guide's training on TFRecords sees every image and its label", "[guide]") {
  mill::test::temporary_folder at;
  mill::rng random(1);
  std::vector<int> labels;
  for (int n = 0; n < 3; ++n) {
    std::string file;
    for (int i = 0; i < 7; ++i) {
      labels.push_back(static_cast<int>(random.below(examples::classes)));
      const examples::picture p = examples::paint(labels.back(), random);
      const std::string jpeg = examples::encode_jpeg(p.pixels, p.width, p.height);
      const std::string label(1, static_cast<char>(labels.back()));
      append_record(file, part(1, feature("image/encoded", 1, jpeg) + feature("image/format", 1, "JPEG") +
                                      feature("image/class/label", 3, label)));
    }
    std::ofstream(at.file("imagenet-train-0000" + std::to_string(n) + "-of-00003"), std::ios::binary) << file;
  }
  std::ofstream(at.file("dataset_info.json")) << "{}";
  mill::runtime rt;
  std::map<std::string, int> seen;
  auto run = rt.run(training_on_records(at.path(), {}, {}));
  for (const mill::host_batch& b : run) {
    for (std::size_t i = 0; i < b.size(); ++i) {
      if (b.weights()[i] == 0) continue;
      const std::string& key = b.keys()[i];  // "imagenet-train-00001-of-00003#4"
      const int number = 7 * (key[19] - '0') + (key.back() - '0');
      CHECK(b.field("label").values<std::int64_t>()[i] == labels.at(static_cast<std::size_t>(number)));
      ++seen[key];
    }
  }
  CHECK(seen.size() == 21);
  for (const auto& [key, times] : seen) CHECK(times == 2);
}
