// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/train/detail/epochs_source.hpp>

namespace millrace::detail {

/// The state of a training that epochs() feeds.
class epochs_position final : public stream_position {
 public:
  explicit epochs_position(const epochs_source& source);

  MILLRACE_INLINE std::string state(const epoch_mark& delivered) const override;
  MILLRACE_INLINE void check_window(std::uint32_t window) const override;
  MILLRACE_INLINE std::optional<std::uint64_t> batches() const override;
  MILLRACE_INLINE training_place place(const epoch_mark& delivered) const override;
  MILLRACE_INLINE std::string plan() const override;
  MILLRACE_INLINE std::vector<lost_shard> lost() const override;

 private:
  std::shared_ptr<const index_set> indexes_;
  std::shared_ptr<const dataset_mix> mix_;  // in place of it
  epochs_request options_;  // without the texts
  std::string chosen_;      // of these, by epochs()
  epoch_state begin_;
  std::uint64_t end_;  // of an epoch
  std::uint64_t batch_;
  std::uint64_t world_;
  bool ranks_end_together_;  // an epoch has not ended before all ranks say so: see equal_batches
  std::shared_ptr<epoch_losses> losses_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/epochs_position.ipp>
#endif
