// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Compressed data on the pool, beside the bare libraries on as many threads, in turns:
//
//   tar.gz         fetch | untar, beside zlib
//   lines, gz zst  fetch | lines | json_reader, beside zlib or libzstd alone, and beside simdjson alone, on text that
//                  is unpacked already; the goal is a ratio to the slower of both
//
// The peers do less: they neither read files nor hand anything over, and each does one half of what lines need. So the
// last lines say what both halves bare would reach on these cores, by the sum of their seconds, and how much of that is
// reached.
//
// Shards are files, in the page cache; their bytes are counted unpacked. Lines are JSON of 1.6 KB, members of 100 KB.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/unpack_bench.cpp -o unpack_bench -luring -larchive -lz -lzstd
// -lsimdjson
//
//   unpack_bench [megabytes a shard, unpacked, default 64] [shards per round, default 8]

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <simdjson.h>
#include <zlib.h>
#include <zstd.h>

#include <millrace/decode/json_reader.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/writer.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"

namespace {

namespace mill = millrace;

/// Words: gzip makes a third of them.
void add_words(std::string& text, std::size_t size, mill::rng& random) {
  const std::size_t end = text.size() + size;
  while (text.size() < end) {
    for (std::uint64_t n = 2 + random.below(7); n > 0; --n) text += static_cast<char>('a' + random.below(20));
    text += ' ';
  }
}

std::string make_lines(std::size_t size, std::uint64_t seed) {
  std::string text;
  mill::rng random(seed);
  for (std::uint64_t id = 0; text.size() < size; ++id) {
    text += "{\"id\": " + std::to_string(id) + ", \"text\": \"";
    add_words(text, 1550, random);
    text += "\"}\n";
  }
  return text;
}

std::string make_tar(std::size_t size, std::uint64_t seed) {
  std::string text;
  mill::tar::writer archive(text);
  mill::rng random(seed);
  std::string body;
  for (int i = 0; text.size() < size; ++i) {
    body.clear();
    add_words(body, 100000, random);
    archive.add(std::to_string(i) + ".txt", body);
  }
  archive.finish();
  return text;
}

std::string gzip(const std::string& text) {
  ::z_stream z = {};
  if (::deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  std::string out(::deflateBound(&z, static_cast<::uLong>(text.size())), '\0');
  z.next_in = const_cast<::Bytef*>(reinterpret_cast<const ::Bytef*>(text.data()));
  z.avail_in = static_cast<::uInt>(text.size());
  z.next_out = reinterpret_cast<::Bytef*>(out.data());
  z.avail_out = static_cast<::uInt>(out.size());
  if (::deflate(&z, Z_FINISH) != Z_STREAM_END) std::abort();
  out.resize(z.total_out);
  ::deflateEnd(&z);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ::ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3);
  if (::ZSTD_isError(size) != 0) std::abort();
  out.resize(size);
  return out;
}

// As programs do it: a piece at a time, into the same memory again.
constexpr std::size_t piece_bytes = std::size_t(1) << 20;

std::size_t gunzip(const std::string& packed) {
  std::vector<char> piece(piece_bytes);
  ::z_stream z = {};
  if (::inflateInit2(&z, 15 + 16) != Z_OK) std::abort();
  z.next_in = const_cast<::Bytef*>(reinterpret_cast<const ::Bytef*>(packed.data()));
  z.avail_in = static_cast<::uInt>(packed.size());
  int result = Z_OK;
  while (result == Z_OK) {
    z.next_out = reinterpret_cast<::Bytef*>(piece.data());
    z.avail_out = static_cast<::uInt>(piece.size());
    result = ::inflate(&z, Z_NO_FLUSH);
  }
  if (result != Z_STREAM_END) std::abort();
  const std::size_t size = z.total_out;
  ::inflateEnd(&z);
  return size;
}

std::size_t unzstd(const std::string& packed) {
  std::vector<char> piece(piece_bytes);
  ::ZSTD_DCtx* const state = ::ZSTD_createDCtx();
  ::ZSTD_inBuffer in = {packed.data(), packed.size(), 0};
  std::size_t size = 0;
  for (std::size_t result = 1; result != 0;) {
    ::ZSTD_outBuffer out = {piece.data(), piece.size(), 0};
    result = ::ZSTD_decompressStream(state, &out, &in);
    if (::ZSTD_isError(result) != 0) std::abort();
    size += out.pos;
  }
  ::ZSTD_freeDCtx(state);
  return size;
}

struct document {
  std::string text;
  std::int64_t id = 0;
};

/// Returns the bytes of the lines, with their line feeds.
std::size_t parse_bare(const std::string& text) {
  simdjson::ondemand::parser parser;
  std::string line;
  document d;
  std::size_t size = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    line.reserve(end - at + simdjson::SIMDJSON_PADDING);
    line.assign(text, at, end - at);
    auto parsed = parser.iterate(line.data(), line.size(), line.capacity());
    std::string_view member;
    if (parsed["text"].get_string().get(member) != simdjson::SUCCESS) std::abort();
    d.text.assign(member);
    if (parsed["id"].get_int64().get(d.id) != simdjson::SUCCESS) std::abort();
    size += end - at + 1;
    at = end + 1;
  }
  return size;
}

/// The sum of f(i) of all shards, on threads that take the next one.
double on_threads(unsigned threads, int shards, const std::function<std::size_t(int)>& f) {
  std::atomic<int> next{0};
  std::atomic<std::size_t> sum{0};
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      for (int i; (i = next.fetch_add(1)) < shards;) sum += f(i);
    });
  }
  for (std::thread& t : pool) t.join();
  return static_cast<double>(sum);
}

