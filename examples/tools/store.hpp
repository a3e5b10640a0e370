// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/collect.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/text/numbers.hpp>

namespace tools {

namespace mill = millrace;

/// What the tools read and write: s3://bucket/..., as the environment says, or local files.
class store {
 public:
  explicit store(std::string_view url) {
    if (is_s3(url)) s3_ = mill::s3::client::from_environment();
  }

  static bool is_s3(std::string_view url) { return url.substr(0, 5) == "s3://"; }

  std::shared_ptr<const mill::storage> reads() const { return s3_ ? mill::s3::as_storage(*s3_) : mill::files(); }
  /// The tar archives under a prefix or in a folder, by the bytes of their names.
  std::vector<mill::shard> list(const std::string& prefix) const {
    std::vector<mill::shard> all;
    if (s3_) {
      const auto loop = mill::make_event_loop();
      for (mill::shard& s : mill::block_on(*loop, mill::collect(s3_->list(prefix)))) {
        if (ends_in_tar(s.url)) all.push_back(std::move(s));
      }
    } else {
      for (const auto& entry : std::filesystem::directory_iterator(prefix)) {
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
    std::ofstream file(half, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw mill::io_error(EIO, "cannot write", mill::where{half, std::nullopt, {}});
    std::filesystem::rename(half, url);
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

/// "--name VALUE" and "--name" after the arguments; leaves with 2 for what is not known.
class arguments {
 public:
  arguments(int count, char** texts, const char* usage) : usage_(usage) {
    for (int i = 1; i < count; ++i) texts_.emplace_back(texts[i]);
  }
  bool flag(const std::string& name) {
    const auto at = std::find(texts_.begin(), texts_.end(), name);
    if (at == texts_.end()) return false;
    texts_.erase(at);
    return true;
  }
  std::optional<std::string> option(const std::string& name) {
    const auto at = std::find(texts_.begin(), texts_.end(), name);
    if (at == texts_.end()) return std::nullopt;
    if (at + 1 == texts_.end()) refuse();
    std::string value = *(at + 1);
    texts_.erase(at, at + 2);
    return value;
  }
  std::uint64_t number(const std::string& name, std::uint64_t otherwise) {
    const std::optional<std::string> text = option(name);
    if (!text) return otherwise;
    const std::optional<std::uint64_t> value = mill::text::parse_decimal<std::uint64_t>(*text);
    if (!value) refuse();
    return *value;
  }
  double decimal(const std::string& name) {
    const std::optional<std::string> text = option(name);
    if (!text) return 0;
    std::size_t read = 0;
    double value = -1;
    try {
      value = std::stod(*text, &read);
    } catch (const std::exception&) {
    }
    if (read != text->size() || !(value >= 0)) refuse();
    return value;
  }
  /// What is left: at least `least`, at most `most`.
  std::vector<std::string> rest(std::size_t least, std::size_t most) {
    for (const std::string& t : texts_) {
      if (t.empty() || t.substr(0, 2) == "--") refuse();
    }
    if (texts_.size() < least || texts_.size() > most) refuse();
    return texts_;
  }
  [[noreturn]] void refuse() const {
    std::fprintf(stderr, "usage: %s\n", usage_);
    std::exit(2);
  }

 private:
  std::vector<std::string> texts_;
  const char* usage_;
};

}  // namespace tools
