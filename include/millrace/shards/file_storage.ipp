// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <glob.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/io/file.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

template <class Unused>
bool basic_file_storage<Unused>::serves(std::string_view url) const noexcept {
  return text::starts_ignoring_case(url, "file://") || url.find("://") == std::string_view::npos;
}

template <class Unused>
task<storage::part> basic_file_storage<Unused>::read(shard object, std::string, std::uint64_t offset,
                                                     std::size_t length, slab_pool slabs) const {
  std::string path = text::starts_ignoring_case(object.url, "file://") ? object.url.substr(7) : object.url;
  file_options how;
  how.direct = options_.direct;
  file f = co_await file::open(std::move(path), how);
  part result;
  result.total = co_await f.size();
  writable_bytes memory = slabs.worth_a_slab(length) ? slabs.acquire() : writable_bytes::allocate(length);
  const std::size_t got = co_await f.read_at(memory, 0, length, offset);
  result.data = memory.share(0, got);
  co_return std::move(result);
}

template <class Unused>
async_generator<shard> basic_file_storage<Unused>::list(std::string prefix) const {
  if (text::starts_ignoring_case(prefix, "file://")) prefix.erase(0, 7);
  if (prefix.find_first_of("*?[") != std::string::npos) return detail::glob_files(std::move(prefix));
  struct ::stat found {};
  const bool folder = !prefix.empty() && prefix.back() != '/' && ::stat(prefix.c_str(), &found) == 0 &&
                      S_ISDIR(found.st_mode);
  return detail::files_below(folder ? prefix + '/' : std::move(prefix));
}

#if defined(MILLRACE_SEPARATE_COMPILATION)
template class basic_file_storage<>;
#endif

MILLRACE_COROUTINE_BODY std::shared_ptr<const storage> files(file_storage_options options) {
  return std::make_shared<const file_storage>(options);
}

MILLRACE_INLINE void detail::log_left_out(executor& ex, const std::string& index) {
  const std::string name = shown_beside(index);
  const std::string line = "millrace: the listing leaves out an index: " + name;
  if (first_time(line)) log_line(ex, line, log_level::info, {{"shard", name}});
}

MILLRACE_COROUTINE_BODY async_generator<shard> detail::glob_files(std::string pattern) {
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
    if (is_index_beside(pattern, n)) {
      executor& ex = co_await this_executor();
      log_left_out(ex, n);
      continue;
    }
    shard s(std::move(n));
    co_yield give(s);
  }
}

/// The names in a folder, by their bytes; without hidden files.
MILLRACE_INLINE std::vector<std::string> detail::names_in(const std::string& folder) {
  const auto by_bytes = [](const ::dirent** a, const ::dirent** b) { return std::strcmp((*a)->d_name, (*b)->d_name); };
  const auto shown = [](const ::dirent* e) { return e->d_name[0] != '.' ? 1 : 0; };
  ::dirent** found = nullptr;
  const int count = ::scandir(folder.empty() ? "." : folder.c_str(), &found, shown, by_bytes);
  if (count < 0) throw io_error::of(errno, "cannot read a folder", where{folder, std::nullopt, {}});
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.emplace_back(found[i]->d_name);
    std::free(found[i]);
  }
  std::free(found);
  return names;
}

/// Folder by folder.
MILLRACE_COROUTINE_BODY async_generator<shard> detail::files_below(std::string prefix) {
  const std::size_t slash = prefix.rfind('/') + 1;
  std::vector<std::string> folders{prefix.substr(0, slash)};  // to read, each with its slash
  std::string begin = prefix.substr(slash);                   // of the names in the first one
  bool any = false;
  while (!folders.empty()) {
    const std::string folder = std::move(folders.back());
    folders.pop_back();
    std::vector<std::string> within;
    std::vector<shard> files;
    for (const std::string& name : names_in(folder)) {
      if (name.compare(0, begin.size(), begin) != 0) continue;
      std::string path = folder + name;
      struct ::stat found {};
      if (::stat(path.c_str(), &found) != 0) {
        if (errno == ENOENT && ::lstat(path.c_str(), &found) != 0) continue;  // it is gone by now
        throw io_error::of(errno, "cannot be listed", where{path, std::nullopt, {}});
      }
      if (S_ISDIR(found.st_mode)) {
        within.push_back(path + '/');
      } else if (is_index_beside(prefix, path)) {
        executor& ex = co_await this_executor();
        log_left_out(ex, path);
      } else if (S_ISREG(found.st_mode)) {
        files.emplace_back(std::move(path), static_cast<std::uint64_t>(found.st_size));
      }
    }
    begin.clear();
    folders.insert(folders.end(), within.rbegin(), within.rend());
    any = any || !files.empty();
    for (shard& s : files) co_yield give(s);
  }
  if (!any) throw configuration_error("no file matches the prefix", where{prefix, std::nullopt, {}});
}

MILLRACE_COROUTINE_BODY stream<shard> glob(std::string_view pattern) {
  return stream<shard>(detail::glob_files(std::string(pattern))).named("glob");
}

}  // namespace millrace
