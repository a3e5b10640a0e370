// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/records/lines.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The tokens of several documents, one after the other.
class token_batch {
 public:
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;  ///< of each document, in `tokens`
  origin from;                    ///< of the first document

  std::size_t size() const noexcept { return ends.size(); }
  std::span<const std::int32_t> operator[](std::size_t document) const noexcept {
    const std::size_t begin = document == 0 ? 0 : ends[document - 1];
    return std::span<const std::int32_t>(tokens).subspan(begin, ends[document] - begin);
  }

  friend std::size_t byte_size(const token_batch& b) noexcept {
    return b.tokens.size() * sizeof(std::int32_t) + b.ends.size() * sizeof(std::size_t);
  }
  friend std::size_t samples_in_batch(const token_batch& b) noexcept { return b.size(); }
};

/// The tokens of one document with its mark: made by your function of a sample of epochs(), for pack().
class token_document {
 public:
  token_document() = default;
  token_document(std::vector<std::int32_t> its_tokens, const epoch_mark& its_mark)
      : tokens(std::move(its_tokens)), mark(its_mark) {}
  std::vector<std::int32_t> tokens;
  epoch_mark mark;  ///< that of the sample

  friend epoch_mark mark_of(const token_document& d) noexcept { return d.mark; }
  friend std::size_t byte_size(const token_document& d) noexcept { return d.tokens.size() * sizeof(std::int32_t); }
};

namespace detail {

/// A document that failed: how many of its batch came before it, and why.
struct lost_document {
  lost_document(std::size_t b, item_place p, std::exception_ptr w)
      : before(b), place(std::move(p)), why(std::move(w)) {}
  std::size_t before;
  item_place place;
  std::exception_ptr why;
};
/// A batch, and the documents that failed: judge_documents() decides by the policy whether they are tolerated.
struct judged_tokens {
  token_batch documents;
  std::vector<lost_document> lost;

  friend std::size_t byte_size(const judged_tokens& b) noexcept { return byte_size(b.documents); }
  friend std::size_t samples_in_batch(const judged_tokens& b) noexcept { return b.documents.size(); }
};

/// One line of a batch, with the members that an error's place is made from.
struct line_place {
  explicit line_place(origin at) : from(std::move(at)), key("line " + std::to_string(from.ordinal + 1)) {}
  origin from;
  std::string key;
};

template <class F>
class tokenize_lines {
 public:
  explicit tokenize_lines(F f, bool forgiving) : f_(std::move(f)), forgiving_(forgiving) {}
  judged_tokens operator()(const line_batch& lines) const {
    judged_tokens made;
    token_batch& documents = made.documents;
    documents.from = lines.from;
    documents.ends.reserve(lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::size_t begin = documents.tokens.size();
      try {
        for (const auto token : f_(lines.lines[i])) documents.tokens.push_back(static_cast<std::int32_t>(token));
        documents.ends.push_back(documents.tokens.size());
      } catch (...) {
        item_place place;
        place.note(line_place(lines.origin_of(i)));
        std::exception_ptr why = place.completed();
        if (!forgiving_) std::rethrow_exception(std::move(why));
        documents.tokens.resize(begin);
        made.lost.emplace_back(documents.size(), std::move(place), std::move(why));
      }
    }
    return made;
  }

 private:
  F f_;
  bool forgiving_;
};

MILLRACE_COROUTINE async_generator<token_batch> judge_documents(async_generator<judged_tokens> in,
                                                                failure_policy policy);

class judge_documents_stage : public library_stage {
 public:
  explicit judge_documents_stage(failure_policy policy) noexcept : policy_(policy) {}
  MILLRACE_COROUTINE stream<token_batch> operator()(async_generator<judged_tokens> in) &&;

 private:
  failure_policy policy_;
};

}  // namespace detail

/// Returned by tokens().
template <class F>
class tokens_stage : public detail::library_stage {
 public:
  tokens_stage(F f, map_concurrent_options options) : f_(std::move(f)), options_(options) {}
  stream<token_batch> operator()(async_generator<line_batch> in) && {
    const failure_policy policy = std::exchange(options_.failures, failure_policy());
    detail::tokenize_lines<F> work(std::move(f_), policy.then != on_failure::rethrow);
    auto judged = detail::apply_stage(stream<line_batch>(std::move(in)),
                                      map_concurrent_stage(std::move(work), options_, "tokens"));
    return detail::declare_policy(detail::apply_stage(detail::stream_access::part_of_next(std::move(judged)),
                                                      detail::judge_documents_stage(policy)),
                                  policy);
  }

 private:
  F f_;
  map_concurrent_options options_;
};

/// Stage: batches of lines -> batches of tokens, a document a line, on a pool: `lines() | tokens(encode) | pack(2048)`.
///
/// `f(std::string_view)` gives a range of whole numbers that fit into 32 bits; it is called on several threads at once
/// and must be callable when const. Order, bound, options and cancellation are map_concurrent()'s. Errors: an error of
/// this library that `f` throws without a place gets that of its line: shard, byte and line number, from 1. `.failures`
/// counts lines, not batches: with on_failure::skip only the line that cannot be tokenized is left out.
template <class F>
tokens_stage<F> tokens(F f, const map_concurrent_options& options = {}) {
  return tokens_stage<F>(std::move(f), options);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/records/tokens.ipp>
#endif
