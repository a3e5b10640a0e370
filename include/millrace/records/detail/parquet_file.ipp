// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/util/compression.h>
#include <arrow/util/future.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/statistics.h>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/records/detail/arrow_column.hpp>
#include <millrace/records/detail/parquet_file.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Blocks of memory that Arrow decodes into, for the whole process. Free blocks are kept, up to 256 MiB: a row group is
/// given back when its last row is, on another thread and long after it was decoded, and Arrow's allocator has the
/// system take such memory away, so that each group would touch new pages.
class arrow_blocks {
 public:
  static constexpr std::int64_t least = 256 * KiB;
  static constexpr std::int64_t most_spare = 256 * MiB;
  /// The size of a block stands before its memory.
  static constexpr std::int64_t head = 64;

  /// One of at least `size` bytes, and less than twice as many where it was free.
  static ::arrow::Status take(std::int64_t size, std::uint8_t** out) {
    {
      spare& free = spares();
      const std::lock_guard lock(free.mutex);
      auto best = free.blocks.end();
      for (auto at = free.blocks.begin(); at != free.blocks.end(); ++at) {
        const std::int64_t there = capacity(*at);
        if (there >= size && there / 2 <= size && (best == free.blocks.end() || there < capacity(*best))) best = at;
      }
      if (best != free.blocks.end()) {
        *out = *best;
        free.bytes -= capacity(*best);
        free.blocks.erase(best);
        return ::arrow::Status::OK();
      }
    }
    constexpr std::int64_t page = 64 * KiB;
    const std::int64_t there = (size + page - 1) / page * page;
    std::uint8_t* made = nullptr;
    ARROW_RETURN_NOT_OK(::arrow::default_memory_pool()->Allocate(there + head, head, &made));
    std::memcpy(made, &there, sizeof there);
    *out = made + head;
    return ::arrow::Status::OK();
  }
  static void give_back(std::uint8_t* block) {
    const std::int64_t there = capacity(block);
    {
      spare& free = spares();
      const std::lock_guard lock(free.mutex);
      if (there + free.bytes <= most_spare) {
        free.blocks.push_back(block);
        free.bytes += there;
        return;
      }
    }
    ::arrow::default_memory_pool()->Free(block - head, there + head, head);
  }
  static std::int64_t capacity(const std::uint8_t* block) noexcept {
    std::int64_t there = 0;
    std::memcpy(&there, block - head, sizeof there);
    return there;
  }

 private:
  struct spare {
    std::mutex mutex;
    std::vector<std::uint8_t*> blocks;
    std::int64_t bytes = 0;
  };
  /// Never destroyed: rows may be dropped by the destructors of other globals.
  static spare& spares() {
    static spare* const all = new spare;
    return *all;
  }
};

/// Arrow's memory of one group, with a bound: what a damaged page says of its length is no reason to take as much.
class bounded_arrow_pool final : public ::arrow::MemoryPool {
 public:
  explicit bounded_arrow_pool(std::int64_t most) noexcept : most_(most) {}

  using ::arrow::MemoryPool::Allocate;
  using ::arrow::MemoryPool::Free;
  using ::arrow::MemoryPool::Reallocate;

  /// Sets the expected final size of a buffer that grows.
  void expect(std::int64_t size) noexcept { expected_ = size; }
  /// True if the bound has refused memory since the last call.
  bool refused() noexcept { return refused_.exchange(false); }

  ::arrow::Status Allocate(std::int64_t size, std::int64_t alignment, std::uint8_t** out) override {
    ARROW_RETURN_NOT_OK(take(size));
    ::arrow::Status made =
        is_block(size, alignment) ? arrow_blocks::take(size, out) : from_->Allocate(size, alignment, out);
    if (!made.ok()) held_ -= size;
    return made;
  }
  ::arrow::Status Reallocate(std::int64_t before, std::int64_t size, std::int64_t alignment,
                             std::uint8_t** data) override {
    ARROW_RETURN_NOT_OK(take(size - before));
    ::arrow::Status made = reallocate(before, size, alignment, data);
    if (!made.ok()) held_ -= size - before;
    return made;
  }
  void Free(std::uint8_t* data, std::int64_t size, std::int64_t alignment) override {
    release(data, size, alignment);
    held_ -= size;
  }
  std::int64_t bytes_allocated() const override { return held_; }
  std::int64_t total_bytes_allocated() const override { return taken_; }
  std::int64_t num_allocations() const override { return count_; }
  std::string backend_name() const override { return from_->backend_name(); }

 private:
  static bool is_block(std::int64_t size, std::int64_t alignment) noexcept {
    return size >= arrow_blocks::least && alignment <= arrow_blocks::head;
  }
  void release(std::uint8_t* data, std::int64_t size, std::int64_t alignment) {
    is_block(size, alignment) ? arrow_blocks::give_back(data) : from_->Free(data, size, alignment);
  }
  /// A block stays where it is, as long as it is large enough and a quarter of it is used.
  ::arrow::Status reallocate(std::int64_t before, std::int64_t size, std::int64_t alignment, std::uint8_t** data) {
    const bool was_block = is_block(before, alignment);
    const bool is = is_block(size, alignment);
    if (!was_block && !is) return from_->Reallocate(before, size, alignment, data);
    if (was_block && is) {
      const std::int64_t there = arrow_blocks::capacity(*data);
      if (size <= there && size >= there / 4) return ::arrow::Status::OK();
      if (size <= there && size > before) return ::arrow::Status::OK();
    }
    std::uint8_t* moved = nullptr;
    if (is) {
      // Arrow doubles a buffer that grows, beyond its final size, and each time all would be copied. Pages of a block
      // that are not touched take no memory.
      const std::int64_t wanted = size > before ? std::clamp(2 * expected_, size, 64 * size) : size;
      ARROW_RETURN_NOT_OK(arrow_blocks::take(wanted, &moved));
    } else {
      ARROW_RETURN_NOT_OK(from_->Allocate(size, alignment, &moved));
    }
    std::memcpy(moved, *data, static_cast<std::size_t>(std::min(before, size)));
    release(*data, before, alignment);
    *data = moved;
    return ::arrow::Status::OK();
  }
  ::arrow::Status take(std::int64_t more) {
    const std::int64_t now = held_ += more;
    if (more > 0 && (now > most_ || now < 0)) {
      held_ -= more;
      refused_ = true;
      return ::arrow::Status::OutOfMemory("it takes more memory than ", most_, " bytes");
    }
    if (more > 0) taken_ += more;
    ++count_;
    return ::arrow::Status::OK();
  }

  ::arrow::MemoryPool* const from_ = ::arrow::default_memory_pool();
  const std::int64_t most_;
  std::int64_t expected_ = 0;  // set and read by the thread that decodes
  std::atomic<bool> refused_{false};
  std::atomic<std::int64_t> held_{0};
  std::atomic<std::int64_t> taken_{0};
  std::atomic<std::int64_t> count_{0};
};

/// A slice of the bytes read, as Arrow takes it.
class arrow_slice final : public ::arrow::Buffer {
 public:
  explicit arrow_slice(bytes of)
      : ::arrow::Buffer(reinterpret_cast<const std::uint8_t*>(of.data()), static_cast<std::int64_t>(of.size())),
        of_(std::move(of)) {}

