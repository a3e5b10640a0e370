// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/train/detail/agreement.hpp>
#include <millrace/train/detail/epoch_losses.hpp>
#include <millrace/train/detail/epoch_reader.hpp>
#include <millrace/train/detail/training_plan.hpp>
#include <millrace/train/epochs_options.hpp>
#include <millrace/train/equal_batches.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The samples of a plan whose indexes are known. `losses`: of its position; `equal`: of begin_equal(); `agreed`: with
/// the other ranks, before anything is read. The last two may be null.
template <class Sample>
async_generator<Sample> deal_epochs(std::shared_ptr<const training_plan> plan, std::shared_ptr<epoch_losses> losses,
                                    std::shared_ptr<equal_state> equal, std::shared_ptr<agreement> agreed) {
  const coroutine_context here = co_await this_context();
  executor& ex = here.get_executor();
  if (agreed != nullptr) co_await agreed->settle(nullptr);
  if (equal != nullptr) equal->list = plan->begin.index;
  log_unchecked_ranks(ex, *plan);
  const failure_policy policy = plan->options.failures;
  // Losses are items that are yielded, and counted by shard: not in the stage's metrics.
  failures bad(policy, coroutine_context(ex, here.run(), nullptr), "epochs");
  if (plan->options.rank.index == 0) {
    const std::string advice = plan->advice();
    if (!advice.empty()) log_line(ex, "millrace: epochs: " + advice);
  }
  epoch_reader<Sample> reader(std::move(plan), losses, here);
  for (;;) {
    reader.plan();
    if (reader.ended()) break;
    if (!reader.ready()) {
      reader.consumer_waits(true);
      while (!reader.ready()) {
        co_await reader.arrived().wait();
        if (reader.lacks_rows()) reader.plan();
      }
      reader.consumer_waits(false);
    }
    Sample s = reader.take();
    if (reader.damaged()) {
      task<Sample> again = reader.take_again();
      s = co_await std::move(again);
    }
    if (const std::exception_ptr failure = reader.failure()) {
      if (!bad.forgive(failure, reader.failed_place())) break;
      reader.note_loss();
    } else if (s.weight() != 0) {
      bad.succeeded();
    }
    co_yield give(s);
  }
  bad.finish();
  if (policy.report) say_losses(ex, losses->list());
}

/// The promises of epochs() to the stages after it.
template <class Sample>
stream<Sample> declare_source(stream<Sample> made, const epochs_options& options) {
  const bool ends_differ = options.equal != nullptr;
  const bool padded = options.pad && !ends_differ;
  const bool ranks = options.rank.world_size > 1;
  // One rank's batches may have any size; where it was given one, it is to be that.
  made = std::move(made).declares(place_effect::steps, padded && (ranks || options.batch > 1) ? options.batch : 0);
  if (padded || options.failures.then == on_failure::skip) made = std::move(made).declares(place_effect::makes_empty);
  if (options.uneven && options.equal == nullptr) made = std::move(made).declares(place_effect::uneven);
  if (ends_differ && ranks) {
    made = std::move(made).declares(
        place_effect::unequal, 0,
        "the ranks have unequally many samples: put equal.fill(), of .equal, before the stage that makes batches");
  }
  return made;
}

}  // namespace millrace::detail
