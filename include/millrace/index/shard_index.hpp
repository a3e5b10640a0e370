// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/detail/text_frames.hpp>

namespace millrace::inline MILLRACE_ABI {

/// An index of a shard that is broken, of an unknown version, or cannot be made.
class index_error : public error {
 public:
  using error::error;
};

/// An index that is whole, but of another version of its shard: the ETag or the size differ.
class stale_index_error : public index_error {
 public:
  using index_error::index_error;
};

/// The hash of a sample's key: FNV-1a of 64 bits (G. Fowler, L. C. Noll, K.-P. Vo) through a step of SplitMix64.
inline std::uint64_t key_hash(std::string_view key) noexcept { return detail::text_hash(key); }

class arrays;
class storage;
template <class T>
class task;

namespace detail {
class index_bytes;
class index_file_reader;
}  // namespace detail
class sample_index_builder;

/// How the rows of an index say where samples lie.
enum class row_layout : unsigned char {
  /// A sample is a range of the object, and so is each of its named fields, with a checksum of its own (tar). Keys are
  /// known by their hashes. 16 bytes a sample and 16 a field in the file, 24 and 24 in memory where it is made.
  fields,
  /// A sample is a range of the object with one checksum, whose fields its format makes. 16 bytes a sample in the file
  /// and in memory where it is made. Compressed objects have places in their text, which is what they are unpacked to,
  /// and 16 bytes for each frame or group of frames.
  records,
  /// A field is an object of its own: its path, ETag and size. 2 bytes a sample and 11 an object in the file, 4 and 19
  /// in memory, and the path and the ETag (16 bytes where it is an MD5).
  objects,
  /// A sample is a row of arrays in memory or in mapped files. There is no file of such an index.
  arrays,
};

/// The samples of a shard, without their bytes: rows of {place, size, checksum, key}, groups that are unpacked
/// together, and what the shard's format has written down. It knows formats by their names alone. With it a sample is
/// read by one ranged GET, and verified before it is delivered. A sample_index_builder makes one.
///
/// An index of ranges is of one version of the object: check() compares.
///
/// Of open_indexes(), the rows of all but objects and arrays stay in the file, and in memory there are 12 bytes for 256
/// samples. What asks for a row then reads those of its 256 samples, checks their CRC32C and throws an index_error that
/// names file, shard and byte where it is wrong, or an io_error. Where the index is an object of a store (in_store()),
/// rows are those of read_rows() alone, and functions that would read them are a usage_error. All const functions may
/// be called by several threads at once.
///
/// The file (write(), read()), all numbers unsigned and little-endian:
///
///     byte  0   8 bytes  "mrindex" and a line feed
///           8   4        version: 1, of the format tar; 3, of lines, tfrecord or recordio with frames; 2, of others
///                        that have a number; 4, of those that have a name
///          12   4        flags: bit 0 checksums are there, bit 1 hashes of keys are there (of all but tars: keys are
///                        known), bit 2 samples' offsets are those of their headers (else of their first body less
///                        512), bit 3 frames are groups (has_groups(); of version 3), bits 8 to 15, from version 2 on,
///                        the format's number: 1 lines, 2 objects, 3 classes, 4 folders, 6 tfrecord, 7 recordio,
///                        8 it has a name; the others 0
///          16   8        length of this index in bytes, all of it
///          24   8        length of the object
///          32   8        S: samples
///          40   8        F: fields of all samples
///          48   4        bytes of the name; 52: of the ETag; 56: X, how many extensions; 60: bytes of their part
///          64            the name; the ETag as the store sends it; each extension: 2 bytes length, and its bytes;
///                        zeros up to a multiple of 16. In version 3 there are X frames, or groups of them, in
///                        the extensions' place, and one more for their end: 8 bytes where it begins in the
///                        object, 8 where its text begins. In version 4 the first two extensions are the format's name
///                        and its settings, the others the description of the shard, in parts of 65,535 bytes; frames
///                        may follow them
///             of fields:
///               16 S     each sample: 8 bytes hash of the key (0: unknown); 6 bytes offset of its first header / 512;
///                        2 bytes number of fields
///               16 F     each field, sample by sample: 4 bytes (offset of its body - offset of the sample) / 512;
///                        4 bytes CRC32C of the body (0: unknown); 5 bytes its length; 3 bytes number of its extension
///             of records (F = S):
///               16 S     each sample: 6 bytes its offset; 6 bytes its length; 4 bytes its CRC32C
///             of objects:
///               2 S      each sample: number of its objects
///               8 F      each object: 5 bytes its length; 3 bytes number of its extension
///                        each object: 2 bytes length of its path after the name, the path; 1 byte length of its ETag,
///                        the ETag. The length 255 stands for 16 bytes: those whose lower-case hexadecimal digits, in
///                        quotes, are the ETag
///             of all:
///               4        CRC32C of everything before
///
/// A file of several: index_file_head, write_indexes(), read_indexes(), open_indexes().
class shard_index {
  struct table;

