// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What an index costs a rank, as a data set grows: its file of samples of two fields, and of lines, at 10^5, 10^6 and
// 10^7 samples in shards of 10,000, and at 10^8 with the argument 100000000. Each is measured in a process of its own:
// seconds from the file to the first sample of the order, memory that is then resident, time for each sample whose rows
// are asked for as a rank of 8 does, slice by slice, and the memory after that. Files of before have no head.
// Then the same of an index in a store, as a rank of 1,000 reads it: up to 10^9 samples with the argument 1000000000
// (alone these, with a third argument "store"). The store is generated, and answers at once.
// docs/design/index.md has the figures.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/index_bench.cpp -o index_bench

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/formats/line_shards.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/detail/listed_index.hpp>
#include <millrace/train/detail/slice_piece.hpp>

#include "bench/common/measure.hpp"

namespace {

using namespace millrace;

constexpr std::uint64_t of_shard = 10000;

double seconds_since(std::int64_t start) { return static_cast<double>(monotonic_ns() - start) * 1e-9; }

/// In MB: "VmRSS:", "RssAnon:".
double resident(const std::string& what) {
  std::ifstream in("/proc/self/status");
  std::string word;
  double kib = 0;
  while (in >> word) {
    if (word == what) in >> kib;
  }
  return kib * 1024e-6;
}

std::string name_of(std::uint64_t number) { return std::to_string(100000 + number) + ".data"; }

std::string text_of_shard(bool lines) {
  std::string text;
  if (lines) {
    detail::line_scanner scanner(*line_shards(), name_of(0), shard("mem:x"), 1000);
    std::string content;
    for (std::uint64_t i = 0; i < of_shard; ++i) content += std::string(detail::mix64(i) % 400, 'x') + '\n';
    scanner.add(bytes::copy(content));
    scanner.finish(content.size(), "\"v1\"").write(text);
    return text;
  }
  tar_index_builder builder(name_of(0), name_of(0), tar_index_builder::checksums::crc32c);
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < 2 * of_shard; ++i) {
    tar::entry e;
    e.name = std::to_string(i / 2) + (i % 2 == 0 ? ".jpg" : ".cls");
    e.header_offset = at;
    e.data_offset = at + 512;
    e.size = i % 2 == 0 ? 50000 + detail::mix64(at) % 100000 : 3;
    builder.add(e);
    at += 512 + (e.size + 511) / 512 * 512;
  }
  builder.finish(at + 1024, "\"v1\"").write(text);
  return text;
}

/// Shards that differ in their names. `head`: as files have it; without, as they had it before 2026-11-26.
void write_file(const std::string& path, std::uint64_t samples, bool lines, bool head) {
  const std::string first = text_of_shard(lines);
  const std::uint64_t shards = samples / of_shard;
  const auto text_of = [&](std::uint64_t number) {
    std::string text = first;
    text.replace(64, 11, name_of(number));
    text.resize(text.size() - 4);
    detail::append_le(text, crc32c(0, text.data(), text.size()), 4);
    return text;
  };
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
#if !defined(MILLRACE_INDEX_BENCH_BEFORE)
  if (head) {
    std::string one = text_of(0);
    std::string_view rest = one;
    const shard_index like = shard_index::read(rest, path);
    class several {
     public:
      class iterator {
       public:
        iterator(const shard_index& i, std::uint64_t n) : index_(&i), number_(n) {}
        const shard_index& operator*() const { return *index_; }
        iterator& operator++() {
          ++number_;
          return *this;
        }
        bool operator!=(const iterator& o) const { return number_ != o.number_; }

       private:
        const shard_index* index_;
        std::uint64_t number_;
      };
      several(const shard_index& i, std::uint64_t n) : index_(&i), count_(n) {}
      iterator begin() const { return {*index_, 0}; }
      iterator end() const { return {*index_, count_}; }

     private:
      const shard_index* index_;
      std::uint64_t count_;
    };
    index_file_head its(several(like, shards));
    out << std::string(static_cast<std::size_t>(its.bytes()), '\0');
    for (std::uint64_t i = 0; i < shards; ++i) {
      one = text_of(i);
      rest = one;
      its.add(shard_index::read(rest, path), one);
      out << one;
    }
    out.seekp(0);
    out << its.text();
    return;
  }
#endif
  static_cast<void>(head);
  for (std::uint64_t i = 0; i < shards; ++i) out << text_of(i);
}

