// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/running_crc.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace {

/// The rest of an object whose server does not serve ranges: it can only be read on, in order.
class sequential_rest {
 public:
  virtual ~sequential_rest() = default;
  /// The next piece; empty at the verified end.
  virtual task<bytes> next() = 0;
};

/// Compares the bytes of an object with what its store keeps of them.
class object_check {
 public:
  virtual ~object_check() = default;
  /// The version that it is of; empty when the store has none.
  virtual const std::string& etag() const noexcept = 0;
  /// The next bytes, in order, with storage::part::crc where they are a part's.
  virtual void add(const bytes& data, const running_crc& crc) = 0;
  /// All bytes have been added: throws what the store throws when they are not those that it has. `handed_on` of them
  /// went on to the reader before; the error says so. Must outlive the task.
  virtual task<void> compare(std::uint64_t handed_on) = 0;
};

namespace detail {
/// Of two bounds in bytes: their sum, or the largest number.
inline std::size_t sum_of_bounds(std::size_t a, std::size_t b) noexcept { return b > SIZE_MAX - a ? SIZE_MAX : a + b; }
}  // namespace detail

/// Reads objects by parts: a store behind `fetch`. Stateless towards its callers: read() may be called from several
/// loops at once and for many parts at a time; each call runs on the executor that awaits it.
class storage {
 public:
  /// What reading a part of an object gave.
  class part {
   public:
    part() = default;
    bytes data;                          ///< at most what was asked for; shorter only where the object ends
    std::optional<std::uint64_t> total;  ///< size of the whole object, when the store told
    std::string etag;                    ///< of the object that was read; empty when the store has none
    running_crc crc;                     ///< of `data`, where it was computed on the way
    std::unique_ptr<sequential_rest> rest;         ///< set when the store answered with the whole object instead
  };

  virtual ~storage() = default;

  /// Whether URLs like this one are read here.
  virtual bool serves(std::string_view url) const noexcept = 0;

  /// Bytes [offset, offset + length) of `object`, into one slab of `slabs`; `length` is at most a slab. When `etag` is
  /// not empty the object must still be that version. Throws an error that names the object and the offset when the
  /// part cannot be had completely. Dropping the task ends the transfer.
  virtual task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                          slab_pool slabs) const = 0;

  /// What the bytes of an object are to be compared with, of the version `etag` when that is not empty; null where the
  /// store keeps nothing of this one, an empty task where it never does. Called once for each object that is read in
  /// several parts, together with its first part: an object of one part is compared by read().
  virtual task<std::unique_ptr<object_check>> check(shard /*object*/, std::string /*etag*/) const {
    return task<std::unique_ptr<object_check>>();
  }

  /// The most bytes of objects that it keeps in memory beside what it is asked for: counted by run_options::budget.
  virtual std::size_t keeps() const noexcept { return 0; }

  /// Whether read() may give a sequential rest, which lives on the loop that read the first part.
  virtual bool may_be_sequential() const noexcept { return false; }
};

}  // namespace millrace
