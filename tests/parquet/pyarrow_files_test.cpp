// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Files that pyarrow has written, against what pyarrow reads in them: write_by_pyarrow.py draws both. Without python3
// or its pyarrow these tests say that they are skipped. MILLRACE_PYARROW is the folder of the package.

#include <millrace/parquet.hpp>

#include <sys/wait.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/parquet/drawn_parquet.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;

namespace {

/// Lines of rows.txt, by the keys that they begin with.
using lines = std::map<std::string, std::string>;

/// Files in the folder; false: there is no pyarrow.
bool write_by_pyarrow(const std::string& folder, std::uint64_t seed, int files) {
  std::string command = "python3 '" MILLRACE_TEST_SOURCE_DIR "/tests/parquet/write_by_pyarrow.py' '" + folder + "' " +
                        std::to_string(seed) + ' ' + std::to_string(files) + " 2>&1";
  if (const char* const package = std::getenv("MILLRACE_PYARROW"); package != nullptr && *package != 0) {
    const std::string path = std::filesystem::absolute(package).parent_path().string();
    command.insert(0, "PYTHONPATH='" + path + "' ");
  }
  std::FILE* const out = ::popen(command.c_str(), "r");
  REQUIRE(out != nullptr);
  std::string said;
  char some[4096];
  for (std::size_t n; (n = std::fread(some, 1, sizeof some, out)) > 0;) said.append(some, n);
  const int status = ::pclose(out);
  INFO(said);
  REQUIRE(WIFEXITED(status));
  const bool lacks = WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127;
  if (lacks) WARN("skipped: " << said);
  REQUIRE((lacks || WEXITSTATUS(status) == 0));
  return !lacks;
}

std::string hex(std::string_view data) {
  static const char* const digits = "0123456789abcdef";
  std::string out;
  for (const char c : data) {
    out += digits[static_cast<unsigned char>(c) >> 4];
    out += digits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}
std::string line_of(const std::string& key, const std::vector<field>& fields) {
  std::string line = key;
  for (const field& f : fields) line += ' ' + f.extension + '=' + hex(f.data.view());
  return line;
}

lines wanted_of(const std::string& folder) {
  lines all;
  std::ifstream file(folder + "/rows.txt");
  for (std::string line; std::getline(file, line);) all.emplace(line.substr(0, line.find(' ')), line);
  return all;
}

void check_dataset(runtime& rt, std::uint64_t seed, int files) {
  const test::temporary_folder folder;
  if (!write_by_pyarrow(folder.path(), seed, files)) return;
  const lines wanted = wanted_of(folder.path());
  REQUIRE(wanted.size() > static_cast<std::size_t>(files) * 30);
  for (const auto& e : std::filesystem::directory_iterator(folder.path())) {
    if (e.path().extension() != ".refused") continue;
    INFO("seed " << seed << ", " << e.path());
    CHECK_FALSE(millrace_test::failure_of(test::read_file(e.path().string())).empty());
  }
  epochs_options how{.seed = seed, .epochs = 1};
  how.batch = 1;
  how.tracks = 3;
  lines seen;
  // Each file is a data set: no two have the same columns.
  for (const auto& e : std::filesystem::directory_iterator(folder.path())) {
    const std::string name = e.path().filename().string();
    const auto first = wanted.lower_bound(name + '#');
    if (e.path().extension() != ".parquet" || first == wanted.end() || !first->first.starts_with(name + '#')) continue;
    const dataset data(
        millrace::files(), std::vector<shard>{shard(e.path().string())},
        {.index = folder.file(name + ".index"), .format = millrace::parquet(), .prefix = folder.path() + "/"});
    for (const sample& s : rt.run(epochs(data, how))) {
      REQUIRE(seen.emplace(s.key, line_of(s.key, s.fields)).second);
    }
  }
  CHECK(seen.size() == wanted.size());
  for (const auto& [key, line] : wanted) {
    INFO("seed " << seed << ", " << key);
    REQUIRE(seen.count(key) == 1);
    REQUIRE(seen[key] == line);
  }
}

}  // namespace

TEST_CASE("rows of files that pyarrow wrote are what pyarrow reads", "[parquet]") {
  runtime rt;
  check_dataset(rt, 1, 40);
}

TEST_CASE("rows of many more files that pyarrow wrote are what pyarrow reads", "[parquet][slow]") {
  runtime rt;
  const char* const asked = std::getenv("MILLRACE_TEST_PYARROW_ROUNDS");
  const std::uint64_t rounds = asked == nullptr ? 8 : std::strtoull(asked, nullptr, 10);
  for (std::uint64_t seed = 100; seed < 100 + rounds; ++seed) check_dataset(rt, seed, 60);
}

TEST_CASE("damaged files that pyarrow wrote give errors that name them, or rows", "[parquet]") {
  const test::temporary_folder folder;
  const int files = 20;
  if (!write_by_pyarrow(folder.path(), 3, files)) return;
  std::uint64_t refused = 0, read = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    rng draw(seed, 7, 1);
    char name[32];
    std::snprintf(name, sizeof name, "/%04d.parquet", static_cast<int>(seed % files));
    std::string file = test::read_file(folder.path() + name);
    // In the footer, or in the data.
    const std::uint64_t footer = detail::parquet_file::footer_bytes(file, file.size(), "f");
    for (std::uint64_t flips = 1 + draw.below(3); flips > 0; --flips) {
      const std::uint64_t of = draw.below(2) == 0 ? footer : file.size();
      char& c = file[static_cast<std::size_t>(file.size() - 1 - draw.below(of))];
      c = static_cast<char>(static_cast<unsigned char>(c) ^ 1U << draw.below(8));
    }
    INFO("seed " << seed);
    ++(millrace_test::failure_of(file).empty() ? read : refused);
  }
  CHECK(refused > 60);
  CHECK(read > 60);
}
