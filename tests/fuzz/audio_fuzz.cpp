// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: recordings are decoded or refused, within the values that are allowed. Begins with a WAV, an AIFF, an AU
// and a FLAC, which the input edits (edits.hpp); the second byte chooses.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -I. -Iinclude tests/fuzz/audio_fuzz.cpp
//     -lsndfile -lsoxr
//   ./a.out -max_len=200 -len_control=0 -malloc_limit_mb=256 corpus/

#include <sndfile.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/decode/audio_decoder.hpp>
#include <millrace/memory/bytes.hpp>

#include "examples/common/encode_audio.hpp"
#include "tests/fuzz/edits.hpp"

namespace mill = millrace;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const std::vector<std::string> files = [] {
    std::vector<float> values(600);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i)));
    std::vector<std::string> made;
    for (const int kind : {SF_FORMAT_WAV, SF_FORMAT_AIFF, SF_FORMAT_AU, SF_FORMAT_FLAC, SF_FORMAT_CAF, SF_FORMAT_W64}) {
      made.push_back(examples::encode_audio(values, 1, 8000, kind | SF_FORMAT_PCM_16));
    }
    return made;
  }();
  const std::string file = mill::fuzz::edited(files[data[1] % files.size()], data, size);
  static const mill::audio_decoder strict({.max_values = 1 << 20});
  static const mill::audio_decoder tolerant(
      {.rate = 16000, .seconds = 0.1, .tolerate_corruption = true, .max_values = 1 << 20});
  for (const mill::audio_decoder* const decoder : {&strict, &tolerant}) {
    try {
      const mill::audio made = (*decoder)(mill::bytes::copy(file));
      if (made.values.size() > std::size_t(8) << 20) std::abort();
    } catch (const mill::decode_error&) {
    }
  }
  return 0;
}
