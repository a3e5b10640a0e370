// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/storage.hpp>

namespace tools {

namespace mill = millrace;

/// What the tools read and write: s3://bucket/..., by the settings of the environment, or local files.
class store {
 public:
  explicit store(std::string_view url) {
    if (is_s3(url)) s3_ = mill::s3::client::from_environment();
  }

  static bool is_s3(std::string_view url) { return url.substr(0, 5) == "s3://"; }

  std::shared_ptr<const mill::storage> reads() const { return s3_ ? mill::s3::as_storage(*s3_) : mill::files(); }
  /// What writes to s3://; null for files.
  const mill::s3::client* client() const noexcept { return s3_ ? &*s3_ : nullptr; }
  /// The tar archives under a prefix or in a folder, sorted by the bytes of their names; of another format than tar all
  /// objects there.
  std::vector<mill::shard> list(const std::string& prefix, const mill::shard_format* format = nullptr) const {
    std::vector<mill::shard> all;
    if (format != nullptr && format->name() != "tar") {
      const auto loop = mill::make_event_loop();
      const bool folder = format->of_objects() && prefix.back() != '/';
      mill::stream<mill::shard> objects(reads()->list(folder ? prefix + '/' : prefix));
      all = mill::block_on(*loop, mill::collect(std::move(objects)));
      std::sort(all.begin(), all.end(), [](const mill::shard& a, const mill::shard& b) { return a.url < b.url; });
      return all;
    }
    if (s3_) {
      const auto loop = mill::make_event_loop();
      for (mill::shard& s : mill::block_on(*loop, mill::collect(s3_->list(prefix)))) {
        if (ends_in_tar(s.url)) all.push_back(std::move(s));
      }
    } else {
      std::error_code failed;
      std::filesystem::directory_iterator there(prefix, failed);
      if (failed) throw mill::io_error::of(failed.value(), "the folder cannot be read", mill::where{prefix, {}, {}});
      for (const auto& entry : there) {
        const std::string path = entry.path().string();
        if (entry.is_regular_file() && ends_in_tar(path)) all.emplace_back(path, entry.file_size());
      }
    }
    std::sort(all.begin(), all.end(), [](const mill::shard& a, const mill::shard& b) { return a.url < b.url; });
    return all;
  }
  /// A whole small object or file; nothing where there is none.
  std::optional<std::string> read(const std::string& url) const {
    if (!is_s3(url)) {
      std::ifstream file(url, std::ios::binary);
      if (!file) return std::nullopt;
      return std::string(std::istreambuf_iterator<char>(file), {});
    }
    const auto loop = mill::make_event_loop();
    try {
      return std::string(mill::block_on(*loop, s3_->read(url, std::size_t{4} << 30)).view());
    } catch (const mill::s3::error& e) {
      if (e.status() == 404) return std::nullopt;
      throw;
    }
  }
  void write(const std::string& url, std::string_view text) const {
    if (is_s3(url)) {
      const auto loop = mill::make_event_loop();
      mill::block_on(*loop, s3_->put(url, mill::bytes::copy(text)));
      return;
    }
    // Whole or not at all: a reader never sees half of it.
    const std::string half = url + ".part";
    errno = 0;
    std::ofstream file(half, std::ios::binary);
    file << text;
    file.close();
    if (!file || std::rename(half.c_str(), url.c_str()) != 0) {
      throw mill::io_error::of(errno, "the file cannot be written", mill::where{url, std::nullopt, {}});
    }
  }

 private:
  static bool ends_in_tar(std::string_view name) { return name.size() > 4 && name.substr(name.size() - 4) == ".tar"; }

  std::optional<mill::s3::client> s3_;
};

/// Where the index of a prefix or folder is.
inline std::string index_of(std::string prefix) {
  if (prefix.back() != '/') prefix += '/';
  return prefix + "millrace.index";
}

}  // namespace tools
