// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <glob.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/io/file.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace {

/// Options of files().
struct file_storage_options {
  bool direct = false;  ///< O_DIRECT where the file system allows it: for data read once and larger than memory
};

/// Reads local files: paths and file:// URLs, by the loop's ring. A file that changes its size while it is read is an
/// error; other changes cannot be noticed.
template <class = void>
class basic_file_storage final : public storage {
 public:
  explicit basic_file_storage(file_storage_options options = {}) : options_(options) {}

  bool serves(std::string_view url) const noexcept override {
    return url.substr(0, 7) == "file://" || url.find("://") == std::string_view::npos;
  }

  task<part> read(shard object, std::string, std::uint64_t offset, std::size_t length, slab_pool slabs) const override {
    std::string path = object.url.substr(0, 7) == "file://" ? object.url.substr(7) : object.url;
    file_options how;
    how.direct = options_.direct;
    file f = co_await file::open(std::move(path), how);
    part result;
    result.total = co_await f.size();
    writable_bytes memory = length > slabs.slab_bytes() / 8 ? slabs.acquire() : writable_bytes::allocate(length);
    const std::size_t got = co_await f.read_at(memory, 0, length, offset);
    result.data = memory.share(0, got);
    co_return std::move(result);
  }

 private:
  const file_storage_options options_;
};
using file_storage = basic_file_storage<>;

/// The store of local files, for fetch().
template <class T = void>
std::shared_ptr<const storage> files(file_storage_options options = {}) {
  return std::make_shared<const basic_file_storage<T>>(options);
}

namespace detail {
template <class = void>
async_generator<shard> glob_files(std::string pattern) {
  ::glob_t found{};
  // A folder that cannot be read (no descriptor left, no permission, a broken disk) would be passed over in silence.
  const auto refuse = [](const char*, int error) { return error == ENOENT || error == ENOTDIR ? 0 : 1; };
  const int rc = ::glob(pattern.c_str(), GLOB_MARK | GLOB_NOSORT, refuse, &found);
  const int error = errno;
  // By bytes: glob(3) sorts by the locale, which may differ between ranks.
  const auto by_bytes = [](const void* a, const void* b) {
    return std::strcmp(*static_cast<char* const*>(a), *static_cast<char* const*>(b));
  };
  if (rc == 0) std::qsort(found.gl_pathv, found.gl_pathc, sizeof(char*), by_bytes);
  std::vector<std::string> names;
  for (std::size_t i = 0; rc == 0 && i < found.gl_pathc; ++i) {
    std::string name = found.gl_pathv[i];
    if (name.back() != '/') names.push_back(std::move(name));  // GLOB_MARK: folders end in a slash
  }
  ::globfree(&found);
  const where at{pattern, std::nullopt, std::string()};
  if (rc == GLOB_ABORTED) throw io_error(error, std::string("cannot read a folder: ") + std::strerror(error), at);
  if (rc == GLOB_NOSPACE) throw std::bad_alloc();
  if (names.empty()) throw configuration_error("no file matches the pattern", at);
  for (std::string& n : names) {
    shard s(std::move(n));
    co_yield give(s);
  }
}
}  // namespace detail

/// Source: the files that match a pattern of glob(7), in the order of their names. No match is an error.
template <class = void>
stream<shard> glob(std::string_view pattern) {
  return stream<shard>(detail::glob_files(std::string(pattern))).named("glob");
}

}  // namespace millrace
