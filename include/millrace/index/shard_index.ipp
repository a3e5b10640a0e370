// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The source of the rows of indexes: a file, or a text. It keeps some of the blocks of rows that were read last, for
/// callers that ask for one sample after the other.
class detail::index_bytes {
 public:
  /// io_error where the file cannot be opened.
  explicit index_bytes(const std::string& file) : name_(file), descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status {};
    if (descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0 && !S_ISDIR(status.st_mode)) {
      size_ = static_cast<std::uint64_t>(status.st_size);
      return;
    }
    const int why = descriptor_ >= 0 && S_ISDIR(status.st_mode) ? EISDIR : errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    throw cannot_read(why);
  }
  /// `owner` keeps the text, if it is not null.
  index_bytes(std::string_view text, const std::string& file, std::shared_ptr<const void> owner)
      : name_(file), owner_(std::move(owner)), text_(text), size_(text.size()) {}
  /// An object of a store, of which view() has the first bytes, `head`, as long as these live.
  index_bytes(std::shared_ptr<const storage> store, shard object, std::string_view head, const std::string& file)
      : name_(file), text_(head), size_(object.size.value()), store_(std::move(store)), object_(std::move(object)) {}
  index_bytes(const index_bytes&) = delete;
  index_bytes& operator=(const index_bytes&) = delete;
  ~index_bytes() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  const std::string& name() const noexcept { return name_; }
  std::uint64_t size() const noexcept { return size_; }
  bool is_file() const noexcept { return descriptor_ >= 0; }
  /// Null: it is no object of a store.
  const std::shared_ptr<const storage>& store() const noexcept { return store_; }
  const shard& object() const noexcept { return object_; }

  /// Appends bytes [at, at + n), which must lie in size(), to `out`.
  void read(std::uint64_t at, std::uint64_t n, std::string& out) const {
    if (store_ != nullptr) misused("the rows of an index in a store are those of shard_index::read_rows()");
    if (!is_file()) {
      out += text_.substr(static_cast<std::size_t>(at), static_cast<std::size_t>(n));
      return;
    }
    std::size_t done = out.size();
    out.resize(done + static_cast<std::size_t>(n));
    for (std::uint64_t end = at + n; at < end;) {
      const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw cannot_read(errno);
      if (got == 0) {
        throw index_error("the index was cut while it was in use: it had " + std::to_string(size_) + " bytes",
                          where{name_, at, {}});
      }
      at += static_cast<std::uint64_t>(got);
      done += static_cast<std::size_t>(got);
    }
  }
  /// These bytes; those of a file are in `buffer`.
  std::string_view view(std::uint64_t at, std::uint64_t n, std::string& buffer) const {
    if (store_ != nullptr && (at > text_.size() || n > text_.size() - at)) {
      throw index_error("the index is read by its head, and has more than one: write it anew as one",
                        where{name_, at, {}});
    }
    if (!is_file()) return text_.substr(static_cast<std::size_t>(at), static_cast<std::size_t>(n));
    buffer.clear();
    read(at, n, buffer);
    return buffer;
  }
  void will_need(std::uint64_t at, std::uint64_t n) const noexcept {
    if (is_file()) ::posix_fadvise(descriptor_, static_cast<off_t>(at), static_cast<off_t>(n), POSIX_FADV_WILLNEED);
  }

  /// The block whose rows begin at this byte, if it is one of the last; null otherwise.
  std::shared_ptr<const void> recent(std::uint64_t at) const {
    const std::lock_guard lock(mutex_);
    const kept& k = kept_[slot_of(at)];
    return k.at == at ? k.block : nullptr;
  }
  void keep(std::uint64_t at, std::shared_ptr<const void> block) const {
    const std::lock_guard lock(mutex_);
    kept& k = kept_[slot_of(at)];
    k.at = at;
    k.block.swap(block);
  }

 private:
  struct kept {
    std::uint64_t at = UINT64_MAX;
    std::shared_ptr<const void> block;
  };
  static constexpr std::size_t slots = 64;
  static std::size_t slot_of(std::uint64_t at) noexcept { return static_cast<std::size_t>(mix64(at) % slots); }
  io_error cannot_read(int why) const {
    return io_error::of(why, "the index cannot be read", where{name_, std::nullopt, {}});
  }

  const std::string name_;
  const int descriptor_ = -1;
  const std::shared_ptr<const void> owner_;
  const std::string_view text_;
  std::uint64_t size_ = 0;
  const std::shared_ptr<const storage> store_;
  const shard object_;
  mutable std::mutex mutex_;
  mutable kept kept_[slots];
};

MILLRACE_INLINE std::uint64_t shard_index::end(std::size_t sample) const {
  if (is_arrays()) return (sample + 1) * array_row_bytes();
  if (!of_objects()) return rows_of(sample).end(sample);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < field_count(sample); ++i) bytes += object_row_at(sample, i).size;
  return bytes;
}

MILLRACE_INLINE shard_index::field shard_index::field_at(std::size_t sample, std::size_t i) const {
  field out;
  if (is_arrays()) {
    out.extension = extensions_[i];
    out.offset = rows_.fields[i].offset + sample * array_row_bytes();
    out.size = rows_.fields[i].size;
    return out;
  }
  if (!of_objects()) return rows_of(sample).field_at(sample, i);
  const object_row& row = object_row_at(sample, i);
  out.extension = extensions_[row.extension];
  out.size = row.size;
  return out;
}

MILLRACE_INLINE shard_index::object shard_index::object_at(std::size_t sample, std::size_t i) const {
  constexpr char digits[] = "0123456789abcdef";
  std::size_t at = object_row_at(sample, i).path;
  object out;
  const auto length = static_cast<std::size_t>(detail::read_le(paths_, at, 2));
  out.path = std::string_view(paths_).substr(at + 2, length);
  at += 2 + length;
  const auto etag = static_cast<std::size_t>(detail::read_le(paths_, at, 1));
  if (etag != packed_etag) {
    out.etag = paths_.substr(at + 1, etag);
    return out;
  }
  out.etag = '"';
  for (const char c : std::string_view(paths_).substr(at + 1, 16)) {
    out.etag += digits[static_cast<unsigned char>(c) >> 4];
    out.etag += digits[static_cast<unsigned char>(c) & 15];
  }
  out.etag += '"';
  return out;
}

