// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/index/detail/index_parts.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::string unfinished(const std::string& path, const void* whose) {
  char host[64] = "";
  ::gethostname(host, sizeof host - 1);
  hasher128 mine;
  mine.add(std::string_view(host));
  mine.add(static_cast<std::uint64_t>(::getpid()));
  mine.add(reinterpret_cast<std::uintptr_t>(whose));
  return path + "." + mine.value().text() + ".new";
}

MILLRACE_INLINE index_parts::index_parts(const std::string& index_file)
    : file_(index_file), folder_(index_file + ".parts"), begun_(std::filesystem::file_time_type::clock::now()) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::string probe = unfinished(folder_ + "/probe", this);
  if (!error && std::ofstream(probe)) {
    std::filesystem::remove(probe, error);
    return;
  }
  throw io_error::of(error ? error.value() : errno, "the index cannot be written", where{index_file, std::nullopt, {}});
}

MILLRACE_INLINE std::string index_parts::path_of(const std::string& name) const {
  hasher128 h;
  h.add(name);
  return folder_ + '/' + h.value().text() + ".index";
}

MILLRACE_INLINE std::optional<shard_index> index_parts::find(const std::string& name, const shard& object) const {
  const std::string path = path_of(name);
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  const std::string text(std::istreambuf_iterator<char>(in), {});
  try {
    std::string_view rest = text;
    shard_index index = shard_index::read(rest, path);
    if (!rest.empty() || index.name() != name) return std::nullopt;
    index.check(object);
    if (!object.etag.empty() && !index.etag().empty()) return index;
    std::error_code error;
    const auto made = std::filesystem::last_write_time(path, error);
    if (!error && made > begun_ - std::chrono::minutes(10)) return index;  // ranks do not begin at once
    return std::nullopt;
  } catch (const index_error&) {
    return std::nullopt;  // a file of another program, or of another version: the shard is read
  }
}

MILLRACE_INLINE void index_parts::leave(const shard_index& index) const noexcept {
  try {
    const std::string path = path_of(index.name());
    const std::string fresh = unfinished(path, &index);
    std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
    out << index.text();
    out.close();
    std::error_code error;
    if (out) std::filesystem::rename(fresh, path, error);
    if (!out || error) std::filesystem::remove(fresh, error);
  } catch (...) {
  }
}

MILLRACE_INLINE void index_parts::beat(std::uint32_t rank) const noexcept {
  try {
    std::ofstream(folder_ + "/rank-" + std::to_string(rank) + ".reads", std::ios::app) << '.';
  } catch (...) {
  }
}

MILLRACE_INLINE index_parts::news index_parts::look() const noexcept {
  news now;
  try {
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
      const std::filesystem::path kind = at->path().extension();
      std::error_code gone;
      if (kind == ".index") ++now.indexes;
      if (kind == ".reads") now.beats += at->file_size(gone);
    }
  } catch (...) {
  }
  return now;
}

MILLRACE_INLINE bool index_parts::finished() const noexcept {
  std::error_code ignored;
  return std::filesystem::exists(file_, ignored);
}

MILLRACE_INLINE void index_parts::remove() const noexcept {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace millrace::detail
