// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/formats/array_shards.hpp>
#include <millrace/formats/detail/record_scanner.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// The CRC32C of samples that follow each other in an object, gaps between them allowed.
class sample_sums {
 public:
  sample_sums(const shard_format& format, std::string name) : builder(format, std::move(name)) {}
  /// The next sample; after add() has passed the one before.
  void begin(std::uint64_t first, std::uint64_t last) {
    begin_ = first;
    end_ = last;
    crc_ = 0;
    open_ = true;
    close_if_done();
  }
  bool open() const noexcept { return open_; }
  std::uint64_t at() const noexcept { return at_; }
  /// Takes bytes from the front of `piece`, to the end of the sample at most.
  void add(std::string_view& piece) {
    std::size_t taken = piece.size();
    if (open_ && at_ < begin_) {
      taken = static_cast<std::size_t>(std::min<std::uint64_t>(taken, begin_ - at_));
    } else if (open_) {
      taken = static_cast<std::size_t>(std::min<std::uint64_t>(taken, end_ - at_));
      crc_ = crc32c(crc_, piece.data(), taken);
    }
    at_ += taken;
    piece.remove_prefix(taken);
    close_if_done();
  }

  sample_index_builder builder;

 private:
  void close_if_done() {
    if (!open_ || at_ < end_) return;
    builder.add(begin_, end_ - begin_, crc_);
    open_ = false;
  }
  std::uint64_t at_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint32_t crc_ = 0;
  bool open_ = false;
};

/// The one field of a format that describes a shard by the type of its elements. Nothing where it does not.
MILLRACE_INLINE std::vector<shard_field> field_described(const shard_index& index, const char* name) {
  const std::string type = index.description();
  if (type.empty()) return {};
  return {shard_field(name, type)};
}

MILLRACE_INLINE bool ends_in(std::string_view url, std::string_view ending) noexcept {
  return url.size() > ending.size() && url.substr(url.size() - ending.size()) == ending;
}

class npy_scanner final : public shard_scanner {
 public:
  npy_scanner(const shard_format& format, std::string name, const shard& object, const npy_shards_options& options)
      : sums_(format, std::move(name)), object_(object), options_(options) {}
  void add(const bytes& its) override {
    std::string_view piece = its.view();
    if (!known_) {
      const std::size_t missing = std::min(12 + largest_npy_header - head_.size(), piece.size());
      head_ += piece.substr(0, missing);
      if (head_.size() < 12 + largest_npy_header) return;
      begin_rows();
      piece.remove_prefix(missing);
    }
    rows(piece);
  }
  shard_index finish(std::uint64_t size, std::string etag) override {
    if (!known_) begin_rows();
    if (sums_.at() != end_ || sums_.builder.samples() != rows_) {
      fail("the file has " + std::to_string(size) + " bytes, and by its header " + std::to_string(end_), size);
    }
    return sums_.builder.finish(size, std::move(etag), true);
  }

