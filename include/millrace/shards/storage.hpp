// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/base/short_text.hpp>
#include <millrace/base/units.hpp>
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

/// How an object is written: see storage::put().
struct write_options {
  bool only_new = false;          ///< an object that is there is left alone
  short_text<256> if_match = {};  ///< an ETag, as the store spells it: the object is replaced only while it has it
  std::size_t part = 8 * MiB;     ///< bytes of a part, where the store takes an object by parts
  std::size_t parts = 4;          ///< held at once: the one that is being filled and those on their way
};

/// Reads objects by parts, and writes them: the store that `fetch` reads from, and that shards, indexes, checkpoints
/// and the words of a rank_group are put into. Stateless towards its callers: all functions may be called from several
/// loops at once and many times at a time; each call runs on the executor that awaits it, and does nothing before that.
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
  /// cannot be read completely: for an object that is not there an io_error of ENOENT, or an s3::error or http::error
  /// of 404. Dropping the task ends the transfer.
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

  /// Source: the objects whose URLs begin with `prefix`, in any order: what a dataset of a prefix reads, which leaves
  /// out indexes that lie among them. Returns an empty generator if the store cannot list.
  MILLRACE_INLINE virtual async_generator<shard> list(std::string prefix) const;
  /// Source: the objects whose URLs begin with `prefix`, letter for letter: what a writer looks for. An object that was
  /// put before is among them, one that was removed is not. By default it calls list(), whose configuration_error,
  /// before any object, says that there are none.
  MILLRACE_INLINE virtual async_generator<shard> list_all(std::string prefix) const;

  /// Stores what `content` gives, to its end, as one object, in place of one that is there; gives its ETag, empty when
  /// the store has none. The object appears when all of it is stored, or not at all: also where the task is dropped or
  /// `content` throws. changed_error where a condition of `how` does not hold, and nothing has changed then. By default
  /// the call itself throws a configuration_error: the store cannot be written to.
  MILLRACE_INLINE virtual task<std::string> put(std::string url, async_generator<bytes> content,
                                                write_options how) const;
  /// Deletes an object; one that is not there is fine. By default as put().
  MILLRACE_INLINE virtual task<void> remove(std::string url) const;

  /// True if read() may give a sequential rest, which lives on the loop that read the first part.
  virtual bool may_be_sequential() const noexcept { return false; }
};

/// A storage that passes every call to another one. A decorator derives from it and overrides what it changes. One
/// that changes how objects are read overrides read(), read_small() and read_again(): each of them passes to the
/// same function of the other storage.
class forwarding_storage : public storage {
 public:
  bool serves(std::string_view url) const noexcept override { return target(url).serves(url); }
  MILLRACE_INLINE task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                                  slab_pool slabs) const override;
  MILLRACE_INLINE task<part> read_again(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                                        slab_pool slabs) const override;
  MILLRACE_INLINE task<part> read_small(shard object, std::string etag, std::size_t length,
                                        slab_pool slabs) const override;
  std::string host(std::string_view url) const override { return target(url).host(url); }
  bool over_network(std::string_view url) const noexcept override { return target(url).over_network(url); }
  bool is_local(const shard& object, std::uint64_t offset, std::size_t length) const override {
    return target(object.url).is_local(object, offset, length);
  }
  std::uint64_t caches_on_disk(std::string_view url) const override { return target(url).caches_on_disk(url); }
  std::uint64_t held_on_disk(const shard& object, std::uint64_t offset, std::uint64_t length) const override {
    return target(object.url).held_on_disk(object, offset, length);
  }
  MILLRACE_INLINE task<std::unique_ptr<object_check>> check(shard object, std::string etag) const override;
  std::size_t keeps() const noexcept override { return inner_->keeps(); }
  MILLRACE_INLINE async_generator<shard> list(std::string prefix) const override;
  MILLRACE_INLINE async_generator<shard> list_all(std::string prefix) const override;
  MILLRACE_INLINE task<std::string> put(std::string url, async_generator<bytes> content,
                                        write_options how) const override;
  MILLRACE_INLINE task<void> remove(std::string url) const override;
  bool may_be_sequential() const noexcept override { return inner_->may_be_sequential(); }

 protected:
  explicit forwarding_storage(std::shared_ptr<const storage> inner) : inner_(std::move(inner)) {}
  const std::shared_ptr<const storage>& inner() const noexcept { return inner_; }
  /// The storage that calls about this URL go to: the inner one, unless this is overridden.
  virtual const storage& target(std::string_view /*url*/) const noexcept { return *inner_; }

 private:
  const std::shared_ptr<const storage> inner_;
};

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// storage::read(), or storage::read_small(): for that `offset` is 0.
inline task<storage::part> read_or_small(const storage& from, bool small, shard object, std::string etag,
                                         std::uint64_t offset, std::size_t length, slab_pool slabs) {
  if (small) return from.read_small(std::move(object), std::move(etag), length, std::move(slabs));
  return from.read(std::move(object), std::move(etag), offset, length, std::move(slabs));
}

/// True if a store said by this that an object is not there: see storage::read(). By the type alone, without RTTI.
bool is_not_there(const std::exception_ptr& failure) noexcept;
/// configuration_error where this URL cannot be written to, or not so. Begins nothing.
void require_writing(const storage& to, const std::string& url, const write_options& how = {});
/// All that storage::list_all() gives. configuration_error for a store that cannot list.
MILLRACE_COROUTINE task<std::vector<shard>> all_objects(std::shared_ptr<const storage> from, std::string prefix);
/// Stores a text as an object; gives its ETag.
MILLRACE_COROUTINE task<std::string> put_text(const storage& to, std::string url, std::string text,
                                              const write_options& how = {});

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
