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
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/sample_index_builder.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Makes the index of one shard from its bytes, which come in order.
class shard_scanner {
 public:
  virtual ~shard_scanner() = default;
  /// Before all others: `head` is the first bytes, which add() gets, too. `total`: the size of an object of which any
  /// range can be read. Requests have `part` bytes where hop() is 0. Errors: as of add().
  virtual void begin(std::string_view /*head*/, std::optional<std::uint64_t> /*total*/, std::size_t /*part*/) {}
  /// The next bytes. Throws archive_error for what is damaged, decode_error for what cannot be read.
  virtual void add(const bytes& piece) = 0;
  /// True if add() unpacks or computes so much that a pool should do it.
  virtual bool packed() const noexcept { return false; }
  /// True if finish() has compared every byte with checksums of the data's own: then the shard is read once.
  virtual bool verifies() const noexcept { return false; }
  /// A scanner that reads headers alone: the bytes of its next request, else 0.
  virtual std::size_t hop() const noexcept { return 0; }
  /// The next byte that it needs, where `at` would be the next one. Not before `at`, unless any range can be read.
  virtual std::uint64_t next(std::uint64_t at) { return at; }
  /// True if nothing that may follow changes the index.
  virtual bool done() const noexcept { return false; }
  /// All bytes have come, `size` of them, of the version `etag`. Errors: as of add().
  virtual shard_index finish(std::uint64_t size, std::string etag) = 0;
  /// After finish(): what is odd about the shard and no error, for the log. `once`: said once in a process.
  virtual std::string warning(bool /*once*/) const { return {}; }
};

/// Samples that were unpacked together.
class sample_group {
 public:
  virtual ~sample_group() = default;
  /// Appends the fields of sample `number` of the shard to `s`, which has its key and its place. They keep alive what
  /// they refer to. On the loop's thread: it should copy and decode little.
  virtual void fill(sample& s, std::size_t number) const = 0;
};

/// What shard_reader::unpack() returns: one of both.
class unpacked_group {
 public:
  unpacked_group() = default;
  /// The group's text; its samples are the slices of it that the index says.
  explicit unpacked_group(bytes all) : text(std::move(all)) {}
  explicit unpacked_group(std::shared_ptr<const sample_group> all) : samples(std::move(all)) {}
  bytes text;
  std::shared_ptr<const sample_group> samples;
};

