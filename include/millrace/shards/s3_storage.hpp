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
#include <millrace/s3/client.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace {

/// Reads s3:// URLs by signed ranged GETs, every part with If-Match once an ETag is known. Objects are compared with
/// the checksums that the store keeps of them, unless config::validate_checksums is off.
template <class Unused = void>  // coroutines are virtual: see MILLRACE_COROUTINE
class basic_s3_storage final : public storage {
 public:
  explicit basic_s3_storage(s3::client client) : client_(std::move(client)) {}

  bool serves(std::string_view url) const noexcept override { return url.substr(0, 5) == "s3://"; }

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override;
  task<std::unique_ptr<object_check>> check(shard object, std::string etag) const override;

 private:
  class comparison;
  task<std::unique_ptr<object_check>> ask(shard object, std::string etag) const;

  const s3::client client_;
};
using s3_storage = basic_s3_storage<>;

#if defined(MILLRACE_SEPARATE_COMPILATION)
extern template class basic_s3_storage<>;
#endif

namespace s3 {
/// What fetch(client) reads from.
MILLRACE_COROUTINE std::shared_ptr<const storage> as_storage(const client& c);
}  // namespace s3

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/s3_storage.ipp>
#endif
