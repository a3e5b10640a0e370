// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/runtime_parts.hpp>
#include <millrace/feed/detail/listed_index.hpp>
#include <millrace/feed/shard_index.hpp>
#include <millrace/feed/index_shard.hpp>
#include <millrace/flow/collect.hpp>
#include <millrace/flow/from_range.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>

namespace millrace::detail {

MILLRACE_INLINE std::string shard_indexer::name_of(const shard& s) const {
  const std::string name = s.shown();
  return name.compare(0, prefix_.size(), prefix_) == 0 ? name.substr(prefix_.size()) : name;
}

MILLRACE_COROUTINE_BODY task<shard_index> shard_indexer::operator()(const shard& s) const {
  return index_shard(store_, s, name_of(s));
}

MILLRACE_INLINE listed_index::listed_index(std::shared_ptr<const storage> store, const epochs_options& options)
    : indexer_(std::move(store), std::string(options.prefix)),
      file_(options.index_file),
      use_(options.index),
      requests_(options.requests),
      writes_(options.rank.index == 0) {
  if (use_ == index_use::required && file_.empty()) {
    throw configuration_error("epochs: an index is required, and no .index_file is named");
  }
}

MILLRACE_COROUTINE_BODY task<std::shared_ptr<const index_set>> listed_index::of(std::vector<shard> list) {
  if (list.empty()) throw configuration_error("epochs: the list has no shards");
  std::shared_ptr<const index_set> indexes;
  std::error_code ignored;
  if (!file_.empty() && std::filesystem::exists(file_, ignored)) {
    indexes = read();
    check(*indexes, list);
  } else if (use_ == index_use::required) {
    throw configuration_error("there is no index: millrace-index makes one, and so does index_use::build",
                              where{file_, std::nullopt, {}});
  } else {
    indexes = co_await make(list);
  }
  std::map<std::string, std::string> by_name;
  for (const shard& s : list) by_name[indexer_.name_of(s)] = s.url;
  urls_.clear();
  for (const shard_index& index : *indexes) urls_.push_back(by_name[index.name()]);
  co_return indexes;
}

MILLRACE_INLINE std::shared_ptr<const index_set> listed_index::read() const {
  std::ifstream in(file_, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in) throw io_error(errno, "the index cannot be read", where{file_, std::nullopt, {}});
  return std::make_shared<const index_set>(read_indexes(text, file_));
}

/// An index of another list would be an order of other samples.
MILLRACE_INLINE void listed_index::check(const index_set& indexes, const std::vector<shard>& list) const {
  const std::string what = "the index " + file_ + " is of another list: ";
  std::vector<bool> listed(indexes.size());
  for (const shard& s : list) {
    const std::optional<std::size_t> known = indexes.find(indexer_.name_of(s));
    if (!known) throw stale_index_error(what + "it does not have this shard", where{s.shown(), std::nullopt, {}});
    indexes[*known].check(s);
    listed[*known] = true;
  }
  const auto gone = std::find(listed.begin(), listed.end(), false);
  if (gone == listed.end()) return;
  const shard_index& index = indexes[static_cast<std::size_t>(gone - listed.begin())];
  throw stale_index_error(what + "this shard is not listed", where{indexer_.prefix() + index.name(), std::nullopt, {}});
}

/// A template, so that g++ does not emit its stages where nobody asks for them.
template <class Shard>
task<std::vector<shard_index>> index_each(std::vector<Shard> list, shard_indexer indexer, std::size_t requests) {
  auto work = from_range(std::move(list)) |
              map_concurrent(std::move(indexer), {.limit = std::min<std::size_t>(requests, 16)});
  std::vector<shard_index> made = co_await collect(std::move(work));
  co_return std::move(made);
}

MILLRACE_COROUTINE_BODY task<std::shared_ptr<const index_set>> listed_index::make(std::vector<shard> list) const {
  executor& ex = co_await this_executor();
  if (writes_) {
    if (ex.runtime() != nullptr) {
      say(ex, "millrace: epochs: there is no index yet: reading " + std::to_string(list.size()) + " shards once" +
                  (file_.empty() ? ", in every run (name an .index_file)" : ""));
    }
    if (!file_.empty()) check_writable();  // before the work
  }
  std::vector<shard_index> made = co_await index_each(std::move(list), indexer_, requests_);
  auto indexes = std::make_shared<const index_set>(std::move(made));
  if (writes_ && !file_.empty()) write(*indexes);
  co_return indexes;
}

MILLRACE_INLINE void listed_index::check_writable() const {
  const std::string fresh = file_ + ".new";
  if (!std::ofstream(fresh)) throw io_error(errno, "the index cannot be written", where{file_, std::nullopt, {}});
  std::error_code ignored;
  std::filesystem::remove(fresh, ignored);
}

/// At once or not at all.
MILLRACE_INLINE void listed_index::write(const index_set& indexes) const {
  const std::string fresh = file_ + ".new";
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  for (const shard_index& index : indexes) out << index.text();
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(fresh, file_, error);
  if (out && !error) return;
  throw io_error(error ? error.value() : errno, "the index cannot be written", where{file_, std::nullopt, {}});
}

}  // namespace millrace::detail