 private:
  const bytes of_;
};

/// The bytes that were read of a file. Others are an error, never a wait.
class fetched_file final : public ::arrow::io::RandomAccessFile {
 public:
  fetched_file(std::uint64_t size, std::vector<parquet_piece> pieces, ::arrow::MemoryPool* pool)
      : size_(static_cast<std::int64_t>(size)), pieces_(std::move(pieces)), pool_(pool) {
    std::sort(pieces_.begin(), pieces_.end(),
              [](const parquet_piece& a, const parquet_piece& b) { return a.begin < b.begin; });
  }

  ::arrow::Result<std::int64_t> GetSize() override { return size_; }
  /// Without a copy where it is in one piece.
  ::arrow::Result<std::shared_ptr<::arrow::Buffer>> ReadAt(std::int64_t at, std::int64_t length) override {
    ARROW_ASSIGN_OR_RAISE(const std::size_t first, piece_of(at, length));
    const parquet_piece& p = pieces_[first];
    const std::size_t from = static_cast<std::size_t>(static_cast<std::uint64_t>(at) - p.begin);
    const auto count = static_cast<std::size_t>(length);
    if (from + count <= p.data.size()) {
      return std::static_pointer_cast<::arrow::Buffer>(std::make_shared<arrow_slice>(p.data.slice(from, count)));
    }
    ARROW_ASSIGN_OR_RAISE(std::unique_ptr<::arrow::Buffer> joined, ::arrow::AllocateBuffer(length, pool_));
    ARROW_RETURN_NOT_OK(copy(first, at, length, joined->mutable_data()));
    return std::shared_ptr<::arrow::Buffer>(std::move(joined));
  }
  ::arrow::Result<std::int64_t> ReadAt(std::int64_t at, std::int64_t length, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const std::size_t first, piece_of(at, length));
    ARROW_RETURN_NOT_OK(copy(first, at, length, out));
    return length;
  }
  ::arrow::Future<std::shared_ptr<::arrow::Buffer>> ReadAsync(const ::arrow::io::IOContext&, std::int64_t at,
                                                              std::int64_t length) override {
    return ::arrow::Future<std::shared_ptr<::arrow::Buffer>>::MakeFinished(ReadAt(at, length));
  }
  bool supports_zero_copy() const override { return true; }
  ::arrow::Status Close() override { return ::arrow::Status::OK(); }
  bool closed() const override { return false; }
  ::arrow::Result<std::int64_t> Tell() const override { return at_; }
  ::arrow::Status Seek(std::int64_t at) override {
    at_ = at;
    return ::arrow::Status::OK();
  }
  ::arrow::Result<std::int64_t> Read(std::int64_t length, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const std::int64_t came, ReadAt(at_, length, out));
    at_ += came;
    return came;
  }
  ::arrow::Result<std::shared_ptr<::arrow::Buffer>> Read(std::int64_t length) override {
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<::arrow::Buffer> came, ReadAt(at_, length));
    at_ += length;
    return came;
  }

 private:
  using ::arrow::io::RandomAccessFile::ReadAsync;
  using ::arrow::io::RandomAccessFile::ReadAt;

  ::arrow::Status outside(std::int64_t at, std::int64_t length) const {
    return ::arrow::Status::IOError("bytes ", at, " to ", at + length, " are none that its footer names");
  }
  /// The one that has the first byte.
  ::arrow::Result<std::size_t> piece_of(std::int64_t at, std::int64_t length) const {
    if (at < 0 || length < 0 || at > size_ || length > size_ - at) return outside(at, length);
    const auto begin = static_cast<std::uint64_t>(at);
    const auto next = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                                       [](std::uint64_t x, const parquet_piece& p) { return x < p.begin; });
    if (next == pieces_.begin()) return outside(at, length);
    const auto found = static_cast<std::size_t>(next - pieces_.begin() - 1);
    if (begin - pieces_[found].begin > pieces_[found].data.size()) return outside(at, length);
    return found;
  }
  ::arrow::Status copy(std::size_t piece, std::int64_t at, std::int64_t length, void* out) const {
    auto begin = static_cast<std::uint64_t>(at);
    const std::uint64_t end = begin + static_cast<std::uint64_t>(length);
    auto* to = static_cast<char*>(out);
    for (; begin < end; ++piece) {
      if (piece == pieces_.size() || pieces_[piece].begin > begin) return outside(at, length);
      const bytes& data = pieces_[piece].data;
      const auto from = static_cast<std::size_t>(begin - pieces_[piece].begin);
      if (from >= data.size()) return outside(at, length);
      const std::size_t count = std::min(data.size() - from, static_cast<std::size_t>(end - begin));
      std::memcpy(to, data.data() + from, count);
      to += count;
      begin += count;
    }
    return ::arrow::Status::OK();
  }

  const std::int64_t size_;
  std::vector<parquet_piece> pieces_;
  ::arrow::MemoryPool* const pool_;
  std::int64_t at_ = 0;
};

inline constexpr std::int64_t most_of_group = std::int64_t{1} << 40;

/// A condition on a column of a file.
class parquet_test {
 public:
  enum class kind { less, at_most, equal, at_least, more };

  static std::optional<kind> kind_of(const std::string& text) noexcept {
    constexpr const char* names[] = {"<", "<=", "==", ">=", ">"};
    for (int i = 0; i < 5; ++i) {
      if (text == names[i]) return static_cast<kind>(i);
    }
    return std::nullopt;
  }

  int column = 0;
  bool is_unsigned = false;
  kind test = kind::equal;
  std::variant<std::int64_t, double, std::string> value;

  /// True if a row of a group of `rows` rows, of whose column these are the statistics, may meet it.
  bool may_hold(const ::parquet::Statistics* s, std::uint64_t rows) const {
    if (s == nullptr) return true;
    if (s->HasNullCount() && s->null_count() >= 0 && static_cast<std::uint64_t>(s->null_count()) == rows) return false;
    if (!s->HasMinMax()) return true;
    switch (s->physical_type()) {
      case ::parquet::Type::INT32: {
        const auto& of = static_cast<const ::parquet::Int32Statistics&>(*s);
        return is_unsigned ? number_between(static_cast<std::uint32_t>(of.min()), static_cast<std::uint32_t>(of.max()))
                           : number_between(of.min(), of.max());
      }
      case ::parquet::Type::INT64: {
        const auto& of = static_cast<const ::parquet::Int64Statistics&>(*s);
        return is_unsigned ? number_between(static_cast<std::uint64_t>(of.min()), static_cast<std::uint64_t>(of.max()))
                           : number_between(of.min(), of.max());
      }
      case ::parquet::Type::FLOAT: {
        const auto& of = static_cast<const ::parquet::FloatStatistics&>(*s);
        return number_between(of.min(), of.max());
      }
      case ::parquet::Type::DOUBLE: {
        const auto& of = static_cast<const ::parquet::DoubleStatistics&>(*s);
        return number_between(of.min(), of.max());
      }
      case ::parquet::Type::BYTE_ARRAY: {
        const auto& of = static_cast<const ::parquet::ByteArrayStatistics&>(*s);
        const std::string* const text = std::get_if<std::string>(&value);
        return text == nullptr || between(view_of(of.min()), view_of(of.max()), std::string_view(*text));
      }
      default:
        return true;
    }
  }

