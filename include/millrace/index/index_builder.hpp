// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/entry.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Makes the index of a shard from its members, in their order, as a tar::reader or untar() yields them. It groups them
/// as group_samples() does, and refuses what that refuses, with the same errors: so an index and a reading of its shard
/// agree on every sample, or there is none.
class index_builder {
 public:
  enum class checksums : unsigned char {
    none,    ///< the members have no bodies: they come from headers alone
    crc32c,  ///< of every body
  };

  /// `name` is what the index calls the shard; `object` names it in errors.
  index_builder(std::string name, std::string object, checksums sums) : sums_(sums), object_(std::move(object)) {
    index_.name_ = std::move(name);
    index_.flags_ = shard_index::with_keys | shard_index::with_headers;
    if (sums == checksums::crc32c) index_.flags_ |= shard_index::with_checksums;
  }

  /// The archive's next entry. Entries that are no regular files are skipped, as untar() does.
  void add(const tar::entry& e);

  /// How many samples there are so far, the last one included, which may be growing.
  std::size_t samples() const noexcept { return index_.rows_.samples.size(); }

  /// The message about a shard that has members but no samples; empty if it has samples.
  std::string warning() const {
    if (samples() != 0 || members_ == 0) return {};
    return files_ == 0 ? detail::no_files_of(members_, first_type_) : detail::no_sample_of(files_, first_name_);
  }

  /// The index. `size` and `etag` are those of the object that was read.
  shard_index finish(std::uint64_t size, std::string etag);
  /// The same for entries of another tool's index: their header_offset is a guess, the ETag is not
  /// known, and their keys only when they are `named`.
  shard_index finish_foreign(std::uint64_t size, bool named);

 private:
  [[noreturn]] void fail(const std::string& reason, const tar::entry& e) const {
    throw archive_error(reason, where{object_, e.header_offset, e.name});
  }
  void open(std::string_view key, std::uint64_t offset);
  void add_field(std::string extension, const tar::entry& e);

  shard_index index_;
  checksums sums_;
  std::string object_;
  std::uint64_t members_ = 0;
  std::uint64_t files_ = 0;
  char first_type_ = '0';
  std::string first_name_;  // where that gives no sample
  std::string key_;                                  // of the last sample; no sample has an empty one
  std::map<std::string, std::uint32_t> extensions_;  // their numbers
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline void index_builder::add(const tar::entry& e) {
  if (members_++ == 0) first_type_ = e.type;
  if (!e.is_regular()) return;
  const sample_name name = sample_name::parse(e.name);
  if (files_++ == 0 && !name.is_sample()) first_name_ = e.name;
  if (!name.is_sample()) return;
  if (key_ != name.key()) open(name.key(), e.header_offset);
  add_field(name.lower_extension(), e);
}

inline void index_builder::open(std::string_view key, std::uint64_t offset) {
  key_ = key;
  shard_index::sample_row row;
  row.key = millrace::key_hash(key);
  row.offset = offset;
  row.first_field = index_.rows_.fields.size();
  index_.rows_.samples.push_back(row);
}

inline void index_builder::add_field(std::string extension, const tar::entry& e) {
  const shard_index::sample_row& sample = index_.rows_.samples.back();
  if (index_.rows_.fields.size() - sample.first_field >= 4096) fail("the sample has more than 4096 members", e);
  if (extension == "__key__" || extension == "__url__" || extension == "__bad__" || extension == "__local_path__") {
    fail("the extension \"" + extension + "\" stands for what a sample has beside its members", e);
  }
  const std::uint64_t distance = e.data_offset - sample.offset;
  if (e.data_offset % 512 != 0 || sample.offset % 512 != 0) {
    fail("only plain tar archives can be indexed, and in these bodies begin at multiples of 512 bytes", e);
  }
  if (sample.offset / 512 >> 48 != 0 || distance / 512 > UINT32_MAX) fail("too far into the archive for an index", e);
  if (e.size >> 40 != 0) fail("a member of 1 TiB or more cannot be indexed", e);
  if (extension.size() > UINT16_MAX) fail("an extension is too long for an index", e);
  const auto [known, is_new] =
      extensions_.emplace(std::move(extension), static_cast<std::uint32_t>(extensions_.size()));
  if (is_new && known->second >> 24 != 0) fail("too many different extensions for an index", e);
  if (is_new) index_.extensions_.push_back(known->first);
  for (std::size_t i = static_cast<std::size_t>(sample.first_field); i < index_.rows_.fields.size(); ++i) {
    if (index_.rows_.fields[i].extension == known->second) {
      fail("the sample has two members with the extension \"" + known->first + "\"", e);
    }
  }
  shard_index::field_row row;
  row.offset = e.data_offset;
  row.size = e.size;
  row.extension = known->second;
  if (sums_ == checksums::crc32c) row.crc = crc32c(0, e.body.data(), e.body.size());
  index_.rows_.fields.push_back(row);
}

inline shard_index index_builder::finish(std::uint64_t size, std::string etag) {
  index_.object_size_ = size;
  index_.etag_ = std::move(etag);
  return std::move(index_);
}

inline shard_index index_builder::finish_foreign(std::uint64_t size, bool named) {
  index_.flags_ &= ~shard_index::with_headers;
  if (!named) {
    index_.flags_ &= ~shard_index::with_keys;
    for (shard_index::sample_row& row : index_.rows_.samples) row.key = 0;
  }
  return finish(size, std::string());
}

}  // namespace millrace
