// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/loop/detail/descriptors.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE array::array(const bytes& data, dtype type, const shape& dims, const where& at)
    : data_(data), type_(type), dims_(dims) {
  // Extents of zero are left out: the others must fit all the same, as callers multiply the extents of a shape.
  std::size_t wanted = size_of(type);
  bool empty = false;
  for (const std::int64_t extent : dims) {
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(wanted, static_cast<std::size_t>(extent), &wanted)) {
      throw decode_error("an array of " + std::string(name_of(type)) + " " + dims.text() + " is too large", at);
    }
  }
  if (empty) wanted = 0;
  if (data.size() != wanted) {
    throw decode_error("an array of " + std::string(name_of(type)) + " " + dims.text() + " has " +
                           std::to_string(wanted) + " bytes, and " + std::to_string(data.size()) + " are there",
                       at);
  }
  if (reinterpret_cast<std::uintptr_t>(data.data()) % size_of(type) != 0) data_ = bytes::copy(data.view());
}

namespace detail {

static_assert(std::endian::native == std::endian::little, "arrays are read as they lie in the file");

/// Reads the header of a .npy: a dictionary of Python, which NumPy reads by ast.literal_eval(): {'descr': '<f4',
/// 'fortran_order': False, 'shape': (3, 4), }, of these three keys in any order.
class npy_header {
 public:
  explicit npy_header(std::string_view text) : left_(text) {
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !type) {
        read_type();
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        fortran = take_word("True");
        if (!fortran && !take_word("False")) refuse();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        read_shape();
      } else {
        refuse();
      }
      if (!take(',') && !sees('}')) refuse();
    }
    skip_blanks();
    if (!left_.empty() || !type || !has_order || !has_shape) refuse();
  }

  std::optional<dtype> type;
  bool fortran = false;
  shape dims;

 private:
  [[noreturn]] static void refuse() { throw decode_error("the header of the .npy is damaged"); }

  void skip_blanks() {
    const std::size_t n = left_.find_first_not_of(" \t\r\n\f");
    left_.remove_prefix(n == std::string_view::npos ? left_.size() : n);
  }
  bool sees(char c) {
    skip_blanks();
    return left_.starts_with(c);
  }
  bool take(char c) {
    const bool there = sees(c);
    if (there) left_.remove_prefix(1);
    return there;
  }
  void expect(char c) {
    if (!take(c)) refuse();
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    const bool there = left_.starts_with(word);
    if (there) left_.remove_prefix(word.size());
    return there;
  }
  std::string_view quoted() {
    skip_blanks();
    if (left_.find_first_of("uUrR") == 0) left_.remove_prefix(1);  // of a string of Python
    const char quote = left_.empty() ? '\0' : left_.front();
    if (quote != '\'' && quote != '"') refuse();
    const std::size_t end = left_.find(quote, 1);
    if (end == std::string_view::npos) refuse();
    const std::string_view text = left_.substr(1, end - 1);
    left_.remove_prefix(end + 1);
    return text;
  }

  void read_type() {
    if (sees('[') || sees('(')) {
      throw no_tensor("the elements of the .npy are structures, for which there is no tensor");
    }
    const std::string_view text = quoted();
    constexpr struct {
      std::string_view names;  // of numpy.dtype(), each between blanks; that which np.save() writes first
      dtype type;
    } known[] = {{" b1 ? bool ", dtype::boolean},
                 {" u1 B uint8 ", dtype::u8},
                 {" i1 b int8 ", dtype::i8},
                 {" u2 H uint16 ", dtype::u16},
                 {" i2 h int16 ", dtype::i16},
                 {" u4 I uint32 ", dtype::u32},
                 {" i4 i int32 ", dtype::i32},
                 {" u8 L Q uint64 uint ", dtype::u64},
                 {" i8 l q int64 int ", dtype::i64},
                 {" f2 e float16 half ", dtype::f16},
                 {" f4 f float32 single ", dtype::f32},
                 {" f8 d float64 float double ", dtype::f64}};
    const bool ordered = text.find_first_of("<>=|") == 0;
    const std::string_view name = text.substr(ordered ? 1 : 0);
    const std::string word = " " + std::string(name) + " ";
    std::string_view saved;
    for (const auto& k : known) {
      if (name.empty() || name.find(' ') != std::string_view::npos) break;
      if (k.names.find(word) == std::string_view::npos) continue;
      type = k.type;
      saved = k.names.substr(1, 2);
    }
    if (type && (text.front() != '>' || size_of(*type) == 1)) return;
    const std::string shown(text.substr(0, 40));
    if (type) {
      throw no_tensor("the elements of the .npy are big-endian (" + shown + "): save it with .astype(\"<" +
                      std::string(saved) + "\")");
    }
    throw no_tensor("the elements of the .npy are of type \"" + shown + "\", for which there is no tensor");
  }

  void read_shape() {
    expect('(');
    while (!take(')')) {
      skip_blanks();
      std::int64_t extent = 0;
      std::size_t digits = 0;
      for (; digits < left_.size() && left_[digits] >= '0' && left_[digits] <= '9'; ++digits) {
        const int digit = left_[digits] - '0';
        if (__builtin_mul_overflow(extent, 10, &extent) || __builtin_add_overflow(extent, digit, &extent)) refuse();
      }
      if (digits == 0) refuse();
      left_.remove_prefix(digits);
      take('L');  // of Python 2
      if (dims.rank() == shape::max_rank) {
        throw no_tensor("the .npy has more than " + std::to_string(shape::max_rank) + " extents");
      }
      dims.push_back(extent);
      if (!take(',') && !sees(')')) refuse();
    }
  }

  std::string_view left_;
};

