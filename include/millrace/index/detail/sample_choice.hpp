// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/index/index_set.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A sample as an index knows it: what functions that choose samples are given. See dataset::subset().
class indexed_sample {
 public:
  std::uint64_t number = 0;    ///< in the dataset that is chosen from: shards by their names, and in the shards' order
  std::uint64_t ordinal = 0;   ///< in its shard
  std::uint64_t key_hash = 0;  ///< millrace::key_hash() of its key; 0: not known
  std::uint64_t bytes = 0;     ///< from its first header to its last byte
  const shard_index* index = nullptr;  ///< of its shard: its name, and the sample's fields. During the call alone

  std::string_view shard() const noexcept { return index->name(); }
};

/// See dataset::weighted().
struct weighted_options {
  std::uint64_t samples = 0;  ///< of an epoch; 0: as many as the dataset has
  /// True if a sample may come several times in an epoch.
  bool replacement = true;
};

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// The choice of another dataset's samples: a word for each.
class sample_choice {
 public:
  enum class kind : unsigned char {
    subset,   // not 0: it is taken
    weights,  // a float's bits
    classes,  // its class
  };
  sample_choice(kind k, weighted_options o) noexcept : is(k), how(o) {}
  virtual ~sample_choice() = default;
  virtual std::uint32_t of(const indexed_sample& s) const = 0;
  /// Throws configuration_error where it is not for a dataset of so many samples.
  virtual void check(std::uint64_t /*samples*/) const {}
  /// If numbers alone decide, calls `take` with the ranges [begin, end) of the `samples` that are taken, in order,
  /// and returns true. Else each sample is asked for.
  virtual bool by_numbers(std::uint64_t /*samples*/,
                          const std::function<void(std::uint64_t, std::uint64_t)>& /*take*/) const {
    return false;
  }
  /// The facts that are known of it before samples are.
  virtual void add_to(hasher128& h) const {
    h.add(static_cast<std::uint64_t>(is));
    h.add(how.samples);
    h.add(how.replacement ? 1U : 0U);
  }

  const kind is;
  const weighted_options how;
};

/// By a function of the program.
template <class F>
class chosen_by final : public sample_choice {
 public:
  chosen_by(kind k, weighted_options o, F f) : sample_choice(k, o), f_(std::move(f)) {}
  std::uint32_t of(const indexed_sample& s) const override {
    if (is == kind::weights) return std::bit_cast<std::uint32_t>(static_cast<float>(f_(s)));
    return static_cast<std::uint32_t>(f_(s));
  }

 private:
  F f_;
};

/// A range of numbers.
std::shared_ptr<const sample_choice> choice_of_range(std::uint64_t begin, std::uint64_t end, bool clipped);
/// A list of them.
std::shared_ptr<const sample_choice> choice_of_list(std::vector<std::uint64_t> samples);
/// A word for each sample.
std::shared_ptr<const sample_choice> choice_of_words(sample_choice::kind is, weighted_options how,
                                                     std::vector<std::uint32_t> words);
/// The samples of `from` that are chosen. configuration_error if there are none, or the choice does not fit.
std::shared_ptr<const index_set> select(const index_set& from, const sample_choice& by);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/index/detail/sample_choice.ipp>
#endif
