// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: tar::reader fed in two different ways must give the same members and the same end, within its limits;
// archive_reader must end. The first two bytes choose the options and the size of the pieces.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/tar_fuzz.cpp
//     -larchive -lz -lzstd
//   ./a.out -max_len=20000 corpus/

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/tar/archive_reader.hpp>
#include <millrace/tar/reader.hpp>

namespace {

namespace mill = millrace;

void require(bool condition) {
  if (!condition) std::abort();
}

/// All that was read, in one string.
template <class Reader>
std::string transcript(Reader reader, std::string_view text, std::size_t piece, std::uint64_t most_member) {
  std::string log;
  const std::size_t whole = text.size();
  try {
    mill::tar::entry e;
    const auto drain = [&] {
      while (reader.next(e)) {
        require(e.body.size() <= most_member);
        log += e.type;
        log += e.name;
        log += ' ' + std::to_string(e.header_offset) + ' ' + std::to_string(e.size) + ' ';
        log.append(e.body.data(), e.body.size());
      }
    };
    while (!text.empty()) {
      const std::size_t n = std::min(piece, text.size());
      reader.feed(mill::bytes::copy(text.substr(0, n)));
      text.remove_prefix(n);
      drain();
    }
    reader.finish();
    drain();
    require(reader.done());
  } catch (const mill::archive_error& error) {
    require(error.offset().has_value());
    log += error.what();
  }
  require(log.size() < 64 * (whole + 1000) + 4 * most_member);
  return log;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  mill::tar::reader_options options{.max_member_bytes = 100000};
  options.concatenated = (data[0] & 2) != 0;
  const std::size_t piece = 1 + data[1];
  const std::string whole =
      transcript(mill::tar::reader("f", options), text, std::max<std::size_t>(1, text.size()), 100000);
  require(whole == transcript(mill::tar::reader("f", options), text, piece, 100000));
  const mill::tar::archive_options any{.members = options, .max_output_bytes = 100000 + 20 * text.size()};
  transcript(mill::tar::archive_reader("f", any), text, piece, 100000);
  return 0;
}
