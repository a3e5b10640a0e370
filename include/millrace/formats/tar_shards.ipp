// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/untar_plain.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// A name and settings, for an index of tars that is made without a format.
class tar_name {
 public:
  std::string_view name() const noexcept { return "tar"; }
  std::string settings() const { return {}; }
};

MILLRACE_INLINE tar::reader index_reader(const shard& object, bool headers_only, std::uint64_t max_member) {
  tar::reader_options how;
  how.max_member_bytes = max_member;
  how.headers_only = headers_only;
  if (object.size) how.object_bytes = *object.size;
  return tar::reader(object.shown(), how);
}

/// The bytes that a member takes in an archive that begins with `head`, on average; 0 where that shows no header.
MILLRACE_INLINE std::uint64_t mean_member_of(const shard& object, std::string_view head, std::uint64_t max_member) {
  tar::reader reader = index_reader(object, true, max_member);
  reader.feed(bytes::copy(head));
  tar::entry e;
  std::uint64_t members = 0;
  std::uint64_t extent = 0;
  for (std::uint64_t fed = head.size();;) {
    if (reader.next(e)) {
      ++members;
      extent = e.data_offset + (e.size + 511) / 512 * 512;
      continue;
    }
    if (reader.done()) break;
    const std::uint64_t next = reader.skip();
    if (next <= fed) break;
    fed = next;
  }
  return members == 0 ? 0 : extent / members;
}

/// Reads all of a tar, or its headers alone.
class tar_scanner final : public shard_scanner {
 public:
  tar_scanner(std::string name, shard object, const tar_shards_options& options)
      : name_(std::move(name)), object_(std::move(object)), options_(options) {
    options_.hop = std::max<std::size_t>(options_.hop, 512);
  }

  void begin(std::string_view head, std::optional<std::uint64_t> total, std::size_t part) override {
    if (head.size() >= tar::detect_bytes || total == head.size()) require_plain_tar(object_, head);
    const bool more = total && *total > head.size();
    bool headers = options_.way == index_way::headers && total.has_value();
    if (options_.way == index_way::cheaper && more) {
      const std::uint64_t mean = mean_member_of(object_, head, options_.max_member);
      const std::uint64_t left = *total - head.size();
      headers = mean != 0 && cost_of_headers(left, mean, options_.hop).total(options_.request_cost) <
                                 cost_of_stream(left, part).total(options_.request_cost);
    }
    begin_reading(headers);
  }
  void add(const bytes& piece) override {
    reader_->feed(bytes(piece));
    take();
  }
  std::size_t hop() const noexcept override { return headers_ && !reader_->done() ? options_.hop : 0; }
  std::uint64_t next(std::uint64_t at) override {
    return headers_ && !reader_->done() ? std::max(at, reader_->skip()) : at;
  }
  // Bytes other than zeros after the archive are odd.
  bool done() const noexcept override { return reader_->done() && !reader_->warning().empty(); }
  shard_index finish(std::uint64_t size, std::string etag) override {
    reader_->finish();  // throws where it was no tar
    take();
    odd_ = reader_->warning();
    empty_ = builder_->warning();
    return builder_->finish(size, std::move(etag));
  }
  std::string warning(bool once) const override { return once ? empty_ : odd_; }

 private:
  void begin_reading(bool headers) {
    headers_ = headers;
    reader_.emplace(index_reader(object_, headers, options_.max_member));
    builder_.emplace(name_, object_.shown(),
                     headers ? tar_index_builder::checksums::none : tar_index_builder::checksums::crc32c);
  }
  void take() {
    tar::entry e;
    while (reader_->next(e)) builder_->add(e);
  }

  std::string name_;
  shard object_;
  tar_shards_options options_;
  bool headers_ = false;
  std::optional<tar::reader> reader_;
  std::optional<tar_index_builder> builder_;
  std::string odd_;
  std::string empty_;
};

