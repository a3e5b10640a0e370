// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/sample_format.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace {

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

namespace detail {
class line_index_builder;
class object_index_builder;
class array_index;
}  // namespace detail

/// What a shard holds, without its bytes (sample_format):
///
/// - A plain tar: of each sample the hash of its key and where it begins, of each field its extension, place, length
///   and checksum. With it a sample is read by one ranged GET, and verified before it is delivered. Samples and fields
///   are those of group_samples(), in its order. An index_builder makes one. 16 bytes a sample and 16 a field in the
///   file, 24 and 24 in memory, and the texts.
/// - A text file: of each line its place, length and checksum. 16 bytes a line in the file and in memory. index_shard()
///   makes one.
/// - Objects that are samples: of each its path, ETag and size. 2 bytes a sample and 11 an object in the file, 4 and 19
///   in memory, and the path and the ETag (16 bytes where it is an MD5). A dataset makes one of a listing.
///
/// - Rows of arrays: how many there are, and where the arrays are. A dataset makes one; it has no file.
///
/// What it says of a tar or a text file is of one version of the object: check() compares.
///
/// The file (write(), read()), all numbers unsigned and little-endian:
///
///     byte  0   8 bytes  "mrindex" and a line feed
///           8   4        version: 1, of a tar; 2, of the others
///          12   4        flags: bit 0 checksums are there, bit 1 hashes of keys are there (of lines and objects: keys
///                        are known), bit 2 samples' offsets are those of their headers (else of their first body less
///                        512), bits 8 to 15, in version 2, the sample_format; the others 0
///          16   8        length of this index in bytes, all of it
///          24   8        length of the object
///          32   8        S: samples
///          40   8        F: fields of all samples
///          48   4        bytes of the name; 52: of the ETag; 56: X, how many extensions; 60: bytes of their part
///          64            the name; the ETag as the store sends it; each extension: 2 bytes length, and its bytes;
///                        zeros up to a multiple of 16
///             of a tar:
///               16 S     each sample: 8 bytes hash of the key (0: unknown); 6 bytes offset of its first header / 512;
///                        2 bytes number of fields
///               16 F     each field, sample by sample: 4 bytes (offset of its body - offset of the sample) / 512;
///                        4 bytes CRC32C of the body (0: unknown); 5 bytes its length; 3 bytes number of its extension
///             of lines (F = S):
///               16 S     each line: 6 bytes its offset; 6 bytes its length without the line end; 4 bytes its CRC32C
///             of objects:
///               2 S      each sample: number of its objects
///               8 F      each object: 5 bytes its length; 3 bytes number of its extension
///                        each object: 2 bytes length of its path after the name, the path; 1 byte length of its ETag,
///                        the ETag. The length 255 stands for 16 bytes: those whose lower-case hexadecimal digits, in
///                        quotes, are the ETag
///             of all:
///               4        CRC32C of everything before
///
/// A file of several: write_indexes(), read_indexes().
class shard_index {
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

  /// Of the shard, as who made the index calls it; of objects: their folder's, without the slash at its end.
  const std::string& name() const noexcept { return name_; }
  sample_format format() const noexcept { return format_; }
  const std::string& etag() const noexcept {
    return etag_;
  }  ///< of the object that was read; empty: the store has none
  std::uint64_t object_size() const noexcept { return object_size_; }
  std::size_t samples() const noexcept {
    if (format_ == sample_format::tar) return samples_.size();
    return is_lines() ? lines_.size() : is_arrays() ? row_count_ : firsts_.size();
  }
  std::size_t fields() const noexcept {
    if (format_ == sample_format::tar) return fields_.size();
    return is_lines() ? lines_.size() : is_arrays() ? row_count_ * fields_.size() : objects_.size();
  }
  /// Whether field::crc is known: not where only headers were read, nor in foreign indexes.
  bool has_checksums() const noexcept { return (flags_ & with_checksums) != 0; }
  /// Whether key_hash() is known: not in DALI's indexes before v1.2.
  bool has_keys() const noexcept { return (flags_ & with_keys) != 0; }
  /// Whether offset() is a place where a tar::reader may begin: not in DALI's indexes.
  bool has_headers() const noexcept { return (flags_ & with_headers) != 0; }

