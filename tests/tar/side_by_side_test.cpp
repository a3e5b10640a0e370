// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Many compressed archives open at once.

#include <millrace/tar/archive_reader.hpp>

#include <dirent.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/tar/writer.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/packers.hpp"

using namespace millrace;

namespace {

std::size_t threads() {
  std::size_t n = 0;
  DIR* const folder = ::opendir("/proc/self/task");
  REQUIRE(folder != nullptr);
  while (const dirent* e = ::readdir(folder)) n += e->d_name[0] != '.' ? 1 : 0;
  ::closedir(folder);
  return n;
}

/// A tar of eight members of noise, which does not compress away: half of the input is half of the members.
std::string noisy_tar(std::uint64_t seed) {
  rng random(seed);
  std::string text;
  tar::writer archive(text);
  for (int i = 0; i < 8; ++i) {
    std::string body;
    for (int word = 0; word < 10000; ++word) {
      const std::uint64_t value = random.next();
      body.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    archive.add(std::to_string(i), body);
  }
  archive.finish();
  return text;
}

}  // namespace

TEST_CASE("compressed archives that are read side by side have no thread each") {
  const std::size_t before = threads();
  for (const char* filter : {"gzip", "zstd"}) {
    CAPTURE(filter);
    std::vector<std::string> packed;
    std::vector<std::unique_ptr<tar::archive_reader>> readers;
    std::vector<std::size_t> members(8);
    tar::entry e;
    for (std::size_t i = 0; i < 8; ++i) {
      packed.push_back(test::compress(filter, noisy_tar(i)));
      readers.push_back(
          std::make_unique<tar::archive_reader>(std::to_string(i), tar::archive_options(), slab_pool(4096)));
    }
    const std::size_t packing = threads();  // the packer is not what is looked at
    for (std::size_t i = 0; i < 8; ++i) {
      readers[i]->feed(bytes::copy(std::string_view(packed[i]).substr(0, packed[i].size() / 2)));
      while (readers[i]->next(e)) ++members[i];
    }
    CHECK(threads() == packing);
    for (std::size_t i = 0; i < 8; ++i) {
      CHECK(members[i] > 0);
      CHECK(members[i] < 8);
      readers[i]->feed(bytes::copy(std::string_view(packed[i]).substr(packed[i].size() / 2)));
      while (readers[i]->next(e)) ++members[i];
    }
    CHECK(threads() == packing);
    for (std::size_t i = 0; i < 8; ++i) {
      readers[i]->finish();
      while (readers[i]->next(e)) ++members[i];
      CHECK(members[i] == 8);
    }
    CHECK(threads() == before);
  }
}
