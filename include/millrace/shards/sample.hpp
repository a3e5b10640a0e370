// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/tar/entry.hpp>

namespace millrace::inline MILLRACE_ABI {

/// One regular file of an archive, and its place.
class member {
 public:
  member() = default;
  member(tar::entry e, origin where_from) : entry(std::move(e)), from(std::move(where_from)) {}

  tar::entry entry;
  origin from;        ///< offset of the member's first header, ordinal among the archive's entries
  bool last = false;  ///< of its archive, which has been read to its end and is whole

  /// The place for errors about it, named by its entry.
  class place {
   public:
    const origin& from;
    const std::string& key;
  };
  friend place place_of(const member& m) noexcept { return {m.from, m.entry.name}; }
  friend std::size_t byte_size(const member& m) noexcept { return m.entry.body.size(); }
  friend const bytes* slice_of(const member& m) noexcept { return &m.entry.body; }
  friend member compact_slices(member m) {
    m.entry.body = m.entry.body.compact();
    return m;
  }
};

/// A member's name split as in WebDataset: the sample's key and the field's extension.
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
  /// The field's extension as the archive spells it: everything after the key's dot. WebDataset compares extensions
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

/// One field of a sample: an extension ("jpg", "seg.png", in lower case) and the member's bytes.
class field {
 public:
  field() = default;
  field(std::string ext, bytes content) : extension(std::move(ext)), data(std::move(content)) {}
  std::string extension;
  bytes data;
};

/// The members of a shard that share a key, as WebDataset groups them. The bytes are slices of the fetched slabs until
/// compact_slices() has copied the sample.
class sample {
 public:
  sample() = default;
  sample(std::string sample_key, origin where_from) : key(std::move(sample_key)), from(std::move(where_from)) {}

  std::string key;            ///< path up to the first dot of the base name, directory included
  std::vector<field> fields;  ///< in the order of the archive; extensions are unique
  origin from;                ///< offset of the first member's header, ordinal of the sample in its shard
  epoch_mark mark;            ///< its position in the training; only set by epochs()

  /// 0 for padding of an epoch's last batch, and for an entry that replaces a sample that could not be read: they have
  /// no key, no fields and no origin.
  float weight() const noexcept { return mark.padding ? 0.0F : 1.0F; }

  /// The field's bytes, null when the sample has none of that extension.
  const bytes* find(std::string_view extension) const noexcept;
  /// The field's bytes; if there is none, a decode_error that names the shard, the sample and its fields.
  const bytes& operator[](std::string_view extension) const;

  /// The sample's random numbers for one purpose (a number that the caller chooses): `s.random(1).below(8)`. They
  /// depend only on seed, epoch, shard and the sample's number in it: augmentation that draws from them is the same on
  /// any thread, machine and number of ranks, and after a resume.
  sample_rng random(std::uint64_t purpose) const { return from.random(purpose); }

  friend std::size_t byte_size(const sample& s) noexcept;
  friend epoch_mark mark_of(const sample& s) noexcept { return s.mark; }
  friend const bytes* slice_of(const sample& s) noexcept { return s.fields.empty() ? nullptr : &s.fields.front().data; }
  /// A copy of the sample that keeps little more memory than its size: for stages that hold samples for long.
  friend sample compact_slices(sample s) {
    for (field& f : s.fields) f.data = f.data.compact();
    return s;
  }
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/sample.ipp>
#endif
