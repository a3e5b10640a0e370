// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Samples from tar archives on local disks, plain or compressed: what is in them, and how fast they are read.
//
//   example_local_tars 'data/train-{000..099}.tar'     or a glob such as 'data/*.tar.gz'

#include <cstdio>
#include <string>

#include <millrace/flow/pipe.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar.hpp>

namespace mill = millrace;

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s 'PATTERN'\n", arguments[0]);
    return 2;
  }
  const std::string pattern = arguments[1];
  try {
    auto names = pattern.find('{') == std::string::npos ? mill::glob(pattern) : mill::shards(pattern);
    auto samples = std::move(names) | mill::fetch(mill::files()) | mill::untar() | mill::group_samples();
    auto run = mill::run(std::move(samples), {.prefetch = 64});
    std::size_t bytes = 0;
    std::size_t n = 0;
    for (const mill::sample& s : run) {
      if (n++ < 3) {
        std::printf("%s:", s.key.c_str());
        for (const mill::field& f : s.fields) std::printf(" %s (%zu bytes)", f.extension.c_str(), f.data.size());
        std::printf("\n");
      }
      bytes += byte_size(s);
    }
    std::printf("%zu samples, %s\n%s", n, mill::format_bytes(static_cast<double>(bytes)).c_str(),
                run.stats().table().c_str());
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
