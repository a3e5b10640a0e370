// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/train/rank_group.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Objects of an S3 store with one prefix: where rank_group(mine, client, prefix) keeps its words. Requests are retried
/// as the client is configured.
template <class = void>  // its coroutines are virtual: see MILLRACE_COROUTINE
class basic_s3_rank_board final : public rank_board {
 public:
  basic_s3_rank_board(s3::client client, std::string prefix) : client_(std::move(client)), prefix_(std::move(prefix)) {}

  std::string shown() const override { return detail::shown_url(prefix_); }
  task<void> put(std::string name, std::string text) const override {
    const std::string url = prefix_ + name;
    co_await client_.put(url, bytes::copy(text));
  }
  task<std::string> get(std::string name) const override {
    const std::string url = prefix_ + name;
    std::string text;
    try {
      const bytes all = co_await client_.read(url);
      text = std::string(all.view());
    } catch (const s3::error& e) {
      if (e.status() != 404) throw;
    }
    co_return std::move(text);
  }
  task<std::vector<std::string>> list(std::string folder) const override {
    std::vector<std::string> names;
    const std::string url = prefix_ + folder;
    stream<shard> all = client_.list(url);
    try {
      while (std::optional<shard> s = co_await all.next()) names.push_back(s->url.substr(prefix_.size()));
    } catch (const configuration_error&) {  // no object at all
    }
    co_return std::move(names);
  }
  task<void> remove(std::string name) const override {
    const std::string url = prefix_ + name;
    co_await client_.remove(url);
  }

 private:
  const s3::client client_;
  const std::string prefix_;
};
using s3_rank_board = basic_s3_rank_board<>;

namespace s3 {
/// For rank_group(mine, client, prefix). configuration_error unless `prefix` is a folder, with '/' at its end.
template <class = void>
std::shared_ptr<const rank_board> as_rank_board(const client& c, std::string prefix);
}  // namespace s3

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

template <class>
std::shared_ptr<const rank_board> s3::as_rank_board(const client& c, std::string prefix) {
  if (prefix.empty() || prefix.back() != '/') {
    throw configuration_error("rank_group: the prefix must be a folder, with '/' at its end",
                              where{millrace::detail::shown_url(prefix), std::nullopt, {}});
  }
  return std::make_shared<const s3_rank_board>(c, std::move(prefix));
}

}  // namespace millrace
