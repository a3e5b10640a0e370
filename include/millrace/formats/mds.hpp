// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI {

struct mds_options {
  /// The columns that samples get as fields, in this order. Empty: all of them, in the order of the shard.
  std::vector<std::string> columns = {};
};

/// MosaicML's MDS shards, as streaming.MDSWriter of mosaicml-streaming writes them (version 2), in place:
///
///     mill::dataset train(s3, "s3://corpus/mds/", {.index = "train.index", .format = mill::mds()});
///
/// Samples have a field for each column, named as the column is, with the bytes of the column's encoding: those of
/// "bytes", "str", "json", "jpeg", "png", "pkl" (which is never unpickled) and of str_int, str_float and str_decimal
/// are what they are; mds_int(), mds_float(), mds_array() and mds_image() read the others. A sample's key is the
/// shard's name, `#` and its number in it.
///
/// All shards below the prefix are read, of folders with an index.json each, or of one that names shards in folders
/// below it, as merge_index() writes it. Several streams in proportion are a dataset each, in a mix. When the index is
/// made all of a shard is read: its sizes and numbers of samples must be those of index.json, and its hashes, where
/// that has some that can be computed here: md5, sha1, sha2, sha3 and blake2, where the component s3 is compiled in,
/// which brings OpenSSL. A line in the log says which ones are not compared (xxh64 and its kin), and where there is no
/// index.json: shards describe themselves. A shard that its index.json does not name, or that is named and not there,
/// is an error.
///
/// Shards that are compressed as a whole, by zstd or gzip, are unpacked as a whole whenever some of their samples are
/// needed: they count for epochs_options::bytes with their unpacked size, and a slice is by default as long as a shard
/// (order_options::slice), which is read by two of them in an epoch. Needs the component tar. br, bz2 and snappy are
/// refused. Where a shard is there compressed and raw, the raw one is read.
///
/// All shards have the same columns, of the same encodings: where they differ, a configuration_error names two shards.
///
/// Errors: archive_error for damaged shards, decode_error for what cannot be read, and configuration_error for a column
/// that is not there; each with the object.
MILLRACE_COROUTINE std::shared_ptr<const shard_format> mds(mds_options options = {});

/// What a field of MDS contains. `encoding` is that of the column: "int", "uint8", "float32", "ndarray:float32:3,4",
/// "pil". Errors: decode_error at `at` for a field that is too short or too long for it, and configuration_error for
/// an encoding that is of another kind.
///
/// Of int, int8 to int64, uint8 to uint32 and str_int; of uint64 below 2^63, else a decode_error.
std::int64_t mds_int(const bytes& field, std::string_view encoding, const where& at = where());
/// Of float16, float32, float64 and str_float.
double mds_float(const bytes& field, std::string_view encoding, const where& at = where());
/// Of ndarray, with and without a fixed type and shape: `ndarray`, `ndarray:uint8`, `ndarray:uint8:28,28`. Shares the
/// field's memory where that is aligned.
array mds_array(const bytes& field, std::string_view encoding, const where& at = where());

/// An image of the encoding "pil": raw pixels, row by row.
class mds_pixels {
 public:
  mds_pixels() = default;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::string mode;  ///< as PIL calls it: "RGB", "L"
  bytes pixels;      ///< a slice of the field
};
mds_pixels mds_image(const bytes& field, const where& at = where());

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/mds.ipp>
#endif