 private:
  static std::string_view view_of(const ::parquet::ByteArray& a) noexcept {
    return {reinterpret_cast<const char*>(a.ptr), a.len};
  }
  /// A long double has every number of 64 bits.
  template <class T>
  bool number_between(T least, T most) const {
    const std::int64_t* const whole = std::get_if<std::int64_t>(&value);
    const double* const real = std::get_if<double>(&value);
    if (whole == nullptr && real == nullptr) return true;
    const auto v = whole != nullptr ? static_cast<long double>(*whole) : static_cast<long double>(*real);
    return between(static_cast<long double>(least), static_cast<long double>(most), v);
  }
  /// Values without an order (also not a number) exclude nothing.
  template <class T>
  bool between(const T& least, const T& most, const T& v) const {
    if (!(least <= most)) return true;
    switch (test) {
      case kind::less:
        return least < v;
      case kind::at_most:
        return least <= v;
      case kind::equal:
        return least <= v && v <= most;
      case kind::at_least:
        return most >= v;
      case kind::more:
        return most > v;
    }
    return true;
  }
};

/// Arrow's objects of a file, and what of them is read.
class parquet_metadata {
 public:
  /// A field of the file's schema, and those of its leaves that are read.
  struct root {
    std::string name;
    std::vector<int> leaves;
  };
  struct leaf {
    std::string name;
    bool is_field = true;
    bool is_label = false;
    bool texts = false;   // a list of texts
    bool nested = false;  // a list of lists
    int column = 0;
  };

  std::shared_ptr<::parquet::FileMetaData> file;
  std::uint64_t size = 0;
  std::uint64_t footer = 0;  // and the 8 bytes after it
  std::vector<root> roots;   // in the order in which their columns become fields
  std::vector<leaf> leaves;
  std::vector<parquet_test> tests;             // of options.where
  std::vector<std::vector<int>> dictionaries;  // of each row group: the columns of texts that are nothing else
  std::vector<std::vector<int>> part_dictionaries;  // those of lists, and those that have other pages, too

  /// Bytes by which the lengths of columns in the footer may be too short, as old writers made them (PARQUET-816):
  /// Arrow reads so many more.
  std::int64_t slack() const {
    return file->writer_version().VersionLt(::parquet::ApplicationVersion::PARQUET_816_FIXED_VERSION()) ? 100 : 0;
  }
  const leaf* find(const std::string& name) const noexcept {
    for (const leaf& l : leaves) {
      if (l.name == name) return &l;
    }
    return nullptr;
  }

  static ::parquet::ReaderProperties properties(::arrow::MemoryPool* pool) {
    ::parquet::ReaderProperties made(pool);
    made.set_page_checksum_verification(true);
    return made;
  }
};

/// `dictionaries`: columns that stay as dictionaries and their indices.
inline ::parquet::ArrowReaderProperties arrow_properties(
    const std::vector<int>& dictionaries = {}, ::arrow::TimeUnit::type int96 = ::arrow::TimeUnit::NANO) {
  ::parquet::ArrowReaderProperties made;
  for (const int column : dictionaries) made.set_read_dictionary(column, true);
  made.set_coerce_int96_timestamp_unit(int96);
  made.set_use_threads(false);
  made.set_pre_buffer(false);
  return made;
}

/// Calls `f`; what Arrow throws becomes an archive_error about this place. A lack of memory stays a std::bad_alloc.
template <class F>
auto with_arrow(F f, const std::string& object, std::optional<std::uint64_t> offset, const std::string& key) {
  try {
    return f();
  } catch (const error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const ::parquet::ParquetStatusException& e) {
    if (e.status().IsOutOfMemory()) throw std::bad_alloc();
    throw archive_error(std::string("Arrow cannot read it: ") + e.what(), where{object, offset, key});
  } catch (const std::exception& e) {
    throw archive_error(std::string("Arrow cannot read it: ") + e.what(), where{object, offset, key});
  }
}
inline void need(const ::arrow::Status& status) {
  if (status.IsOutOfMemory()) throw std::bad_alloc();
  if (!status.ok()) throw std::runtime_error(status.ToStringWithoutContextLines());
}
template <class T>
T value_of(::arrow::Result<T> result) {
  need(result.status());
  return std::move(result).ValueUnsafe();
}

MILLRACE_INLINE std::uint64_t parquet_file::footer_bytes(std::string_view tail, std::uint64_t size,
                                                         const std::string& object) {
  constexpr std::uint64_t least = 12;  // the magic at both ends, and the footer's length
  if (size < least || tail.size() < 8) {
    throw archive_error("not a Parquet file: it has " + std::to_string(size) + " bytes", where{object, size, {}});
  }
  const std::string_view magic = tail.substr(tail.size() - 4);
  if (magic == "PARE") {
    throw archive_error("the footer is encrypted, and nothing decrypts it here", where{object, size - 4, {}});
  }
  if (magic != "PAR1") {
    throw archive_error("not a Parquet file, or cut short: it does not end in PAR1", where{object, size - 4, {}});
  }
  std::uint64_t length = 0;
  for (std::size_t i = 4; i-- > 0;) length = length << 8 | static_cast<unsigned char>(tail[tail.size() - 8 + i]);
  if (length == 0 || length > size - least) {
    throw archive_error("the footer has " + std::to_string(length) + " bytes, by the file's end, and " +
                            std::to_string(size) + " are there of the file",
                        where{object, size - 8, {}});
  }
  return length + 8;
}

/// Compares a file's schema with the options.
class parquet_schema_reader {
 public:
  parquet_schema_reader(const parquet_options& options, const std::string& object)
      : options_(options), object_(object) {}

  std::vector<parquet_field> fields;
  std::vector<parquet_metadata::root> roots;
  std::vector<parquet_metadata::leaf> leaves;
  std::vector<parquet_test> tests;

  void read(const ::parquet::arrow::SchemaManifest& manifest) {
    if (options_.columns.empty()) {
      for (const schema_field& f : manifest.schema_fields) add(f, enter(f));
    }
    for (const std::string& wanted : options_.columns) {
      const std::size_t before = fields.size();
      for (const schema_field& f : manifest.schema_fields) find(f, enter(f), wanted);
      if (fields.size() == before) missing(manifest, wanted);
    }
    if (!options_.label.empty()) add_label(manifest);
    check_made_up_names();
    for (const parquet_condition& c : options_.where) add_test(manifest, c);
    if (roots.empty()) throw configuration_error("parquet: the file has no columns", where{object_, {}, {}});
  }

 private:
  using schema_field = ::parquet::arrow::SchemaField;

  const std::string& enter(const schema_field& f) { return root_ = f.field->name(); }

