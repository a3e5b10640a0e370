// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Recordings per second: map_concurrent(audio_decoder) beside bare libsndfile on as many threads, in turns, and the
// same with libsoxr for both; FLAC files of about 8 KB, half a second of 16 kHz. The bare threads read into one
// buffer each.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/audio_bench.cpp -o audio_bench -luring -lsndfile -lsoxr
//
//   audio_bench [recordings per round, default 20000]

#include <sndfile.h>
#include <soxr.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/decode/audio_decoder.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/on_threads.hpp"
#include "examples/common/encode_audio.hpp"

namespace {

namespace mill = millrace;

constexpr int rate = 16000;
constexpr std::size_t frames = rate / 2;
constexpr std::size_t different = 64;

/// Tones with noise over them.
mill::bytes make_flac(std::uint64_t seed) {
  std::vector<float> wave(frames);
  mill::rng random(seed);
  const double step = 0.02 + 0.1 * random.uniform();
  for (std::size_t i = 0; i < frames; ++i) {
    const double noise = 0.02 * (random.uniform() - 0.5);
    wave[i] = static_cast<float>(0.3 * std::sin(step * static_cast<double>(i)) + noise);
  }
  return mill::bytes::copy(examples::encode_audio(wave, 1, rate, SF_FORMAT_FLAC | SF_FORMAT_PCM_16));
}

/// A file in memory, for libsndfile.
class memory_file {
 public:
  explicit memory_file(std::string_view all) noexcept : all_(all) {}
  static SF_VIRTUAL_IO calls() noexcept {
    SF_VIRTUAL_IO io = {};
    io.get_filelen = [](void* self) { return static_cast<sf_count_t>(at(self).all_.size()); };
    io.tell = [](void* self) { return at(self).position_; };
    io.seek = [](sf_count_t offset, int whence, void* self) {
      memory_file& f = at(self);
      const auto end = static_cast<sf_count_t>(f.all_.size());
      f.position_ = offset + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? f.position_ : end);
      return f.position_;
    };
    io.read = [](void* to, sf_count_t size, void* self) {
      memory_file& f = at(self);
      const auto n = std::min(size, static_cast<sf_count_t>(f.all_.size()) - f.position_);
      std::memcpy(to, f.all_.data() + f.position_, static_cast<std::size_t>(n));
      f.position_ += n;
      return n;
    };
    return io;
  }

 private:
  static memory_file& at(void* self) noexcept { return *static_cast<memory_file*>(self); }
  std::string_view all_;
  sf_count_t position_ = 0;
};

/// The same decoding without millrace: threads that take the next number.
std::uint64_t decode_bare(const std::vector<mill::bytes>& files, int count, unsigned threads, int to) {
  std::atomic<std::uint64_t> total{0};
  bench::on_threads(threads, count, [&] {
    return [&, wave = std::vector<float>(frames), resampled = std::vector<float>(frames),
            calls = memory_file::calls()](int i) mutable {
      const mill::bytes& file = files[static_cast<std::size_t>(i) % files.size()];
      memory_file source(file.view());
      SF_INFO info = {};
      SNDFILE* const sound = ::sf_open_virtual(&calls, SFM_READ, &info, &source);
      ::sf_readf_float(sound, wave.data(), static_cast<sf_count_t>(frames));
      ::sf_close(sound);
      if (to != rate) {
        std::size_t used = 0, made = 0;
        const soxr_quality_spec_t high = ::soxr_quality_spec(SOXR_HQ, 0);
        ::soxr_oneshot(rate, to, 1, wave.data(), frames, &used, resampled.data(), frames, &made, nullptr, &high,
                       nullptr);
      }
      total += file.size();
    };
  });
  return total;
}

auto recordings(const std::vector<mill::bytes>& files, int count, mill::cpu_pool& cores, int to) {
  const auto pick = [&files](int i) { return files[static_cast<std::size_t>(i) % files.size()]; };
  const mill::audio_decoder decoder({.rate = to, .channels = 1});
  auto decode = [decoder](const mill::bytes& file) { return decoder(file); };
  return mill::iota(count) | mill::map(pick) | mill::map_concurrent(std::move(decode), {.on = &cores});
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 20000;
  bench::print_machine();
  std::vector<mill::bytes> files;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < different; ++i) {
    files.push_back(make_flac(i));
    bytes += files.back().size();
  }
  const double per_file = static_cast<double>(bytes) / different;
  mill::cpu_pool cores;
  const auto loop = mill::make_event_loop();
  const auto piped = [&](int to) {
    return static_cast<double>(mill::block_on(*loop, bench::count_all(recordings(files, count, cores, to)))) * per_file;
  };
  bench::contender a("libsndfile", [&] { return decode_bare(files, count, cores.threads(), rate); });
  bench::contender b("map_concurrent(audio_decoder)", [&] { return piped(rate); });
  bench::contender c("libsndfile, libsoxr to 8000",
                     [&] { return decode_bare(files, count, cores.threads(), 8000); });
  bench::contender d("map_concurrent, to 8000", [&] { return piped(8000); });
  bench::take_turns({&a, &b, &c, &d});
  std::printf("%.0f ms, %.1f KB; %u threads; GB of FLAC\n", 1e3 * frames / rate, per_file * 1e-3, cores.threads());
  bench::print_table({&a, &b, &c, &d});
  std::printf("  map_concurrent: %.0f recordings/s, %.0f per CPU second\n",
              b.gb_per_second.median() * 1e9 / per_file, 1e9 / per_file / b.cpu_per_gb.median());
  bench::goal_at_least("recordings/s, map_concurrent / bare libsndfile",
                       bench::ratio(b.gb_per_second, a.gb_per_second), 0.9);
  bench::goal_at_least("the same, resampled", bench::ratio(d.gb_per_second, c.gb_per_second), 0.9);
}
