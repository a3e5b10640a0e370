// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/records/tokens.hpp>

namespace millrace {

/// A sequence of tokens of one length, of one document or several. Batches of them have the fields "tokens" (i32),
/// "documents" (i32) and "mask" (u8), each of that length.
class packed_sequence {
 public:
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t>
      documents;  ///< of each token, which of the sequence's documents it is of: from 0; -1: padding
  /// 1 where a token can be learnt from those before it: 0 for the first of each document, and for padding.
  std::vector<std::uint8_t> mask;

  friend std::size_t byte_size(const packed_sequence& s) noexcept { return s.tokens.size() * 9; }
};

/// Lays a sequence out in a row of a batch.
void collate(const packed_sequence& sequence, sample_writer& out);

/// What a packer holds between two documents: enough to go on where another one stopped.
class pack_state {
 public:
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;  ///< of the documents in `tokens`; the last one's is their size

  friend bool operator==(const pack_state&, const pack_state&) = default;
};

/// See pack().
struct pack_options {
  std::optional<std::int32_t> end = std::nullopt;  ///< a token that is put behind each document
  std::int32_t pad = 0;                            ///< behind the last document of all
  last_batch last = last_batch::keep;              ///< of a rest that does not fill a sequence: padded, or left out
  pack_state rest = {};                            ///< of a packer before this one, to begin with
};

/// Joins documents into sequences of `length` tokens. A document that does not fit goes on in the next sequence; an
/// empty one is left out. Throws configuration_error for a length of 0, and for a rest that contradicts itself.
class packer {
 public:
  explicit packer(std::size_t length, pack_options options = {});

  void add(std::span<const std::int32_t> document);
  /// The next full sequence; nullopt where more documents are needed.
  std::optional<packed_sequence> next();
  /// No more documents come: the rest, as the options say.
  std::optional<packed_sequence> finish();

  /// The rest: what has been added and is in no sequence that next() gave. Fewer than `length` tokens, once next() has
  /// given nullopt.
  pack_state save() const;

 private:
  packed_sequence take(std::size_t count);

  const std::size_t length_;
  const pack_options options_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::size_t> ends_;  // of documents, in tokens_
  std::size_t taken_ = 0;          // of tokens_
  std::size_t ended_ = 0;          // of ends_: not after taken_
};

namespace detail {

MILLRACE_COROUTINE async_generator<packed_sequence> pack_documents(async_generator<token_batch> in, packer into);

}  // namespace detail

/// Stage: batches of tokens -> sequences of `length` tokens, by a packer; documents go on over the ends of batches and
/// shards. `lines() | tokens(encode) | pack(2048) | batch(16) | to_device(copies)`.
///
/// Holds one batch of tokens and less than one sequence. To go on in another run where one ended between two batches,
/// pack by a packer of your own, keep what its save() gives, and begin with `.rest`. Throws as packer does, at once.
MILLRACE_COROUTINE inline auto pack(std::size_t length, pack_options options = {}) {
  return [into = packer(length, std::move(options))](async_generator<token_batch> in) {
    return stream<packed_sequence>(detail::pack_documents(std::move(in), into)).named("pack");
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/records/impl/pack.ipp>
#endif
