// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/text/entity_tag.hpp>
#include <millrace/train/detail/slice_reader.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE slice_reader::slice_reader(const training_plan& source, range_reader& ranges,
                                           const coroutine_context& here)
    : source_(source), ranges_(ranges), here_(here), pool_(cpu_pool::share::of(here.runtime())) {
  for (const training_plan::dataset& set : source_.sets) readers_.emplace_back(set.format);
}

MILLRACE_INLINE bool slice_reader::has_rows(const sample_place& place) const noexcept {
  const shard_index& index = source_.index(place.shard);
  return !index.of_objects() && index.row_arrays() == nullptr;
}

MILLRACE_INLINE bool slice_reader::is_packed(const slice_piece::range& r) const noexcept {
  return r.of != nullptr || source_.index(r.shard).is_packed();
}

MILLRACE_INLINE bool slice_reader::is_local(const slice_piece::range& r) const {
  if (!r.rows.empty()) return false;
  const frame_range there = range_in_object(r);
  return source_.store->is_local(object_of(r), there.begin, there.length());
}

MILLRACE_INLINE void slice_reader::note_version(std::uint64_t number, const std::string& etag, std::uint64_t offset) {
  if (etag.empty() || !source_.index(number).etag().empty()) return;
  const std::string& first = etags_.try_emplace(number, etag).first->second;
  if (millrace::detail::same_etag(first, etag)) return;
  throw version_changed(first, etag, where{shard(source_.url(number)).shown(), offset, {}});
}

MILLRACE_INLINE shard slice_reader::object_of(std::uint64_t number) const {
  const shard_index& index = source_.index(number);
  std::string etag = index.etag();
  if (const auto known = etags_.find(number); etag.empty() && known != etags_.end()) etag = known->second;
  shard object(source_.url(number), index.object_size(), std::move(etag));
  object.rows = index.row_arrays();
  return object;
}

MILLRACE_INLINE shard slice_reader::object_of(const slice_piece::range& r) const {
  const shard_index& index = source_.index(r.shard);
  if (!index.of_objects()) return object_of(r.shard);
  shard_index::object o = index.object_at(static_cast<std::size_t>(r.ordinal), r.field);
  std::string url = source_.url(r.shard);
  if (!index.name().empty()) url += '/';
  url += o.path;
  return shard(std::move(url), r.length(), std::move(o.etag));
}

MILLRACE_INLINE const std::shared_ptr<const shard>& slice_reader::named(std::uint64_t number, std::uint64_t epoch) {
  std::shared_ptr<const shard>& known = named_[number];
  if (known == nullptr || known->epoch != epoch) known = dealt(object_of(number), number, epoch);
  return known;
}

MILLRACE_INLINE std::shared_ptr<const shard> slice_reader::dealt(shard object, std::uint64_t number,
                                                                 std::uint64_t epoch) const {
  object.seed = source_.walk.seed;
  object.epoch = epoch;
  object.dataset = static_cast<std::uint32_t>(source_.dataset_of(number));
  object.dealt = true;
  return std::make_shared<const shard>(std::move(object));
}

MILLRACE_INLINE void slice_reader::check_budget(const slice_piece::range& r, const shard& object) const {
  const std::size_t length = r.of == nullptr ? r.length() : static_cast<std::size_t>(r.of->end - r.of->begin);
  const std::size_t largest = here_.run().budget().largest_item();
  if (length <= largest) return;
  std::string reason = run_budget::too_large(r.of == nullptr ? "the sample's" : "the group's", length, largest);
  if (r.of != nullptr) {
    reason += ": samples of a group are unpacked together; unpack the object, or write smaller groups or frames";
  }
  throw archive_error(std::move(reason), where{object.shown(), r.begin, {}});
}

