// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/text/entity_tag.hpp>
#include <millrace/train/detail/epochs_source.hpp>
#include <millrace/train/detail/slice_piece.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Makes samples of what epoch_reader has read: their key, fields and origin, by the index, compared with its
/// checksums. It knows the objects that are read, and of which version they are.
template <class Sample>
class sample_filler {
 public:
  /// `source` must outlive it. With `verify` fields are compared with the index's checksums.
  sample_filler(const epochs_source& source, bool verify) : source_(source), verify_(verify) {
    for (const epochs_source::dataset& set : source_.sets) readers_.emplace_back(set.format);
  }

  /// What reads the groups of data set `d`.
  shard_readers& readers(std::size_t d) noexcept { return readers_[d]; }

  /// Where the index has no ETag, all ranges are of the version of the first one that came.
  void note_version(std::uint64_t number, const std::string& etag, std::uint64_t offset) {
    if (etag.empty() || !source_.index(number).etag().empty()) return;
    const std::string& first = etags_.try_emplace(number, etag).first->second;
    if (millrace::detail::same_etag(first, etag)) return;
    throw version_changed(first, etag, where{shard(source_.url(number)).shown(), offset, {}});
  }

  shard object_of(std::uint64_t number) const {
    const shard_index& index = source_.index(number);
    std::string etag = index.etag();
    if (const auto known = etags_.find(number); etag.empty() && known != etags_.end()) etag = known->second;
    shard object(source_.url(number), index.object_size(), std::move(etag));
    object.rows = index.row_arrays();
    return object;
  }

  shard object_of(const slice_piece::range& r) const {
    const shard_index& index = source_.index(r.shard);
    if (!index.of_objects()) return object_of(r.shard);
    shard_index::object o = index.object_at(static_cast<std::size_t>(r.ordinal), r.field);
    std::string url = source_.url(r.shard);
    if (!index.name().empty()) url += '/';
    url += o.path;
    return shard(std::move(url), r.length(), std::move(o.etag));
  }

  /// The shard as the samples of an epoch of its data set name it.
  const std::shared_ptr<const shard>& named(std::uint64_t number, std::uint64_t epoch) {
    std::shared_ptr<const shard>& known = named_[number];
    if (known == nullptr || known->epoch != epoch) {
      known = dealt(object_of(number), number, epoch);
    }
    return known;
  }
  std::shared_ptr<const shard> dealt(shard object, std::uint64_t number, std::uint64_t epoch) const {
    object.seed = source_.walk.seed;
    object.epoch = epoch;
    object.dataset = static_cast<std::uint32_t>(source_.dataset_of(number));
    object.dealt = true;
    return std::make_shared<const shard>(std::move(object));
  }

  /// From what was read: `r`, the first of its ranges; `rows`: of the index, that have it, null for objects and arrays.
  void fill(Sample& s, const shard_index::rows* rows, const sample_place& place, std::uint64_t epoch,
            const slice_piece::range& r) {
    const shard_index& index = source_.index(place.shard);
    const auto number = static_cast<std::size_t>(place.ordinal);
    if (index.of_objects()) return fill_of_objects(s, index, place, epoch, &r);
    if (index.row_arrays() != nullptr) return fill_of_rows(s, index, place, epoch);
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
    const bool check = verify_ && index.has_checksums();
    if (check && !by_fields) verify(s, rows->field_at(number, 0), record, true, index.is_packed());
    const std::size_t d = source_.dataset_of(place.shard);
    const auto reader = r.of != nullptr ? r.of->reader : readers_[d].of(index, place.shard - source_.sets[d].first);
    reader->fill(s, *rows, number, record);
    for (std::size_t i = 0; by_fields && i < s.fields.size(); ++i) {
      const std::string& extension = s.fields[i].extension;
      if (check) verify(s, rows->field_at(number, i), s.fields[i].data, false, false);
      if (MILLRACE_UNLIKELY(extension.find('.') != std::string::npos)) note_dotted(s, extension);
    }
    given_ += record.size();
    text_of(r).set_given(given_);
  }
  void fill_of_rows(Sample& s, const shard_index& index, const sample_place& place, std::uint64_t epoch) {
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

 private:
  /// What was read: the range, or the text of its group.
  static const bytes& text_of(const slice_piece::range& r) { return r.of != nullptr ? r.of->data.text : r.data; }
  /// The bytes of `s`, of what was read.
  static bytes slice_of(const Sample& s, const slice_piece::range& r, const shard_index::rows& rows,
                        std::size_t number) {
    const bytes& all = text_of(r);
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
  void fill_of_objects(Sample& s, const shard_index& index, const sample_place& place, std::uint64_t epoch,
                       const slice_piece::range* first) const {
    const auto number = static_cast<std::size_t>(place.ordinal);
    s.from = origin(dealt(object_of(*first), place.shard, epoch), 0, 0);
    s.key = index.key(number);
    const std::size_t fields = index.field_count(number);
    s.fields.reserve(fields + 1);
    for (std::size_t i = 0; i < fields; ++i) {
      s.fields.emplace_back(std::string(index.field_at(number, i).extension), first[i].data);
    }
    const epochs_source::dataset& set = source_.sets[source_.dataset_of(place.shard)];
    if (set.format->of_classes()) s.fields.emplace_back("cls", bytes::copy(std::to_string(place.shard - set.first)));
  }
  static void verify(const Sample& s, const shard_index::field& f, const bytes& body, bool record, bool packed) {
    const std::uint32_t is = body.crc32c();
    if (is == f.crc) return;
    char text[64];
    std::snprintf(text, sizeof text, "%08x and not %08x", is, f.crc);
    const std::string of = record ? "the record" : "field \"" + std::string(f.extension) + '"';
    throw archive_error("the CRC32C of " + of + " is " + text + " as in the index" +
                            (packed ? ", at this byte of the unpacked text" : ""),
                        where{s.from.from->shown(), f.offset, s.key});
  }

  const epochs_source& source_;
  const bool verify_;
  std::vector<shard_readers> readers_;                    // of each data set
  std::unordered_map<std::uint64_t, std::string> etags_;  // of shards whose index has none
  std::unordered_map<std::uint64_t, std::shared_ptr<const shard>> named_;
  std::uint64_t given_ = 0;  // bytes of samples that were made
};

}  // namespace millrace::detail
