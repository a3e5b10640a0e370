// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A record of a RecordIO file as MXNet packs it (mx.recordio.pack(), im2rec): a header of 24 bytes (IRHeader), labels,
/// and the packed data.
class mx_record {
 public:
  mx_record() = default;
  /// Errors name `at`. Throws decode_error for a record that is shorter than its header says.
  explicit mx_record(const bytes& record, const where& at = where());

  std::vector<float> labels;  ///< one where the header has it, or as many as its flag says
  std::uint64_t id = 0;
  std::uint64_t id2 = 0;
  bytes data;  ///< a slice of the record
};

/// Makes fields of a sample's field "record", which leaves it, for map() or map_concurrent():
///
///     mill::epochs(records, how) | mill::map(mill::mx_fields()) | mill::decode_images({.height = 224, .width = 224})
///
/// - "data": the packed data, an image mostly.
/// - "label": the labels, as little-endian float32, one after the other.
/// - "cls": the label as decimal text, only where there is exactly one and it is a whole number.
///
/// Thread-safe. Entries of weight 0 are left as they are. Errors: decode_error, as of mx_record, with the sample's
/// place, and for a sample without a field "record".
class mx_fields {
 public:
  sample operator()(sample s) const;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/records/mx_record.ipp>
#endif
