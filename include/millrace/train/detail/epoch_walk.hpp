// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <millrace/data/epoch_mark.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/order/sample_mix.hpp>
#include <millrace/order/sample_order.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The end of an epoch of `samples` of which each of `world` ranks takes `batches` batches; 0: all.
inline std::uint64_t end_of_epoch(std::uint64_t samples, std::uint64_t batch, std::uint64_t world,
                                  std::uint64_t batches) noexcept {
  return batches == 0 || batches >= steps_from(samples, 0, batch, world) ? samples : batches * batch * world;
}

/// The marks of the samples that one rank takes, one after the other, step by step and epoch by epoch, from any
/// position on. Nothing is materialised but the positions of one step.
class epoch_walk {
 public:
  class dataset {
   public:
    std::shared_ptr<const shard_counts> counts;  // of one sample at least
    std::shared_ptr<const sample_selection> selection;
    order_options order;                         // with its own tracks
    std::uint64_t seed = 0;                      // of its order
  };
  class plan {
   public:
    std::vector<dataset> sets;
    std::shared_ptr<const sample_mix> mix;  // null: there is one
    std::uint64_t tracks = 0;               // of all
    std::uint64_t seed = 0;
    std::uint64_t batch = 1;
    std::uint64_t index = 0;  // of the rank
    std::uint64_t world = 1;
    std::uint64_t hosts = 1;
    bool pad = true;
    std::uint64_t begin_epoch = 0;
    std::uint64_t begin = 0;      // the position there
    std::uint32_t taken = 0;      // held_part::taken of the first entry
    std::uint64_t end = 0;        // of every epoch: a position, or one after the last
    std::uint64_t end_epoch = 0;  // after the last one
  };

  explicit epoch_walk(plan p)
      : plan_(std::move(p)),
        share_(plan_.tracks, plan_.index, plan_.world, plan_.hosts),
        orders_(plan_.sets.size()),
        epoch_(plan_.begin_epoch),
        reached_(plan_.begin),
        taken_(plan_.taken) {}

  /// The next entry; false after the last epoch.
  bool next(epoch_mark& out) {
    while (given_ == entries_) {
      if (reached_ >= plan_.end) {
        ++epoch_;
        reached_ = 0;
      }
      if (epoch_ >= plan_.end_epoch) return false;
      begin_step();
    }
    out = epoch_mark();
    out.known = true;
    out.seed = plan_.seed;
    out.epoch = epoch_;
    out.padding = given_ >= mine_.size();
    out.position = out.padding ? plan_.end : mine_[given_];
    ++given_;
    out.whole = plan_.world == 1 || given_ == entries_;
    out.next = plan_.world == 1 && !out.padding ? out.position + 1 : reached_;
    out.from = plan_.world == 1 ? out.position : step_.begin;
    out.part.taken = std::exchange(taken_, 0);
    out.last = given_ == entries_ && reached_ == plan_.end;
    return true;
  }

  /// The place of a sample in its data set.
  class place {
   public:
    std::size_t set = 0;
    std::uint64_t epoch = 0;              // of the data set
    const sample_order* order = nullptr;  // its order in that; lives until a sample of another one is asked for
    std::uint64_t track = 0;              // of that order
    std::uint64_t number = 0;             // in the track
  };
  /// The place of the entry given last, or of a later one; not of padding.
  place place_of(const epoch_mark& entry) {
    sample_mix::place at{0, entry.epoch, entry.position};
    if (plan_.mix != nullptr) at = plan_.mix->at(entry.epoch, entry.position);
    ordered& o = orders_[at.dataset];
    if (o.order == nullptr || o.epoch != at.epoch) {
      const dataset& set = plan_.sets[at.dataset];
      o.order = std::make_unique<const sample_order>(set.counts, set.seed, at.epoch, set.order, set.selection);
      o.epoch = at.epoch;
    }
    const std::uint64_t tracks = o.order->tracks();
    return {at.dataset, at.epoch, o.order.get(), at.position % tracks, at.position / tracks};
  }
  /// The position at which its step begins.
  std::uint64_t step_begin() const noexcept { return step_.begin; }

 private:
  class ordered {
   public:
    std::unique_ptr<const sample_order> order;
    std::uint64_t epoch = 0;
  };

  void begin_step() {
    step_ = step_at(plan_.end, reached_, plan_.batch, plan_.world);
    share_.positions(step_, mine_);
    reached_ = step_.begin + step_.count;
    given_ = 0;
    entries_ = plan_.pad ? static_cast<std::size_t>(plan_.batch) : mine_.size();
  }

  const plan plan_;
  const rank_share share_;
  std::vector<ordered> orders_;  // the latest of each data set
  std::uint64_t epoch_;
  std::uint64_t reached_;  // by all ranks, when the step is done
  std::uint32_t taken_;
  order_step step_;
  std::vector<std::uint64_t> mine_;
  std::size_t given_ = 0;
  std::size_t entries_ = 0;
};

}  // namespace millrace::detail