 public:
  class field {
   public:
    std::string_view extension;  ///< in lower case; lives as long as the index
    std::uint64_t offset = 0;    ///< of the body in the object
    std::uint64_t size = 0;      ///< in bytes
    std::uint32_t crc = 0;       ///< CRC32C of the body; valid if has_checksums()
  };

  /// An object that is a field.
  class object {
   public:
    std::string_view path;  ///< after the name; lives as long as the index
    std::string etag;       ///< empty: the store has none
  };

  /// The shard's name, given by the maker of the index; objects have that of their folder, without the slash at its
  /// end.
  const std::string& name() const noexcept { return name_; }
  row_layout layout() const noexcept { return layout_; }
  /// The name of its shard_format ("tar", "lines"), the settings of that, and its description of this shard.
  const std::string& format() const noexcept { return format_; }
  const std::string& settings() const noexcept { return settings_; }
  const std::string& description() const noexcept { return description_; }
  /// True if the format has this name and these settings.
  bool is_of(std::string_view format, std::string_view settings) const noexcept {
    return format_ == format && settings_ == settings;
  }
  /// The format's name with its settings, for messages.
  std::string shown_format() const { return settings_.empty() ? format_ : format_ + " (" + settings_ + ')'; }
  const std::string& etag() const noexcept {
    return etag_;
  }  ///< of the object that was read; empty: the store has none
  std::uint64_t object_size() const noexcept { return object_size_; }
  std::size_t samples() const noexcept {
    if (paged_ != nullptr) return paged_->samples;
    if (has_fields()) return rows_.samples.size();
    return has_records() ? rows_.records.size() : is_arrays() ? array_rows_ : firsts_.size();
  }
  std::size_t fields() const noexcept {
    if (paged_ != nullptr) return paged_->fields;
    if (has_fields()) return rows_.fields.size();
    return has_records() ? rows_.records.size() : is_arrays() ? array_rows_ * rows_.fields.size() : objects_.size();
  }
  /// The frames of compressed text that have bytes [begin, end) of it; end is not 0.
  detail::frame_range frames_of(std::uint64_t begin, std::uint64_t end) const noexcept;
  /// True if it is of compressed text: then offsets are those of the text.
  bool is_packed() const noexcept { return !frames_.empty(); }
  /// True if samples are unpacked by groups: frames that are not groups are unpacked for each slice.
  bool has_groups() const noexcept { return groups() != 0 && (flags_ & in_groups) != 0; }
  /// How many groups there are, that of a sample that begins at this byte of the text, and what group `g` takes in the
  /// object and in the text.
  std::size_t groups() const noexcept { return is_packed() ? frames_.size() / 2 - 1 : 0; }
  std::size_t group_of(std::uint64_t offset) const noexcept;
  detail::frame_range group(std::size_t g) const noexcept {
    return {frames_[2 * g], frames_[2 * g + 2], frames_[2 * g + 1]};
  }
  std::uint64_t group_text_end(std::size_t g) const noexcept { return frames_[2 * g + 3]; }
  /// Bytes of all samples, each from its first header to its last byte.
  std::uint64_t sample_bytes() const noexcept;
  /// True if field::crc is known: not if only headers were read, nor in foreign indexes.
  bool has_checksums() const noexcept { return (flags_ & with_checksums) != 0; }
  /// True if key_hash() is known: not in DALI's indexes before v1.2.
  bool has_keys() const noexcept { return (flags_ & with_keys) != 0; }
  /// True if a tar::reader may begin at offset(): not in DALI's indexes.
  bool has_headers() const noexcept { return (flags_ & with_headers) != 0; }