  [[noreturn]] void missing(const ::parquet::arrow::SchemaManifest& manifest, const std::string& wanted) const {
    std::string has;
    for (const auto& f : manifest.schema_fields) has += (has.empty() ? "" : ", ") + f.field->name();
    throw configuration_error("parquet: there is no column \"" + wanted + "\" (it has: " + has + ")",
                              where{object_, {}, {}});
  }
  /// Adds the leaves below the path `wanted`, from the field with the path `path` on.
  void find(const schema_field& f, const std::string& path, const std::string& wanted) {
    if (path == wanted) return add(f, path);
    if (f.field->type()->id() != ::arrow::Type::STRUCT) return;
    if (wanted.size() <= path.size() || wanted.compare(0, path.size(), path) != 0 || wanted[path.size()] != '.') return;
    for (const schema_field& child : f.children) find(child, path + '.' + child.field->name(), wanted);
  }
  static void columns_of(const schema_field& f, std::vector<int>& columns) {
    if (f.is_leaf()) columns.push_back(f.column_index);
    for (const schema_field& child : f.children) columns_of(child, columns);
  }
  /// A field, or those of a struct.
  void add(const schema_field& f, const std::string& path) {
    if (f.field->type()->id() == ::arrow::Type::STRUCT) {
      for (const schema_field& child : f.children) add(child, path + '.' + child.field->name());
      return;
    }
    std::vector<int> columns;
    columns_of(f, columns);
    if (columns.size() != 1) refuse(path, *f.field->type());
    for (const parquet_metadata::leaf& l : leaves) {
      if (l.name != path) continue;
      throw configuration_error("parquet: column \"" + path + "\" stands twice", where{object_, {}, {}});
    }
    parquet_field made;
    made.name = path;
    const ::arrow::DataType* type = f.field->type().get();
    arrow_element what;
    for (int depth = 0;; ++depth) {
      if (type->id() == ::arrow::Type::EXTENSION) {
        type = static_cast<const ::arrow::ExtensionType&>(*type).storage_type().get();
      }
      what = element_of(*type);
      if (what.form != arrow_form::none) break;
      if (!is_arrow_list(*type) || depth == 2) refuse(path, *f.field->type());
      type = static_cast<const ::arrow::BaseListType&>(*type).value_type().get();
      made.ragged = true;
      if (depth == 1) nested_ = true;
    }
    const bool nested = std::exchange(nested_, false);
    const bool texts = made.ragged && what.form == arrow_form::text;
    if (nested && texts) refuse(path, *f.field->type());
    made.type = what.type;
    made.dims = what.dims;
    made.text = is_text(*type);
    made.arrow = f.field->type()->ToString();
    if (what.form != arrow_form::null) {
      made.meaning = std::string(nested ? "list of list of " : made.ragged ? "list of " : "") + meaning_of(*type);
    }
    fields.push_back(made);
    leaves.push_back({path, true, false, texts, nested, columns.front()});
    for (parquet_metadata::root& r : roots) {
      if (r.name == root_) return r.leaves.push_back(columns.front());
    }
    roots.push_back({root_, {columns.front()}});
  }
  /// The kind of an element's bytes, the same for types whose bytes mean the same.
  static std::string meaning_of(const ::arrow::DataType& t) {
    using id = ::arrow::Type;
    switch (t.id()) {
      case id::EXTENSION:
        return meaning_of(*static_cast<const ::arrow::ExtensionType&>(t).storage_type());
      case id::DICTIONARY:
        return meaning_of(*static_cast<const ::arrow::DictionaryType&>(t).value_type());
      case id::FIXED_SIZE_LIST: {
        const auto& list = static_cast<const ::arrow::FixedSizeListType&>(t);
        return "list of " + std::to_string(list.list_size()) + ' ' + meaning_of(*list.value_type());
      }
      case id::TIMESTAMP:
        return ::arrow::timestamp(static_cast<const ::arrow::TimestampType&>(t).unit())->ToString();
      case id::DECIMAL32:
      case id::DECIMAL64:
      case id::DECIMAL128:
      case id::DECIMAL256:
        return t.name() + " of scale " + std::to_string(static_cast<const ::arrow::DecimalType&>(t).scale());
      default:
        return element_of(t).form == arrow_form::text ? "text or binary data" : t.ToString();
    }
  }
  static bool is_text(const ::arrow::DataType& t) {
    if (t.id() == ::arrow::Type::DICTIONARY)
      return is_text(*static_cast<const ::arrow::DictionaryType&>(t).value_type());
    return t.id() == ::arrow::Type::STRING || t.id() == ::arrow::Type::LARGE_STRING ||
           t.id() == ::arrow::Type::STRING_VIEW;
  }
  void add_label(const ::parquet::arrow::SchemaManifest& manifest) {
    for (parquet_metadata::leaf& l : leaves) {
      if (l.name == options_.label) l.is_label = true;
    }
    bool there = std::any_of(leaves.begin(), leaves.end(), [](const auto& l) { return l.is_label; });
    if (!there) {
      const std::size_t before = leaves.size();
      for (const schema_field& f : manifest.schema_fields) find(f, enter(f), options_.label);
      if (leaves.size() == before) missing(manifest, options_.label);
      there = leaves.size() == before + 1;
      leaves.back().is_label = true;
      leaves.back().is_field = false;
    }
    const std::size_t at = static_cast<std::size_t>(
        std::find_if(leaves.begin(), leaves.end(), [](const auto& l) { return l.is_label; }) - leaves.begin());
    const parquet_field& f = fields[at];
    const bool whole = f.type && *f.type != dtype::f16 && *f.type != dtype::f32 && *f.type != dtype::f64 &&
                       *f.type != dtype::bf16 && f.dims.rank() == 0 && !f.ragged;
    if (!there || !whole) {
      throw configuration_error("parquet: .label \"" + options_.label + "\" is no column of whole numbers",
                                where{object_, {}, {}});
    }
    // A column "cls" is its text: a sample has one field of a name.
    if (leaves[at].name == "cls") leaves[at].is_field = false;
    if (!leaves[at].is_field) fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(at));
  }
  /// Names of fields that no column has: of a label, of a list of texts, of a list of lists.
  void check_made_up_names() const {
    const auto refuse_name = [&](const std::string& made, const std::string& of, const std::string& there) {
      throw configuration_error("parquet: " + of + " makes a field \"" + made + "\", and there is a column \"" + there +
                                    "\": name the .columns that are wanted, without one of them",
                                where{object_, {}, {}});
    };
    for (const parquet_metadata::leaf& of : leaves) {
      if (!of.is_label && !of.nested && !of.texts) continue;
      const std::string begin = of.name + '#';
      for (const parquet_metadata::leaf& other : leaves) {
        if (&of == &other || !other.is_field) continue;
        if (of.is_label && other.name == "cls") refuse_name("cls", ".label \"" + of.name + '"', other.name);
        if (!of.is_field) continue;
        if (of.nested && other.name == of.name + ".offsets") {
          refuse_name(other.name, "column \"" + of.name + "\", a list of lists,", other.name);
        }
        const bool numbered = of.texts && other.name.size() > begin.size() && other.name.starts_with(begin) &&
                              other.name.find_first_not_of("0123456789", begin.size()) == std::string::npos;
        if (numbered) refuse_name(other.name, "column \"" + of.name + "\", a list of texts,", other.name);
      }
    }
  }
  void add_test(const ::parquet::arrow::SchemaManifest& manifest, const parquet_condition& c) {
    const schema_field* at = nullptr;
    for (const schema_field& f : manifest.schema_fields) {
      if (at == nullptr) at = at_path(f, f.field->name(), c.column);
    }
    if (at == nullptr) missing(manifest, c.column);
    const ::arrow::Type::type type = at->field->type()->id();
    const bool text = type == ::arrow::Type::STRING || type == ::arrow::Type::LARGE_STRING ||
                      type == ::arrow::Type::BINARY || type == ::arrow::Type::LARGE_BINARY;
    const bool number = (::arrow::is_integer(type) || type == ::arrow::Type::FLOAT || type == ::arrow::Type::DOUBLE ||
                         ::arrow::is_temporal(type)) &&
                        at->is_leaf();
    const bool given_text = std::holds_alternative<std::string>(c.value);
    if (!(given_text ? text : number)) {
      throw configuration_error("parquet: .where compares column \"" + c.column + "\", which is of type " +
                                    at->field->type()->ToString() + ", with " + (given_text ? "text" : "a number"),
                                where{object_, {}, {}});
    }
    parquet_test made;
    made.column = at->column_index;
    made.is_unsigned = ::arrow::is_unsigned_integer(type);
    made.test = *parquet_test::kind_of(c.test);
    made.value = c.value;
    tests.push_back(std::move(made));
  }
  static const schema_field* at_path(const schema_field& f, const std::string& path, const std::string& wanted) {
    if (path == wanted) return &f;
    if (f.field->type()->id() != ::arrow::Type::STRUCT) return nullptr;
    for (const schema_field& child : f.children) {
      if (const schema_field* const found = at_path(child, path + '.' + child.field->name(), wanted)) return found;
    }
    return nullptr;
  }
  [[noreturn]] void refuse(const std::string& path, const ::arrow::DataType& type) const {
    throw configuration_error("parquet: no field can be made of column \"" + path + "\", which is of type " +
                                  type.ToString() + ": name the .columns that are wanted",
                              where{object_, {}, {}});
  }

  const parquet_options& options_;
  const std::string& object_;
  std::string root_;
  bool nested_ = false;
};