MILLRACE_INLINE detail::frame_range shard_index::frames_of(std::uint64_t begin, std::uint64_t end) const noexcept {
  const auto frames = frames_.size() / 2;
  const auto behind = [&](std::uint64_t text) {  // the first frame that begins after it
    std::size_t low = 1;
    for (std::size_t high = frames - 1; low < high;) {
      const std::size_t middle = (low + high) / 2;
      if (frames_[2 * middle + 1] > text) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  };
  const std::size_t first = behind(begin) - 1;
  return {frames_[2 * first], frames_[2 * behind(end - 1)], frames_[2 * first + 1]};
}

MILLRACE_INLINE std::size_t shard_index::group_of(std::uint64_t offset) const noexcept {
  std::size_t low = 0;
  for (std::size_t high = groups(); high - low > 1;) {
    const std::size_t middle = (low + high) / 2;
    (frames_[2 * middle + 1] > offset ? high : low) = middle;
  }
  return low;
}

MILLRACE_INLINE std::string shard_index::key(std::size_t sample) const {
  if (has_fields()) return {};
  if (has_records()) return name_ + '#' + std::to_string(sample);
  if (is_arrays()) return std::to_string(sample);
  const std::string_view path = object_at(sample, 0).path;
  // The object's name is its key, a dot or a slash, and what its field is called.
  const std::size_t its = extensions_[object_row_at(sample, 0).extension].size();
  const std::string_view own = path.substr(0, path.size() > its ? path.size() - its - 1 : 0);
  if (name_.empty()) return std::string(own);
  return name_ + '/' + std::string(own);
}

MILLRACE_INLINE void shard_index::check(const shard& listed) const {
  const bool other_size = listed.size && *listed.size != object_size_;
  const bool other_etag = !listed.etag.empty() && !etag_.empty() && !millrace::detail::same_etag(listed.etag, etag_);
  if (!other_size && !other_etag) return;
  std::string reason = "the index \"" + name_ + "\" is of another version of this shard:";
  if (other_size) {
    reason += " it had " + std::to_string(object_size_) + " bytes and has " + std::to_string(*listed.size);
  }
  if (other_etag)
    reason += std::string(other_size ? ", its" : " its") + " ETag was " + etag_ + " and is " + listed.etag;
  throw stale_index_error(std::move(reason), where{listed.shown(), std::nullopt, {}});
}

MILLRACE_INLINE std::uint64_t shard_index::sample_bytes() const noexcept {
  if (paged_ != nullptr) return paged_->sample_bytes;
  if (is_arrays()) return object_size_;
  std::uint64_t bytes = 0;
  for (const object_row& o : objects_) bytes += o.size;
  if (of_objects() || samples() == 0) return bytes;
  const rows all = rows_of(0);
  for (std::size_t i = 0; i < samples(); ++i) bytes += all.end(i) - all.offset(i);
  return bytes;
}

MILLRACE_INLINE bool shard_index::is_like(const shard_index& other) const {
  if (is_arrays() || other.is_arrays()) return arrays_ == other.arrays_;
  if (paged_ != nullptr || other.paged_ != nullptr) return text() == other.text();
  return name_ == other.name_ && etag_ == other.etag_ && object_size_ == other.object_size_ && flags_ == other.flags_ &&
         extensions_ == other.extensions_ && frames_ == other.frames_ && format_ == other.format_ &&
         settings_ == other.settings_ && description_ == other.description_ &&
         rows_ == other.rows_ && firsts_ == other.firsts_ && objects_ == other.objects_ && paths_ == other.paths_;
}

MILLRACE_INLINE hash128 shard_index::digest() const noexcept {
  if (paged_ != nullptr) return paged_->digest;
  hasher128 h;
  h.add(name_);
  h.add(etag_);
  h.add(object_size_);
  h.add(file_flags());
  h.add(rows_.samples.size());
  each_extension([&](std::string_view e) { h.add(e); });
  for (const sample_row& s : rows_.samples) {
    h.add(s.key);
    h.add(s.offset);
    h.add(s.first_field);
  }
  for (const field_row& f : rows_.fields) {
    h.add(f.offset);
    h.add(f.size);
    h.add(std::uint64_t{f.crc} << 32 | f.extension);
  }
  if (has_fields()) return h.value();
  h.add(std::uint64_t{number()});
  for (const std::uint64_t place : frames_) h.add(place);
  for (const record_row& l : rows_.records) {
    h.add(l.offset);
    h.add(std::uint64_t{l.crc} << 32 | l.size);
  }
  for (const std::uint32_t first : firsts_) h.add(std::uint64_t{first});
  for (const object_row& o : objects_) {
    h.add(o.size);
    h.add(std::uint64_t{o.extension});
  }
  h.add(paths_);
  return h.value();
}

MILLRACE_INLINE void shard_index::write(std::string& out) const {
  if (is_arrays()) detail::misused("the index of arrays was written: it belongs to their memory");
  const std::size_t start = out.size();
  const std::size_t front = rows_begin();
  const std::uint64_t length = file_bytes();
  if (paged_ != nullptr) {
    paged_->from->read(paged_->at, length, out);
    const std::string_view text = std::string_view(out).substr(start);
    if (detail::read_le(text, text.size() - 4, 4) == crc32c(0, text.data(), text.size() - 4)) return;
    throw index_error("the index of \"" + name_ + "\" has a wrong checksum",
                      where{paged_->from->name(), paged_->at + length - 4, {}});
  }
  out.reserve(start + static_cast<std::size_t>(length));
  out += magic;
  const bool named = number() == has_name;
  detail::append_le(out, number() == 0 ? 1 : named ? 4 : is_packed() ? 3 : 2, 4);
  detail::append_le(out, file_flags() | number() << 8, 4);
  detail::append_le(out, length, 8);
  detail::append_le(out, object_size_, 8);
  detail::append_le(out, samples(), 8);
  detail::append_le(out, fields(), 8);
  detail::append_le(out, name_.size(), 4);
  detail::append_le(out, etag_.size(), 4);
  std::uint64_t texts = 0;
  each_extension([&](std::string_view) { ++texts; });
  detail::append_le(out, is_packed() && !named ? groups() : texts, 4);
  detail::append_le(out, extension_bytes(), 4);
  out += name_;
  out += etag_;
  each_extension([&](std::string_view e) {
    detail::append_le(out, e.size(), 2);
    out += e;
  });
  for (const std::uint64_t place : frames_) detail::append_le(out, place, 8);
  out.resize(start + front, '\0');
  const std::vector<sample_row>& samples = rows_.samples;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    detail::append_le(out, samples[i].key, 8);
    detail::append_le(out, samples[i].offset / 512, 6);
    detail::append_le(out, field_count(i), 2);
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::size_t k = 0; k < field_count(i); ++k) {
      const field_row& f = rows_.fields[static_cast<std::size_t>(samples[i].first_field) + k];
      detail::append_le(out, (f.offset - samples[i].offset) / 512, 4);
      detail::append_le(out, f.crc, 4);
      detail::append_le(out, f.size, 5);
      detail::append_le(out, f.extension, 3);
    }
  }
  for (const record_row& l : rows_.records) {
    detail::append_le(out, l.offset, 6);
    detail::append_le(out, l.size, 6);
    detail::append_le(out, l.crc, 4);
  }
  for (std::size_t i = 0; i < firsts_.size(); ++i) detail::append_le(out, field_count(i), 2);
  for (const object_row& o : objects_) {
    detail::append_le(out, o.size, 5);
    detail::append_le(out, o.extension, 3);
  }
  out += paths_;
  detail::append_le(out, crc32c(0, out.data() + start, out.size() - start), 4);
}

