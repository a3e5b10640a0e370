// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/detail/record_scanner.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Shards are RecordIO files, as MXNet writes them (`.rec`; its `.idx` is not needed): as tfrecord_shards(), but
/// without checksums of their own. Records of several parts are joined when they are read. For MXNet's header and
/// labels: records/mx_record.hpp.
std::shared_ptr<const shard_format> recordio_shards();

namespace detail {

/// Finds the records of a RecordIO file. Their rows are of all of their parts with their heads, but not of what pads
/// the last one.
class recordio_scanner final : public record_scanner {
 public:
  recordio_scanner(const shard_format& format, std::string name, shard object, frame_bounds frames = frame_bounds())
      : record_scanner(format, std::move(name), std::move(object), frames) {}

 private:
  static constexpr std::size_t head_bytes = 8;  // of each part

  MILLRACE_INLINE tar::format compression(std::string_view head) const override;
  MILLRACE_INLINE void add_text(std::string_view piece) override;
  bool between_records() const noexcept override {
    return left_ == 0 && padding_ == 0 && !more_parts_ && word_bytes_ == 0;
  }
  MILLRACE_INLINE void end_text() override;
  void begin_part();

  char word_[head_bytes] = {};  // what has come of the head
  std::size_t word_bytes_ = 0;
  std::uint64_t left_ = 0;   // missing of the part,
  std::size_t padding_ = 0;  // and of what pads it
  bool more_parts_ = false;  // another one of the record follows
  bool in_record_ = false;
};

/// The data of a record, whose parts are `parts`, with their heads: a slice of it, or what several parts are joined to.
/// Throws archive_error for what is no such record.
bytes recordio_data(const bytes& parts, const where& at);

}  // namespace detail

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/recordio_shards.ipp>
#endif
