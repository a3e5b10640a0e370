// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Lines of text (JSONL, CSV) from objects or files, in batches, at several batch sizes.
//
// example_text_lines s3://bucket/prefix/      or https://host/part-{0..9}.jsonl, or paths S3 is configured by the AWS
// variables.

#include <cstdio>
#include <memory>
#include <string>

#include <millrace/flow/pipe.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/storage_set.hpp>

namespace mill = millrace;

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s URL\n", arguments[0]);
    return 2;
  }
  const std::string url = arguments[1];
  try {
    const auto s3 = mill::s3::client::from_environment();
    const auto web = std::make_shared<mill::http_storage>();
    const bool prefix = url.rfind("s3://", 0) == 0 && url.back() == '/';
    for (const std::size_t size : {16U, 64U, 512U, 1024U}) {
      auto source = prefix ? s3.list(url) : mill::shards(url);
      auto store = prefix ? mill::stores(s3) : mill::stores(s3, web, mill::files());
      auto batches = std::move(source) | mill::fetch(store) | mill::lines({.batch = size});
      auto run = mill::run(std::move(batches), {.prefetch = 16});
      std::size_t lines = 0;
      std::size_t bytes = 0;
      for (const mill::line_batch& b : run) {
        lines += b.size();
        bytes += byte_size(b);
      }
      const double seconds = run.stats().seconds;
      std::printf("batch %4zu: %zu lines, %.0f lines/s, %s/s\n", size, lines, static_cast<double>(lines) / seconds,
                  mill::format_bytes(static_cast<double>(bytes) / seconds).c_str());
    }
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
