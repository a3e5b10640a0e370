// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/shards/range_reader.hpp>
#include <millrace/shards/range_scheduler.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Reads an object from its beginning, or on from any offset, one part at a time. `again`: over fresh connections. Its
/// reads are in the number of the store's host, unless they are of a local disk; what parts of full length take teaches
/// the host.
class indexed_object {
 public:
  indexed_object(std::shared_ptr<const storage> from, shard object, std::size_t part, bool again = false)
      : store_(std::move(from)),
        object_(std::move(object)),
        slabs_(part),
        by_(again ? range_reader::by::read_again : range_reader::by::read) {}

  const shard& object() const noexcept { return object_; }
  bool sequential() const noexcept { return rest_ != nullptr; }
  /// True if the object ends at or before this offset.
  bool ended(std::uint64_t at) const noexcept {
    return sequential() ? rest_ended_ : short_ || (total_ && at >= *total_);
  }
  std::uint64_t size() const noexcept { return total_ ? *total_ : read_; }
  std::optional<std::uint64_t> total() const noexcept { return total_; }
  /// The checksum of the bytes that read() gave last, as storage::part::crc.
  const running_crc& crc() const noexcept { return crc_; }

  /// Bytes [at, at + length), fewer at the object's end. A sequential store gives the next ones, however many. `small`:
  /// the object is likely not longer, and is asked for by storage::read_small(); `at` is 0 then.
  MILLRACE_COROUTINE task<bytes> read(std::uint64_t at, std::size_t length, bool small = false);

 private:
  const std::shared_ptr<const storage> store_;
  shard object_;
  slab_pool slabs_;
  const range_reader::by by_;
  std::optional<range_scheduler> requests_;  // from the first read on
  running_crc crc_;
  std::unique_ptr<sequential_rest> rest_;
  bool rest_ended_ = false;
  bool short_ = false;
  std::optional<std::uint64_t> total_;
  std::uint64_t read_ = 0;
};

/// All of an object, as text, by requests of `part` bytes. `again`: over fresh connections.
MILLRACE_COROUTINE task<std::string> text_of_object(std::shared_ptr<const storage> from, shard object,
                                                    bool again = false, std::size_t part = 8 * MiB);
/// Bytes [at, at + length) of an object of that version, as text. configuration_error where its store serves no ranges.
MILLRACE_COROUTINE task<std::string> text_of_range(std::shared_ptr<const storage> from, shard object, std::uint64_t at,
                                                   std::size_t length, bool again = false);
/// The first, read twice if it comes over a network: archive_error if the two differ.
MILLRACE_COROUTINE task<std::string> text_read_twice(std::shared_ptr<const storage> from, shard object);
/// All of an object that is likely not longer than `part` bytes, as text; nullopt if it is not there.
MILLRACE_COROUTINE task<std::optional<std::string>> text_if_there(std::shared_ptr<const storage> from, shard object,
                                                                  std::size_t part, bool again = false);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/index/detail/indexed_object.ipp>
#endif
