// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/flow/detail/places.hpp>
#include <millrace/records/pack.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void collate(const packed_sequence& sequence, sample_writer& out) {
  out.write("tokens", sequence.tokens);
  out.write("documents", sequence.documents);
  out.write("mask", sequence.mask);
}

MILLRACE_INLINE packer::packer(std::size_t length, pack_options options)
    : length_(length), options_(std::move(options)), tokens_(options_.rest.tokens), ends_(options_.rest.ends) {
  if (length == 0) throw configuration_error("pack: a sequence has at least one token");
  const bool whole = tokens_.empty() ? ends_.empty() : !ends_.empty() && ends_.back() == tokens_.size();
  if (!whole || !std::is_sorted(ends_.begin(), ends_.end())) {
    throw configuration_error("pack: the .rest was not saved by a packer");
  }
}

MILLRACE_INLINE void packer::add(std::span<const std::int32_t> document, std::size_t left_out) {
  const std::size_t whole = document.empty() ? 0 : document.size() + (options_.end ? 1 : 0);
  if (left_out > whole) detail::misused("a packer cannot leave out more tokens than the document has");
  if (left_out == whole) return;
  const std::span<const std::int32_t> rest = document.subspan(std::min(left_out, document.size()));
  tokens_.insert(tokens_.end(), rest.begin(), rest.end());
  if (options_.end) tokens_.push_back(*options_.end);
  ends_.push_back(tokens_.size());
}

MILLRACE_INLINE std::optional<packed_sequence> packer::next() {
  if (tokens_.size() - taken_ >= length_) return take(length_);
  // Tokens that were yielded are freed here, once per batch, not with each sequence.
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(taken_));
  ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(ended_));
  for (std::size_t& end : ends_) end -= taken_;
  taken_ = ended_ = 0;
  return std::nullopt;
}

MILLRACE_INLINE std::optional<packed_sequence> packer::finish() {
  if (tokens_.size() == taken_ || options_.last == last_batch::drop) return std::nullopt;
  return take(tokens_.size() - taken_);
}

MILLRACE_INLINE pack_state packer::save() const {
  pack_state rest;
  rest.tokens.assign(tokens_.begin() + static_cast<std::ptrdiff_t>(taken_), tokens_.end());
  for (std::size_t i = ended_; i < ends_.size(); ++i) rest.ends.push_back(ends_[i] - taken_);
  return rest;
}

MILLRACE_INLINE packed_sequence packer::take(std::size_t count) {
  packed_sequence made;
  made.tokens.assign(tokens_.begin() + static_cast<std::ptrdiff_t>(taken_),
                     tokens_.begin() + static_cast<std::ptrdiff_t>(taken_ + count));
  made.tokens.resize(length_, options_.pad);
  made.documents.assign(length_, -1);
  made.mask.assign(length_, 0);
  std::int32_t document = 0;
  bool first = true;
  for (std::size_t i = 0; i < count; ++i) {
    made.documents[i] = document;
    made.mask[i] = first ? 0 : 1;
    first = taken_ + i + 1 == ends_[ended_];
    if (first) {
      ++ended_;
      ++document;
    }
  }
  taken_ += count;
  return made;
}

namespace detail {

MILLRACE_COROUTINE_BODY async_generator<packed_sequence> pack_documents(async_generator<token_batch> in, packer into) {
  for (;;) {
    while (std::optional<packed_sequence> full = into.next()) co_yield give(*full);
    std::optional<token_batch> b = co_await in.next();
    if (!b) break;
    for (std::size_t i = 0; i < b->size(); ++i) into.add((*b)[i]);
  }
  std::optional<packed_sequence> rest = into.finish();
  if (rest) co_yield give(*rest);
}

/// Tracks the documents of the tokens that a packer holds, and so the position of the training after each sequence:
/// that before the step of the document that was begun last, and how many tokens of this rank's share of that step were
/// taken. With one rank every document is a step.
class packed_places {
 public:
  explicit packed_places(bool ends) noexcept : window_(pack_window(ends)) {}

