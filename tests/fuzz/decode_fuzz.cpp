// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: images and JSON are decoded or refused. Begins with the images that were reported as odd, where the shared
// data are.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude -DMILLRACE_WITH_JPEG -DMILLRACE_WITH_PNG
//     -DMILLRACE_WITH_WEBP tests/fuzz/decode_fuzz.cpp -ljpeg -lspng -lwebp -lwebpdemux -lsimdjson
//   ./a.out -max_len=4000 -malloc_limit_mb=256 corpus/

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/json_reader.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/memory/bytes.hpp>

namespace {

namespace mill = millrace;

struct document {
  std::string text;
  std::optional<std::int64_t> id;
  std::vector<float> scores;
  bool good = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const mill::bytes file = mill::bytes::copy(std::string_view(reinterpret_cast<const char*>(data), size));
  static const mill::image_decoder strict({.height = 16, .width = 16, .max_pixels = 1 << 20});
  static const mill::image_decoder tolerant(
      {.height = 16, .width = 16, .tolerate_corruption = true, .max_pixels = 1 << 20});
  try {
    const mill::image made = strict.whole(file);
    if (byte_size(made) > std::size_t(12) << 20) std::abort();
  } catch (const mill::decode_error&) {
  }
  try {
    std::vector<float> memory(16 * 16 * 3);
    const mill::tensor_view place(memory.data(), tolerant.options().type, tolerant.dims());
    mill::rng numbers(1);
    tolerant.into(place, file, numbers);
  } catch (const mill::decode_error&) {
  }
  static const auto reader = [] {
    mill::json_reader<document> made;
    made.member("text", &document::text).member("id", &document::id).member("scores", &document::scores);
    made.member("good", &document::good);
    return made;
  }();
  try {
    if (reader(file.view()).text.size() > file.size()) std::abort();
  } catch (const mill::decode_error&) {
  }
  return 0;
}
