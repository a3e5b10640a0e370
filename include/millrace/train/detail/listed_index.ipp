// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/object_samples.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/detail/index_parts.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/index/detail/listing_file.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/order/shard_deal.hpp>
#include <millrace/shards/range_reader.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/detail/host_copy.hpp>
#include <millrace/train/detail/listed_index.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::string shard_indexer::name_of(const shard& s) const {
  const std::string name = s.shown();
  return name.compare(0, prefix_.size(), prefix_) == 0 ? name.substr(prefix_.size()) : name;
}

/// For a shard that is no tar: the dataset_options::format that its name or its first bytes are of.
MILLRACE_INLINE std::string format_advice(std::string_view name, std::string_view reason) {
  const auto has = [&](std::string_view part) { return reason.find(part) != std::string_view::npos; };
  const std::string_view last = name.substr(name.rfind('/') + 1);
  if (has(", but Parquet")) return "dataset_options::format = mill::parquet() reads Parquet (millrace/parquet.hpp)";
  if (has(", but a NumPy array")) return "dataset_options::format = mill::npy_shards() reads the rows of .npy files";
  if (last.find(".mds") != std::string_view::npos) return "dataset_options::format = mill::mds() reads MosaicML's MDS";
  const std::string_view ending = last.substr(last.rfind('.') + 1);
  if (ending == "mp4" || ending == "m4v" || ending == "mov" || ending == "mkv" || ending == "webm") {
    return "dataset_options::format = mill::video_shards() reads clips of films (millrace/formats/video_shards.hpp)";
  }
  if (has("\"MMIDIDX") || last.ends_with(".bin")) {
    return "dataset_options::format = mill::megatron() reads .bin files of Megatron-LM with their .idx";
  }
  return "for other data than tars, dataset_options::format is line_shards(), tfrecord_shards(), recordio_shards(), "
         "object_samples(), class_folders(), sample_folders(), video_shards(), npy_shards(), megatron(), mds() or "
         "mill::parquet()";
}

MILLRACE_COROUTINE_BODY task<shard_index> shard_indexer::operator()(shard s) const {
  std::string name = name_of(s);
  return index_one(store_, parts_, std::move(s), std::move(name), format_, metadata_);
}

MILLRACE_COROUTINE_BODY task<shard_index> shard_indexer::index_one(std::shared_ptr<const storage> store,
                                                                   std::shared_ptr<const index_parts> parts, shard s,
                                                                   std::string name,
                                                                   std::shared_ptr<const shard_format> format,
                                                                   std::shared_ptr<const void> metadata) {
  if (parts != nullptr) {
    std::optional<shard_index> there = parts->find(name, s);
    if (there && there->is_of(format->name(), format->settings())) co_return std::move(*there);
    if (parts->finished()) co_return shard_index();
  }
  try {
    shard_index made = co_await index_shard(std::move(store), std::move(s), std::move(name), format,
                                            index_shard_options(), std::move(metadata));
    if (parts != nullptr) parts->leave(made);
    co_return std::move(made);
  } catch (archive_error& e) {
    if (e.reason().starts_with("not a tar archive")) e.add_note(format_advice(e.object(), e.reason()));
    if (e.reason().find("more than max_member_bytes") != std::string::npos) {
      e.add_note("millrace-index --max-member SIZE makes an index of it, by which it is read");
    }
    throw;
  }
}

MILLRACE_COROUTINE_BODY task<std::string> text_of_listing(std::shared_ptr<const storage> store, std::string file) {
  if (file.find("://") == std::string::npos) {
    errno = 0;
    std::ifstream in(file, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(in), {});
    if (!in.is_open() || in.bad()) throw io_error::of(errno, "the listing cannot be read", where{file, {}, {}});
    co_return std::move(text);
  }
  const where here{shard(file).shown(), std::nullopt, {}};
  if (!store->serves(file)) throw configuration_error("the store of the shards does not serve the listing", here);
  const bool twice = store->over_network(file);
  std::string text = co_await text_of_object(store, shard(file), false, 64 * MiB);
  if (twice && !listing_reader::is_whole(text)) {
    log_second_reading(co_await this_context(), here.object + ": the listing has a wrong checksum");
    text = co_await text_of_object(std::move(store), shard(file), true, 64 * MiB);
  }
  co_return std::move(text);
}

