// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sndfile.h>
#include <soxr.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/audio_decoder.hpp>
#include <millrace/decode/detail/sound_parts.hpp>
#include <millrace/memory/pixel_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// The bytes of a recording as the file that libsndfile reads.
class sound_bytes {
 public:
  explicit sound_bytes(const sound_part& part) noexcept : head_(part.head), body_(part.body) {}

  static SF_VIRTUAL_IO calls() noexcept {
    SF_VIRTUAL_IO io = {};
    io.get_filelen = [](void* self) { return size_of_file(self); };
    io.seek = [](sf_count_t offset, int from, void* self) {
      auto& s = *static_cast<sound_bytes*>(self);
      const sf_count_t base = from == SEEK_SET ? 0 : from == SEEK_CUR ? s.at_ : size_of_file(self);
      if (__builtin_add_overflow(base, offset, &s.at_) || s.at_ < 0) s.at_ = 0;
      return s.at_;
    };
    io.read = [](void* to, sf_count_t count, void* self) {
      auto& s = *static_cast<sound_bytes*>(self);
      const auto at = static_cast<std::size_t>(s.at_);
      auto* const place = static_cast<char*>(to);
      const auto most = static_cast<std::size_t>(std::max<sf_count_t>(count, 0));
      std::size_t n = at < s.head_.size() ? s.head_.copy(place, most, at) : 0;
      const std::size_t in_body = at + n - s.head_.size();
      if (at + n >= s.head_.size() && in_body < s.body_.size()) n += s.body_.copy(place + n, most - n, in_body);
      s.at_ += static_cast<sf_count_t>(n);
      return static_cast<sf_count_t>(n);
    };
    io.write = [](const void*, sf_count_t, void*) { return sf_count_t(0); };
    io.tell = [](void* self) { return static_cast<sound_bytes*>(self)->at_; };
    return io;
  }

 private:
  static sf_count_t size_of_file(void* self) noexcept {
    const auto& s = *static_cast<sound_bytes*>(self);
    return static_cast<sf_count_t>(s.head_.size() + s.body_.size());
  }

  std::string_view head_, body_;
  sf_count_t at_ = 0;
};

inline constexpr int largest_rate = 1'000'000;

struct close_sound {
  void operator()(SNDFILE* f) const noexcept { ::sf_close(f); }
};
using sound_handle = std::unique_ptr<SNDFILE, close_sound>;

/// One part of a recording, opened.
class open_sound {
 public:
  open_sound(const sound_part& part, const std::string& name) : source_(part) {
    file_.reset(::sf_open_virtual(&calls_, SFM_READ, &info_, &source_));
    // Its reason is one for all threads, and so may be another one's.
    if (file_ == nullptr) {
      const char* const reads = name == "Ogg" ? " (it reads Vorbis and Opus)" : "";
      throw decode_error("libsndfile refuses the header of the " + name + reads);
    }
    if (channels() < 1 || rate() < 1 || rate() > largest_rate) {
      throw decode_error("the " + name + " says that it has " + std::to_string(channels()) + " channels of " +
                         std::to_string(rate()) + " values a second");
    }
  }
  open_sound(const open_sound&) = delete;
  open_sound& operator=(const open_sound&) = delete;

  SNDFILE* file() const noexcept { return file_.get(); }
  int channels() const noexcept { return info_.channels; }
  int rate() const noexcept { return info_.samplerate; }
  bool knows_length() const noexcept { return info_.frames >= 0 && info_.frames < SF_COUNT_MAX; }
  std::uint64_t frames() const noexcept { return static_cast<std::uint64_t>(info_.frames); }

 private:
  sound_bytes source_;
  SF_VIRTUAL_IO calls_ = sound_bytes::calls();
  SF_INFO info_ = {};
  sound_handle file_;
};

struct end_resampler {
  void operator()(soxr_t r) const noexcept { ::soxr_delete(r); }
};
using resampler_handle = std::unique_ptr<std::remove_pointer_t<soxr_t>, end_resampler>;

/// libsndfile's words for the fault of this one, without its frame of "Error : " and a full stop.
inline std::string words_of(SNDFILE* f) {
  std::string_view words = ::sf_strerror(f);
  if (words.starts_with("Error : ")) words.remove_prefix(8);
  if (words.ends_with('.')) words.remove_suffix(1);
  return std::string(words);
}

