// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/async_generator.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE MILLRACE_NOINLINE void generator_promise_base::wait(std::coroutine_handle<> self,
                                                                   std::coroutine_handle<> consumer,
                                                                   promise_base& context) {
  check_consumer(context);  // here, too: an idle generator is asked without checks
  set_continuation(consumer, context.stage());
  const bool queue = phase_ == generator_phase::queued;
  if (queue) {
    phase_ = generator_phase::asked;
    post_self(self);
  }
  metrics_.consumer_waits(*this, queue);
}

MILLRACE_INLINE MILLRACE_NOINLINE bool generator_promise_base::begin_unusual(promise_base& consumer) {
  if (phase_ != generator_phase::fresh) {
    check_consumer(consumer);
    return false;
  }
  stage_record* const record = metrics_.record_for(consumer.stage());
  bind(coroutine_context(consumer.get_executor(), consumer.run(), record));
  phase_ = generator_phase::idle;
  return true;
}

MILLRACE_INLINE void generator_promise_base::check_consumer(promise_base& consumer) const {
  if (awaited()) misused("a generator has one consumer and one outstanding next(), and there is one that waits");
  if (&get_executor() != &consumer.get_executor()) misused(other_executor);
}

}  // namespace millrace::detail