MILLRACE_INLINE npy_layout npy_layout_of(std::string_view text) {
  if (!text.starts_with("\x93NUMPY")) throw no_tensor("not a .npy: it begins otherwise");
  if (text.size() < 12) throw decode_error("the .npy is cut short");
  const auto byte = [text](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(text[i])); };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) {
    throw no_tensor("the .npy is of version " + std::to_string(version) + ", and known are 1 to 3");
  }
  const std::size_t begin = version == 1 ? 10 : 12;
  std::size_t size = byte(8) | byte(9) << 8;
  if (version > 1) size |= byte(10) << 16 | byte(11) << 24;
  if (size > largest_npy_header) throw decode_error("the .npy has a header of " + std::to_string(size) + " bytes");
  if (size > text.size() - begin) throw decode_error("the .npy is cut short in its header");
  const npy_header header(text.substr(begin, size));
  std::size_t longer = 0;
  bool empty = false;
  for (const std::int64_t extent : header.dims) {
    longer += extent != 1;
    empty |= extent == 0;
  }
  if (header.fortran && longer > 1 && !empty) {
    throw no_tensor("the .npy is in Fortran's order: save numpy.ascontiguousarray() of it");
  }
  return {*header.type, header.dims, begin + size};
}

inline array npy_of(const bytes& file) {
  const npy_layout layout = npy_layout_of(file.view());
  return array(file.slice(layout.data, file.size() - layout.data), layout.type, layout.dims);
}

}  // namespace detail

MILLRACE_INLINE array parse_npy(const bytes& file, const where& at) {
  try {
    return detail::npy_of(file);
  } catch (error& e) {
    e.add_place(at);
    throw;
  }
}

MILLRACE_INLINE array parse_raw(const bytes& data, dtype type, const where& at) {
  if (data.size() % size_of(type) != 0) {
    throw decode_error(std::to_string(data.size()) + " bytes are no whole number of elements of " + name_of(type), at);
  }
  return array(data, type, shape{static_cast<std::int64_t>(data.size() / size_of(type))}, at);
}

namespace detail {

/// The block of bytes that something else owns. It has no capacity: a slice of it keeps nothing from being reused.
class shared_block : public block {
 public:
  explicit shared_block(std::shared_ptr<const void> o) noexcept : owner_(std::move(o)) {
    recycle = [](block* self) noexcept { delete static_cast<shared_block*>(self); };
  }

