// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/batches.md.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/bucket_by_length.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/shards/resident_storage.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace speech {

class utterance {
 public:
  explicit utterance(std::int64_t n)
      : key(std::to_string(n)),
        waves(std::size_t(100 + n * 37 % 50), float(n)),
        tokens(std::size_t(1 + n % 3), std::int32_t(n)),
        words(std::size_t(n % 3), "word") {}

  std::string key;
  mill::origin from;
  mill::epoch_mark mark;
  std::vector<float> waves;
  std::vector<std::int32_t> tokens;
  std::vector<std::string> words;
};

mill::epoch_mark mark_of(const utterance& u) { return u.mark; }

// begin collate
void collate(const utterance& u, mill::sample_writer& out) {
  out.key(u.key);
  out.tag(u.from);                                                // key and origin stay on the host
  out.write("first", u.tokens[0]);                                // of one shape in all samples
  out.padded("waves", u.waves, {.multiple = 16});                 // to the longest of the batch
  out.padded("labels", u.tokens, {.value = -100, .mask = true});  // -100 where there is no token
  out.ragged("tokens", u.tokens);                                 // one after the other
  out.ragged("words", u.words);                                   // a list of texts
}
// end collate

}  // namespace speech

namespace {

// begin training
mill::stream<mill::device_batch> training(mill::stream<speech::utterance> utterances) {
  const auto length = [](const speech::utterance& u) { return u.waves.size(); };
  return std::move(utterances) | mill::bucket_by_length(length, {.batch = 4, .window = 32}) |
         mill::to_device(mill::host_device());
}
// end training

// begin resident
mill::stream<mill::sample> samples_of(std::shared_ptr<const mill::index_set> indexes,
                                      const std::shared_ptr<const mill::resident_storage>& store) {
  return mill::epochs(mill::dataset(store, std::move(indexes)), {.seed = 7, .epochs = 90, .batch = 4});
}
std::shared_ptr<const mill::resident_storage> in_memory(const std::shared_ptr<const mill::storage>& store) {
  return mill::resident(store, {.bytes = 200 * mill::GiB});  // one for all runs of the program
}
// end resident

mill::stream<speech::utterance> utterances(std::int64_t n) {
  return mill::iota(n) | mill::map([](std::int64_t i) { return speech::utterance(i); });
}

}  // namespace

TEST_CASE("the guide's utterances become batches", "[guide]") {
  std::size_t samples = 0;
  auto batches = utterances(64) | mill::batch(4) | mill::to_device(mill::host_device());
  for (mill::device_batch& b : mill::run(std::move(batches))) {
    // begin use
    const mill::tensor_view waves = b.field("waves");  // size() x common length, f32
    const mill::tensor_view lengths = b.field("waves_lengths");
    const mill::tensor_view mask = b.field("labels_mask");     // size() x common length, u8
    const mill::tensor_view tokens = b.field("tokens");        // of all samples
    const mill::tensor_view ends = b.field("tokens_offsets");  // size() + 1; sample i: from ends[i] to ends[i + 1]
    // end use
    const auto longest = std::size_t(waves.dims()[1]);
    CHECK(longest % 16 == 0);
    CHECK(lengths.values<std::int64_t>()[0] <= waves.dims()[1]);
    CHECK(mask.values<std::uint8_t>()[0] == 1);
    CHECK(std::size_t(ends.values<std::int64_t>()[b.size()]) == tokens.elements());
    samples += b.size();
  }
  CHECK(samples == 64);
}

TEST_CASE("the guide's batches have recordings of about one length", "[guide]") {
  std::size_t samples = 0;
  std::int64_t padded = 0;
  for (mill::device_batch& b : mill::run(training(utterances(64)))) {
    for (const std::int64_t n : b.host_field("waves_lengths").values<std::int64_t>()) {
      padded += b.host_field("waves").dims()[1] - n;
    }
    samples += b.size();
  }
  CHECK(samples == 64);
  CHECK(padded < 64 * 16);
}

TEST_CASE("the guide's store keeps nothing yet", "[guide]") {
  const auto none = std::shared_ptr<const mill::storage>();
  CHECK(in_memory(none)->kept() == 0);
  CHECK(in_memory(none)->keeps() == 200 * mill::GiB);
  CHECK_THROWS_AS(samples_of(nullptr, in_memory(none)), mill::configuration_error);
}
