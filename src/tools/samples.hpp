// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/train/dataset.hpp>

#include "src/tools/command_line.hpp"
#include "src/tools/formats.hpp"
#include "src/tools/store.hpp"

namespace tools {

/// The options --format and --columns of `given`, and what the first one says: nullopt where it was not given.
inline void add_format(CLI::App& given, std::string& format, std::vector<std::string>& columns) {
  given.add_option("--format", format, "What the samples are (what names of shards show)")
      ->check(is_format())
      ->type_name("FORMAT");
  given.add_option("--columns", columns, "Of Parquet: only these")->delimiter(',')->type_name("COLUMN");
}
inline std::optional<std::string> given_format(const std::string& format) {
  if (format.empty()) return std::nullopt;
  return format;
}

/// A sample, and its place among all of a source.
class placed_sample {
 public:
  placed_sample() = default;
  placed_sample(std::uint64_t s, std::uint64_t n, mill::sample what) : shard(s), ordinal(n), it(std::move(what)) {}
  std::uint64_t shard = 0;    // its number in sample_source::shards(); of objects that of the folder's index
  std::uint64_t ordinal = 0;  // in its shard
  mill::sample it;

  friend std::size_t byte_size(const placed_sample& s) noexcept { return byte_size(s.it); }
};

/// Where a source goes on: shards before `shard` are done, and `ordinal` samples of it.
struct place_in_source {
  std::uint64_t shard = 0;
  std::uint64_t ordinal = 0;
};

/// What the tools read samples from: a shard, or all under a prefix or in a folder, of any format that a dataset has.
/// Tars are read as a stream, compressed ones, too; all others as a dataset reads them, by their index. That is the one
/// in the folder, PLACE/millrace.index, where it is of these shards, or is made of each shard when its turn comes.
/// Rows of Parquet come as the files that row_files makes of them.
class sample_source {
 public:
  /// Lists. Without a format, it is that of the first name that shows one; where none does, of objects. `columns`: as
  /// format_by_name() takes them.
  sample_source(const std::string& place, std::optional<std::string> format, std::vector<std::string> columns,
                read_bounds bounds = {})
      : store_(place), place_(place), columns_(std::move(columns)), bounds_(bounds) {
    std::vector<mill::shard> all = list();
    for (const mill::shard& s : all) {
      if (format) break;
      format = format_of_name(s.url);
    }
    name_ = format.value_or("objects");
    format_ = format_by_name(name_, columns_, bounds_, mill::index_way::stream);
    if (format_->of_objects()) {
      if (place_.back() != '/') place_ += '/';
      mill::detail::object_index_builder objects(format_, place_);
      for (const mill::shard& s : all) objects.add(s);
      passed_over_ = objects.passed_over();
      for (const mill::shard& s : all) bytes_ += s.size.value_or(0);
      objects_ = std::make_shared<const mill::index_set>(objects.finish());
      if (objects_->samples() == 0) throw mill::configuration_error("there are no samples under " + place);
      requests_ = all.size();
      for (const mill::shard_index& index : *objects_) {
        mill::shard s(place_ + index.name(), index.sample_bytes());
        shards_.push_back(std::move(s));
      }
      return;
    }
    const std::size_t listed = all.size();
    // Of one shard, other formats read texts that lie beside it.
    const bool one = listed == 1 && all.front().url == place_ && !is_tar(*format_) && !whole_records();
    if (one) all = beside(std::move(all.front()));
    metadata_ = read_metadata(*format_, store_.storage(), all);
    all = format_->choose(std::move(all));
    std::erase_if(all, [&](const mill::shard& s) { return one && s.url != place_; });
    const bool by_name =
        std::any_of(all.begin(), all.end(), [&](const mill::shard& s) { return format_of_name(s.url) == name_; });
    for (mill::shard& s : all) {
      if (by_name && format_of_name(s.url) != name_) continue;  // a README beside them
      bytes_ += s.size.value_or(0);
      requests_ += (s.size.value_or(0) + mill::fetch_options().part - 1) / mill::fetch_options().part;
      shards_.push_back(std::move(s));
    }
    left_out_ = listed - std::min(listed, shards_.size());
    if (shards_.empty()) {
      throw mill::configuration_error("there are no shards of format " + name_ + " under " + place);
    }
    if (!is_tar(*format_)) known_ = read_index();
  }