  std::uint64_t key_hash(std::size_t sample) const {
    return format_ == sample_format::tar ? samples_[sample].key : millrace::key_hash(key(sample));
  }
  /// The sample's key; of a tar empty, as it is only known by its hash. Of a line: the name, `#` and its number. Of a
  /// row: its number.
  std::string key(std::size_t sample) const;
  /// Of the sample's first header, or of the line. Of objects: 0. Of a row: the bytes of those before it.
  std::uint64_t offset(std::size_t sample) const noexcept {
    if (format_ == sample_format::tar) return samples_[sample].offset;
    return is_lines() ? lines_[sample].offset : is_arrays() ? sample * row_bytes() : 0;
  }
  /// The byte after the last one of its last field. A GET requests [offset, end). Of objects: the bytes of all.
  std::uint64_t end(std::size_t sample) const noexcept;
  std::size_t field_count(std::size_t sample) const noexcept {
    if (is_lines()) return 1;
    if (is_arrays()) return fields_.size();
    if (of_objects(format_)) {
      return (sample + 1 < firsts_.size() ? firsts_[sample + 1] : objects_.size()) - firsts_[sample];
    }
    return static_cast<std::size_t>(first_field_behind(sample) - samples_[sample].first_field);
  }
  /// Field `i` of a sample, in the order of the archive.
  field field_at(std::size_t sample, std::size_t i) const noexcept;
  /// Of objects: the one that field `i` of a sample is.
  object object_at(std::size_t sample, std::size_t i) const;

  /// Of rows: the arrays; else null.
  const std::shared_ptr<const arrays>& rows() const noexcept { return rows_; }
  /// Of rows: whether an array of them is in a mapped file, and has to be read.
  bool has_mapped_rows() const noexcept { return mapped_; }

  /// Throws stale_index_error, which names the shard, the ETag and the size, unless they are those that were indexed.
  /// What the store does not know is not compared.
  void check(const shard& listed) const;

  /// 128 bits of all that it says: of the name, the ETag, the size and every row.
  hash128 digest() const noexcept;

  /// The file. Appended to `out`. Of rows there is none: a usage_error.
  void write(std::string& out) const;
  /// How many bytes write() appends.
  std::uint64_t file_bytes() const noexcept {
    if (of_objects(format_)) return rows_begin() + 2 * firsts_.size() + 8 * objects_.size() + paths_.size() + 4;
    return rows_begin() + 16 * (samples_.size() + fields_.size() + lines_.size()) + 4;
  }
  std::string text() const {
    std::string out;
    write(out);
    return out;
  }
  /// Takes the index at the front of `rest`, which loses it. Whatever bytes are given, it throws an index_error that
  /// names `file`, the byte and the reason, or has read what write() wrote.
  static shard_index read(std::string_view& rest, const std::string& file);

  friend bool operator==(const shard_index&, const shard_index&) = default;

 private:
  friend class index_builder;
  friend detail::line_index_builder;
  friend detail::object_index_builder;
  friend detail::array_index;
  static constexpr std::uint32_t with_checksums = 1;
  static constexpr std::uint32_t with_keys = 2;
  static constexpr std::uint32_t with_headers = 4;
  static constexpr std::uint32_t all_flags = 7;
  static constexpr std::size_t head_bytes = 64;
  static constexpr std::string_view magic = "mrindex\n";
  static constexpr std::size_t packed_etag = 255;
  static constexpr std::string_view line_field = "line";

