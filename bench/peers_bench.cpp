// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The half of bench/peers/measure.py that is C++: the server that all read from, and millrace among those that are
// measured. measure.py starts both, and says what is measured and how.
// Build: c++ -std=c++20 -O2 -DMILLRACE_WITH_JPEG -Iinclude -I. bench/peers_bench.cpp -o peers_bench -lcurl -luring
// -lssl -lcrypto -lexpat -larchive -lz -lzstd -ljpeg -lavformat -lavcodec -lswscale -lavutil
//
//   peers_bench serve SHARDS TEXTS RAWS [SHAPE]
//                                           stores that many tars, text files and objects of 128 MiB; prints the
//                                           endpoint and, over TLS, the file of its authority; each line of standard
//                                           input, "slow" or "even", is answered "ok". SHAPE: "large": the tars have
//                                           1.5 GiB each; "records": SHARDS TFRecord files beside no tars; "small":
//                                           only small objects; "lossy": 60 ms away; "tls": over TLS; "far": RAWS
//                                           objects of 256 MB over TLS, 15 ms away; "checkpoint": one of SHARDS files
//                                           of 34 MB, in safetensors; "films": SHARDS videos of a minute
//   peers_bench trace FILE                  prints the nanoseconds of CPU that an event of a trace costs: as it is
//                                           added, and as FILE is written of all of them at a run's end
//   peers_bench WORK ENDPOINT KEYS          prints "ready"; each line of standard input, "PASSES FIRST THIRD", is
//                                           answered when WORK is done so many times on KEYS objects. The answer:
//                                           items and bytes; items, seconds and CPU seconds when FIRST items have
//                                           come, the same of THIRD (0: all are 0), and the same at the end

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/decode/augment.hpp>
#include <millrace/decode/decode_images.hpp>
#include <millrace/decode/decode_video.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/object_samples.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/formats/tfrecord_shards.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/loader/detail/run_trace.hpp>
#include <millrace/loader/detail/whole_file.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/disk_cache.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/s3_server/background.hpp>
#include <millrace/train/checkpoint.hpp>
#include <millrace/train/dataset.hpp>

#include "bench/common/curl_client.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/photo.hpp"
#include "bench/common/raw_client.hpp"
#include "bench/common/served.hpp"
#include "bench/common/text.hpp"
#include "examples/common/encode_video.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t raw_bytes = 128 * mill::MiB;
constexpr std::size_t volume_bytes = 140'000'000;
constexpr std::size_t slow_bytes = 64 * mill::MiB;
constexpr int volumes = 4;
constexpr int slow_shards = 8;
constexpr int tar_members = 1000;
constexpr std::size_t distinct = 4;    // tars, texts and files of records; further ones share their bytes
constexpr int large_members = 14'500;  // 1.5 GiB
// MLPerf Storage's resnet50: so many samples in a file, of so many bytes.
constexpr int record_samples = 1251;
constexpr std::size_t record_bytes = 114'660;
// 64 objects of 256 KiB from a store 60 ms away on a path that loses 1 % of the packets: then a connection brings
// 1448 B / 60 ms * 1.22 / sqrt(0.01) = 0.3 MB/s (Mathis et al., CCR 27(3), 1997).
constexpr std::size_t small_objects = 64;
constexpr std::size_t small_bytes = 256 * mill::KiB;
constexpr std::int64_t lossy_round_trip = 60'000'000;
constexpr std::uint64_t lossy_rate = 300'000;
// A file of a checkpoint: so many weights of side x side floats, and as many biases of a side.
constexpr std::size_t checkpoint_weights = 8;
constexpr std::int64_t checkpoint_side = 1024;
// 10 of them fill a link of 800 MB/s for three seconds.
constexpr std::size_t far_bytes = 256'000'000;
constexpr std::int64_t far_round_trip = 15'000'000;
constexpr std::uint64_t far_rate = 85'000'000;
constexpr std::uint64_t far_link = 800'000'000;
// Of a film of a minute every two seconds are a clip, of which every third frame counts.
constexpr std::size_t film_clips = 30;
constexpr int film_rate = 24;
constexpr int clip_seconds = 2;
constexpr int clip_stride = 3;
constexpr std::size_t clip_batch = 8;
constexpr std::size_t photos = 64;
constexpr std::size_t batch = 100;
constexpr std::size_t first_samples = 32;  // of the works that end with them