  /// Its name.
  const std::string& format() const noexcept { return name_; }
  const std::vector<mill::shard>& shards() const noexcept { return shards_; }
  const std::vector<std::string>& columns() const noexcept { return columns_; }
  const tools::store& store() const noexcept { return store_; }
  /// Of all objects, as the listing says.
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// The key of sample `n` of a shard; of a tar empty, as its members say it.
  std::string key(std::size_t shard, std::uint64_t n) const {
    if (objects_ != nullptr) return (*objects_)[shard].key(static_cast<std::size_t>(n));
    return is_tar(*format_) ? std::string() : name_of(shards_[shard]) + '#' + std::to_string(n);
  }
  /// The number of samples of a shard whose keys tell those of all: each folder's, whose name it is, and one line's or
  /// record's, whose key is the shard's name and a number. 0 for tars and objects, whose keys have no dots in a name.
  std::uint64_t telling_keys(std::size_t shard) const {
    if (format_->name() == "folders") return (*objects_)[shard].samples();
    const bool empty = shards_[shard].size == std::uint64_t{0};
    return is_tar(*format_) || objects_ != nullptr || empty ? 0 : 1;
  }
  /// The GETs that they take, if each is read once.
  std::uint64_t requests() const noexcept { return requests_; }
  /// Shards whose index must be made, which reads them once more.
  std::size_t without_index() const noexcept {
    if (is_tar(*format_) || format_->of_objects()) return 0;
    if (name_ == "parquet") return 0;  // of footers
    return shards_.size() - known_.size();
  }
  class as_tars {
   public:
    std::uint64_t bytes = 0;                              ///< about
    std::optional<std::uint64_t> samples = std::nullopt;  ///< where an index says it
    bool least = false;  ///< there are more bytes: each file of a sample has a header, and it is not known how many
  };
  /// The total of all samples in tar shards. Reads the index of tar shards if `count` asks for the number of samples.
  as_tars written(bool count) const {
    constexpr std::uint64_t block = 512;
    as_tars out;
    out.bytes = bytes_;
    if (objects_ != nullptr) {
      out.samples = objects_->samples();
      out.bytes += requests_ * (block + block / 2);  // of an object, with half a block of zeros after it
      return out;
    }
    const bool tar = is_tar(*format_);
    const std::map<std::size_t, mill::shard_index> known = tar && count ? read_index() : known_;
    out.least = !tar;
    if (known.size() != shards_.size()) return out;
    out.samples = 0;
    for (const auto& one : known) *out.samples += one.second.samples();
    if (tar || !whole_records()) return out;
    out.least = false;
    out.bytes = 0;
    for (const auto& [number, index] : known) {
      for (std::size_t i = 0; i < index.samples(); ++i) {
        out.bytes += block + (index.end(i) - index.offset(i) + block - 1) / block * block;
      }
    }
    return out;
  }
  /// What was left out of the listing, in a sentence; or empty.
  std::string left_out() const {
    if (left_out_ == 0) return passed_over_;
    return std::to_string(left_out_) + (left_out_ == 1 ? " object is" : " objects are") +
           " left out, whose names are not those of " + name_;
  }

  /// The samples in the order of the shards' names and of each shard, from a place on, read ahead by at most about
  /// `memory` bytes. The source must outlive the stream.
  mill::stream<placed_sample> samples(place_in_source from = {}, std::size_t memory = 128 * mill::MiB) const {
    if (is_tar(*format_)) return mill::stream<placed_sample>(of_tars(this, from, memory));
    return mill::stream<placed_sample>(of_datasets(this, from, memory));
  }

