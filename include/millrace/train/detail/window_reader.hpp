// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/order/shard_deal.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/train/detail/held_samples.hpp>
#include <millrace/train/detail/window_order.hpp>
#include <millrace/train/detail/window_position.hpp>
#include <millrace/train/epochs_options.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

template <class Shard>
async_generator<Shard> one_shard(Shard s) {
  co_yield give(s);
}

/// The samples of a shard from `offset` on, where the sample number `ordinal` begins. `group`: as of fetch_chunks().
template <class Sample>
async_generator<Sample> samples_of(shard s, std::shared_ptr<const storage> store, fetch_options options,
                                   std::uint64_t offset, std::uint64_t ordinal, std::shared_ptr<fetch_group> group) {
  tar::reader_options how;
  how.start = offset;
  auto chunks =
      detail::fetch_chunks(one_shard<shard>(std::move(s)), std::move(store), options, offset, std::move(group));
  return detail::group_members(detail::untar_plain_members(std::move(chunks), how), ordinal);
}

/// The reader of epochs() without an index: the open shards, the next few in the order, and the window of their
/// samples. After a resume, held_samples reads what the window held.
template <class Sample = sample>
class window_reader {
 public:
  class open_shard {
   public:
    open_shard(generator_context<Sample> here, async_generator<Sample> samples, std::size_t items,
               std::size_t byte_count, notifier& arrived)
        : ahead(here, std::move(samples), items, byte_count, arrived) {}
    read_ahead<Sample> ahead;
    bool known = false;  // its version has been noted
  };