std::string numbered(const char* prefix, std::size_t i, const char* suffix) {
  char text[64];
  std::snprintf(text, sizeof text, "%s%04zu%s", prefix, i, suffix);
  return text;
}

// ---- a checkpoint

/// The tensors of `files` files, and their memory.
class model {
 public:
  explicit model(std::size_t files) {
    for (std::size_t i = 0; i < files * checkpoint_weights; ++i) {
      weights_.emplace_back(checkpoint_side * checkpoint_side, static_cast<float>(i));
      biases_.emplace_back(checkpoint_side, static_cast<float>(i));
      bytes_ += (weights_[i].size() + biases_[i].size()) * sizeof(float);
    }
  }
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Of one file, or of all.
  std::vector<mill::tensor_slice> tensors(std::size_t file = SIZE_MAX) {
    std::vector<mill::tensor_slice> all;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (file != SIZE_MAX && i / checkpoint_weights != file) continue;
      const mill::shape square{checkpoint_side, checkpoint_side};
      all.emplace_back(numbered("layer", i, ".weight"),
                       mill::tensor_view(weights_[i].data(), mill::dtype::f32, square));
      all.emplace_back(numbered("layer", i, ".bias"),
                       mill::tensor_view(biases_[i].data(), mill::dtype::f32, {checkpoint_side}));
    }
    return all;
  }

 private:
  std::vector<std::vector<float>> weights_;
  std::vector<std::vector<float>> biases_;
  std::uint64_t bytes_ = 0;
};

/// The file of the authority of an endpoint of https; empty: the system's.
std::string authorities() {
  const char* const file = std::getenv("AWS_CA_BUNDLE");
  return file == nullptr ? "" : file;
}

mill::s3::client client_at(const std::string& endpoint, double hedges = mill::retry_options().hedges) {
  mill::s3::config_options options;
  options.endpoint = endpoint;
  options.ca_bundle = authorities();
  options.retry.hedges = hedges;
  return mill::s3::client(mill::s3::config(options), mill::s3::credentials("test-key", "test-secret"));
}

/// Step 1 of s3://b/checkpoint/.
void save_checkpoint(const mill::s3::client& s3, std::size_t files) {
  const auto loop = mill::make_event_loop();
  model all(files);
  for (std::uint32_t r = 0; r < files; ++r) {
    const mill::checkpoints saved(s3, "s3://b/checkpoint/",
                                  {.index = r, .world_size = static_cast<std::uint32_t>(files)});
    mill::block_on(*loop, saved.write(1, all.tensors(r)));
    if (r + 1 == files) mill::block_on(*loop, saved.commit(1, ""));
  }
}

// ---- the server

/// A TFRecord file of samples of noise, each in the wire format of tf.train.Example with one field "image".
std::string records(std::size_t n) {
  const auto masked = [](const std::string& of) {
    const std::uint32_t crc = mill::crc32c(0, of.data(), of.size());
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
  };
  const auto number = [](std::uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
    return out;
  };
  const auto part = [](const std::string& content) {  // a field of number 1 with a length
    std::string out(1, '\x0a');
    std::uint64_t left = content.size();
    for (; left >= 0x80; left >>= 7) out += static_cast<char>((left & 0x7f) | 0x80);
    return out + static_cast<char>(left) + content;
  };
  const mill::bytes noise = mill::bytes::copy(bench::noise(record_bytes + 4096, n + 1));
  std::string out;
  for (std::size_t i = 0; i < record_samples; ++i) {
    const std::string_view image(reinterpret_cast<const char*>(noise.data()) + i % 4096, record_bytes);
    std::string entry = part("image");
    std::string value = part(part(std::string(image)));
    value[0] = '\x12';  // the value of the map's entry
    const std::string record = part(part(entry + value));
    const std::string length = number(record.size(), 8);
    out += length + number(masked(length), 4) + record + number(masked(record), 4);
  }
  return out;
}