MILLRACE_INLINE parquet_rows::parquet_rows(const parquet_group& what) : first_(what.first_row), size_(what.rows) {}
MILLRACE_INLINE parquet_rows::~parquet_rows() = default;

MILLRACE_INLINE void parquet_rows::fill(std::uint64_t row, std::vector<field>& fields, const where& at) const {
  if (row >= size_) misused("a row of a row group was asked for that it does not have");
  for (const std::unique_ptr<arrow_column>& c : columns_) c->fill(static_cast<std::int64_t>(row), fields, at);
}

/// Reads what a footer says of the row groups.
class parquet_group_reader {
 public:
  parquet_group_reader(parquet_metadata& from, std::string object) : from_(from), object_(std::move(object)) {}

  std::vector<parquet_group> read() {
    std::vector<parquet_group> made;
    const auto file = fetched_file_of(from_.size);
    const auto reader = ::parquet::ParquetFileReader::Open(
        file, parquet_metadata::properties(::arrow::default_memory_pool()), from_.file);
    std::uint64_t before = 0;
    for (int g = 0; g < from_.file->num_row_groups(); ++g) {
      group_ = "row group " + std::to_string(g);
      parquet_group one = with_arrow([&] { return read_group(*reader, g); }, object_, std::nullopt, group_);
      one.first_row = before;
      before += one.rows;
      made.push_back(std::move(one));
    }
    check_apart();
    for (parquet_group& g : made) join(g.stretches);
    if (from_.file->num_rows() >= 0 && static_cast<std::uint64_t>(from_.file->num_rows()) == before) return made;
    throw archive_error("the footer says that the file has " + std::to_string(from_.file->num_rows()) +
                            " rows, and its row groups have " + std::to_string(before),
                        where{object_, from_.size - from_.footer, {}});
  }

 private:
  struct chunk {
    parquet_stretch at;
    std::string shown;
  };

  static std::shared_ptr<fetched_file> fetched_file_of(std::uint64_t size) {
    return std::make_shared<fetched_file>(size, std::vector<parquet_piece>(), ::arrow::default_memory_pool());
  }
  [[noreturn]] void fail(const std::string& reason, std::optional<std::uint64_t> offset,
                         const std::string& column) const {
    throw archive_error(reason, where{object_, offset, group_ + (column.empty() ? "" : ", column \"" + column + '"')});
  }

  parquet_group read_group(::parquet::ParquetFileReader& reader, int g) {
    const std::unique_ptr<::parquet::RowGroupMetaData> group = from_.file->RowGroup(g);
    parquet_group made;
    from_.dictionaries.emplace_back();
    from_.part_dictionaries.emplace_back();
    constexpr std::int64_t most_rows = std::int64_t{1} << 40;
    if (group->num_rows() < 0 || group->num_rows() > most_rows) {
      fail("it says that it has " + std::to_string(group->num_rows()) + " rows", std::nullopt, {});
    }
    made.rows = static_cast<std::uint64_t>(group->num_rows());
    for (const parquet_metadata::leaf& l : from_.leaves) read_column(reader, *group, g, l, made);
    made.left_out = std::any_of(from_.tests.begin(), from_.tests.end(), [&](const parquet_test& t) {
      return !t.may_hold(group->ColumnChunk(t.column)->statistics().get(), made.rows);
    });
    std::sort(made.stretches.begin(), made.stretches.end(),
              [](const parquet_stretch& a, const parquet_stretch& b) { return a.begin < b.begin; });
    return made;
  }

  void read_column(::parquet::ParquetFileReader& reader, const ::parquet::RowGroupMetaData& group, int g,
                   const parquet_metadata::leaf& l, parquet_group& made) {
    with_arrow(
        [&] {
          const std::unique_ptr<::parquet::ColumnChunkMetaData> column = group.ColumnChunk(l.column);
          if (column->crypto_metadata() != nullptr) fail("it is encrypted, and nothing decrypts it here", {}, l.name);
          if (!column->file_path().empty()) {
            fail("it lies in another file, \"" + column->file_path() + "\", which is not read", {}, l.name);
          }
          if (!::arrow::util::Codec::IsAvailable(column->compression())) {
            fail("it is compressed by " + ::arrow::util::Codec::GetCodecAsString(column->compression()) +
                     ", which this Arrow was built without",
                 {}, l.name);
          }
          const ::parquet::ColumnDescriptor& type = *from_.file->schema()->Column(l.column);
          const std::int64_t values = column->num_values();
          const std::int64_t bytes = column->total_uncompressed_size();
          if (values < 0 || values > most_of_group || bytes < 0 || bytes > most_of_group) {
            fail("it says that it has " + std::to_string(values) + " values in " + std::to_string(bytes) + " bytes", {},
                 l.name);
          }
          const bool plain = type.max_repetition_level() == 0;
          if (plain && static_cast<std::uint64_t>(values) != made.rows) {
            fail("it has " + std::to_string(values) + " values, and the row group " + std::to_string(made.rows) +
                     " rows",
                 {}, l.name);
          }
          made.decoded += std::max(static_cast<std::uint64_t>(bytes), static_cast<std::uint64_t>(values) * width(type));
          if (made.decoded > static_cast<std::uint64_t>(most_of_group)) {
            fail("it says that it takes more than 1 TiB of memory", {}, l.name);
          }
          if (made.rows == 0) return;  // nothing of it is read
          if (has_dictionary(*column, type)) {
            const bool whole = plain && is_dictionary(*column);
            (whole ? from_.dictionaries : from_.part_dictionaries).back().push_back(l.column);
          }
          const std::int64_t pages = column->data_page_offset();
          const std::int64_t first = column->has_dictionary_page() ? column->dictionary_page_offset() : 0;
          check_place(first > 0 && first < pages ? first : pages, column->total_compressed_size(), l.name);
          for (const ::arrow::io::ReadRange& r :
               value_of(reader.GetReadRanges({g}, {l.column}, 0, std::numeric_limits<std::int64_t>::max()))) {
            add(r, made, l.name);
          }
        },
        object_, std::nullopt, group_ + ", column \"" + l.name + '"');
  }

