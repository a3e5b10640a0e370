// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/http/error.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::unique_ptr<object_check> object_check::fork() const { return nullptr; }

MILLRACE_INLINE task<std::unique_ptr<object_check>> storage::check(shard /*object*/, std::string /*etag*/) const {
  return task<std::unique_ptr<object_check>>();
}

MILLRACE_INLINE async_generator<shard> storage::list(std::string /*prefix*/) const { return {}; }
MILLRACE_INLINE async_generator<shard> storage::list_all(std::string prefix) const { return list(std::move(prefix)); }

namespace detail {
[[noreturn]] MILLRACE_INLINE void refuse_writing(const std::string& url) {
  throw configuration_error("the store cannot be written to", where{shown_url(url), std::nullopt, {}});
}
}  // namespace detail

MILLRACE_INLINE task<std::string> storage::put(std::string url, async_generator<bytes>, write_options) const {
  detail::refuse_writing(url);
}

MILLRACE_INLINE task<void> storage::remove(std::string url) const { detail::refuse_writing(url); }

MILLRACE_INLINE task<storage::part> forwarding_storage::read(shard object, std::string etag, std::uint64_t offset,
                                                             std::size_t length, slab_pool slabs) const {
  const storage& to = target(object.url);
  return to.read(std::move(object), std::move(etag), offset, length, std::move(slabs));
}

MILLRACE_INLINE task<storage::part> forwarding_storage::read_again(shard object, std::string etag, std::uint64_t offset,
                                                                   std::size_t length, slab_pool slabs) const {
  const storage& to = target(object.url);
  return to.read_again(std::move(object), std::move(etag), offset, length, std::move(slabs));
}

MILLRACE_INLINE task<storage::part> forwarding_storage::read_small(shard object, std::string etag, std::size_t length,
                                                                   slab_pool slabs) const {
  const storage& to = target(object.url);
  return to.read_small(std::move(object), std::move(etag), length, std::move(slabs));
}

MILLRACE_INLINE task<std::unique_ptr<object_check>> forwarding_storage::check(shard object, std::string etag) const {
  const storage& to = target(object.url);
  return to.check(std::move(object), std::move(etag));
}

MILLRACE_INLINE async_generator<shard> forwarding_storage::list(std::string prefix) const {
  const storage& to = target(prefix);
  return to.list(std::move(prefix));
}

MILLRACE_INLINE async_generator<shard> forwarding_storage::list_all(std::string prefix) const {
  const storage& to = target(prefix);
  return to.list_all(std::move(prefix));
}

MILLRACE_INLINE task<std::string> forwarding_storage::put(std::string url, async_generator<bytes> content,
                                                          write_options how) const {
  const storage& to = target(url);
  return to.put(std::move(url), std::move(content), how);
}

MILLRACE_INLINE task<void> forwarding_storage::remove(std::string url) const {
  const storage& to = target(url);
  return to.remove(std::move(url));
}

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE bool is_not_there(const std::exception_ptr& failure) noexcept {
  try {
    std::rethrow_exception(failure);
  } catch (const io_error& e) {
    return e.code() == std::errc::no_such_file_or_directory;
  } catch (const http::error& e) {
    return e.status() == 404;
  } catch (const s3::error& e) {
    return e.status() == 404 && e.code() != "NoSuchBucket";
  } catch (...) {
    return false;
  }
}

MILLRACE_INLINE void require_writing(const storage& to, const std::string& url, const write_options& how) {
  if (!to.serves(url)) {
    throw configuration_error("the store does not serve this URL", where{shown_url(url), std::nullopt, {}});
  }
  static_cast<void>(to.put(url, async_generator<bytes>(), how));  // and is not awaited
}

MILLRACE_COROUTINE_BODY task<std::vector<shard>> all_objects(std::shared_ptr<const storage> from, std::string prefix) {
  std::vector<shard> found;
  const where at{shown_url(prefix), std::nullopt, {}};
  async_generator<shard> all = from->list_all(std::move(prefix));
  if (!all) throw configuration_error("the store cannot list what is there", at);
  try {
    while (std::optional<shard> s = co_await all.next()) found.push_back(std::move(*s));
  } catch (const configuration_error&) {
    if (!found.empty()) throw;
  }
  co_return std::move(found);
}

MILLRACE_COROUTINE async_generator<bytes> pieces_of(std::string text) {
  for (std::size_t at = 0; at < text.size() || at == 0; at += MiB) {
    bytes piece = bytes::copy(std::string_view(text).substr(at, MiB));
    co_yield give(piece);
  }
}

MILLRACE_COROUTINE_BODY task<std::string> put_text(const storage& to, std::string url, std::string text,
                                                   const write_options& how) {
  return to.put(std::move(url), pieces_of(std::move(text)), how);
}

}  // namespace millrace::detail