  bool of_objects() const noexcept { return layout_ == row_layout::objects; }

  /// The rows of some neighbouring samples, of all but objects and arrays, kept in memory as long as this lives. The
  /// index must outlive it and stay where it is. A sample is named by its number in the shard.
  class rows {
   public:
    rows() = default;
    bool has(std::size_t sample) const noexcept { return sample - first_ < count_; }
    // They do what shard_index's functions of these names do; has(sample) must hold. key_hash() is for
    // row_layout::fields.
    std::uint64_t key_hash(std::size_t sample) const noexcept { return table_->samples[sample - first_].key; }
    std::uint64_t offset(std::size_t sample) const noexcept;
    std::uint64_t end(std::size_t sample) const noexcept;
    std::size_t field_count(std::size_t sample) const noexcept;
    field field_at(std::size_t sample, std::size_t i) const noexcept;
    /// The rows of one sample alone, if others would be kept in memory with them.
    rows only(std::size_t sample) const;

   private:
    friend shard_index;
    std::uint64_t first_field_behind(std::size_t row) const noexcept {
      return row + 1 < count_ ? table_->samples[row + 1].first_field : table_->fields.size();
    }
    std::shared_ptr<const table> held_;  // null: the index's own
    const table* table_ = nullptr;
    const std::string* extensions_ = nullptr;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    bool records_ = false;
  };
  /// The rows around `sample`, which must be below samples(): faster than the functions below for several samples.
  /// Objects and arrays have none.
  rows rows_of(std::size_t sample) const;
  /// Whether the rows are in an object of a store.
  bool in_store() const noexcept { return paged_ != nullptr && paged_->in_store; }
  /// Where in_store() is true: reads the rows of samples [first, first + count), of which there is one at least, in
  /// blocks of 256 samples, each of which is one of the result. At most two requests at once. What comes damaged is
  /// read once more. Errors: index_error, those of the store, and changed_error for another version of the index.
  MILLRACE_COROUTINE task<std::vector<rows>> read_rows(std::size_t first, std::size_t count) const;
  /// Lets the system read the rows of samples [first, first + count) of a file before they are asked for.
  void will_need(std::size_t first, std::size_t count) const noexcept {
    if (paged_ != nullptr) ask_for(first, count);
  }

  std::uint64_t key_hash(std::size_t sample) const {
    return has_fields() ? rows_of(sample).key_hash(sample) : millrace::key_hash(key(sample));
  }
  /// The sample's key; with row_layout::fields empty, as it is only known by its hash. A record has the name, `#` and
  /// its number, a row of arrays its number.
  std::string key(std::size_t sample) const;
  /// The place of the sample's first byte: of a member's header, or of the record. Objects have 0, a row of arrays the
  /// bytes of the rows before it.
  std::uint64_t offset(std::size_t sample) const {
    if (is_arrays()) return sample * array_row_bytes();
    return of_objects() ? 0 : rows_of(sample).offset(sample);
  }
  /// The byte after the last one of its last field. A GET requests [offset, end). Objects: the bytes of all.
  std::uint64_t end(std::size_t sample) const;
  std::size_t field_count(std::size_t sample) const {
    if (is_arrays()) return rows_.fields.size();
    if (!of_objects()) return rows_of(sample).field_count(sample);
    return (sample + 1 < firsts_.size() ? firsts_[sample + 1] : objects_.size()) - firsts_[sample];
  }
  /// Field `i` of a sample, in the order of the archive.
  field field_at(std::size_t sample, std::size_t i) const;
  /// The object that is field `i` of a sample of objects.
  object object_at(std::size_t sample, std::size_t i) const;