  static bool has_dictionary(const ::parquet::ColumnChunkMetaData& column, const ::parquet::ColumnDescriptor& type) {
    if (type.physical_type() != ::parquet::Type::BYTE_ARRAY) return false;
    return column.has_dictionary_page() ||
           std::any_of(column.encodings().begin(), column.encodings().end(), is_index);
  }
  /// True if all pages are indices of a dictionary of texts: repeated, these may take any number of times the bytes.
  /// Also where the footer does not say so of each page, as that of polars.
  static bool is_dictionary(const ::parquet::ColumnChunkMetaData& column) {
    return std::all_of(column.encoding_stats().begin(), column.encoding_stats().end(), [](const auto& pages) {
      return (pages.page_type != ::parquet::PageType::DATA_PAGE &&
              pages.page_type != ::parquet::PageType::DATA_PAGE_V2) ||
             is_index(pages.encoding);
    });
  }
  static bool is_index(::parquet::Encoding::type encoding) noexcept {
    return encoding == ::parquet::Encoding::RLE_DICTIONARY || encoding == ::parquet::Encoding::PLAIN_DICTIONARY;
  }

  /// Bytes of a value in memory: of texts their offset.
  static std::uint64_t width(const ::parquet::ColumnDescriptor& type) {
    switch (type.physical_type()) {
      case ::parquet::Type::BOOLEAN:
        return 1;
      case ::parquet::Type::INT64:
      case ::parquet::Type::DOUBLE:
      case ::parquet::Type::INT96:
        return 8;
      case ::parquet::Type::FIXED_LEN_BYTE_ARRAY:
        return static_cast<std::uint64_t>(std::max(type.type_length(), 0));
      default:
        return 4;
    }
  }

  void check_place(std::int64_t offset, std::int64_t length, const std::string& column) const {
    constexpr std::int64_t magic = 4;
    const auto end = static_cast<std::int64_t>(from_.size - from_.footer);
    if (offset >= magic && length >= 0 && offset <= end && length <= end - offset) return;
    fail("by the footer it has " + std::to_string(length) + " bytes from byte " + std::to_string(offset) +
             " on, and the data of the file end at byte " + std::to_string(end),
         std::nullopt, column);
  }
  /// The bytes that Arrow reads more of some old files (parquet_metadata::slack()) may belong to the footer.
  void add(const ::arrow::io::ReadRange& r, parquet_group& made, const std::string& column) {
    const std::int64_t end = static_cast<std::int64_t>(from_.size - from_.footer) - r.offset;
    check_place(r.offset, std::min(r.length, std::max<std::int64_t>(end, 0)), column);
    if (r.length > static_cast<std::int64_t>(from_.size) - r.offset) check_place(r.offset, r.length, column);
    const parquet_stretch at{static_cast<std::uint64_t>(r.offset), static_cast<std::uint64_t>(r.offset + r.length)};
    made.stretches.push_back(at);
    chunks_.push_back({at, group_ + ", column \"" + column + '"'});
  }

  /// Two columns that have bytes in common: one of them would be read as the other.
  void check_apart() {
    std::sort(chunks_.begin(), chunks_.end(), [](const chunk& a, const chunk& b) { return a.at.begin < b.at.begin; });
    const auto slack = static_cast<std::uint64_t>(from_.slack());
    for (std::size_t i = 1; i < chunks_.size(); ++i) {
      const parquet_stretch& before = chunks_[i - 1].at;
      if (chunks_[i].at.begin + slack >= before.end) continue;
      throw archive_error("by the footer it begins at byte " + std::to_string(chunks_[i].at.begin) + ", and " +
                              chunks_[i - 1].shown + " ends at byte " + std::to_string(before.end),
                          where{object_, chunks_[i].at.begin, chunks_[i].shown});
    }
  }

  /// A hole that costs less to read than a request does is read.
  static void join(std::vector<parquet_stretch>& all) {
    constexpr std::uint64_t hole = 256 * KiB;
    std::vector<parquet_stretch> joined;
    for (const parquet_stretch& s : all) {
      if (!joined.empty() && s.begin <= joined.back().end + hole) {
        joined.back().end = std::max(joined.back().end, s.end);
      } else {
        joined.push_back(s);
      }
    }
    all = std::move(joined);
  }

  parquet_metadata& from_;
  const std::string object_;
  std::string group_;
  std::vector<chunk> chunks_;
};

MILLRACE_INLINE parquet_file::parquet_file(std::string_view footer, std::uint64_t size, std::string object,
                                           const parquet_options& options)
    : object_(std::move(object)), memory_(options.memory) {
  const std::uint64_t length = footer_bytes(footer, size, object_);
  if (footer.size() != length) misused("parquet_file: that is not the footer of the file");
  auto made = std::make_unique<parquet_metadata>();
  made->size = size;
  made->footer = length;
  parquet_schema_reader schema(options, object_);
  with_arrow(
      [&] {
        const ::parquet::ReaderProperties how = parquet_metadata::properties(::arrow::default_memory_pool());
#if ARROW_VERSION_MAJOR >= 26
        made->file = ::parquet::FileMetaData::Make(footer.data(), static_cast<std::int64_t>(length - 8), how);
#else
        auto bytes = static_cast<std::uint32_t>(length - 8);
        made->file = ::parquet::FileMetaData::Make(footer.data(), &bytes, how);
#endif
        if (made->file->is_encryption_algorithm_set()) {
          throw archive_error("it is encrypted, and nothing decrypts it here", where{object_, size - length, {}});
        }
        ::parquet::arrow::SchemaManifest manifest;
        need(::parquet::arrow::SchemaManifest::Make(made->file->schema(), made->file->key_value_metadata(),
                                                    arrow_properties(), &manifest));
        schema.read(manifest);
      },
      object_, size - length, "the footer");
  made->roots = std::move(schema.roots);
  made->leaves = std::move(schema.leaves);
  made->tests = std::move(schema.tests);
  fields_ = std::move(schema.fields);
  groups_ =
      with_arrow([&] { return parquet_group_reader(*made, object_).read(); }, object_, size - length, "the footer");
  for (const parquet_group& g : groups_) rows_ += g.rows;
  metadata_ = std::move(made);
}
MILLRACE_INLINE parquet_file::~parquet_file() = default;