 private:
  std::shared_ptr<const void> owner_;
};

/// A file, mapped for reading.
class file_mapping {
 public:
  explicit file_mapping(std::string path) : path_(std::move(path)) {
    const where at{path_, std::nullopt, {}};
    const owned_fd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0) throw io_error::of(errno, "cannot be opened", at);
    struct ::stat found {};
    if (::fstat(file.get(), &found) != 0) throw io_error::of(errno, "cannot be looked at", at);
    if (!S_ISREG(found.st_mode)) throw io_error(std::errc(EINVAL), "cannot be mapped: it is no regular file", at);
    size_ = static_cast<std::size_t>(found.st_size);
    if (size_ == 0) return;
    void* const begin = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
    if (begin == MAP_FAILED) throw io_error::of(errno, "cannot be mapped", at);
    begin_ = static_cast<char*>(begin);
  }
  file_mapping(const file_mapping&) = delete;
  file_mapping& operator=(const file_mapping&) = delete;
  ~file_mapping() {
    if (begin_ != nullptr) ::munmap(begin_, size_);
  }

  const std::string& path() const noexcept { return path_; }
  const char* begin() const noexcept { return begin_; }
  std::size_t size() const noexcept { return size_; }
  bool holds(const char* p) const noexcept { return p >= begin_ && p < begin_ + size_; }

  /// Asks the kernel to begin reading these bytes.
  void will_need(const char* from, std::size_t size) const noexcept {
    ::madvise(page_of(from), reach(from, size), MADV_WILLNEED);
  }
  /// Waits until they are in memory, and mapped.
  void read_in(const char* from, std::size_t size) const {
    constexpr int populate_read = 22;  // MADV_POPULATE_READ, of Linux 5.14
    while (::madvise(page_of(from), reach(from, size), populate_read) != 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      if (errno == EINVAL) return touch(from, size);
      // EFAULT: looking at it would be a SIGBUS.
      const int code = errno == EFAULT ? EIO : errno;
      throw io_error(std::errc(code), errno == EFAULT ? "the mapped file cannot be read here, or has become shorter"
                                           : std::string("the mapped file cannot be read: ") + std::strerror(code),
                     where{path_, static_cast<std::uint64_t>(from - begin_), {}});
    }
  }

 private:
  static constexpr std::uintptr_t page = 4096;  // the smallest there is

  static void touch(const char* from, std::size_t size) noexcept {
    const volatile char* const bytes = from;
    for (std::size_t i = 0; i < size; i += page) static_cast<void>(bytes[i]);
    static_cast<void>(bytes[size - 1]);
  }
  static char* page_of(const char* p) noexcept {
    static const auto real = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    return const_cast<char*>(p) - reinterpret_cast<std::uintptr_t>(p) % real;
  }
  static std::size_t reach(const char* from, std::size_t size) noexcept {
    return size + static_cast<std::size_t>(from - page_of(from));
  }

