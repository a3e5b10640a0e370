// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/ops/objects.hpp>
#include <millrace/shards/detail/hedged_reader.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Reads s3:// URLs by signed ranged GETs, every part with If-Match once an ETag is known. Parts that are late are
/// requested again (retry_options::hedges). Objects are compared with the checksums that the store keeps of them,
/// unless config::validate_checksums is off. Writes as s3::client::put().
template <class Unused = void>  // coroutines are virtual: see MILLRACE_COROUTINE
class basic_s3_storage final : public storage, private detail::hedged_reader {
 public:
  explicit basic_s3_storage(s3::client client)
      : hedged_reader(client.configuration().retry.hedges), client_(std::move(client)) {}

  bool serves(std::string_view url) const noexcept override;

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    return read_hedged(false, std::move(object), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_again(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                        slab_pool slabs) const override {
    return read_over(std::move(object), std::move(etag), offset, length, std::move(slabs), {.new_connection = true});
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return read_hedged(true, std::move(object), std::move(etag), 0, length, std::move(slabs));
  }
  std::string host(std::string_view url) const override {
    return s3::host_name(client_.configuration(), url.substr(5, url.find('/', 5) - 5));
  }
  task<std::unique_ptr<object_check>> check(shard object, std::string etag) const override;
  async_generator<shard> list(std::string prefix) const override { return client_.list(prefix).generator(); }
  task<std::string> put(std::string url, async_generator<bytes> content, write_options how) const override;
  task<void> remove(std::string url) const override { return client_.remove(url); }

 private:
  class comparison;
  task<part> ask(bool small, shard object, std::string etag, std::uint64_t offset, std::size_t length,
                 slab_pool slabs) const override {
    return read_over(std::move(object), std::move(etag), offset, length, std::move(slabs), {.likely_whole = small});
  }
  task<part> read_over(shard object, std::string etag, std::uint64_t offset, std::size_t length, slab_pool slabs,
                       s3::get_options options) const;
  task<std::unique_ptr<object_check>> ask_check(shard object, std::string etag) const;
  static task<std::string> stored(task<s3::object_info> storing);

  const s3::client client_;
};
using s3_storage = basic_s3_storage<>;

#if defined(MILLRACE_SEPARATE_COMPILATION)
extern template class basic_s3_storage<>;
#endif

namespace s3 {
/// The storage that fetch(client) reads from.
MILLRACE_COROUTINE std::shared_ptr<const storage> as_storage(const client& c);
}  // namespace s3

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/s3_storage.ipp>
#endif
