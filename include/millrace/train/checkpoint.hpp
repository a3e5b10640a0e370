// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/formats/safetensors.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The checkpoints of a training, in safetensors, below one folder of a store:
///
///     const mill::checkpoints saved(s3, "s3://runs/17/", mine);
///     block_on(*loop, saved.write(step, {{"weight", view, first_row, rows}}));   // each rank
///     ranks.gather_now({step}, "a checkpoint");                                  // all have written
///     if (mine.index == 0) block_on(*loop, saved.commit(step, run.state(), 3));  // one
///
/// Each rank writes `step-000123/model-00001-of-00008.safetensors`, whole tensors or rows of them. commit() stores
/// `step-000123/model.safetensors.index.json` last: a checkpoint is there when its index is, with the loader's state
/// and the headers of all files in it, and is never changed then. What a killed training leaves without an index is not
/// seen, and is removed when a later step is committed with `keep`. Any number of ranks reads any rows. Of whole
/// tensors alone the folder is a model as Hugging Face keeps it; rows are as in PyTorch's distributed checkpoints
/// (HuggingFaceStorageReader).
///
/// Tasks are for any loop and must end before the object goes. Dropping one ends its transfers.
class checkpoints {
 public:
  /// `folder` ends with a slash. configuration_error if not, and for a store that cannot be written to.
  template <class Store>
  checkpoints(const Store& store, std::string folder, const rank& mine = rank())
      : checkpoints(detail::storage_of(store), std::move(folder), mine) {}
  checkpoints(std::shared_ptr<const storage> store, std::string folder, const rank& mine = rank());

  /// Stores this rank's file. Every rank calls it, also without tensors. changed_error if the step is complete.
  MILLRACE_COROUTINE task<void> write(std::uint64_t step, std::vector<tensor_slice> tensors) const;

  /// Makes the checkpoint complete. Call it once, after write() has ended on all ranks. The headers of all files are
  /// read: archive_error for rows that are in no file or in two, configuration_error for a rank's file that is not
  /// there, changed_error if the step was complete; the checkpoint is not seen then. `state`: run.state(), or any text
  /// in UTF-8. With `keep`, the newest so many remain: then older ones are removed, their indexes first, and older
  /// leftovers without an index.
  MILLRACE_COROUTINE task<void> commit(std::uint64_t step, std::string state, std::size_t keep = 0) const;

  /// The steps of complete checkpoints, ascending. One listing.
  MILLRACE_COROUTINE task<std::vector<std::uint64_t>> complete() const;

  /// Reads the index of a complete checkpoint, by four requests at most; its tensor_files::state() is the loader's.
  MILLRACE_COROUTINE task<tensor_files> open(std::uint64_t step) const;

 private:
  /// The folder of a step.
  std::string url(std::uint64_t step) const;
  MILLRACE_COROUTINE task<void> remove_older(std::uint64_t newest, std::size_t keep) const;

  std::shared_ptr<const storage> store_;
  std::string folder_;
  rank mine_;
};

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/checkpoint.ipp>
#endif
