// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// CPU seconds per GB of images (100 KB each, in a binary column, and a label) that come out of Parquet files in a
// store: rows of a dataset of parquet(), which reads, decodes and deals them; beside Arrow's own reader, on one thread,
// over the same files in memory, and beside fetch() of these files alone. Then a scan by pyarrow, with its
// S3FileSystem, in a process of its own, where python3 has pyarrow (MILLRACE_PYARROW names its folder): of what is left
// when the interpreter has started and imported it. Goals: at most 1.1 times the sum of the first two, and at most half
// of the scan. Server in a process of its own on core 0, client on core 1.
//
//   parquet_bench [files per round, default 6]

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/parquet.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/train/dataset.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr int rows_of_file = 480;
constexpr int rows_of_group = 80;
constexpr std::size_t image_bytes = 100'000;
constexpr std::size_t stored_files = 3;

template <class T>
T good(arrow::Result<T> r) {
  if (!r.ok()) {
    std::fprintf(stderr, "%s\n", r.status().ToString().c_str());
    std::exit(1);
  }
  return std::move(r).ValueUnsafe();
}
void good(const arrow::Status& s) { good(s.ok() ? arrow::Result<int>(0) : arrow::Result<int>(s)); }

/// As Hugging Face's datasets and pyarrow write it: snappy, dictionaries where they fit.
std::string make_file(std::uint64_t seed) {
  arrow::BinaryBuilder images;
  arrow::Int64Builder labels;
  const std::string noise = bench::noise(image_bytes * 2, seed);
  for (int i = 0; i < rows_of_file; ++i) {
    good(images.Append(noise.data() + i * 150, image_bytes));
    good(labels.Append(i % 1000));
  }
  const auto table =
      arrow::Table::Make(arrow::schema({arrow::field("jpg", arrow::binary()), arrow::field("label", arrow::int64())}),
                         {good(images.Finish()), good(labels.Finish())});
  const auto out = good(arrow::io::BufferOutputStream::Create());
  const auto how = parquet::WriterProperties::Builder().compression(arrow::Compression::SNAPPY)->build();
  good(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), out, rows_of_group, how));
  return good(out->Finish())->ToString();
}

std::string key(std::size_t i) { return "train-" + std::to_string(i) + ".parquet"; }

/// Of a file in memory, on this thread.
std::uint64_t read_by_arrow(const std::string& file) {
  const auto source = std::make_shared<arrow::io::BufferReader>(arrow::Buffer::Wrap(file.data(), file.size()));
  parquet::ArrowReaderProperties how;
  how.set_use_threads(false);
  how.set_pre_buffer(false);
  const auto reader = good(
      parquet::arrow::FileReader::Make(arrow::default_memory_pool(), parquet::ParquetFileReader::Open(source), how));
  std::uint64_t total = 0;
  for (int g = 0; g < reader->num_row_groups(); ++g) {
    const auto table = good(reader->ReadRowGroup(g));
    for (const auto& chunk : table->column(0)->chunks()) {
      const auto& all = static_cast<const arrow::BinaryArray&>(*chunk);
      for (std::int64_t i = 0; i < all.length(); ++i) total += all.GetView(i).size();
    }
  }
  return total;
}

mill::task<std::uint64_t> drain(mill::stream<mill::chunk> items) {
  std::uint64_t total = 0;
  while (std::optional<mill::chunk> c = co_await items.next()) total += c->data.size();
  co_return total;
}