/// 640x360 in H.264, with two B frames between others and a key frame every 1.5 s.
std::string film(std::size_t n) {
  examples::video_form form;
  form.width = 640;
  form.height = 360;
  form.frames = static_cast<int>(film_clips) * clip_seconds * film_rate;
  form.seed = static_cast<int>(n) + 1;
  form.tick = {1, film_rate * 512};
  form.length = 512;
  form.group = film_rate * 3 / 2;
  form.between = 2;
  form.options = "preset=veryfast";
  return examples::encode_video(form);
}

void fill(mill::s3_server::background& server, std::size_t shards, std::size_t texts, std::size_t raws,
          const std::string& shape) {
  const auto same = [&server](const char* prefix, std::size_t count, std::size_t bytes) {
    const mill::s3_server::object one(mill::bytes::copy(bench::noise(bytes, 1)));
    for (std::size_t n = 0; n < count; ++n) server.objects().put("b", numbered(prefix, n, ".bin"), one);
  };
  const auto in_turns = [&server](const char* prefix, const char* suffix, std::size_t count, auto make) {
    std::vector<mill::s3_server::object> all;
    for (std::size_t n = 0; n < count; ++n) {
      if (n < distinct) all.emplace_back(mill::bytes::copy(make(n)));
      server.objects().put("b", numbered(prefix, n, suffix), all[n % distinct]);
    }
  };
  if (shape == "lossy" || shape == "small") return same("small/", small_objects, small_bytes);
  if (shape == "far") return same("far/", raws, far_bytes);
  if (shape == "records") return in_turns("records/", ".tfrecord", shards, records);
  if (shape == "films") return in_turns("films/", ".mp4", shards, film);
  const std::size_t members = shape == "large" ? large_members : tar_members;
  std::vector<std::string> jpegs;
  for (std::size_t i = 0; i < photos; ++i) jpegs.push_back(bench::make_photo(i));
  in_turns("train/", ".tar", shards, [&](std::size_t n) {
    std::string text;
    mill::tar::writer out(text);
    for (std::size_t i = 0; i < members; ++i) {
      out.add(numbered("", n * members + i, ".jpg"), jpegs[i % photos]);
      out.add(numbered("", n * members + i, ".cls"), std::to_string(i % 1000));
    }
    out.finish();
    return text;
  });
  in_turns("text/", ".txt", texts, [](std::size_t n) { return bench::make_text(n + 1); });
  same("raw/", raws, raw_bytes);
  same("volume/", volumes, volume_bytes);
  same("slow/", slow_shards, slow_bytes);
}