/// One reading: it knows where it is, for its errors.
class shard_index::parser {
 public:
  parser(std::string_view text, const std::string& file, std::uint64_t base) : text_(text), file_(file), base_(base) {}

  shard_index parse() {
    shard_index out;
    head(out);
    texts(out);
    if (out.has_fields()) {
      samples(out, out.rows_, number(32, 8), number(40, 8));
      fields(out, out.rows_);
    } else if (out.has_records()) {
      records(out, out.rows_, number(32, 8));
    } else {
      objects(out);
    }
    return out;
  }
  std::size_t length() const noexcept { return text_.size(); }
  /// The part of an index of `length` bytes before its rows; `text` may have more.
  shard_index front(std::uint64_t length) {
    shard_index out;
    if (text_.size() < head_bytes) fail(text_.size(), "the head of an index is cut");
    check_kind();
    if (number(16, 8) != length || length < head_bytes + 4) {
      fail(16, "the head of the file says that the index has another length");
    }
    numbers(out);
    if (rows_ > text_.size()) fail(text_.size(), "the head of an index is cut");
    text_ = text_.substr(0, rows_);
    texts(out);
    return out;
  }
  /// Reads a block of `count` samples: the text of its rows, and then of their `fields`, which stand `apart` bytes
  /// further on in the file.
  void block(const shard_index& of, std::size_t count, std::uint64_t fields_of_it, std::uint64_t apart, table& into) {
    fields_at_ = 16 * count;
    apart_ = apart;
    if (of.has_records()) return records(of, into, count);
    samples(of, into, count, fields_of_it);
    fields(of, into);
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& reason) const {
    throw index_error(reason, where{file_, base_ + at + (at >= fields_at_ ? apart_ : 0), {}});
  }
  std::uint64_t number(std::size_t at, int bytes) const noexcept { return detail::read_le(text_, at, bytes); }

