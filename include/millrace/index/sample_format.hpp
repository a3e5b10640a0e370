// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

class shard_format;

/// What the samples of a dataset are in its store.
enum class sample_format : unsigned char {
  /// Shards are plain tars. Files of one key are a sample, as in WebDataset (sample_name).
  tar,
  /// Shards are text files (JSONL, CSV), plain or compressed by frames of zstd or members of gzip with at most 16 MiB
  /// of text each: each line is a sample of one field, "line", whose key is the file's name, `#` and the line's number
  /// from 0. Lines are those of lines(): LF or CR LF ends them and is no part of them, the last one needs none, and
  /// empty lines are samples.
  lines,
  /// Objects are the samples. Those of one key are one (`a/1.jpg`, `a/1.json`: key "a/1", fields "jpg" and "json"), by
  /// the rule of sample_name. Those without a dot in their names are left out, and so are hidden ones, whose names
  /// begin with a dot; a line in the log reports it.
  objects,
  /// The same, in folders of which each is a class (torchvision's ImageFolder). Samples have the number of their class
  /// as text in a field "cls": folders are numbered from 0 in the order of their names' bytes (dataset::classes()).
  classes,
  /// Each folder is a sample, whose key is its path. Its fields are the objects that lie in it, by their whole names;
  /// hidden ones are left out.
  folders,
  /// Rows of arrays in memory or in mapped files are the samples: those of a dataset of `arrays`, which needs no option
  /// for it. No file of an index is of this format.
  arrays,
  /// Shards are TFRecord files, plain, or compressed by members of gzip, frames of zstd or a stream of zlib: each
  /// record is a sample of one field, "record", whose key is the file's name, `#` and the record's number from 0.
  /// Members and frames with more than 1 MiB of records are groups, which are unpacked as a whole (shard_format says
  /// what that means for order and memory); those with more than 4 GiB are refused. Every CRC32C of a file is compared
  /// when its index is made, and the records' again when they are read. For tf.Example: records/tf_example.hpp.
  tfrecord,
  /// Shards are RecordIO files, as MXNet writes them (`.rec`; its `.idx` is not needed): as tfrecord, but without
  /// checksums of their own. Records of several parts are joined when they are read. For MXNet's header and labels:
  /// records/mx_record.hpp.
  recordio,
  /// Shards are of a format that has a header of its own: a shard_format, which is given in its place (dataset_format).
  described,
};

/// Whether objects are samples, or parts of them, and no shards.
constexpr bool of_objects(sample_format f) noexcept {
  return f >= sample_format::objects && f <= sample_format::folders;
}

/// Whether shards are files of records, each of which is read as a whole.
constexpr bool of_records(sample_format f) noexcept {
  return f == sample_format::lines || f >= sample_format::tfrecord;
}

/// As messages name it.
constexpr const char* format_name(sample_format f) noexcept {
  switch (f) {
    case sample_format::tar: return "tar";
    case sample_format::lines: return "lines";
    case sample_format::objects: return "objects";
    case sample_format::classes: return "classes";
    case sample_format::folders: return "folders";
    case sample_format::arrays: return "arrays";
    case sample_format::tfrecord: return "tfrecord";
    case sample_format::recordio: return "recordio";
    case sample_format::described:
      return "described";
  }
  return "";
}

/// What dataset_options::format takes: a sample_format, or a format that has a header of its own, as its function
/// returns it: `{.format = mill::mds()}`.
class dataset_format {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): options are written so
  constexpr dataset_format(sample_format f = sample_format::tar) noexcept : kind_(f) {}
  template <class Format>
    requires std::is_convertible_v<std::shared_ptr<Format>, std::shared_ptr<const shard_format>>
  // NOLINTNEXTLINE(google-explicit-constructor): options are written so
  dataset_format(std::shared_ptr<Format> shards) noexcept
      : kind_(sample_format::described), shards_(std::move(shards)) {}

  // NOLINTNEXTLINE(google-explicit-constructor): to be compared with one
  operator sample_format() const noexcept { return kind_; }
  /// Null where it is one of the others.
  const std::shared_ptr<const shard_format>& shards() const noexcept { return shards_; }

 private:
  sample_format kind_;
  std::shared_ptr<const shard_format> shards_;
};

}  // namespace millrace
