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
#include <millrace/formats/array_shards.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/line_shards.hpp>
#include <millrace/formats/mds.hpp>
#include <millrace/formats/object_samples.hpp>
#include <millrace/formats/recordio_shards.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/formats/tfrecord_shards.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/text/text.hpp>

#include "src/tools/command_line.hpp"
#include "src/tools/parquet.hpp"

namespace tools {

using format_ptr = std::shared_ptr<const mill::shard_format>;

/// The formats that a place can have, by their names: all but Parquet, which has options and needs Arrow.
inline std::map<std::string, format_ptr> formats_by_name(read_bounds bounds = {},
                                                         mill::index_way way = mill::index_way::cheaper) {
  std::map<std::string, format_ptr> all;
  all.emplace("tar", mill::tar_shards({.way = way, .max_member = bounds.member}));
  all.emplace("lines", mill::line_shards({.max_line = static_cast<std::size_t>(bounds.line)}));
  all.emplace("tfrecord", mill::tfrecord_shards());
  all.emplace("recordio", mill::recordio_shards());
  all.emplace("objects", mill::object_samples());
  all.emplace("classes", mill::class_folders());
  all.emplace("folders", mill::sample_folders());
  all.emplace("mds", mill::mds());
  all.emplace("npy", mill::npy_shards());
  all.emplace("megatron", mill::megatron());
  all.emplace("video", mill::video_shards());
  return all;
}

/// The format of a name. `columns`: of Parquet, those that become fields; of others none may be given.
inline format_ptr format_by_name(const std::string& name, const std::vector<std::string>& columns = {},
                                 read_bounds bounds = {}, mill::index_way way = mill::index_way::cheaper) {
  if (name == "parquet") return parquet_format(columns);
  if (!columns.empty()) throw mill::configuration_error("--columns are of Parquet, and these are of format " + name);
  return formats_by_name(bounds, way).at(name);
}

/// True of tars, which are read as streams and may be compressed.
inline bool is_tar(const mill::shard_format& format) { return format.name() == "tar"; }

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

/// The metadata that a format reads beside the shards.
inline std::shared_ptr<const void> read_metadata(const mill::shard_format& format,
                                                 std::shared_ptr<const mill::storage> from,
                                                 std::vector<mill::shard> listed) {
  mill::task<std::shared_ptr<const void>> reading = format.metadata(std::move(from), std::move(listed));
  if (!reading) return nullptr;
  const auto loop = mill::make_event_loop();
  return mill::block_on(*loop, std::move(reading));
}

}  // namespace tools
