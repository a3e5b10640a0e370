// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Nanoseconds per member to walk a tar archive in memory, bodies shared and not copied: tar::reader beside libarchive's
// memory reader with archive_read_data_block. tar::reader has the archive in one piece, as libarchive has, and in
// pieces of 8 MiB, as a fetch of parts gives it: of 84 bodies of 100 KB one lies in two pieces then and has to be
// copied, which is more than half of the time for ustar, and much of it for pax. Interleaved rounds; the median of five
// with the lowest and the highest. The goals are 60 and 110 ns, for both ways. The measurements that they stand beside
// walk archives in one piece and give 532 and 690 ns for libarchive: the ratio to those is printed, too, for machines
// of another speed. It does not replace the goals.
//
//   tar_bench [archive megabytes, default 100]

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <archive.h>
#include <archive_entry.h>

#include <millrace/base/clock.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/tar/reader.hpp>
#include <millrace/tar/writer.hpp>

#include "bench/common/measure.hpp"

namespace {

namespace mill = millrace;

struct tally {
  std::uint64_t members = 0;
  std::uint64_t bytes = 0;
};

struct scenario {
  const char* name;
  std::size_t body;
  std::int64_t mtime_ns;  // a fraction of a second makes a pax header, as WebDataset's writer does
  double goal_ns = 0;
  double reference_ns = 0;  // what libarchive took where the goal was set
};

std::string make_archive(const scenario& s, std::size_t total) {
  std::string text;
  text.reserve(total + (std::size_t(1) << 20));
  mill::tar::writer archive(text);
  mill::rng random(1);
  std::string body(s.body, '\0');
  for (char& c : body) c = static_cast<char>(random.next());
  for (unsigned i = 0; text.size() < total; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "%08u.jpg", i);
    archive.add(name, body, {.mtime_ns = s.mtime_ns});
  }
  archive.finish();
  return text;
}

std::vector<mill::bytes> in_slabs(const std::string& text, mill::slab_pool& pool) {
  std::vector<mill::bytes> pieces;
  for (std::size_t at = 0; at < text.size(); at += pool.slab_bytes()) {
    mill::writable_bytes slab = pool.acquire();
    const std::size_t n = std::min(pool.slab_bytes(), text.size() - at);
    std::copy_n(text.data() + at, n, slab.data());
    pieces.push_back(slab.share(0, n));
  }
  return pieces;
}

tally walk_ours(const std::vector<mill::bytes>& pieces) {
  tally t;
  mill::tar::reader reader("bench.tar");
  mill::tar::entry e;
  auto drain = [&] {
    while (reader.next(e)) {
      ++t.members;
      t.bytes += e.body.size() + e.name.size();
    }
  };
  for (const mill::bytes& piece : pieces) {
    reader.feed(piece);
    drain();
  }
  reader.finish();
  drain();
  return t;
}

tally walk_libarchive(const std::string& text) {
  tally t;
  archive* a = archive_read_new();
  archive_read_support_format_tar(a);
  if (archive_read_open_memory(a, text.data(), text.size()) != ARCHIVE_OK) std::abort();
  archive_entry* e = nullptr;
  while (archive_read_next_header(a, &e) == ARCHIVE_OK) {
    ++t.members;
    t.bytes += std::string_view(archive_entry_pathname(e)).size();
    const void* data = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    while (archive_read_data_block(a, &data, &size, &offset) == ARCHIVE_OK) t.bytes += size;
  }
  archive_read_free(a);
  return t;
}

template <class Walk>
double ns_per_member(std::uint64_t members, int repeat, Walk walk) {
  const std::int64_t begin = mill::monotonic_ns();
  for (int i = 0; i < repeat; ++i) {
    if (walk().members != members) std::abort();
  }
  return static_cast<double>(mill::monotonic_ns() - begin) / static_cast<double>(members) / repeat;
}

double median(std::array<double, 5> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

void print(const char* who, std::array<double, 5> ns) {
  std::sort(ns.begin(), ns.end());
  std::printf("  %-28s %7.1f ns/member   (%.1f - %.1f)\n", who, ns[2], ns[0], ns[4]);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t total = static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 100) * 1000000;
  const scenario scenarios[] = {
      {"100 KB members, ustar", 100000, 1700000000000000000, 60, 532},
      {"100 KB members, pax", 100000, 1700000000123456000, 110, 690},
      {"1.6 KB members, ustar", 1600, 1700000000000000000},
      {"1.6 KB members, pax", 1600, 1700000000123456000},
  };
  mill::slab_pool pool;
  mill::slab_pool whole(total + (std::size_t(1) << 20));
  for (const scenario& s : scenarios) {
    const std::string text = make_archive(s, total);
    const std::vector<mill::bytes> pieces = in_slabs(text, pool);
    const std::vector<mill::bytes> one_piece = in_slabs(text, whole);
    const tally expected = walk_libarchive(text);
    for (const auto* way : {&one_piece, &pieces}) {
      const tally ours = walk_ours(*way);
      if (ours.members != expected.members || ours.bytes != expected.bytes) {
        std::fprintf(stderr, "%s: the two readers disagree\n", s.name);
        return 1;
      }
    }
    if (one_piece.size() != 1) std::abort();
    const int repeat = std::max(1, static_cast<int>(200000 / expected.members));
    std::array<double, 5> one{};
    std::array<double, 5> a{};
    std::array<double, 5> b{};
    for (std::size_t round = 0; round < a.size(); ++round) {
      one[round] = ns_per_member(expected.members, repeat, [&] { return walk_ours(one_piece); });
      a[round] = ns_per_member(expected.members, repeat, [&] { return walk_ours(pieces); });
      b[round] = ns_per_member(expected.members, repeat, [&] { return walk_libarchive(text); });
    }
    std::printf("%s (%llu members, %zu bytes)\n", s.name, static_cast<unsigned long long>(expected.members),
                text.size());
    print("tar::reader, one piece", one);
    print("tar::reader, 8 MiB pieces", a);
    print("libarchive, memory", b);
    if (s.goal_ns > 0) {
      std::array<double, 5> one_ratio{};
      std::array<double, 5> ratio{};
      for (std::size_t round = 0; round < a.size(); ++round) {
        one_ratio[round] = one[round] / b[round];
        ratio[round] = a[round] / b[round];
      }
      const double most = s.goal_ns / s.reference_ns;
      bench::goal_at_most("tar::reader, one piece", median(one), s.goal_ns, "ns");
      bench::goal_at_most("ns, one piece / libarchive", median(one_ratio), most);
      bench::goal_at_most("tar::reader, 8 MiB pieces", median(a), s.goal_ns, "ns");
      bench::goal_at_most("ns, 8 MiB pieces / libarchive", median(ratio), most);
    }
  }
}