  bool is_lines() const noexcept { return format_ == sample_format::lines; }
  bool is_arrays() const noexcept { return format_ == sample_format::arrays; }
  std::uint64_t row_bytes() const noexcept {
    return fields_.empty() ? 0 : fields_.back().offset + fields_.back().size;
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
  struct line_row {
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
    std::uint32_t crc = 0;
    friend bool operator==(const line_row&, const line_row&) = default;
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
    for (const std::string& e : extensions_) bytes += 2 + e.size();
    return bytes;
  }
  std::size_t rows_begin() const noexcept {
    return head_bytes + (name_.size() + etag_.size() + extension_bytes() + 15) / 16 * 16;
  }
  std::uint64_t first_field_behind(std::size_t sample) const noexcept {
    return sample + 1 < samples_.size() ? samples_[sample + 1].first_field : fields_.size();
  }

  std::string name_;
  std::string etag_;
  std::uint64_t object_size_ = 0;
  std::uint32_t flags_ = 0;
  std::vector<std::string> extensions_;
  sample_format format_ = sample_format::tar;
  std::vector<sample_row> samples_;  // of a tar
  std::vector<field_row> fields_;
  std::vector<line_row> lines_;          // of lines
  std::vector<std::uint32_t> firsts_;    // of objects: each sample's first one
  std::vector<object_row> objects_;
  std::string paths_;  // and ETags, as in the file; of rows: the arrays' names, types and shapes
  std::shared_ptr<const arrays> rows_;  // of rows; fields_ are those of the first one
  std::size_t row_count_ = 0;
  bool mapped_ = false;
};

/// The head of a file of several indexes. It says how much follows, so that a file that was cut between two of them is
/// refused. All numbers unsigned and little-endian:
///
///     byte  0   8 bytes  "mrindset"
///           8   4        version: 1
///          12   4        CRC32C of the other 28 bytes
///          16   8        how many indexes follow
///          24   8        how many bytes these have
class index_file_head {
 public:
  static constexpr std::size_t bytes = 32;

  index_file_head() = default;
  /// Of a range of shard_index.
  template <class Indexes>
  explicit index_file_head(const Indexes& indexes) {
    for (const shard_index& index : indexes) {
      ++count_;
      length_ += index.file_bytes();
    }
  }

  std::uint64_t count() const noexcept { return count_; }
  std::uint64_t length() const noexcept { return length_; }

  std::string text() const;
  /// Whether a head stands at the front of `text`: files of before it had none.
  static bool is_at(std::string_view text) noexcept { return text.substr(0, 8) == magic; }
  /// The head at the front of `text`, byte `at` of the file, of whose bytes `left` are there from here. index_error
  /// where it is damaged or less follows than it says.
  static index_file_head read(std::string_view text, const std::string& file, std::uint64_t at, std::uint64_t left);

 private:
  static constexpr std::string_view magic = "mrindset";

  std::string sealed(std::uint32_t crc) const;

  std::uint64_t count_ = 0;
  std::uint64_t length_ = 0;
};

/// The file of a range of shard_index. Appended to `out`. Such files may be appended to one another.
template <class Indexes>
void write_indexes(const Indexes& indexes, std::string& out) {
  out += index_file_head(indexes).text();
  for (const shard_index& index : indexes) index.write(out);
}

namespace detail {
template <class Read>
std::vector<shard_index> read_index_file(std::uint64_t size, const std::string& file, Read read);
}

/// All the indexes of a file, in its order, of write_indexes() or of shard_index::write() alone: of those nothing says
/// how many there were. Errors: those of shard_index::read(), and fewer bytes or indexes than the file's head says; a
/// file of no index is one too.
std::vector<shard_index> read_indexes(std::string_view text, const std::string& file);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::uint64_t shard_index::end(std::size_t sample) const noexcept {
  if (is_lines()) return lines_[sample].offset + lines_[sample].size;
  if (of_objects(format_)) {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < field_count(sample); ++i) bytes += object_row_at(sample, i).size;
    return bytes;
  }
  if (is_arrays()) return (sample + 1) * row_bytes();
  const field_row& last = fields_[static_cast<std::size_t>(first_field_behind(sample) - 1)];
  return last.offset + last.size;
}

