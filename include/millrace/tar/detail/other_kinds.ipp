// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/other_kinds.hpp>
#include <millrace/tar/format.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

MILLRACE_INLINE bool looks_like_text(std::string_view head) noexcept {
  using namespace std::string_view_literals;
  for (const char c : head) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && "\t\n\v\f\r\x1b"sv.find(c) == std::string_view::npos) || byte == 0x7f) return false;
  }
  constexpr std::size_t long_enough = 256;  // compressed data have a control character by then
  constexpr std::size_t longest_character = 4;
  if (head.size() >= long_enough) return true;
  while (!head.empty()) {
    const std::size_t length = text::first_utf8(head).length;
    if (length == 0) return head.size() < longest_character && static_cast<unsigned char>(head[0]) >= 0xc2;
    head.remove_prefix(length);
  }
  return true;
}

struct first_bytes {
  std::string_view begin;
  std::string_view name;
};

MILLRACE_INLINE std::string_view other_compression(std::string_view head) noexcept {
  using namespace std::string_view_literals;
  constexpr first_bytes known[] = {
      {"\x1f\x9d"sv, "compress"sv},      {"\x1f\x1e"sv, "pack"sv},
      {"\x1f\xa0"sv, "LZH"sv},           {"LZIP\0"sv, "lzip"sv},
      {"LZIP\1"sv, "lzip"sv},                 {"\x89LZO\0\r\n\x1a\n"sv, "lzop"sv},
      {"LRZI\0"sv, "lrzip"sv},                {"\xff\x06\0\0sNaPpY"sv, "Snappy"sv},
      {"\x02\x21\x4c\x18"sv, "old lz4"sv},
  };
  for (const first_bytes& kind : known) {
    if (head.substr(0, kind.begin.size()) == kind.begin) return kind.name;
  }
  return {};
}

MILLRACE_INLINE std::string content_coding(std::string_view encoding) {
  std::string codings;
  while (!encoding.empty()) {
    const std::size_t end = std::min(encoding.find(','), encoding.size());
    const std::string_view one = text::trimmed(encoding.substr(0, end));
    encoding.remove_prefix(std::min(end + 1, encoding.size()));
    if (one.empty() || text::equal_ignoring_case(one, "identity") || text::equal_ignoring_case(one, "aws-chunked")) {
      continue;
    }
    if (!codings.empty()) codings += ", ";
    codings += one;
  }
  return codings;
}

MILLRACE_INLINE std::string other_kind(std::string_view head) {
  using namespace std::string_view_literals;
  const format kind = detect(head);
  if (kind == format::zip || kind == format::seven_zip || kind == format::cpio) {
    return std::string("a ") + format_name(kind) + " archive";
  }
  if (kind != format::unknown && kind != format::tar) return std::string(format_name(kind)) + " data";
  if (const std::string_view name = other_compression(head); !name.empty()) return std::string(name) + " data";
  constexpr first_bytes known[] = {
      {"version https://git-lfs.github.com/spec/"sv, "a pointer of Git LFS in place of the file"sv},
      {"Rar!\x1a\x07"sv, "a RAR archive"sv},
      {"PAR1"sv, "Parquet"sv},
      {"ARROW1"sv, "Arrow"sv},
      {"Obj\1"sv, "Avro"sv},
      {"\x89HDF\r\n"sv, "HDF5"sv},
      {"\x93NUMPY"sv, "a NumPy array"sv},
      {"\xff\xd8\xff"sv, "a JPEG"sv},
      {"\x89PNG\r\n"sv, "a PNG"sv},
      {"%PDF-"sv, "PDF"sv},
      {"MDSB"sv, "a shard of MosaicML"sv},
  };
  for (const first_bytes& other : known) {
    if (head.substr(0, other.begin.size()) == other.begin) return std::string(other.name);
  }
  if (!looks_like_text(head)) return std::string();
  std::string_view text = head;
  if (text.substr(0, 3) == "\xef\xbb\xbf"sv) text.remove_prefix(3);  // a byte order mark
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t\r\n"sv)));
  if (text.empty()) return std::string();
  if (text[0] == '<') return "XML or HTML, perhaps a server's error message";
  if (text[0] == '{' || text[0] == '[') return "JSON, perhaps a server's error message";
  return "text";
}

MILLRACE_INLINE std::string not_but(std::string_view head) {
  const std::string kind = other_kind(head);
  std::string words = kind.empty() ? std::string() : ", but " + kind;
  constexpr std::size_t shown = 24;
  return words + ": it begins with \"" + std::string(head.substr(0, shown)) + "\"";
}

}  // namespace millrace::tar::detail
