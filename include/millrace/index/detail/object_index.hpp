// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/sample_format.hpp>
#include <millrace/index/shard_index.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Makes the indexes of objects that are samples from a listing of them, in any order. Nothing of them is read. Samples
/// are in the order of their keys' bytes, the objects of one in that of their paths'; of sample_format::classes each
/// folder has an index of its own, of the others there is one.
///
/// Memory: 32 bytes an object, its path, and its ETag.
class object_index_builder {
 public:
  /// `prefix`: what stands before the paths; not empty, and ends in a slash.
  object_index_builder(sample_format format, std::string prefix) : format_(format), prefix_(std::move(prefix)) {}

  /// Throws configuration_error for an object that cannot be read by an index of its path: it has another prefix, its
  /// size is not known, its URL is signed.
  void add(const shard& object);
  /// Throws index_error, which names the object, where two fields of a sample would have one name.
  index_set finish();
  /// What was left out, in a sentence; empty where nothing was.
  std::string passed_over() const;

 private:
  /// An object: where its path is in texts_, and how much of that is its class and its key.
  struct entry {
    std::uint64_t at = 0;
    std::uint64_t size = 0;
    std::uint32_t path = 0;
    std::uint32_t key = 0;
    std::uint32_t folder = 0;
  };

  std::string_view path_of(const entry& e) const noexcept {
    return std::string_view(texts_).substr(static_cast<std::size_t>(e.at), e.path);
  }
  std::string_view key_of(const entry& e) const noexcept { return path_of(e).substr(0, e.key); }
  std::string_view folder_of(const entry& e) const noexcept { return path_of(e).substr(0, e.folder); }
  shard_index index_of(std::size_t first, std::size_t end);

  const sample_format format_;
  const std::string prefix_;
  std::string texts_;
  std::vector<entry> entries_;
  std::uint64_t passed_over_ = 0;
  std::string first_passed_over_;
};

/// Throws stale_index_error, which names the first object that is new, gone or another version, unless `indexes` are of
/// what is listed.
void check_objects(const index_set& indexes, const index_set& listed, const std::string& file,
                   const std::string& prefix);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/index/detail/object_index.ipp>
#endif
