// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/reader.hpp>

#include "tests/support/test_data.hpp"

namespace millrace::test {

/// A member as a test compares it.
struct member {
  std::string name;
  char type = 0;
  std::string body;
  std::uint64_t header_offset = 0;
  std::uint64_t data_offset = 0;
  std::uint64_t size = 0;

  bool operator==(const member&) const = default;
};

/// All that reading an archive gave.
struct outcome {
  std::vector<member> members;
  std::string error;  ///< the reason; empty: none
  std::optional<std::uint64_t> error_offset;
  std::string warning;

  bool operator==(const outcome&) const = default;
};

inline std::string describe(const outcome& o) {
  std::string text;
  for (const member& m : o.members) {
    text += std::string(1, m.type) + " " + m.name + " " + std::to_string(m.size) + " @" +
            std::to_string(m.header_offset) + "\n";
  }
  if (!o.error.empty()) text += "error at " + std::to_string(o.error_offset.value_or(0)) + ": " + o.error + "\n";
  return text + (o.warning.empty() ? "" : "warning: " + o.warning + "\n");
}

/// How an archive is cut into pieces: all of one size, in one piece (0), or of random sizes.
struct split {
  std::size_t size = 0;
  std::uint64_t seed = 0;  ///< not 0: random sizes up to `size`
};

inline const std::vector<split>& splits() {
  static const std::vector<split> all = {{0, 0}, {1, 0}, {7, 0}, {512, 0}, {4096, 0}, {1500, 17}, {90000, 4}};
  return all;
}

/// Feeds `text` to a reader piece by piece, each piece in memory of its own, and takes everything.
template <class Reader>
outcome read_all(Reader reader, const std::string& text, split how = split()) {
  outcome result;
  rng random(how.seed);
  try {
    tar::entry e;
    const auto drain = [&] {
      while (reader.next(e)) {
        result.members.push_back({e.name, e.type, std::string(e.body.view()), e.header_offset, e.data_offset, e.size});
      }
    };
    for (std::size_t at = 0; at < text.size();) {
      std::size_t n = how.size == 0 ? text.size() : how.seed == 0 ? how.size : 1 + random.below(how.size);
      n = std::min(n, text.size() - at);
      reader.feed(bytes::copy(std::string_view(text).substr(at, n)));
      at += n;
      drain();
    }
    reader.finish();
    drain();
    if (!reader.done()) result.error = "the reader is not done after finish()";
    result.warning = reader.warning();
  } catch (const archive_error& e) {
    result.error = e.reason();
    result.error_offset = e.offset();
  }
  return result;
}

inline outcome read_tar(const std::string& text, tar::reader_options options = tar::reader_options(),
                        split how = split()) {
  return read_all(tar::reader("test.tar", options), text, how);
}

/// One hand-made header block, checksum included.
struct header_block {
  std::string name = "file";
  char type = '0';
  std::string size = std::string("00000000000\0", 12);
  std::string magic = std::string(
      "ustar\0"
      "00",
      8);
  std::string prefix = std::string();
  bool signed_checksum = false;

  std::string text() const {
    std::string block(512, '\0');
    block.replace(0, std::min<std::size_t>(name.size(), 100), name.substr(0, 100));
    block.replace(100, 8, std::string("0000644\0", 8));
    block.replace(124, size.size(), size);
    block[156] = type;
    block.replace(257, magic.size(), magic);
    block.replace(345, prefix.size(), prefix);
    return sealed(block, signed_checksum);
  }

  /// The block with its checksum made right.
  static std::string sealed(std::string block, bool signed_checksum = false) {
    block.replace(148, 8, 8, ' ');
    int sum = 0;
    for (char c : block) sum += signed_checksum ? static_cast<signed char>(c) : static_cast<unsigned char>(c);
    char digits[16];
    std::snprintf(digits, sizeof digits, "%06o", static_cast<unsigned>(sum) & 0777777);
    block.replace(148, 7, std::string(digits, 7));
    return block;
  }
};

inline std::string octal_size(std::uint64_t size) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%011llo", static_cast<unsigned long long>(size));
  return std::string(digits, 12);
}

/// A body with the zeros after it.
inline std::string padded(std::string body) {
  body.append((512 - body.size() % 512) % 512, '\0');
  return body;
}

/// A header and its body, padded.
inline std::string raw_member(header_block header, const std::string& body) {
  header.size = octal_size(body.size());
  return header.text() + padded(body);
}

inline std::string pax_header(const std::string& records, char type = 'x') {
  header_block h;
  h.name = "././@PaxHeader";
  h.type = type;
  return raw_member(h, records);
}

/// "<length> <key>=<value>\n".
inline std::string pax_record(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  std::size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

inline const std::string& end_block() {
  static const std::string zeros(1024, '\0');
  return zeros;
}

/// The rows of a table with one header line, split at tabs.
inline std::vector<std::vector<std::string>> read_table(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream in(read_file(path));
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::vector<std::string> row;
    std::size_t at = 0;
    for (std::size_t tab; (tab = line.find('\t', at)) != std::string::npos; at = tab + 1) {
      row.push_back(line.substr(at, tab - at));
    }
    row.push_back(line.substr(at));
    rows.push_back(row);
  }
  return rows;
}

/// \xNN as the byte.
inline std::string unescape_bytes(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "\\x") == 0 && i + 3 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 2, 2), nullptr, 16));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace millrace::test
