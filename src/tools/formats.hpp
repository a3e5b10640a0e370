// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/array_shards.hpp>
#include <millrace/index/index_shard.hpp>
#include <millrace/index/mds.hpp>
#include <millrace/index/sample_format.hpp>
#include <millrace/index/shard_format.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/text/text.hpp>

#include "src/tools/command_line.hpp"
#include "src/tools/parquet.hpp"

namespace tools {

/// The formats that a place can have, by their names: all but arrays, which are in memory, and Parquet, which has
/// options and needs Arrow.
inline std::map<std::string, mill::dataset_format> formats_by_name() {
  std::map<std::string, mill::dataset_format> all;
  for (int i = 0;; ++i) {
    const auto format = static_cast<mill::sample_format>(i);
    const std::string name = mill::format_name(format);
    if (name.empty()) break;
    if (format != mill::sample_format::arrays && format != mill::sample_format::described) all.emplace(name, format);
  }
  all.emplace("mds", mill::mds());
  all.emplace("npy", mill::npy_shards());
  all.emplace("megatron", mill::megatron());
  return all;
}

/// The format of a name. `columns`: of Parquet, those that become fields; of others none may be given.
inline mill::dataset_format format_by_name(const std::string& name, const std::vector<std::string>& columns = {}) {
  if (name == "parquet") return parquet_format(columns);
  if (!columns.empty()) throw mill::configuration_error("--columns are of Parquet, and these are of format " + name);
  return formats_by_name().at(name);
}

/// Checks that a text is the name of one.
inline CLI::IsMember is_format() {
  std::vector<std::string> names{"parquet"};
  for (const auto& [name, value] : formats_by_name()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return CLI::IsMember(std::move(names));
}

/// The name of the format that the name of a shard shows; nullopt for another name. Endings of compression do not
/// count.
inline std::optional<std::string> format_of_name(std::string_view name) {
  name = name.substr(name.rfind('/') + 1);
  const auto ends_in = [&](std::string_view end) {
    return name.size() > end.size() && name.substr(name.size() - end.size()) == end;
  };
  for (const std::string_view end : {".tgz", ".tbz2", ".txz", ".tzst", ".zip"}) {
    if (ends_in(end)) return "tar";
  }
  for (const std::string_view end : {".gz", ".zst", ".zstd", ".bz2", ".xz", ".lz4"}) {
    if (!ends_in(end)) continue;
    name.remove_suffix(end.size());
    break;
  }
  if (ends_in(".tar")) return "tar";
  if (ends_in(".rec")) return "recordio";
  if (ends_in(".mds")) return "mds";
  if (ends_in(".npy")) return "npy";
  for (const std::string_view end : {".parquet", ".parq", ".pq"}) {
    const std::string_view its = name.substr(name.size() - std::min(name.size(), end.size()));
    if (name.size() > end.size() && mill::text::equal_ignoring_case(its, end)) return "parquet";
  }
  for (const std::string_view end : {".jsonl", ".ndjson", ".txt", ".csv", ".tsv"}) {
    if (ends_in(end)) return "lines";
  }
  // "train.tfrecord-00000-of-01024", too.
  if (name.find(".tfrecord") != std::string_view::npos) return "tfrecord";
  return std::nullopt;
}

/// What a format of a header of its own reads beside the shards.
inline std::shared_ptr<const void> read_metadata(const mill::shard_format& format,
                                                 std::shared_ptr<const mill::storage> from,
                                                 std::vector<mill::shard> listed) {
  mill::task<std::shared_ptr<const void>> reading = format.metadata(std::move(from), std::move(listed));
  if (!reading) return nullptr;
  const auto loop = mill::make_event_loop();
  return mill::block_on(*loop, std::move(reading));
}

/// The index of a shard: by reading all of it, or as its format does it.
inline mill::task<mill::shard_index> index_of_shard(std::shared_ptr<const mill::storage> from, mill::shard object,
                                                    std::string name, mill::index_shard_options how,
                                                    mill::detail::scan_of_shard scan) {
  if (scan.format == nullptr || scan.of(name, object) != nullptr) {
    return mill::index_shard(std::move(from), std::move(object), std::move(name), how, std::move(scan));
  }
  return scan.format->index(std::move(from), std::move(object), std::move(name), scan.metadata);
}

}  // namespace tools
