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

#include <millrace/base/detail/wipe.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::text {

/// The strings and numbers of a small JSON document (RFC 8259), by their path: `roleCredentials/accessKeyId`.
///
/// For documents an object or two deep that the library itself reads: the answers of credential services, lists of
/// shards, saved states. Samples and lines of text are read by json_reader (decode/json_reader.hpp), whose simdjson is
/// optional and so cannot serve the credentials. Items of arrays are checked and, unless asked for, dropped, like true,
/// false and null. Values may be secrets: they are overwritten on destruction. Views that find() returns are of this
/// object's texts, and last as long as it.
class json_leaves {
 public:
  /// Items of arrays are dropped, or kept with their index as name: `shards/0/url`.
  enum class arrays : unsigned char { dropped, kept };

  /// Nothing when `text` is not one intact JSON document, nested at most 16 deep, nor when the paths of its leaves
  /// together are longer than 64 times the text and 1 MiB.
  static std::optional<json_leaves> parse(std::string_view text, arrays items = arrays::dropped);

  json_leaves(json_leaves&&) noexcept = default;
  json_leaves& operator=(json_leaves&&) = delete;
  ~json_leaves() {
    for (auto& [path, text] : leaves_) millrace::detail::wipe(text);
  }

  /// A string, or the digits of a number; nullopt if there is none at that path. The last of repeated members wins.
  std::optional<std::string_view> find(std::string_view path) const noexcept;

  /// Paths and values of all, in the order of the text.
  const std::vector<std::pair<std::string, std::string>>& all() const noexcept { return leaves_; }

  /// A whole number that is not negative; nothing for anything else.
  std::optional<std::int64_t> find_number(std::string_view path) const noexcept;

 private:
  static constexpr int deepest = 16;

  json_leaves() = default;

  void skip_blanks() noexcept {
    const std::size_t n = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(n == std::string_view::npos ? rest_.size() : n);
  }
  bool take(char c) noexcept;

  bool value(std::string& path, int depth, bool keep);

  bool keep_leaf(const std::string& path, std::string text);

  bool object(std::string& path, int depth, bool keep);

  bool array(std::string& path, int depth, bool keep);

  bool word(std::string_view text) noexcept;

  bool digits(std::size_t& n) const noexcept;

  bool number(const std::string& path, bool keep);

  bool string(std::string& out);

  bool escape(std::string& out);

  bool hex4(std::uint32_t& code) noexcept;

  std::string_view rest_;  // while parsing
  arrays items_ = arrays::dropped;
  std::size_t paths_left_ = 0;  // bytes of paths that may come
  std::vector<std::pair<std::string, std::string>> leaves_;
};

}  // namespace millrace::text

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/text/json_leaves.ipp>
#endif
