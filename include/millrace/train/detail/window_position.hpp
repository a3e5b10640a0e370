// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/train/detail/epoch_losses.hpp>
#include <millrace/train/detail/training_plan.hpp>
#include <millrace/train/detail/window_order.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The shards that have been read, by their numbers in the list: with the ETag and the size that were found.
using known_shards = std::map<std::uint64_t, shard>;

/// Writes the place of `order` into a streamed state.
void note_place(epoch_state& state, const window_order& order, const known_shards& known);
/// The order at the place of a streamed state, of a plan that was checked; what the state says of shards is added to
/// `known`. configuration_error for a place that is not of this list, changed_error for a shard that the list says to
/// be another version.
window_order order_at(const epoch_state& state, std::shared_ptr<const window_plan> plan, known_shards& known);

/// The position of a training without an index. The stream's loop records the changes of its order; those that were
/// delivered are applied to a second order, which has the position after the batch that was last taken, whatever was
/// made ahead.
class window_position final : public stream_position {
 public:
  explicit window_position(std::shared_ptr<const training_plan> asked);

  // The stream's side, on its loop.

  /// The list is known: the order, where it begins. Errors: those of epoch_state::check() and order_at().
  window_order begin(std::shared_ptr<const window_plan> plan);
  void note(const window_order::event& e);
  /// A sample of the shard has been read: this version.
  void note_version(std::uint64_t number, const origin& from);
  /// The shard as the list, or an earlier reading of it, says it.
  shard version_of(std::uint64_t number) const;
  void note_loss(std::uint64_t number, const window_order& at, const std::string& reason);

  /// held_part::taken of the first sample.
  std::uint32_t taken() const noexcept { return asked_->saved ? static_cast<std::uint32_t>(asked_->saved->taken) : 0; }

  // The training's side.

  MILLRACE_INLINE std::string state(const epoch_mark& delivered) const override;
  MILLRACE_INLINE void check_window(std::uint32_t window) const override;
  MILLRACE_INLINE void passed(const epoch_mark& delivered) const override;
  MILLRACE_INLINE std::optional<std::uint64_t> batches() const override;
  MILLRACE_INLINE training_place place(const epoch_mark& delivered) const override;
  MILLRACE_INLINE std::string plan() const override;
  MILLRACE_INLINE std::vector<lost_shard> lost() const override;

 private:
  /// The most that is kept if passed() is never called: 16 MB.
  static constexpr std::size_t most_noted = std::size_t{1} << 20;

  void advance_to(const epoch_mark& delivered) const;  // under order_mutex_
  void fold();

  /// The state at the beginning of an epoch.
  epoch_state begin_of(const window_plan& plan, std::uint64_t epoch) const;

  const std::shared_ptr<const training_plan> asked_;
  std::shared_ptr<const window_plan> plan_;  // of the stream's loop

  mutable std::mutex known_mutex_;  // this one and the next are taken after order_mutex_, and not for long
  known_shards known_;
  mutable std::mutex noted_mutex_;
  mutable std::vector<window_order::event> noted_;

  mutable std::mutex order_mutex_;
  mutable std::deque<window_order::event> ahead_;  // of the second order
  mutable std::unique_ptr<window_order> order_;    // null: the list is not known
  mutable epoch_losses losses_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/window_position.ipp>
#endif