MILLRACE_INLINE listed_index::listed_index(std::shared_ptr<const storage> store, std::string prefix,
                                           const dataset_options& data, const epochs_options& training,
                                           std::shared_ptr<const index_set> known, bool all_rows)
    : store_(store),
      indexer_(std::move(store), std::move(prefix), data.format != nullptr ? data.format : tar_shards()),
      file_(data.index),
      makes_(data.make_index),
      requests_(training.requests),
      rank_(training.rank),
      host_folder_(data.host_folder),
      head_alone_above_(all_rows || indexer_.format().of_objects() ? UINT64_MAX : data.index_memory),
      known_(std::move(known)) {}

MILLRACE_COROUTINE_BODY task<std::shared_ptr<const index_set>> listed_index::of(std::vector<shard> list) {
  std::erase_if(list, [this](const shard& s) { return is_own(s); });
  if (list.empty()) throw configuration_error("epochs: the list has no shards");
  const shard_format& format = indexer_.format();
  std::vector<shard> all = list;
  list = format.choose(std::move(list));
  if (list.empty()) {
    throw configuration_error("epochs: none of the " + std::to_string(all.size()) +
                                  " objects that are listed is a shard of " + shown_format(format),
                              where{all.front().shown(), std::nullopt, {}});
  }
  if (list.size() != all.size()) say_left_out(co_await this_executor(), all, list);
  std::shared_ptr<const index_set> indexes = co_await find();
  if (indexes == nullptr) {
    task<std::shared_ptr<const void>> reading = format.metadata(store_, std::move(all));
    if (reading) {
      std::shared_ptr<const void> read = co_await std::move(reading);
      indexer_.know(std::move(read));
    }
  }
  if (indexes == nullptr) indexes = co_await make(list);
  check(*indexes, list);
  std::map<std::string, std::string> by_name;
  for (const shard& s : list) by_name[indexer_.name_of(s)] = s.url;
  urls_.clear();
  for (const shard_index& index : *indexes) urls_.push_back(by_name[index.name()]);
  co_return indexes;
}

/// Objects that the format does not know, by names that are not those of its shards.
MILLRACE_INLINE void listed_index::say_left_out(const executor& ex, const std::vector<shard>& all,
                                                const std::vector<shard>& chosen) const {
  std::set<std::string_view> shards;
  for (const shard& s : chosen) shards.insert(s.url);
  const shard* first = nullptr;
  std::size_t count = 0;
  for (const shard& s : all) {
    if (shards.count(s.url) != 0 || indexer_.format().knows(s)) continue;
    if (count++ == 0) first = &s;
  }
  if (count == 0) return;
  const std::string line = std::to_string(count) + (count == 1 ? " object is" : " objects are") +
                           " left out, as by their names they are no shards of " +
                           std::string(indexer_.format().name()) + ": the first is " + first->shown();
  if (first_time(line)) log_line(ex, "millrace: dataset: " + line);
}

/// The index that is there; null where it is to be made.
MILLRACE_COROUTINE_BODY task<std::shared_ptr<const index_set>> listed_index::find() const {
  std::shared_ptr<const index_set> there = known_;
  if (there == nullptr && in_store()) {
    std::vector<shard_index> all = co_await read_object(true);
    // Their order needs their rows.
    const bool grouped = std::any_of(all.begin(), all.end(), [](const shard_index& i) { return i.has_groups(); });
    if (grouped && all.front().in_store()) all = co_await read_object(false);
    there = std::make_shared<const index_set>(std::move(all));
  }
  if (there == nullptr && is_there()) there = read(file_);
  if (there != nullptr) {
    if (there != known_) check_format(*there, indexer_.format(), file_);
  } else if (!makes_) {
    throw configuration_error("there is no index: millrace-index makes one, and so does dataset_options::make_index",
                              where{file_, std::nullopt, {}});
  }
  co_return there;
}

