// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::test {

/// A store as a program may have one: objects in memory, by URLs that begin with mem://, each with a version.
class memory_storage final : public storage {
 public:
  class object {
   public:
    std::string text;
    std::string etag;
  };

  bool serves(std::string_view url) const noexcept override { return url.substr(0, 6) == "mem://"; }
  bool over_network(std::string_view) const noexcept override { return false; }
  task<part> read(shard wanted, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    const std::optional<object> there = find(wanted.url);
    const where at{wanted.url, offset, {}};
    if (!there) throw io_error(std::errc::no_such_file_or_directory, "no such object", at);
    if (!etag.empty() && etag != there->etag) throw changed_error("it is another version", at);
    writable_bytes memory = slabs.worth_a_slab(length) ? slabs.acquire() : writable_bytes::allocate(length);
    const std::size_t n = std::string_view(there->text).substr(offset).copy(memory.data(), length);
    part p;
    p.data = memory.share(0, n);
    p.total = there->text.size();
    p.etag = there->etag;
    co_return std::move(p);
  }
  async_generator<shard> list(std::string prefix) const override {
    std::vector<shard> all;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [url, o] : objects_) {
        if (url.compare(0, prefix.size(), prefix) != 0) continue;
        all.emplace_back(url, o.text.size());
        all.back().etag = o.etag;
      }
    }
    for (shard& s : all) co_yield give(s);
  }
  task<std::string> put(std::string url, async_generator<bytes> content, write_options how) const override {
    std::string text;
    while (std::optional<bytes> piece = co_await content.next()) text += piece->view();
    const std::lock_guard lock(mutex_);
    object& o = objects_[url];
    const bool may = how.only_new ? o.etag.empty() : how.if_match.empty() || how.if_match == std::string_view(o.etag);
    if (!may) {
      const std::string now = o.etag;
      if (now.empty()) objects_.erase(url);
      throw changed_error(now.empty() ? "there is none" : "it is there, as " + now, where{url, std::nullopt, {}});
    }
    o.text = std::move(text);
    o.etag = "\"v" + std::to_string(++versions_) + '"';
    co_return std::string(o.etag);
  }
  task<void> remove(std::string url) const override {
    const std::lock_guard lock(mutex_);
    objects_.erase(url);
    co_return;
  }

  /// What is there; nullopt if nothing is.
  std::optional<object> find(const std::string& url) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(url);
    return found == objects_.end() ? std::nullopt : std::optional<object>(found->second);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::string, object> objects_;
  mutable std::uint64_t versions_ = 0;
};

}  // namespace millrace::test
