// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
class file_mapping;

/// Type and shape of a .npy, and the byte where its elements begin.
struct npy_layout {
  dtype type = dtype::u8;
  shape dims;
  std::size_t data = 0;
};
inline constexpr std::size_t largest_npy_header = 1 << 16;

/// `text` is all of the file, or its first 12 + largest_npy_header bytes.
npy_layout npy_layout_of(std::string_view text);
}  // namespace detail

/// A tensor of a sample: row-major, dense, in shared memory, which is a slice of the file if that is aligned.
/// Immutable; a copy is another share.
class array {
 public:
  array() = default;
  /// The elements are those of `data`, in the order of this machine. Copies them if they are not aligned. Throws
  /// decode_error if `data` has another size than type and shape say.
  array(const bytes& data, dtype type, const shape& dims, const where& at = where());
  /// Takes the elements over, without a copy: `array(std::move(x), {60'000, 28, 28})`. Throws as above.
  template <class T>
  array(std::vector<T> elements, const shape& dims) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has bits and no elements: use another type for them");
    const auto kept = std::make_shared<const std::vector<T>>(std::move(elements));
    *this = array(shared_bytes(kept, kept->data(), kept->size() * sizeof(T)), dtype_of<T>, dims);
  }
  /// The elements of `of`, without a copy. `owner` keeps their memory alive: it is dropped with the last share, on any
  /// thread. If it is null, the memory must outlive every share: that of a dataset, of its runs, and the samples and
  /// batches that came of them. Nothing may write to it in the meantime.
  array(const tensor_view& of, std::shared_ptr<const void> owner)
      : array(shared_bytes(std::move(owner), of.data(), of.bytes()), of.type(), of.dims()) {}

  dtype type() const noexcept { return type_; }
  const shape& dims() const noexcept { return dims_; }
  /// Aligned for its type; null if there are no elements.
  const void* data() const noexcept { return data_.data(); }
  const bytes& memory() const noexcept { return data_; }

  /// The elements. Throws configuration_error when T is not their type.
  template <class T>
  std::span<const T> values() const {
    if (dtype_of<T> != type_) {
      throw configuration_error(std::string("an array of ") + name_of(type_) + " was read as " +
                                name_of(dtype_of<T>));
    }
    return {reinterpret_cast<const T*>(data_.data()), data_.size() / sizeof(T)};
  }

  friend std::size_t byte_size(const array& a) noexcept { return a.data_.size(); }
  friend const bytes* slice_of(const array& a) noexcept { return &a.data_; }
  friend array compact_slices(array a) {
    a.data_ = a.data_.compact();
    return a;
  }

  /// The shape of its rows: without the first extent, of which there must be one.
  shape row_dims() const;

 private:
  friend class arrays;
  friend array map_npy(const std::string& path);
  friend array map_raw(const std::string& path, dtype type, const shape& dims, std::uint64_t offset);
  static bytes shared_bytes(std::shared_ptr<const void> owner, const void* data, std::size_t size);
  static array mapped(const std::shared_ptr<const detail::file_mapping>& file, array made);

  bytes data_;
  dtype type_ = dtype::u8;
  shape dims_ = shape{0};
  std::shared_ptr<const detail::file_mapping> file_;  // that it is in; null: it is in memory
};

/// An array of several.
class named_array {
 public:
  named_array(std::string n, array a) : name(std::move(n)), value(std::move(a)) {}
  std::string name;
  array value;
};

namespace detail {
/// A .npy that is sound as far as it was looked at, and of a kind that no array is made of.
class no_tensor : public decode_error {
 public:
  using decode_error::decode_error;
};
}  // namespace detail

/// Reads the files of np.save() (NumPy's format 1.0, 2.0 and 3.0), without a copy if the data are aligned, as NumPy
/// aligns them: booleans, whole numbers and floating-point numbers of 16, 32 and 64 bits.
///
/// Throws decode_error, with the place `at`, for a file that is no .npy, is cut short or longer than it says, and for
/// arrays that there is no tensor for: big-endian elements, Fortran's order (but for arrays that have the same order in
/// both), Python objects, text, structures, complex numbers, more than eight extents. A header of more than 64 KiB is
/// refused.
array parse_npy(const bytes& file, const where& at = where());

/// Elements without a header, little-endian, one after the other, as ndarray.tofile() writes them: one dimension, as
/// long as there are. array's own constructor gives them a shape. Throws decode_error for a part of an element.
array parse_raw(const bytes& data, dtype type, const where& at = where());

/// The array of a .npy file, mapped into memory (mmap(2), read only) and not read: pages are read when they are looked
/// at. So a file may be larger than memory, and processes that map the same one share it. The mapping lasts as long as
/// a share of the array. The header is read here, on the calling thread.
///
/// If a page cannot be read, the process gets SIGBUS: nothing may make the file shorter meanwhile. A dataset of such
/// `arrays` reads the pages of a sample before it delivers it, on a pool, and reports that as an io_error.
///
/// Throws io_error if the file cannot be opened or mapped, and decode_error, with the path, as parse_npy().
array map_npy(const std::string& path);
/// Maps a file without a header, as ndarray.tofile() writes it: `map_raw("x.bin", dtype::f32, {60'000, 784})`,
/// little-endian and row-major, from byte `offset` on. decode_error unless the file ends where the array does, and
/// if `offset` is no multiple of an element.
array map_raw(const std::string& path, dtype type, const shape& dims, std::uint64_t offset = 0);

/// Arrays with equally many rows, each of which is a sample:
///
///     const mill::dataset train(mill::arrays({{"x", mill::map_npy("x.npy")}, {"y", mill::map_npy("y.npy")}}));
///
/// Sample i has the fields "x" and "y": the bytes of row i of each. They share the arrays' memory, and keep it alive.
/// read_arrays() gives them type and shape. Copies share the memory, too.
class arrays {
 public:
  /// Throws configuration_error, which names the arrays, if they have no rows or different numbers of them, and for
  /// a name that is empty or stands twice.
  explicit arrays(std::vector<named_array> all);

  std::size_t rows() const noexcept { return static_cast<std::size_t>(all_.front().value.dims()[0]); }
  auto begin() const noexcept { return all_.begin(); }
  auto end() const noexcept { return all_.end(); }
  std::size_t size() const noexcept { return all_.size(); }
  /// The array of that name; null if there is none.
  const array* find(std::string_view name) const noexcept;
  /// True if one of them is in a mapped file.
  bool mapped() const noexcept;
  /// A hash of the arrays' contents, of each the first and the last 64 KiB, and 4 KiB at sixteen places between: all
  /// but surely another one if these differ. Never 0. Pages of a mapped one that cannot be read are left out: that is
  /// an error of its rows.
  std::uint64_t contents() const;
  /// Reads the pages of rows that are in mapped files, if they are not in memory. `stretches`: the first row and the
  /// one after the last, of each stretch of neighbours. io_error, which names the file, if that fails.
  void read_in(const std::vector<std::uint64_t>& stretches) const;

 private:
  std::vector<named_array> all_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/array.ipp>
#endif
