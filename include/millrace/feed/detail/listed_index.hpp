// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/feed/epochs_options.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/feed/shard_index.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::detail {

/// Makes the index of one shard of a list.
class shard_indexer {
 public:
  shard_indexer(std::shared_ptr<const storage> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}
  /// What the shard is called in an index: its URL without the prefix and without secrets.
  std::string name_of(const shard& s) const;
  MILLRACE_COROUTINE task<shard_index> operator()(const shard& s) const;

  const std::string& prefix() const noexcept { return prefix_; }

 private:
  std::shared_ptr<const storage> store_;
  std::string prefix_;
};

/// The index of a list of shards: read from a file, or made.
class listed_index {
 public:
  listed_index(std::shared_ptr<const storage> store, const epochs_options& options);

  /// Reads or makes it. Errors: those of epochs() of a list.
  MILLRACE_COROUTINE task<std::shared_ptr<const index_set>> of(std::vector<shard> list);
  /// After of(): the shards' URLs, in the order of the index.
  const std::vector<std::string>& urls() const noexcept { return urls_; }

 private:
  void check(const index_set& indexes, const std::vector<shard>& list) const;
  std::shared_ptr<const index_set> read() const;
  void check_writable() const;
  void write(const index_set& indexes) const;
  MILLRACE_COROUTINE task<std::shared_ptr<const index_set>> make(std::vector<shard> list) const;

  shard_indexer indexer_;
  std::string file_;
  index_use use_;
  std::size_t requests_;
  bool writes_;  // one rank alone
  std::vector<std::string> urls_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/feed/detail/impl/listed_index.ipp>
#endif
