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
#include <millrace/text/hex.hpp>
#include <millrace/text/numbers.hpp>
#include <millrace/text/utf8.hpp>

namespace millrace::text {

/// The strings and numbers of a small JSON document (RFC 8259), by their place: `roleCredentials/accessKeyId`.
///
/// For documents an object or two deep, such as the answers of credential services; samples have decode/json.hpp. What
/// stands in arrays is checked and, unless asked for, dropped, like true, false and null. Values may be secrets: they are overwritten on
/// destruction. Views that find() returns are of this object's texts, and last as long as it.
class json_leaves {
 public:
  /// What becomes of the items of arrays: dropped, or kept with their numbers as their names: `shards/0/url`.
  enum class arrays : unsigned char { dropped, kept };

  /// Nothing when `text` is not one intact JSON document, nested at most 16 deep.
  static std::optional<json_leaves> parse(std::string_view text, arrays items = arrays::dropped) {
    json_leaves out;
    out.rest_ = text;
    out.items_ = items;
    std::string path;
    out.skip_blanks();
    if (!out.value(path, 0, true)) return std::nullopt;
    out.skip_blanks();
    if (!out.rest_.empty()) return std::nullopt;
    return out;
  }

  json_leaves(json_leaves&&) noexcept = default;
  json_leaves& operator=(json_leaves&&) = delete;
  ~json_leaves() {
    for (auto& [path, text] : leaves_) millrace::detail::wipe(text);
  }

  /// A string, or the digits of a number; nothing when there is none at that place. The last of repeated members wins.
  std::optional<std::string_view> find(std::string_view path) const noexcept {
    for (std::size_t i = leaves_.size(); i > 0; --i) {
      if (leaves_[i - 1].first == path) return std::string_view(leaves_[i - 1].second);
    }
    return std::nullopt;
  }

  /// Places and values of all, in the order of the text.
  const std::vector<std::pair<std::string, std::string>>& all() const noexcept { return leaves_; }

  /// A whole number that is not negative; nothing for anything else.
  std::optional<std::int64_t> find_number(std::string_view path) const noexcept {
    const std::optional<std::string_view> text = find(path);
    if (!text) return std::nullopt;
    return parse_decimal<std::int64_t>(*text);
  }

 private:
  static constexpr int deepest = 16;

  json_leaves() = default;

  void skip_blanks() noexcept {
    const std::size_t n = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(n == std::string_view::npos ? rest_.size() : n);
  }
  bool take(char c) noexcept {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool value(std::string& path, int depth, bool keep) {
    if (rest_.empty() || depth > deepest) return false;
    switch (rest_.front()) {
      case '{':
        return object(path, depth, keep);
      case '[':
        return array(path, depth, keep && items_ == arrays::kept);
      case '"': {
        std::string text;
        const bool whole = string(text);
        if (whole && keep) {
          leaves_.emplace_back(path, std::move(text));
        } else {
          millrace::detail::wipe(text);
        }
        return whole;
      }
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number(path, keep);
    }
  }

  bool object(std::string& path, int depth, bool keep) {
    take('{');
    skip_blanks();
    if (take('}')) return true;
    for (;;) {
      std::string name;
      skip_blanks();
      if (!string(name)) return false;
      skip_blanks();
      if (!take(':')) return false;
      skip_blanks();
      const std::size_t length = path.size();
      if (!path.empty()) path += '/';
      path += name;
      if (!value(path, depth + 1, keep)) return false;
      path.resize(length);
      skip_blanks();
      if (take('}')) return true;
      if (!take(',')) return false;
    }
  }

  bool array(std::string& path, int depth, bool keep) {
    take('[');
    skip_blanks();
    if (take(']')) return true;
    const std::size_t length = path.size();
    for (std::size_t i = 0;; ++i) {
      skip_blanks();
      if (keep) path += (length == 0 ? "" : "/") + std::to_string(i);
      if (!value(path, depth + 1, keep)) return false;
      path.resize(length);
      skip_blanks();
      if (take(']')) return true;
      if (!take(',')) return false;
    }
  }

  bool word(std::string_view text) noexcept {
    if (rest_.substr(0, text.size()) != text) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  bool digits(std::size_t& n) const noexcept {
    const std::size_t before = n;
    while (n < rest_.size() && rest_[n] >= '0' && rest_[n] <= '9') ++n;
    return n > before;
  }

  bool number(const std::string& path, bool keep) {
    std::size_t n = rest_.front() == '-' ? 1 : 0;
    const std::size_t first = n;
    if (!digits(n)) return false;
    if (rest_[first] == '0' && n > first + 1) return false;
    if (n < rest_.size() && rest_[n] == '.' && !digits(++n)) return false;
    if (n < rest_.size() && (rest_[n] == 'e' || rest_[n] == 'E')) {
      ++n;
      if (n < rest_.size() && (rest_[n] == '+' || rest_[n] == '-')) ++n;
      if (!digits(n)) return false;
    }
    if (keep) leaves_.emplace_back(path, std::string(rest_.substr(0, n)));
    rest_.remove_prefix(n);
    return true;
  }

  bool string(std::string& out) {
    if (!take('"')) return false;
    std::size_t length = 0;  // at most, escapes only make it shorter
    while (length < rest_.size() && rest_[length] != '"') length += rest_[length] == '\\' ? 2U : 1U;
    out.reserve(length);  // text that grew would leave its beginnings in freed memory
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') {
        out += c;
      } else if (!escape(out)) {
        return false;
      }
    }
    return false;
  }

  bool escape(std::string& out) {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    static constexpr std::string_view names = "\"\\/bfnrt";
    static constexpr std::string_view meant = "\"\\/\b\f\n\r\t";
    const std::size_t at = names.find(c);
    if (at != std::string_view::npos) {
      out += meant[at];
      return true;
    }
    std::uint32_t code = 0;
    if (c != 'u' || !hex4(code)) return false;
    if (code >= 0xdc00 && code < 0xe000) return false;  // the second half of a pair, alone
    if (code >= 0xd800 && code < 0xdc00) {
      std::uint32_t low = 0;
      if (!take('\\') || !take('u') || !hex4(low) || low < 0xdc00 || low >= 0xe000) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(out, code);
    return true;
  }

  bool hex4(std::uint32_t& code) noexcept {
    if (rest_.size() < 4) return false;
    code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = rest_[static_cast<std::size_t>(i)];
      const int digit = hex_digit(c);
      if (digit < 0) return false;
      code = code * 16 + static_cast<std::uint32_t>(digit);
    }
    rest_.remove_prefix(4);
    return true;
  }

  std::string_view rest_;  // while parsing
  arrays items_ = arrays::dropped;
  std::vector<std::pair<std::string, std::string>> leaves_;
};

}  // namespace millrace::text
