// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/running_crc.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace {

/// Reads s3:// URLs by signed ranged GETs, every part with If-Match once an ETag is known. Objects are compared with
/// the checksums that the store keeps of them, unless config::validate_checksums is off.
template <class = void>
class basic_s3_storage final : public storage {
 public:
  explicit basic_s3_storage(s3::client client) : client_(std::move(client)) {}

  bool serves(std::string_view url) const noexcept override { return url.substr(0, 5) == "s3://"; }

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    part result;
    try {
      s3::object_part got = co_await client_.get(object.url, offset, length, etag, std::move(slabs), object.size);
      result.data = std::move(got.data);
      result.total = got.object.size;
      result.etag = std::move(got.object.etag);
      result.crc = got.crc;
    } catch (const s3::error& e) {
      if (e.status() != 412 && !(e.status() == 416 && offset > 0)) throw;
      throw changed_error(
          "the object changed while it was read: it is no longer the version " + etag + " (" + e.reason() + ")",
          where{object.url, offset, std::string()});
    }
    co_return std::move(result);
  }

  task<std::unique_ptr<object_check>> check(shard object, std::string etag) const override {
    if (!client_.configuration().validate_checksums) return task<std::unique_ptr<object_check>>();
    return ask(std::move(object), std::move(etag));
  }

 private:
  class comparison final : public object_check {
   public:
    explicit comparison(std::unique_ptr<s3::object_checksum> c) noexcept : checksum_(std::move(c)) {}
    const std::string& etag() const noexcept override { return checksum_->etag(); }
    void add(const bytes& data, const running_crc& crc) override { checksum_->add(data, crc); }
    task<void> compare(std::uint64_t handed_on) override { return checksum_->compare(handed_on); }

   private:
    const std::unique_ptr<s3::object_checksum> checksum_;
  };

  task<std::unique_ptr<object_check>> ask(shard object, std::string etag) const {
    std::unique_ptr<object_check> result;
    try {
      std::unique_ptr<s3::object_checksum> kept = co_await client_.checksum(object.url, etag);
      if (kept != nullptr) result = std::make_unique<comparison>(std::move(kept));
    } catch (const s3::error& e) {
      if (e.status() != 412) throw;
      throw changed_error("the object changed while it was read: it is no longer the version " + etag,
                          where{object.url, std::nullopt, std::string()});
    }
    co_return std::move(result);
  }

  const s3::client client_;
};
using s3_storage = basic_s3_storage<>;

namespace s3 {
/// What fetch(client) reads from.
template <class T = void>
std::shared_ptr<const storage> as_storage(const client& c) {
  return std::make_shared<const basic_s3_storage<T>>(c);
}
}  // namespace s3

}  // namespace millrace