/// Bytes of an object.
class object_range {
 public:
  object_range() = default;
  object_range(std::uint64_t from, std::uint64_t to) noexcept : begin(from), end(to) {}
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// How the samples of one shard are made of its bytes. Its functions may be called by several threads at once: unpack()
/// by the runtime's pool, where it has one, the others on the loop's thread.
class shard_reader {
 public:
  virtual ~shard_reader() = default;
  /// Appends the fields of sample `number` to `s`, which has its key and its place. `record` has the bytes of the
  /// sample that the index says, whose checksum has been compared: the fields are slices of it. `rows`, of the index,
  /// have the sample. Errors name s.from.at(s.key). Not called where unpack() returns samples.
  MILLRACE_INLINE virtual void fill(sample& s, const shard_index::rows& rows, std::size_t number,
                                    const bytes& record) const;
  /// Of an index with groups: the ranges of the object that group `g` is unpacked from, one at least and none empty;
  /// each is one request. By default what the index says, in one.
  MILLRACE_INLINE virtual std::vector<object_range> ranges(const shard_index& index, std::size_t g) const;
  /// Unpacks group `g` from these ranges of `object`. Throws archive_error or decode_error if they are damaged: they
  /// are then read once more. Text that is returned has as many bytes as the index says.
  MILLRACE_INLINE virtual unpacked_group unpack(const shard& object, std::size_t g,
                                                const std::vector<bytes>& parts) const;
};

/// A field of a shard's samples.
class shard_field {
 public:
  shard_field() = default;
  shard_field(std::string called, std::string its_meaning) : name(std::move(called)), meaning(std::move(its_meaning)) {}
  std::string name;
  /// The kind of its bytes, in the same words for the same meaning: "list of int32". Empty: not known.
  std::string meaning;
  friend bool operator==(const shard_field&, const shard_field&) = default;
};

/// The part that an object has in a sample, of a format whose samples are objects.
class object_part {
 public:
  object_part() = default;
  object_part(std::size_t key_bytes, std::size_t folder_bytes, std::string called)
      : key(key_bytes), folder(folder_bytes), field(std::move(called)) {}
  std::size_t key = 0;     ///< bytes of the path that are the sample's key; 0: it is no part of a sample
  std::size_t folder = 0;  ///< bytes of the path before a slash that name its index
  std::string field;       ///< the name of the field that it is; as long as the path after the key and a dot or slash
};

/// A format of shards, which dataset_options::format takes: tar_shards(), line_shards(), mds(), or a program's own. All
/// that epochs() promises holds for it, as the index says where each sample lies. One object may be used by any number
/// of datasets; its functions may be called by several threads at once.
///
/// An index has a row for each sample: bytes [offset, end) of the object, and their CRC32C. Where samples can only be
/// read together, it has groups, too: [offset, end) are then bytes of the shard's text, which is what it would be
/// unpacked to, groups after groups; epochs_options::bytes counts what a group takes there as its memory, and a group
/// is unpacked whole whenever a slice needs a sample of it. So groups are the slices by default
/// (order_options::groups), and each is read once an epoch, and once more where a track begins inside of it. Where
/// dataset_options::slice is given, slices begin anywhere: a group is a part of two of its own length, and read twice.
class shard_format {
 public:
  virtual ~shard_format() = default;
  /// A short name: "mds". It is in messages, and in every index.
  virtual std::string_view name() const noexcept = 0;
  /// What of its options decides which samples or fields there are. An index of other settings is refused.
  virtual std::string settings() const { return {}; }
  /// Of the objects that are listed, those that are shards. Throws configuration_error for a list that cannot be.
  virtual std::vector<shard> choose(std::vector<shard> listed) const { return listed; }
  /// True if an object that choose() leaves out is one that the format knows: a file of its own beside the shards, or
  /// another form of one. Of others a line in the log says how many there are.
  virtual bool knows(const shard& /*left_out*/) const { return false; }
  /// Once before indexes are made: reads what objects beside the shards say. `listed` is what was given to choose().
  /// What it returns is given to the functions below, and is null by default.
  MILLRACE_INLINE virtual task<std::shared_ptr<const void>> metadata(std::shared_ptr<const storage> from,
                                                                     std::vector<shard> listed) const;
  /// What makes the index of a shard of which all is read, or null: then index() is called. `object` has the ETag and
  /// the size, as far as they are known by now; the index must have this name.
  MILLRACE_INLINE virtual std::unique_ptr<shard_scanner> scanner(std::string name, const shard& object,
                                                 std::shared_ptr<const void> metadata) const;
  /// The bytes that shard_scanner::begin() needs to see, at most; more than a request has: all of the first one.
  virtual std::size_t head_bytes() const noexcept { return SIZE_MAX; }
  /// Makes the index of a shard by ranges of it. What came over a network (storage::over_network()) may have been
  /// damaged there: what the index says must have been verified or read twice.
  MILLRACE_INLINE virtual task<shard_index> index(std::shared_ptr<const storage> from, shard object, std::string name,
                                                  std::shared_ptr<const void> metadata) const;
  /// Of a shard with this index. Throws index_error where the index's description is not what this format writes.
  virtual std::shared_ptr<const shard_reader> reader(const shard_index& index) const = 0;
  /// The fields of its samples, as far as its index says: when an index is made or opened, those of all shards with
  /// samples are compared, and shards of which one lacks a field, or has it with another meaning, are a
  /// configuration_error. Empty: nothing is compared.
  virtual std::vector<shard_field> fields(const shard_index& /*index*/) const { return {}; }

  /// True if objects are samples, or parts of them, and no shards: their index is made of the listing, by part(), and
  /// of the other functions only name(), settings() and of_classes() are called.
  virtual bool of_objects() const noexcept { return false; }
  /// Of the object with this path, below the dataset's prefix.
  virtual object_part part(std::string_view /*path*/) const { return {}; }
  /// True if each folder is a class: samples then get its number, as text, in a field "cls".
  virtual bool of_classes() const noexcept { return false; }
  /// True if shards are plain tars and samples are those of tar_shards(): a dataset can then be read without an index,
  /// as a stream.
  virtual bool of_tars() const noexcept { return false; }
};

/// The format's name with its settings, as messages name it.
inline std::string shown_format(const shard_format& format) {
  const std::string settings = format.settings();
  return std::string(format.name()) + (settings.empty() ? "" : " (" + settings + ')');
}

namespace detail {

/// The readers of the shards of one dataset, of which those that were used last are kept.
class shard_readers {
 public:
  explicit shard_readers(std::shared_ptr<const shard_format> format) noexcept : format_(std::move(format)) {}
  /// Of shard `number`, with this index.
  std::shared_ptr<const shard_reader> of(const shard_index& index, std::uint64_t number);

 private:
  static constexpr std::size_t kept = 64;
  struct one {
    std::uint64_t number = UINT64_MAX;
    std::shared_ptr<const shard_reader> reader;
  };
  std::shared_ptr<const shard_format> format_;
  std::vector<one> readers_;
};

}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/shard_format.ipp>
#endif
