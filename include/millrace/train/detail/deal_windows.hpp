// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/train/detail/deal_epochs.hpp>
#include <millrace/train/detail/training_plan.hpp>
#include <millrace/train/detail/window_position.hpp>
#include <millrace/train/detail/window_reader.hpp>
#include <millrace/train/equal_batches.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The samples of epochs() without an index.
template <class Sample>
async_generator<Sample> deal_windows(async_generator<shard> list, std::shared_ptr<const storage> store,
                                     std::shared_ptr<const training_plan> asked,
                                     std::shared_ptr<window_position> position, std::shared_ptr<equal_state> equal,
                                     std::shared_ptr<agreement> agreed) {
  const generator_context<Sample> here = co_await this_generator<Sample>();
  executor& ex = here.get_executor();
  const epochs_options& how = asked->options;
  std::shared_ptr<const window_plan> plan;
  std::optional<window_order> first;
  std::exception_ptr failure;  // which the other ranks learn of
  try {
    std::vector<shard> all;
    while (std::optional<shard> s = co_await list.next()) all.push_back(std::move(*s));
    plan = std::make_shared<const window_plan>(std::move(all), *asked);
    if (agreed != nullptr) agreed->learn("the list of shards", plan->list);
    first.emplace(position->begin(plan));
  } catch (...) {
    if (agreed == nullptr) throw;
    failure = std::current_exception();
  }
  list = async_generator<shard>();
  if (agreed != nullptr) co_await agreed->settle(failure);
  log_unchecked_ranks(ex, *asked);
  if (equal != nullptr) equal->list = plan->list;
  window_order begin = std::move(*first);
  if (begin.epoch() < plan->end_epoch) {
    log_rank(how.rank, begin.numbers().size(), plan->shards.size());
  }
  failures bad(how.failures, coroutine_context(ex, here.run(), nullptr), "epochs");
  if (here.stage() != nullptr) here.stage()->reads_within(plan->width, 0, how.bytes, ".bytes");
  window_reader<Sample> reader(std::move(begin), std::move(store), how, position, here);
  const window_order& order = reader.order();
  std::uint64_t given = 0;  // entries of the epoch in this run
  std::uint32_t taken = position->taken();
  while (order.epoch() < plan->end_epoch) {
    reader.open_ahead();
    const bool others_ended = equal != nullptr && equal->over.load(std::memory_order_acquire) > order.epoch();
    if (order.over() || others_ended) {
      reader.next_epoch();
      given = 0;
      continue;
    }
    if (order.pulls()) {
      auto* const from = reader.asked();
      while (from != nullptr && !from->ahead.has_item() && !from->ahead.ended()) co_await reader.changed().wait();
      if (from != nullptr && from->ahead.has_item()) {
        reader.take();
        continue;
      }
      if (const std::exception_ptr broken = from != nullptr ? from->ahead.take_error() : nullptr) {
        if (!bad.forgive(broken, item_place())) break;
        reader.note_loss(broken);
      }
      reader.close();
      continue;
    }
    reader.draw();
    while (!reader.ready()) co_await reader.changed().wait();
    Sample s = reader.leaving();
    bad.succeeded();
    ++given;
    s.mark.position = s.mark.from = order.count() - 1;
    s.mark.next = order.count();
    s.mark.whole = true;
    s.mark.part.taken = std::exchange(taken, 0);
    const bool over = order.over();
    std::uint64_t lacking = 0;
    if (over && equal == nullptr && how.pad) lacking = (how.batch - given % how.batch) % how.batch;
    s.mark.last = over && equal == nullptr && lacking == 0;
    epoch_mark mark = s.mark;
    mark.part.taken = 0;
    co_yield give(s);
    for (; lacking > 0; --lacking) {
      Sample filler;
      mark.position = mark.from = mark.next;
      mark.padding = true;
      mark.last = lacking == 1;
      filler.mark = mark;
      co_yield give(filler);
    }
  }
  bad.finish();
  if (how.failures.report) say_losses(ex, position->lost());
}

template <class Sample>
stream<Sample> windowed_epochs(async_generator<shard> list, std::shared_ptr<const storage> store,
                               std::shared_ptr<const training_plan> plan, std::shared_ptr<agreement> agreed) {
  const epochs_options& options = plan->options;
  const streamed_order& order = *plan->begin.streamed;
  auto position = std::make_shared<window_position>(plan);
  std::shared_ptr<equal_state> equal = begin_equal(*plan);
  async_generator<Sample> samples =
      deal_windows<Sample>(std::move(list), std::move(store), plan, position, equal, std::move(agreed));
  const bool filled = equal != nullptr && !options.uneven;
  if (filled) samples = fill_steps<Sample>(std::move(samples), equal);
  stream<Sample> made = stream<Sample>(std::move(samples)).named("epochs", ".bytes or .shards");
  made = declare_source(std::move(made), options);
  if (filled) made = std::move(made).declares(place_effect::evens, options.batch).batches_of(options.batch);
  return std::move(made)
      .bounded(static_cast<std::size_t>(order.window), static_cast<std::size_t>(order.window_bytes))
      .bounded("epochs, open shards", options.ahead, options.bytes)
      .positioned(position)
      .of_rank(options.rank);
}

}  // namespace millrace::detail
