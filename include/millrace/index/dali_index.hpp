// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Reads an index of NVIDIA DALI, as its wds2idx writes it: a line "v1.2" and the number of samples, then a line for
/// each sample with extension, offset of the body, length and member's name of each field; of "v1.1" without the names.
/// It knows no ETag, no checksums and no headers, and of v1.1 no keys.
///
/// With names, members are grouped into samples as group_samples() does, whatever the lines say. (What DALI leaves out
/// does not come back: members whose base names begin with a dot.) Without them a line is a sample. Names with blanks
/// cannot be distinguished from fields, neither here nor by DALI.
///
/// `name` is what the index is to call the shard, `object_size` the length of the shard in bytes, `file` names the
/// index in errors. An index_error, with the byte where the line begins, for anything that is not as said.
shard_index read_dali_index(std::string_view text, std::string name, std::uint64_t object_size, std::string file);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

/// The words of a line, between blanks.
inline std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t end = line.find_first_of(" \t\r");
    words.push_back(line.substr(0, end));
    line.remove_prefix(words.back().size());
  }
}

}  // namespace detail

inline shard_index read_dali_index(std::string_view text, std::string name, std::uint64_t object_size,
                                   std::string file) {
  std::uint64_t at = 0;  // where the line begins
  std::uint64_t next = 0;
  const auto fail = [&](const std::string& reason) { throw index_error(reason, where{file, at, {}}); };
  const auto take_line = [&] {
    at = next;
    const std::string_view rest = text.substr(static_cast<std::size_t>(at));
    const std::string_view line = rest.substr(0, rest.find('\n'));
    next = at + line.size() + (line.size() < rest.size() ? 1 : 0);
    return detail::words_of(line);
  };
  const std::vector<std::string_view> head = take_line();
  const bool named = !head.empty() && head[0] == "v1.2";
  if (!named && (head.empty() || head[0] != "v1.1")) fail("not an index of DALI: it begins with neither v1.1 nor v1.2");
  const std::optional<std::uint64_t> count =
      head.size() == 2 ? text::parse_decimal<std::uint64_t>(head[1]) : std::nullopt;
  if (!count) fail("the first line is not a version and a number of samples");

  tar_index_builder builder(std::move(name), file, tar_index_builder::checksums::none);
  const std::size_t columns = named ? 4 : 3;
  std::uint64_t behind = 0;
  std::uint64_t lines = 0;
  for (; next < text.size(); ++lines) {
    const std::vector<std::string_view> words = take_line();
    if (words.empty() || words.size() % columns != 0) {
      fail("the line of a sample is not a list of " +
           std::string(named ? "extension, offset, length and name" : "extension, offset and length"));
    }
    for (std::size_t i = 0; i < words.size(); i += columns) {
      const auto offset = text::parse_decimal<std::uint64_t>(words[i + 1]);
      const auto size = text::parse_decimal<std::uint64_t>(words[i + 2]);
      if (!offset || !size) fail("an offset or a length is not a number");
      if (*offset % 512 != 0 || *offset < 512) fail("an offset is not that of a body in a tar archive");
      if (*offset - 512 < behind) fail("a body begins before the one before it ends");
      if (*offset > object_size || *size > object_size - *offset) fail("a body reaches beyond the shard's end");
      behind = *offset + *size;
      tar::entry e;
      e.name = named ? std::string(words[i + 3]) : std::to_string(lines) + '.' + std::string(words[i]);
      e.header_offset = *offset - 512;
      e.data_offset = *offset;
      e.size = *size;
      try {
        builder.add(e);
      } catch (const archive_error& broken) {
        throw index_error(broken.reason(), where{file, at, broken.key()});
      }
    }
  }
  if (lines != *count) {
    at = next;
    fail("the index has " + std::to_string(lines) + " samples and says that it has " + std::to_string(*count));
  }
  return builder.finish_foreign(object_size, named);
}

}  // namespace millrace
