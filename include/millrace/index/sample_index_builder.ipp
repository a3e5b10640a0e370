// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/sample_index_builder.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE sample_index_builder::sample_index_builder(std::string_view format, std::string settings,
                                                           std::string name) {
  index_.name_ = std::move(name);
  index_.format_ = format;
  index_.settings_ = std::move(settings);
  index_.layout_ = index_.settings_.empty() ? shard_index::numbered_of(format).layout : row_layout::records;
  if (index_.format_.empty() || index_.format_.size() > 65535 || index_.settings_.size() > 65535) {
    detail::misused("shard_format: name and settings have 65,535 bytes at most, and a name is not empty");
  }
}

MILLRACE_INLINE void sample_index_builder::refuse(const std::string& reason, std::uint64_t offset) const {
  throw index_error("sample " + std::to_string(samples()) + ' ' + reason, where{index_.name_, offset, {}});
}

MILLRACE_INLINE void sample_index_builder::describe(std::string_view description) {
  if (description.size() > UINT32_MAX / 2) refuse("and the others have a description of 2 GiB or more", 0);
  index_.description_ = description;
}

MILLRACE_INLINE void sample_index_builder::begin_group(std::uint64_t at) {
  std::vector<std::uint64_t>& frames = index_.frames_;
  if (frames.empty() ? samples() != 0 : end_ == frames.back() || at <= frames[frames.size() - 2]) {
    refuse("begins a group that is empty, or after samples without one", at);
  }
  frames.push_back(at);
  frames.push_back(end_);
  grouped_ = true;
}

MILLRACE_INLINE void sample_index_builder::frames(std::vector<std::uint64_t> places, bool groups) {
  index_.frames_ = std::move(places);
  if (groups) index_.flags_ |= shard_index::in_groups;
}

MILLRACE_INLINE void sample_index_builder::add(std::uint64_t offset, std::uint64_t size, std::uint32_t crc) {
  if (!index_.has_records()) detail::misused("sample_index_builder: this format has no records");
  if (offset < end_) refuse("begins before the one before it ends", offset);
  if (size > UINT32_MAX) refuse("has 4 GiB or more: an index has shorter ones", offset);
  if (offset >> 48 != 0) refuse("lies beyond 256 TiB: an index has none there", offset);
  if (index_.is_packed() && size == 0) refuse("is empty, and in a group", offset);
  shard_index::record_row row;
  row.offset = offset;
  row.size = static_cast<std::uint32_t>(size);
  row.crc = crc;
  index_.rows_.records.push_back(row);
  end_ = offset + size;
}

MILLRACE_INLINE shard_index sample_index_builder::finish(std::uint64_t size, std::string etag, bool checksums,
                                                         std::uint64_t end) {
  if (grouped_) {
    begin_group(end);
    index_.flags_ |= shard_index::in_groups;
    if (end > size) refuse("is after a group that ends beyond the object's end", end);
  } else if (!index_.is_packed() && end_ > size) {
    refuse("is after one that ends beyond the object's end", end_);
  }
  index_.rows_.records.shrink_to_fit();
  index_.object_size_ = size;
  index_.etag_ = std::move(etag);
  index_.flags_ |= shard_index::with_keys | (checksums ? shard_index::with_checksums : 0);
  return std::move(index_);
}

MILLRACE_INLINE std::uint32_t sample_index_builder::number_of(std::string extension) {
  const auto at = std::lower_bound(extensions_.begin(), extensions_.end(), extension,
                                   [](const auto& one, const std::string& e) { return one.first < e; });
  if (at != extensions_.end() && at->first == extension) return at->second;
  const auto number = static_cast<std::uint32_t>(extensions_.size());
  if (number >> 24 == 0) index_.extensions_.push_back(extension);
  extensions_.emplace(at, std::move(extension), number);
  return number;
}

namespace detail {
/// The names that fields cannot have.
MILLRACE_INLINE bool stands_for_sample(std::string_view extension) noexcept {
  return extension == "__key__" || extension == "__url__" || extension == "__bad__" || extension == "__local_path__";
}
}  // namespace detail

MILLRACE_INLINE void sample_index_builder::begin_sample(std::uint64_t key, std::uint64_t offset) {
  if (!index_.has_fields()) detail::misused("sample_index_builder: this format has no fields in its index");
  shard_index::sample_row row;
  row.key = key;
  row.offset = offset;
  row.first_field = index_.rows_.fields.size();
  index_.rows_.samples.push_back(row);
}

