// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/io/file.hpp>
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::string path_of(std::string url) {
  if (text::starts_ignoring_case(url, "file://")) url.erase(0, 7);
  return url;
}

/// The names in a folder, in the order of their bytes; without hidden files.
MILLRACE_INLINE std::vector<std::string> names_in(const std::string& folder) {
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

/// A file that is being written under another name, which it loses when it is complete. Dropped before, it is removed.
/// It is locked meanwhile: so a later writer of the same file knows what an earlier one has left.
class file_aside {
 public:
  explicit file_aside(std::string path) : path_(std::move(path)) {
    const std::size_t name = path_.rfind('/') + 1;
    folder_ = name == 0 ? std::string("./") : path_.substr(0, name);
    for (std::size_t at = folder_.find('/', 1); at != std::string::npos; at = folder_.find('/', at + 1)) {
      if (::mkdir(folder_.substr(0, at).c_str(), 0777) == 0 || errno == EEXIST || at + 1 < folder_.size()) continue;
      throw io_error::of(errno, "the folder cannot be made", where{folder_, std::nullopt, {}});
    }
    const std::string begin = '.' + path_.substr(name) + '.';
    remove_left(begin);
    std::uint64_t salt = mix64(reinterpret_cast<std::uintptr_t>(this));
    do {
      aside_ = path_.substr(0, name) + begin + std::to_string(::getpid()) + '-' + std::to_string(salt++) + ".part";
      // Made here, and not by what opens it: that may still be on its way when this is dropped.
      lock_ = owned_fd(::open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (lock_.get() < 0) throw io_error::of(errno, "the file cannot be made", where{aside_, std::nullopt, {}});
    } while (!locked());
  }
  file_aside(const file_aside&) = delete;
  file_aside& operator=(const file_aside&) = delete;
  ~file_aside() {
    if (!aside_.empty()) ::unlink(aside_.c_str());
  }

  const std::string& aside() const noexcept { return aside_; }
  /// After the file is written and synchronised.
  void publish(bool only_new) {
    const where at{path_, std::nullopt, {}};
    // A link is made only where nothing has the name; a file system without links has renaming alone.
    const bool linked = only_new && ::link(aside_.c_str(), path_.c_str()) == 0;
    int why = linked || !only_new ? 0 : errno;
    struct ::stat found {};
    const bool no_links = why == EPERM || why == ENOTSUP || why == ENOSYS;
    if (no_links) why = ::lstat(path_.c_str(), &found) == 0 ? EEXIST : 0;
    if (linked) ::unlink(aside_.c_str());
    if (!linked && why == 0 && ::rename(aside_.c_str(), path_.c_str()) != 0) why = errno;
    if (why == EEXIST && only_new) {
      throw changed_error(std::string("the file cannot be given its name: ") + std::strerror(why), at);
    }
    if (why != 0) throw io_error::of(why, "the file cannot be given its name", at);
    aside_.clear();
    const owned_fd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() >= 0 && ::fsync(folder.get()) == 0) return;
    // Some file systems do not synchronise folders.
    if (errno != EINVAL && errno != ENOTSUP) throw io_error::of(errno, "the folder cannot be synchronised", at);
  }

 private:
  /// False where another writer took it for left before it was locked. A file system without locks has none.
  bool locked() const noexcept {
    struct ::stat found {};
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
    return ::fstat(lock_.get(), &found) != 0 || found.st_nlink != 0;
  }
  void remove_left(const std::string& begin) const {
    ::DIR* const all = ::opendir(folder_.c_str());
    while (const ::dirent* const e = all != nullptr ? ::readdir(all) : nullptr) {
      const std::string_view other = e->d_name;
      if (other.size() <= begin.size() + 5 || !other.starts_with(begin) || !other.ends_with(".part")) continue;
      const std::string path = folder_ + e->d_name;
      const owned_fd its(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
      if (its.get() >= 0 && ::flock(its.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    }
    if (all != nullptr) ::closedir(all);
  }

  std::string path_;
  std::string folder_;
  std::string aside_;
  owned_fd lock_;
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

template <class Unused>
bool basic_file_storage<Unused>::serves(std::string_view url) const noexcept {
  return text::starts_ignoring_case(url, "file://") || url.find("://") == std::string_view::npos;
}

template <class Unused>
task<storage::part> basic_file_storage<Unused>::read(shard object, std::string, std::uint64_t offset,
                                                     std::size_t length, slab_pool slabs) const {
  file_options how;
  how.direct = options_.direct;
  file f = co_await file::open(detail::path_of(std::move(object.url)), how);
  part result;
  result.total = co_await f.size();
  writable_bytes memory = slabs.worth_a_slab(length) ? slabs.acquire() : writable_bytes::allocate(length);
  const std::size_t got = co_await f.read_at(memory, 0, length, offset);
  result.data = memory.share(0, got);
  co_return std::move(result);
}

template <class Unused>
async_generator<shard> basic_file_storage<Unused>::list(std::string prefix) const {
  prefix = detail::path_of(std::move(prefix));
  if (prefix.find_first_of("*?[") != std::string::npos) return detail::glob_files(std::move(prefix));
  struct ::stat found {};
  const bool folder = !prefix.empty() && prefix.back() != '/' && ::stat(prefix.c_str(), &found) == 0 &&
                      S_ISDIR(found.st_mode);
  return detail::files_below(folder ? prefix + '/' : std::move(prefix));
}

template <class Unused>
async_generator<shard> basic_file_storage<Unused>::list_all(std::string prefix) const {
  return detail::files_below(std::move(prefix), true);
}

template <class Unused>
task<std::string> basic_file_storage<Unused>::put(std::string url, async_generator<bytes> content,
                                                  write_options how) const {
  if (!how.if_match.empty()) {
    throw configuration_error("a file has no version that .if_match could be compared with",
                              where{url, std::nullopt, {}});
  }
  detail::file_aside to(detail::path_of(std::move(url)));
  file_options writing;
  writing.write = true;
  file out = co_await file::open(to.aside(), writing);
  std::uint64_t at = 0;
  while (std::optional<bytes> piece = co_await content.next()) {
    const std::size_t size = piece->size();
    co_await out.write_at(std::move(*piece), at);
    at += size;
  }
  co_await out.sync();
  co_await out.close();
  to.publish(how.only_new);
  co_return std::string();
}

template <class Unused>
task<void> basic_file_storage<Unused>::remove(std::string url) const {
  const std::string path = detail::path_of(std::move(url));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    throw io_error::of(errno, "the file cannot be removed", where{path, std::nullopt, {}});
  }
  co_return;
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
  if (rc == GLOB_ABORTED) throw io_error::of(error, "cannot read a folder", at);
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

/// Folder by folder. With `all`, indexes too, and no file is no error.
MILLRACE_COROUTINE_BODY async_generator<shard> detail::files_below(std::string prefix, bool all) {
  const std::string scheme = prefix.substr(0, prefix.size() - path_of(prefix).size());
  prefix.erase(0, scheme.size());
  const std::size_t slash = prefix.rfind('/') + 1;
  std::vector<std::string> folders{prefix.substr(0, slash)};  // to read, each with its slash
  std::string begin = prefix.substr(slash);                   // of the names in the first one
  bool any = false;
  while (!folders.empty()) {
    const std::string folder = std::move(folders.back());
    folders.pop_back();
    std::vector<std::string> within;
    std::vector<shard> files;
    std::vector<std::string> names;
    try {
      names = names_in(folder);
    } catch (const io_error& e) {
      if (!all || e.code() != std::errc::no_such_file_or_directory) throw;
    }
    for (const std::string& name : names) {
      if (name.compare(0, begin.size(), begin) != 0) continue;
      std::string path = folder + name;
      struct ::stat found {};
      if (::stat(path.c_str(), &found) != 0) {
        if (errno == ENOENT && ::lstat(path.c_str(), &found) != 0) continue;  // it is gone by now
        throw io_error::of(errno, "cannot be listed", where{path, std::nullopt, {}});
      }
      if (S_ISDIR(found.st_mode)) {
        within.push_back(path + '/');
      } else if (!all && is_index_beside(prefix, path)) {
        executor& ex = co_await this_executor();
        log_left_out(ex, path);
      } else if (S_ISREG(found.st_mode)) {
        files.emplace_back(scheme + path, static_cast<std::uint64_t>(found.st_size));
      }
    }
    begin.clear();
    folders.insert(folders.end(), within.rbegin(), within.rend());
    any = any || !files.empty();
    for (shard& s : files) co_yield give(s);
  }
  if (!any && !all) throw configuration_error("no file matches the prefix", where{prefix, std::nullopt, {}});
}

MILLRACE_COROUTINE_BODY stream<shard> glob(std::string_view pattern) {
  return stream<shard>(detail::glob_files(std::string(pattern))).named("glob");
}

}  // namespace millrace