inline shard_index::field shard_index::field_at(std::size_t sample, std::size_t i) const noexcept {
  field out;
  if (is_lines()) {
    const line_row& row = lines_[sample];
    out.extension = line_field;
    out.offset = row.offset;
    out.size = row.size;
    out.crc = row.crc;
    return out;
  }
  if (of_objects(format_)) {
    const object_row& row = object_row_at(sample, i);
    out.extension = extensions_[row.extension];
    out.size = row.size;
    return out;
  }
  const field_row& row = fields_[is_arrays() ? i : static_cast<std::size_t>(samples_[sample].first_field) + i];
  out.extension = extensions_[row.extension];
  out.offset = row.offset;
  out.size = row.size;
  out.crc = row.crc;
  if (is_arrays()) out.offset += sample * row_bytes();
  return out;
}

inline shard_index::object shard_index::object_at(std::size_t sample, std::size_t i) const {
  constexpr char digits[] = "0123456789abcdef";
  std::size_t at = object_row_at(sample, i).path;
  object out;
  const auto length = static_cast<std::size_t>(detail::read_le(paths_, at, 2));
  out.path = std::string_view(paths_).substr(at + 2, length);
  at += 2 + length;
  const auto etag = static_cast<std::size_t>(detail::read_le(paths_, at, 1));
  if (etag != packed_etag) {
    out.etag = paths_.substr(at + 1, etag);
    return out;
  }
  out.etag = '"';
  for (const char c : std::string_view(paths_).substr(at + 1, 16)) {
    out.etag += digits[static_cast<unsigned char>(c) >> 4];
    out.etag += digits[static_cast<unsigned char>(c) & 15];
  }
  out.etag += '"';
  return out;
}

inline std::string shard_index::key(std::size_t sample) const {
  if (format_ == sample_format::tar) return {};
  if (is_lines()) return name_ + '#' + std::to_string(sample);
  if (is_arrays()) return std::to_string(sample);
  const std::string_view path = object_at(sample, 0).path;
  // The object's name is its key, a dot or a slash, and what its field is called.
  const std::size_t its = extensions_[object_row_at(sample, 0).extension].size();
  const std::string_view own = path.substr(0, path.size() > its ? path.size() - its - 1 : 0);
  if (name_.empty()) return std::string(own);
  return name_ + '/' + std::string(own);
}

inline void shard_index::check(const shard& listed) const {
  const bool other_size = listed.size && *listed.size != object_size_;
  const bool other_etag = !listed.etag.empty() && !etag_.empty() && !millrace::detail::same_etag(listed.etag, etag_);
  if (!other_size && !other_etag) return;
  std::string reason = "the index \"" + name_ + "\" is of another version of this shard:";
  if (other_size) {
    reason += " it had " + std::to_string(object_size_) + " bytes and has " + std::to_string(*listed.size);
  }
  if (other_etag)
    reason += std::string(other_size ? ", its" : " its") + " ETag was " + etag_ + " and is " + listed.etag;
  throw stale_index_error(std::move(reason), where{listed.shown(), std::nullopt, {}});
}

inline hash128 shard_index::digest() const noexcept {
  hasher128 h;
  h.add(name_);
  h.add(etag_);
  h.add(object_size_);
  h.add(flags_);
  h.add(samples_.size());
  for (const std::string& e : extensions_) h.add(e);
  for (const sample_row& s : samples_) {
    h.add(s.key);
    h.add(s.offset);
    h.add(s.first_field);
  }
  for (const field_row& f : fields_) {
    h.add(f.offset);
    h.add(f.size);
    h.add(std::uint64_t{f.crc} << 32 | f.extension);
  }
  if (format_ == sample_format::tar) return h.value();
  h.add(static_cast<std::uint64_t>(format_));
  for (const line_row& l : lines_) {
    h.add(l.offset);
    h.add(std::uint64_t{l.crc} << 32 | l.size);
  }
  for (const std::uint32_t first : firsts_) h.add(std::uint64_t{first});
  for (const object_row& o : objects_) {
    h.add(o.size);
    h.add(std::uint64_t{o.extension});
  }
  h.add(paths_);
  return h.value();
}

