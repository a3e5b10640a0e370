// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::test {

/// A store in memory: objects by URL, all of one version.
class memory_store final : public storage {
 public:
  std::map<std::string, std::string> objects;
  std::string etag = "\"v1\"";
  std::string encoding;
  duration pause{0};
  bool keeps_checksums = false;
  bool compares_whole = false;  ///< in read(), as S3
  std::string server;           ///< host()
  bool damaged_on_the_way = false;
  mutable std::uint64_t reads = 0, read_bytes = 0, checks = 0, second_readings = 0;

  bool serves(std::string_view url) const noexcept override { return url.substr(0, 4) == "mem:"; }
  std::string host(std::string_view) const override { return server; }
  task<part> read(shard object, std::string wanted, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    ++reads;
    if (pause.count() != 0) co_await sleep_for(pause);
    if (!wanted.empty() && wanted != etag) throw changed_error("another version", where{object.url, offset, {}});
    const std::string_view all = objects.at(object.url);
    const std::string_view asked = all.substr(std::min<std::size_t>(offset, all.size()), length);
    read_bytes += asked.size();
    writable_bytes memory = slabs.worth_a_slab(length) ? slabs.acquire() : writable_bytes::allocate(length);
    std::copy(asked.begin(), asked.end(), memory.data());
    if (damaged_on_the_way && !asked.empty()) memory.data()[0] = static_cast<char>(memory.data()[0] ^ 1);
    part p;
    p.whole = compares_whole && offset == 0 && length >= all.size();
    if (p.whole && damaged_on_the_way) throw s3::checksum_error("not what the store has", where{object.url, {}, {}});
    p.data = memory.share(0, asked.size());
    p.total = all.size();
    p.etag = etag;
    p.encoding = encoding;
    co_return std::move(p);
  }
  task<part> read_again(shard object, std::string wanted, std::uint64_t offset, std::size_t length,
                        slab_pool slabs) const override {
    ++second_readings;
    return read(std::move(object), std::move(wanted), offset, length, std::move(slabs));
  }
  task<std::unique_ptr<object_check>> check(shard object, std::string) const override {
    if (!keeps_checksums) return {};
    return check_of(*this, std::move(object));
  }

 private:
  class comparison final : public object_check {
   public:
    comparison(std::string version, std::string all) : etag_(std::move(version)), all_(std::move(all)) {}
    const std::string& etag() const noexcept override { return etag_; }
    void add(const bytes& data, const running_crc&) override { came_ += data.view(); }
    std::unique_ptr<object_check> fork() const override { return std::make_unique<comparison>(*this); }
    task<void> compare(std::uint64_t) override {
      if (came_ != all_) throw s3::checksum_error("not what the store has", where{});
      co_return;
    }

   private:
    std::string etag_, all_, came_;
  };
  static task<std::unique_ptr<object_check>> check_of(const memory_store& self, shard object) {
    ++self.checks;
    std::unique_ptr<object_check> made = std::make_unique<comparison>(self.etag, self.objects.at(object.url));
    co_return std::move(made);
  }
};

inline std::string random_text(std::uint64_t seed, std::size_t size) {
  rng random(seed);
  std::string text(size, '\0');
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    const std::uint64_t word = random.next();
    text.replace(i, 8, reinterpret_cast<const char*>(&word), 8);
  }
  return text;
}

/// A folder that goes with all that is in it.
class cache_folder {
 public:
  cache_folder() {
    const char* set = std::getenv("TMPDIR");
    path = std::string(set == nullptr ? "/tmp" : set) + "/millrace-cache-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot make " + path);
  }
  cache_folder(const cache_folder&) = delete;
  ~cache_folder() { clear(); }
  void clear() const {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  static std::vector<std::string> names() {
    return {"index", "index.new", "locks", "headers", "segment.000000", "segment.000001"};
  }
  std::string path;
};

}  // namespace millrace::test
