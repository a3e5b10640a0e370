// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: files of TFRecord, RecordIO and lines make the same index however they come in pieces, and records are
// read as tf.Example and as MXNet's, or refused. The first byte is edits.hpp's, the second the size of the pieces.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -I. -Iinclude tests/fuzz/records_fuzz.cpp
//     -larchive -lz -lzstd
//   ./a.out -max_len=200 -len_control=0 -malloc_limit_mb=256

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/formats/line_shards.hpp>
#include <millrace/formats/recordio_shards.hpp>
#include <millrace/formats/tfrecord_shards.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/records/mx_record.hpp>
#include <millrace/records/tf_example.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/tar/format.hpp>

#include "tests/fuzz/edits.hpp"

namespace {

namespace mill = millrace;
using mill::fuzz::little;

std::string part(int field, const std::string& of) {
  return std::string(1, static_cast<char>(field << 3 | 2)) + static_cast<char>(of.size()) + of;
}
std::string entry(const std::string& name, int kind, const std::string& values) {
  return part(1, part(1, name) + part(2, part(kind, part(1, values))));
}
std::string example() {
  return part(1, entry("x", 1, "bytes") + entry("y", 2, "floatvalues!") + entry("z", 3, "\1\2\3")) +
         part(2, entry("l", 1, "step"));
}

std::string tfrecord(const std::string& data) {
  const auto masked = [](const std::string& of) {
    const std::uint32_t crc = mill::crc32c(0, of.data(), of.size());
    return little(((crc >> 15) | (crc << 17)) + 0xa282ead8U, 4);
  };
  const std::string length = little(data.size(), 8);
  return length + masked(length) + data + masked(data);
}
std::string recordio(const std::string& data) {
  return little(0xced7230a, 4) + little(data.size(), 4) + data + std::string((4 - data.size() % 4) % 4, '\0');
}

/// The index, or nothing where the file is refused.
std::string indexed(const std::string& file, const mill::shard_format& format, std::size_t piece) {
  try {
    const std::unique_ptr<mill::shard_scanner> scanner = format.scanner("x", mill::shard("mem:x"), nullptr);
    scanner->begin(std::string_view(file).substr(0, mill::tar::detect_bytes), std::nullopt, 4 << 20);
    for (std::size_t at = 0; at < file.size(); at += piece) {
      scanner->add(mill::bytes::copy(std::string_view(file).substr(at, piece)));
    }
    return scanner->finish(file.size(), "").text();
  } catch (const mill::error&) {
    return {};
  }
}

template <class Fields>
void read(const Fields& fields, const std::string& record) {
  mill::sample s;
  s.key = "k";
  s.fields.emplace_back("record", mill::bytes::copy(record));
  try {
    std::size_t bytes = 0;
    for (const mill::field& f : fields(s).fields) bytes += f.data.size();
    if (bytes > 64 * (record.size() + 100)) std::abort();
  } catch (const mill::decode_error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t piece = 1 + data[1];
  const auto edited = [&](const std::string& file) { return mill::fuzz::edited(file, data, size); };
  const auto check = [&](const std::string& file, const std::shared_ptr<const mill::shard_format>& format) {
    const std::string whole = indexed(file, *format, std::max<std::size_t>(1, file.size()));
    if (indexed(file, *format, piece) != whole) std::abort();
  };
  check(edited(tfrecord(example()) + tfrecord("") + tfrecord("short")), mill::tfrecord_shards());
  check(edited(recordio(example()) + recordio("abc")), mill::recordio_shards());
  check(edited("a line\nand another\r\nthe last"), mill::line_shards({.max_line = 1000}));
  read(mill::tf_fields(), edited(example()));
  read(mill::tf_fields({"x", "z"}), edited(example()));
  read(mill::mx_fields(), edited(little(2, 4) + little(0, 4) + little(1, 8) + little(0, 8) + "abcdefgh" + "data"));
  return 0;
}
