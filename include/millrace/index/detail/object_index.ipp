// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/detail/object_index.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A quoted MD5 in 16 bytes; false for another ETag.
MILLRACE_INLINE bool pack_etag(std::string_view etag, std::string& out) {
  if (etag.size() != 34 || etag.front() != '"' || etag.back() != '"') return false;
  char packed[16] = {};
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = etag[i + 1];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return false;
    const int value = digit ? c - '0' : c - 'a' + 10;
    packed[i / 2] = static_cast<char>(packed[i / 2] << 4 | value);
  }
  out.append(packed, 16);
  return true;
}

MILLRACE_INLINE void object_index_builder::add(const shard& object) {
  const where at{object.shown(), std::nullopt, {}};
  if (object.url != object.shown()) {
    throw configuration_error("dataset: objects that are samples cannot have signed URLs: an index names them by their "
                              "paths alone",
                              at);
  }
  if (object.url.compare(0, prefix_.size(), prefix_) != 0) {
    throw configuration_error("dataset: this object does not lie under the prefix " + prefix_, at);
  }
  if (!object.size) throw configuration_error("dataset: the list does not say how long this object is", at);
  const std::string_view path = std::string_view(object.url).substr(prefix_.size());
  entry e;
  e.at = texts_.size();
  e.size = *object.size;
  e.path = static_cast<std::uint32_t>(path.size());
  const std::size_t name = path.rfind('/') + 1;  // 0 without a folder
  bool is_sample = false;
  if (format_ == sample_format::folders) {
    is_sample = name > 1 && name < path.size();
    e.key = is_sample ? static_cast<std::uint32_t>(name - 1) : 0;
  } else {
    const sample_name parsed = sample_name::parse(path);
    is_sample = parsed.is_sample();
    e.key = static_cast<std::uint32_t>(parsed.key().size());
    if (format_ == sample_format::classes) {
      const std::size_t folder = path.find('/');
      is_sample = is_sample && folder != std::string_view::npos && folder != 0;
      e.folder = is_sample ? static_cast<std::uint32_t>(folder) : 0;
    }
  }
  is_sample = is_sample && path[name] != '.';
  if (!is_sample) {
    if (passed_over_++ == 0) first_passed_over_ = object.shown();
    return;
  }
  if (path.size() > UINT16_MAX) throw index_error("the path is too long for an index", at);
  if (e.size >> 40 != 0) throw index_error("an object of 1 TiB or more cannot be indexed", at);
  texts_ += path;
  // Its ETag, as in the index.
  const std::size_t marker = texts_.size();
  texts_ += static_cast<char>(static_cast<unsigned char>(shard_index::packed_etag));
  if (!pack_etag(object.etag, texts_)) {
    if (object.etag.size() >= shard_index::packed_etag) throw index_error("the ETag is too long for an index", at);
    texts_[marker] = static_cast<char>(static_cast<unsigned char>(object.etag.size()));
    texts_ += object.etag;
  }
  entries_.push_back(e);
}

MILLRACE_INLINE std::string object_index_builder::passed_over() const {
  if (passed_over_ == 0) return {};
  std::string rule = "lie in folders";
  if (format_ == sample_format::objects) rule.clear();
  if (format_ == sample_format::classes) rule += " and ";
  if (format_ != sample_format::folders) rule += "have names of key, dot and extension";
  return std::to_string(passed_over_) + (passed_over_ == 1 ? " object is" : " objects are") +
         " left out, as samples of sample_format::" + format_name(format_) + ' ' + rule + ": the first is " +
         first_passed_over_;
}

MILLRACE_INLINE index_set object_index_builder::finish() {
  std::sort(entries_.begin(), entries_.end(), [this](const entry& a, const entry& b) {
    if (const int by = folder_of(a).compare(folder_of(b)); by != 0) return by < 0;
    if (const int by = key_of(a).compare(key_of(b)); by != 0) return by < 0;
    return path_of(a) < path_of(b);
  });
  std::vector<shard_index> all;
  for (std::size_t first = 0; first < entries_.size();) {
    std::size_t end = first + 1;
    while (end < entries_.size() && folder_of(entries_[end]) == folder_of(entries_[first])) ++end;
    all.push_back(index_of(first, end));
    first = end;
  }
  entries_ = {};
  texts_ = {};
  return index_set(std::move(all));
}

