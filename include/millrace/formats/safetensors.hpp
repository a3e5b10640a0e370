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
#include <millrace/device/batch_pool.hpp>
#include <millrace/device/detail/slot_device.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A named tensor in the program's memory (ordinary or page-locked), or rows of it: what is written and loaded. What is
/// loaded may be memory of a device, too.
class tensor_slice {
 public:
  tensor_slice(std::string its_name, const tensor_view& at, std::uint64_t first = 0, std::uint64_t of = 0)
      : name(std::move(its_name)), memory(at), first_row(first), rows(of) {}
  std::string name;
  tensor_view memory;       ///< must outlive what writes or loads it
  std::uint64_t first_row;  ///< of the whole tensor, along its first dimension
  /// When it is written: rows of the whole tensor; 0: `memory` is all of it.
  std::uint64_t rows;
};

/// A tensor, or rows of one, in a safetensors file.
class stored_tensor {
 public:
  std::string name;
  dtype type = dtype::u8;
  shape dims;
  std::uint64_t begin = 0;      ///< byte of the file where its data begins
  std::uint64_t end = 0;        ///< byte after its data
  std::uint64_t first_row = 0;  ///< see tensor_slice
  std::uint64_t rows = 0;       ///< of the whole tensor; 0: these are all, or it is not known
};

/// The header of a safetensors file.
class safetensors_header {
 public:
  static constexpr std::uint64_t longest = 100'000'000;  ///< bytes of its JSON

  std::vector<stored_tensor> tensors;  ///< in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata;

  /// Reads the header of `object` of `file_bytes` bytes, from its first 8 + n, or more. Throws archive_error, with the
  /// byte and the reason, for all that the format forbids (no JSON, holes or overlaps between tensors, data of another
  /// size than type and shape say, a name that is there twice, a file that is cut short or too long), and for types
  /// that `dtype` does not have.
  static safetensors_header parse(std::string_view front, std::uint64_t file_bytes, const std::string& object);
};

namespace detail {
inline constexpr const char* safetensors_index_name = "model.safetensors.index.json";
/// "model-00001-of-00008.safetensors" for the first of eight.
std::string safetensors_name(std::uint64_t index, std::uint64_t of);
/// A JSON string. usage_error for text that is no UTF-8.
void append_quoted(std::string& out, std::string_view text);
/// The first bytes of a file with these tensors, which are put into the order of their data; slices of no rows are left
/// out. configuration_error for a name that is there twice, or is "__metadata__", and for rows that the whole tensor
/// does not have.
std::string safetensors_front(std::vector<tensor_slice>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata);
MILLRACE_COROUTINE task<std::string> put_tensors(std::shared_ptr<const storage> to, std::string url,
                                                 std::vector<tensor_slice> tensors,
                                                 std::vector<std::pair<std::string, std::string>> metadata,
                                                 write_options how);
}  // namespace detail

/// Tensors in one or several safetensors files of a store, whose headers have been read. It may be used by several
/// tasks at once. A copy has the headers, too.
class tensor_files {
 public:
  class file {
   public:
    shard object;
    safetensors_header header;  ///< without its metadata where the index of a checkpoint has it
    std::string digest;         ///< the hash128 of the header's text
  };

  tensor_files() = default;
  /// Joins the rows of tensors that lie in several files. archive_error if they overlap, have a gap or differ.
  /// `by_index`: the headers are those of an index, and the files have not been looked at.
  tensor_files(std::shared_ptr<const storage> from, std::vector<file> all, std::string state, bool by_index = false);

  /// The whole tensors, by name; `dims` has all rows, begin and end say nothing.
  const std::vector<stored_tensor>& tensors() const noexcept { return tensors_; }
  /// Null if there is none.
  const stored_tensor* find(std::string_view name) const noexcept;
  const std::vector<file>& files() const noexcept { return files_; }
  /// Where the rows of tensors are: by name, and in their order.
  class part {
   public:
    std::size_t file = 0;    ///< of files()
    std::size_t tensor = 0;  ///< of its header
  };
  const std::vector<part>& parts() const noexcept { return parts_; }
  /// The tensor that it is, or a piece of it.
  const stored_tensor& stored(const part& p) const noexcept { return files_[p.file].header.tensors[p.tensor]; }
  /// Of the loader, that was committed with the tensors; empty without.
  const std::string& state() const noexcept { return state_; }

