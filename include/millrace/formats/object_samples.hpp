// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Objects are the samples. Those of one key are one (`a/1.jpg`, `a/1.json`: key "a/1", fields "jpg" and "json"), by
/// the rule of sample_name. Those without a dot in their names are left out, and so are hidden ones, whose names begin
/// with a dot; a line in the log reports it.
std::shared_ptr<const shard_format> object_samples();
/// The same, in folders of which each is a class (torchvision's ImageFolder). Samples have the number of their class as
/// text in a field "cls": folders are numbered from 0 in the order of their names' bytes (dataset::classes()).
std::shared_ptr<const shard_format> class_folders();
/// Each folder is a sample, whose key is its path. Its fields are the objects that lie in it, by their whole names;
/// hidden ones are left out.
std::shared_ptr<const shard_format> sample_folders();

namespace detail {

/// Makes the indexes of objects that are samples from a listing of them, in any order. Nothing of them is read. Samples
/// are in the order of their keys' bytes, the objects of one in that of their paths'; each folder that the format names
/// has an index of its own.
///
/// Memory: 32 bytes an object, its path, and its ETag.
class object_index_builder {
 public:
  /// `prefix`: the beginning of all URLs; not empty, and ends in a slash.
  object_index_builder(std::shared_ptr<const shard_format> format, std::string prefix)
      : format_(std::move(format)), prefix_(std::move(prefix)) {}

  /// Throws configuration_error for an object that cannot be read by an index of its path: it has another prefix, its
  /// size is not known, its URL is signed.
  void add(const shard& object);
  /// Throws index_error, which names the object, where two fields of a sample would have one name.
  index_set finish();
  /// The objects that were left out, in a sentence; empty if there are none.
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

  const std::shared_ptr<const shard_format> format_;
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

}  // namespace detail

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/object_samples.ipp>
#endif
