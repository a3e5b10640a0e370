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
#include <millrace/data/epoch_mark.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/records/tokens.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A sequence of tokens of one length, of one document or several. Batches of them have the fields "tokens" (i32),
/// "documents" (i32) and "mask" (u8), each of that length.
class packed_sequence {
 public:
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t>
      documents;  ///< of each token, which of the sequence's documents it is of: from 0; -1: padding
  /// 1 where a token can be learnt from those before it: 0 for the first of each document, and for padding.
  std::vector<std::uint8_t> mask;
  epoch_mark mark;  ///< the position of the training after it, if documents have marks

  friend epoch_mark mark_of(const packed_sequence& s) noexcept { return s.mark; }
  friend std::size_t byte_size(const packed_sequence& s) noexcept { return s.tokens.size() * 9; }
};

/// Lays a sequence out in a row of a batch.
void collate(const packed_sequence& sequence, sample_writer& out);

/// The state of a packer between two documents: enough to continue where another one stopped.
class pack_state {
 public:
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;  ///< of the documents in `tokens`; the last one's is their size

  friend bool operator==(const pack_state&, const pack_state&) = default;
};

/// See pack().
struct pack_options {
  std::optional<std::int32_t> end = std::nullopt;  ///< a token to add after each document
  std::int32_t pad = 0;                            ///< after the last document of all
  last_batch last = last_batch::keep;              ///< of tokens that do not fill a sequence: padded, or left out
  pack_state rest = {};                            ///< of an earlier packer, to continue from
};

/// Joins documents into sequences of `length` tokens. A document that does not fit continues in the next sequence; an
/// empty one is left out. Throws configuration_error for a length of 0, and for a .rest that contradicts itself.
class packer {
 public:
  explicit packer(std::size_t length, pack_options options = {});

  /// Leaves out its first `left_out` tokens, counting the end token: those that an earlier packer has yielded.
  void add(std::span<const std::int32_t> document, std::size_t left_out = 0);
  /// The next full sequence; nullopt if more documents are needed.
  std::optional<packed_sequence> next();
  /// Declares the end of input, and returns the rest as the options say.
  std::optional<packed_sequence> finish();

  /// The rest: tokens that were added and are not in a sequence that next() returned. Fewer than `length` tokens, once
  /// next() has given nullopt.
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
MILLRACE_COROUTINE async_generator<packed_sequence> pack_marked(async_generator<token_document> in, packer into,
                                                                bool ends, std::size_t length);
/// held_part::stage after sequences.
constexpr std::uint32_t pack_window(bool ends) noexcept { return ends ? 0x7061636c : 0x7061636a; }

}  // namespace detail

/// Returned by pack().
class pack_stage : public detail::library_stage {
 public:
  pack_stage(std::size_t length, pack_options options)
      : length_(length), ends_(options.end.has_value()), into_(length, std::move(options)) {}
  MILLRACE_COROUTINE stream<packed_sequence> operator()(async_generator<token_batch> in) &&;
  MILLRACE_COROUTINE stream<packed_sequence> operator()(async_generator<token_document> in) &&;

 private:
  std::size_t length_;
  bool ends_;
  packer into_;
};

/// Stage: batches of tokens, or documents with marks -> sequences of `length` tokens, by a packer; documents may
/// continue across the ends of batches, shards and epochs.
///
///     lines() | tokens(encode) | pack(2048) | batch(16) | to_device(copies)
///     epochs(...) | map_concurrent([](sample s) { return token_document(encode(s["txt"]), s.mark); })
///                 | pack(2048) | batch(16) | to_device(copies)
///
/// With documents of epochs(), pipeline_run::state() can be taken after every sequence: it has the position of the
/// document in which the sequence ends, and how many of its tokens were taken, so it holds no tokens. A resume reads
/// that document again, and continues with the very next sequence; it must have the same length and `.end`. With
/// several ranks each has its own rest, keeps its own state() and resumes from that, with the same number of ranks and
/// the same epochs_options::batch; the documents of one batch at most are read again. Padding of an epoch's last batch
/// is not a document. For lines, save the result of save() of your own packer, and continue with `.rest`.
///
/// Holds one batch of tokens and less than one sequence. Throws as packer does, at once; in the pipeline,
/// configuration_error if a state has taken more of a document than it has.
inline pack_stage pack(std::size_t length, pack_options options = {}) { return pack_stage(length, std::move(options)); }

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/records/pack.ipp>
#endif