 private:
  [[noreturn]] void fail(const std::string& reason, std::uint64_t at) const {
    throw decode_error(reason, where{object_.shown(), at, {}});
  }
  /// The head is there.
  void begin_rows() {
    npy_layout layout;
    try {
      layout = npy_layout_of(head_);
    } catch (error& e) {
      e.add_place(where{object_.shown(), 0, {}});
      throw;
    }
    if (layout.dims.rank() == 0) fail("the .npy has no rows: it is a scalar", 0);
    rows_ = static_cast<std::uint64_t>(layout.dims[0]);
    shape row;
    for (std::size_t i = 1; i < layout.dims.rank(); ++i) row.push_back(layout.dims[i]);
    if (options_.type && *options_.type != layout.type) {
      fail(std::string("the elements are ") + name_of(layout.type) + ", and .type is " + name_of(*options_.type), 0);
    }
    if (options_.row && options_.row->text() != row.text()) {
      fail("the rows are " + row.text() + ", and .row is " + options_.row->text(), 0);
    }
    sums_.builder.describe(name_of(layout.type));
    row_ = size_of(layout.type);
    for (const std::int64_t extent : row) {
      if (__builtin_mul_overflow(row_, static_cast<std::uint64_t>(extent), &row_)) row_ = UINT64_MAX;
    }
    std::uint64_t all = 0;
    const bool over = row_ == UINT64_MAX || __builtin_mul_overflow(row_, rows_, &all) ||
                      __builtin_add_overflow(all, layout.data, &end_);
    if (over || row_ > UINT32_MAX) {
      fail("the header says that there are " + std::to_string(rows_) + " rows of " + row.text() +
               ": a row of 4 GiB or more is no sample",
           0);
    }
    if (object_.size && *object_.size != end_) {
      fail("the file has " + std::to_string(*object_.size) + " bytes, and by its header " + std::to_string(end_), 0);
    }
    if (row_ == 0 && rows_ > 0) fail("the rows have no elements", 0);
    known_ = true;
    next_ = layout.data;
    const std::string head = std::move(head_);
    rows(head);
  }
  void rows(std::string_view piece) {
    while (!piece.empty()) {
      if (!sums_.open() && next_ < end_) {
        sums_.begin(next_, next_ + row_);
        next_ += row_;
      }
      if (sums_.at() == end_) fail("the file is longer than its header says: " + std::to_string(end_) + " bytes", end_);
      sums_.add(piece);
    }
  }

  sample_sums sums_;
  const shard object_;
  const npy_shards_options options_;
  std::string head_;
  bool known_ = false;
  std::uint64_t rows_ = 0;
  std::uint64_t row_ = 0;   // bytes
  std::uint64_t next_ = 0;  // row's place
  std::uint64_t end_ = 0;   // of the last one
};

class npy_format final : public shard_format {
 public:
  explicit npy_format(const npy_shards_options& options) : options_(options) {}
  std::string_view name() const noexcept override { return "npy"; }
  std::string settings() const override {
    std::string all = options_.type ? name_of(*options_.type) : "";
    if (options_.row) all += (all.empty() ? "" : " ") + options_.row->text();
    return all;
  }
  std::vector<shard> choose(std::vector<shard> listed) const override {
    std::erase_if(listed, [](const shard& s) { return !ends_in(s.url, ".npy"); });
    return listed;
  }
  std::unique_ptr<shard_scanner> scanner(std::string its_name, const shard& object,
                                         std::shared_ptr<const void>) const override {
    return std::make_unique<npy_scanner>(*this, std::move(its_name), object, options_);
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    return std::make_shared<const record_reader>(index, "array");
  }
  std::vector<shard_field> fields(const shard_index& index) const override { return field_described(index, "array"); }

 private:
  const npy_shards_options options_;
};

/// The `.idx` files, by the URLs of the `.bin` files.
class megatron_metadata {
 public:
  megatron_metadata() = default;
  std::map<std::string, std::string> by_url;
};