inline constexpr const char* name_of(audio_kind kind) noexcept {
  constexpr const char* names[] = {"recording", "WAV", "FLAC", "Ogg", "MP3", "AIFF", "AU", "CAF", "W64"};
  return names[static_cast<std::size_t>(kind)];
}

/// The mean of the channels of each frame, in place.
inline void mix_down(std::vector<float>& values, std::size_t frames, std::size_t channels) noexcept {
  const float* from = values.data();
  for (std::size_t i = 0; i < frames; ++i) {
    float sum = 0;
    for (std::size_t c = 0; c < channels; ++c) sum += *from++;
    values[i] = sum / static_cast<float>(channels);
  }
}

inline std::int16_t as_i16(float value) noexcept {
  const float scaled = value * 32768.0F;
  if (!(scaled > -32768.0F)) return scaled == scaled ? std::int16_t(-32768) : std::int16_t(0);
  if (scaled >= 32767.0F) return 32767;
  return static_cast<std::int16_t>(scaled + (scaled < 0 ? -0.5F : 0.5F));
}

/// Stores each value, `copies` times, as the type has it.
template <class T, class Convert>
void store_values(const float* from, std::size_t count, std::size_t copies, T* to, Convert convert) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const T value = convert(from[i]);
    for (std::size_t c = 0; c < copies; ++c) *to++ = value;
  }
}

}  // namespace detail

struct audio_decoder::workspace {
  static constexpr std::size_t resampler_block = 4096;  // frames

  std::vector<float> read;
  std::vector<float> resampled;
  std::unique_ptr<workspace> next;

  /// Up to `limit` frames after the `have` that are there; fewer where the recording ends. Returns how many there are
  /// then. Memory grows with the frames read, not with the length in a header.
  std::size_t read_frames(SNDFILE* file, std::size_t channels, std::size_t have, std::size_t limit) {
    const std::size_t block = std::max<std::size_t>(1, (1 << 16) / channels);
    limit += have;
    while (have < limit) {
      const std::size_t wanted = std::min(limit - have, block);
      if (read.size() < (have + wanted) * channels) read.resize((have + wanted) * channels);
      const sf_count_t got =
          ::sf_readf_float(file, read.data() + have * channels, static_cast<sf_count_t>(wanted));
      have += static_cast<std::size_t>(std::max<sf_count_t>(got, 0));
      if (got < static_cast<sf_count_t>(wanted)) break;
    }
    return have;
  }
  /// Returns the frames that came out of it, `most` or fewer. libsoxr copies its input before it works: it gets a block
  /// at a time, so that its memory stays small and in the cache.
  std::size_t resample(const float* from, std::size_t frames, std::size_t channels, int rate, int to,
                       std::size_t most) {
    resampled.resize(most * channels);
    const soxr_io_spec_t io = ::soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
    const soxr_quality_spec_t quality = ::soxr_quality_spec(SOXR_HQ, 0);
    const soxr_runtime_spec_t one_thread = ::soxr_runtime_spec(1);
    soxr_error_t failed = nullptr;
    const detail::resampler_handle state(
        ::soxr_create(rate, to, static_cast<unsigned>(channels), &failed, &io, &quality, &one_thread));
    std::size_t made = 0;
    for (std::size_t at = 0, given = frames; given != 0 && made < most && failed == nullptr; at += given) {
      given = std::min(frames - at, resampler_block);
      const float* const block = given == 0 ? nullptr : from + at * channels;  // null: that was all
      std::size_t out = 0;
      float* const to_here = resampled.data() + made * channels;
      failed = ::soxr_process(state.get(), block, given, nullptr, to_here, most - made, &out);
      made += out;
    }
    if (failed != nullptr) throw decode_error(std::string("libsoxr cannot resample it: ") + failed);
    return made;
  }
  /// Frees memory that a recording of unusual length needed.
  void shrink() noexcept {
    constexpr std::size_t kept = std::size_t(16) << 20;
    if (read.capacity() > kept) std::vector<float>().swap(read);
    if (resampled.capacity() > kept) std::vector<float>().swap(resampled);
  }
};

struct audio_decoder::shared {
  pixel_pool memory;
  std::mutex mutex;
  std::unique_ptr<workspace> idle;
};

