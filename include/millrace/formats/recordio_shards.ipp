// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/formats/recordio_shards.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/tar/entry.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// What each part of a record of RecordIO begins with.
inline constexpr std::uint32_t recordio_magic = 0xced7230aU;

MILLRACE_INLINE tar::format recordio_scanner::compression(std::string_view head) const {
  const bool plain = head.size() >= 4 && read_le(head, 0, 4) == recordio_magic;
  return plain ? tar::format::unknown : compression_of_records(head, object_, "RecordIO file");
}

MILLRACE_INLINE void recordio_scanner::add_text(std::string_view piece) {
  while (!piece.empty()) {
    std::size_t taken = 0;
    if (left_ > 0) {
      taken = static_cast<std::size_t>(std::min<std::uint64_t>(left_, piece.size()));
      left_ -= taken;
    } else if (padding_ > 0) {
      taken = std::min(padding_, piece.size());
      padding_ -= taken;
    } else {
      if (word_bytes_ == 0 && !more_parts_) begin_ = at_;
      taken = std::min(head_bytes - word_bytes_, piece.size());
      std::memcpy(word_ + word_bytes_, piece.data(), taken);
      word_bytes_ += taken;
    }
    if (in_record_ || word_bytes_ > 0) {
      crc_ = crc32c(crc_, piece.data(), taken);
      size_ += taken;
    }
    at_ += taken;
    piece.remove_prefix(taken);
    if (word_bytes_ == head_bytes) begin_part();
    if (in_record_ && left_ == 0 && !more_parts_) {
      in_record_ = false;
      close(begin_);
    }
  }
}

/// Its head has come.
MILLRACE_INLINE void recordio_scanner::begin_part() {
  const std::string_view head(word_, head_bytes);
  if (read_le(head, 0, 4) != recordio_magic) {
    throw archive_error(numbered() + " is damaged: a part of it does not begin with the bytes 0a 23 d7 ce" +
                            (begin_ == 0 ? ", or this is no RecordIO file" : ""),
                        place());
  }
  const std::uint64_t word = read_le(head, 4, 4);
  const std::uint64_t kind = word >> 29;  // 0: a whole record; 1, 2, 3: its first part, one between, its last part
  if (kind > 3 || (kind >= 2) != more_parts_) {
    const char* const reason = more_parts_ ? " ends before its last part" : " begins with a part of another one";
    throw archive_error(numbered() + reason, place());
  }
  word_bytes_ = 0;
  in_record_ = true;
  more_parts_ = kind == 1 || kind == 2;
  left_ = word & 0x1fffffffU;
  padding_ = static_cast<std::size_t>(-left_ % 4);
  check_end(at_ + left_ + padding_, " has a part that ends");
  if (size_ + left_ + padding_ > UINT32_MAX) {
    throw decode_error(numbered() + " has 4 GiB or more: an index has shorter records", place());
  }
}

MILLRACE_INLINE void recordio_scanner::end_text() {
  if (left_ == 0 && padding_ == 0 && !more_parts_ && word_bytes_ == 0) return;
  throw archive_error("the object ends in the middle of " + numbered() + ": " + std::to_string(at_ - begin_) +
                          " bytes of it are there",
                      place());
}

MILLRACE_INLINE bytes recordio_data(const bytes& parts, const where& at) {
  const std::string_view all = parts.view();
  std::string joined;
  for (std::size_t next = 0;;) {
    constexpr std::size_t head = 8;
    const bool whole = all.size() - next >= head && read_le(all, next, 4) == recordio_magic;
    const std::uint64_t word = whole ? read_le(all, next + 4, 4) : 0;
    const auto size = static_cast<std::size_t>(word & 0x1fffffffU);
    if (!whole || size > all.size() - next - head) {
      throw archive_error("a part of the record is not where the index says", at);
    }
    next += head;
    const bool last = next + size == all.size();
    if (next == head && last) return parts.slice(head, size);
    joined += all.substr(next, size);
    if (last) return bytes::copy(joined);
    // The bytes of the beginning of a part, which the data have here, too.
    for (std::uint32_t magic = recordio_magic, k = 0; k < 4; ++k, magic >>= 8) joined += static_cast<char>(magic & 255);
    next = std::min(next + size + static_cast<std::size_t>(-size % 4), all.size());
  }
}

/// Joins the parts of a record.
class recordio_reader final : public record_reader {
 public:
  explicit recordio_reader(const shard_index& index) noexcept : record_reader(index, "record") {}
  void fill(sample& s, const shard_index::rows& /*rows*/, std::size_t /*number*/, const bytes& record) const override {
    s.fields.emplace_back("record", recordio_data(record, s.from.at(s.key)));
  }
};

/// See recordio_shards().
class recordio_format final : public shard_format {
 public:
  std::string_view name() const noexcept override { return "recordio"; }
  std::unique_ptr<shard_scanner> scanner(std::string its_name, const shard& object,
                                         std::shared_ptr<const void> /*metadata*/) const override {
    return std::make_unique<recordio_scanner>(*this, std::move(its_name), object);
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    return std::make_shared<const recordio_reader>(index);
  }
};

}  // namespace detail

MILLRACE_INLINE std::shared_ptr<const shard_format> recordio_shards() {
  return std::make_shared<const detail::recordio_format>();
}

}  // namespace millrace