MILLRACE_INLINE void listed_index::check_format(const index_set& indexes, const shard_format& format,
                                                const std::string& file) {
  if (indexes.size() == 0 || indexes[0].is_of(format.name(), format.settings())) return check_fields(indexes, format);
  throw configuration_error("the index is of " + indexes[0].shown_format() + ", and dataset_options::format is " +
                                shown_format(format),
                            where{shown_url(file), std::nullopt, {}});
}

MILLRACE_INLINE void listed_index::check_fields(const index_set& indexes, const shard_format& format) {
  struct known {
    std::string meaning;
    std::size_t shard = 0;
  };
  std::map<std::string, known, std::less<>> all;
  std::vector<shard_field> before;
  std::size_t first = 0;
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    if (indexes[i].samples() == 0) continue;
    std::vector<shard_field> its = format.fields(indexes[i]);
    if (its.empty() || its == before) continue;
    const auto fail = [&](std::size_t shard, const std::string& why) {
      throw configuration_error(std::string(format.name()) + ": " + why +
                                    ": all shards of a dataset have the same fields",
                                where{indexes[shard].name(), std::nullopt, {}});
    };
    const bool begins = all.empty();
    if (begins) first = i;
    std::set<std::string_view> names;
    for (const shard_field& f : its) {
      names.insert(f.name);
      const auto [at, is_new] = all.try_emplace(f.name, known{f.meaning, i});
      if (is_new && !begins) {
        fail(first, "there is no field \"" + f.name + "\", which " + indexes[i].name() + " has (" + f.meaning + ')');
      }
      known& other = at->second;
      if (other.meaning.empty()) other = known{f.meaning, i};
      if (f.meaning.empty() || f.meaning == other.meaning) continue;
      fail(i, "field \"" + f.name + "\" is " + f.meaning + ", and in " + indexes[other.shard].name() + ' ' +
                  other.meaning);
    }
    for (const auto& [name, other] : all) {
      if (names.count(name) != 0) continue;
      const std::string which = indexes[other.shard].name() + " has (" + other.meaning + ')';
      fail(i, "there is no field \"" + name + "\", which " + which);
    }
    before = std::move(its);
  }
}

MILLRACE_COROUTINE_BODY task<std::shared_ptr<const index_set>> listed_index::of_objects(
    std::shared_ptr<const index_set> listed) {
  urls_.clear();
  for (const shard_index& index : *listed) urls_.push_back(indexer_.prefix() + index.name());
  std::shared_ptr<const index_set> there = co_await find();
  if (there == nullptr) {
    write(*listed, false);
    there = read(file_);  // another rank may have written it, of another listing
  }
  check_objects(*there, *listed, file_, indexer_.prefix());
  co_return there;
}

MILLRACE_COROUTINE_BODY task<listed_index::stored> listed_index::read_stored(bool by_need, bool again) const {
  stored out;
  std::string text;
  try {
    constexpr std::size_t part = 8 * MiB;
    indexed_object source(store_, shard(file_), part, again);
    while (!source.ended(text.size())) {
      const bytes more = co_await source.read(text.size(), part);
      text += more.view();
      out.head_alone = by_need && !source.sequential() && source.total() && *source.total() > head_alone_above_ &&
                       index_file_head::has_rows_apart(text);
      if (out.head_alone) break;
    }
    const std::uint64_t head = out.head_alone ? std::min(source.size(), index_file_head::bytes_said(text)) : 0;
    while (text.size() < head) {  // longer parts than otherwise: there are few requests before the first sample
      const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(head - text.size(), 64 * MiB));
      const std::string more = co_await text_of_range(store_, source.object(), text.size(), length, again);
      text += more;
    }
    out.object = source.object();
    out.object.size = source.size();
  } catch (const error& e) {
    throw index_error("the index cannot be read, and in a store it is not made (millrace-index does): " + e.reason(),
                      where{shard(file_).shown(), std::nullopt, {}});
  }
  const auto kept = std::make_shared<const std::string>(std::move(text));
  out.text = *kept;
  out.owner = kept;
  co_return std::move(out);
}