  /// The arrays whose rows are the samples; else null.
  const std::shared_ptr<const arrays>& row_arrays() const noexcept { return arrays_; }
  /// True if an array of row_arrays() is in a mapped file, and has to be read.
  bool has_mapped_rows() const noexcept { return mapped_; }

  /// Throws stale_index_error, which names the shard, the ETag and the size, unless they are those that were indexed.
  /// Values that the store does not know are not compared.
  void check(const shard& listed) const;

  /// 128 bits of all that it says: of the name, the ETag, the size and every row.
  hash128 digest() const noexcept;

  /// The file. Appended to `out`. Rows of arrays have none: a usage_error.
  void write(std::string& out) const;
  /// How many bytes write() appends.
  std::uint64_t file_bytes() const noexcept {
    if (of_objects()) return rows_begin() + 2 * firsts_.size() + 8 * objects_.size() + paths_.size() + 4;
    return rows_begin() + 16 * (samples() + (has_records() ? 0 : fields())) + 4;
  }
  std::string text() const {
    std::string out;
    write(out);
    return out;
  }
  /// Takes the index at the front of `rest`, which loses it. Whatever bytes are given, it throws an index_error that
  /// names `file`, the byte and the reason, or has read what write() wrote.
  static shard_index read(std::string_view& rest, const std::string& file);

  /// True if they say the same, wherever the rows are.
  friend bool operator==(const shard_index& a, const shard_index& b) { return a.is_like(b); }

 private:
  friend class index_file_head;
  friend detail::index_file_reader;
  friend sample_index_builder;
  static constexpr std::uint32_t with_checksums = 1;
  static constexpr std::uint32_t with_keys = 2;
  static constexpr std::uint32_t with_headers = 4;
  static constexpr std::uint32_t in_groups = 8;
  static constexpr std::uint32_t all_flags = 15;
  static constexpr std::size_t head_bytes = 64;
  static constexpr std::string_view magic = "mrindex\n";
  static constexpr std::size_t packed_etag = 255;

  /// Formats that files have numbers for, and the layout of their rows. All others have names, and records.
  struct numbered {
    unsigned number;
    std::string_view name;
    row_layout layout;
  };
  static constexpr unsigned has_name = 8;
  static constexpr numbered formats[] = {
      {0, "tar", row_layout::fields},       {1, "lines", row_layout::records},    {2, "objects", row_layout::objects},
      {3, "classes", row_layout::objects},  {4, "folders", row_layout::objects},  {5, "arrays", row_layout::arrays},
      {6, "tfrecord", row_layout::records}, {7, "recordio", row_layout::records}, {has_name, "", row_layout::records}};
  static constexpr const numbered& numbered_of(std::string_view name) noexcept {
    for (const numbered& f : formats) {
      if (f.name == name) return f;
    }
    return formats[has_name];
  }
  /// The one in its file: a format of settings has no number.
  unsigned number() const noexcept {
    return settings_.empty() && description_.empty() ? numbered_of(format_).number : has_name;
  }
  bool has_records() const noexcept { return layout_ == row_layout::records; }
  bool has_fields() const noexcept { return layout_ == row_layout::fields; }
  std::uint64_t text_size() const noexcept { return is_packed() ? frames_.back() : object_size_; }
  bool is_arrays() const noexcept { return layout_ == row_layout::arrays; }
  /// The file's flags: in those of a named format, groups follow from frames.
  std::uint32_t file_flags() const noexcept { return number() == has_name ? flags_ & ~in_groups : flags_; }
  /// Calls `f` with each of the extensions in the file: of a named format its texts.
  template <class F>
  void each_extension(const F& f) const {
    if (number() != has_name) {
      for (const std::string& e : extensions_) f(std::string_view(e));
      return;
    }
    f(std::string_view(format_));
    f(std::string_view(settings_));
    for (std::size_t at = 0; at < description_.size(); at += 65535) {
      f(std::string_view(description_).substr(at, 65535));
    }
  }
  std::uint64_t array_row_bytes() const noexcept {
    return rows_.fields.empty() ? 0 : rows_.fields.back().offset + rows_.fields.back().size;
  }

