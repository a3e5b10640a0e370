// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/detail/generator_promise.hpp>

namespace millrace::detail {

MILLRACE_INLINE MILLRACE_NOINLINE void generator_promise_base::wait(std::coroutine_handle<> self,
                                                                   std::coroutine_handle<> consumer,
                                                                   promise_base& context) {
  check_consumer(context);  // here, too: an idle generator is asked without preparations
  set_continuation(consumer, context.stage());
  const bool queue = phase_ == generator_phase::queued;
  if (queue) {
    phase_ = generator_phase::asked;
    post_self(self);
  }
  if (on_account() && !starves_) {
    const std::int64_t t = get_executor().charge_current();
    if (queue) {
      account_ask(t);
    } else {
      account_wait(t);
    }
  }
}

MILLRACE_INLINE MILLRACE_NOINLINE bool generator_promise_base::begin_unusual(promise_base& consumer) {
  if (phase_ != generator_phase::fresh) {
    check_consumer(consumer);
    return false;
  }
  stage_record* own = consumer.stage();
  if (own != nullptr && name_ != nullptr) own = own->owner->place(name_, advice_, own, named_ns_);
  bind(consumer.get_executor(), own);
  phase_ = generator_phase::idle;
  return true;
}

MILLRACE_INLINE void generator_promise_base::check_consumer(promise_base& consumer) const {
  if (awaited()) misused("a generator has one consumer and one outstanding next(), and there is one that waits");
  if (&get_executor() != &consumer.get_executor()) misused(other_executor);
}

}  // namespace millrace::detail
