// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Options of files().
struct file_storage_options {
  bool direct = false;  ///< O_DIRECT where the file system allows it: for data read once and larger than memory
};

/// Reads and writes local files: paths and file:// URLs, by the loop's ring. A file that changes its size while it is
/// read is an error; other changes cannot be noticed, as files have no versions.
template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_file_storage final : public storage {
 public:
  explicit basic_file_storage(file_storage_options options = {}) : options_(options) {}

  bool serves(std::string_view url) const noexcept override;

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override;
  bool over_network(std::string_view) const noexcept override { return false; }
  /// The files of a folder ("data/train/") or whose paths begin with `prefix`, those in folders below it included, with
  /// their sizes; without hidden ones, whose names begin with a dot. Or those that match it as a pattern of glob().
  async_generator<shard> list(std::string prefix) const override;
  /// Without patterns and hidden files; a folder that is missing has none.
  async_generator<shard> list_all(std::string prefix) const override;
  /// Written under another name, `.NAME.*.part`, synchronised and renamed; folders that are missing are made. What a
  /// writer of the same file has left, and is not running any more, is removed. Without ETags: configuration_error for
  /// .if_match.
  task<std::string> put(std::string url, async_generator<bytes> content, write_options how) const override;
  task<void> remove(std::string url) const override;

 private:
  const file_storage_options options_;
};
using file_storage = basic_file_storage<>;

#if defined(MILLRACE_SEPARATE_COMPILATION)
extern template class basic_file_storage<>;
#endif

/// The store of local files, for fetch().
MILLRACE_COROUTINE std::shared_ptr<const storage> files(file_storage_options options = {});

namespace detail {

MILLRACE_COROUTINE async_generator<shard> glob_files(std::string pattern);
MILLRACE_COROUTINE async_generator<shard> files_below(std::string prefix, bool all = false);
void log_left_out(executor& ex, const std::string& index);

}  // namespace detail

/// Source: the files that match a pattern of glob(7), in the order of their names. No match is an error. An index that
/// millrace-index wrote among them (millrace.index) is left out, which the log says once.
MILLRACE_COROUTINE stream<shard> glob(std::string_view pattern);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/file_storage.ipp>
#endif
