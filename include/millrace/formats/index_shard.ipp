// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/range_reader.hpp>
#include <millrace/shards/untar_plain.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// One reading of a shard.
class index_reading {
 public:
  index_reading() = default;
  std::optional<shard_index> index;
  bool verified = false;     // its bytes are those that the store keeps a checksum of
  std::exception_ptr error;  // where there is no index: it is damaged, or was on its way
  std::string outcome;       // two readings that failed alike have the same
  shard object;              // with what the store has said of it
};

MILLRACE_COROUTINE task<index_reading> read_for_index(std::shared_ptr<const storage> from, shard object,
                                                      std::string name, std::shared_ptr<const shard_format> format,
                                                      index_shard_options options, std::shared_ptr<const void> metadata,
                                                      bool again) {
  index_reading out;
  const bool verify = options.verify && from->over_network(object.url);
  const std::size_t probe = std::min(options.part, format->head_bytes());
  indexed_object source(from, std::move(object), options.part, again);
  bytes head = co_await source.read(0, probe);
  bool refused = false;
  running_crc all(crc_kind::crc32c);
  std::unique_ptr<object_check> check;
  const auto came = [&](const bytes& piece) {
    if (check == nullptr) return;
    check->add(piece, source.crc());
    all.add(piece.data(), piece.size());
  };
  const coroutine_context here = co_await this_context();
  executor& ex = here.get_executor();
  const std::shared_ptr<shard_scanner> scanner = format->scanner(std::move(name), source.object(), metadata);
  try {
    try {
      scanner->begin(head.view(), source.sequential() ? std::nullopt : source.total(), options.part);
    } catch (const archive_error&) {
      refused = true;  // a head that says what the object is, and no damage
      throw;
    }
    const bool verifies = scanner->verifies();
    if (verify && scanner->hop() == 0 && !verifies) {
      task<std::unique_ptr<object_check>> asking = from->check(source.object(), source.object().etag);
      if (asking) check = co_await std::move(asking);
      const bool other =
          check != nullptr && !check->etag().empty() && !same_etag(check->etag(), source.object().etag);
      if (other) check.reset();
    }
    const cpu_pool::share pool = scanner->packed() ? cpu_pool::share::of(here.runtime()) : cpu_pool::share();
    const auto add = [&](bytes piece) {
      return pool.run([to = scanner, its = std::move(piece)] { to->add(its); });
    };
    came(head);
    std::uint64_t fed = head.size();
    co_await add(std::move(head));
    for (;;) {
      fed = scanner->next(fed);
      if (source.ended(fed)) break;
      // A size that the store has not given is known when the object has been read to its end. So is its checksum.
      if (scanner->done() && check == nullptr && source.total()) break;
      const std::size_t length = scanner->hop() != 0 ? scanner->hop() : options.part;
      bytes more = co_await source.read(fed, length);
      fed += more.size();
      came(more);
      co_await add(std::move(more));
    }
    if (check != nullptr) co_await check->compare(0);
    const std::uint64_t size = source.size();
    out.index = scanner->finish(size, source.object().etag);
    archive_warnings warnings(ex, options.report && !again);
    warnings.add(source.object(), scanner->warning(false));
    warnings.add_once(source.object(), scanner->warning(true));
    out.verified = check != nullptr || verifies || !verify;
  } catch (const archive_error&) {
    if (refused) throw;
    out.error = std::current_exception();
  } catch (const decode_error&) {
    out.error = std::current_exception();
  } catch (const s3::checksum_error&) {
    out.error = std::current_exception();
  }
  if (out.error != nullptr) out.outcome = text_of(out.error) + " " + std::to_string(all.value());
  out.object = source.object();
  co_return std::move(out);
}

}  // namespace detail

MILLRACE_COROUTINE_BODY task<shard_index> index_shard(std::shared_ptr<const storage> from, shard object,
                                                      std::string name, std::shared_ptr<const shard_format> format,
                                                      index_shard_options options,
                                                      std::shared_ptr<const void> metadata) {
  if (format == nullptr) format = tar_shards();
  options.part = std::max<std::size_t>(options.part, 64 * KiB);
  if (format->scanner(name, object, metadata) == nullptr) {
    task<shard_index> making =
        format->index(std::move(from), std::move(object), std::move(name), std::move(metadata));
    shard_index made = co_await std::move(making);
    co_return std::move(made);
  }
  const coroutine_context here = co_await this_context();
  const bool once = !options.verify || !from->over_network(object.url);
  std::vector<detail::index_reading> before;
  for (;;) {
    detail::index_reading now =
        co_await detail::read_for_index(from, std::move(object), name, format, options, metadata, !before.empty());
    if (now.verified) co_return std::move(*now.index);
    if (once) std::rethrow_exception(now.error);
    for (const detail::index_reading& other : before) {
      if (now.index && now.index == other.index) co_return std::move(*now.index);
      if (now.error == nullptr || other.error == nullptr) continue;
      detail::add_note(now.error, detail::read_twice(now.outcome == other.outcome));
      std::rethrow_exception(now.error);
    }
    const std::string shown = now.object.shown();
    if (before.size() == 2) {
      if (now.error != nullptr) std::rethrow_exception(now.error);
      throw archive_error("read three times, and no two of the indexes are the same: data are damaged on their way",
                          where{shown, std::nullopt, {}});
    }
    if (now.error != nullptr) detail::log_second_reading(here, detail::text_of(now.error));
    if (now.error == nullptr && !before.empty()) {
      detail::log_second_reading(here, shown + ": two readings gave two indexes");
    }
    object = std::move(now.object);
    before.push_back(std::move(now));
  }
}

}  // namespace millrace
