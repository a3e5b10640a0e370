// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A condition on a column: {"width", ">=", 256}, {"language", "==", "en"}.
class parquet_condition {
 public:
  /// Like parquet_options::columns; of whole numbers, floats, dates, times or text, and not in a list. It need not be
  /// one that becomes a field.
  std::string column;
  std::string test;  ///< "<", "<=", "==", ">=" or ">"
  /// For dates and times the whole number that the file has. Texts are compared byte by byte.
  std::variant<std::int64_t, double, std::string> value;
};

/// The part of a Parquet file that its samples are made of.
struct parquet_options {
  /// Columns that become fields, in this order: of the file ("label"), or inside structs ("image.bytes"); a struct
  /// means all that is in it. Empty: all columns.
  std::vector<std::string> columns = {};
  /// A column of whole numbers that is the class: each sample has its value as text in the field "cls", too, as
  /// decode_images() and decode_arrays() take it. It is read even if `columns` does not name it. A column "cls" that is
  /// the label itself is this text alone; another one of this name is an error.
  std::string label = {};
  /// Row groups of which the file's statistics say that no row meets all of these conditions are left out: nothing of
  /// them is read, and their rows are no samples and have no numbers. Groups that are left are whole, with rows that do
  /// not meet the conditions: a filter() takes these out. A group without statistics of a column stays.
  std::vector<parquet_condition> where = {};
  /// Bytes of memory that Arrow may take while it decodes a row group, at most. 0: four times what the footer says that
  /// the group takes, and 1 GiB. A group that takes more (texts that repeat, or begin alike, are packed to any share)
  /// is a configuration_error, and no damage.
  std::uint64_t memory = 0;
};

/// The form of a column as a field of a sample.
class parquet_field {
 public:
  std::string name;           ///< "label"; inside of a struct "image.bytes"
  std::optional<dtype> type;  ///< of the elements of numbers; none: text, binary data and decimals
  shape dims;                 ///< of a row: none of a number, {3} of a fixed-size list of three
  bool ragged = false;        ///< a list: a row has as many elements as its bytes hold
  bool text = false;          ///< Unicode text, or a list of texts, and not binary data
  std::string arrow;          ///< the column's type as Arrow shows it: "list<element: int32>", "timestamp[us]"
  /// The kind of its bytes, which all files of a dataset must share: "list of int32", "timestamp[us]". Empty for
  /// a column that has nulls alone.
  std::string meaning;
};

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

class parquet_metadata;

/// Bytes [begin, end) of an object.
struct parquet_stretch {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const parquet_stretch&, const parquet_stretch&) = default;
};

/// A row group: of its columns those that are read.
class parquet_group {
 public:
  std::uint64_t first_row = 0;  ///< in the file
  std::uint64_t rows = 0;
  bool left_out = false;  ///< by parquet_options::where
  /// The memory that they take when they are decoded, as the footer says.
  std::uint64_t decoded = 0;
  /// Their places, in the order of the file, neighbours joined.
  std::vector<parquet_stretch> stretches;
};

/// The footer's entry for a column in a row group.
class parquet_chunk {
 public:
  std::string codec;           ///< as Arrow names it: "snappy", "uncompressed"
  std::uint64_t stored = 0;    ///< bytes of the file
  std::uint64_t unpacked = 0;  ///< of its pages
};

/// The bytes of an object from `begin` on.
class parquet_piece {
 public:
  std::uint64_t begin = 0;
  bytes data;
};

class arrow_column;

/// The rows of a row group, decoded. Fields that are made of them share its memory.
class parquet_rows {
 public:
  explicit parquet_rows(const parquet_group& what);
  parquet_rows(const parquet_rows&) = delete;
  parquet_rows& operator=(const parquet_rows&) = delete;
  ~parquet_rows();

  std::uint64_t first() const noexcept { return first_; }
  std::uint64_t size() const noexcept { return size_; }
  /// Bytes of memory that it holds.
  std::uint64_t memory() const noexcept { return memory_; }
  /// Appends the fields of row `row` of the group. decode_error, with `at`, for a list that contains nulls.
  void fill(std::uint64_t row, std::vector<field>& fields, const where& at) const;

 private:
  friend class parquet_file;
  std::uint64_t first_;
  std::uint64_t size_;
  std::uint64_t memory_ = 0;
  std::shared_ptr<const void> pool_;  // Arrow's, which must outlive the columns
  std::vector<std::unique_ptr<arrow_column>> columns_;
};

/// A Parquet file by its footer (https://parquet.apache.org/docs/file-format/), read by Arrow: of its functions none
/// reads. Errors are archive_errors that name the object, the row group and the column; Arrow's own do not leave it.
/// All const functions may be called by several threads at once.
class parquet_file {
 public:
  /// How much of the end of an object is read first.
  static constexpr std::size_t tail_bytes = 64 * KiB;

  /// How many bytes at the end of an object of `size` bytes are its footer, by the last of them: `tail`, of at least 8
  /// unless the object is shorter. Throws archive_error if the object is no Parquet file, is encrypted, or is too short
  /// for its footer.
  static std::uint64_t footer_bytes(std::string_view tail, std::uint64_t size, const std::string& object);

  /// `footer`: as many bytes of the object's end as footer_bytes() says. Throws archive_error if it is damaged, or
  /// says of a column that is read what cannot be: a place outside of the data, or another column's, more rows or fewer
  /// than the others. configuration_error for columns that are not there, and for those that no field can be made of
  /// (maps, lists of structs, lists in lists in lists).
  parquet_file(std::string_view footer, std::uint64_t size, std::string object, const parquet_options& options);
  parquet_file(const parquet_file&) = delete;
  parquet_file& operator=(const parquet_file&) = delete;
  ~parquet_file();

  const std::vector<parquet_field>& fields() const noexcept { return fields_; }
  std::size_t groups() const noexcept { return groups_.size(); }
  const parquet_group& group(std::size_t i) const noexcept { return groups_[i]; }
  std::uint64_t rows() const noexcept { return rows_; }
  /// The group that has a row of the file, which must be below rows().
  std::size_t group_of(std::uint64_t row) const noexcept;
  /// The chunks of all fields(), in a group.
  std::vector<parquet_chunk> chunks(std::size_t group) const;
  /// The name of a group in errors.
  std::string shown(std::size_t group) const { return "row group " + std::to_string(group); }

  /// Decodes a group on the calling thread, which it keeps busy for as long as that takes. `pieces`: its stretches, in
  /// order, each in one piece or in several that join. Arrow's memory is bounded: see parquet_options::memory.
  std::shared_ptr<const parquet_rows> decode(std::size_t group, std::vector<parquet_piece> pieces) const;

 private:
  std::string object_;
  std::uint64_t memory_;
  std::unique_ptr<const parquet_metadata> metadata_;
  std::vector<parquet_field> fields_;
  std::vector<parquet_group> groups_;
  std::uint64_t rows_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/records/detail/parquet_file.ipp>
#endif
