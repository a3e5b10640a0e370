// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/records/detail/parquet_file.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Parquet files as shards of a dataset, each row a sample:
///
///     const mill::dataset train(s3, "s3://corpus/train-", {.index = "train.index",
///                                                          .format = mill::parquet({.columns = {"jpg", "label"}})});
///
/// The listed objects whose names end in ".parquet", ".parq" or ".pq", in letters of either case,
/// are read; where none does, all. A line in the log says how many are left out. A sample's key is the file's name, `#`
/// and the number of the row, among those of the row groups that parquet_options::where leaves in; `s.from.ordinal` is
/// that number.
///
/// **Fields** have the names of columns, inside structs with the path to them: `image: {bytes, path}` of Hugging Face
/// is "image.bytes" and "image.path". Text and binary data are slices of Arrow's decoded memory, which they keep alive.
/// Numbers are their bytes, little-endian: read_parquet_fields() says of which type, `array(s["box"], dtype::f32, {4})`
/// makes a tensor of it. Times and dates are the whole numbers that Arrow keeps, booleans a byte, decimals their 16 or
/// 32 bytes. A fixed-size list is all of its numbers; a list, too, which has as many as its bytes hold. For a list of
/// lists, "name.offsets" has the beginning of each inner list, in elements, and the end of the last one, as i64. Texts
/// of a list are "name", "name#1", "name#2" and on. A null is no field, nor is an empty list of texts. A null inside of
/// a list is a decode_error of that sample, and maps and lists of structs are a configuration_error, unless `columns`
/// leaves them out; so is a column that has a name which is made here ("name#1", "name.offsets", "cls"). All files have
/// the same fields, whose bytes mean the same: a number of another type, a time of another unit, a decimal of another
/// scale, and a column that is not there, are a configuration_error that names both files. Text and binary data are
/// alike, and so is a column of nulls alone to any. A time of type INT96 beyond the years 1677 to 2262, which are what
/// 64 bits of nanoseconds hold, is a decode_error of that sample.
///
/// **The index** is made of the footers: of each file the last 64 KiB are read, and more where the footer is longer;
/// over a network twice, as they have no checksum. It has the footers: a later run reads none.
///
/// **Reading:** a row group is read, decoded on the runtime's pool and held as a whole: of the chosen columns, by
/// requests of up to 16 MiB, each of the version that the index is of. Row groups are the slices of the order
/// (order_options::groups): each is read once an epoch, and once more where a track begins inside of it, and a rank has
/// as many open as it has tracks. epochs_options::bytes counts their decoded size, as the footer says; a group that is
/// beyond it is read all the same, when nothing else is planned. With dataset_options::slice, and of a subset, slices
/// are as of other formats, and a group is read for each that has a sample of it. Arrow starts no thread and reads
/// nothing here; while it decodes it may take as much as parquet_options::memory says. Memory of groups that are gone
/// is kept for the next ones, up to 256 MiB for all datasets of the process. Pages that have a CRC are compared with
/// it; most writers write none, and then damage is found only where decompressing or decoding finds it. Damaged data is
/// read once more.
///
/// Errors of data are archive_errors that name the file, the row group and the column. Encrypted files are refused.
///
/// It is the CMake component millrace::parquet, over Arrow; with the bodies compiled once millrace::compiled_parquet.
std::shared_ptr<const shard_format> parquet(parquet_options options = {});

namespace detail {
template <class Storage>
task<std::vector<parquet_field>> read_parquet_fields_of(std::shared_ptr<const Storage> from, std::string url,
                                                        parquet_options options);
}  // namespace detail

/// The fields that the rows of a file have, in their order, and the types of their numbers:
///
///     block_on(*mill::make_event_loop(), mill::read_parquet_fields(s3, "s3://corpus/train-0.parquet"));
///
/// `store` is as in fetch(). Reads the footer, twice over a network. Dropping the task ends the transfers. Errors:
/// those of the store, archive_error and configuration_error as of parquet().
template <class Store>
task<std::vector<parquet_field>> read_parquet_fields(const Store& store, std::string url,
                                                     parquet_options options = {}) {
  return detail::read_parquet_fields_of(detail::storage_of(store), std::move(url), std::move(options));
}

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