class megatron_scanner final : public shard_scanner {
 public:
  /// `idx`: the text of the `.idx`, kept alive by `owner`.
  megatron_scanner(const shard_format& format, std::string name, const shard& object, const megatron_options& options,
                   std::string_view idx, std::shared_ptr<const void> owner)
      : sums_(format, std::move(name)),
        object_(object),
        idx_url_(object.url.substr(0, object.url.size() - 4) + ".idx"),
        sequences_alone_(options.sequences),
        idx_(idx),
        owner_(std::move(owner)) {
    constexpr std::string_view magic("MMIDIDX\0\0", 9);
    if (idx_.substr(0, 9) != magic) refuse("this is no index of Megatron-LM: it does not begin with MMIDIDX", 0);
    if (idx_.size() < head) fail("the file is cut: its head has 34 bytes", idx_.size());
    const std::uint64_t version = read_le(idx_, 9, 8);
    if (version != 1) refuse("the file is of version " + std::to_string(version) + " and not 1", 9);
    const std::uint64_t code = read_le(idx_, 17, 1);
    constexpr dtype types[] = {dtype::u8, dtype::i8, dtype::i16, dtype::i32, dtype::i64};
    if (code == 6 || code == 7) refuse("the tokens are floating-point numbers", 17);
    if (code == 0 || code > 8) refuse("the tokens are of type " + std::to_string(code) + ": there is no such type", 17);
    const dtype type = code == 8 ? dtype::u16 : types[code - 1];
    if (options.type && *options.type != type) {
      refuse(std::string("the tokens are ") + name_of(type) + ", and .type is " + name_of(*options.type), 17);
    }
    element_ = size_of(type);
    sequences_ = read_le(idx_, 18, 8);
    documents_ = read_le(idx_, 26, 8);
    // After the documents there may be a mode, a byte, of each sequence.
    const std::uint64_t left = idx_.size() - head;
    const bool fits = sequences_ <= left / 12 && documents_ <= (left - 12 * sequences_) / 8;
    const std::uint64_t rest = fits ? left - 12 * sequences_ - 8 * documents_ : 0;
    if (!fits || (rest != 0 && rest != sequences_)) {
      fail("the file has " + std::to_string(idx_.size()) + " bytes, and its head says " + std::to_string(sequences_) +
               " sequences and " + std::to_string(documents_) + " documents",
           18);
    }
    if (documents_ == 0 || document(0) != 0 || document(documents_ - 1) != sequences_) {
      fail("the documents do not begin with the first sequence and end with the last one", place_of_document(0));
    }
    sums_.builder.describe(name_of(type));
  }
  void add(const bytes& its) override {
    std::string_view piece = its.view();
    while (!piece.empty()) {
      begin_samples();
      sums_.add(piece);
    }
  }
  shard_index finish(std::uint64_t size, std::string etag) override {
    size_ = size;
    begin_samples();
    if (sums_.open()) fail("a sample ends beyond the .bin, which has " + std::to_string(size) + " bytes", 18);
    return sums_.builder.finish(size, std::move(etag), true);
  }

 private:
  static constexpr std::size_t head = 34;

  [[noreturn]] void fail(const std::string& reason, std::uint64_t at) const {
    throw archive_error(reason, where{shard(idx_url_).shown(), at, {}});
  }
  [[noreturn]] void refuse(const std::string& reason, std::uint64_t at) const {
    throw decode_error(reason, where{shard(idx_url_).shown(), at, {}});
  }
  std::size_t place_of_pointer(std::uint64_t i) const noexcept {
    return head + static_cast<std::size_t>(4 * sequences_ + 8 * i);
  }
  std::size_t place_of_document(std::uint64_t d) const noexcept {
    return head + static_cast<std::size_t>(12 * sequences_ + 8 * d);
  }
  std::uint64_t document(std::uint64_t d) const noexcept { return read_le(idx_, place_of_document(d), 8); }
  /// Begins samples until one is open; those without tokens are done at once.
  void begin_samples() {
    while (!sums_.open() && next_ < (sequences_alone_ ? sequences_ : documents_ - 1)) {
      std::uint64_t first = next_;
      std::uint64_t last = next_ + 1;
      if (!sequences_alone_) {
        first = document(next_);
        last = document(next_ + 1);
        if (last < first || last > sequences_) {
          fail("document " + std::to_string(next_) + " ends before it begins, or beyond the sequences",
               place_of_document(next_ + 1));
        }
      }
      ++next_;
      std::uint64_t begin = passed_;
      std::uint64_t end = passed_;
      for (std::uint64_t i = first; i < last; ++i) {
        const std::uint64_t length = read_le(idx_, head + static_cast<std::size_t>(4 * i), 4);
        const std::uint64_t pointer = read_le(idx_, place_of_pointer(i), 8);
        if (length > INT32_MAX) {
          fail("sequence " + std::to_string(i) + " has a negative length", head + 4 * i);
        }
        if (pointer < passed_ || (i != first && pointer != end)) {
          fail("sequence " + std::to_string(i) + " is at byte " + std::to_string(pointer) +
                   ", and the one before it ends at byte " + std::to_string(passed_),
               place_of_pointer(i));
        }
        if (i == first) begin = pointer;
        const std::uint64_t whole = size_ != 0 ? size_ : object_.size.value_or(UINT64_MAX);
        if (pointer > whole || length * element_ > whole - pointer) {
          fail("sequence " + std::to_string(i) + " of " + std::to_string(length) + " tokens at byte " +
                   std::to_string(pointer) + " ends beyond the .bin, which has " + std::to_string(whole) + " bytes",
               place_of_pointer(i));
        }
        end = passed_ = pointer + length * element_;
      }
      sums_.begin(begin, end);
    }
  }