  struct sample_row {
    std::uint64_t key = 0;
    std::uint64_t offset = 0;
    std::uint64_t first_field = 0;
    friend bool operator==(const sample_row&, const sample_row&) = default;
  };
  struct field_row {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint32_t crc = 0;
    std::uint32_t extension = 0;
    friend bool operator==(const field_row&, const field_row&) = default;
  };
  struct record_row {
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
    std::uint32_t crc = 0;
    friend bool operator==(const record_row&, const record_row&) = default;
  };
  struct table {
    std::vector<sample_row> samples;  // of row_layout::fields
    std::vector<field_row> fields;
    std::vector<record_row> records;
    friend bool operator==(const table&, const table&) = default;
  };
  // If rows stay in their file, blocks of so many samples are read by need.
  static constexpr std::size_t block_samples = 256;
  struct paged {
    std::shared_ptr<const detail::index_bytes> from;
    std::uint64_t at = 0;  // where the index begins there
    std::uint64_t samples = 0;
    std::uint64_t fields = 0;
    std::uint64_t sample_bytes = 0;
    hash128 digest;
    bool in_store = false;
    std::size_t block = block_samples;
    std::vector<std::uint32_t> sums;    // CRC32C of each block's rows
    std::vector<std::uint64_t> firsts;  // of row_layout::fields: each block's first field
  };
  struct object_row {
    std::uint32_t path = 0;  // where it is in paths_
    std::uint32_t extension = 0;
    std::uint64_t size = 0;
    friend bool operator==(const object_row&, const object_row&) = default;
  };
  class parser;

  const object_row& object_row_at(std::size_t sample, std::size_t i) const noexcept {
    return objects_[firsts_[sample] + i];
  }
  std::size_t extension_bytes() const noexcept {
    std::size_t bytes = 0;
    each_extension([&](std::string_view e) { bytes += 2 + e.size(); });
    return bytes + 8 * frames_.size();
  }
  std::size_t rows_begin() const noexcept {
    return head_bytes + (name_.size() + etag_.size() + extension_bytes() + 15) / 16 * 16;
  }
  bool is_like(const shard_index& other) const;
  /// Of an index whose rows are read by need: where a block of them is.
  struct block_place {
    std::size_t first = 0;  // of its samples
    std::size_t count = 0;
    std::uint64_t at = 0;          // of the file's bytes
    std::uint64_t fields_at = 0;   // likewise, of the rows of fields; 0: there are none
    std::uint64_t fields = 0;
    std::uint64_t end() const noexcept { return at + 16 * count; }
    std::uint64_t fields_end() const noexcept { return fields_at + 16 * fields; }
  };
  block_place place_of(std::size_t block) const noexcept;
  rows block_of(std::size_t sample) const;
  rows rows_in(const block_place& place) const noexcept;
  std::shared_ptr<const table> parsed(const block_place& place, std::string_view text) const;
  void ask_for(std::size_t first, std::size_t count) const noexcept;
  /// In an index_file_head.
  std::uint64_t entry_bytes() const noexcept {
    const std::uint64_t blocks = of_objects() ? 0 : (samples() + block_samples - 1) / block_samples;
    return 32 + rows_begin() + blocks * (has_records() ? 4 : 12);
  }

