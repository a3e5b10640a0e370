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
#include <millrace/train/detail/epoch_losses.hpp>
#include <millrace/train/detail/training_plan.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The position of a training with an index. While that is not known, before the stream runs, it is the beginning.
class epochs_position final : public stream_position {
 public:
  /// `plan`: with the indexes where they were given; else as asked for. `of_mix`: until its indexes are known, there is
  /// no state of its beginning.
  epochs_position(std::shared_ptr<const training_plan> plan, bool of_mix);
  /// The indexes are known. The stream's loop calls it.
  void become(std::shared_ptr<const training_plan> plan);
  /// The stream's loop adds to them.
  const std::shared_ptr<epoch_losses>& losses() const noexcept { return losses_; }

  MILLRACE_INLINE std::string state(const epoch_mark& delivered) const override;
  MILLRACE_INLINE void check_window(std::uint32_t window) const override;
  MILLRACE_INLINE std::optional<std::uint64_t> batches() const override;
  MILLRACE_INLINE training_place place(const epoch_mark& delivered) const override;
  MILLRACE_INLINE std::string plan() const override;
  MILLRACE_INLINE std::vector<lost_shard> lost() const override;

 private:
  std::shared_ptr<const training_plan> now() const;

  const std::string beginning_;
  const std::shared_ptr<epoch_losses> losses_ = std::make_shared<epoch_losses>();
  mutable std::mutex mutex_;
  std::shared_ptr<const training_plan> plan_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/epochs_position.ipp>
#endif