  /// Reads tensors, or rows of them, straight into memory that the program gives. Every slice has the stored type and
  /// shape, but for the number of rows. Ranges of 1 MiB and more are read into place in parts of 8 MiB; shorter ones
  /// that lie beside each other (64 KiB apart at most) are one request, and are copied. 16 requests are in flight, each
  /// of the version whose header was read. Headers that came from a checkpoint's index are compared with those of the
  /// files that are read, where these have no version or another one than was committed (a copy of the checkpoint,
  /// say): changed_error if they differ. An error is delivered when all reads have ended. Dropping it ends them; keep
  /// the memory until the loops are drained then. Errors: configuration_error for a name, type or shape that is not
  /// stored; the store's. Must outlive the task.
  MILLRACE_COROUTINE task<void> load(std::vector<tensor_slice> into) const;

  /// The same into memory of a device, which `on` is, or a stream of (cuda::stream): as what to_device() takes. Each
  /// range is read into page-locked memory of the load's own, 16 times 8 MiB at most, and copied on the stream while
  /// others are read. When the task has ended all copies are done, so any stream may use the memory; no enqueued work
  /// may use it before. Dropping the task waits for the copies that are on their way, some milliseconds; then nothing
  /// writes to the memory any more. Errors: those of the device, too.
  template <class Device>
  task<void> load(std::vector<tensor_slice> into, const Device& on) const {
    auto known = detail::device_of(on);
    return load_to(std::move(into), std::make_shared<detail::slot_device_on<decltype(known)>>(known));
  }

 private:
  /// `on`: null for the host's memory.
  MILLRACE_COROUTINE task<void> load_to(std::vector<tensor_slice> into, std::shared_ptr<detail::slot_device> on) const;

  std::shared_ptr<const storage> store_;
  std::vector<file> files_;
  std::vector<part> parts_;
  std::vector<stored_tensor> tensors_;
  std::string state_;
  bool by_index_ = false;
};

namespace detail {
/// The index of several files: model.safetensors.index.json.
class safetensors_index {
 public:
  std::vector<std::string> names;         ///< of the files that the weight_map has, each once
  std::vector<tensor_files::file> files;  ///< a checkpoint's, with their headers; else none
  std::string state;
  /// `folder`: of the files. `only`: see open_safetensors().
  static safetensors_index parse(std::string_view text, const std::string& folder, std::vector<std::string> only = {});
};

/// The members of an index that the headers of all files are read from: "millrace_tensors" has name, type and shape of
/// each whole tensor, "millrace_files" of each file its name, ETag, digest and [bytes, byte where the data begins], and
/// number of the tensor, first row and rows (0, 0 without dimensions) of what is in it, in the order of the data.
std::string headers_for_index(const tensor_files& all, std::string_view folder);
/// The header of one file.
MILLRACE_COROUTINE task<tensor_files::file> read_front(std::shared_ptr<const storage> from, std::string url);
MILLRACE_COROUTINE task<tensor_files> open_tensors(std::shared_ptr<const storage> from, std::string url,
                                                   std::vector<std::string> only);
}  // namespace detail

/// Stores tensors as one safetensors file, from the program's memory; gives its ETag. The data is in the order of the
/// elements' sizes, then of names, so all of it is aligned; the same tensors give the same bytes. Holds the parts of
/// `how`. Rows of larger tensors are noted as PyTorch's distributed checkpoints note them (DCP_SHARDING_INFO).
template <class Store>
task<std::string> put_safetensors(const Store& store, std::string url, std::vector<tensor_slice> tensors,
                                  std::vector<std::pair<std::string, std::string>> metadata = {},
                                  write_options how = {}) {
  return detail::put_tensors(detail::storage_of(store), std::move(url), std::move(tensors), std::move(metadata), how);
}

/// Reads the headers of a safetensors file, or of all files in a folder (a URL that ends with a slash) by the
/// `model.safetensors.index.json` in it: a checkpoint, whose index has the headers (at most four requests), or a model
/// as Hugging Face keeps it. 64 KiB of each file of that are read, and more where the header is longer; with `only`,
/// of the files that have these tensors. Errors: archive_error for damaged or hostile headers and indexes,
/// configuration_error for a tensor of `only` that an index has not, the store's.
template <class Store>
task<tensor_files> open_safetensors(const Store& store, std::string url, std::vector<std::string> only = {}) {
  return detail::open_tensors(detail::storage_of(store), std::move(url), std::move(only));
}

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/safetensors.ipp>
#endif
