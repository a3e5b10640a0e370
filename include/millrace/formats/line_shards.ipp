// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/formats/line_shards.hpp>
#include <millrace/records/detail/text_format.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

MILLRACE_INLINE line_scanner::line_scanner(const shard_format& format, std::string name, shard object,
                                           std::size_t longest, frame_bounds frames)
    : record_scanner(format, std::move(name), std::move(object), frames),
      longest_(longest < UINT32_MAX ? longest : UINT32_MAX - 1) {}

MILLRACE_INLINE tar::format line_scanner::compression(std::string_view head) const {
  return text_format(head, object_);
}

MILLRACE_INLINE const char* line_scanner::other_way() const noexcept {
  return "write it as frames of zstd, `split -C 4M --filter=zstd`, unpack it, or read it as a stream, by "
         "shard_epochs() and lines()";
}

MILLRACE_INLINE void line_scanner::add_text(std::string_view piece) {
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    const std::string_view part = piece.substr(0, end);
    take(part);
    at_ += part.size();
    if (end == std::string_view::npos) return;
    close(begin_);
    cr_ = false;
    begin_ = ++at_;
    piece.remove_prefix(end + 1);
  }
}

MILLRACE_INLINE void line_scanner::take(std::string_view part) {
  if (part.empty()) return;
  if (size_ + (cr_ ? 1 : 0) + part.size() > longest_) {
    throw decode_error("line " + std::to_string(index_.samples()) + " is longer than " + std::to_string(longest_) +
                           " bytes (max_line)",
                       where{object_.shown(), begin_, {}});
  }
  if (cr_) {
    crc_ = crc32c(crc_, "\r", 1);
    ++size_;
  }
  cr_ = part.back() == '\r';
  if (cr_) part.remove_suffix(1);
  crc_ = crc32c(crc_, part.data(), part.size());
  size_ += part.size();
}

MILLRACE_INLINE void line_scanner::end_text() {
  if (size_ != 0 || cr_) close(begin_);
}

/// See line_shards().
class line_format final : public shard_format {
 public:
  explicit line_format(line_shards_options options) noexcept : options_(options) {}
  std::string_view name() const noexcept override { return "lines"; }
  std::unique_ptr<shard_scanner> scanner(std::string its_name, const shard& object,
                                         std::shared_ptr<const void> /*metadata*/) const override {
    return std::make_unique<line_scanner>(*this, std::move(its_name), object, options_.max_line);
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    return std::make_shared<const record_reader>(index, "line");
  }

 private:
  const line_shards_options options_;
};

}  // namespace detail

MILLRACE_INLINE std::shared_ptr<const shard_format> line_shards(line_shards_options options) {
  return std::make_shared<const detail::line_format>(options);
}

}  // namespace millrace