MILLRACE_INLINE std::string sample_index_builder::add_field(std::string extension, std::uint64_t offset,
                                                            std::uint64_t size, std::uint32_t crc) {
  const shard_index::sample_row& sample = index_.rows_.samples.back();
  if (index_.rows_.fields.size() - sample.first_field >= 4096) return "the sample has more than 4096 members";
  if (detail::stands_for_sample(extension)) {
    return "the extension \"" + extension + "\" stands for what a sample has beside its members";
  }
  if (offset % 512 != 0 || sample.offset % 512 != 0) {
    return "only plain tar archives can be indexed, and in these bodies begin at multiples of 512 bytes";
  }
  if (sample.offset / 512 >> 48 != 0 || (offset - sample.offset) / 512 > UINT32_MAX) {
    return "too far into the archive for an index";
  }
  if (size >> 40 != 0) return "a member of 1 TiB or more cannot be indexed";
  if (extension.size() > UINT16_MAX) return "an extension is too long for an index";
  shard_index::field_row row;
  row.extension = number_of(extension);
  if (row.extension >> 24 != 0) return "too many different extensions for an index";
  for (std::size_t i = static_cast<std::size_t>(sample.first_field); i < index_.rows_.fields.size(); ++i) {
    if (index_.rows_.fields[i].extension == row.extension) {
      return "the sample has two members with the extension \"" + extension + "\"";
    }
  }
  row.offset = offset;
  row.size = size;
  row.crc = crc;
  index_.rows_.fields.push_back(row);
  return {};
}

MILLRACE_INLINE shard_index sample_index_builder::finish_fields(std::uint64_t size, std::string etag, bool checksums) {
  index_.flags_ = shard_index::with_keys | shard_index::with_headers | (checksums ? shard_index::with_checksums : 0);
  index_.object_size_ = size;
  index_.etag_ = std::move(etag);
  return std::move(index_);
}

MILLRACE_INLINE void sample_index_builder::begin_sample() {
  if (!index_.of_objects()) detail::misused("sample_index_builder: this format is not of objects");
  index_.firsts_.push_back(static_cast<std::uint32_t>(index_.objects_.size()));
}

MILLRACE_INLINE std::string sample_index_builder::add_object(std::string extension, std::string_view path,
                                                             std::string_view packed_etag, std::uint64_t size) {
  if (detail::stands_for_sample(extension)) {
    return "the extension \"" + extension + "\" stands for what a sample has beside its objects";
  }
  if (index_.objects_.size() - index_.firsts_.back() >= 4096) return "the sample has more than 4096 objects";
  if (path.size() > UINT16_MAX) return "the path is too long for an index";
  if (size >> 40 != 0) return "an object of 1 TiB or more cannot be indexed";
  shard_index::object_row row;
  row.extension = number_of(extension);
  if (row.extension >> 24 != 0) return "too many different extensions for an index";
  for (std::size_t k = index_.firsts_.back(); k < index_.objects_.size(); ++k) {
    if (index_.objects_[k].extension == row.extension) {
      return "the sample has two objects with the extension \"" + extension + "\"";
    }
  }
  row.size = size;
  row.path = static_cast<std::uint32_t>(index_.paths_.size());
  detail::append_le(index_.paths_, path.size(), 2);
  index_.paths_ += path;
  index_.paths_ += packed_etag;
  if (index_.paths_.size() > UINT32_MAX) return "too many objects for an index of one folder";
  index_.object_size_ += size;
  index_.objects_.push_back(row);
  return {};
}

MILLRACE_INLINE bool sample_index_builder::pack_etag(std::string_view etag, std::string& out) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  const bool quoted = etag.size() == 34 && etag.front() == '"' && etag.back() == '"';
  if (quoted && std::all_of(etag.begin() + 1, etag.end() - 1, [&](char c) { return digit(c) >= 0; })) {
    out += static_cast<char>(static_cast<unsigned char>(shard_index::packed_etag));
    for (std::size_t i = 1; i < 33; i += 2) out += static_cast<char>(digit(etag[i]) << 4 | digit(etag[i + 1]));
    return true;
  }
  if (etag.size() >= shard_index::packed_etag) return false;
  out += static_cast<char>(static_cast<unsigned char>(etag.size()));
  out += etag;
  return true;
}

MILLRACE_INLINE std::size_t sample_index_builder::packed_bytes(std::string_view text) noexcept {
  const auto length = static_cast<std::size_t>(static_cast<unsigned char>(text.front()));
  return 1 + (length == shard_index::packed_etag ? 16 : length);
}

MILLRACE_INLINE shard_index sample_index_builder::finish_objects() {
  index_.flags_ = shard_index::with_keys;
  index_.firsts_.shrink_to_fit();
  index_.paths_.shrink_to_fit();
  return std::move(index_);
}

MILLRACE_INLINE shard_index sample_index_builder::of_arrays(
    std::string name, std::shared_ptr<const arrays> rows, std::size_t count, bool mapped, std::string dims,
    const std::vector<std::pair<std::string, std::uint64_t>>& fields) {
  sample_index_builder builder("arrays", {}, std::move(name));
  shard_index& made = builder.index_;
  made.flags_ = shard_index::with_keys;
  made.array_rows_ = count;
  made.mapped_ = mapped;
  std::uint64_t before = 0;
  for (const auto& [extension, bytes] : fields) {
    shard_index::field_row field;
    field.offset = before;
    field.size = bytes;
    field.extension = static_cast<std::uint32_t>(made.extensions_.size());
    before += field.size;
    made.rows_.fields.push_back(field);
    made.extensions_.push_back(extension);
  }
  made.paths_ = std::move(dims);
  made.object_size_ = before * count;
  made.arrays_ = std::move(rows);
  return std::move(builder.index_);
}

}  // namespace millrace