MILLRACE_INLINE audio_decoder::audio_decoder(const audio_options& options)
    : options_(options), shared_(std::make_shared<shared>()) {
  if (options.rate < 0 || options.rate > detail::largest_rate) {
    throw configuration_error("a recording's .rate is a number from 1 to 1000000, or 0: as it is");
  }
  if (options.channels < 0 || options.channels > 2) throw configuration_error("a recording's .channels are 1, 2 or 0");
  if (!(options.seconds >= 0 && options.seconds <= 1e6)) {
    throw configuration_error("a recording's .seconds are a number from 0 to 1000000");
  }
  if (options.type != dtype::f32 && options.type != dtype::i16) {
    throw configuration_error("recordings become f32 or i16, not " + std::string(name_of(options.type)));
  }
}

MILLRACE_INLINE audio audio_decoder::operator()(const bytes& file, double place, const where& at) const {
  std::unique_ptr<workspace> w = take();
  audio made;
  try {
    made = decode(*w, file, place, at);
  } catch (error& e) {
    e.add_place(at);
    give_back(std::move(w));
    throw;
  }
  give_back(std::move(w));
  return made;
}

MILLRACE_INLINE audio audio_decoder::decode(workspace& w, const bytes& file, double place, const where& at) const {
  const detail::audio_kind kind = detail::audio_kind_of(file.view());
  if (kind == detail::audio_kind::unknown) {
    throw decode_error("not a recording: it begins as no WAV, FLAC, Ogg, MP3, AIFF, AU, CAF or W64 does");
  }
  const std::string name = detail::name_of(kind);
  const bool strict = !options_.tolerate_corruption;
  const detail::sound_parts found = detail::find_sound_parts(kind, file.view());
  if (!found.fault.empty() && (strict || found.parts.empty())) throw decode_error("the " + name + " is " + found.fault);

  // One part is open at a time; of several, all are asked for their lengths before one is read.
  std::optional<detail::open_sound> sound;
  sound.emplace(found.parts[0], name);
  const int found_rate = sound->rate();
  const auto channels = static_cast<std::size_t>(sound->channels());
  if (options_.channels == 2 && channels > 2) {
    throw decode_error("the " + name + " has " + std::to_string(channels) + " channels, of which no two are made");
  }
  bool known = sound->knows_length();
  std::vector<std::uint64_t> lengths;
  std::uint64_t whole = known ? sound->frames() : 0;
  lengths.push_back(whole);
  for (std::size_t i = 1; i < found.parts.size(); ++i) {
    sound.emplace(found.parts[i], name);
    if (sound->rate() != found_rate || static_cast<std::size_t>(sound->channels()) != channels) {
      throw decode_error("the " + name + " is made of " + std::to_string(found.parts.size()) +
                         " recordings, of which number " + std::to_string(i + 1) + " has " +
                         std::to_string(sound->channels()) + " channels of " + std::to_string(sound->rate()) +
                         " values a second, and the first one " + std::to_string(channels) + " of " +
                         std::to_string(found_rate));
    }
    known = known && sound->knows_length();
    lengths.push_back(known ? sound->frames() : 0);
    whole += lengths.back();
  }
  std::size_t opened = found.parts.size() - 1;

  const int rate = options_.rate == 0 ? found_rate : options_.rate;
  const double ratio = static_cast<double>(rate) / found_rate;
  const auto most_out = static_cast<std::size_t>(std::llround(options_.seconds * rate));  // 0: no limit
  const auto most = static_cast<std::size_t>(std::ceil(static_cast<double>(most_out) / ratio));
  const bool limited = options_.seconds > 0;
  const std::uint64_t allowed = options_.max_values / channels;

  // If the length is unknown, all is read, up to one frame more than is allowed.
  std::uint64_t frames = known ? whole : allowed + 1;
  std::uint64_t first = 0;
  std::size_t skipped = 0;
  const auto cut = [&](std::uint64_t all) {
    if (!limited || all <= most || options_.crop == audio_crop::start) return std::size_t(0);
    const std::uint64_t over = all - most;
    if (options_.crop == audio_crop::center) return static_cast<std::size_t>(over / 2);
    const double drawn = std::clamp(place, 0.0, 1.0) * static_cast<double>(over + 1);
    return static_cast<std::size_t>(std::min(static_cast<std::uint64_t>(drawn), over));
  };
  if (known && limited && frames > most) {
    first = cut(frames);
    frames = most;
  }
  const auto refuse_if_beyond = [&](std::uint64_t n) {
    if (n > allowed) {
      throw decode_error("the " + name + " has " + (known ? std::to_string(n) : "too many") + " frames of " +
                         std::to_string(channels) + " channels, more than are allowed");
    }
  };
  if (known) refuse_if_beyond(frames);
  std::size_t count = 0;
  for (std::size_t i = 0; i < found.parts.size() && count < frames; ++i) {
    if (known && first >= lengths[i] && (first != 0 || lengths[i] == 0)) {
      first -= lengths[i];
      continue;
    }
    if (i != opened) sound.emplace(found.parts[i], name);
    opened = i;
    // A frame of an MP3 may have its data in those before it, more of them than libmpg123 looks at.
    const std::uint64_t before_first = kind == detail::audio_kind::mp3 ? std::min<std::uint64_t>(first, 16 * 1152) : 0;
    if (first != 0 && ::sf_seek(sound->file(), static_cast<sf_count_t>(first - before_first), SEEK_SET) < 0) {
      throw decode_error("the " + name + " is cut short or damaged before frame " + std::to_string(first));
    }
    w.read_frames(sound->file(), channels, count, static_cast<std::size_t>(before_first));
    const std::uint64_t left = frames - count;
    const std::uint64_t wanted = known ? std::min(left, lengths[i] - first) : left;
    const std::size_t before = count;
    count = w.read_frames(sound->file(), channels, count, static_cast<std::size_t>(wanted));
    first = 0;
    if (strict && ::sf_error(sound->file()) != SF_ERR_NO_ERROR) {
      throw decode_error("the " + name + " is cut short or damaged: " + detail::words_of(sound->file()));
    }
    if (strict && known && count - before < wanted) {
      throw decode_error("the " + name + " is cut short or damaged: " + std::to_string(count - before) +
                         " frames came of " + std::to_string(wanted));
    }
  }
  refuse_if_beyond(count);
  if (found.guess != nullptr) detail::say_first(found.guess, "the " + name + ": " + found.guess, at);
  if (limited && count > most) {
    skipped = cut(count);
    count = most;
  }
  sound.reset();  // its memory serves the resampler

  if (skipped != 0) w.read.erase(w.read.begin(), w.read.begin() + static_cast<std::ptrdiff_t>(skipped * channels));
  const bool mixed = options_.channels == 1 && channels > 1;
  if (mixed) detail::mix_down(w.read, count, channels);
  const std::size_t in = mixed ? 1 : channels;
  const float* values = w.read.data();
  if (rate != found_rate && count != 0) {
    const auto all = static_cast<std::size_t>(std::llround(static_cast<double>(count) * ratio));
    refuse_if_beyond(all);
    count = w.resample(values, count, in, found_rate, rate, limited ? std::min(all, most_out) : all);
    values = w.resampled.data();
  }

  const std::size_t out = options_.channels == 0 ? in : static_cast<std::size_t>(options_.channels);
  const std::size_t rows = limited && options_.fill ? most_out : count;
  pixel_buffer made = shared_->memory.acquire(rows * out * size_of(options_.type));
  const std::size_t stored = count * out * size_of(options_.type);
  if (options_.type == dtype::i16) {
    auto* const to = reinterpret_cast<std::int16_t*>(made.data());
    detail::store_values(values, count * in, out / in, to, detail::as_i16);
  } else if (out == in) {
    if (stored != 0) std::memcpy(made.data(), values, stored);
  } else {
    auto* const to = reinterpret_cast<float*>(made.data());
    detail::store_values(values, count * in, out / in, to, [](float v) { return v; });
  }
  if (made.size() != stored) std::memset(made.data() + stored, 0, made.size() - stored);
  return audio(std::move(made), count, static_cast<int>(out), rate, options_.type);
}

MILLRACE_INLINE std::unique_ptr<audio_decoder::workspace> audio_decoder::take() const {
  {
    std::lock_guard lock(shared_->mutex);
    if (shared_->idle) {
      std::unique_ptr<workspace> w = std::move(shared_->idle);
      shared_->idle = std::move(w->next);
      return w;
    }
  }
  return std::make_unique<workspace>();
}

MILLRACE_INLINE void audio_decoder::give_back(std::unique_ptr<workspace> w) const noexcept {
  w->shrink();
  std::lock_guard lock(shared_->mutex);
  w->next = std::move(shared_->idle);
  shared_->idle = std::move(w);
}

}  // namespace millrace
