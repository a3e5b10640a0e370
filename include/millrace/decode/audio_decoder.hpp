// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <millrace/base/error.hpp>
#include <millrace/decode/audio.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace {

/// Makes WAV, FLAC, Ogg (Vorbis, Opus), MP3, AIFF and the other formats of libsndfile to values of one rate, number of
/// channels and type. What a file is called says nothing: its first bytes tell the format. It is read where it lies in
/// memory.
///
/// A part is cut out before it is resampled, by libsoxr at its high quality (20 bits); a part of a recording of which
/// the rate is right already is what the whole one has there, to the bit. Without resampling and mixing the values are
/// those of libsndfile. Thread-safe: calls on several threads use memory of their own, kept for reuse. Copies share it,
/// and the memory of the recordings, which may outlive them all.
///
/// The result depends on the data, the options and `place` alone. Errors: decode_error, which name the place `at`, and
/// in a stage without one that of the stage's item: no recording, cut short, damaged, more than .max_values, channels
/// that cannot be mixed. An MP3 tells its length only in a Xing or Info header: one without, cut between two of its
/// frames, cannot be told from a whole one. What lies behind the part that is taken is not decoded, and so not checked.
class audio_decoder {
 public:
  /// Throws configuration_error for options that there are not.
  explicit audio_decoder(const audio_options& options = {});

  const audio_options& options() const noexcept { return options_; }

  /// One recording. `place`, from 0 up to 1, says where a random part begins: a number that was drawn, such as
  /// `sample.random(1).uniform()`.
  audio operator()(const bytes& file, double place = 0, const where& at = where()) const;

 private:
  // What one thread needs, in a chain while it is idle.
  struct workspace;
  struct shared;

  audio decode(workspace& w, const bytes& file, double place) const;
  std::unique_ptr<workspace> take() const;
  void give_back(std::unique_ptr<workspace> w) const noexcept;

  audio_options options_;
  std::shared_ptr<shared> shared_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/impl/audio_decoder.ipp>
#endif