/// What another rank of this machine has read, compared with the object of now; nullopt: this one reads it.
MILLRACE_COROUTINE_BODY task<std::optional<listed_index::stored>> listed_index::find_copy(host_copy& copy) const {
  const executor& ex = co_await this_executor();
  for (;;) {
    const bool there = co_await copy.find();
    if (!there) co_return std::nullopt;
    stored out;
    out.text = copy.text();
    out.owner = copy.owner();
    const auto etag = static_cast<std::size_t>(read_le(out.text, 9, 2));
    out.object = shard(file_, read_le(out.text, 0, 8), std::string(out.text.substr(11, etag)));
    out.head_alone = out.text[8] != 0;
    out.text.remove_prefix(11 + etag);
    std::string why = "the object has other bytes";
    try {
      indexed_object now(store_, out.object, 64 * KiB);
      const bytes first = co_await now.read(0, 64);
      if (out.text.substr(0, 64) == first.view().substr(0, 64)) co_return std::move(out);
    } catch (const error& e) {
      why = e.what();
    }
    copy.refuse(ex, why);
  }
}

/// The indexes, which the other ranks of this machine may take then.
MILLRACE_INLINE std::vector<shard_index> listed_index::opened(const executor& ex, const stored& s,
                                                              host_copy& copy) const {
  const std::string shown = shard(file_).shown();
  std::vector<shard_index> all = s.head_alone ? open_stored_indexes(store_, s.object, s.text, shown)
                                              : open_index_text(s.text, s.owner, shown);
  std::string front;
  append_le(front, *s.object.size, 8);
  front += s.head_alone ? '\1' : '\0';
  append_le(front, std::min<std::size_t>(s.object.etag.size(), 65535), 2);
  front.append(s.object.etag, 0, 65535);
  copy.give(ex, front, s.text);
  return all;
}

/// A training only reads from stores: an index that is not there is an error. One that comes damaged is read once more.
MILLRACE_COROUTINE_BODY task<std::vector<shard_index>> listed_index::read_object(bool by_need) const {
  const executor& ex = co_await this_executor();
  const std::string shown = shard(file_).shown();
  if (!store_->serves(file_)) {
    throw configuration_error("the store of the shards does not serve the index", where{shown, std::nullopt, {}});
  }
  host_copy copy(host_folder_, "the index " + shown + '\n' + store_->host(file_) + '\n' + file_ + '\n' +
                                   std::to_string(by_need ? head_alone_above_ : UINT64_MAX),
                 rank_);
  std::optional<stored> found = co_await find_copy(copy);
  stored first;
  if (found) {
    first = std::move(*found);
  } else {
    first = co_await read_stored(by_need, false);
  }
  std::exception_ptr damaged;
  try {
    co_return opened(ex, first, copy);
  } catch (const index_error&) {
    damaged = std::current_exception();
  }
  if (!store_->over_network(file_)) std::rethrow_exception(damaged);
  log_second_reading(co_await this_context(), text_of(damaged));
  const stored second = co_await read_stored(by_need, true);
  if (second.text == first.text) {
    add_note(damaged, read_twice(true));
    std::rethrow_exception(damaged);
  }
  try {
    co_return opened(ex, second, copy);
  } catch (index_error& e) {
    e.add_note(read_twice(false));
    throw;
  }
}

MILLRACE_INLINE bool listed_index::is_there() const {
  std::error_code ignored;
  return std::filesystem::exists(file_, ignored);
}

MILLRACE_INLINE std::shared_ptr<const index_set> listed_index::read(const std::string& file) {
  return std::make_shared<const index_set>(open_indexes(file));
}