  void head(shard_index& out) {
    if (text_.size() < head_bytes) fail(text_.size(), "the index is cut: its head has 64 bytes");
    check_kind();
    const std::uint64_t length = number(16, 8);
    if (length > text_.size()) {
      fail(text_.size(),
           "the index is cut: " + std::to_string(text_.size()) + " of " + std::to_string(length) + " bytes are there");
    }
    if (length < head_bytes + 4) fail(16, "the index says that it has " + std::to_string(length) + " bytes");
    text_ = text_.substr(0, static_cast<std::size_t>(length));
    const std::size_t checked = text_.size() - 4;
    if (number(checked, 4) != crc32c(0, text_.data(), checked)) fail(checked, "the index has a wrong checksum");
    numbers(out);
  }
  void check_kind() const {
    if (text_.substr(0, 8) != magic) fail(0, "not an index: it does not begin with \"mrindex\"");
    const std::uint64_t version = number(8, 4);
    if (version < 1 || version > 4) {
      fail(8, "the index has version " + std::to_string(version) + "; this program reads versions 1 to 4");
    }
  }
  /// The bytes that follow are as write() wrote them, or forged.
  void numbers(shard_index& out) {
    const std::uint64_t version = number(8, 4);
    const std::uint64_t length = number(16, 8);
    out.flags_ = static_cast<std::uint32_t>(number(12, 4));
    const std::uint64_t format = version == 1 ? 0 : number(13, 1);
    if (version != 1) out.flags_ &= ~0xff00U;
    const bool in_frames = version == 3 || (out.flags_ & shard_index::in_groups) == 0;
    if ((out.flags_ & ~all_flags) != 0 || !in_frames) {
      fail(12, "the index has flags that version " + std::to_string(version) + " does not know");
    }
    packed_ = version == 3;
    named_ = version == 4;
    const numbered& its = formats[std::min<std::uint64_t>(format, has_name)];
    const bool known = format <= has_name && its.layout != row_layout::arrays && (version == 1) == (format == 0);
    if (!known || named_ != (format == has_name) || (packed_ && its.layout != row_layout::records)) {
      fail(13, "the index is of a format that version " + std::to_string(version) + " does not know");
    }
    out.format_ = its.name;
    out.layout_ = its.layout;
    out.object_size_ = number(24, 8);
    const std::uint64_t texts = number(48, 4) + number(52, 4) + number(60, 4);
    rows_ = head_bytes + (texts + 15) / 16 * 16;
    const std::uint64_t samples = number(32, 8);
    const std::uint64_t fields = number(40, 8);
    const std::uint64_t most = (length - 4) / 2;  // so that no sum overflows
    bool fits = samples <= most && fields <= most;
    if (out.has_fields()) {
      fits = fits && rows_ + 16 * (samples + fields) + 4 == length;
    } else if (out.has_records()) {
      fits = fits && samples == fields && rows_ + 16 * samples + 4 == length;
    } else {
      fits = fits && samples <= UINT32_MAX && fields <= UINT32_MAX && rows_ + 2 * samples + 8 * fields + 4 <= length;
    }
    if (!fits) fail(16, "the numbers of samples and fields contradict the index's length");
  }
  void texts(shard_index& out) {
    std::size_t at = head_bytes;
    const auto take = [&](std::uint64_t n) {
      const std::string_view text = text_.substr(at, static_cast<std::size_t>(n));
      at += text.size();
      return std::string(text);
    };
    out.name_ = take(number(48, 4));
    out.etag_ = take(number(52, 4));
    const std::size_t end = at + static_cast<std::size_t>(number(60, 4));
    if (packed_) {
      if (number(56, 4) != (end - at) / 16 - 1) fail(56, "the number of frames contradicts the bytes of their part");
      frames(out, at, end);
    }
    for (std::uint64_t i = packed_ ? 0 : number(56, 4); i > 0; --i) {
      if (end - at < 2 || end - at - 2 < number(at, 2)) fail(at, "an extension reaches beyond its part of the index");
      at += 2;
      out.extensions_.push_back(take(number(at - 2, 2)));
    }
    if (named_) {
      if (out.extensions_.size() < 2) fail(56, "the index does not say of which format it is");
      out.format_ = std::move(out.extensions_[0]);
      out.settings_ = std::move(out.extensions_[1]);
      for (std::size_t i = 2; i < out.extensions_.size(); ++i) out.description_ += out.extensions_[i];
      out.extensions_.clear();
      if (out.number() != has_name) fail(56, "the index is of " + out.format_ + ", which version 4 does not know");
      if (at != end) frames(out, at, end);
      if (out.is_packed()) out.flags_ |= shard_index::in_groups;
    }
    if (at != end) fail(at, "there is something after the extensions");
    for (; at < rows_; ++at) {
      if (text_[at] != '\0') fail(at, "there is something after the texts");
    }
  }
  void frames(shard_index& out, std::size_t& at, std::size_t end) const {
    if ((end - at) % 16 != 0) fail(56, "the number of frames contradicts the bytes of their part");
    out.frames_.reserve((end - at) / 8);
    for (; at < end; at += 16) {
      const std::uint64_t place = number(at, 8);
      const std::uint64_t text = number(at + 8, 8);
      if (out.frames_.empty() ? text != 0 : text <= out.frames_.back()) fail(at + 8, "the text of a frame is empty");
      if (!out.frames_.empty() && place <= *(out.frames_.end() - 2)) fail(at, "a frame is empty");
      if (place > out.object_size_) fail(at, "a frame reaches beyond the object's end");
      out.frames_.push_back(place);
      out.frames_.push_back(text);
    }
  }
  /// `count` rows of samples that have so many fields.
  void samples(const shard_index& of, table& into, std::uint64_t count, std::uint64_t its_fields) {
    into.samples.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::size_t at = rows_ + static_cast<std::size_t>(16 * i);
      sample_row row;
      row.key = number(at, 8);
      row.offset = number(at + 8, 6) * 512;
      row.first_field = next_field_;
      if (number(at + 14, 2) == 0) fail(at + 14, "a sample has no fields");
      next_field_ += number(at + 14, 2);
      if ((of.flags_ & with_keys) == 0 && row.key != 0) fail(at, "a key has a hash, and the flags say that none has");
      into.samples.push_back(row);
    }
    if (next_field_ != its_fields) fail(rows_, "the samples do not have as many fields as the index");
  }
  void fields(const shard_index& of, table& into) {
    into.fields.reserve(static_cast<std::size_t>(next_field_));
    std::size_t at = rows_ + 16 * into.samples.size();
    std::uint64_t behind = 0;  // of what the object holds
    for (std::size_t i = 0; i < into.samples.size(); ++i) {
      const std::uint64_t offset = into.samples[i].offset;
      if (offset < behind) fail(rows_ + 16 * i + 8, "a sample begins before the one before it ends");
      behind = offset;
      const std::uint64_t last = i + 1 < into.samples.size() ? into.samples[i + 1].first_field : next_field_;
      for (std::uint64_t k = into.samples[i].first_field; k < last; ++k, at += 16) {
        field_row row;
        row.offset = offset + 512 * number(at, 4);
        row.crc = static_cast<std::uint32_t>(number(at + 4, 4));
        row.size = number(at + 8, 5);
        row.extension = static_cast<std::uint32_t>(number(at + 13, 3));
        if (row.offset < behind + 512) fail(at, "a field begins before the one before it ends");
        if (row.offset > of.object_size_ || row.size > of.object_size_ - row.offset) {
          fail(at, "a field reaches beyond the object's end");
        }
        if (row.extension >= of.extensions_.size()) fail(at + 13, "a field has an extension that is not there");
        if ((of.flags_ & with_checksums) == 0 && row.crc != 0) {
          fail(at + 4, "a field has a checksum, and the flags say that none has");
        }
        behind = row.offset + row.size;
        into.fields.push_back(row);
      }
    }
  }

  void records(const shard_index& of, table& into, std::uint64_t count) {
    const std::uint64_t end = of.text_size();
    into.records.reserve(static_cast<std::size_t>(count));
    std::uint64_t least = 0;  // where the next one begins at the earliest
    for (std::size_t at = rows_; into.records.size() < count; at += 16) {
      record_row row;
      row.offset = number(at, 6);
      const std::uint64_t size = number(at + 6, 6);
      row.crc = static_cast<std::uint32_t>(number(at + 12, 4));
      if (row.offset < least) fail(at, "a record begins before the one before it ends");
      if (row.offset > end || size > end - row.offset) {
        fail(at + 6, std::string("a record reaches beyond the ") + (of.is_packed() ? "text's" : "object's") + " end");
      }
      if (size > UINT32_MAX) fail(at + 6, "a record has 4 GiB or more");
      row.size = static_cast<std::uint32_t>(size);
      least = row.offset + size;
      into.records.push_back(row);
    }
  }
  void objects(shard_index& out) {
    const auto samples = static_cast<std::size_t>(number(32, 8));
    const auto fields = static_cast<std::size_t>(number(40, 8));
    out.firsts_.reserve(samples);
    std::uint64_t first = 0;
    std::size_t at = rows_;
    for (std::size_t i = 0; i < samples; ++i, at += 2) {
      if (number(at, 2) == 0) fail(at, "a sample has no objects");
      out.firsts_.push_back(static_cast<std::uint32_t>(first));
      first += number(at, 2);
      if (first > fields) break;
    }
    if (first != fields) fail(40, "the samples do not have as many objects as the index");
    out.objects_.reserve(fields);
    for (std::size_t i = 0; i < fields; ++i, at += 8) {
      object_row row;
      row.size = number(at, 5);
      row.extension = static_cast<std::uint32_t>(number(at + 5, 3));
      if (row.extension >= out.extensions_.size()) fail(at + 5, "an object has an extension that is not there");
      out.objects_.push_back(row);
    }
    const std::size_t end = text_.size() - 4;
    if (end - at > UINT32_MAX) fail(at, "the paths have 4 GiB or more");
    out.paths_ = text_.substr(at, end - at);
    const std::size_t begin = at;
    for (object_row& row : out.objects_) {
      row.path = static_cast<std::uint32_t>(at - begin);
      at = passed(at, 2, end);
      const std::size_t etag = at;
      if (etag == end) fail(at, "an object has no ETag");
      at = number(at, 1) == packed_etag ? etag + 1 + 16 : passed(at, 1, end);
      if (at > end) fail(etag, "an ETag reaches beyond the index");
    }
    if (at != end) fail(at, "there is something after the paths");
  }
  /// The byte after a text that is preceded by its length in so many bytes.
  std::size_t passed(std::size_t at, int bytes, std::size_t end) const {
    const auto width = static_cast<std::size_t>(bytes);
    if (end - at < width || end - at - width < number(at, bytes)) fail(at, "a text reaches beyond the index");
    return at + width + static_cast<std::size_t>(number(at, bytes));
  }

  std::string_view text_;
  const std::string& file_;
  const std::uint64_t base_;
  std::size_t fields_at_ = SIZE_MAX;  // from here on `apart_` is added to places
  std::uint64_t apart_ = 0;
  std::size_t rows_ = 0;
  bool packed_ = false;
  bool named_ = false;
  std::uint64_t next_field_ = 0;
};