MILLRACE_INLINE std::size_t parquet_file::group_of(std::uint64_t row) const noexcept {
  const auto after = std::upper_bound(groups_.begin(), groups_.end(), row,
                                      [](std::uint64_t r, const parquet_group& g) { return r < g.first_row; });
  return static_cast<std::size_t>(after - groups_.begin() - 1);
}

MILLRACE_INLINE std::vector<parquet_chunk> parquet_file::chunks(std::size_t group) const {
  return with_arrow(
      [&] {
        const std::unique_ptr<::parquet::RowGroupMetaData> of = metadata_->file->RowGroup(static_cast<int>(group));
        std::vector<parquet_chunk> made;
        for (const parquet_metadata::leaf& l : metadata_->leaves) {
          if (!l.is_field) continue;
          const std::unique_ptr<::parquet::ColumnChunkMetaData> column = of->ColumnChunk(l.column);
          made.push_back({::arrow::util::Codec::GetCodecAsString(column->compression()),
                          static_cast<std::uint64_t>(column->total_compressed_size()),
                          static_cast<std::uint64_t>(column->total_uncompressed_size())});
        }
        return made;
      },
      object_, std::nullopt, shown(group));
}

/// Adds the rows of an array of this name, or those of the arrays inside of it.
inline void add_arrow_chunk(std::vector<std::unique_ptr<arrow_column>>& columns, const parquet_metadata& of,
                            const std::string& name, std::shared_ptr<::arrow::Array> array, std::int64_t first,
                            const std::shared_ptr<bounded_arrow_pool>& pool) {
  if (array->type_id() == ::arrow::Type::STRUCT) {
    const auto all = value_of(static_cast<const ::arrow::StructArray&>(*array).Flatten(pool.get()));
    for (int i = 0; i < array->type()->num_fields(); ++i) {
      add_arrow_chunk(columns, of, name + '.' + array->type()->field(i)->name(), all[static_cast<std::size_t>(i)],
                      first, pool);
    }
    return;
  }
  const parquet_metadata::leaf* const leaf = of.find(name);
  if (leaf == nullptr) throw std::runtime_error("Arrow has read a column \"" + name + "\", which was not asked for");
  const std::size_t number = static_cast<std::size_t>(leaf - of.leaves.data());
  if (columns[number] == nullptr) {
    columns[number] = std::make_unique<arrow_column>();
    columns[number]->name = name;
    columns[number]->is_field = leaf->is_field;
    columns[number]->is_label = leaf->is_label;
  }
  columns[number]->chunks.emplace_back(std::move(array), first, pool);
}

/// The header of a page (parquet.thrift, in Thrift's compact protocol:
/// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md), as far as `text` has it. A field
/// that it does not have is -1.
class parquet_page_head {
 public:
  explicit parquet_page_head(std::string_view text) : rest_(text) {
    whole_ = structure(0, -1);
    bytes_ = text.size() - rest_.size();
  }
  /// True if all of it was there.
  bool whole() const noexcept { return whole_; }
  std::size_t bytes() const noexcept { return bytes_; }
  std::int64_t unpacked() const noexcept { return unpacked_; }
  std::int64_t packed() const noexcept { return packed_; }
  /// The number of values of a page that is a dictionary.
  std::int64_t dictionary_values() const noexcept { return values_; }

 private:
  bool structure(int depth, int in) {
    if (depth > 8) return false;
    for (std::int64_t field = 0;;) {
      const int head = next();
      if (head <= 0) return head == 0;
      if (head >> 4 != 0) {
        field += head >> 4;
      } else if (const auto long_form = number()) {
        field = *long_form;
      } else {
        return false;
      }
      constexpr int i32 = 5;
      if ((head & 15) == i32) {
        const auto value = number();
        if (!value) return false;
        if (depth == 0 && field == 2) unpacked_ = *value;
        if (depth == 0 && field == 3) packed_ = *value;
        if (depth == 1 && in == 7 && field == 1) values_ = *value;
      } else if (!pass(head & 15, depth, static_cast<int>(field))) {
        return false;
      }
    }
  }
  bool pass(int type, int depth, int field) {
    switch (type) {
      case 1:  // true, and false
      case 2:
        return true;
      case 3:
        return next() >= 0;
      case 4:
      case 5:
      case 6:
        return number().has_value();
      case 7:
        return drop(8);
      case 8: {
        const auto length = word();
        return length && drop(*length);
      }
      case 12:
        return structure(depth + 1, field);
      default:  // a header has neither lists nor maps
        return false;
    }
  }
  bool drop(std::uint64_t count) {
    if (count > rest_.size()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(count));
    return true;
  }
  int next() {
    if (rest_.empty()) return -1;
    const auto c = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    return c;
  }
  std::optional<std::uint64_t> word() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const int c = next();
      if (c < 0) return std::nullopt;
      value |= static_cast<std::uint64_t>(c & 0x7f) << shift;
      if (c < 0x80) return value;
    }
    return std::nullopt;
  }
  std::optional<std::int64_t> number() {  // zigzag
    const auto value = word();
    if (!value) return std::nullopt;
    return static_cast<std::int64_t>(*value >> 1) ^ -static_cast<std::int64_t>(*value & 1);
  }

  std::string_view rest_;
  bool whole_ = false;
  std::size_t bytes_ = 0;
  std::int64_t unpacked_ = -1;
  std::int64_t packed_ = -1;
  std::int64_t values_ = -1;
};

/// True if the headers of a column's pages say what the footer says of it: then it is not damaged where it takes much
/// memory, but packed well. `slack`: see parquet_metadata::slack().
inline bool parquet_pages_agree(const ::parquet::ColumnChunkMetaData& column, fetched_file& file, std::int64_t slack) {
  const std::int64_t pages = column.data_page_offset();
  const std::int64_t first = column.has_dictionary_page() ? column.dictionary_page_offset() : 0;
  std::int64_t at = first > 0 && first < pages ? first : pages;
  const std::int64_t end = at + column.total_compressed_size();
  std::string text;  // of no pool: that of the group has just refused memory
  while (at < end) {
    constexpr std::int64_t usual_head = 1 << 10;
    constexpr std::int64_t most_head = 1 << 20;  // it may have the least value and the greatest one
    parquet_page_head head{{}};
    for (std::int64_t wanted = usual_head; wanted <= most_head && !head.whole(); wanted *= most_head / usual_head) {
      text.resize(static_cast<std::size_t>(std::min(wanted, end - at)));
      if (!file.ReadAt(at, static_cast<std::int64_t>(text.size()), text.data()).ok()) return false;
      head = parquet_page_head(text);
    }
    const std::int64_t left = end - at - static_cast<std::int64_t>(head.bytes());
    if (!head.whole() || head.packed() < 0 || head.packed() > left + slack || head.unpacked() < 0 ||
        head.unpacked() > column.total_uncompressed_size()) {
      return false;
    }
    at = end - left + head.packed();
  }
  return true;
}

