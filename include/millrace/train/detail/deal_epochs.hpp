// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/train/detail/agreement.hpp>
#include <millrace/train/detail/epoch_reader.hpp>
#include <millrace/train/detail/epochs_position.hpp>
#include <millrace/train/detail/epochs_request.hpp>
#include <millrace/train/detail/epochs_source.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// `agreed`: with the other ranks, before anything is read; may be null.
template <class Sample>
async_generator<Sample> deal_epochs(epochs_source source, std::shared_ptr<agreement> agreed = nullptr) {
  const coroutine_context here = co_await this_context();
  executor& ex = here.get_executor();
  if (agreed != nullptr) co_await agreed->settle(nullptr);
  log_unchecked_ranks(ex, source.options);
  const failure_policy policy = source.options.failures;
  const std::shared_ptr<epoch_losses> losses = source.losses;
  // Losses are items that are yielded, and counted by shard: not in the stage's metrics.
  failures bad(policy, coroutine_context(ex, here.run(), nullptr), "epochs");
  if (source.options.rank.index == 0) {
    const std::string advice = source.advice();
    if (!advice.empty()) log_line(ex, "millrace: epochs: " + advice);
  }
  epoch_reader<Sample> reader(std::move(source), here);
  for (;;) {
    reader.plan();
    if (reader.ended()) break;
    if (!reader.ready()) {
      reader.consumer_waits(true);
      while (!reader.ready()) co_await reader.arrived().wait();
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

/// What epochs() promises to the stages after it.
template <class Sample>
stream<Sample> declare_source(stream<Sample> made, const epochs_request& options, bool ends_differ) {
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

template <class Sample>
stream<Sample> epochs_of(epochs_source source, std::shared_ptr<agreement> agreed) {
  fill_later(source, begin_equal(source.options, source.begin).get());
  const epochs_request options = source.options;
  auto position = std::make_shared<epochs_position>(source);
  const std::size_t kept = source.store->keeps();
  // Then it holds nothing; 0 would say that its bound is not known.
  const bool in_memory = source.mix == nullptr && source.sets.front().indexes->in_memory();
  stream<Sample> made = stream<Sample>(deal_epochs<Sample>(std::move(source), std::move(agreed)))
                            .named("epochs", ".bytes");
  return declare_source(std::move(made), options, options.equal != nullptr)
      .bounded(options.ahead, in_memory ? 1 : added(options.bytes, kept))
      .positioned(std::move(position))
      .of_rank(options.rank);
}

}  // namespace millrace::detail
