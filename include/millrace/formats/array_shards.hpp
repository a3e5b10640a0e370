// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include <millrace/base/compiler.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/formats/shard_format.hpp>

namespace millrace::inline MILLRACE_ABI {

struct npy_shards_options {
  /// The type of the elements and the shape of a row, which every shard must have; not said: any.
  std::optional<dtype> type = std::nullopt;
  std::optional<shape> row = std::nullopt;
};

/// Shards are .npy files (`.npy`), whose rows are the samples: x[0], x[1], ... of an array x. A sample has the field
/// "array", the bytes of its row, which are little-endian and row-major; its key is the shard's name, `#` and the row's
/// number. With the options, what the bytes are is known and checked:
///
///     const mill::dataset train(s3, "s3://corpus/x/", {.index = "x.index",
///                                                      .format = mill::npy_shards({.type = mill::dtype::f32})});
///
/// All files have elements of one type: where .type is not said and they differ, a configuration_error names two.
///
/// Errors, when the index is made: decode_error, with the object, for what is no .npy, what parse_npy() refuses, a
/// scalar, another type or shape, and a file that is longer or shorter than its header says. A row has less than 4 GiB.
std::shared_ptr<const shard_format> npy_shards(npy_shards_options options = {});

struct megatron_options {
  /// Whether each sequence is a sample; else each document is, which may have several.
  bool sequences = false;
  /// The type of the tokens, which every file must have; not said: any.
  std::optional<dtype> type = std::nullopt;
};

/// Shards are the `.bin` files of Megatron-LM, with the `.idx` beside each (MMIDIDX, version 1, as its IndexedDataset
/// writes it). Samples are documents, or sequences. A sample has the field "tokens", its tokens of u8, i8, u16, i16,
/// i32 or i64, little-endian; its key is the name of the `.bin`, `#` and its number. Bytes of the `.bin` that no sample
/// has are not read when training.
///
/// All files have tokens of one type: where .type is not said and they differ, a configuration_error names two.
///
/// While the index is made all `.idx` files are in memory; over a network they are read twice and compared. Errors:
/// configuration_error for a `.bin` without an `.idx`; archive_error, with the `.idx` and the byte, for sizes, pointers
/// and documents that lie: beyond the end of the `.bin`, overlapping, in another order than that of their bytes;
/// decode_error for other versions, types and files.
MILLRACE_COROUTINE std::shared_ptr<const shard_format> megatron(megatron_options options = {});

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/array_shards.ipp>
#endif
