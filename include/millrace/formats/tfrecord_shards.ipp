// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/formats/tfrecord_shards.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/tar/entry.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// What a TFRecord file has in the place of a CRC32C: of data with checksums in it the plain one is weak.
MILLRACE_INLINE std::uint32_t masked(std::uint32_t crc) noexcept { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

/// True if a TFRecord's length is at the front of `head`, with its checksum.
MILLRACE_INLINE bool begins_tfrecord(std::string_view head) noexcept {
  return head.size() >= 12 && read_le(head, 8, 4) == masked(crc32c(0, head.data(), 8));
}

/// A plain file may begin like gzip, by the length of its first record: so the checksum of that decides.
MILLRACE_INLINE tar::format tfrecord_scanner::compression(std::string_view head) const {
  return begins_tfrecord(head) ? tar::format::unknown : compression_of_records(head, object_, "TFRecord file");
}

MILLRACE_INLINE void tfrecord_scanner::add_text(std::string_view piece) {
  while (!piece.empty()) {
    std::size_t taken = 0;
    if (left_ > 0) {
      taken = static_cast<std::size_t>(std::min<std::uint64_t>(left_, piece.size()));
      crc_ = crc32c(crc_, piece.data(), taken);
      size_ += taken;
      left_ -= taken;
    } else {
      const std::size_t whole = in_head_ ? head_bytes : tail_bytes;
      taken = std::min(whole - word_bytes_, piece.size());
      std::memcpy(word_ + word_bytes_, piece.data(), taken);
      word_bytes_ += taken;
      if (word_bytes_ == whole) {
        in_head_ ? begin_record() : end_record();
        word_bytes_ = 0;
        in_head_ = !in_head_;
      }
    }
    at_ += taken;
    piece.remove_prefix(taken);
  }
}

MILLRACE_INLINE void tfrecord_scanner::begin_record() {
  const std::string_view head(word_, head_bytes);
  if (!begins_tfrecord(head)) {
    char text[64];
    std::snprintf(text, sizeof text, "%08x and not %08x", masked(crc32c(0, word_, 8)),
                  static_cast<unsigned>(read_le(head, 8, 4)));
    throw archive_error(numbered() + " is damaged: the masked CRC32C of its length is " + text + " as it says" +
                            (begin_ == 0 ? ", or this is no TFRecord file" : ""),
                        place());
  }
  left_ = read_le(head, 0, 8);
  if (left_ > UINT32_MAX) {
    throw decode_error(numbered() + " has " + std::to_string(left_) + " bytes, by its length: an index has records of "
                           "less than 4 GiB",
                       place());
  }
  check_end(begin_ + head_bytes + left_ + tail_bytes, " ends");
}

MILLRACE_INLINE void tfrecord_scanner::end_record() {
  const auto said = static_cast<std::uint32_t>(read_le(std::string_view(word_, tail_bytes), 0, 4));
  if (masked(crc_) != said) {
    char text[64];
    std::snprintf(text, sizeof text, "%08x and not %08x", masked(crc_), said);
    throw archive_error(numbered() + " is damaged: the masked CRC32C of its " + std::to_string(size_) + " bytes is " +
                            text + " as it says",
                        place());
  }
  const std::uint64_t bytes = size_ + head_bytes + tail_bytes;
  close(begin_ + head_bytes);
  begin_ += bytes;
}

MILLRACE_INLINE void tfrecord_scanner::end_text() {
  if (at_ == begin_) return;
  throw archive_error("the object ends in the middle of " + numbered() + ": " + std::to_string(at_ - begin_) +
                          " bytes of it are there",
                      place());
}

/// See tfrecord_shards().
class tfrecord_format final : public shard_format {
 public:
  std::string_view name() const noexcept override { return "tfrecord"; }
  std::unique_ptr<shard_scanner> scanner(std::string its_name, const shard& object,
                                         std::shared_ptr<const void> /*metadata*/) const override {
    return std::make_unique<tfrecord_scanner>(*this, std::move(its_name), object);
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    return std::make_shared<const record_reader>(index, "record");
  }
};

}  // namespace detail

MILLRACE_INLINE std::shared_ptr<const shard_format> tfrecord_shards() {
  return std::make_shared<const detail::tfrecord_format>();
}

}  // namespace millrace