/// The rows of a group as samples.
class parquet_samples final : public sample_group {
 public:
  /// `first`: the number of the first row as a sample.
  parquet_samples(std::shared_ptr<const parquet_rows> rows, std::uint64_t first) noexcept
      : rows_(std::move(rows)), first_(first) {}
  void fill(sample& s, std::size_t number) const override { rows_->fill(number - first_, s.fields, s.from.at(s.key)); }

 private:
  const std::shared_ptr<const parquet_rows> rows_;
  const std::uint64_t first_;
};

/// A file's part of the index: of each row group with rows its number in the file and its stretches, so that requests
/// can be made without Arrow, and the footer.
class parquet_description {
 public:
  struct group {
    std::size_t number = 0;
    std::vector<parquet_stretch> stretches;
  };
  std::vector<group> groups;
  /// Descriptions of its fields; empty if the index was made before it had them: then the footer has them.
  std::optional<std::vector<shard_field>> fields;
  std::string footer;

  std::string text() const {
    std::string out;
    if (fields) {
      append_le(out, with_fields, 8);
      append_le(out, fields->size(), 8);
      for (const shard_field& f : *fields) {
        append_le(out, f.name.size(), 8);
        append_le(out, f.meaning.size(), 8);
        out += f.name + f.meaning;
      }
    }
    append_le(out, groups.size(), 8);
    for (const group& g : groups) {
      append_le(out, g.number, 8);
      append_le(out, g.stretches.size(), 8);
      for (const parquet_stretch& s : g.stretches) {
        append_le(out, s.begin, 8);
        append_le(out, s.end, 8);
      }
    }
    return out + footer;
  }
  static parquet_description read(std::string_view text, const shard_index& index) {
    parquet_description made;
    const auto number = [&] {
      if (text.size() < 8) refuse(index);
      std::uint64_t n = 0;
      for (std::size_t i = 8; i-- > 0;) n = n << 8 | static_cast<unsigned char>(text[i]);
      text.remove_prefix(8);
      return n;
    };
    const auto word = [&](std::uint64_t size) {
      if (size > text.size()) refuse(index);
      std::string made_of(text.substr(0, static_cast<std::size_t>(size)));
      text.remove_prefix(made_of.size());
      return made_of;
    };
    std::uint64_t count = number();
    if (count == with_fields) {
      made.fields.emplace();
      for (std::uint64_t i = number(); i > 0; --i) {
        const std::uint64_t name = number();
        const std::uint64_t meaning = number();
        std::string called = word(name);
        made.fields->emplace_back(std::move(called), word(meaning));
      }
      count = number();
    }
    if (count != index.groups()) refuse(index);
    for (std::size_t i = 0; i < index.groups(); ++i) {
      group g;
      g.number = static_cast<std::size_t>(number());
      for (std::uint64_t k = number(); k > 0; --k) {
        parquet_stretch s;
        s.begin = number();
        s.end = number();
        if (s.begin >= s.end || s.end > index.object_size()) refuse(index);
        g.stretches.push_back(s);
      }
      if (g.stretches.empty()) refuse(index);
      made.groups.push_back(std::move(g));
    }
    made.footer = text;
    return made;
  }

 private:
  static constexpr std::uint64_t with_fields = UINT64_MAX;
  [[noreturn]] static void refuse(const shard_index& index) {
    throw index_error("the index does not say of its row groups what it must", where{index.name(), std::nullopt, {}});
  }
};

/// Reads the samples of one file.
class parquet_shard final : public shard_reader {
 public:
  parquet_shard(const shard_index& index, parquet_options options)
      : name_(index.name()),
        size_(index.object_size()),
        options_(std::move(options)),
        what_(parquet_description::read(index.description(), index)) {}

