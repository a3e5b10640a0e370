// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <millrace/base/clock.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/base/short_text.hpp>
#include <millrace/base/units.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/sign/signing_request.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// The result of HeadObject, which also comes with the bytes of GetObject.
class object_info {
 public:
  std::uint64_t size = 0;  ///< of the whole object
  std::string etag;        ///< quotes included; empty when the store sends none
  std::string encoding;    ///< Content-Encoding of the object; empty when the store sends none
};

/// Bytes of an object, with the version they belong to.
class object_part {
 public:
  bytes data;
  object_info object;
  bool again = false;  ///< it had come damaged, and was read once more
  bool whole = false;  ///< asked for as a whole, and compared with the checksum that the store keeps, if it keeps one
  duration first_byte{0};  ///< from the request to the head of its answer: of the last request, if there were several
  duration held{0};        ///< before that request, while the store asked for fewer
  running_crc crc;  ///< of `data`; of kind none, or of fewer bytes, if it was not computed on the way
};

/// How a part of an object is requested; see get_object_range(). Trivially destructible, so that it may be spelled in
/// the argument of a co_await: `co_await s3.get(url, 0, n, etag, slabs, {.size = n})`.
struct get_options {
  /// The size of the object. An object of one part is then requested as a whole and compared with the checksum that the
  /// store keeps of it.
  std::optional<std::uint64_t> size = std::nullopt;
  /// The size is not known, and is likely at most the length of the part: the object is requested as a whole likewise,
  /// and by the range if it is longer.
  bool likely_whole = false;
  bool new_connection = false;  ///< the first request has a connection of its own, as those after damage have
};

/// How objects are listed; see list_objects().
struct list_options {
  /// Ranges of the keys that are listed side by side, at most. 1: one page after the other, for a store whose order of
  /// keys is not that of their bytes; others cannot always tell that it is not.
  std::size_t ranges = 16;
};

/// How an object is stored. The metadata are copied by the call that takes the options, and must live until then.
struct put_options {
  std::size_t part = 8 * MiB;     ///< bytes of one part: 5 MiB to 5 GiB at AWS, and at most 10,000 parts
  std::size_t parts = 4;          ///< held at once: the one that is being filled and those on their way
  std::size_t window = 64 * MiB;  ///< bytes of those; one part is always held
  /// Length of the stream, if it is known: parts become large enough for it, and a stream of another length is an error
  /// instead of an object.
  std::optional<std::uint64_t> size = std::nullopt;
  /// An object of that name is left alone: 412 PreconditionFailed. After an attempt whose answer was lost, an object of
  /// the same content counts as that attempt's.
  bool only_new = false;
  /// The object is replaced only while it has this ETag: else 412 PreconditionFailed, and 404 NoSuchKey where there is
  /// none. After an attempt whose answer was lost as with only_new.
  short_text<256> if_match = {};
  /// Each request carries the CRC-32C of its body, which the store checks and keeps; absent: as the client is
  /// configured (config::send_checksums).
  std::optional<bool> checksums = std::nullopt;
  short_text<256> content_type = {};
  std::span<const header_field> metadata = {};  ///< kept with the object as x-amz-meta-NAME; printable ASCII
};

}  // namespace millrace::s3