  std::string name_;
  std::string etag_;
  std::uint64_t object_size_ = 0;
  std::uint32_t flags_ = 0;
  std::vector<std::string> extensions_;
  std::vector<std::uint64_t> frames_;  // of compressed text, as in the file
  row_layout layout_ = row_layout::fields;
  std::string format_ = "tar";
  std::string settings_;
  std::string description_;
  table rows_;                           // of all but objects; of arrays the fields of the first one
  std::shared_ptr<const paged> paged_;   // or this
  std::vector<std::uint32_t> firsts_;    // of objects: each sample's first one
  std::vector<object_row> objects_;
  std::string paths_;  // and ETags, as in the file; of arrays their names, types and shapes
  std::shared_ptr<const arrays> arrays_;
  std::size_t array_rows_ = 0;
  bool mapped_ = false;
};

/// The head of a file of several indexes. It says how much follows, so that a file that was cut between two of them is
/// refused, and what is asked of all of them when a training begins, so that their rows may be read when they are
/// needed. All numbers unsigned and little-endian:
///
///     byte  0   8 bytes  "mrindset"
///           8   4        version: 2
///          12   4        CRC32C of the other bytes of the head
///          16   8        how many indexes follow
///          24   8        how many bytes these have
///          32   8        how many bytes the head has from byte 48 on
///          40   8        B: samples of a block, 256
///          48            of each index:
///                          8        how many bytes it has
///                          8        shard_index::sample_bytes()
///                          16       shard_index::digest(), the high half first
///                                   its own bytes up to its rows
///                                   of each B samples with fields: 8 bytes number of their first field; 4 bytes CRC32C
///                                   of their rows, and on over those of their fields
///                                   of each B records: 4 bytes CRC32C of their rows
///
/// Version 1, which is read, too, has bytes 0 to 31 alone.
class index_file_head {
 public:
  index_file_head() = default;
  /// The head for a range of shard_index, each of which is then given to add(), in this order.
  template <class Indexes>
  explicit index_file_head(const Indexes& indexes) {
    for (const shard_index& index : indexes) expect(index);
  }
  /// One more than the constructor was given.
  void expect(const shard_index& index) {
    ++count_;
    length_ += index.file_bytes();
    entries_bytes_ += index.entry_bytes();
  }
  /// `text`: what the index writes.
  void add(const shard_index& index, std::string_view text);

  std::uint64_t count() const noexcept { return count_; }
  std::uint64_t length() const noexcept { return length_; }
  /// How many bytes text() has.
  std::uint64_t bytes() const noexcept { return (version_ == 1 ? 32 : 48) + entries_bytes_; }

  /// After add() of all.
  std::string text() const;
  /// True if a head stands at the front of `text`: files of before it had none.
  static bool is_at(std::string_view text) noexcept { return text.substr(0, 8) == magic; }
  /// Whether the text begins with a head of version 2, and how many bytes that says that it has.
  static bool has_rows_apart(std::string_view text) noexcept {
    return is_at(text) && text.size() >= 48 && detail::read_le(text, 8, 4) == 2;
  }
  static std::uint64_t bytes_said(std::string_view text) noexcept {
    return detail::added(detail::read_le(text, 32, 8), 48);
  }
  /// What the first bytes() of a head say of which `text` has 48 or more, or all that there is. It is byte `at` of the
  /// file, of whose bytes `left` are there from here. index_error where it is damaged or less follows than it says;
  /// of version 2 check() tells the first.
  static index_file_head read(std::string_view text, const std::string& file, std::uint64_t at, std::uint64_t left);
  /// Checks the bytes() of the head: index_error if its checksum is wrong.
  void check(std::string_view text, const std::string& file, std::uint64_t at) const;

 private:
  friend detail::index_file_reader;
  static constexpr std::string_view magic = "mrindset";