/// Takes the key of a sample from the header of its first member, as the index knows its hash alone.
class tar_sample_reader final : public shard_reader {
 public:
  explicit tar_sample_reader(const shard_index& index) noexcept : index_(index) {}
  void fill(sample& s, const shard_index::rows& rows, std::size_t number, const bytes& record) const override {
    const std::uint64_t begin = rows.offset(number);
    s.key = key_of(s, rows, number, record);
    const std::size_t fields = rows.field_count(number);
    s.fields.reserve(fields);
    for (std::size_t i = 0; i < fields; ++i) {
      const shard_index::field f = rows.field_at(number, i);
      s.fields.emplace_back(std::string(f.extension), record.slice(static_cast<std::size_t>(f.offset - begin),
                                                                   static_cast<std::size_t>(f.size)));
    }
  }

 private:
  std::string key_of(const sample& s, const shard_index::rows& rows, std::size_t number, const bytes& record) const {
    const std::uint64_t begin = rows.offset(number);
    const shard_index::field first = rows.field_at(number, 0);
    tar::reader_options how;
    how.start = begin;
    how.max_member_bytes = UINT64_MAX;  // they have been read
    tar::reader reader(s.from.from->shown(), how);
    reader.feed(record.slice(0, static_cast<std::size_t>(first.offset + first.size - begin)));
    tar::entry e;
    bool found = false;
    while (!found && reader.next(e)) found = e.is_regular() && sample_name::parse(e.name).is_sample();
    std::string key(found ? sample_name::parse(e.name).key() : std::string_view());
    // Headers that foreign indexes do not know of may give a member another name.
    const bool known = index_.has_keys() && index_.has_headers();
    if (known && (!found || key_hash(key) != rows.key_hash(number))) {
      throw stale_index_error("the index \"" + index_.name() + "\" has another sample at this place", s.from.at(key));
    }
    return key;
  }

  const shard_index& index_;
};

/// See tar_shards().
class tar_shard_format final : public shard_format {
 public:
  explicit tar_shard_format(const tar_shards_options& options) noexcept : options_(options) {}
  std::string_view name() const noexcept override { return "tar"; }
  std::unique_ptr<shard_scanner> scanner(std::string its_name, const shard& object,
                                         std::shared_ptr<const void> /*metadata*/) const override {
    return std::make_unique<tar_scanner>(std::move(its_name), object, options_);
  }
  std::size_t head_bytes() const noexcept override {
    return options_.way == index_way::stream ? SIZE_MAX : options_.way == index_way::headers ? options_.hop : MiB;
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    return std::make_shared<const tar_sample_reader>(index);
  }
  bool of_tars() const noexcept override { return true; }

 private:
  const tar_shards_options options_;
};

}  // namespace detail

MILLRACE_INLINE std::shared_ptr<const shard_format> tar_shards(tar_shards_options options) {
  return std::make_shared<const detail::tar_shard_format>(options);
}

MILLRACE_INLINE tar_index_builder::tar_index_builder(std::string name, std::string object, checksums sums)
    : index_(detail::tar_name(), std::move(name)), sums_(sums), object_(std::move(object)) {}

MILLRACE_INLINE void tar_index_builder::add(const tar::entry& e) {
  if (members_++ == 0) first_type_ = e.type;
  if (!e.is_regular()) return;
  const sample_name name = sample_name::parse(e.name);
  if (files_++ == 0 && !name.is_sample()) first_name_ = e.name;
  if (!name.is_sample()) return;
  if (key_ != name.key()) {
    key_ = name.key();
    index_.begin_sample(millrace::key_hash(key_), e.header_offset);
  }
  const std::uint32_t crc = sums_ == checksums::crc32c ? crc32c(0, e.body.data(), e.body.size()) : 0;
  const std::string refused = index_.add_field(name.lower_extension(), e.data_offset, e.size, crc);
  if (!refused.empty()) throw archive_error(refused, where{object_, e.header_offset, e.name});
}

MILLRACE_INLINE std::string tar_index_builder::warning() const {
  if (samples() != 0 || members_ == 0) return {};
  return files_ == 0 ? detail::no_files_of(members_, first_type_) : detail::no_sample_of(files_, first_name_);
}

MILLRACE_INLINE shard_index tar_index_builder::finish(std::uint64_t size, std::string etag) {
  return index_.finish_fields(size, std::move(etag), sums_ == checksums::crc32c);
}

}  // namespace millrace