int serve(std::size_t shards, std::size_t texts, std::size_t raws, const std::string& shape) {
  bench::pin(0);
  mill::s3_server::options o;
  o.anonymous = mill::s3_server::anonymous_access::read;
  o.log_limit = 16;
  o.max_object_size = std::uint64_t(1) << 40;
  o.tls.enabled = shape == "tls" || shape == "far";
  if (shape == "lossy") {
    o.away.first_byte = o.away.connect = mill::duration(lossy_round_trip);
    o.away.connection_rate = lossy_rate;
  }
  if (shape == "far") {
    o.away.first_byte = o.away.connect = mill::duration(far_round_trip);
    o.away.connection_rate = far_rate;
    o.away.link_rate = far_link;
  }
  mill::s3_server::background server(std::move(o));
  if (shape == "checkpoint") {
    server.objects().create_bucket("b");
    save_checkpoint(client_at(server.endpoint()), shards);
  } else {
    fill(server, shards, texts, raws, shape);
  }
  std::printf("%s %s\n", server.endpoint().c_str(), server.certificate_file().c_str());
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    server.faults().clear();
    if (std::strncmp(line, "slow", 4) == 0) {
      // Of one object in eight the first request takes a second.
      server.faults().add({.method = "GET", .key = "slow/0003.bin", .nth = 1},
                          mill::s3_server::fault::delay_head(mill::duration(1'000'000'000)));
    }
    std::puts("ok");
    std::fflush(stdout);
  }
  return 0;
}

// ---- what is measured

/// Counts what comes, and takes time and CPU time when the first items have come and when a third of all has.
class counter {
 public:
  counter(std::uint64_t first, std::uint64_t third) : first_(first), third_(third), begin_(now()) {}

  void add(std::uint64_t bytes, std::uint64_t items = 1) {
    items_ += items;
    bytes_ += bytes;
    if (items_ >= next_) mark();
  }
  std::uint64_t items() const noexcept { return items_; }
  void print() const {
    std::printf("%llu %llu", static_cast<unsigned long long>(items_), static_cast<unsigned long long>(bytes_));
    for (const moment& m : {at_first_, at_third_, since_begin()}) {
      std::printf(" %llu %.6f %.6f", static_cast<unsigned long long>(m.items), m.seconds, m.cpu);
    }
    std::printf("\n");
  }

 private:
  class moment {
   public:
    std::uint64_t items = 0;
    double seconds = 0;
    double cpu = 0;
  };
  static moment now() {
    timespec cpu{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return {0, 1e-9 * static_cast<double>(mill::monotonic_ns()),
            static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec)};
  }
  moment since_begin() const {
    const moment m = now();
    return {items_, m.seconds - begin_.seconds, m.cpu - begin_.cpu};
  }
  void mark() {
    if (next_ == first_) at_first_ = since_begin();
    if (third_ != 0 && items_ >= third_) at_third_ = since_begin();
    next_ = third_ > items_ ? third_ : UINT64_MAX;
  }

  std::uint64_t first_;
  std::uint64_t third_;
  std::uint64_t next_ = first_;
  std::uint64_t items_ = 0;
  std::uint64_t bytes_ = 0;
  moment begin_, at_first_, at_third_;
};

using work = std::function<void(counter&)>;

std::uint64_t bytes_of(const mill::sample& s) {
  std::uint64_t total = 0;
  for (const mill::field& f : s.fields) total += f.data.size();
  return total;
}

// ---- an event of a trace, for trace_cost.py

std::int64_t thread_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

/// The events of a run of single samples: a step and a wait for each, three for a request in each hundred.
int trace(const char* file) {
  using mill::detail::trace_lane;
  constexpr int samples = 60'000;
  mill::detail::tracer events;
  std::uint32_t run = 0;
  for (int round = 0; round < 9; ++round) {
    ::unlink(file);
    const std::uint64_t since = events.start(run);
    const std::int64_t at = mill::monotonic_ns();
    const std::int64_t begun = thread_ns();
    for (std::uint32_t i = 0; i < samples; ++i) {
      const std::int64_t t = at + 43'210 * std::int64_t(i);
      events.add({.begin = t, .end = t + 12'345, .name = "wait", .key = run});
      events.add({.begin = t + 12'345, .end = t + 43'210, .name = "step", .key = run});
      if (i % 100 != 0) continue;
      events.add({.begin = t, .end = t + 9'999, .name = "queue", .lane = trace_lane::queue});
      const std::uint32_t port = 40'000 + i / 100 % 64;
      events.add({.begin = t, .end = t + 9, .name = "first byte", .lane = trace_lane::connection, .key = port});
      events.add({.begin = t + 9,
                  .end = t + 99,
                  .name = "body",
                  .lane = trace_lane::connection,
                  .key = port,
                  .bytes = 8'388'608});
    }
    const std::int64_t added = thread_ns();
    std::uint64_t dropped = 0;
    const std::vector<mill::detail::trace_event> all = events.stop(since, dropped);
    const std::int64_t copied = thread_ns();
    mill::detail::whole_file to(file);
    to.write(mill::detail::run_trace::text(all, dropped, at, 0, &to));
    to.finish();
    const std::int64_t written = thread_ns();
    const auto each = [&all](std::int64_t ns) { return static_cast<double>(ns) / static_cast<double>(all.size()); };
    if (round == 0) continue;  // the first touch of the ring
    std::printf("%.1f %.1f %.1f\n", each(added - begun), each(copied - added), each(written - copied));
  }
  return 0;
}

class works {
 public:
  works(std::string endpoint, std::size_t keys)
      : endpoint_(std::move(endpoint)), keys_(keys), s3_(client_at(endpoint_)) {}
  works(const works&) = delete;
  works& operator=(const works&) = delete;
  ~works() {
    for (const std::string& file : files_) ::unlink(file.c_str());
  }

  work find(const std::string& name) {
    if (name == "recv") {
      const auto port = static_cast<std::uint16_t>(std::atoi(endpoint_.c_str() + endpoint_.rfind(':') + 1));
      return [this, raw = std::make_shared<bench::raw_client>(port, 8)](counter& c) {
        c.add(raw->fetch(ranges(), slabs_, [](const mill::bytes&) {}), keys_);
      };
    }
    if (name == "libcurl") {
      return [this, curl = std::make_shared<bench::curl_client>(endpoint_, 8, authorities())](counter& c) {
        c.add(curl->fetch(ranges(), slabs_), keys_);
      };
    }
    if (name == "fetch") return [this](counter& c) { chunks("raw/", raw_bytes, keys_, s3_, c); };
    if (name == "far") return [this](counter& c) { chunks("far/", far_bytes, keys_, s3_, c); };
    if (name == "fetch_on_loop") {
      return [this](counter& c) {
        if (!loop_) loop_ = mill::make_event_loop();
        mill::block_on(*loop_, drain(mill::from_range(known("raw/", raw_bytes, keys_)) | mill::fetch(s3_), c));
      };
    }
    if (name == "volumes") {
      return [this](counter& c) {
        if (!loop_) loop_ = mill::make_event_loop();
        memory_.resize(volume_bytes);
        for (std::size_t i = 0; i < keys_; ++i) {
          c.add(mill::block_on(*loop_, s3_.read("s3://b/" + numbered("volume/", i, ".bin"), std::span(memory_))));
        }
      };
    }
    if (name == "volumes_epochs") {
      auto data = dataset("volume/", mill::object_samples());
      return [this, data](counter& c) { samples(*data, 1, c); };
    }
    if (name == "save" || name == "load") {
      return [this, all = std::make_shared<model>(keys_), saves = name == "save",
              step = std::uint64_t(0)](counter& c) mutable {
        if (!loop_) loop_ = mill::make_event_loop();
        std::vector<mill::tensor_slice> tensors = all->tensors();
        const std::size_t count = tensors.size();
        if (saves) {
          const mill::checkpoints saved(s3_, "s3://b/ours/");
          mill::block_on(*loop_, saved.write(++step, std::move(tensors)));
          mill::block_on(*loop_, saved.commit(step, "", 1));
        } else {
          const mill::tensor_files there = mill::block_on(*loop_, mill::checkpoints(s3_, "s3://b/checkpoint/").open(1));
          mill::block_on(*loop_, there.load(std::move(tensors)));
        }
        c.add(all->bytes(), count);
      };
    }
    if (name == "small") return [this](counter& c) { chunks("small/", small_bytes, keys_, s3_, c); };
    if (name == "records") {
      auto data = dataset("records/", mill::tfrecord_shards());
      return [this, data](counter& c) { samples(*data, batch, c); };
    }
    if (name == "even" || name == "hedged") {
      return [this, store = mill::s3::as_storage(name == "even" ? client_at(endpoint_, 0) : s3_)](counter& c) {
        chunks("slow/", slow_bytes, slow_shards, store, c);
      };
    }
    if (name == "stages") return [this](counter& c) { stages(c); };
    if (name == "stages_first") return [this](counter& c) { stages(c, first_samples); };
    if (name == "epochs") {
      auto data = dataset("train/", mill::tar_shards());
      return [this, data](counter& c) { samples(*data, batch, c); };
    }
    if (name == "epochs_indexed") {
      const std::string index = "../train.index";  // of all processes that measure.py starts
      auto data = dataset("train/", mill::tar_shards(), s3_, index);
      if (::access(index.c_str(), F_OK) != 0) {
        counter none(1, 0);
        samples(*data, batch, none, 1);
      }
      return [this, data](counter& c) { samples(*data, batch, c); };
    }
    if (name == "epochs_half") {  // two thirds of the memory
      auto data = dataset("train/", mill::tar_shards());
      return [this, data](counter& c) { samples(*data, batch, c, SIZE_MAX, 24, 88 * mill::MiB); };
    }
    if (name == "warm") {
      const auto cache = mill::disk_cache(s3_, {.directory = "cache", .bytes = 4 * mill::GiB, .wait_for_disk = true});
      auto data = dataset("train/", mill::tar_shards(), cache);
      return [this, data, cache, misses = std::uint64_t(0)](counter& c) mutable {
        samples(*data, batch, c);
        const std::uint64_t more = cache->stats().misses - misses;
        if (misses != 0 && more != 0) {
          throw std::runtime_error("a later epoch has asked the store " + std::to_string(more) + " times");
        }
        misses += more;
      };
    }
    if (name == "epochs_first") {
      auto data = dataset("train/", mill::tar_shards());
      return [this, data](counter& c) { samples(*data, first_samples, c, first_samples); };
    }
    if (name == "epochs_no_index") {
      auto data = std::make_shared<const mill::dataset>(s3_, std::string("s3://b/train/"));
      return [this, data](counter& c) { samples(*data, batch, c); };
    }
    if (name == "decode" || name == "crops") {
      auto data = dataset("train/", mill::tar_shards());
      return [this, data, crops = name == "crops"](counter& c) {
        const mill::image_options o = crops ? cropped() : whole();
        images(*data, o, mill::decode_images(o), c);
      };
    }
    if (name == "augment") {
      auto data = dataset("train/", mill::tar_shards());
      return [this, data](counter& c) { images(*data, cropped(), mill::decode_images(cropped(), augment), c); };
    }
    if (name == "clips") {
      auto data = dataset("films/", mill::video_shards({.seconds = clip_seconds}));
      return [this, data](counter& c) { clips(mill::epochs(*data, next_epoch(clip_batch)), c); };
    }
    if (name == "clips_of_files") {
      return [this, all = clips_in_memory()](counter& c) { clips(mill::from_range(all), c); };
    }
    if (name.rfind("lines", 0) == 0) {
      return [this, size = static_cast<std::size_t>(std::atoi(name.c_str() + 5))](counter& c) { lines(size, c); };
    }
    return nullptr;
  }

 private:
  static std::vector<mill::shard> known(const char* prefix, std::uint64_t bytes, std::size_t count,
                                        const char* suffix = ".bin") {
    std::vector<mill::shard> all;
    for (std::size_t i = 0; i < count; ++i) all.emplace_back("s3://b/" + numbered(prefix, i, suffix), bytes);
    return all;
  }
  std::vector<bench::range> ranges() const {
    std::vector<bench::range> all;
    for (std::size_t i = 0; i < keys_; ++i) {
      bench::add_parts(all, "/b/" + numbered("raw/", i, ".bin"), raw_bytes, 8 * mill::MiB);
    }
    return all;
  }
  std::shared_ptr<const mill::dataset> dataset(const char* prefix, std::shared_ptr<const mill::shard_format> format) {
    return dataset(prefix, format, s3_);
  }
  template <class Store>
  std::shared_ptr<const mill::dataset> dataset(const char* prefix, std::shared_ptr<const mill::shard_format> format,
                                               const Store& store, std::string index = std::string()) {
    if (index.empty()) {
      index = "peers_bench." + std::to_string(::getpid()) + "." + std::to_string(files_.size());
      files_.push_back(index);
    }
    mill::dataset_options o;
    o.index = index;
    o.format = format;
    return std::make_shared<const mill::dataset>(store, std::string("s3://b/") + prefix, o);
  }
  mill::runtime& rt() {
    if (!rt_) rt_.emplace();
    return *rt_;
  }

  static mill::task<void> drain(mill::stream<mill::chunk> all, counter& c) {
    while (std::optional<mill::chunk> chunk = co_await all.next()) c.add(chunk->data.size());
  }
  template <class Store>
  void chunks(const char* prefix, std::uint64_t bytes, std::size_t count, const Store& store, counter& c) {
    auto read = mill::from_range(known(prefix, bytes, count)) | mill::fetch(store);
    for (const mill::chunk& chunk : rt().run(std::move(read), quiet)) c.add(chunk.data.size());
  }
  void stages(counter& c, std::size_t most = SIZE_MAX) {
    auto run = rt().run(s3_.list("s3://b/train/") | mill::fetch(s3_) | mill::untar() | mill::group_samples(), quiet);
    while (std::optional<mill::sample> s = c.items() < most ? run.next() : std::nullopt) c.add(bytes_of(*s));
  }
  void samples(const mill::dataset& data, std::size_t size, counter& c, std::size_t most = SIZE_MAX,
               std::size_t tracks = 0, std::size_t bytes = 0) {
    mill::epochs_options o = next_epoch(size);
    o.tracks = tracks;
    o.bytes = bytes;
    auto run = rt().run(mill::epochs(data, o) | mill::batch(), quiet);
    while (std::optional<std::vector<mill::sample>> b = c.items() < most ? run.next() : std::nullopt) {
      for (const mill::sample& s : *b) {
        if (s.weight() != 0) c.add(bytes_of(s));
      }
    }
  }
  static mill::image_options whole() {
    mill::image_options o;
    o.height = bench::photo_height;
    o.width = bench::photo_width;
    return o;
  }
  static mill::image_options cropped() {
    mill::image_options o;
    o.height = o.width = 224;
    o.crop = mill::crop::random_resized{};
    o.flip = 0.5;
    o.layout = mill::image_layout::chw;
    o.type = mill::dtype::f16;
    o.mean = {0.485f, 0.456f, 0.406f};
    o.std = {0.229f, 0.224f, 0.225f};
    return o;
  }
  static void augment(const mill::pixels<float>& chw, mill::sample_rng& numbers) {
    static constexpr mill::augment::color_jitter jitter{
        .brightness = 0.4f, .contrast = 0.4f, .saturation = 0.4f, .hue = 0.1f};
    jitter(chw, numbers);
    mill::augment::rotate(chw, 30 * numbers.uniform() - 15, mill::image_filter::bilinear);
    mill::augment::gaussian_blur(chw, 9, 0.1 + 1.9 * numbers.uniform());
    mill::augment::random_erasing{.probability = 0.25}(chw, numbers);
  }
  void images(const mill::dataset& data, const mill::image_options& o, mill::decode_images_stage decode, counter& c) {
    rows(mill::epochs(data, next_epoch(batch)) | std::move(decode) | mill::batch(),
         static_cast<std::uint64_t>(o.height) * static_cast<std::uint64_t>(o.width) * 3, c);
  }
  /// The clips of all films, as samples of whole files in memory.
  std::vector<mill::sample> clips_in_memory() {
    if (!loop_) loop_ = mill::make_event_loop();
    std::vector<mill::sample> all;
    for (std::size_t i = 0; i < keys_; ++i) {
      const mill::bytes file = mill::block_on(*loop_, s3_.read("s3://b/" + numbered("films/", i, ".mp4")));
      for (std::size_t n = 0; n < film_clips; ++n) {
        const double times[2] = {static_cast<double>(n * clip_seconds), static_cast<double>((n + 1) * clip_seconds)};
        const mill::bytes part = mill::bytes::copy({reinterpret_cast<const char*>(times), sizeof times});
        mill::sample s(numbered("", i * film_clips + n, ""), mill::origin());
        s.fields.emplace_back("mp4", file);
        s.fields.emplace_back("begin", part.slice(0, sizeof times[0]));
        s.fields.emplace_back("end", part.slice(sizeof times[0], sizeof times[0]));
        all.push_back(std::move(s));
      }
    }
    return all;
  }
  template <class Samples>
  void clips(Samples samples, counter& c) {
    mill::video_options o;
    o.frames = clip_seconds * film_rate / clip_stride;
    o.height = 126;
    o.width = 224;
    o.start = mill::clip_start::first;
    o.stride = clip_stride;
    rows(std::move(samples) | mill::decode_video(o) | mill::batch(clip_batch),
         static_cast<std::uint64_t>(o.frames) * static_cast<std::uint64_t>(o.height * o.width) * 3, c);
  }
  /// Counts the rows of batches that are no padding, of `values` each.
  template <class Batches>
  void rows(Batches batches, std::uint64_t values, counter& c) {
    for (const mill::host_batch& b : rt().run(std::move(batches), quiet)) {
      const auto real = static_cast<std::uint64_t>(
          std::count_if(b.weights().begin(), b.weights().end(), [](float w) { return w != 0; }));
      c.add(real * values, real);
    }
  }
  void lines(std::size_t size, counter& c) {
    mill::lines_options o;
    o.batch = size;
    for (const mill::line_batch& b : rt().run(
             mill::from_range(known("text/", bench::text_bytes, keys_, ".txt")) | mill::fetch(s3_) | mill::lines(o),
             quiet)) {
      c.add(byte_size(b) + b.size(), b.size());  // with the line feeds
    }
  }
  mill::epochs_options next_epoch(std::size_t size) {
    mill::epochs_options o;
    o.seed = 7;
    o.first_epoch = epoch_++;
    o.batch = size;
    return o;
  }

  static constexpr mill::run_options quiet{.show = mill::progress::off};
  std::string endpoint_;
  std::size_t keys_;
  mill::s3::client s3_;
  mill::slab_pool slabs_{8 * mill::MiB};
  std::unique_ptr<mill::event_loop> loop_;
  std::optional<mill::runtime> rt_;
  std::vector<std::byte> memory_;
  std::vector<std::string> files_;
  std::uint64_t epoch_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i) { return static_cast<std::size_t>(std::atoi(argv[i])); };
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "serve" && (argc == 5 || argc == 6)) {
    return serve(number(2), number(3), number(4), argc == 6 ? argv[5] : "");
  }
  if (what == "trace" && argc == 3) return trace(argv[2]);
  if (argc != 4) {
    std::fprintf(
        stderr,
        "usage: peers_bench serve SHARDS TEXTS RAWS [SHAPE] | trace FILE | WORK ENDPOINT KEYS; see bench/peers\n");
    return 2;
  }
  works all(argv[2], number(3));
  const work one = all.find(what);
  if (one == nullptr) {
    std::fprintf(stderr, "peers_bench: no such work: %s\n", what.c_str());
    return 2;
  }
  std::puts("ready");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    unsigned long long passes = 0, first = 0, third = 0;
    if (std::sscanf(line, "%llu %llu %llu", &passes, &first, &third) != 3) return 2;
    counter c(first, third);
    for (unsigned long long i = 0; i < passes; ++i) one(c);
    c.print();
    std::fflush(stdout);
  }
}
