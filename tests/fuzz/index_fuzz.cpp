// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: shards of MDS, .npy and Megatron, index.json, indexes of our own and of others, and states are read or
// refused, in memory that is bounded by what they have. The first byte is edits.hpp's, the second the size of the
// pieces.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -I. -Iinclude tests/fuzz/index_fuzz.cpp
//     -larchive -lz -lzstd -luring
//   ./a.out -max_len=200 -len_control=0 -malloc_limit_mb=256

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/formats/array_shards.hpp>
#include <millrace/formats/mds.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/order/epoch_state.hpp>

#include "tests/fuzz/edits.hpp"

namespace {

namespace mill = millrace;
using mill::fuzz::little;

const std::string columns = R"("column_encodings":["str","int32"],"column_names":["a","b"],"column_sizes":[null,4],)"
                            R"("format":"mds","version":2)";

std::string mds_shard() {
  const std::string config = "{" + columns + "}";
  const std::size_t begin = 4 + 4 * 3 + config.size();
  return little(2, 4) + little(begin, 4) + little(begin + 11, 4) + little(begin + 20, 4) + config + little(3, 4) +
         "abc" + little(7, 4) + little(1, 4) + "d" + little(8, 4);
}
std::string index_json() {
  return "{\"shards\":[{" + columns + R"(,"raw_data":{"basename":"x.mds","bytes":100,"hashes":{"sha1":"00"}},)" +
         R"("samples":2,"zip_data":null}],"version":2})";
}
std::string npy() {
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }";
  header += std::string(118 - 1 - header.size(), ' ') + '\n';
  return std::string("\x93NUMPY\1\0", 8) + little(header.size(), 2) + header + std::string(24, 'x');
}
std::string megatron_idx() {
  return std::string("MMIDIDX\0\0", 9) + little(1, 8) + little(4, 1) + little(2, 8) + little(2, 8) + little(2, 4) +
         little(3, 4) + little(0, 8) + little(8, 8) + little(0, 8) + little(2, 8);
}

/// The index, or nothing where the shard is refused.
std::string scanned(const mill::shard_format& format, const std::string& url, const std::string& file,
                    std::size_t piece, bool size_known, std::shared_ptr<const void> metadata = nullptr) {
  try {
    mill::shard object(url);
    if (size_known) object.size = file.size();
    const std::unique_ptr<mill::shard_scanner> scanner = format.scanner("x", object, std::move(metadata));
    for (std::size_t at = 0; at < file.size(); at += piece)
      scanner->add(mill::bytes::copy(std::string_view(file).substr(at, piece)));
    return scanner->finish(file.size(), "").text();
  } catch (const mill::error&) {
    return {};
  }
}

/// All bytes that an index names are inside of the file.
void read_samples(const mill::shard_format& format, const std::string& index_text, const std::string& file) {
  try {
    std::string_view rest = index_text;
    const mill::shard_index index = mill::shard_index::read(rest, "f");
    if (index.layout() != mill::row_layout::records) return;
    const auto reader = format.reader(index);
    static_cast<void>(format.fields(index));
    for (std::size_t i = 0; i < index.samples() && i < 100; ++i) {
      const std::uint64_t begin = index.offset(i);
      const std::uint64_t end = index.end(i);
      if (index.has_groups() || end > file.size() || begin > end) continue;
      mill::sample s;
      s.key = "k";
      const std::string_view record = std::string_view(file).substr(begin, end - begin);
      try {
        reader->fill(s, index.rows_of(i), i, mill::bytes::copy(record));
      } catch (const mill::decode_error&) {
      }
    }
  } catch (const mill::error&) {
  }
}

template <class F>
void attempt(F f) {
  try {
    f();
  } catch (const mill::error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t piece = 1 + data[1];
  const bool size_known = (data[1] & 1) != 0;
  const auto edited = [&](const std::string& file) { return mill::fuzz::edited(file, data, size); };
  const auto check = [&](const std::shared_ptr<const mill::shard_format>& format, const std::string& url,
                         const std::string& file, const std::shared_ptr<const void>& metadata) {
    const std::string index = scanned(*format, url, file, std::max<std::size_t>(1, file.size()), size_known, metadata);
    if (scanned(*format, url, file, piece, size_known, metadata) != index) std::abort();
    read_samples(*format, index, file);
    read_samples(*format, edited(index), file);
    attempt([&] { static_cast<void>(mill::index_set(mill::read_indexes(edited(index), "f"))); });
  };
  check(mill::mds(), "mem:x.mds", edited(mds_shard()), nullptr);
  check(mill::npy_shards(), "mem:x.npy", edited(npy()), nullptr);
  const auto tokens = std::make_shared<mill::detail::megatron_metadata>();
  tokens->by_url["mem:x.bin"] = edited(megatron_idx());
  check(mill::megatron(), "mem:x.bin", std::string(20, 't'), tokens);
  attempt([&] {
    mill::detail::mds_metadata metadata;
    std::set<std::string> unknown = {"mem:x.mds"};
    std::set<std::string> not_compared;
    mill::detail::add_mds_index(metadata, "mem:index.json", edited(index_json()), {"mem:x.mds"}, unknown, not_compared);
  });
  mill::epoch_state state;
  state.tracks = 4;
  state.slice = 10;
  state.holes = {{3, 2}, {9, 1}};
  attempt([&] { static_cast<void>(mill::epoch_state::parse(edited(state.text()))); });
  mill::epoch_state streamed;
  streamed.world_size = 1;
  streamed.streamed.emplace().place = "1.2.3";
  attempt([&] { static_cast<void>(mill::epoch_state::parse(edited(streamed.text()))); });
  return 0;
}