#if !defined(MILLRACE_INDEX_BENCH_BEFORE)
/// An index of so many shards that differ in their names, of which only the head is made.
class generated_index final : public storage {
 public:
  generated_index(std::uint64_t shards, bool lines) : one_(text_of_shard(lines)) {
    std::string_view rest = one_;
    const std::vector<shard_index> like{shard_index::read(rest, "bench")};
    std::string file;
    write_indexes(like, file);
    const std::string entry = file.substr(48, file.size() - one_.size() - 48);
    std::string body;
    body.reserve(static_cast<std::size_t>(shards) * entry.size());
    for (std::uint64_t i = 0; i < shards; ++i) {
      body += entry;
      body.replace(body.size() - entry.size() + 32 + 64, 11, name_of(i));
    }
    const auto head = [&](std::uint32_t crc) {
      std::string text = file.substr(0, 12);
      detail::append_le(text, crc, 4);
      detail::append_le(text, shards, 8);
      detail::append_le(text, shards * one_.size(), 8);
      detail::append_le(text, body.size(), 8);
      return text + file.substr(40, 8);
    };
    const std::string open = head(0);
    head_ = head(crc32c(crc32c(0, open.data(), open.size()), body.data(), body.size())) + body;
    size_ = head_.size() + shards * one_.size();
  }
  bool serves(std::string_view) const noexcept override { return true; }
  bool over_network(std::string_view) const noexcept override { return true; }
  task<part> read(shard, std::string, std::uint64_t offset, std::size_t length, slab_pool slabs) const override {
    ++requests;
    writable_bytes memory = slabs.worth_a_slab(length) ? slabs.acquire() : writable_bytes::allocate(length);
    length = static_cast<std::size_t>(std::min<std::uint64_t>(length, size_ - offset));
    read_bytes += length;
    for (std::size_t done = 0; done < length;) {
      const std::uint64_t at = offset + done;
      const bool head = at < head_.size();
      const std::string_view from = std::string_view(head ? head_ : one_)
                                        .substr(head ? at : (at - head_.size()) % one_.size());
      done += from.copy(memory.data() + done, length - done);
    }
    part p;
    p.total = size_;
    p.etag = "\"v1\"";
    p.data = memory.share(0, length);
    co_return std::move(p);
  }
  mutable std::uint64_t requests = 0;
  mutable std::uint64_t read_bytes = 0;

 private:
  std::string one_;
  std::string head_;
  std::uint64_t size_ = 0;
};

task<std::uint64_t> read_slices(const index_set& set, const sample_order& order, std::uint64_t most) {
  std::uint64_t samples = 0;
  for (std::uint64_t track = 0; track < order.tracks() && samples < most; track += 1000) {
    const std::uint64_t length = order.track(track).length;
    for (std::uint64_t at = 0; at < length && samples < most;) {
      const std::uint64_t count = detail::left_of_slice(order, track, at);
      std::vector<detail::slice_stretch> stretches;
      detail::each_stretch(order, track, at, [&](const detail::slice_stretch& s) { stretches.push_back(s); });
      detail::slice_rows rows;
      for (const detail::slice_stretch& s : stretches) {
        std::vector<shard_index::rows> came = co_await set[s.shard].read_rows(s.first, s.count);
        for (shard_index::rows& block : came) rows.add(s.shard, std::move(block));
      }
      const detail::slice_piece piece(set, order, track, at, count, 8 << 20, 64 << 10, nullptr, &rows);
      samples += count;
      at += count;
    }
  }
  co_return samples;
}

void measure_stored(std::uint64_t samples, bool lines) {
  const auto store = std::make_shared<generated_index>(samples / of_shard, lines);
  std::vector<shard> list;
  for (std::uint64_t i = 0; i < samples / of_shard; ++i) list.emplace_back("s3://b/" + name_of(i));
  const double before = resident("RssAnon:");
  const auto loop = make_event_loop();
  std::int64_t start = monotonic_ns();
  dataset_options data;
  data.index = "s3://b/index";
  data.index_memory = 0;
  data.format = lines ? line_shards() : tar_shards();
  detail::listed_index index(store, "s3://b/", data, epochs_options());
  const auto set = block_on(*loop, index.of(std::move(list)));
  const sample_order order = set->order(7, 0, {.tracks = 1000, .slice = 256});
  const double opened = seconds_since(start);
  const double held = resident("RssAnon:") - before;
  const std::uint64_t head = store->read_bytes, asked = store->requests;
  start = monotonic_ns();
  const std::uint64_t read = block_on(*loop, read_slices(*set, order, std::min<std::uint64_t>(samples / 1000, 500000)));
  const double each = seconds_since(start) * 1e9 / static_cast<double>(read);
  std::printf("%-24s %10llu samples: %8.3f s, %8.1f MB resident, %8.1f MB by %llu requests; %6.1f ns and %5.1f bytes a "
              "sample planned, %.1f requests a slice\n",
              lines ? "lines, in a store" : "tars, in a store", static_cast<unsigned long long>(samples), opened, held,
              static_cast<double>(head) * 1e-6, static_cast<unsigned long long>(asked), each,
              static_cast<double>(store->read_bytes - head) / static_cast<double>(read),
              static_cast<double>(store->requests - asked) * 256 / static_cast<double>(read));
  std::fflush(stdout);
}
#endif