inline void shard_index::write(std::string& out) const {
  if (is_arrays()) detail::misused("the index of arrays was written: it belongs to their memory");
  const std::size_t start = out.size();
  const std::size_t rows = rows_begin();
  const std::uint64_t length = file_bytes();
  out.reserve(start + static_cast<std::size_t>(length));
  out += magic;
  detail::append_le(out, format_ == sample_format::tar ? 1 : 2, 4);
  detail::append_le(out, flags_ | static_cast<std::uint32_t>(format_) << 8, 4);
  detail::append_le(out, length, 8);
  detail::append_le(out, object_size_, 8);
  detail::append_le(out, samples(), 8);
  detail::append_le(out, fields(), 8);
  detail::append_le(out, name_.size(), 4);
  detail::append_le(out, etag_.size(), 4);
  detail::append_le(out, extensions_.size(), 4);
  detail::append_le(out, extension_bytes(), 4);
  out += name_;
  out += etag_;
  for (const std::string& e : extensions_) {
    detail::append_le(out, e.size(), 2);
    out += e;
  }
  out.resize(start + rows, '\0');
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    detail::append_le(out, samples_[i].key, 8);
    detail::append_le(out, samples_[i].offset / 512, 6);
    detail::append_le(out, field_count(i), 2);
  }
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    for (std::size_t k = 0; k < field_count(i); ++k) {
      const field_row& f = fields_[static_cast<std::size_t>(samples_[i].first_field) + k];
      detail::append_le(out, (f.offset - samples_[i].offset) / 512, 4);
      detail::append_le(out, f.crc, 4);
      detail::append_le(out, f.size, 5);
      detail::append_le(out, f.extension, 3);
    }
  }
  for (const line_row& l : lines_) {
    detail::append_le(out, l.offset, 6);
    detail::append_le(out, l.size, 6);
    detail::append_le(out, l.crc, 4);
  }
  for (std::size_t i = 0; i < firsts_.size(); ++i) detail::append_le(out, field_count(i), 2);
  for (const object_row& o : objects_) {
    detail::append_le(out, o.size, 5);
    detail::append_le(out, o.extension, 3);
  }
  out += paths_;
  detail::append_le(out, crc32c(0, out.data() + start, out.size() - start), 4);
}

/// One reading: it knows where it is, for its errors.
class shard_index::parser {
 public:
  parser(std::string_view text, const std::string& file, std::size_t base) : text_(text), file_(file), base_(base) {}

