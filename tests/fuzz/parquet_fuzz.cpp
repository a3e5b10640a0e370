// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: a Parquet file that the input edits (edits.hpp) is read or refused, whatever its footer and its pages say.
// The second byte chooses how the file was written.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -I. -Iinclude -isystem PYARROW/include
//     tests/fuzz/parquet_fuzz.cpp PYARROW/libparquet.so.* PYARROW/libarrow.so.*
//   ./a.out -max_len=200 -len_control=0 -malloc_limit_mb=1024

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/records/detail/parquet_file.hpp>

#include "tests/fuzz/edits.hpp"
#include "tests/parquet/drawn_parquet.hpp"

namespace mill = millrace;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const std::vector<std::string> files = [] {
    std::vector<std::string> made;
    for (std::uint64_t v = 0; v < 6; ++v) {
      made.push_back(millrace_test::drawn_table::file(millrace_test::drawn_table(v, 12).table, 8, v));
    }
    return made;
  }();
  const std::string file = mill::fuzz::edited(files[data[1] % files.size()], data, size);
  static_cast<void>(millrace_test::failure_of(file, {.memory = 64 << 20}));
  return 0;
}
