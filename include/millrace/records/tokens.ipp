// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/records/tokens.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Applies the policy to the lines of a batch in their order. Lines after the one that ends the stream are dropped.
class document_judge {
 public:
  document_judge(failure_policy policy, const coroutine_context& here) noexcept
      : bad_(policy, here, "tokens") {}

  token_batch take(judged_tokens&& b) {
    std::size_t judged = 0;
    for (lost_document& lost : b.lost) {
      for (; judged < lost.before; ++judged) bad_.succeeded();
      try {
        ended_ = !bad_.forgive(std::move(lost.why), lost.place);
      } catch (...) {
        error_ = std::current_exception();
        ended_ = true;
      }
      if (!ended_) continue;
      b.documents.ends.resize(judged);
      b.documents.tokens.resize(judged == 0 ? 0 : b.documents.ends.back());
      return std::move(b.documents);
    }
    for (; judged < b.documents.size(); ++judged) bad_.succeeded();
    return std::move(b.documents);
  }
  bool ended() const noexcept { return ended_; }
  /// At the end of the stream, wherever that is.
  void finish() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (!ended_) bad_.finish();
  }

 private:
  failures bad_;
  bool ended_ = false;
  std::exception_ptr error_;
};

MILLRACE_COROUTINE_BODY async_generator<token_batch> judge_documents(async_generator<judged_tokens> in,
                                                                     failure_policy policy) {
  const coroutine_context here = co_await this_context();
  document_judge judge(policy, here);
  while (!judge.ended()) {
    std::optional<judged_tokens> b = co_await in.next();
    if (!b) break;
    token_batch documents = judge.take(std::move(*b));
    b.reset();
    if (documents.size() != 0) co_yield give(documents);
  }
  judge.finish();
}

MILLRACE_COROUTINE_BODY stream<token_batch> judge_documents_stage::operator()(async_generator<judged_tokens> in) && {
  return stream<token_batch>(judge_documents(std::move(in), policy_)).named("tokens", ".limit");
}

}  // namespace millrace::detail
