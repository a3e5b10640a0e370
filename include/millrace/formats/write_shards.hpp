// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See write_shards().
struct write_shards_options {
  /// Of a shard, at most: the next one begins with the sample that would make it longer. One sample alone may be.
  std::uint64_t bytes = 256 * MiB;
  std::uint64_t samples = 0;  ///< of a shard, at most; 0: as many as its bytes allow
  std::uint64_t first = 0;    ///< the number of the first shard
  /// Of several writers of one data set: this one writes the shards first + index, first + index + world_size and so
  /// on. What they have in common is written by finish_shards() then.
  millrace::rank rank = {};
  /// Goes on after the shards that are there, which are of the same input: as many samples are dropped from it as they
  /// hold. Otherwise a shard that is there is an error.
  bool go_on = false;
  std::size_t part = 8 * MiB;  ///< bytes of a part of an upload
  std::size_t parts = 4;       ///< of one upload, on their way at a time
};

/// A shard that write_shards() has written.
class written_shard {
 public:
  std::uint64_t number = 0;
  std::string url;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  std::string etag;  ///< as the store spells it; of a file empty
};

namespace detail {

/// The names of the shards of a pattern, and of what is beside them.
class shard_names {
 public:
  /// configuration_error for a pattern that does not have `{}` once, in its last part.
  explicit shard_names(std::string pattern);

  const std::string& pattern() const noexcept { return pattern_; }
  std::string url(std::uint64_t number) const;
  /// The inverse of url(); nullopt for another name.
  std::optional<std::uint64_t> number(std::string_view url) const;
  /// What all URLs begin with.
  std::string prefix() const { return pattern_.substr(0, hole_); }
  /// What comes before the names in the index.
  std::string folder() const { return pattern_.substr(0, pattern_.rfind('/') + 1); }
  /// "s3://corpus/train-{}.tar" gives "s3://corpus/train." + `name`, "s3://corpus/{}.tar" "s3://corpus/" + `name`.
  std::string beside(std::string_view name) const;
  static std::string index_of(const std::string& url) { return url + '.' + "millrace.index"; }

 private:
  std::string pattern_;
  std::size_t hole_ = 0;
};

/// configuration_error for options that cannot work, and where the store does not serve the names or cannot be written
/// to.
void check_writing(const storage& to, const shard_names& names, const write_shards_options& how);
/// The most bytes that it holds beside a sample.
std::size_t writing_bytes(const write_shards_options& how) noexcept;

/// Throws archive_error unless reading gives the sample's names back as they are.
void check_sample(const sample& s, std::string_view key_before, const shard_names& names, std::uint64_t number);
/// The shards of these names that are there, by their numbers.
MILLRACE_COROUTINE task<std::vector<shard>> written_shards(std::shared_ptr<const storage> to, shard_names names);
/// configuration_error where a shard of this writer or the manifest is there.
MILLRACE_COROUTINE task<void> refuse_what_is_there(std::shared_ptr<const storage> to, shard_names names,
                                                   write_shards_options how);

MILLRACE_COROUTINE async_generator<written_shard> write_samples(async_generator<sample> in,
                                                                std::shared_ptr<const storage> to, shard_names names,
                                                                write_shards_options how);
MILLRACE_COROUTINE task<void> finish_written(std::shared_ptr<const storage> to, shard_names names,
                                             write_shards_options how);

}  // namespace detail

/// Stage: samples -> the tar shards that they were written to. Take its items to the end:
///
///     auto written = train | mill::write_shards(s3, "s3://corpus/train-{}.tar");
///     for (const mill::written_shard& s : rt.run(std::move(written))) log(s.url, s.samples, s.bytes);
///
/// `store` is an s3::client, files() or any storage that can be written to; `{}` in the name is the shard's number, of
/// six digits or more. The members of a sample are named key.extension, in the order of its fields; the same samples
/// give the same bytes. Empty entries of epochs() (weight 0) are left out.
///
/// A shard appears when all of it is stored, or not at all: an upload is completed at its end, in the order of the
/// numbers (storage::put()). Beside each shard its index is written after it (`train-000000.tar.millrace.index`), made
/// on the way, with a CRC32C for every field. After the last shard come the index of all (`train.millrace.index`: for
/// dataset_options::index) and last a manifest (`train.millrace.json`: names, samples, bytes and ETags of the shards,
/// their sums, and a fingerprint of the samples that does not depend on their order, nor on the shards' sizes and
/// ETags). Listings of the library leave these out.
///
/// Going on: with .go_on, after a run that was killed or dropped, the input must be the same from its beginning. The
/// shards that are there are counted by their indexes; a shard without one is read once. The samples that they hold are
/// dropped from the input, and their keys are compared. One line in the log says where it goes on.
///
/// Bounds: one sample, and parts: at most two shards are under way, each with .parts + 2 parts of .part bytes (with the
/// defaults 96 MiB), and of both the rows of their indexes, 24 bytes a sample and 24 a field. finish_shards() keeps 12
/// bytes for 256 samples, and the indexes of nine shards. Dropping it, and an error, aborts what is not complete.
///
/// Errors: archive_error, which names shard and key, for a sample without fields or with the key of the one before it,
/// and for names that would not be read back as they are: a dot or a capital letter where WebDataset's rules would cut
/// or change them, control characters, more than 4,096 bytes, paths that begin with a slash or have a `..`.
/// configuration_error for a shard, an index of all or a manifest that is there without .go_on, for a gap in the
/// numbers, for an input that is not the one of before, and for a store that cannot be written to. changed_error for a
/// shard that another writer stores meanwhile. The store's own.
template <class Store>
auto write_shards(const Store& store, std::string pattern, write_shards_options options = {}) {
  detail::shard_names names(std::move(pattern));
  std::shared_ptr<const storage> to = detail::storage_of(store);
  detail::check_writing(*to, names, options);
  return [to = std::move(to), names = std::move(names), options](async_generator<sample> in) {
    return stream<written_shard>(detail::write_samples(std::move(in), to, names, options))
        .named("write_shards")
        .bounded(1, detail::writing_bytes(options));
  };
}

/// Writes the index and the manifest of all shards of a pattern, after the last of several writers has ended; a single
/// writer does it itself. The shards are not read, but for those without an index of their own. Call it once, with
/// .go_on where these are to be replaced. Errors: those of write_shards(), and configuration_error where there is no
/// shard, or where the numbers have a gap that ranks of one world do not leave.
template <class Store>
task<void> finish_shards(const Store& store, std::string pattern, write_shards_options options = {}) {
  detail::shard_names names(std::move(pattern));
  std::shared_ptr<const storage> to = detail::storage_of(store);
  detail::check_writing(*to, names, options);
  return detail::finish_written(std::move(to), std::move(names), options);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/write_shards.ipp>
#endif