MILLRACE_INLINE shard_index shard_index::read(std::string_view& rest, const std::string& file) {
  parser p(rest, file, 0);
  shard_index out = p.parse();
  rest.remove_prefix(p.length());
  return out;
}

MILLRACE_INLINE shard_index::block_place shard_index::place_of(std::size_t block) const noexcept {
  const paged& all = *paged_;
  const std::uint64_t begin = all.at + rows_begin();
  block_place out;
  out.first = block * all.block;
  out.count = static_cast<std::size_t>(std::min<std::uint64_t>(all.block, all.samples - out.first));
  out.at = begin + 16 * out.first;
  if (has_records()) return out;
  const std::uint64_t first = all.firsts[block];
  out.fields = (block + 1 < all.firsts.size() ? all.firsts[block + 1] : all.fields) - first;
  out.fields_at = begin + 16 * all.samples + 16 * first;
  return out;
}

/// Its rows, without what they are in.
MILLRACE_INLINE shard_index::rows shard_index::rows_in(const block_place& place) const noexcept {
  rows out;
  out.first_ = place.first;
  out.count_ = place.count;
  out.extensions_ = extensions_.data();
  out.records_ = has_records();
  return out;
}

/// `text`: the block's rows, and on those of its fields.
MILLRACE_INLINE std::shared_ptr<const shard_index::table> shard_index::parsed(const block_place& place,
                                                                              std::string_view text) const {
  if (crc32c(0, text.data(), text.size()) != paged_->sums[place.first / paged_->block]) {
    throw index_error("the rows of samples " + std::to_string(place.first) + " to " +
                          std::to_string(place.first + place.count - 1) + " of \"" + name_ +
                          "\" have a wrong checksum",
                      where{paged_->from->name(), place.at, {}});
  }
  auto made = std::make_shared<table>();
  parser p(text, paged_->from->name(), place.at);
  p.block(*this, place.count, place.fields, has_records() ? 0 : place.fields_at - place.end(), *made);
  return made;
}