  shard_index parse() {
    shard_index out;
    head(out);
    texts(out);
    switch (out.format_) {
      case sample_format::tar:
        samples(out);
        fields(out);
        break;
      case sample_format::lines:
        lines(out);
        break;
      default:
        objects(out);
    }
    return out;
  }
  std::size_t length() const noexcept { return text_.size(); }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& reason) const {
    throw index_error(reason, where{file_, base_ + at, {}});
  }
  std::uint64_t number(std::size_t at, int bytes) const noexcept { return detail::read_le(text_, at, bytes); }

  void head(shard_index& out) {
    if (text_.size() < head_bytes) fail(text_.size(), "the index is cut: its head has 64 bytes");
    if (text_.substr(0, 8) != magic) fail(0, "not an index: it does not begin with \"mrindex\"");
    const std::uint64_t version = number(8, 4);
    if (version != 1 && version != 2) {
      fail(8, "the index has version " + std::to_string(version) + "; this program reads versions 1 and 2");
    }
    const std::uint64_t length = number(16, 8);
    if (length > text_.size()) {
      fail(text_.size(),
           "the index is cut: " + std::to_string(text_.size()) + " of " + std::to_string(length) + " bytes are there");
    }
    if (length < head_bytes + 4) fail(16, "the index says that it has " + std::to_string(length) + " bytes");
    text_ = text_.substr(0, static_cast<std::size_t>(length));
    const std::size_t checked = text_.size() - 4;
    if (number(checked, 4) != crc32c(0, text_.data(), checked)) fail(checked, "the index has a wrong checksum");
    // What follows is as write() wrote it, or forged.
    out.flags_ = static_cast<std::uint32_t>(number(12, 4));
    const std::uint64_t format = version == 1 ? 0 : number(13, 1);
    if (version == 2) out.flags_ &= ~0xff00U;
    if ((out.flags_ & ~all_flags) != 0) {
      fail(12, "the index has flags that version " + std::to_string(version) + " does not know");
    }
    if (version == 2 && (format == 0 || format > static_cast<std::uint64_t>(sample_format::folders))) {
      fail(13, "the index is of a format that version 2 does not know");
    }
    out.format_ = static_cast<sample_format>(format);
    out.object_size_ = number(24, 8);
    const std::uint64_t texts = number(48, 4) + number(52, 4) + number(60, 4);
    rows_ = head_bytes + (texts + 15) / 16 * 16;
    const std::uint64_t samples = number(32, 8);
    const std::uint64_t fields = number(40, 8);
    const std::uint64_t most = (length - 4) / 2;  // so that no sum overflows
    bool fits = samples <= most && fields <= most;
    if (out.format_ == sample_format::tar) {
      fits = fits && rows_ + 16 * (samples + fields) + 4 == length;
    } else if (out.format_ == sample_format::lines) {
      fits = fits && samples == fields && rows_ + 16 * samples + 4 == length;
    } else {
      fits = fits && samples <= UINT32_MAX && fields <= UINT32_MAX && rows_ + 2 * samples + 8 * fields + 4 <= length;
    }
    if (!fits) fail(16, "the numbers of samples and fields contradict the index's length");
  }
  void texts(shard_index& out) {
    std::size_t at = head_bytes;
    const auto take = [&](std::uint64_t n) {
      const std::string_view text = text_.substr(at, static_cast<std::size_t>(n));
      at += text.size();
      return std::string(text);
    };
    out.name_ = take(number(48, 4));
    out.etag_ = take(number(52, 4));
    const std::size_t end = at + static_cast<std::size_t>(number(60, 4));
    for (std::uint64_t i = number(56, 4); i > 0; --i) {
      if (end - at < 2 || end - at - 2 < number(at, 2)) fail(at, "an extension reaches beyond its part of the index");
      at += 2;
      out.extensions_.push_back(take(number(at - 2, 2)));
    }
    if (at != end) fail(at, "there is something after the extensions");
    for (; at < rows_; ++at) {
      if (text_[at] != '\0') fail(at, "there is something after the texts");
    }
  }
  void samples(shard_index& out) {
    const std::uint64_t count = number(32, 8);
    out.samples_.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::size_t at = rows_ + static_cast<std::size_t>(16 * i);
      sample_row row;
      row.key = number(at, 8);
      row.offset = number(at + 8, 6) * 512;
      row.first_field = next_field_;
      if (number(at + 14, 2) == 0) fail(at + 14, "a sample has no fields");
      next_field_ += number(at + 14, 2);
      if ((out.flags_ & with_keys) == 0 && row.key != 0) fail(at, "a key has a hash, and the flags say that none has");
      out.samples_.push_back(row);
    }
    if (next_field_ != number(40, 8)) fail(40, "the samples do not have as many fields as the index");
  }
  void fields(shard_index& out) {
    out.fields_.reserve(static_cast<std::size_t>(next_field_));
    std::size_t at = rows_ + 16 * out.samples_.size();
    std::uint64_t behind = 0;  // of what the object holds
    for (std::size_t i = 0; i < out.samples_.size(); ++i) {
      const std::uint64_t offset = out.samples_[i].offset;
      if (offset < behind) fail(rows_ + 16 * i + 8, "a sample begins before the one before it ends");
      behind = offset;
      const std::uint64_t last = i + 1 < out.samples_.size() ? out.samples_[i + 1].first_field : next_field_;
      for (std::uint64_t k = out.samples_[i].first_field; k < last; ++k, at += 16) {
        field_row row;
        row.offset = offset + 512 * number(at, 4);
        row.crc = static_cast<std::uint32_t>(number(at + 4, 4));
        row.size = number(at + 8, 5);
        row.extension = static_cast<std::uint32_t>(number(at + 13, 3));
        if (row.offset < behind + 512) fail(at, "a field begins before the one before it ends");
        if (row.offset > out.object_size_ || row.size > out.object_size_ - row.offset) {
          fail(at, "a field reaches beyond the object's end");
        }
        if (row.extension >= out.extensions_.size()) fail(at + 13, "a field has an extension that is not there");
        if ((out.flags_ & with_checksums) == 0 && row.crc != 0) {
          fail(at + 4, "a field has a checksum, and the flags say that none has");
        }
        behind = row.offset + row.size;
        out.fields_.push_back(row);
      }
    }
  }

  void lines(shard_index& out) {
    const std::uint64_t count = number(32, 8);
    out.lines_.reserve(static_cast<std::size_t>(count));
    std::uint64_t least = 0;  // where the next line begins at the earliest
    for (std::size_t at = rows_; out.lines_.size() < count; at += 16) {
      line_row row;
      row.offset = number(at, 6);
      const std::uint64_t size = number(at + 6, 6);
      row.crc = static_cast<std::uint32_t>(number(at + 12, 4));
      if (row.offset < least) fail(at, "a line begins before the one before it ends");
      if (row.offset > out.object_size_ || size > out.object_size_ - row.offset) {
        fail(at + 6, "a line reaches beyond the object's end");
      }
      if (size > UINT32_MAX) fail(at + 6, "a line has 4 GiB or more");
      row.size = static_cast<std::uint32_t>(size);
      least = row.offset + size + 1;
      out.lines_.push_back(row);
    }
  }
  void objects(shard_index& out) {
    const auto samples = static_cast<std::size_t>(number(32, 8));
    const auto fields = static_cast<std::size_t>(number(40, 8));
    out.firsts_.reserve(samples);
    std::uint64_t first = 0;
    std::size_t at = rows_;
    for (std::size_t i = 0; i < samples; ++i, at += 2) {
      if (number(at, 2) == 0) fail(at, "a sample has no objects");
      out.firsts_.push_back(static_cast<std::uint32_t>(first));
      first += number(at, 2);
      if (first > fields) break;
    }
    if (first != fields) fail(40, "the samples do not have as many objects as the index");
    out.objects_.reserve(fields);
    for (std::size_t i = 0; i < fields; ++i, at += 8) {
      object_row row;
      row.size = number(at, 5);
      row.extension = static_cast<std::uint32_t>(number(at + 5, 3));
      if (row.extension >= out.extensions_.size()) fail(at + 5, "an object has an extension that is not there");
      out.objects_.push_back(row);
    }
    const std::size_t end = text_.size() - 4;
    if (end - at > UINT32_MAX) fail(at, "the paths have 4 GiB or more");
    out.paths_ = text_.substr(at, end - at);
    const std::size_t begin = at;
    for (object_row& row : out.objects_) {
      row.path = static_cast<std::uint32_t>(at - begin);
      at = passed(at, 2, end);
      const std::size_t etag = at;
      if (etag == end) fail(at, "an object has no ETag");
      at = number(at, 1) == packed_etag ? etag + 1 + 16 : passed(at, 1, end);
      if (at > end) fail(etag, "an ETag reaches beyond the index");
    }
    if (at != end) fail(at, "there is something after the paths");
  }
  /// The byte after a text that is preceded by its length in so many bytes.
  std::size_t passed(std::size_t at, int bytes, std::size_t end) const {
    const auto width = static_cast<std::size_t>(bytes);
    if (end - at < width || end - at - width < number(at, bytes)) fail(at, "a text reaches beyond the index");
    return at + width + static_cast<std::size_t>(number(at, bytes));
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t base_;
  std::size_t rows_ = 0;
  std::uint64_t next_field_ = 0;
};

