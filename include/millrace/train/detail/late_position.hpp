// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/train/detail/epochs_position.hpp>
#include <millrace/train/detail/epochs_request.hpp>

namespace millrace::detail {

/// The state of a training whose index is not known before its stream runs: until then that of its beginning.
class late_position final : public stream_position {
 public:
  /// Of a mix, the text of the beginning is empty.
  explicit late_position(const epochs_request& options, bool of_mix = false);
  /// The index is known.
  void become(std::shared_ptr<const epochs_position> position);

  MILLRACE_INLINE std::string state(const epoch_mark& delivered) const override;
  MILLRACE_INLINE void check_window(std::uint32_t window) const override;
  MILLRACE_INLINE std::optional<std::uint64_t> batches() const override;
  MILLRACE_INLINE training_place place(const epoch_mark& delivered) const override;
  MILLRACE_INLINE std::string plan() const override;
  MILLRACE_INLINE std::vector<lost_shard> lost() const override;

 private:
  std::shared_ptr<const epochs_position> known() const;

  std::string beginning_;
  std::uint64_t batch_, world_;
  mutable std::mutex mutex_;
  std::shared_ptr<const epochs_position> known_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/late_position.ipp>
#endif