  std::vector<object_range> ranges(const shard_index& /*index*/, std::size_t g) const override {
    constexpr std::uint64_t part = 16 * MiB;
    std::vector<object_range> all;
    for (const parquet_stretch& s : what_.groups[g].stretches) {
      const std::uint64_t parts = (s.end - s.begin + part - 1) / part;
      for (std::uint64_t i = 0; i < parts; ++i) {
        const std::uint64_t each = (s.end - s.begin + parts - 1) / parts;
        all.emplace_back(s.begin + i * each, std::min(s.begin + (i + 1) * each, s.end));
      }
    }
    return all;
  }
  unpacked_group unpack(const shard&, std::size_t g, const std::vector<bytes>& parts) const override {
    std::vector<parquet_piece> pieces;
    for (const bytes& p : parts) pieces.push_back({0, p});
    std::size_t i = 0;
    for (const parquet_stretch& s : what_.groups[g].stretches) {
      for (std::uint64_t at = s.begin; at < s.end && i < pieces.size(); ++i) {
        pieces[i].begin = at;
        at += pieces[i].data.size();
      }
    }
    const parquet_file& all = file();
    std::uint64_t first = 0;
    for (std::size_t before = 0; before < g; ++before) first += all.group(what_.groups[before].number).rows;
    return unpacked_group(
        std::make_shared<const parquet_samples>(all.decode(what_.groups[g].number, std::move(pieces)), first));
  }
  std::vector<shard_field> fields() const { return what_.fields ? *what_.fields : fields_of(file()); }
  static std::vector<shard_field> fields_of(const parquet_file& file) {
    std::vector<shard_field> all;
    for (const parquet_field& f : file.fields()) all.emplace_back(f.name, f.meaning);
    return all;
  }

 private:
  /// Its footer is parsed once, by the first thread that needs it.
  const parquet_file& file() const {
    const std::lock_guard lock(mutex_);
    if (file_ == nullptr) file_ = std::make_unique<const parquet_file>(what_.footer, size_, name_, options_);
    return *file_;
  }

  const std::string name_;
  const std::uint64_t size_;
  const parquet_options options_;
  const parquet_description what_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<const parquet_file> file_;
};

/// The end of an object.
class parquet_end {
 public:
  bytes footer;
  std::uint64_t size = 0;
  shard object;  // with the store's facts about it
};

/// The footer, with the length and the magic after it. `Storage` is storage: a template, so that it is not emitted
/// where it is not used.
template <class Storage>
task<parquet_end> read_parquet_end(std::shared_ptr<const Storage> from, shard object, bool again) {
  parquet_end made;
  if (!object.size) {  // the first answer says it
    indexed_object beginning(from, object, 64 * KiB, again);
    const bytes head = co_await beginning.read(0, 4);
    object = beginning.object();
    object.size = beginning.total();
    if (beginning.sequential() || !object.size) {
      throw configuration_error("the store serves no ranges of the object: Parquet cannot be read",
                                where{object.shown(), std::nullopt, {}});
    }
  }
  const std::uint64_t size = *object.size;
  const std::string shown = object.shown();
  std::size_t length = static_cast<std::size_t>(std::min<std::uint64_t>(size, parquet_file::tail_bytes));
  for (;;) {
    indexed_object end(from, object, std::max<std::size_t>(length, 64 * KiB), again);
    bytes tail;
    if (length != 0) tail = co_await end.read(size - length, length);
    if (end.sequential()) {
      throw configuration_error("the store serves no ranges of the object: Parquet cannot be read",
                                where{shown, size - length, {}});
    }
    object = end.object();
    const auto footer = static_cast<std::size_t>(parquet_file::footer_bytes(tail.view(), size, shown));
    if (footer <= length) {
      made.footer = tail.slice(length - footer, footer);
      break;
    }
    length = footer;
  }
  made.size = size;
  made.object = std::move(object);
  co_return std::move(made);
}

/// Reads the end twice, and compares.
template <class Storage>
task<parquet_end> read_parquet_end_twice(std::shared_ptr<const Storage> from, shard object) {
  const bool once = !from->over_network(object.url);
  std::vector<parquet_end> before;
  for (;;) {
    parquet_end now = co_await read_parquet_end<Storage>(from, object, !before.empty());
    if (once) co_return std::move(now);
    for (const parquet_end& other : before) {
      if (now.footer.view() == other.footer.view()) co_return std::move(now);
    }
    if (before.size() == 2) {
      throw archive_error("its footer was read three times, and no two are the same: data are damaged on their way",
                          where{now.object.shown(), now.size - now.footer.size(), {}});
    }
    object = now.object;
    before.push_back(std::move(now));
  }
}

template <class Storage>
task<std::vector<parquet_field>> read_parquet_fields_of(std::shared_ptr<const Storage> from, std::string url,
                                                        parquet_options options) {
  shard object(std::move(url));
  const parquet_end end = co_await read_parquet_end_twice<Storage>(std::move(from), std::move(object));
  co_return parquet_file(end.footer.view(), end.size, end.object.shown(), options).fields();
}