inline shard_index shard_index::read(std::string_view& rest, const std::string& file) {
  parser p(rest, file, 0);
  shard_index out = p.parse();
  rest.remove_prefix(p.length());
  return out;
}

inline std::string index_file_head::sealed(std::uint32_t crc) const {
  std::string out(magic);
  detail::append_le(out, 1, 4);
  detail::append_le(out, crc, 4);
  detail::append_le(out, count_, 8);
  detail::append_le(out, length_, 8);
  return out;
}

inline std::string index_file_head::text() const {
  const std::string open = sealed(0);
  return sealed(crc32c(0, open.data(), open.size()));
}

inline index_file_head index_file_head::read(std::string_view text, const std::string& file, std::uint64_t at,
                                             std::uint64_t left) {
  const auto fail = [&](std::uint64_t byte, const std::string& reason) {
    throw index_error(reason, where{file, at + byte, {}});
  };
  if (text.size() < bytes) fail(text.size(), "the index is cut: the head of its file has 32 bytes");
  if (const std::uint64_t version = detail::read_le(text, 8, 4); version != 1) {
    fail(8, "the file of the index has version " + std::to_string(version) + "; this program reads version 1");
  }
  index_file_head head;
  head.count_ = detail::read_le(text, 16, 8);
  head.length_ = detail::read_le(text, 24, 8);
  if (text.substr(0, bytes) != head.text()) fail(12, "the head of the index has a wrong checksum");
  if (head.length_ > left - bytes) {
    fail(left, "the index is cut: " + std::to_string(left - bytes) + " of " + std::to_string(head.length_) +
                   " bytes are there");
  }
  if (head.count_ == 0) fail(16, "the file has no index");
  return head;
}