  /// The next document, which has `size` tokens: returns how many of them were yielded before a resume.
  std::size_t add(const epoch_mark& mark, std::size_t size) {
    if (!began_ || mark.epoch != step_.epoch || mark.from != step_.from) {
      if (left_out_ != 0) too_many();
      began_ = true;
      step_ = mark;
      before_ = 0;
      left_out_ = mark.part.taken;
    }
    const std::size_t taken = std::min<std::size_t>(left_out_, size);
    left_out_ -= taken;
    added_ += size - taken;
    documents_.emplace_back(mark, added_, size, before_);
    before_ += size;
    return taken;
  }
  /// The mark of a sequence of the next `count` tokens.
  epoch_mark give(std::size_t count) {
    given_ += count;
    while (!documents_.empty() && documents_.front().end <= given_) {
      last_ = documents_.front();
      documents_.pop_front();
    }
    const bool inside = !documents_.empty() && documents_.front().taken(given_) != 0;
    const place& at = inside ? documents_.front() : last_;
    epoch_mark mark = at.mark;
    mark.padding = false;  // that of the document, not of the sequence
    if (!mark.known) return mark;
    const bool placed = mark.next != 0;  // else it has no position that a state could name
    mark.part.taken = 0;
    mark.part.stage = placed || inside ? at.mark.part.stage + window_ : 0;
    mark.part.of_rank = mark.part.stage != 0;
    mark.whole = mark.whole && placed;
    if (!inside && (mark.whole || !placed)) return mark;
    mark.whole = placed;
    mark.position = mark.next = mark.from;
    mark.last = false;
    mark.part.taken = static_cast<std::uint32_t>(at.before + at.taken(given_));
    return mark;
  }
  epoch_mark finish() {
    if (left_out_ != 0) too_many();
    return give(static_cast<std::size_t>(added_ - given_));
  }

 private:
  struct place {
    place() noexcept = default;
    place(const epoch_mark& m, std::uint64_t e, std::size_t n, std::size_t b) noexcept
        : mark(m), end(e), size(n), before(b) {}
    epoch_mark mark;
    std::uint64_t end = 0;   // of all tokens that came
    std::size_t size = 0;    // with those that were taken before a resume
    std::size_t before = 0;  // tokens of its step before it
    std::uint64_t taken(std::uint64_t given) const noexcept {
      const std::uint64_t left = end - std::min(given, end);
      return left >= size ? 0 : size - left;
    }
  };

  [[noreturn]] void too_many() const {
    throw configuration_error("resume: the state has taken " + std::to_string(step_.part.taken) +
                              " tokens where there are " + std::to_string(before_));
  }

  std::uint32_t window_;
  std::deque<place> documents_;
  std::uint64_t added_ = 0, given_ = 0;
  place last_;
  epoch_mark step_;  // of the first document of the step
  bool began_ = false;
  std::size_t before_ = 0;    // tokens of the step so far
  std::size_t left_out_ = 0;  // of the step's tokens that are still to come
};

MILLRACE_COROUTINE_BODY async_generator<packed_sequence> pack_marked(async_generator<token_document> in, packer into,
                                                                     bool ends, std::size_t length) {
  packed_places places(ends);
  for (;;) {
    while (std::optional<packed_sequence> full = into.next()) {
      full->mark = places.give(length);
      co_yield give(*full);
    }
    std::optional<token_document> d = co_await in.next();
    if (!d) break;
    if (d->mark.padding) d->tokens.clear();
    const std::size_t whole = d->tokens.empty() ? 0 : d->tokens.size() + (ends ? 1 : 0);
    into.add(d->tokens, places.add(d->mark, whole));
  }
  std::optional<packed_sequence> rest = into.finish();
  if (rest) {
    rest->mark = places.finish();
    co_yield give(*rest);
  }
}

}  // namespace detail

MILLRACE_COROUTINE_BODY stream<packed_sequence> pack_stage::operator()(async_generator<token_batch> in) && {
  return stream<packed_sequence>(detail::pack_documents(std::move(in), std::move(into_))).named("pack");
}

MILLRACE_COROUTINE_BODY stream<packed_sequence> pack_stage::operator()(async_generator<token_document> in) && {
  return stream<packed_sequence>(detail::pack_marked(std::move(in), std::move(into_), ends_, length_))
      .named("pack")
      .declares(place_effect::unequal, 0, detail::cannot_count_expanded)
      .counting(detail::pack_window(ends_));
}

}  // namespace millrace