MILLRACE_COROUTINE_BODY task<void> slice_reader::read(slice_piece::range& r, range_scheduler::turn& turn) {
  const shard_index& index = source_.index(r.shard);
  if (!r.rows.empty()) {
    auto job = [rows = index.row_arrays(), stretches = r.rows] { rows->read_in(stretches); };
    co_await pool_.run(std::move(job));
    turn.finished(r.length(), duration(0), duration(0), true);
    co_return;
  }
  shard object = object_of(r);
  check_budget(r, object);
  const frame_range asked_for = range_in_object(r);
  const auto at = [&] { return where{object.shown(), asked_for.begin, {}}; };
  try {
    storage::part p = co_await ranges_.read(object, asked_for.begin, asked_for.length());
    turn.finished(p, !r.cut);
    if (p.rest) {
      throw configuration_error("the store serves no ranges of the object: samples cannot be read by an index", at());
    }
    if (!index.of_objects()) note_version(r.shard, object.etag, asked_for.begin);
    r.data = std::move(p.data);
  } catch (const changed_error& e) {
    throw stale_index_error("the index \"" + index.name() + "\" is of another version of this " +
                                (index.of_objects() ? "object: " : "shard: ") + e.reason(),
                            at());
  }
}

/// The bytes of the object that have it: of compressed text, its frames.
MILLRACE_INLINE frame_range slice_reader::range_in_object(const slice_piece::range& r) const {
  const shard_index& index = source_.index(r.shard);
  if (index.is_packed() && r.of == nullptr) return index.frames_of(r.begin, r.end);
  return {r.begin, r.end, 0};
}

/// The stretches of a range, or of all of its group.
MILLRACE_INLINE std::vector<byte_stretch> slice_reader::stretches_of(const slice_piece::range& r) const {
  std::vector<byte_stretch> all(r.of == nullptr ? 1 : r.of->ranges);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const frame_range there = range_in_object(r.of == nullptr ? r : r.of->read[i]);
    all[i] = {there.begin, there.end};
  }
  return all;
}

MILLRACE_COROUTINE_BODY task<void> slice_reader::unpack(slice_piece::range& r) {
  std::vector<bytes> parts;
  if (r.of == nullptr) {
    parts.push_back(std::move(r.data));
  } else {
    if (r.of->missing != 1) co_return;  // the last one that comes unpacks the group
    for (std::size_t i = 0; i < r.of->ranges; ++i) {
      if (r.of->read[i].error != nullptr) co_return;
      parts.push_back(std::move(r.of->read[i].data));
    }
  }
  const auto make = [&](std::vector<bytes> of) { return unpack_parts(r, std::move(of)); };
  co_await make_or_read_again(ranges_, object_of(r), stretches_of(r), std::move(parts), make);
}

MILLRACE_COROUTINE_BODY task<void> slice_reader::unpack_parts(slice_piece::range& r, std::vector<bytes> parts) {
  if (r.of != nullptr) {
    const slice_piece::group& g = *r.of;
    auto job = [by = g.reader, number = g.number, its = std::move(parts), of = object_of(g.shard)] {
      return by->unpack(of, number, its);
    };
    r.of->data = co_await pool_.run(std::move(job));
  } else if (source_.index(r.shard).is_packed()) {
    slab_pool slabs = ranges_.pool_of(here_.runtime(), range_reader::slab_for(r.length()));
    auto job =
        [of = object_of(r), begin = r.begin, end = r.end, frames = range_in_object(r), data = std::move(parts.front()),
         into = slabs.worth_a_slab(r.length()) ? slabs.acquire() : writable_bytes::allocate(r.length())]() mutable {
          return unpack_frames(of, frames, data, begin, end, std::move(into));
        };
    r.data = co_await pool_.run(std::move(job));
  } else {
    r.data = std::move(parts.front());
  }
}

MILLRACE_COROUTINE_BODY task<second_reading> slice_reader::read_again(slice_piece::range& r, std::string why) {
  second_reading again = co_await ranges_.read_again(object_of(r), stretches_of(r), std::move(why));
  try {
    if (again.came()) co_await unpack_parts(r, again.parts);
  } catch (const error& e) {
    again.failed(e);
  }
  co_return std::move(again);
}

MILLRACE_INLINE void verify_crc(const sample& s, const shard_index::field& f, const bytes& body, bool record,
                                bool packed) {
  const std::uint32_t is = body.crc32c();
  if (is == f.crc) return;
  char text[64];
  std::snprintf(text, sizeof text, "%08x and not %08x", is, f.crc);
  const std::string of = record ? "the record" : "field \"" + std::string(f.extension) + '"';
  throw archive_error("the CRC32C of " + of + " is " + text + " as in the index" +
                          (packed ? ", at this byte of the unpacked text" : ""),
                      where{s.from.from->shown(), f.offset, s.key});
}