  window_reader(window_order order, std::shared_ptr<const storage> store, const epochs_options& options,
                std::shared_ptr<window_position> position, generator_context<Sample> here)
      : order_(std::move(order)),
        store_(std::move(store)),
        options_(options),
        position_(std::move(position)),
        here_(here),
        slots_(order_.held().size()),
        ahead_epoch_(order_.epoch()),
        first_(order_.places().empty() ? nullptr : std::make_shared<fetch_group>(order_.places().size())),
        held_(order_, store_, options_, position_, here, changed_) {
    for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].again = held_.at(i);
  }
  window_reader(const window_reader&) = delete;
  window_reader& operator=(const window_reader&) = delete;

  const window_order& order() const noexcept { return order_; }
  notifier& changed() noexcept { return changed_; }

  /// Opens the shards that are read now, and the next few; these after the first batch, so that they take nothing from
  /// it, unless one of the others ends soon.
  void open_ahead() {
    if (std::exchange(opened_, true)) return;
    if (order_.over()) {
      if (ahead_epoch_ == order_.epoch()) next_ahead();
    } else {
      for (const window_order::place& p : order_.places()) {
        if (!at_end(p)) open(order_.epoch(), p, order_.shard_of(p));
      }
    }
    if (spares_wait()) return;
    if (ahead_epoch_ == order_.epoch()) ahead_number_ = std::max(ahead_number_, order_.next_number());
    while (open_.size() < most_open() && ahead_epoch_ < order_.plan().end_epoch) {
      const std::vector<std::size_t>& numbers = ahead_epoch_ == order_.epoch() ? order_.numbers() : ahead_numbers_;
      if (ahead_number_ >= numbers.size()) {
        next_ahead();
        continue;
      }
      window_order::place p;
      p.number = ahead_number_;
      open(ahead_epoch_, p, numbers[static_cast<std::size_t>(ahead_number_)]);
      ++ahead_number_;
    }
  }

  /// The shard of order().asked(): null if nothing of it is left to read.
  open_shard* asked() noexcept {
    const auto found = open_.find({order_.epoch(), order_.asked().number});
    return found == open_.end() ? nullptr : found->second.get();
  }
  /// Its next sample, which has come, goes into the window.
  void take() {
    open_shard& from = *asked();
    Sample s = std::move(from.ahead.yielding());
    from.ahead.pop();
    if (s.from.end <= s.from.offset) {
      throw archive_error("samples of this archive cannot be found again by their place", s.from.at(s.key));
    }
    if (!std::exchange(from.known, true)) position_->note_version(order_.shard_of(order_.asked()), s.from);
    position_->note(window_order::event::taken(s.from.offset, s.from.end));
    order_.take(s.from.offset, s.from.end);
    slots_.emplace_back();
    slots_.back().item.emplace(compact_slices(std::move(s)));
  }
  /// It has no more.
  void close() {
    opened_ = false;
    open_.erase({order_.epoch(), order_.asked().number});
    position_->note(window_order::event::shard_ended());
    order_.shard_ended();
  }
  void note_loss(const std::exception_ptr& failure) {
    position_->note_loss(order_.shard_of(order_.asked()), order_, reason_of(failure));
  }

  /// The next sample of the order leaves the window: it is here when ready().
  void draw() {
    position_->note(window_order::event::drawn());
    const std::size_t at = order_.draw();
    leaving_ = std::move(slots_[at]);
    if (at + 1 != slots_.size()) slots_[at] = std::move(slots_.back());
    slots_.pop_back();
    if (drawn_ < options_.batch && ++drawn_ == options_.batch) opened_ = false;
  }
  bool ready() const noexcept { return leaving_.item || leaving_.again->ready(); }
  Sample leaving() { return leaving_.item ? std::move(*leaving_.item) : leaving_.again->take(); }

  void next_epoch() {
    position_->note(window_order::event::next_epoch());
    order_.next_epoch();
    opened_ = false;
    slots_.clear();
    leaving_ = slot();
    held_.clear();
    open_.erase(open_.begin(), open_.lower_bound({order_.epoch(), 0}));
    if (ahead_epoch_ < order_.epoch()) next_ahead();
  }

 private:
  static constexpr std::size_t spare = 2;  // shards that are opened before their turn

  class slot {
   public:
    std::optional<Sample> item;
    std::optional<typename held_samples<Sample>::place> again;  // where it is read again: no item
  };

  bool spares_wait() const {
    if (drawn_ >= options_.batch || order_.over()) return false;
    return std::all_of(order_.places().begin(), order_.places().end(), [&](const window_order::place& p) {
      const shard s = position_->version_of(order_.shard_of(p));
      return s.size && p.offset < *s.size && *s.size - p.offset > bytes_of_shard();
    });
  }
  std::size_t bytes_of_shard() const noexcept { return options_.bytes / most_open(); }
  std::size_t most_open() const noexcept { return added(order_.plan().width, spare); }
  bool at_end(const window_order::place& p) const {
    if (p.offset == 0 || open_.count({order_.epoch(), p.number}) != 0) return false;
    const shard s = position_->version_of(order_.shard_of(p));
    return s.size && p.offset >= *s.size;
  }
  void next_ahead() {
    ahead_epoch_ = std::max(ahead_epoch_ + 1, order_.epoch());
    ahead_number_ = 0;
    const window_plan& plan = order_.plan();
    if (ahead_epoch_ == order_.epoch() || ahead_epoch_ >= plan.end_epoch) return;
    ahead_numbers_ = shard_deal(plan.shards, plan.seed, ahead_epoch_, plan.rank.world_size).of_rank(plan.rank.index);
  }
  void open(std::uint64_t epoch, const window_order::place& p, std::size_t number) {
    std::unique_ptr<open_shard>& at = open_[{epoch, p.number}];
    if (at != nullptr) return;
    shard s = stamped(position_->version_of(number), order_.plan().seed, epoch);
    if (!store_->serves(s.url)) {
      throw configuration_error("no store is configured for this URL", where{s.shown(), std::nullopt, {}});
    }
    const std::size_t share = bytes_of_shard();
    fetch_options how;
    how.shards = 1;
    how.part = std::max<std::size_t>(64 * KiB, std::min(options_.part, share / 4));
    how.window = share / 2;
    at = std::make_unique<open_shard>(
        here_, samples_of<Sample>(std::move(s), store_, how, p.offset, p.ordinal, drawn_ == 0 ? first_ : nullptr),
        std::max<std::size_t>(1, options_.ahead / most_open()), share / 4, changed_);
  }

  window_order order_;
  const std::shared_ptr<const storage> store_;
  const epochs_options options_;
  const std::shared_ptr<window_position> position_;
  const generator_context<Sample> here_;
  notifier changed_;
  std::vector<slot> slots_;  // as order_.held()
  slot leaving_;
  bool opened_ = false;        // all that is to be open is
  std::uint64_t drawn_ = 0;    // in this run, until it is a batch
  std::uint64_t ahead_epoch_;  // the next shard to open
  std::uint64_t ahead_number_ = 0;
  std::vector<std::size_t> ahead_numbers_;  // of that epoch, where it is not the order's
  const std::shared_ptr<fetch_group> first_;  // the shards that the run begins with
  // Declared last: their tasks refer to all of the above.
  held_samples<Sample> held_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::unique_ptr<open_shard>> open_;  // by epoch and number
};

}  // namespace millrace::detail
