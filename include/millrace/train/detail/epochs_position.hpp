// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/train/detail/epochs_request.hpp>
#include <millrace/train/detail/epochs_source.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The state of a training with an index. Where that is not known before the stream runs, it is until then the state
/// of the beginning.
class epochs_position final : public stream_position {
 public:
  explicit epochs_position(const epochs_source& source)
      : beginning_(source.begin.text()), batch_(source.walk.batch), world_(source.walk.world) {
    become(source);
  }
  /// Without an index as yet. Of a mix, the text of the beginning is empty.
  epochs_position(const epochs_request& options, bool of_mix);
  /// The index is known. The stream's loop calls it.
  void become(const epochs_source& source);

  MILLRACE_INLINE std::string state(const epoch_mark& delivered) const override;
  MILLRACE_INLINE void check_window(std::uint32_t window) const override;
  MILLRACE_INLINE std::optional<std::uint64_t> batches() const override;
  MILLRACE_INLINE training_place place(const epoch_mark& delivered) const override;
  MILLRACE_INLINE std::string plan() const override;
  MILLRACE_INLINE std::vector<lost_shard> lost() const override;

 private:
  struct training {
    std::shared_ptr<const index_set> indexes;
    std::shared_ptr<const dataset_mix> mix;  // in place of it
    epochs_request options;                  // without the texts
    std::string chosen;                      // of these, by epochs()
    epoch_state begin;
    std::uint64_t end;        // of an epoch
    bool ranks_end_together;  // an epoch has not ended before all ranks say so: see equal_batches
    std::shared_ptr<epoch_losses> losses;
  };
  std::shared_ptr<const training> known() const;

  std::string beginning_;
  const std::uint64_t batch_;
  const std::uint64_t world_;
  mutable std::mutex mutex_;
  std::shared_ptr<const training> known_;  // null: the index is not known
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/epochs_position.ipp>
#endif
