// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/records/lines.hpp>

namespace millrace {

/// The tokens of several documents, one behind the other.
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
  friend std::size_t sample_count(const token_batch& b) noexcept { return b.size(); }
};

/// The tokens of one document that has a place in a training: what a function of yours makes of a sample of epochs(),
/// for pack().
class token_document {
 public:
  token_document(std::vector<std::int32_t> its_tokens, const epoch_mark& its_mark)
      : tokens(std::move(its_tokens)), mark(its_mark) {}
  std::vector<std::int32_t> tokens;
  epoch_mark mark;  ///< that of the sample

  friend epoch_mark mark_of(const token_document& d) noexcept { return d.mark; }
  friend std::size_t byte_size(const token_document& d) noexcept { return d.tokens.size() * sizeof(std::int32_t); }
};

namespace detail {

template <class F>
class tokenize_lines {
 public:
  explicit tokenize_lines(F f) : f_(std::move(f)) {}
  token_batch operator()(const line_batch& lines) const {
    token_batch made;
    made.from = lines.from;
    made.ends.reserve(lines.size());
    std::size_t n = 0;
    try {
      for (std::string_view line : lines) {
        for (const auto token : f_(line)) made.tokens.push_back(static_cast<std::int32_t>(token));
        made.ends.push_back(made.tokens.size());
        ++n;
      }
    } catch (error& e) {
      e.add_place(lines.from.at("line " + std::to_string(n) + " of its batch"));
      throw;
    }
    return made;
  }

 private:
  F f_;
};

}  // namespace detail

/// Stage: batches of lines -> batches of tokens, a document a line, on a pool: `lines() | tokens(encode) | pack(2048)`.
///
/// `f(std::string_view)` gives a range of whole numbers that fit into 32 bits; it is called on several threads at once
/// and must be callable when const. Everything else is map_concurrent()'s: order, bound, options, cancellation, errors.
/// An error of this library that `f` throws without a place is given that of the batch and the line's number in it.
template <class F>
auto tokens(F f, map_concurrent_options options = {}) {
  return map_concurrent(detail::tokenize_lines<F>(std::move(f)), options);
}

}  // namespace millrace
