// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/formats/object_samples.hpp>
#include <millrace/index/sample_index_builder.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

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
  const object_part part = format_->part(path);
  if (part.key == 0) {
    if (passed_over_++ == 0) first_passed_over_ = object.shown();
    return;
  }
  if (path.size() > UINT16_MAX) throw index_error("the path is too long for an index", at);
  if (*object.size >> 40 != 0) throw index_error("an object of 1 TiB or more cannot be indexed", at);
  entry e;
  e.at = texts_.size();
  e.size = *object.size;
  e.path = static_cast<std::uint32_t>(path.size());
  e.key = static_cast<std::uint32_t>(part.key);
  e.folder = static_cast<std::uint32_t>(part.folder);
  texts_ += path;
  if (!sample_index_builder::pack_etag(object.etag, texts_)) {
    throw index_error("the ETag is too long for an index", at);
  }
  entries_.push_back(e);
}

MILLRACE_INLINE std::string object_index_builder::passed_over() const {
  if (passed_over_ == 0) return {};
  return std::to_string(passed_over_) + (passed_over_ == 1 ? " object is" : " objects are") +
         " left out, as by their names they are no samples of " + shown_format(*format_) + ": the first is " +
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
  const std::string_view folder = folder_of(entries_[first]);
  sample_index_builder out(*format_, std::string(folder));
  const std::size_t skipped = folder.empty() ? 0 : folder.size() + 1;
  for (std::size_t i = first; i < end; ++i) {
    const entry& e = entries_[i];
    const std::string_view path = path_of(e);
    if (i == first || key_of(e) != key_of(entries_[i - 1])) out.begin_sample();
    std::string field = format_->part(path).field;
    std::string refused;
    if (format_->of_classes() && field == "cls") {
      refused = "the sample has an object \"cls\", and class_folders() gives it a field of this name: use "
                "object_samples()";
    } else {
      const std::string_view tag = std::string_view(texts_).substr(static_cast<std::size_t>(e.at) + path.size());
      refused = out.add_object(std::move(field), path.substr(skipped),
                               tag.substr(0, sample_index_builder::packed_bytes(tag)), e.size);
    }
    if (!refused.empty()) throw index_error(refused, where{prefix_ + std::string(path), std::nullopt, {}});
  }
  return out.finish_objects();
}

/// See object_samples() and class_folders().
class object_format : public shard_format {
 public:
  std::string_view name() const noexcept override { return "objects"; }
  bool of_objects() const noexcept override { return true; }
  object_part part(std::string_view path) const override {
    const std::size_t name = path.rfind('/') + 1;  // 0 without a folder
    const sample_name parsed = sample_name::parse(path);
    if (!parsed.is_sample() || path[name] == '.') return {};
    return object_part(parsed.key().size(), 0, parsed.lower_extension());
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& /*index*/) const override { return nullptr; }
};

class class_format final : public object_format {
 public:
  std::string_view name() const noexcept override { return "classes"; }
  bool of_classes() const noexcept override { return true; }
  object_part part(std::string_view path) const override {
    object_part its = object_format::part(path);
    const std::size_t folder = path.find('/');
    if (its.key == 0 || folder == std::string_view::npos || folder == 0) return {};
    its.folder = folder;
    return its;
  }
};

/// See sample_folders().
class folder_format final : public object_format {
 public:
  std::string_view name() const noexcept override { return "folders"; }
  object_part part(std::string_view path) const override {
    const std::size_t name = path.rfind('/') + 1;
    if (name <= 1 || name == path.size() || path[name] == '.') return {};
    return object_part(name - 1, 0, std::string(path.substr(name)));
  }
};

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

}  // namespace detail

MILLRACE_INLINE std::shared_ptr<const shard_format> object_samples() {
  return std::make_shared<const detail::object_format>();
}
MILLRACE_INLINE std::shared_ptr<const shard_format> class_folders() {
  return std::make_shared<const detail::class_format>();
}
MILLRACE_INLINE std::shared_ptr<const shard_format> sample_folders() {
  return std::make_shared<const detail::folder_format>();
}

}  // namespace millrace