/// Of entries [first, end), which have one folder.
MILLRACE_INLINE shard_index object_index_builder::index_of(std::size_t first, std::size_t end) {
  shard_index out;
  out.name_ = folder_of(entries_[first]);
  out.format_ = format_;
  out.flags_ = shard_index::with_keys;
  const std::size_t skipped = out.name_.empty() ? 0 : out.name_.size() + 1;
  std::map<std::string, std::uint32_t, std::less<>> extensions;
  out.objects_.reserve(end - first);
  for (std::size_t i = first; i < end; ++i) {
    const entry& e = entries_[i];
    const std::string_view path = path_of(e);
    const auto fail = [&](const std::string& reason) {
      throw index_error(reason, where{prefix_ + std::string(path), std::nullopt, {}});
    };
    const bool opens = i == first || key_of(e) != key_of(entries_[i - 1]);
    if (opens) out.firsts_.push_back(static_cast<std::uint32_t>(out.objects_.size()));
    std::string extension(path.substr(e.key + 1));
    if (format_ != sample_format::folders) extension = sample_name::parse(path).lower_extension();
    if (format_ == sample_format::classes && extension == "cls") {
      fail("the sample has an object \"cls\", and sample_format::classes gives it a field of this name: use "
           "sample_format::objects");
    }
    if (extension == "__key__" || extension == "__url__" || extension == "__bad__" || extension == "__local_path__") {
      fail("the extension \"" + extension + "\" stands for what a sample has beside its objects");
    }
    if (out.objects_.size() - out.firsts_.back() >= 4096) fail("the sample has more than 4096 objects");
    const auto at = extensions.try_emplace(extension, static_cast<std::uint32_t>(extensions.size()));
    if (at.second) out.extensions_.push_back(extension);
    shard_index::object_row row;
    row.extension = at.first->second;
    if (row.extension >> 24 != 0) fail("too many different extensions for an index");
    for (std::size_t k = out.firsts_.back(); k < out.objects_.size(); ++k) {
      if (out.objects_[k].extension == row.extension) {
        fail("the sample has two objects with the extension \"" + extension + "\"");
      }
    }
    row.size = e.size;
    row.path = static_cast<std::uint32_t>(out.paths_.size());
    append_le(out.paths_, path.size() - skipped, 2);
    out.paths_ += path.substr(skipped);
    const auto tag = static_cast<std::size_t>(e.at) + path.size();
    const auto length = static_cast<std::size_t>(read_le(texts_, tag, 1));
    out.paths_.append(texts_, tag, 1 + (length == shard_index::packed_etag ? 16 : length));
    if (out.paths_.size() > UINT32_MAX) fail("too many objects for an index of one folder");
    out.object_size_ += e.size;
    out.objects_.push_back(row);
  }
  out.firsts_.shrink_to_fit();
  out.paths_.shrink_to_fit();
  return out;
}

/// Counts through the objects of several indexes.
class object_walk {
 public:
  explicit object_walk(const index_set& of) : of_(of) { find(); }
  bool ended() const noexcept { return shard_ == of_.size(); }
  std::string path() const {
    const shard_index& index = of_[shard_];
    return (index.name().empty() ? "" : index.name() + '/') + std::string(object().path);
  }
  /// In the order in which they are counted.
  bool comes_before(const object_walk& other) const {
    if (const int by = of_[shard_].name().compare(other.of_[other.shard_].name()); by != 0) return by < 0;
    const std::string mine = of_[shard_].key(sample_);
    const std::string its = other.of_[other.shard_].key(other.sample_);
    return mine != its ? mine < its : object().path < other.object().path;
  }
  shard_index::object object() const { return of_[shard_].object_at(sample_, field_); }
  std::uint64_t size() const { return of_[shard_].field_at(sample_, field_).size; }
  void next() {
    ++field_;
    find();
  }

 private:
  void find() {
    while (shard_ < of_.size()) {
      if (sample_ == of_[shard_].samples()) {
        ++shard_;
        sample_ = field_ = 0;
      } else if (field_ == of_[shard_].field_count(sample_)) {
        ++sample_;
        field_ = 0;
      } else {
        return;
      }
    }
  }

  const index_set& of_;
  std::size_t shard_ = 0;
  std::size_t sample_ = 0;
  std::size_t field_ = 0;
};

MILLRACE_INLINE void check_objects(const index_set& indexes, const index_set& listed, const std::string& file,
                                   const std::string& prefix) {
  if (indexes.digest() == listed.digest()) return;
  const std::string what = "the index " + file + " is of another list: ";
  object_walk known(indexes);
  object_walk there(listed);
  while (!known.ended() || !there.ended()) {
    if (known.ended() || (!there.ended() && there.comes_before(known))) {
      throw stale_index_error(what + "it does not have this object", where{prefix + there.path(), std::nullopt, {}});
    }
    const where at{prefix + known.path(), std::nullopt, {}};
    if (there.ended() || known.comes_before(there)) throw stale_index_error(what + "this object is not listed", at);
    if (known.size() != there.size()) {
      throw stale_index_error(what + "this object had " + std::to_string(known.size()) + " bytes and has " +
                                  std::to_string(there.size()),
                              at);
    }
    const std::string was = known.object().etag;
    const std::string is = there.object().etag;
    if (!was.empty() && !is.empty() && !millrace::detail::same_etag(was, is)) {
      throw stale_index_error(what + "this object's ETag was " + was + " and is " + is, at);
    }
    known.next();
    there.next();
  }
}

}  // namespace millrace::detail