/// The block of rows that has this sample, of an index whose rows are read by need.
MILLRACE_INLINE shard_index::rows shard_index::block_of(std::size_t sample) const {
  const detail::index_bytes& from = *paged_->from;
  const block_place place = place_of(sample / paged_->block);
  rows out = rows_in(place);
  out.held_ = std::static_pointer_cast<const table>(from.recent(place.at));
  if (out.held_ == nullptr) {
    std::string text;
    from.read(place.at, 16 * place.count, text);
    if (!has_records()) from.read(place.fields_at, 16 * place.fields, text);
    out.held_ = parsed(place, text);
    from.keep(place.at, out.held_);
  }
  out.table_ = out.held_.get();
  return out;
}

MILLRACE_COROUTINE_BODY task<std::vector<shard_index::rows>> shard_index::read_rows(std::size_t first,
                                                                                    std::size_t count) const {
  constexpr std::uint64_t near = 16 * KiB;  // that lie between, and are read rather than asked around
  const coroutine_context here = co_await this_context();
  const detail::index_bytes& from = *paged_->from;
  const std::size_t begin = first / paged_->block;
  const std::size_t end = (first + count - 1) / paged_->block + 1;
  const block_place front = place_of(begin);
  const block_place back = place_of(end - 1);
  const bool apart = !has_records() && front.fields_at - back.end() > near;
  const std::uint64_t length = (has_records() || apart ? back.end() : back.fields_end()) - front.at;
  std::exception_ptr damaged;
  for (const bool again : {false, true}) {
    spawned<std::string> of_fields;
    if (apart) {
      of_fields = spawned<std::string>(
          here, detail::text_of_range(from.store(), from.object(), front.fields_at,
                                      static_cast<std::size_t>(back.fields_end() - front.fields_at), again));
    }
    task<std::string> reading = detail::text_of_range(from.store(), from.object(), front.at,
                                                      static_cast<std::size_t>(length), again);
    const std::string text = co_await std::move(reading);
    std::string other;
    if (apart) other = co_await of_fields;
    const std::string_view fields = apart ? std::string_view(other) : text;
    const std::uint64_t fields_at = apart ? front.fields_at : front.at;
    try {
      std::vector<rows> all;
      for (std::size_t b = begin; b < end; ++b) {
        const block_place place = place_of(b);
        std::string its = text.substr(static_cast<std::size_t>(place.at - front.at), 16 * place.count);
        if (place.fields != 0) {
          its += fields.substr(static_cast<std::size_t>(place.fields_at - fields_at),
                               static_cast<std::size_t>(16 * place.fields));
        }
        all.push_back(rows_in(place));
        all.back().held_ = parsed(place, its);
        all.back().table_ = all.back().held_.get();
      }
      co_return std::move(all);
    } catch (const index_error&) {
      damaged = std::current_exception();
    }
    if (!from.store()->over_network(from.object().url)) break;
    if (!again) detail::log_second_reading(here, detail::text_of(damaged));
  }
  std::rethrow_exception(damaged);
}

MILLRACE_INLINE shard_index::rows shard_index::rows::only(std::size_t sample) const {
  if (held_ == nullptr) return *this;
  const std::size_t row = sample - first_;
  auto one = std::make_shared<table>();
  if (records_) {
    one->records.push_back(table_->records[row]);
  } else {
    one->samples.push_back(table_->samples[row]);
    one->samples.front().first_field = 0;
    const auto first = table_->fields.begin() + static_cast<std::ptrdiff_t>(table_->samples[row].first_field);
    one->fields.assign(first, first + static_cast<std::ptrdiff_t>(field_count(sample)));
  }
  rows out = *this;
  out.first_ = sample;
  out.count_ = 1;
  out.table_ = one.get();
  out.held_ = std::move(one);
  return out;
}

MILLRACE_INLINE void shard_index::ask_for(std::size_t first, std::size_t count) const noexcept {
  const paged& all = *paged_;
  if (count == 0 || first >= all.samples) return;
  const std::size_t block = first / all.block;
  const std::size_t end = std::min((first + count - 1) / all.block + 1, all.sums.size());
  const auto last = std::min<std::uint64_t>(end * all.block, all.samples);
  const std::uint64_t begin = all.at + rows_begin();
  all.from->will_need(begin + 16 * block * all.block, 16 * (last - block * all.block));
  if (has_records()) return;
  const std::uint64_t last_field = end < all.firsts.size() ? all.firsts[end] : all.fields;
  all.from->will_need(begin + 16 * (all.samples + all.firsts[block]), 16 * (last_field - all.firsts[block]));
}

MILLRACE_INLINE std::string index_file_head::sealed(std::uint32_t crc) const {
  std::string out(magic);
  detail::append_le(out, version_, 4);
  detail::append_le(out, crc, 4);
  detail::append_le(out, count_, 8);
  detail::append_le(out, length_, 8);
  if (version_ == 1) return out;
  detail::append_le(out, entries_bytes_, 8);
  detail::append_le(out, block_, 8);
  return out;
}

MILLRACE_INLINE std::string index_file_head::text() const {
  if (entries_.size() != entries_bytes_) detail::misused("index_file_head: text() comes after add() of all indexes");
  const std::string open = sealed(0);
  const std::uint32_t crc = crc32c(0, open.data(), open.size());
  return sealed(crc32c(crc, entries_.data(), entries_.size())) + entries_;
}

