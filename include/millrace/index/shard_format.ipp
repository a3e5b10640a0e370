// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/index/shard_format.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void shard_reader::fill(sample& /*s*/, std::size_t /*number*/, const bytes& /*record*/) const {
  detail::misused("shard_reader: this format has no fill()");
}

MILLRACE_INLINE std::vector<object_range> shard_reader::ranges(const shard_index& index, std::size_t g) const {
  const detail::frame_range all = index.group(g);
  return {object_range(all.begin, all.end)};
}

MILLRACE_INLINE unpacked_group shard_reader::unpack(std::size_t /*g*/, const std::vector<bytes>& /*parts*/) const {
  detail::misused("shard_reader: this format has no unpack()");
}

MILLRACE_INLINE task<std::shared_ptr<const void>> shard_format::metadata(std::shared_ptr<const storage> /*from*/,
                                                                         std::vector<shard> /*listed*/) const {
  return task<std::shared_ptr<const void>>();
}

MILLRACE_INLINE std::unique_ptr<shard_scanner> shard_format::scanner(std::string /*name*/, const shard& /*object*/,
                                                                     std::shared_ptr<const void> /*metadata*/) const {
  return nullptr;
}

MILLRACE_INLINE task<shard_index> shard_format::index(std::shared_ptr<const storage> /*from*/, shard /*object*/,
                                                      std::string /*name*/,
                                                      std::shared_ptr<const void> /*metadata*/) const {
  detail::misused("shard_format: this format has neither scanner() nor index()");
}

MILLRACE_INLINE bool shard_index::is_of(const dataset_format& format) const {
  if (format_ != format) return false;
  if (!is_described()) return true;
  const shard_format* const its = format.shards().get();
  return its != nullptr && format_text() == its->name() && settings() == its->settings();
}

MILLRACE_INLINE std::string format_name(const dataset_format& format) {
  if (format != sample_format::described) return format_name(sample_format(format));
  if (format.shards() == nullptr) return "no format";
  const std::string settings = format.shards()->settings();
  return std::string(format.shards()->name()) + (settings.empty() ? "" : " (" + settings + ')');
}

MILLRACE_INLINE sample_index_builder::sample_index_builder(const shard_format& format, std::string name) {
  index_.name_ = std::move(name);
  index_.format_ = sample_format::described;
  index_.extensions_.emplace_back(format.name());
  index_.extensions_.push_back(format.settings());
  if (index_.extensions_[0].size() > 65535 || index_.extensions_[1].size() > 65535) {
    detail::misused("shard_format: name and settings have 65,535 bytes at most");
  }
}

MILLRACE_INLINE void sample_index_builder::refuse(const std::string& reason, std::uint64_t offset) const {
  throw index_error("sample " + std::to_string(samples()) + ' ' + reason, where{index_.name_, offset, {}});
}

MILLRACE_INLINE void sample_index_builder::describe(std::string_view description) {
  constexpr std::size_t part = 65535;
  index_.extensions_.resize(2);
  if (description.size() > UINT32_MAX / 2) refuse("and the others have a description of 2 GiB or more", 0);
  for (; !description.empty(); description.remove_prefix(index_.extensions_.back().size())) {
    index_.extensions_.emplace_back(description.substr(0, part));
  }
}

MILLRACE_INLINE void sample_index_builder::begin_group(std::uint64_t at) {
  std::vector<std::uint64_t>& frames = index_.frames_;
  if (frames.empty() ? samples() != 0 : end_ == frames.back() || at <= frames[frames.size() - 2]) {
    refuse("begins a group that is empty, or after samples without one", at);
  }
  frames.push_back(at);
  frames.push_back(end_);
}

MILLRACE_INLINE void sample_index_builder::add(std::uint64_t offset, std::uint64_t size, std::uint32_t crc) {
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
  if (index_.is_packed()) {
    begin_group(end);
    if (end > size) refuse("is after a group that ends beyond the object's end", end);
  } else if (end_ > size) {
    refuse("is after one that ends beyond the object's end", end_);
  }
  index_.rows_.records.shrink_to_fit();
  index_.object_size_ = size;
  index_.etag_ = std::move(etag);
  index_.flags_ = shard_index::with_keys | (checksums ? shard_index::with_checksums : 0);
  return std::move(index_);
}

MILLRACE_INLINE std::shared_ptr<const shard_reader> detail::shard_readers::of(const shard_index& index,
                                                                              std::uint64_t number) {
  if (format_ == nullptr) return nullptr;
  if (readers_.empty()) readers_.resize(kept);
  one& its = readers_[static_cast<std::size_t>(number % kept)];
  if (its.number != number || its.reader == nullptr) {
    its.reader = format_->reader(index);
    its.number = number;
  }
  return its.reader;
}

}  // namespace millrace
