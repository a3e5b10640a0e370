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

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/detail/index_parts.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/train/epochs_options.hpp>

namespace millrace::inline MILLRACE_ABI {
struct dataset_options;
}

namespace millrace::inline MILLRACE_ABI::detail {

class host_copy;

/// Makes the index of one shard of a list, or takes what another rank has made, and leaves what it makes to the others.
class shard_indexer {
 public:
  shard_indexer(std::shared_ptr<const storage> store, std::string prefix, std::shared_ptr<const shard_format> format)
      : store_(std::move(store)), prefix_(std::move(prefix)), format_(std::move(format)) {}
  /// Before the first shard, of ranks that share the work.
  void share(std::shared_ptr<const index_parts> parts) { parts_ = std::move(parts); }
  /// The shard's name in an index: its URL without the prefix and without secrets.
  std::string name_of(const shard& s) const;
  /// Before the first shard: see shard_format::metadata().
  void know(std::shared_ptr<const void> metadata) { metadata_ = std::move(metadata); }
  MILLRACE_COROUTINE task<shard_index> operator()(shard s) const;

  const std::string& prefix() const noexcept { return prefix_; }
  const shard_format& format() const noexcept { return *format_; }

 private:
  /// Has no name if the whole index is there by now.
  MILLRACE_COROUTINE static task<shard_index> index_one(std::shared_ptr<const storage> store,
                                                        std::shared_ptr<const index_parts> parts, shard s,
                                                        std::string name, std::shared_ptr<const shard_format> format,
                                                        std::shared_ptr<const void> metadata);

  std::shared_ptr<const storage> store_;
  std::string prefix_;
  std::shared_ptr<const shard_format> format_;
  std::shared_ptr<const void> metadata_;
  std::shared_ptr<const index_parts> parts_;
};

/// The file of a listing (listing_file.hpp), a path or a URL of the store: by one request up to 64 MiB.
MILLRACE_COROUTINE task<std::string> text_of_listing(std::shared_ptr<const storage> store, std::string file);

/// The index of a list of shards: read from a file, or made. Ranks make it together: each indexes its share of the
/// bytes, leaves the results beside the file (index_parts) and takes those of the others. If nothing new comes from
/// them for `patience`, and none of them reads any more, it reads what is left itself. The first that has all writes
/// the file.
class listed_index {
 public:
  /// `known`: the index, if it has been read before. `all_rows`: every row will be looked at.
  listed_index(std::shared_ptr<const storage> store, std::string prefix, const dataset_options& data,
               const epochs_options& training, std::shared_ptr<const index_set> known = nullptr, bool all_rows = false);

  /// Reads or makes it. Errors: those of epochs() of a list.
  MILLRACE_COROUTINE task<std::shared_ptr<const index_set>> of(std::vector<shard> list);
  /// Reads or makes the index of objects that are samples: `listed` is that of the listing.
  MILLRACE_COROUTINE task<std::shared_ptr<const index_set>> of_objects(std::shared_ptr<const index_set> listed);
  static constexpr std::chrono::seconds patience{30};
  static constexpr std::chrono::seconds beat{5};
  /// After of(): the shards' URLs, in the order of the index.
  const std::vector<std::string>& urls() const noexcept { return urls_; }
  /// The indexes of a file.
  static std::shared_ptr<const index_set> read(const std::string& file);
  /// Throws configuration_error, which names `file`, where its indexes are not of `format`.
  static void check_format(const index_set& indexes, const shard_format& format, const std::string& file);
  /// Throws configuration_error where two shards have other fields: see shard_format::fields().
  static void check_fields(const index_set& indexes, const shard_format& format);
  /// True if it is the index itself, or a file that ranks leave beside it, which may lie among the data.
  bool is_own(const shard& s) const {
    const std::string_view url = s.url;
    if (url.substr(0, file_.size()) != file_) return false;
    const std::string_view rest = url.substr(file_.size());
    const bool unfinished = rest.size() > 4 && rest.front() == '.' && rest.substr(rest.size() - 4) == ".new";
    return rest.empty() || unfinished || rest.substr(0, 7) == ".parts/";
  }

 private:
  void check(const index_set& indexes, const std::vector<shard>& list) const;
  void say_left_out(const executor& ex, const std::vector<shard>& all, const std::vector<shard>& chosen) const;
  void write(const index_set& indexes, bool replace = true) const;
  void check_writable() const;
  bool in_store() const noexcept { return file_.find("://") != std::string::npos; }
  /// An index in a store, or its head alone.
  class stored {
   public:
    shard object;  // with size and ETag
    bool head_alone = false;
    std::string_view text;
    std::shared_ptr<const void> owner;  // of the text
  };
  MILLRACE_COROUTINE task<stored> read_stored(bool by_need, bool again) const;
  MILLRACE_COROUTINE task<std::optional<stored>> find_copy(host_copy& copy) const;
  std::vector<shard_index> opened(const executor& ex, const stored& s, host_copy& copy) const;
  MILLRACE_COROUTINE task<std::vector<shard_index>> read_object(bool by_need) const;
  MILLRACE_COROUTINE task<std::shared_ptr<const index_set>> find() const;
  bool is_there() const;
  std::vector<shard> share_of(const std::vector<shard>& list) const;
  void take_from_others(const index_parts& parts, std::vector<shard>& missing, std::vector<shard_index>& made) const;
  MILLRACE_COROUTINE task<std::shared_ptr<const index_set>> make(std::vector<shard> list) const;
  MILLRACE_COROUTINE static task<void> keep_beating(std::shared_ptr<const index_parts> parts, std::uint32_t rank);
  MILLRACE_COROUTINE task<std::vector<shard_index>> read_shared(std::vector<shard> mine,
                                                                std::shared_ptr<const index_parts> parts) const;
  MILLRACE_COROUTINE task<std::shared_ptr<const index_set>> make_together(std::vector<shard> list) const;

  std::shared_ptr<const storage> store_;
  shard_indexer indexer_;
  std::string file_;  // or a URL of the store
  bool makes_;        // the file, if it does not exist
  std::size_t requests_;
  rank rank_;
  std::optional<std::string> host_folder_;
  std::uint64_t head_alone_above_;  // bytes
  std::shared_ptr<const index_set> known_;
  std::vector<std::string> urls_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/listed_index.ipp>
#endif