void measure(const std::string& path, const char* what) {
  const double before = resident("RssAnon:");
  std::int64_t start = monotonic_ns();
  const auto set = detail::listed_index::read(path);
  const sample_order order = set->order(7, 0, {.tracks = 960, .slice = 256});
  std::uint64_t sink = order.at(0).ordinal;
  const double opened = seconds_since(start);
  const double held = resident("RssAnon:") - before;
  start = monotonic_ns();
  std::uint64_t samples = 0;
  const std::uint64_t most = std::min<std::uint64_t>(order.size() / 8, 2000000);
  for (std::uint64_t track = 0; track < 960 && samples < most; track += 8) {
    const std::uint64_t length = order.track(track).length;
    for (std::uint64_t at = 0; at < length && samples < most;) {
      const std::uint64_t count = detail::left_of_slice(order, track, at);
      detail::slice_piece piece(*set, order, track, at, count, 8 << 20, 64 << 10);
#if !defined(MILLRACE_INDEX_BENCH_BEFORE)
      detail::will_need(*set, order, track, at + count);
#endif
      for (std::uint64_t k = at; k < at + count; ++k) {
        const sample_place place = piece.at(k).place;
        const auto number = static_cast<std::size_t>(place.ordinal);
#if defined(MILLRACE_INDEX_BENCH_BEFORE)
        const shard_index& rows = (*set)[static_cast<std::size_t>(place.shard)];
#else
        const shard_index::rows& rows = piece.rows_of(piece.at(k));
#endif
        sink += rows.offset(number);
        for (std::size_t i = 0; i < rows.field_count(number); ++i) sink += rows.field_at(number, i).crc;
      }
      samples += count;
      at += count;
    }
  }
  const double each = seconds_since(start) * 1e9 / static_cast<double>(samples);
  std::printf("%-24s %10llu samples: %8.3f s, %8.1f MB resident; %6.1f ns a sample planned, then %8.1f MB%s\n", what,
              static_cast<unsigned long long>(set->samples()), opened, held, each, resident("RssAnon:") - before,
              sink == 1 ? "!" : "");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** texts) {
  const std::uint64_t most = count > 1 ? std::strtoull(texts[1], nullptr, 10) : 10'000'000;
  const std::string path = std::string(count > 2 ? texts[2] : "/tmp") + "/millrace_index_bench.index";
  for (const bool lines : {false, true}) {
    for (const bool head : {true, false}) {
#if defined(MILLRACE_INDEX_BENCH_BEFORE)
      if (head) continue;
#endif
      for (std::uint64_t samples = 100000; samples <= most && count < 4; samples *= 10) {
        std::fflush(stdout);
        for (const bool writes : {true, false}) {
          const pid_t child = ::fork();
          if (child == 0) {
            if (writes) write_file(path, samples, lines, head);
            const std::string what = std::string(lines ? "lines" : "tars") + (head ? "" : ", file of before");
            if (!writes) measure(path, what.c_str());
            std::fflush(stdout);
            ::_exit(0);
          }
          int status = 0;
          ::waitpid(child, &status, 0);
          if (status != 0) {
            std::fprintf(stderr, "index_bench: a measurement failed\n");
            ::unlink(path.c_str());
            return 1;
          }
        }
      }
    }
  }
#if !defined(MILLRACE_INDEX_BENCH_BEFORE)
  for (const bool lines : {false, true}) {
    for (std::uint64_t samples = 10'000'000; samples <= most; samples *= 10) {
      std::fflush(stdout);
      const pid_t child = ::fork();
      if (child == 0) {
        measure_stored(samples, lines);
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      if (status != 0) return 1;
    }
  }
#endif
  ::unlink(path.c_str());
  return 0;
}
