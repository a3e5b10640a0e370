// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/give.hpp>
#include <millrace/records/pack.hpp>

namespace millrace {

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
    throw configuration_error("pack: the .rest is none that a packer has saved");
  }
}

MILLRACE_INLINE void packer::add(std::span<const std::int32_t> document) {
  if (document.empty()) return;
  tokens_.insert(tokens_.end(), document.begin(), document.end());
  if (options_.end) tokens_.push_back(*options_.end);
  ends_.push_back(tokens_.size());
}

MILLRACE_INLINE std::optional<packed_sequence> packer::next() {
  if (tokens_.size() - taken_ >= length_) return take(length_);
  // What has gone out is let go of here, once a batch, not with each sequence.
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

}  // namespace detail
}  // namespace millrace