MILLRACE_INLINE index_file_head index_file_head::read(std::string_view text, const std::string& file, std::uint64_t at,
                                                      std::uint64_t left) {
  const auto fail = [&](std::uint64_t byte, const std::string& reason) {
    throw index_error(reason, where{file, at + byte, {}});
  };
  if (text.size() < 32) fail(text.size(), "the index is cut: the head of its file has 32 bytes or more");
  index_file_head head;
  head.version_ = detail::read_le(text, 8, 4);
  if (head.version_ != 1 && head.version_ != 2) {
    fail(8, "the file of the index has version " + std::to_string(head.version_) +
                "; this program reads versions 1 and 2");
  }
  head.count_ = detail::read_le(text, 16, 8);
  head.length_ = detail::read_le(text, 24, 8);
  if (head.version_ == 1) {
    head.check(text, file, at);
  } else {
    if (text.size() < 48) fail(text.size(), "the index is cut: the head of its file has 48 bytes or more");
    head.entries_bytes_ = detail::read_le(text, 32, 8);
    head.block_ = detail::read_le(text, 40, 8);
    if (head.block_ == 0 || head.block_ > 65536) fail(40, "the head of the index has blocks of no size or a wrong one");
  }
  if (left < head.bytes() - head.entries_bytes_ || head.entries_bytes_ > left || head.bytes() > left ||
      head.length_ > left - head.bytes()) {
    fail(left, "the index is cut: " + std::to_string(left) + " bytes are there, of a head of " +
                   std::to_string(head.bytes()) + " and indexes of " + std::to_string(head.length_));
  }
  if (head.count_ == 0) fail(16, "the file has no index");
  return head;
}

MILLRACE_INLINE void index_file_head::check(std::string_view text, const std::string& file, std::uint64_t at) const {
  const std::string open = sealed(0);
  std::uint32_t crc = crc32c(0, open.data(), open.size());
  if (version_ == 2) crc = crc32c(crc, text.data() + 48, text.size() - 48);
  if (detail::read_le(text, 12, 4) != crc) {
    throw index_error("the head of the index has a wrong checksum", where{file, at + 12, {}});
  }
}

/// Reads the indexes of a file one after the other, and either all of their rows or none, but for objects.
class detail::index_file_reader {
 public:
  index_file_reader(std::shared_ptr<const index_bytes> from, bool by_need)
      : from_(std::move(from)), by_need_(by_need) {}

  /// The facts of an index in a head, and its rows' sums.
  static void describe(const shard_index& index, std::string_view text, std::size_t block, shard_index::paged& out) {
    out.samples = index.samples();
    out.fields = index.fields();
    out.sample_bytes = index.sample_bytes();
    out.digest = index.digest();
    out.block = block;
    if (index.of_objects()) return;
    const std::size_t rows = index.rows_begin();
    std::uint64_t first = 0;
    for (std::uint64_t s = 0; s < out.samples; s += block) {
      const std::uint64_t end = std::min<std::uint64_t>(s + block, out.samples);
      std::uint32_t crc = crc32c(0, text.data() + rows + 16 * s, static_cast<std::size_t>(16 * (end - s)));
      if (!index.has_records()) {
        std::uint64_t fields = 0;
        for (std::uint64_t i = s; i < end; ++i) {
          fields += read_le(text, static_cast<std::size_t>(rows + 16 * i + 14), 2);
        }
        fields = std::min(fields, out.fields - first);  // a text that was forged may say more
        const char* const its = text.data() + rows + 16 * (out.samples + first);
        crc = crc32c(crc, its, static_cast<std::size_t>(16 * fields));
        out.firsts.push_back(first);
        first += fields;
      }
      out.sums.push_back(crc);
    }
  }

  std::vector<shard_index> all() {
    const std::uint64_t size = from_->size();
    if (size == 0) throw index_error("the file is empty", where{from_->name(), 0, {}});
    std::string buffer;
    for (std::uint64_t at = 0; at < size;) {
      std::string_view front = from_->view(at, std::min(size - at, front_bytes), buffer);
      if (index_file_head::is_at(front)) {
        at = headed(index_file_head::read(front, from_->name(), at, size - at), at);
        continue;
      }
      do {
        add(at, size - at);
        at += length_;
        if (at < size) front = from_->view(at, std::min(size - at, front_bytes), buffer);
      } while (at < size && !index_file_head::is_at(front));
    }
    return std::move(all_);
  }

 private:
  static constexpr std::uint64_t front_bytes = 64;

  /// Reads the index at `at`, of which there are `left` bytes at most, as a whole; length_ is then its length.
  shard_index whole(std::uint64_t at, std::uint64_t left) {
    std::string_view text = from_->view(at, std::min(left, front_bytes), text_);
    // A length that is wrong is found by the index's own reading.
    const std::uint64_t length =
        text.size() < front_bytes ? text.size() : std::clamp(read_le(text, 16, 8), front_bytes, left);
    text = from_->view(at, length, text_);
    std::string_view rest = text;
    try {
      shard_index index = shard_index::read(rest, from_->name());
      length_ = text.size() - rest.size();
      last_ = text.substr(0, static_cast<std::size_t>(length_));
      return index;
    } catch (const index_error& e) {
      throw index_error(e.reason(), where{from_->name(), at + e.offset().value_or(0), {}});
    }
  }
  /// The index without rows, which are then read by need.
  void page(shard_index& index, std::shared_ptr<shard_index::paged> its, std::uint64_t at) const {
    its->from = from_;
    its->in_store = from_->store() != nullptr;
    its->at = at;
    index.rows_ = shard_index::table();
    index.paged_ = std::move(its);
  }
  void add(std::uint64_t at, std::uint64_t left) {
    shard_index index = whole(at, left);
    if (by_need_ && !index.of_objects()) {
      auto its = std::make_shared<shard_index::paged>();
      describe(index, last_, shard_index::block_samples, *its);
      page(index, std::move(its), at);
    }
    all_.push_back(std::move(index));
  }

