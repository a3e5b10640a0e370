// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A feature of a tf.Example: a name and a list of values of one kind.
class tf_feature {
 public:
  enum class kind : unsigned char {
    none,     ///< the feature has no list
    strings,  ///< a BytesList
    floats,
    int64s,
  };

  std::string name;
  kind of = kind::none;
  std::vector<bytes> strings;  ///< slices of the record
  std::vector<float> floats;
  std::vector<std::int64_t> int64s;
};

/// A feature list of a tf.SequenceExample: a feature for each step. These have no names of their own.
class tf_feature_list {
 public:
  std::string name;
  std::vector<tf_feature> steps;
};

/// A record of a TFRecord file, read as tf.Example or tf.SequenceExample: as TensorFlow's own reader does, but for a
/// record with groups (wire types 3 and 4, which no writer makes), which is refused. Byte strings are slices of the
/// record and keep its memory; numbers are copied.
///
///     const mill::tf_example e(s["record"], s.from.at(s.key));
///     const std::vector<std::int64_t>& tokens = e["tokens"].int64s;
class tf_example {
 public:
  tf_example() = default;
  /// With `names`, only features and lists of these names are read; one that is not there is not an error here. Errors
  /// name `at`. Throws decode_error, which names the byte of the record, if it is no such message.
  explicit tf_example(const bytes& record, where at = where(), const std::vector<std::string>& names = {});

  /// Sorted by the bytes of their names, each name once. A tf.SequenceExample has those of its context.
  const std::vector<tf_feature>& features() const noexcept { return features_; }
  /// The feature lists of a tf.SequenceExample, sorted in the same way; a tf.Example has none.
  const std::vector<tf_feature_list>& lists() const noexcept { return lists_; }

  /// Null if there is none of this name. Valid as long as the example.
  const tf_feature* find(std::string_view name) const noexcept;
  const tf_feature_list* find_list(std::string_view name) const noexcept;
  /// A decode_error, which names those that were read, where there is none of this name.
  const tf_feature& operator[](std::string_view name) const;

 private:
  class reader;

  std::vector<tf_feature> features_;
  std::vector<tf_feature_list> lists_;
  where at_;
};

namespace detail {

/// The kinds that features of given names have had first, and where. Thread-safe.
class tf_kinds {
 public:
  explicit tf_kinds(std::size_t names) : all_(names) {}
  /// Throws decode_error if name `i`, which is `name`, is of another kind in another record. `kind::none` is of any.
  void compare(std::size_t i, const std::string& name, tf_feature::kind is, const sample& s);

 private:
  struct one {
    std::atomic<tf_feature::kind> is{tf_feature::kind::none};
    std::string place;
  };
  std::mutex mutex_;
  std::vector<one> all_;
};

}  // namespace detail

/// Makes the features of a record the fields of its sample, for stages that look for fields by name:
///
///     mill::epochs(records, how) | mill::map(mill::tf_fields({"image/encoded", "image/class/label"}))
///         | mill::decode_images({.field = "image/encoded", .label = "image/class/label"})
///
/// The field "record" leaves the sample. In its place come, by the kind of the feature:
///
/// - byte strings: a field for each value, a slice of the record. The first has the feature's name, the others have the
///   name, `#` and their number: "x", "x#1", "x#2".
/// - integers: one field, the values as decimal text with a blank between them, as a field "cls" has a label.
/// - floats: one field, the values as little-endian float32, one after the other.
///
/// A feature without a list, and a list of no byte strings, is no field. In a tf.SequenceExample the context's features
/// come first; each feature list is then written as one feature that has the values of all steps, integers with a line
/// feed between two steps.
///
/// With `names`, only features and lists of these names become fields. One that is not there is a decode_error, and so
/// is one of another kind than in the record that this object or a copy of it has read first; the error names both.
/// Thread-safe; for map() or map_concurrent(). Entries of weight 0 are left as they are. Errors: decode_error, as of
/// tf_example, with the sample's place, for a sample without a field "record", for steps of one list that are of
/// several kinds, and for a field that would have the name of another one: a feature "x#1" beside the second value of
/// "x".
class tf_fields {
 public:
  explicit tf_fields(std::vector<std::string> names = {})
      : names_(std::move(names)), kinds_(std::make_shared<detail::tf_kinds>(names_.size())) {}
  sample operator()(sample s) const;

 private:
  void check_names(const tf_example& all, const sample& s) const;

  std::vector<std::string> names_;
  std::shared_ptr<detail::tf_kinds> kinds_;  // of these names
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/records/tf_example.ipp>
#endif
