// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

template <class T>
class async_generator;

namespace detail {
class chunk_source;
}

/// A piece of an object, in order: yielded by `fetch`. The pieces of one object follow each other without gaps, then
/// those of the next object come; the last one of each object is marked (an empty object has one empty piece).
class chunk {
 public:
  chunk() = default;
  chunk(std::shared_ptr<const shard> object, std::uint64_t position, bytes content, bool is_last)
      : from(std::move(object)), offset(position), data(std::move(content)), last(is_last) {}

  std::shared_ptr<const shard> from;  ///< the same pointer for all pieces of one reading of the object
  std::uint64_t offset = 0;  ///< of the piece in the object
  bytes data;                ///< a slice of a slab
  bool last = false;
  /// For stages that find the bytes damaged; null if they cannot be read again.
  std::shared_ptr<detail::chunk_source> source;

  friend std::size_t byte_size(const chunk& c) noexcept { return c.data.size(); }
};

/// The rest of an object whose server does not serve ranges: it can only be read in order.
class sequential_rest {
 public:
  virtual ~sequential_rest() = default;
  /// The next piece; empty at the verified end.
  virtual task<bytes> next() = 0;
};

/// Compares the bytes of an object with the checksum that its store keeps.
class object_check {
 public:
  virtual ~object_check() = default;
  /// The version that it is of; empty when the store has none.
  virtual const std::string& etag() const noexcept = 0;
  /// The next bytes, in order, with storage::part::crc where they are a part's.
  virtual void add(const bytes& data, const running_crc& crc) = 0;
  /// One that has been given the same bytes so far; null where it cannot be copied.
  MILLRACE_INLINE virtual std::unique_ptr<object_check> fork() const;
  /// Call after all bytes have been added: throws an s3::checksum_error if they are not those that the store has.
  /// `delivered` of them were delivered before; the error says so. Must outlive the task.
  virtual task<void> compare(std::uint64_t delivered) = 0;
};

/// Reads objects by parts: the store that `fetch` reads from. Stateless towards its callers: read() may be called from
/// several loops at once and for many parts at a time; each call runs on the executor that awaits it.
class storage {
 public:
  /// The result of reading a part of an object.
  class part {
   public:
    part() = default;
    bytes data;                          ///< at most as many as requested; fewer only at the object's end
    std::optional<std::uint64_t> total;  ///< size of the whole object, if the store reports it
    std::string etag;                    ///< of the object that was read; empty when the store has none
    std::string encoding;                ///< its Content-Encoding; empty when the store has none
    running_crc crc;                     ///< of `data`, where it was computed on the way
    bool again = false;                  ///< it had come damaged, and was read once more
    bool whole = false;                  ///< the whole object, compared with what check() would compare it with
    duration first_byte{0};              ///< from asking the store to its first byte; 0: not known
    duration held{0};                    ///< before that, while the store asked for fewer requests
    std::unique_ptr<sequential_rest> rest;         ///< set when the store answered with the whole object instead
  };

  virtual ~storage() = default;

  /// True if URLs like this one are read here.
  virtual bool serves(std::string_view url) const noexcept = 0;

  /// Bytes [offset, offset + length) of `object`, into one slab of `slabs`; `length` is at most a slab. When `etag` is
  /// not empty the object must still be that version. Throws an error that names the object and the offset if the part
  /// cannot be read completely. Dropping the task ends the transfer.
  virtual task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                          slab_pool slabs) const = 0;

  /// Reads the same again, for a reader that has found the bytes damaged: avoiding what may have damaged them (over
  /// another connection, without caches). By default it calls read().
  virtual task<part> read_again(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                                slab_pool slabs) const {
    return read(std::move(object), std::move(etag), offset, length, std::move(slabs));
  }

  /// The beginning of an object whose size is not known and is likely at most `length`: as read() from 0, which it
  /// calls by default. A store that keeps checksums may ask for the object as a whole, and say so (part::whole). A
  /// storage that reads from another one calls that one's read_small(): else check() costs a request for each object.
  virtual task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const {
    return read(std::move(object), std::move(etag), 0, length, std::move(slabs));
  }

  /// The name of the host that it reads this URL from. Within a runtime, readers of the same host share its requests
  /// and its measurements. Empty: each reader learns for itself. Called for each object.
  virtual std::string host(std::string_view /*url*/) const { return std::string(); }
  /// True if its bytes of this URL come over a network, which may damage them: then an index is made of verified bytes
  /// (see index_shard()).
  virtual bool over_network(std::string_view /*url*/) const noexcept { return true; }

  /// True if bytes [offset, offset + length) are on a local disk, as far as is known. Readers then ask for parts of the
  /// full length, a few at a time, and do not count them as requests of the host. A hint, asked for before a read, on
  /// the loop's thread: it must not wait.
  virtual bool is_local(const shard& /*object*/, std::uint64_t /*offset*/, std::size_t /*length*/) const {
    return false;
  }

  /// The most bytes of objects that it caches on a disk of this host, for all of its processes. For plans.
  virtual std::uint64_t caches_on_disk(std::string_view /*url*/) const { return 0; }
  /// How many bytes of [offset, offset + length) that cache has now, by its index: of any version. For plans; it must
  /// not wait.
  virtual std::uint64_t held_on_disk(const shard& /*object*/, std::uint64_t /*offset*/,
                                     std::uint64_t /*length*/) const {
    return 0;
  }

  /// The checksum to compare the bytes of an object with, of the version `etag` if that is not empty; null if the store
  /// keeps none of this object, an empty task if it never does. Called once for each object that is read in several
  /// parts, or not known to be of one when its first part is asked for, and for one of a single part that read() has
  /// not compared (part::whole).
  MILLRACE_INLINE virtual task<std::unique_ptr<object_check>> check(shard object, std::string etag) const;

  /// The most bytes of objects that it caches in memory: counted by run_options::budget.
  virtual std::size_t keeps() const noexcept { return 0; }

  /// Source: the objects whose URLs begin with `prefix`, in any order, without an index that lies among them: the
  /// listing of a dataset of a prefix. Returns an empty generator if the store cannot list.
  MILLRACE_INLINE virtual async_generator<shard> list(std::string prefix) const;

  /// True if read() may give a sequential rest, which lives on the loop that read the first part.
  virtual bool may_be_sequential() const noexcept { return false; }
};

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// storage::read(), or storage::read_small(): for that `offset` is 0.
inline task<storage::part> read_or_small(const storage& from, bool small, shard object, std::string etag,
                                         std::uint64_t offset, std::size_t length, slab_pool slabs) {
  if (small) return from.read_small(std::move(object), std::move(etag), length, std::move(slabs));
  return from.read(std::move(object), std::move(etag), offset, length, std::move(slabs));
}

/// The store that a user's argument stands for: a storage, or the result of as_storage(), a function beside its type.
template <class Store>
std::shared_ptr<const storage> storage_of(const Store& store) {
  if constexpr (std::is_convertible_v<const Store&, std::shared_ptr<const storage>>) {
    return store;
  } else if constexpr (requires { as_storage(store); }) {
    return as_storage(store);
  } else if constexpr (std::is_function_v<Store>) {
    static_assert(never_v<Store>, "a function is no store: call it, as in fetch(files())");
    return nullptr;
  } else {
    static_assert(never_v<Store>,
                  "this is no store to fetch from: pass an s3::client, files() or a std::shared_ptr<const storage>; "
                  "URLs come from the left side of |, as in client.list(\"s3://bucket/prefix\") | fetch(client)");
    return nullptr;
  }
}

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/storage.ipp>
#endif