 private:
  std::vector<mill::shard> list() const {
    struct ::stat is {};
    if (!tools::store::is_s3(place_) && ::stat(place_.c_str(), &is) != 0) {
      throw mill::io_error::of(errno, "it cannot be read", mill::where{place_, std::nullopt, {}});
    }
    if (!tools::store::is_s3(place_) && !S_ISDIR(is.st_mode)) {
      return {mill::shard(place_, static_cast<std::uint64_t>(is.st_size))};
    }
    const bool folder = !tools::store::is_s3(place_) && place_.back() != '/';
    const auto loop = mill::make_event_loop();
    mill::stream<mill::shard> objects(store_.storage()->list(folder ? place_ + '/' : place_));
    std::vector<mill::shard> all = mill::block_on(*loop, mill::collect(std::move(objects)));
    std::sort(all.begin(), all.end(), [](const mill::shard& a, const mill::shard& b) { return a.url < b.url; });
    const auto exactly = std::find_if(all.begin(), all.end(), [&](const mill::shard& s) { return s.url == place_; });
    if (exactly != all.end()) return {*exactly};  // an object, and not a prefix
    return all;
  }
  /// What lies in the folder of an object: some formats have texts beside their shards.
  std::vector<mill::shard> beside(mill::shard one) const {
    const std::string folder = one.url.substr(0, one.url.rfind('/') + 1);
    if (folder.empty()) return {std::move(one)};
    const auto loop = mill::make_event_loop();
    mill::stream<mill::shard> objects(store_.storage()->list(folder));
    std::vector<mill::shard> all = mill::block_on(*loop, mill::collect(std::move(objects)));
    std::sort(all.begin(), all.end(), [](const mill::shard& a, const mill::shard& b) { return a.url < b.url; });
    return all;
  }
  /// What stands before the names of an index.
  std::string prefix() const {
    const std::string& first = shards_.front().url;
    const bool one = shards_.size() == 1 && first == place_;
    if (one || place_.back() == '/') return place_.substr(0, place_.rfind('/') + 1);
    return tools::store::is_s3(place_) ? place_.substr(0, place_.rfind('/') + 1) : place_ + '/';
  }
  /// True if a sample has one field, of the bytes that the index says.
  bool whole_records() const { return name_ == "lines" || name_ == "tfrecord" || name_ == "recordio"; }
  std::string name_of(const mill::shard& s) const { return s.url.substr(prefix().size()); }

  /// The indexes that are there, by the numbers of their shards.
  std::map<std::size_t, mill::shard_index> read_index() const {
    std::map<std::size_t, mill::shard_index> known;
    const std::string file = tools::index_of(prefix());
    const std::optional<std::string> text = store_.read(file);
    if (!text) return known;
    std::map<std::string, mill::shard_index> there;
    for (mill::shard_index& index : mill::read_indexes(*text, file)) {
      std::string name = index.name();
      there.emplace(std::move(name), std::move(index));
    }
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const auto at = there.find(name_of(shards_[i]));
      if (at == there.end() || !at->second.is_of(format_->name(), format_->settings())) continue;
      try {
        at->second.check(shards_[i]);
        known.emplace(i, std::move(at->second));
      } catch (const mill::stale_index_error&) {  // it is made anew
      }
    }
    return known;
  }

  static mill::async_generator<placed_sample> of_tars(const sample_source* self, place_in_source from,
                                                      std::size_t memory) {
    std::vector<mill::shard> rest;
    std::unordered_map<std::string, std::uint64_t> number;
    for (std::uint64_t i = from.shard; i < self->shards_.size(); ++i) {
      rest.push_back(self->shards_[i]);
      number.emplace(self->shards_[i].url, i);
    }
    mill::fetch_options how;
    how.part = std::clamp<std::size_t>(memory / 8, 256 * mill::KiB, how.part);
    how.shards = 4;
    how.window = std::max(memory / 4, how.part);
    mill::tar::archive_options archives;
    archives.members.max_member_bytes = self->bounds_.member;
    mill::stream<mill::sample> all = mill::from_range(std::move(rest)) | mill::fetch(self->store_.storage(), how) |
                                     mill::untar(archives) | mill::group_samples();
    std::shared_ptr<const mill::shard> current;
    std::uint64_t shard = 0;
    while (std::optional<mill::sample> s = co_await all.next()) {
      if (s->from.from != current) {
        current = s->from.from;
        shard = number.at(current->url);
      }
      const std::uint64_t ordinal = s->from.ordinal;
      if (shard == from.shard && ordinal < from.ordinal) continue;
      placed_sample out(shard, ordinal, std::move(*s));
      co_yield mill::give(out);
    }
  }