MILLRACE_INLINE void slice_reader::fill(sample& s, const shard_index::rows* rows, const sample_place& place,
                                        std::uint64_t epoch, const slice_piece::range& r) {
  const shard_index& index = source_.index(place.shard);
  const auto number = static_cast<std::size_t>(place.ordinal);
  if (index.of_objects()) return fill_of_objects(s, place, epoch, &r);
  if (index.row_arrays() != nullptr) return fill_of_rows(s, place, epoch);
  s.from = origin(named(place.shard, epoch), rows->offset(number), place.ordinal);
  s.from.copy = place.copy;
  s.key = index.key(number);
  if (r.of != nullptr && r.of->data.samples != nullptr) {
    r.of->data.samples->fill(s, number);
    given_ += byte_size(s);
    for (const field& f : s.fields) f.data.set_given(given_);
    return;
  }
  const bytes record = slice_of(s, r, *rows, number);
  const bool by_fields = index.layout() == row_layout::fields;
  const bool check = source_.options.verify && index.has_checksums();
  if (check && !by_fields) verify_crc(s, rows->field_at(number, 0), record, true, index.is_packed());
  const std::size_t d = source_.dataset_of(place.shard);
  const auto reader = r.of != nullptr ? r.of->reader : readers_[d].of(index, place.shard - source_.sets[d].first);
  reader->fill(s, *rows, number, record);
  for (std::size_t i = 0; by_fields && i < s.fields.size(); ++i) {
    const std::string& extension = s.fields[i].extension;
    if (check) verify_crc(s, rows->field_at(number, i), s.fields[i].data, false, false);
    if (MILLRACE_UNLIKELY(extension.find('.') != std::string::npos)) note_dotted(s, extension);
  }
  given_ += record.size();
  text_in(r).set_given(given_);
}

MILLRACE_INLINE void slice_reader::fill_of_rows(sample& s, const sample_place& place, std::uint64_t epoch) {
  const shard_index& index = source_.index(place.shard);
  const auto number = static_cast<std::size_t>(place.ordinal);
  s.from = origin(named(place.shard, epoch), index.offset(number), place.ordinal);
  s.from.copy = place.copy;
  s.key = index.key(number);
  const arrays& all = *index.row_arrays();
  s.fields.reserve(all.size());
  for (const named_array& one : all) {
    const bytes& memory = one.value.memory();
    const std::size_t row = memory.size() / index.samples();
    s.fields.emplace_back(one.name, memory.slice(number * row, row));
  }
}

/// The bytes of `s`.
MILLRACE_INLINE bytes slice_reader::slice_of(const sample& s, const slice_piece::range& r,
                                             const shard_index::rows& rows, std::size_t number) {
  const bytes& all = text_in(r);
  const std::uint64_t at = rows.offset(number) - (r.of != nullptr ? r.of->begin : r.begin);
  const std::uint64_t size = rows.end(number) - rows.offset(number);
  if (at > all.size() || size > all.size() - at) {
    throw archive_error("the group has " + std::to_string(all.size()) + " bytes, and the sample ends at byte " +
                            std::to_string(at + size) + " of it, as in the index",
                        s.from.at(s.key));
  }
  return all.slice(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
}

/// `first`: of its ranges, one an object.
MILLRACE_INLINE void slice_reader::fill_of_objects(sample& s, const sample_place& place, std::uint64_t epoch,
                                                   const slice_piece::range* first) const {
  const shard_index& index = source_.index(place.shard);
  const auto number = static_cast<std::size_t>(place.ordinal);
  s.from = origin(dealt(object_of(*first), place.shard, epoch), 0, 0);
  s.key = index.key(number);
  const std::size_t fields = index.field_count(number);
  s.fields.reserve(fields + 1);
  for (std::size_t i = 0; i < fields; ++i) {
    s.fields.emplace_back(std::string(index.field_at(number, i).extension), first[i].data);
  }
  const training_plan::dataset& set = source_.sets[source_.dataset_of(place.shard)];
  if (set.format->of_classes()) s.fields.emplace_back("cls", bytes::copy(std::to_string(place.shard - set.first)));
}

}  // namespace millrace::detail