  sample_sums sums_;
  const shard object_;
  const std::string idx_url_;
  const bool sequences_alone_;
  const std::string_view idx_;
  const std::shared_ptr<const void> owner_;
  std::uint64_t element_ = 1;
  std::uint64_t sequences_ = 0;
  std::uint64_t documents_ = 0;
  std::uint64_t next_ = 0;    // document or sequence
  std::uint64_t passed_ = 0;  // where the last sequence ends
  std::uint64_t size_ = 0;
};

template <class Metadata = megatron_metadata>
task<std::shared_ptr<const void>> read_megatron_metadata(std::shared_ptr<const storage> from,
                                                         std::vector<shard> listed) {
  const auto made = std::make_shared<Metadata>();
  for (const shard& at : listed) {
    if (!ends_in(at.url, ".idx")) continue;
    std::string text = co_await text_read_twice(from, at);
    made->by_url[at.url.substr(0, at.url.size() - 4) + ".bin"] = std::move(text);
  }
  co_return std::shared_ptr<const void>(made);
}

template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_megatron_format final : public shard_format {
 public:
  explicit basic_megatron_format(const megatron_options& options) : options_(options) {}
  std::string_view name() const noexcept override { return "megatron"; }
  std::string settings() const override {
    std::string all = options_.sequences ? "sequences" : "documents";
    if (options_.type) all += std::string(" ") + name_of(*options_.type);
    return all;
  }
  std::vector<shard> choose(std::vector<shard> listed) const override {
    std::set<std::string> indexes;
    for (const shard& s : listed) {
      if (ends_in(s.url, ".idx")) indexes.insert(s.url);
    }
    std::erase_if(listed, [](const shard& s) { return !ends_in(s.url, ".bin"); });
    for (const shard& s : listed) {
      const std::string idx = s.url.substr(0, s.url.size() - 4) + ".idx";
      if (indexes.count(idx) != 0) continue;
      throw configuration_error("megatron: there is no " + shard(idx).shown() + " beside it",
                                where{s.shown(), std::nullopt, {}});
    }
    return listed;
  }
  task<std::shared_ptr<const void>> metadata(std::shared_ptr<const storage> from,
                                             std::vector<shard> listed) const override {
    return read_megatron_metadata<>(std::move(from), std::move(listed));
  }
  std::unique_ptr<shard_scanner> scanner(std::string its_name, const shard& object,
                                         std::shared_ptr<const void> metadata) const override {
    const auto* const all = static_cast<const megatron_metadata*>(metadata.get());
    const auto at = all->by_url.find(object.url);
    if (at == all->by_url.end()) misused("megatron: a .bin without an .idx");
    const std::string_view idx = at->second;
    return std::make_unique<megatron_scanner>(*this, std::move(its_name), object, options_, idx, std::move(metadata));
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    return std::make_shared<const record_reader>(index, "tokens");
  }
  std::vector<shard_field> fields(const shard_index& index) const override { return field_described(index, "tokens"); }
  bool knows(const shard& left_out) const override { return ends_in(left_out.url, ".idx"); }

 private:
  const megatron_options options_;
};

}  // namespace detail

MILLRACE_INLINE std::shared_ptr<const shard_format> npy_shards(npy_shards_options options) {
  return std::make_shared<const detail::npy_format>(options);
}

MILLRACE_COROUTINE_BODY std::shared_ptr<const shard_format> megatron(megatron_options options) {
  return std::make_shared<const detail::basic_megatron_format<>>(options);
}

}  // namespace millrace