/// A class template, as index() is virtual, and a coroutine: see MILLRACE_COROUTINE.
template <class Unused = void>
class basic_parquet_format final : public shard_format {
 public:
  explicit basic_parquet_format(parquet_options options) : options_(std::move(options)) {}

  std::string_view name() const noexcept override { return "parquet"; }
  std::string settings() const override {
    std::string text;
    for (const std::string& c : options_.columns) text += (text.empty() ? "columns " : ", ") + c;
    if (!options_.label.empty()) text += (text.empty() ? "label " : "; label ") + options_.label;
    for (const parquet_condition& c : options_.where) {
      text += (text.empty() ? "where " : "; where ") + c.column + ' ' + c.test + ' ' + shown(c);
    }
    return text;
  }
  std::vector<shard> choose(std::vector<shard> listed) const override {
    const auto is_parquet = [](const shard& s) {
      const std::string name = s.shown();
      const std::string ending = text::to_lower(std::string_view(name).substr(name.rfind('.') + 1));
      return ending.size() < name.size() && (ending == "parquet" || ending == "parq" || ending == "pq");
    };
    if (std::any_of(listed.begin(), listed.end(), is_parquet)) std::erase_if(listed, std::not_fn(is_parquet));
    return listed;
  }
  task<shard_index> index(std::shared_ptr<const storage> from, shard object, std::string name,
                          std::shared_ptr<const void> /*metadata*/) const override {
    const coroutine_context here = co_await this_context();
    parquet_end end = co_await read_parquet_end_twice<storage>(std::move(from), std::move(object));
    const cpu_pool::share pool = cpu_pool::share::of(here.runtime());
    auto job = [this, its = std::move(end), called = std::move(name)] { return index_of(its, called); };
    shard_index made = co_await pool.run(std::move(job));
    co_return std::move(made);
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    return std::make_shared<const parquet_shard>(index, options_);
  }
  std::vector<shard_field> fields(const shard_index& index) const override {
    return parquet_shard(index, options_).fields();
  }

 private:
  /// A group's bytes in the index's text are its decoded size, in equal parts.
  shard_index index_of(const parquet_end& end, const std::string& name) const {
    const parquet_file file(end.footer.view(), end.size, end.object.shown(), options_);
    sample_index_builder made(*this, name);
    parquet_description what;
    what.footer = end.footer.view();
    what.fields = parquet_shard::fields_of(file);
    std::uint64_t text = 0;
    std::uint64_t place = 0;
    for (std::size_t g = 0; g < file.groups(); ++g) {
      const parquet_group& group = file.group(g);
      if (group.rows == 0 || group.left_out) continue;
      what.groups.push_back({g, group.stretches});
      place = std::max(place + 1, group.stretches.front().begin);
      made.begin_group(place);
      const std::uint64_t decoded = std::max(group.decoded, group.rows);
      for (std::uint64_t i = 0; i < group.rows; ++i) {
        const auto at = [&](std::uint64_t row) {
          __extension__ using wide = unsigned __int128;
          return static_cast<std::uint64_t>(static_cast<wide>(decoded) * row / group.rows);
        };
        made.add(text + at(i), at(i + 1) - at(i));
      }
      text += decoded;
    }
    made.describe(what.text());
    return made.finish(end.size, end.object.etag, false, end.size);
  }

  static std::string shown(const parquet_condition& c) {
    if (const std::string* const text = std::get_if<std::string>(&c.value)) return '"' + *text + '"';
    if (const std::int64_t* const whole = std::get_if<std::int64_t>(&c.value)) return std::to_string(*whole);
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", std::get<double>(c.value));
    return text;
  }

  const parquet_options options_;
};

}  // namespace detail

inline std::shared_ptr<const shard_format> parquet(parquet_options options) {
  for (const parquet_condition& c : options.where) {
    if (c.test != "<" && c.test != "<=" && c.test != "==" && c.test != ">=" && c.test != ">") {
      throw configuration_error("parquet: .where of column \"" + c.column + "\" has the test \"" + c.test +
                                "\": it may be <, <=, ==, >= or >");
    }
  }
  return std::make_shared<const detail::basic_parquet_format<>>(std::move(options));
}

}  // namespace millrace