  /// The indexes after a head at `at`. Returns where they end.
  std::uint64_t headed(const index_file_head& head, std::uint64_t at) {
    const std::uint64_t begin = at + head.bytes();
    const std::uint64_t end = begin + head.length();
    const std::size_t before = all_.size();
    std::uint64_t next = begin;
    if (head.version_ == 1) {
      for (; next < end; next += length_) add(next, end - next);
      if (all_.size() - before != head.count()) {
        throw index_error("the head of the file says that it has another number of indexes",
                          where{from_->name(), next, {}});
      }
      return end;
    }
    std::string buffer;
    const std::string_view text = from_->view(at, head.bytes(), buffer);
    head.check(text, from_->name(), at);
    std::size_t entry = 48;
    for (std::uint64_t i = 0; i < head.count(); ++i) next += listed(text, entry, at, next, end, head.block_);
    if (entry != text.size() || next != end) {
      throw index_error("the head of the file is of other indexes", where{from_->name(), at + entry, {}});
    }
    return end;
  }
  /// The index of an entry of the head, which moves on; the index begins at `at` and ends at `end` or before.
  std::uint64_t listed(std::string_view head, std::size_t& entry, std::uint64_t head_at, std::uint64_t at,
                       std::uint64_t end, std::uint64_t block) {
    const auto fail = [&](const char* reason) { throw index_error(reason, where{from_->name(), head_at + entry, {}}); };
    if (head.size() - entry < 32) fail("the head of the file is cut");
    const std::uint64_t length = read_le(head, entry, 8);
    if (length > end - at) fail("an index reaches beyond the end that the head of the file says");
    auto its = std::make_shared<shard_index::paged>();
    its->sample_bytes = read_le(head, entry + 8, 8);
    its->digest.high = read_le(head, entry + 16, 8);
    its->digest.low = read_le(head, entry + 24, 8);
    its->block = static_cast<std::size_t>(block);
    const std::string_view front = head.substr(entry + 32);
    shard_index index = shard_index::parser(front, from_->name(), head_at + entry + 32).front(length);
    its->samples = read_le(front, 32, 8);
    its->fields = read_le(front, 40, 8);
    entry += 32 + index.rows_begin();
    if (!index.of_objects()) sums(*its, index, head, entry, fail);
    if (!by_need_ || index.of_objects()) {
      compare(whole(at, length), index, *its, at);
    } else {
      if (!from_->is_file() && from_->store() == nullptr) static_cast<void>(whole(at, length));
      page(index, std::move(its), at);
      all_.push_back(std::move(index));
    }
    return length;
  }
  template <class Fail>
  static void sums(shard_index::paged& its, const shard_index& index, std::string_view head, std::size_t& entry,
                   const Fail& fail) {
    const std::uint64_t blocks = (its.samples + its.block - 1) / its.block;
    const std::size_t each = index.has_records() ? 4 : 12;
    if (blocks > (head.size() - entry) / each) fail("the head of the file is cut");
    its.sums.reserve(static_cast<std::size_t>(blocks));
    if (!index.has_records()) its.firsts.reserve(static_cast<std::size_t>(blocks));
    for (std::uint64_t b = 0; b < blocks; ++b, entry += each) {
      if (!index.has_records()) {
        const std::uint64_t first = read_le(head, entry, 8);
        if (first > its.fields || first < (b == 0 ? 0 : its.firsts.back())) fail("fields of an index overlap");
        its.firsts.push_back(first);
      }
      its.sums.push_back(static_cast<std::uint32_t>(read_le(head, entry + each - 4, 4)));
    }
  }
  /// The index as it was read, which must be as the head says.
  void compare(shard_index index, const shard_index& front, const shard_index::paged& said, std::uint64_t at) {
    shard_index::paged is;
    describe(index, last_, said.block, is);
    const bool alike = index.name() == front.name() && index.etag() == front.etag() &&
                       index.object_size() == front.object_size() && index.format() == front.format() &&
                       index.settings() == front.settings() && index.description() == front.description() &&
                       index.flags_ == front.flags_ && index.extensions_ == front.extensions_ &&
                       index.frames_ == front.frames_ &&
                       is.samples == said.samples && is.fields == said.fields &&
                       is.sample_bytes == said.sample_bytes && is.digest == said.digest && is.sums == said.sums &&
                       is.firsts == said.firsts;
    if (!alike) {
      throw index_error("the index of \"" + index.name() + "\" is not the one that the head of the file is of",
                        where{from_->name(), at, {}});
    }
    all_.push_back(std::move(index));
  }

  const std::shared_ptr<const index_bytes> from_;
  const bool by_need_;
  std::vector<shard_index> all_;
  std::string text_;
  std::string_view last_;  // of whole()
  std::uint64_t length_ = 0;
};

MILLRACE_INLINE void index_file_head::add(const shard_index& index, std::string_view text) {
  shard_index::paged its;
  detail::index_file_reader::describe(index, text, shard_index::block_samples, its);
  detail::append_le(entries_, text.size(), 8);
  detail::append_le(entries_, its.sample_bytes, 8);
  detail::append_le(entries_, its.digest.high, 8);
  detail::append_le(entries_, its.digest.low, 8);
  entries_ += text.substr(0, index.rows_begin());
  for (std::size_t b = 0; b < its.sums.size(); ++b) {
    if (!its.firsts.empty()) detail::append_le(entries_, its.firsts[b], 8);
    detail::append_le(entries_, its.sums[b], 4);
  }
}

MILLRACE_INLINE std::vector<shard_index> read_indexes(std::string_view text, const std::string& file) {
  auto from = std::make_shared<const detail::index_bytes>(text, file, nullptr);
  return detail::index_file_reader(std::move(from), false).all();
}

MILLRACE_INLINE std::vector<shard_index> open_indexes(const std::string& file) {
  return detail::index_file_reader(std::make_shared<const detail::index_bytes>(file), true).all();
}

MILLRACE_INLINE std::vector<shard_index> detail::open_index_text(std::string_view text,
                                                                 std::shared_ptr<const void> owner,
                                                                 const std::string& file) {
  return index_file_reader(std::make_shared<const index_bytes>(text, file, std::move(owner)), true).all();
}

MILLRACE_INLINE std::vector<shard_index> detail::open_stored_indexes(std::shared_ptr<const storage> store, shard object,
                                                                     std::string_view head, const std::string& file) {
  auto from = std::make_shared<const index_bytes>(std::move(store), std::move(object), head, file);
  return index_file_reader(std::move(from), true).all();
}

}  // namespace millrace
