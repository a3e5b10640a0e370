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

#include <millrace/base/error.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/index/detail/record_index.hpp>
#include <millrace/index/index_builder.hpp>
#include <millrace/index/shard_format.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/range_reader.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/format.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace::inline MILLRACE_ABI {

/// How index_shard() reads a shard.
enum class index_way : unsigned char {
  cheaper,  ///< by the one of the others that costs less, judged by the first MiB of the shard
  stream,   ///< all of it, once; the index has checksums
  headers,  ///< from header to header by small ranges, bodies are not read; the index has no checksums
};

struct index_shard_options {
  index_way way = index_way::cheaper;
  /// Bytes of one request of a stream; at least 64 KiB. epochs() reads up to 16 shards at a time.
  std::size_t part = 4 * MiB;
  /// Bytes of one request for headers, with what small members follow; at least 512.
  std::size_t hop = 16 * KiB;
  /// What a request costs beside its bytes, in bytes: about what could be read in the time that it takes to answer.
  std::uint64_t request_cost = MiB;
  /// Make it of verified bytes: see index_shard().
  bool verify = true;
  /// Say in the log what is odd about an archive's end but no error, as untar() does.
  bool report = true;
  /// tar, lines, tfrecord or recordio. Lines and records are read as a stream, whatever .way says.
  sample_format format = sample_format::tar;
  std::size_t max_line = 16 * MiB;  ///< of text; a longer line is a decode_error
  std::uint64_t max_member = GiB;   ///< of a tar, in bytes; a longer one is an archive_error
};

/// What reading costs.
struct reading_cost {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;

  /// Both in one number; a request costs `request_cost` bytes.
  std::uint64_t total(std::uint64_t request_cost) const noexcept { return requests * request_cost + bytes; }
};

/// Of `bytes` read in a row.
inline reading_cost cost_of_stream(std::uint64_t bytes, const index_shard_options& options) noexcept {
  return {bytes / options.part + (bytes % options.part != 0), bytes};
}

/// Of the headers alone in `bytes` of an archive whose members, headers included, take `mean_member` bytes: a request
/// for each, or for as many as one request shows.
inline reading_cost cost_of_headers(std::uint64_t bytes, std::uint64_t mean_member,
                                    const index_shard_options& options) noexcept {
  const std::uint64_t stride = std::max<std::uint64_t>({mean_member, options.hop, 1});
  const std::uint64_t hops = (bytes + stride - 1) / stride;
  return {hops, std::min<std::uint64_t>(bytes, detail::multiplied(hops, options.hop))};
}

namespace detail {

/// What makes an index of a shard that a shard_format describes.
class scan_of_shard {
 public:
  scan_of_shard() = default;
  scan_of_shard(std::shared_ptr<const shard_format> f, std::shared_ptr<const void> m)
      : format(std::move(f)), metadata(std::move(m)) {}
  /// Null where the shard is of another format, or is not read as a whole.
  std::unique_ptr<shard_scanner> of(const std::string& name, const shard& object) const {
    return format == nullptr ? nullptr : format->scanner(name, object, metadata);
  }
  std::shared_ptr<const shard_format> format;
  std::shared_ptr<const void> metadata;
};

}  // namespace detail

/// Makes the index of a plain tar shard, a text file or one of records that lies in a store, which calls it `name`.
/// The object must stay the version that was read first, and be that of `object`'s ETag and size where these are known.
///
/// What has come over a network (storage::over_network()) may have been damaged there, and an index of damaged bytes
/// would refuse the right ones for ever. So the index is of verified bytes: where all of the shard is read and the
/// store keeps a checksum of it, that is compared, which costs a HEAD, or two. Where there is none, and where only
/// headers are read, the shard is read a second time, over another connection, and both indexes must be the same: twice
/// the bytes, once in the life of a data set. Where two readings do not agree a third one decides. With .verify = false
/// it is read once. A TFRecord file is read once, too, as it has checksums of every byte.
///
/// Bounds: one request at a time, the memory of a part and of a member that straddles two, and three indexes. Dropping
/// the task ends the transfer. A store that does not serve ranges is read as a stream.
///
/// What is unusual about the archive's end, but no error, is logged, as by untar(). Errors: those of the store;
/// archive_error, as of untar_plain() and group_samples(), for what cannot be read or grouped, for compressed archives,
/// and for records that are damaged or cut; decode_error, as of lines(), for what is no text, for compressed text and
/// records in frames that are too large (sample_format) and for a line that is too long; s3::checksum_error, when it
/// was read twice, and they say whether it was the same; changed_error where the size is not the one that was listed.
template <class Storage = storage>
task<shard_index> index_shard(std::shared_ptr<const Storage> from, shard object, std::string name,
                              index_shard_options options = {}, detail::scan_of_shard scan = {});

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

/// What one reading of a shard has made.
class index_reading {
 public:
  index_reading() = default;
  std::optional<shard_index> index;
  bool verified = false;     // its bytes are those that the store keeps a checksum of
  std::exception_ptr error;  // where there is no index: it is damaged, or was on its way
  std::string outcome;       // two readings that failed alike have the same
  shard object;              // with what the store has said of it
};

/// `pool` may be empty. A template, so that it is not emitted where it is not used.
template <class Builder = shard_scanner>
task<void> add_records(std::shared_ptr<Builder> builder, bytes piece, const cpu_pool::share& pool) {
  if (!pool) {
    builder->add(piece.view());
    co_return;
  }
  auto job = [to = std::move(builder), text = std::move(piece)] { to->add(text.view()); };
  co_await pool.run(std::move(job));
}

