// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace millrace {

/// How a member's name places it in a WebDataset shard: the sample's key and the field's extension.
///
/// The key is the path up to the first dot of the base name; the extension is the rest, which has no slash. The rule is
/// WebDataset's own, the regular expression `^((?:.*/|)[^.]+)[.]([^/]*)$` of its tariterators.py, with its quirks: a
/// leading "./" stays in the key, "a." has an empty extension, and "dir/.hidden.jpg" is field "hidden.jpg" of the
/// sample "dir/" while ".hidden.jpg" belongs to none. Only the name is looked at: members that are not regular files
/// are to be skipped before.
///
/// Pure views: key and extension point into the name, which must outlive them.
class sample_name {
 public:
  enum class disposition : unsigned char {
    sample,       ///< a field of a sample
    skip_no_key,  ///< has no key: no dot in its base name, or nothing before it
    skip_meta,    ///< metadata of the shard: the name or its first directory is "__...__"
  };

  /// Splits a member's name. Never fails, allocates nothing.
  static sample_name parse(std::string_view name) noexcept;

  disposition kind() const noexcept { return kind_; }
  bool is_sample() const noexcept { return kind_ == disposition::sample; }
  /// The sample's key, directory included; empty unless is_sample().
  std::string_view key() const noexcept { return key_; }
  /// The field's extension as the archive spells it: everything behind the key's dot. WebDataset compares extensions
  /// in lower case, see lower_extension().
  std::string_view extension() const noexcept { return extension_; }
  /// The extension with ASCII letters in lower case. Other bytes are kept.
  std::string lower_extension() const;

 private:
  explicit sample_name(disposition kind) noexcept : kind_(kind) {}
  sample_name(std::string_view key, std::string_view extension) noexcept
      : kind_(disposition::sample), key_(key), extension_(extension) {}

  /// WebDataset skips names that `__[^/]*__($|/)` matches at their start; `$` also stands before a last line feed.
  static bool is_meta(std::string_view name) noexcept;

  disposition kind_;
  std::string_view key_;
  std::string_view extension_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/sample_name.ipp>
#endif
