// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/records/detail/text_format.hpp>
#include <millrace/tar/detail/other_kinds.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The compression that an object's name stands for: the format, if it is one that is unpacked.
struct named_compression {
  std::string_view ending;
  tar::format kind;
  std::string_view begin;  // of all such data
};

/// Finds it by the ending of an object's name; null if the name has none of them.
MILLRACE_INLINE const named_compression* compression_by_name(std::string_view name) noexcept {
  using namespace std::string_view_literals;
  using tar::format;
  static constexpr named_compression all[] = {
      {"gz"sv, format::gzip, "\x1f\x8b"sv},          {"bz2"sv, format::bzip2, "BZh"sv},
      {"xz"sv, format::xz, "\xfd\x37zXZ\0"sv},       {"zst"sv, format::zstd, "\x28\xb5\x2f\xfd"sv},
      {"lz4"sv, format::lz4, "\x04\x22\x4d\x18"sv}, {"lzma"sv, format::lzma, "\x5d\0\0"sv},
      {"br"sv, format::unknown, ""sv},              {"z"sv, format::unknown, ""sv},
      {"lz"sv, format::unknown, ""sv},              {"lzo"sv, format::unknown, ""sv},
      {"snappy"sv, format::unknown, ""sv},          {"deflate"sv, format::deflate, ""sv},
      {"zz"sv, format::deflate, ""sv},
  };
  for (const named_compression& c : all) {
    const std::size_t dot = name.rfind('.');
    if (dot != std::string_view::npos && text::equal_ignoring_case(name.substr(dot + 1), c.ending)) return &c;
  }
  return nullptr;
}

/// The name of the format that these few bytes are the beginning of, if they are too short to be complete; null for
/// text.
MILLRACE_INLINE const char* cut_in_first_bytes(std::string_view whole) noexcept {
  using namespace std::string_view_literals;
  const auto begins = [whole](std::string_view magic) {
    return !whole.empty() && whole.size() < magic.size() && magic.substr(0, whole.size()) == whole;
  };
  if (begins("\x1f\x8b"sv)) return "gzip";
  if (begins("\xfd\x37zXZ\0"sv)) return "xz";
  if (whole.size() > 1 && begins("\x28\xb5\x2f\xfd"sv)) return "zstd";
  if (begins("\x04\x22\x4d\x18"sv)) return "lz4";
  if (whole.size() > 1 && whole.size() < 14 && whole.substr(0, 2) == "\x5d\0"sv) return "lzma";
  // "BZh9": more of it has no other meaning.
  if (whole.size() >= 4 && whole.size() < 10 && whole.substr(0, 3) == "BZh"sv &&
      ("1AY&SY"sv.substr(0, whole.size() - 4) == whole.substr(4) ||
       "\x17\x72\x45\x38\x50\x90"sv.substr(0, whole.size() - 4) == whole.substr(4))) {
    return "bzip2";
  }
  return nullptr;
}

/// For an object that does not begin like known compressed data: whether its name says that it is compressed, and its
/// bytes do not look like text.
MILLRACE_INLINE tar::format unnamed_text(std::string_view head, const shard& of) {
  const where at{of.shown(), 0, std::string()};
  const std::string_view other = tar::detail::other_compression(head);
  if (!other.empty()) throw decode_error("this is " + std::string(other) + " data, which are not unpacked here", at);
  if (const char* const cut = cut_in_first_bytes(head)) {
    throw archive_error("the object ends within the first bytes of " + std::string(cut) + " data", at);
  }
  const bool plain = tar::detail::looks_like_text(head);
  const std::string coding = tar::detail::content_coding(of.encoding);
  if (!coding.empty() && !head.empty() && !plain) {
    if (text::equal_ignoring_case(coding, "deflate")) return tar::format::deflate;
    throw decode_error("its Content-Encoding is " + coding + ": it is not unpacked", at);
  }
  if (!coding.empty() && plain) {
    say_first("text with a Content-Encoding",
              "its Content-Encoding is " + coding + ", but its bytes are text: taken as they are", at);
  }
  const std::string name = of.shown();
  const named_compression* const said = compression_by_name(name);
  if (said == nullptr) return tar::format::unknown;
  const std::string ending = "." + std::string(said->ending);
  if (head.empty()) throw archive_error("the object is empty, though its name ends in " + ending, at);
  if (head.size() <= said->begin.size() && said->begin.substr(0, head.size()) == head) {
    throw archive_error("the object ends within the first bytes of " + ending + " data", at);
  }
  if (plain) {
    say_first("text with the name of a compression",
              "its name ends in " + ending + ", but its bytes are text: taken as they are", at);
    return tar::format::unknown;
  }
  if (said->kind == tar::format::deflate) return said->kind;
  if (said->kind == tar::format::unknown) {
    throw decode_error("its name ends in " + ending + ": such data are not unpacked here", at);
  }
  throw archive_error("its name ends in " + ending + ", but it does not begin as such data do", at);
}

MILLRACE_INLINE decode_error no_text(tar::format kind, const shard& of) {
  const bool read = kind != tar::format::seven_zip;
  return decode_error(std::string("this is a ") + tar::format_name(kind) + " archive and no text" +
                          (read ? ": read it by untar()" : ""),
                      where{of.shown(), 0, std::string()});
}

/// No text begins like compressed data.
MILLRACE_INLINE tar::format text_format(std::string_view head, const shard& of) {
  const tar::format kind = tar::detect(head);
  switch (kind) {
    case tar::format::bzip2: {  // "BZh" may be text: a block, or the end, must follow
      const std::string_view rest = head.substr(std::min<std::size_t>(4, head.size()), 6);
      if (rest == "1AY&SY" || rest == "\x17\x72\x45\x38\x50\x90") return kind;
      return unnamed_text(head, of);
    }
    case tar::format::tar:
      if (head.find_first_not_of('\0') == std::string_view::npos) {
        throw decode_error("the text begins with " + std::to_string(head.size()) +
                               " NULs: so does a file whose bytes were not written before a machine went down",
                           where{of.shown(), 0, std::string()});
      }
      throw no_text(kind, of);
    case tar::format::zip:
    case tar::format::seven_zip:
      throw no_text(kind, of);
    case tar::format::unknown:
      return unnamed_text(head, of);
    default:
      if (const std::string coding = tar::detail::content_coding(of.encoding); coding.find(',') != std::string::npos) {
        throw decode_error("its Content-Encoding is " + coding + ": one layer is unpacked, not more",
                           where{of.shown(), 0, std::string()});
      }
      return kind;
  }
}

}  // namespace millrace::detail