/// An index of another list would be an order of other samples.
MILLRACE_INLINE void listed_index::check(const index_set& indexes, const std::vector<shard>& list) const {
  const std::string what = "the index " + file_ + " is of another list: ";
  std::vector<bool> listed(indexes.size());
  for (const shard& s : list) {
    const std::optional<std::size_t> known = indexes.find(indexer_.name_of(s));
    if (!known) throw stale_index_error(what + "it does not have this shard", where{s.shown(), std::nullopt, {}});
    indexes[*known].check(s);
    listed[*known] = true;
  }
  const auto gone = std::find(listed.begin(), listed.end(), false);
  if (gone == listed.end()) return;
  const shard_index& index = indexes[static_cast<std::size_t>(gone - listed.begin())];
  throw stale_index_error(what + "this shard is not listed", where{indexer_.prefix() + index.name(), std::nullopt, {}});
}

/// A template, so that g++ does not emit its stages where they are not used.
template <class Shard>
task<std::vector<shard_index>> index_each(std::vector<Shard> list, shard_indexer indexer, std::size_t requests) {
  auto work = from_range(std::move(list)) |
              map_concurrent(std::move(indexer), {.limit = std::min<std::size_t>(requests, 16)});
  std::vector<shard_index> made = co_await collect(std::move(work));
  co_return std::move(made);
}

MILLRACE_INLINE void listed_index::check_writable() const {
  const std::string fresh = unfinished(file_, this);
  if (!std::ofstream(fresh)) throw io_error::of(errno, "the index cannot be written", where{file_, std::nullopt, {}});
  std::error_code ignored;
  std::filesystem::remove(fresh, ignored);
}

MILLRACE_COROUTINE_BODY task<std::shared_ptr<const index_set>> listed_index::make(std::vector<shard> list) const {
  executor& ex = co_await this_executor();
  const bool together = rank_.world_size > 1;
  if (rank_.index == 0) {
    std::string line = "millrace: epochs: there is no index yet: reading ";
    line += std::to_string(list.size()) + " shards";
    if (together) line += ", by " + std::to_string(rank_.world_size) + " ranks together";
    log_line(ex, line, log_level::info);
  }
  if (together) {
    std::shared_ptr<const index_set> shared = co_await make_together(std::move(list));
    co_return std::move(shared);
  }
  check_writable();  // before the work
  std::vector<shard_index> made = co_await index_each(std::move(list), indexer_, requests_);
  write(index_set(std::move(made)));
  co_return read(file_);  // of which less stays in memory
}

/// By the bytes, of the list in an order that is the same on all ranks.
MILLRACE_INLINE std::vector<shard> listed_index::share_of(const std::vector<shard>& list) const {
  std::vector<shard> sorted = list;
  std::sort(sorted.begin(), sorted.end(),
            [this](const shard& a, const shard& b) { return indexer_.name_of(a) < indexer_.name_of(b); });
  std::vector<shard> mine;
  if (sorted.size() < rank_.world_size) {
    if (rank_.index < sorted.size()) mine.push_back(sorted[rank_.index]);
    return mine;
  }
  const shard_deal deal(sorted, 0, 0, rank_.world_size);
  for (const std::size_t i : deal.of_rank(rank_.index)) mine.push_back(sorted[i]);
  return mine;
}

MILLRACE_INLINE void listed_index::take_from_others(const index_parts& parts, std::vector<shard>& missing,
                                                    std::vector<shard_index>& made) const {
  std::erase_if(missing, [&](const shard& s) {
    std::optional<shard_index> there = parts.find(indexer_.name_of(s), s);
    if (!there || !there->is_of(indexer_.format().name(), indexer_.format().settings())) return false;
    made.push_back(std::move(*there));
    return true;
  });
}

MILLRACE_COROUTINE_BODY task<void> listed_index::keep_beating(std::shared_ptr<const index_parts> parts,
                                                              std::uint32_t rank) {
  for (;;) {
    parts->beat(rank);
    co_await sleep_for(beat);
  }
}