  /// Samples [begin, end) of a dataset, in their order.
  static mill::task<std::vector<mill::sample>> part_of(mill::dataset all, std::uint64_t begin, std::uint64_t end) {
    mill::epochs_options how;
    how.tracks = 1;
    how.ahead = std::max<std::size_t>(65'536, static_cast<std::size_t>(end - begin));
    std::vector<mill::sample> out;
    mill::stream<mill::sample> part = mill::epochs(all.subset(begin, end), how);
    while (std::optional<mill::sample> s = co_await part.next()) out.push_back(std::move(*s));
    std::sort(out.begin(), out.end(), [](const mill::sample& a, const mill::sample& b) {
      // Samples that are objects have no ordinal, and are in the order of their keys.
      return a.from.ordinal != b.from.ordinal ? a.from.ordinal < b.from.ordinal : a.key < b.key;
    });
    co_return std::move(out);
  }

  /// Neighbours that are read together: samples [first, second).
  using part = std::pair<std::uint64_t, std::uint64_t>;

  /// The samples of a shard from `first` on, in parts of about so many bytes.
  static std::vector<part> parts_of(const mill::shard_index& index, std::uint64_t first, std::uint64_t memory) {
    std::vector<part> parts;
    std::uint64_t bytes = 0;
    // A group of samples is unpacked as a whole: the parts end where groups do, unless there are too many in one.
    const bool groups = index.has_groups();
    for (std::uint64_t i = first; i < index.samples(); ++i) {
      const std::uint64_t size = index.end(i) - index.offset(i);
      const bool may_end =
          !groups || i == first || index.group_of(index.offset(i)) != index.group_of(index.offset(i - 1));
      const std::uint64_t most = groups ? 1 << 22 : 65'536;
      if (parts.empty() || (bytes + size > memory && may_end) || i - parts.back().first == most) {
        parts.emplace_back(i, i);
        bytes = 0;
      }
      bytes += size;
      parts.back().second = i + 1;
    }
    return parts;
  }

  static mill::async_generator<placed_sample> of_datasets(const sample_source* self, place_in_source from,
                                                          std::size_t memory) {
    const std::shared_ptr<const mill::storage> store = self->store_.storage();
    std::uint64_t before = 0;  // samples of the set in shards before this one
    for (std::uint64_t i = 0; self->objects_ != nullptr && i < from.shard; ++i)
      before += (*self->objects_)[i].samples();
    for (std::uint64_t i = from.shard; i < self->shards_.size(); ++i) {
      std::shared_ptr<const mill::index_set> set = self->objects_;
      std::size_t in_set = i;
      if (set == nullptr) {
        std::vector<mill::shard_index> one;
        const auto known = self->known_.find(i);
        if (known != self->known_.end()) {
          one.push_back(known->second);
        } else {
          mill::shard object = self->shards_[i];
          std::string name = self->name_of(object);
          mill::shard_index made = co_await mill::index_shard(store, std::move(object), std::move(name), self->format_,
                                                              mill::index_shard_options(), self->metadata_);
          one.push_back(std::move(made));
        }
        set = std::make_shared<const mill::index_set>(std::move(one));
        in_set = 0;
      }
      const mill::shard_index& index = (*set)[in_set];
      const std::uint64_t first = i == from.shard ? from.ordinal : 0;
      mill::dataset_options where_it_is;
      where_it_is.format = self->format_;
      where_it_is.prefix = self->prefix();
      const std::uint64_t offset = before;
      const bool groups = index.has_groups();
      auto read = [store, set, where_it_is, offset, groups](part p) {
        mill::dataset_options one = where_it_is;
        if (groups) one.slice = p.second - p.first;  // each group is unpacked once
        return part_of(mill::dataset(store, set, one), offset + p.first, offset + p.second);
      };
      const row_files to_files = self->name_ == "parquet" ? row_files_of(index, self->columns_) : row_files();
      std::vector<part> parts = parts_of(index, first, memory / 4);
      mill::stream<std::vector<mill::sample>> all =
          mill::from_range(std::move(parts)) | mill::map_concurrent(read, {.limit = 2});
      std::uint64_t ordinal = first;
      while (std::optional<std::vector<mill::sample>> some = co_await all.next()) {
        for (mill::sample& s : *some) {
          if (to_files) to_files(s);
          placed_sample out(i, ordinal++, std::move(s));
          co_yield mill::give(out);
        }
      }
      if (ordinal != index.samples()) {
        throw mill::error("not all samples came: " + std::to_string(ordinal) + " of " + std::to_string(index.samples()),
                          mill::where{self->shards_[i].shown(), std::nullopt, {}});
      }
      if (self->objects_ != nullptr) before += index.samples();
    }
  }

  tools::store store_;
  std::string place_;
  std::vector<std::string> columns_;
  read_bounds bounds_;
  std::string name_;  // of the format
  format_ptr format_;
  std::shared_ptr<const void> metadata_;  // of it
  std::vector<mill::shard> shards_;
  std::map<std::size_t, mill::shard_index> known_;
  std::shared_ptr<const mill::index_set> objects_;
  std::uint64_t bytes_ = 0;
  std::uint64_t requests_ = 0;
  std::size_t left_out_ = 0;
  std::string passed_over_;
};

}  // namespace tools