/// What python3 has used after the scan of all files less what it had used before it, in CPU seconds; 0: no pyarrow.
double scan_by_pyarrow(const bench::served& server, std::size_t files) {
  const std::string script =
      "import resource\n"
      "def used():\n"
      "  u = resource.getrusage(resource.RUSAGE_SELF)\n"
      "  return u.ru_utime + u.ru_stime\n"
      "import pyarrow as pa, pyarrow.parquet as pq, pyarrow.fs as fs\n"
      "pa.set_cpu_count(1)\n"
      "pa.set_io_thread_count(8)\n"
      "s3 = fs.S3FileSystem(access_key='test-key', secret_key='test-secret', region='us-east-1', scheme='http',\n"
      "                     endpoint_override='" +
      server.endpoint.substr(server.endpoint.find("//") + 2) +
      "')\n"
      "before = used()\n"
      "total = 0\n"
      "for i in range(" +
      std::to_string(files) +
      "):\n"
      "  f = pq.ParquetFile(s3.open_input_file('b/train-%d.parquet' % (i % " +
      std::to_string(stored_files) +
      ")), pre_buffer=True)\n"
      "  for g in range(f.num_row_groups):\n"
      "    for value in f.read_row_group(g).column('jpg'): total += len(value.as_buffer())\n"
      "print(used() - before, total)\n";
  const std::string command = "python3 - <<'SCRIPT' 2>&1\n" + script + "SCRIPT\n";
  std::FILE* const out = ::popen(command.c_str(), "r");
  if (out == nullptr) return 0;
  char text[4096] = {};
  const std::size_t length = std::fread(text, 1, sizeof text - 1, out);
  const int status = ::pclose(out);
  double seconds = 0;
  double total = 0;
  if (status != 0 || std::sscanf(text, "%lf %lf", &seconds, &total) != 2 ||
      total != static_cast<double>(files) * rows_of_file * image_bytes) {
    std::printf("no scan by pyarrow: %.*s\n", static_cast<int>(length), text);
    return 0;
  }
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t files = static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 6);
  bench::print_machine();
  std::vector<std::string> stored;
  for (std::size_t i = 0; i < stored_files; ++i) stored.push_back(make_file(i + 1));
  const bench::served server(false, [&](mill::s3_server::background& s) {
    for (std::size_t i = 0; i < stored_files; ++i) s.put("b", key(i), stored[i]);
  });
  bench::pin(1);
  const mill::s3::client s3 = server.client();
  const auto loop = mill::make_event_loop();
  const double payload = static_cast<double>(files) * rows_of_file * image_bytes;

  bench::contender memory("Arrow's reader, from memory", [&] {
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < files; ++i) total += read_by_arrow(stored[i % stored_files]);
    return total;
  });
  bench::contender fetched("fetch of the files", [&] {
    std::vector<mill::shard> all;
    for (std::size_t i = 0; i < files; ++i) {
      all.emplace_back("s3://b/" + key(i % stored_files), std::uint64_t(stored[i % stored_files].size()));
    }
    mill::block_on(*loop, drain(mill::from_range(std::move(all)) | mill::fetch(s3)));
    return static_cast<std::uint64_t>(payload);
  });
  const std::string index = std::filesystem::temp_directory_path() / ("parquet_bench." + std::to_string(::getpid()));
  mill::runtime rt({.loops = 1, .threads = 1});
  const mill::dataset train(s3, "s3://b/train-", {.index = index, .format = mill::parquet()});
  const auto rows = [&] {
    std::uint64_t total = 0;
    mill::epochs_options how{.seed = 1, .epochs = files / stored_files, .batch = 32};
    how.tracks = 4;
    for (const std::vector<mill::sample>& b : rt.run(mill::epochs(train, how) | mill::batch())) {
      for (const mill::sample& one : b) total += one["jpg"].size();
    }
    return total;
  };
  bench::contender dataset("rows of a dataset of parquet()", rows);
  bench::take_turns({&memory, &fetched, &dataset});
  std::filesystem::remove(index);
  if (memory.last.bytes != payload || dataset.last.bytes != payload) {
    std::fprintf(stderr, "bytes differ: %.0f %.0f %.0f\n", payload, memory.last.bytes, dataset.last.bytes);
    return 1;
  }
  bench::print_table({&memory, &fetched, &dataset});
  const double both = memory.cpu_per_gb.median() + fetched.cpu_per_gb.median();
  bench::goal_at_most("CPU s/GB, dataset / (Arrow + fetch)", dataset.cpu_per_gb.median() / both, 1.10);
  std::vector<double> scans;
  for (int i = 0; i < 3; ++i) {
    const double seconds = scan_by_pyarrow(server, files);
    if (seconds == 0) break;
    scans.push_back(seconds / payload * 1e9);
  }
  if (scans.empty()) return 0;
  std::sort(scans.begin(), scans.end());
  const double scan = scans[scans.size() / 2];
  std::printf("%-34s %.4f (%.4f - %.4f) CPU s/GB\n", "scan by pyarrow's S3FileSystem", scan, scans.front(),
              scans.back());
  bench::goal_at_most("CPU s/GB, dataset / pyarrow", dataset.cpu_per_gb.median() / scan, 0.50);
}