MILLRACE_COROUTINE_BODY task<std::vector<shard_index>> listed_index::read_shared(
    std::vector<shard> mine, std::shared_ptr<const index_parts> parts) const {
  executor& ex = co_await this_executor();
  const spawned<void> alive(ex, keep_beating(parts, rank_.index));
  shard_indexer indexer = indexer_;
  indexer.share(std::move(parts));
  std::vector<shard_index> made = co_await index_each(std::move(mine), std::move(indexer), requests_);
  co_return std::move(made);
}

MILLRACE_COROUTINE_BODY task<std::shared_ptr<const index_set>> listed_index::make_together(
    std::vector<shard> list) const {
  executor& ex = co_await this_executor();
  const auto parts = std::make_shared<const index_parts>(file_);
  std::vector<shard_index> made;
  std::vector<shard> missing = list;
  const auto add = [&](std::vector<shard_index> more) {
    std::set<std::string> names;
    for (shard_index& index : more) {
      if (index.name().empty()) continue;  // the whole index was there sooner
      names.insert(index.name());
      made.push_back(std::move(index));
    }
    std::erase_if(missing, [&](const shard& s) { return names.count(indexer_.name_of(s)) != 0; });
  };
  std::vector<shard_index> mine = co_await read_shared(share_of(list), parts);
  add(std::move(mine));

  // The missing ones, each rank in an order of its own: ranks that read for one that is gone share its work, too.
  const auto turn = [this](const shard& s) { return mix64(text_hash(indexer_.name_of(s)) ^ rank_.index); };
  std::sort(missing.begin(), missing.end(), [&](const shard& a, const shard& b) { return turn(a) < turn(b); });

  index_parts::news seen;
  time_point since = ex.now();
  duration pause = std::chrono::milliseconds(20);
  bool alone = false;
  for (;;) {
    if (is_there()) {
      parts->remove();
      co_return read(file_);
    }
    const index_parts::news now = parts->look();
    if (now != seen || alone) take_from_others(*parts, missing, made);
    if (missing.empty()) break;
    if (now != seen) {
      seen = now;
      since = ex.now();
    }
    if (!alone && ex.now() - since < patience) {
      co_await sleep_for(pause);
      pause = std::min<duration>(2 * pause, std::chrono::seconds(1));
      continue;
    }
    if (!std::exchange(alone, true)) {
      log_line(ex, "millrace: epochs: rank " + std::to_string(rank_.index) + " has seen nothing of the others for " +
                  std::to_string(patience.count()) + " s: it reads " + std::to_string(missing.size()) +
                  " shards of theirs for the index");
    }
    std::vector<shard> next = missing;
    if (next.size() > 16) next.erase(next.begin() + 16, next.end());
    std::vector<shard_index> more = co_await read_shared(std::move(next), parts);
    add(std::move(more));
  }
  write(index_set(std::move(made)));
  parts->remove();
  co_return read(file_);
}

/// At once or not at all. Without `replace`, a file that is there by then stays.
MILLRACE_INLINE void listed_index::write(const index_set& indexes, bool replace) const {
  check_fields(indexes, indexer_.format());
  const std::string fresh = unfinished(file_, this);
  errno = 0;
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  index_file_head head(indexes);
  out << std::string(static_cast<std::size_t>(head.bytes()), '\0');
  for (const shard_index& index : indexes) {
    const std::string text = index.text();
    head.add(index, text);
    out << text;
  }
  out.seekp(0);
  out << head.text();
  out.close();
  std::error_code error;
  if (out && !replace) {
    std::filesystem::create_hard_link(fresh, file_, error);
    if (!error || error == std::errc::file_exists) {
      std::filesystem::remove(fresh, error);
      return;
    }
    error.clear();  // a file system without links
  }
  if (out) std::filesystem::rename(fresh, file_, error);
  if (out && !error) return;
  const int why = error ? error.value() : errno;
  std::filesystem::remove(fresh, error);
  throw io_error::of(why, "the index cannot be written", where{file_, std::nullopt, {}});
}

}  // namespace millrace::detail