template <class Storage>
task<index_reading> read_for_index(std::shared_ptr<const Storage> from, shard object, std::string name,
                                   index_shard_options options, scan_of_shard scan, bool again) {
  index_reading out;
  const bool records = scan.format != nullptr || of_records(options.format);
  const bool verify = options.verify && from->over_network(object.url);
  const std::size_t probe = records || options.way == index_way::stream ? options.part
                            : options.way == index_way::headers ? options.hop
                                                                : std::min<std::size_t>(options.part, MiB);
  indexed_object source(from, std::move(object), options.part, again);
  bytes head = co_await source.read(0, probe);
  std::shared_ptr<shard_scanner> builder;
  if (scan.format != nullptr) builder = scan.of(name, source.object());
  const bool checked = builder != nullptr ? builder->verifies() : options.format == sample_format::tfrecord;
  if (!records && (head.size() >= tar::detect_bytes || source.ended(head.size()))) {
    require_plain_tar(source.object(), head.view());
  }
  running_crc all(crc_kind::crc32c);
  std::unique_ptr<object_check> check;
  bool headers = !records && options.way == index_way::headers;
  if (!records && options.way == index_way::cheaper && source.total() && *source.total() > head.size()) {
    const std::uint64_t mean = mean_member_of(source.object(), head, options.max_member);
    const std::uint64_t left = *source.total() - head.size();
    headers = mean != 0 && cost_of_headers(left, mean, options).total(options.request_cost) <
                               cost_of_stream(left, options).total(options.request_cost);
  }
  if (source.sequential() || !source.total()) headers = false;
  if (verify && !headers && !checked) {
    task<std::unique_ptr<object_check>> asking = from->check(source.object(), source.object().etag);
    if (asking) check = co_await std::move(asking);
    const bool other =
        check != nullptr && !check->etag().empty() && !same_etag(check->etag(), source.object().etag);
    if (other) check.reset();
  }
  const auto came = [&](const bytes& piece) {
    if (check == nullptr) return;
    check->add(piece, source.crc());
    all.add(piece.data(), piece.size());
  };
  came(head);
  const coroutine_context here = co_await this_context();
  executor& ex = here.get_executor();
  try {
    if (records) {
      if (builder == nullptr) {
        builder = std::make_shared<record_index_builder>(std::move(name), source.object(),
                                                         head.view().substr(0, tar::detect_bytes), options.max_line,
                                                         options.format);
      }
      std::uint64_t fed = head.size();
      const cpu_pool::share pool = builder->packed() ? cpu_pool::share::of(here.runtime()) : cpu_pool::share();
      co_await add_records<>(builder, std::move(head), pool);
      while (!source.ended(fed)) {
        bytes more = co_await source.read(fed, options.part);
        fed += more.size();
        came(more);
        co_await add_records<>(builder, std::move(more), pool);
      }
      if (check != nullptr) co_await check->compare(0);
      const std::uint64_t size = source.size();
      out.index = builder->finish(size, source.object().etag);
      out.verified = check != nullptr || checked || !verify;
      out.object = source.object();
      co_return std::move(out);
    }
    tar::reader reader = index_reader(source.object(), headers, options.max_member);
    index_builder tars(std::move(name), source.object().shown(),
                       headers ? index_builder::checksums::none : index_builder::checksums::crc32c);
    std::uint64_t fed = head.size();
    reader.feed(std::move(head));
    tar::entry e;
    bool finished = false;
    for (;;) {
      if (reader.next(e)) {
        tars.add(e);
        continue;
      }
      if (reader.done()) break;
      if (headers) {
        const std::uint64_t next = reader.skip();
        if (next > fed) {
          fed = next;
          continue;
        }
      }
      if (finished) break;
      if (source.ended(fed)) {
        finished = true;
        reader.finish();
        continue;
      }
      const std::size_t length = headers ? options.hop : options.part;
      bytes more = co_await source.read(fed, length);
      fed += more.size();
      came(more);
      reader.feed(std::move(more));
    }
    // A size that the store has not given is known when the object has been read to its end. So is its checksum, and
    // so are bytes other than zeros after the archive.
    while (!source.ended(fed) && (check != nullptr || !source.total() || reader.warning().empty())) {
      bytes more = co_await source.read(fed, options.part);
      fed += more.size();
      came(more);
      reader.feed(std::move(more));
    }
    reader.finish();
    static_cast<void>(reader.next(e));  // throws where it was no tar
    if (check != nullptr) co_await check->compare(0);
    archive_warnings warnings(ex, options.report && !again);
    warnings.add(source.object(), reader.warning());
    warnings.add_once(source.object(), tars.warning());
    const std::uint64_t size = source.size();
    out.index = tars.finish(size, source.object().etag);
    out.verified = check != nullptr || !verify;
  } catch (const archive_error&) {
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

template <class Storage>
task<shard_index> index_shard(std::shared_ptr<const Storage> from, shard object, std::string name,
                              index_shard_options options, detail::scan_of_shard scan) {
  options.part = std::max<std::size_t>(options.part, 64 * KiB);
  options.hop = std::clamp<std::size_t>(options.hop, 512, options.part);
  const coroutine_context here = co_await this_context();
  const bool once = !options.verify || !from->over_network(object.url);
  std::vector<detail::index_reading> before;
  for (;;) {
    detail::index_reading now =
        co_await detail::read_for_index<Storage>(from, std::move(object), name, options, scan, !before.empty());
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
