// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: the files of a disk cache that the input edits are reported or refused, in bounded memory. Of each 4 bytes
// of the input two are a place, one chooses the file, and one is its value.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -I. -Iinclude tests/fuzz/cache_fuzz.cpp
//     -luring -lcrypto
//   ./a.out -max_len=200 -malloc_limit_mb=512

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/cache/cache_folder.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/disk_cache.hpp>

#include "tests/shards/cache_support.hpp"
#include "tests/support/test_data.hpp"

namespace {

namespace mill = millrace;

/// A cache that holds an object, and its small files as they were.
class filled_cache {
 public:
  filled_cache() {
    const auto store = std::make_shared<mill::test::memory_store>();
    store->objects["mem:d/a"] = mill::test::random_text(1, 100'000);
    const auto loop = mill::make_event_loop();
    const auto cache = mill::disk_cache(std::shared_ptr<const mill::storage>(store),
                                        {.directory = in.path, .bytes = 64 << 20, .keep_free = 0});
    const mill::shard object("mem:d/a", 100'000, store->etag);
    static_cast<void>(
        mill::block_on(mill::coroutine_context(*loop), cache->read(object, "", 0, 100'000, mill::slab_pool(2 << 20))));
    loop->drain();
    for (std::string& text : files) text = mill::test::read_file(in.path + '/' + names[&text - files]);
  }
  void write(int file, const std::string& text) const {
    std::ofstream out(in.path + '/' + names[file], std::ios::binary | std::ios::trunc);
    out << text;
  }
  mill::test::cache_folder in;
  static constexpr const char* names[] = {"index", "headers"};
  std::string files[2];
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const filled_cache cache;
  std::string files[2] = {cache.files[0], cache.files[1]};
  for (std::size_t i = 0; i + 4 <= size; i += 4) {
    std::string& file = files[data[i + 2] % 2];
    if (file.empty()) continue;
    const std::size_t at = (data[i] | static_cast<std::size_t>(data[i + 1]) << 8) % file.size();
    if (data[i + 2] >= 250) {
      file.resize(at);
    } else {
      file[at] = static_cast<char>(data[i + 3]);
    }
  }
  for (int f = 0; f < 2; ++f) cache.write(f, files[f]);
  try {
    const auto report = mill::detail::cache_folder::inspect(cache.in.path, true);
    if (report.bytes > std::uint64_t(64) << 20) std::abort();
    const auto index = mill::detail::cache_folder::open_index(cache.in.path);
    if (index->listed_bytes("mem:d/a", 0, 100'000) > 100'000) std::abort();
  } catch (const mill::error&) {
  }
  return 0;
}