  const std::string path_;
  char* begin_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace detail

MILLRACE_INLINE bytes array::shared_bytes(std::shared_ptr<const void> owner, const void* data, std::size_t size) {
  if (size == 0) return bytes();
  return bytes(new detail::shared_block(std::move(owner)), static_cast<const char*>(data), size);
}

/// An array of a mapped file, which is in its memory.
MILLRACE_INLINE array array::mapped(const std::shared_ptr<const detail::file_mapping>& file, array made) {
  if (!made.data_.empty() && !file->holds(made.data_.data())) {  // a copy
    throw decode_error("the elements of the file are not aligned for " + std::string(name_of(made.type_)),
                       where{file->path(), std::nullopt, {}});
  }
  made.file_ = file;
  return made;
}

MILLRACE_INLINE shape array::row_dims() const {
  shape dims;
  for (std::size_t k = 1; k < dims_.rank(); ++k) dims.push_back(dims_[k]);
  return dims;
}

MILLRACE_INLINE array map_npy(const std::string& path) {
  const auto file = std::make_shared<const detail::file_mapping>(path);
  return array::mapped(file, parse_npy(array::shared_bytes(file, file->begin(), file->size()),
                                       where{path, std::nullopt, {}}));
}

MILLRACE_INLINE array map_raw(const std::string& path, dtype type, const shape& dims, std::uint64_t offset) {
  const auto file = std::make_shared<const detail::file_mapping>(path);
  const where at{path, std::nullopt, {}};
  if (offset > file->size() || offset % size_of(type) != 0) {
    throw decode_error("an array of " + std::string(name_of(type)) + " cannot begin at byte " + std::to_string(offset) +
                           " of a file of " + std::to_string(file->size()),
                       at);
  }
  const bytes data = array::shared_bytes(file, file->begin() + offset, file->size() - static_cast<std::size_t>(offset));
  return array::mapped(file, array(data, type, dims, at));
}

MILLRACE_INLINE arrays::arrays(std::vector<named_array> all) : all_(std::move(all)) {
  if (all_.empty()) throw configuration_error("arrays: there are none");
  const named_array& first = all_.front();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const named_array& one = all_[i];
    const shape& dims = one.value.dims();
    if (one.name.empty()) throw configuration_error("arrays: array " + std::to_string(i) + " has no name");
    if (find(one.name) != &one.value) throw configuration_error("arrays: two are called \"" + one.name + '"');
    if (dims.rank() == 0 || dims[0] == 0) {
      throw configuration_error("arrays: \"" + one.name + "\" has no rows: its shape is " + dims.text());
    }
    if (dims[0] != first.value.dims()[0]) {
      throw configuration_error("arrays: \"" + first.name + "\" has " + std::to_string(first.value.dims()[0]) +
                                " rows, and \"" + one.name + "\" has " + std::to_string(dims[0]));
    }
  }
}

MILLRACE_INLINE const array* arrays::find(std::string_view name) const noexcept {
  for (const named_array& one : all_) {
    if (one.name == name) return &one.value;
  }
  return nullptr;
}

MILLRACE_INLINE bool arrays::mapped() const noexcept {
  return std::any_of(all_.begin(), all_.end(), [](const named_array& one) { return one.value.file_ != nullptr; });
}

MILLRACE_INLINE std::uint64_t arrays::contents() const {
  constexpr std::size_t ends = 64 * KiB;
  constexpr std::size_t block = 4 * KiB;
  constexpr std::size_t blocks = 16;
  hasher128 all;
  for (const named_array& one : all_) {
    const array& a = one.value;
    const auto add = [&](std::size_t at, std::size_t size) {
      if (size == 0) return;
      try {
        if (a.file_ != nullptr) a.file_->read_in(a.data_.data() + at, size);
      } catch (const io_error&) {  // which is an error of the rows there
        all.add(std::uint64_t{0});
        return;
      }
      all.add(std::uint64_t{crc32c(0, a.data_.data() + at, size)});
    };
    const std::size_t size = a.data_.size();
    all.add(std::uint64_t{size});
    if (size <= 2 * ends + blocks * block) {
      add(0, size);
      continue;
    }
    add(0, ends);
    for (std::size_t i = 0; i < blocks; ++i) add(ends + (size - 2 * ends - block) / blocks * i, block);
    add(size - ends, ends);
  }
  return all.value().low | 1U;
}

MILLRACE_INLINE void arrays::read_in(const std::vector<std::uint64_t>& stretches) const {
  for (const bool wait : {false, true}) {  // the disk works on all of them at once
    for (const named_array& one : all_) {
      const array& a = one.value;
      if (a.file_ == nullptr || a.data_.empty()) continue;
      const std::size_t row = a.data_.size() / rows();
      for (std::size_t i = 0; i + 1 < stretches.size(); i += 2) {
        const char* const from = a.data_.data() + stretches[i] * row;
        const auto size = static_cast<std::size_t>(stretches[i + 1] - stretches[i]) * row;
        if (wait) {
          a.file_->read_in(from, size);
        } else {
          a.file_->will_need(from, size);
        }
      }
    }
  }
}

}  // namespace millrace