/// Files of a folder that goes with it.
class folder {
 public:
  folder() : path_(std::filesystem::temp_directory_path() / ("unpack_bench." + std::to_string(::getpid()))) {
    std::filesystem::create_directory(path_);
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() { std::filesystem::remove_all(path_); }
  std::string add(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::size_t size = static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 64) * 1000000;
  const int shards = argc > 2 ? std::atoi(argv[2]) : 8;
  constexpr int different = 2;
  bench::print_machine();
  mill::runtime rt;
  const unsigned threads = rt.pool().threads();
  const folder files;
  struct kind {
    std::vector<std::string> packed;
    std::vector<std::string> names;
  };
  kind tars, gz, zst;
  std::vector<std::string> texts;
  const auto add = [&](kind& k, const std::string& name, std::string packed) {
    k.names.push_back(files.add(name + std::to_string(k.names.size()), packed));
    k.packed.push_back(std::move(packed));
  };
  for (int i = 0; i < different; ++i) {
    add(tars, "tar", gzip(make_tar(size, static_cast<std::uint64_t>(i))));
    texts.push_back(make_lines(size, static_cast<std::uint64_t>(i)));
    add(gz, "gz", gzip(texts.back()));
    add(zst, "zst", zstd(texts.back()));
  }
  const auto names_of = [&](const kind& k) {
    std::vector<std::string> all;
    for (int i = 0; i < shards; ++i) all.push_back(k.names[static_cast<std::size_t>(i % different)]);
    return mill::from_range(std::move(all)) | mill::map([](std::string name) { return mill::shard(std::move(name)); });
  };
  const auto bare = [&](const std::vector<std::string>& of, std::size_t (*f)(const std::string&)) {
    return [&of, f, threads, shards] {
      return on_threads(threads, shards, [&](int i) { return f(of[static_cast<std::size_t>(i % different)]); });
    };
  };

  bench::contender zlib_tar("zlib, tar.gz", bare(tars.packed, gunzip));
  bench::contender untar("fetch | untar, tar.gz", [&] {
    double total = 0;
    for (const mill::member& m : rt.run(names_of(tars) | mill::fetch(mill::files()) | mill::untar())) {
      total += static_cast<double>((m.entry.body.size() + 511) / 512 * 512 + 512);
    }
    return total;
  });
  mill::json_reader<document> read;
  read.member("id", &document::id).member("text", &document::text);
  const auto parse = [read](const mill::line_batch& b) {
    std::size_t total = 0;
    for (const std::string_view line : b.lines) {
      if (read(line).text.empty()) std::abort();
      total += line.size() + 1;
    }
    return total;
  };
  const auto lines_of = [&](const kind& k) {
    return [&] {
      double total = 0;
      auto sizes = names_of(k) | mill::fetch(mill::files()) | mill::lines() | mill::map_concurrent(parse);
      for (const std::size_t n : rt.run(std::move(sizes))) total += static_cast<double>(n);
      return total;
    };
  };
  bench::contender zlib_lines("zlib, lines.gz", bare(gz.packed, gunzip));
  bench::contender zstd_lines("libzstd, lines.zst", bare(zst.packed, unzstd));
  bench::contender json("simdjson, lines", bare(texts, parse_bare));
  bench::contender gz_lines("fetch | lines | parse, gz", lines_of(gz));
  bench::contender zst_lines("fetch | lines | parse, zst", lines_of(zst));
  bench::take_turns({&zlib_tar, &untar, &zlib_lines, &gz_lines, &zstd_lines, &zst_lines, &json});
  if (zlib_lines.last.bytes != gz_lines.last.bytes || zstd_lines.last.bytes != zst_lines.last.bytes ||
      untar.last.bytes > zlib_tar.last.bytes || untar.last.bytes < 0.99 * zlib_tar.last.bytes) {
    std::fprintf(stderr, "bytes differ\n");
    return 1;
  }
  std::printf("%d shards of %.0f MB unpacked; %u threads; GB of what is unpacked\n", shards,
              static_cast<double>(size) * 1e-6, threads);
  bench::print_table({&zlib_tar, &untar, &zlib_lines, &gz_lines, &zstd_lines, &zst_lines, &json});
  const auto slower = [](const bench::contender& a, const bench::contender& b) {
    return a.gb_per_second.median() < b.gb_per_second.median() ? a.gb_per_second : b.gb_per_second;
  };
  bench::goal_at_least("GB/s, fetch | untar of tar.gz / zlib",
                       bench::ratio(untar.gb_per_second, zlib_tar.gb_per_second), 0.9);
  // Seconds of both halves, one after the other on each thread.
  const auto both = [&](const bench::contender& unpack) {
    bench::figure gb;
    for (std::size_t i = 0; i < json.gb_per_second.values().size(); ++i) {
      gb.add(1 / (1 / unpack.gb_per_second.values()[i] + 1 / json.gb_per_second.values()[i]));
    }
    return gb;
  };
  bench::goal_at_least("GB/s, fetch | lines | parse of gz / slower of zlib, simdjson",
                       bench::ratio(gz_lines.gb_per_second, slower(zlib_lines, json)), 0.8);
  bench::goal_at_least("GB/s, fetch | lines | parse of zst / slower of libzstd, simdjson",
                       bench::ratio(zst_lines.gb_per_second, slower(zstd_lines, json)), 0.8);
  for (const auto& [name, unpack, lines] : {std::tuple("gz", &zlib_lines, &gz_lines),
                                            std::tuple("zst", &zstd_lines, &zst_lines)}) {
    const bench::figure bare_both = both(*unpack);
    std::printf("  %s: both halves bare, one after the other, make %.3f of the slower; reached of that: %.3f\n", name,
                bench::ratio(bare_both, slower(*unpack, json)), bench::ratio(lines->gb_per_second, bare_both));
  }
}
