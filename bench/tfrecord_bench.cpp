// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// CPU seconds per GB of byte strings that come out of TFRecord files, as features of tf.Example with a label beside
// them: samples of a dataset, shuffled, whose CRC32Cs are compared, through tf_fields(); beside the reader of PyPI's
// `tfrecord`, which reads a file from its beginning to its end and compares no checksum. That runs in a process of its
// own, by the interpreter that MILLRACE_TFRECORD_PYTHON names, or python3; what it used before it read does not count.
// Goal: at most 0.2 times its CPU. Both count records and add up labels and bytes; once, what is not timed, they add up
// the CRC32 of all byte strings too, and nothing is measured where these are not equal. The files are in the page
// cache. Client on core 1.
//
//   tfrecord_bench [MB a shape, default 400]

#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/formats/tfrecord_shards.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/records/tf_example.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/train/dataset.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t files = 16;

std::string number(std::uint64_t n, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i, n >>= 8) out += static_cast<char>(n & 255);
  return out;
}
std::string varint(std::uint64_t n) {
  std::string out;
  for (; n > 127; n >>= 7) out += static_cast<char>(n | 128);
  return out + static_cast<char>(n);
}
std::string part(int field, std::string_view data) {
  return varint(static_cast<std::uint64_t>(field << 3 | 2)) + varint(data.size()) + std::string(data);
}
std::string masked(std::string_view data) {
  const std::uint32_t crc = mill::crc32c(0, data.data(), data.size());
  return number((crc >> 15 | crc << 17) + 0xa282ead8U, 4);
}
std::string record(std::string_view image, std::uint64_t label) {
  const std::string features = part(1, part(1, "image/encoded") + part(2, part(1, part(1, image)))) +
                               part(1, part(1, "image/class/label") + part(2, part(3, part(1, varint(label)))));
  const std::string data = part(1, features);
  const std::string length = number(data.size(), 8);
  return length + masked(length) + data + masked(data);
}
std::string gzip_of(const std::string& text) {
  z_stream z = {};
  if (deflateInit2(&z, 1, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  std::string out(deflateBound(&z, text.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  if (deflate(&z, Z_FINISH) != Z_STREAM_END) std::abort();
  out.resize(out.size() - z.avail_out);
  deflateEnd(&z);
  return out;
}

/// What a pass over all files has found.
struct sums {
  std::uint64_t records = 0;
  std::uint64_t labels = 0;
  std::uint64_t bytes = 0;
  std::uint64_t crcs = 0;
  friend bool operator==(const sums&, const sums&) = default;
};

class shape {
 public:
  std::string folder;
  bool packed = false;

  void write(std::size_t image_bytes, std::size_t total) const {
    std::filesystem::create_directories(folder);
    const std::string noise = bench::noise(image_bytes * 2 + 1000, 7);
    for (std::size_t f = 0; f < files; ++f) {
      std::string all;
      for (std::size_t i = 0; all.size() < total / files; ++i) {
        all += record(std::string_view(noise).substr((i * 37 + f) % image_bytes, image_bytes), i % 1000);
      }
      std::ofstream(folder + "/part-" + std::to_string(f), std::ios::binary) << (packed ? gzip_of(all) : all);
    }
  }

  sums by_dataset(mill::runtime& rt, const mill::dataset& data, bool check) const {
    sums out;
    mill::epochs_options how{.seed = 1, .batch = 32};
    how.tracks = 4;
    const mill::tf_fields fields({"image/encoded", "image/class/label"});
    for (const std::vector<mill::sample>& b : rt.run(mill::epochs(data, how) | mill::map(fields) | mill::batch())) {
      for (const mill::sample& s : b) {
        if (s.weight() == 0) continue;
        const mill::bytes& image = s["image/encoded"];
        ++out.records;
        out.labels += std::strtoull(std::string(s["image/class/label"].view()).c_str(), nullptr, 10);
        out.bytes += image.size();
        if (!check) continue;
        out.crcs += ::crc32(0, reinterpret_cast<const Bytef*>(image.data()), static_cast<uInt>(image.size()));
      }
    }
    return out;
  }

  /// False where the interpreter has no tfrecord. `cost`: of the reading.
  bool by_tfrecord(bool check, sums& out, bench::cost& cost) const {
    const char* const given = std::getenv("MILLRACE_TFRECORD_PYTHON");
    const std::string script =
        "import resource, time, zlib\n"
        "from tfrecord.reader import tfrecord_loader\n"
        "def used():\n"
        "  u = resource.getrusage(resource.RUSAGE_SELF)\n"
        "  return u.ru_utime + u.ru_stime\n"
        "before, begin = used(), time.perf_counter()\n"
        "records = labels = size = crcs = 0\n"
        "for f in range(" +
        std::to_string(files) +
        "):\n"
        "  for e in tfrecord_loader('" +
        folder +
        "/part-%d' % f, None,\n"
        "      {'image/encoded': 'byte', 'image/class/label': 'int'}, compression_type=" +
        (packed ? "'gzip'" : "None") +
        "):\n"
        "    image = e['image/encoded']\n"
        "    records += 1\n"
        "    labels += int(e['image/class/label'][0])\n"
        "    size += len(image)\n" +
        (check ? "    crcs += zlib.crc32(image)\n" : "") +
        "print(used() - before, time.perf_counter() - begin, records, labels, size, crcs)\n";
    const std::string command =
        std::string(given != nullptr ? given : "python3") + " - <<'SCRIPT' 2>&1\n" + script + "SCRIPT\n";
    std::FILE* const pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return false;
    std::array<char, 4096> text = {};
    const std::size_t length = std::fread(text.data(), 1, text.size() - 1, pipe);
    unsigned long long n[4] = {};
    const bool right = ::pclose(pipe) == 0 && std::sscanf(text.data(), "%lf %lf %llu %llu %llu %llu", &cost.cpu_seconds,
                                                          &cost.seconds, &n[0], &n[1], &n[2], &n[3]) == 6;
    if (!right) std::printf("no reader of tfrecord: %.*s\n", static_cast<int>(length), text.data());
    out = {n[0], n[1], n[2], n[3]};
    cost.bytes = static_cast<double>(out.bytes);
    return right;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::size_t total = 1'000'000 * static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 400);
  bench::print_machine();
  bench::pin(1);
  const std::string folder = std::filesystem::temp_directory_path() / ("tfrecord_bench." + std::to_string(::getpid()));
  int result = 0;
  for (const auto& [name, image_bytes, packed] :
       {std::tuple("2 KB", 2000, false), std::tuple("100 KB", 100'000, false), std::tuple("2 KB, gzip", 2000, true)}) {
    const shape s{folder + '/' + std::to_string(image_bytes) + (packed ? "z" : ""), packed};
    s.write(static_cast<std::size_t>(image_bytes), total);
    mill::runtime rt({.loops = 1, .threads = 1});
    const mill::dataset data(mill::files(), s.folder + "/part-",
                             {.index = s.folder + "/index", .format = mill::tfrecord_shards()});
    sums theirs;
    bench::cost cost;
    const sums ours = s.by_dataset(rt, data, true);
    if (!s.by_tfrecord(true, theirs, cost)) return 1;
    if (ours != theirs || ours.records == 0) {
      std::fprintf(stderr, "%s: they have read other records\n", name);
      return 1;
    }
    bench::contender a("tfrecord of PyPI", [&] {
      s.by_tfrecord(false, theirs, cost);
      return cost;
    });
    bench::contender b("dataset | tf_fields", [&] { return s.by_dataset(rt, data, false).bytes; });
    bench::take_turns({&a, &b}, 5);
    std::printf("\nbyte strings of %s, %llu records, equal in both\n", name,
                static_cast<unsigned long long>(ours.records));
    bench::print_table({&a, &b});
    bench::goal_at_most(("CPU s/GB, dataset / tfrecord, " + std::string(name)).c_str(),
                        bench::ratio(b.cpu_per_gb, a.cpu_per_gb), 0.20);
    if (theirs.records != ours.records) result = 1;
  }
  std::filesystem::remove_all(folder);
  return result;
}
