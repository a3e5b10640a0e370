// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: clips of videos, and their sound, are decoded or refused, whatever the boxes, elements and packets say.
// Begins with MP4s, one of them fragmented, and Matroska files, which the input edits (edits.hpp); the second byte
// chooses.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -I. -Iinclude tests/fuzz/video_fuzz.cpp
//     -lavformat -lavcodec -lswscale -lavutil
//   ./a.out -max_len=200 -len_control=0 -malloc_limit_mb=512 corpus/

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/decode/video_decoder.hpp>
#include <millrace/decode/video_sound.hpp>
#include <millrace/memory/bytes.hpp>

#include "examples/common/encode_video.hpp"
#include "tests/fuzz/edits.hpp"

namespace mill = millrace;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const std::vector<std::string> files = [] {
    std::vector<std::string> made;
    examples::video_form form{.codec = "mpeg4", .width = 32, .height = 32, .frames = 12, .group = 4, .between = 1};
    made.push_back(examples::encode_video(form));
    form.layout = "movflags=frag_keyframe+empty_moov";
    made.push_back(examples::encode_video(form));
    form.layout = "";
    form.container = "matroska";
    made.push_back(examples::encode_video(form));
    for (const char* const codec : {"libx264", "libvpx-vp9"}) {
      if (!examples::has_encoder(codec)) continue;
      form.codec = codec;
      form.container = codec[3] == 'x' ? "mp4" : "webm";
      form.between = 0;
      made.push_back(examples::encode_video(form));
    }
    form = {.codec = "mpeg4", .width = 16, .height = 16, .frames = 6};
    for (const char* const sound : {"aac", "flac", "pcm_s16le", "ac3"}) {
      form.sound = sound;
      form.container = *sound == 'p' ? "mov" : *sound == 'f' ? "matroska" : "mp4";
      made.push_back(examples::encode_video(form));
    }
    return made;
  }();
  mill::video_options o{.frames = 3, .height = 16, .width = 16, .clips = 2, .start = mill::clip_start::even};
  o.fill = true;
  o.max_pixels = 1 << 16;
  o.max_frames = 1 << 12;
  static const mill::video_decoder strict(o);
  o.tolerate_corruption = true;
  o.rate = 7;
  static const mill::video_decoder tolerant(o);
  const std::string file = mill::fuzz::edited(files[data[1] % files.size()], data, size);
  std::vector<std::uint8_t> place(2 * 3 * 16 * 16 * 3);
  for (const mill::video_decoder* const decoder : {&strict, &tolerant}) {
    try {
      mill::sample_rng numbers(0, 0, 0, 0, 0);
      const mill::tensor_view row(place.data(), mill::dtype::u8, decoder->dims());
      if (decoder->into(row, mill::bytes::copy(file), numbers).size() != 2) std::abort();
    } catch (const mill::decode_error&) {
    }
  }
  for (const bool tolerates : {false, true}) {
    try {
      const mill::video_span part{0.05, 0.2};
      const mill::video_sound_options sound{.tolerate_corruption = tolerates, .max_values = 1 << 16};
      if (mill::video_sound(mill::bytes::copy(file), sound).size() > 44 + (4 << 16)) std::abort();
      mill::video_sound(mill::bytes::copy(file), sound, mill::where(), part);
    } catch (const mill::decode_error&) {
    }
  }
  return 0;
}