/// Finds the columns that may stay dictionaries and in which a value repeats: of others Arrow makes no less memory so,
/// and takes longer, as it hashes each value.
inline std::vector<int> dictionaries_that_repeat(const parquet_metadata& of, std::size_t group, fetched_file& file) {
  std::vector<int> repeat;
  const auto row_group = of.file->RowGroup(static_cast<int>(group));
  for (const int c : of.dictionaries[group]) {
    const auto column = row_group->ColumnChunk(c);
    const auto statistics = column->statistics();
    const std::int64_t nulls =
        statistics != nullptr && statistics->HasNullCount() ? std::max<std::int64_t>(statistics->null_count(), 0) : 0;
    const std::int64_t at = column->has_dictionary_page() ? column->dictionary_page_offset() : 0;
    char head[64];
    const auto length = std::min<std::int64_t>(sizeof head, column->total_compressed_size());
    std::int64_t values = -1;
    if (at > 0 && length > 0 && file.ReadAt(at, length, head).ok()) {
      values = parquet_page_head(std::string_view(head, static_cast<std::size_t>(length))).dictionary_values();
    }
    if (values < column->num_values() - nulls) repeat.push_back(c);
  }
  return repeat;
}

MILLRACE_INLINE std::shared_ptr<const parquet_rows> parquet_file::decode(std::size_t group,
                                                                         std::vector<parquet_piece> pieces) const {
  const parquet_group& what = groups_.at(group);
  if (what.rows == 0) return std::make_shared<parquet_rows>(what);
  const std::uint64_t offset = what.stretches.empty() ? 0 : what.stretches.front().begin;
  const std::uint64_t most = memory_ != 0 ? memory_ : 4 * what.decoded + GiB;
  const auto pool =
      std::make_shared<bounded_arrow_pool>(static_cast<std::int64_t>(std::min<std::uint64_t>(most, INT64_MAX)));
  const auto file = std::make_shared<fetched_file>(metadata_->size, std::move(pieces), pool.get());
  const auto row_group = metadata_->file->RowGroup(static_cast<int>(group));
  const parquet_metadata::root* reading = nullptr;
  const auto reader_of = [&](const ::parquet::ArrowReaderProperties& how) {
    std::unique_ptr<::parquet::ParquetFileReader> reader =
        ::parquet::ParquetFileReader::Open(file, parquet_metadata::properties(pool.get()), metadata_->file);
    return value_of(::parquet::arrow::FileReader::Make(pool.get(), std::move(reader), how));
  };
  const auto read_root = [&](::parquet::arrow::FileReader& arrow, const std::string& name,
                             const std::vector<int>& leaves, std::vector<std::unique_ptr<arrow_column>>& columns) {
    std::int64_t expected = 0;
    for (const int leaf : leaves) {
      expected = std::max(expected, row_group->ColumnChunk(leaf)->total_uncompressed_size());
    }
    pool->expect(expected);
    const auto table = value_of(arrow.ReadRowGroup(static_cast<int>(group), leaves));
    if (table->num_columns() != 1 || static_cast<std::uint64_t>(table->num_rows()) != what.rows) {
      throw std::runtime_error("it has " + std::to_string(table->num_rows()) + " rows, and the row group " +
                               std::to_string(what.rows));
    }
    need(table->Validate());
    std::int64_t first = 0;
    for (const std::shared_ptr<::arrow::Array>& array : table->column(0)->chunks()) {
      add_arrow_chunk(columns, *metadata_, name, array, first, pool);
      first += array->length();
    }
  };
  const auto read = [&](const std::vector<int>& dictionaries) {
    auto made = std::make_shared<parquet_rows>(what);
    made->columns_.resize(metadata_->leaves.size());
    made->pool_ = pool;
    const auto arrow = reader_of(arrow_properties(dictionaries));
    for (const parquet_metadata::root& root : metadata_->roots) {
      reading = &root;
      with_arrow([&] { read_root(*arrow, root.name, root.leaves, made->columns_); }, object_, offset,
                 shown(group) + ", column \"" + root.name + '"');
    }
    // Arrow makes nanoseconds of an INT96, which wrap beyond the years 1677 to 2262: seconds tell which.
    std::vector<std::unique_ptr<arrow_column>> seconds(metadata_->leaves.size());
    for (const parquet_metadata::root& root : metadata_->roots) {
      std::vector<int> times;
      for (const int leaf : root.leaves) {
        if (metadata_->file->schema()->Column(leaf)->physical_type() == ::parquet::Type::INT96) times.push_back(leaf);
      }
      if (times.empty()) continue;
      reading = &root;
      with_arrow(
          [&] {
            const auto in_seconds = reader_of(arrow_properties({}, ::arrow::TimeUnit::SECOND));
            read_root(*in_seconds, root.name, times, seconds);
          },
          object_, offset, shown(group) + ", column \"" + root.name + '"');
    }
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      if (seconds[i] != nullptr && made->columns_[i] != nullptr) made->columns_[i]->compare_seconds(*seconds[i]);
    }
    return made;
  };
  std::exception_ptr failure;
  bool refused = false;
  const auto attempt = [&](const std::vector<int>& dictionaries) -> std::shared_ptr<parquet_rows> {
    try {
      return with_arrow([&] { return read(dictionaries); }, object_, offset, shown(group));
    } catch (const archive_error&) {
      if (failure == nullptr) failure = std::current_exception();
    } catch (const std::bad_alloc&) {
      if (!pool->refused()) throw;
      refused = true;
    }
    return nullptr;
  };
  std::vector<int> all = metadata_->dictionaries[group];
  const std::vector<int> repeating =
      with_arrow([&] { return dictionaries_that_repeat(*metadata_, group, *file); }, object_, offset, shown(group));
  std::shared_ptr<parquet_rows> made = attempt(repeating);
  // One may have values that no row has, and others in many rows.
  if (made == nullptr && repeating.size() != all.size()) made = attempt(all);
  if (made == nullptr && refused) {
    const std::vector<int>& more = metadata_->part_dictionaries[group];
    all.insert(all.end(), more.begin(), more.end());
    if (!more.empty()) made = attempt(all);
  } else if (made == nullptr && !repeating.empty()) {
    made = attempt({});  // a column may have pages that Arrow makes no dictionary of
  }
  if (made == nullptr && refused) {
    const std::string column = shown(group) + ", column \"" + reading->name + '"';
    for (const int leaf : reading->leaves) {
      if (parquet_pages_agree(*row_group->ColumnChunk(leaf), *file, metadata_->slack())) continue;
      throw archive_error("its pages have more bytes than the footer says", where{object_, offset, column});
    }
    throw configuration_error("parquet: the row group takes more than " + format_bytes(static_cast<double>(most)) +
                                  " of memory when it is decoded, and has " +
                                  format_bytes(static_cast<double>(what.decoded)) +
                                  " by its footer: parquet_options::memory allows more",
                              where{object_, offset, column});
  }
  if (made == nullptr) std::rethrow_exception(failure);
  for (std::size_t i = 0; i < made->columns_.size(); ++i) {
    if (made->columns_[i] != nullptr) continue;
    const std::string& name = metadata_->leaves[i].name;
    throw archive_error("Arrow has not read it", where{object_, offset, shown(group) + ", column \"" + name + '"'});
  }
  made->memory_ = static_cast<std::uint64_t>(pool->bytes_allocated());
  return made;
}

}  // namespace millrace::detail