  std::string sealed(std::uint32_t crc) const;

  std::uint64_t version_ = 2;
  std::uint64_t count_ = 0;
  std::uint64_t length_ = 0;
  std::uint64_t entries_bytes_ = 0;
  std::uint64_t block_ = shard_index::block_samples;
  std::string entries_;
};

/// The file of a range of shard_index. Appended to `out`. Such files may be appended to one another.
template <class Indexes>
void write_indexes(const Indexes& indexes, std::string& out) {
  index_file_head head(indexes);
  const std::size_t begin = out.size();
  out.resize(begin + static_cast<std::size_t>(head.bytes()));
  for (const shard_index& index : indexes) {
    const std::size_t at = out.size();
    index.write(out);
    head.add(index, std::string_view(out).substr(at));
  }
  const std::string text = head.text();
  out.replace(begin, text.size(), text);
}

/// All the indexes of a file, in its order, of write_indexes() or of shard_index::write() alone: of those nothing says
/// how many there were. Errors: those of shard_index::read(), and fewer bytes or indexes than the file's head says; a
/// file of no index is one too.
std::vector<shard_index> read_indexes(std::string_view text, const std::string& file);

/// All the indexes of a file that stays open, and whose rows are read and checked when they are asked for
/// (shard_index). All of a file without a head of version 2 is read once now, and indexes of objects are kept. io_error
/// where the file cannot be read. A file that is replaced by another one of its name goes on being read as it was.
std::vector<shard_index> open_indexes(const std::string& file);

namespace detail {
/// The same of a text, which `owner` keeps as it is; all of it is checked now.
std::vector<shard_index> open_index_text(std::string_view text, std::shared_ptr<const void> owner,
                                         const std::string& file);
/// The same of an object of a store, whose size and ETag are known and which begins with `head`: an index_file_head of
/// version 2 of all its indexes. Rows are those of shard_index::read_rows(). `head` is not needed afterwards.
std::vector<shard_index> open_stored_indexes(std::shared_ptr<const storage> store, shard object, std::string_view head,
                                             const std::string& file);
}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::uint64_t shard_index::rows::offset(std::size_t sample) const noexcept {
  const std::size_t row = sample - first_;
  return records_ ? table_->records[row].offset : table_->samples[row].offset;
}

inline std::uint64_t shard_index::rows::end(std::size_t sample) const noexcept {
  const std::size_t row = sample - first_;
  if (records_) return table_->records[row].offset + table_->records[row].size;
  const field_row& last = table_->fields[static_cast<std::size_t>(first_field_behind(row) - 1)];
  return last.offset + last.size;
}

inline std::size_t shard_index::rows::field_count(std::size_t sample) const noexcept {
  const std::size_t row = sample - first_;
  if (records_) return 1;
  return static_cast<std::size_t>(first_field_behind(row) - table_->samples[row].first_field);
}

inline shard_index::field shard_index::rows::field_at(std::size_t sample, std::size_t i) const noexcept {
  const std::size_t row = sample - first_;
  field out;
  if (records_) {
    const record_row& record = table_->records[row];
    out.extension = "record";
    out.offset = record.offset;
    out.size = record.size;
    out.crc = record.crc;
    return out;
  }
  const field_row& its = table_->fields[static_cast<std::size_t>(table_->samples[row].first_field) + i];
  out.extension = extensions_[its.extension];
  out.offset = its.offset;
  out.size = its.size;
  out.crc = its.crc;
  return out;
}

inline shard_index::rows shard_index::rows_of(std::size_t sample) const {
  if (paged_ != nullptr) return block_of(sample);
  rows all;
  all.table_ = &rows_;
  all.extensions_ = extensions_.data();
  all.count_ = has_records() ? rows_.records.size() : rows_.samples.size();
  all.records_ = has_records();
  return all;
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/index/shard_index.ipp>
#endif