/// All the indexes of a file of `size` bytes, one at a time: `read(at, n)` gives `n` bytes of it, which stay until its
/// next call.
template <class Read>
std::vector<shard_index> detail::read_index_file(std::uint64_t size, const std::string& file, Read read) {
  if (size == 0) throw index_error("the file is empty", where{file, 0, {}});
  constexpr std::uint64_t front_bytes = 64;
  std::vector<shard_index> all;
  std::uint64_t at = 0;
  while (at < size) {
    std::string_view front = read(at, std::min(size - at, front_bytes));
    const bool headed = index_file_head::is_at(front);
    std::uint64_t end = size;
    std::uint64_t promised = 0;
    if (headed) {
      const index_file_head head = index_file_head::read(front, file, at, size - at);
      at += index_file_head::bytes;
      end = at + head.length();
      promised = all.size() + head.count();
    }
    do {
      front = read(at, std::min(end - at, front_bytes));
      if (!headed && index_file_head::is_at(front)) break;
      // A length that is wrong is found by the index's own reading.
      const std::uint64_t length =
          front.size() < front_bytes ? front.size() : std::clamp(read_le(front, 16, 8), front_bytes, end - at);
      const std::string_view text = read(at, length);
      std::string_view rest = text;
      try {
        all.push_back(shard_index::read(rest, file));
      } catch (const index_error& e) {
        throw index_error(e.reason(), where{file, at + e.offset().value_or(0), {}});
      }
      at += text.size() - rest.size();
    } while (at < end);
    if (headed && all.size() != promised) {
      throw index_error("the head of the file says that it has another number of indexes", where{file, at, {}});
    }
  }
  return all;
}

inline std::vector<shard_index> read_indexes(std::string_view text, const std::string& file) {
  return detail::read_index_file(text.size(), file, [text](std::uint64_t at, std::uint64_t n) {
    return text.substr(static_cast<std::size_t>(at), static_cast<std::size_t>(n));
  });
}

}  // namespace millrace
