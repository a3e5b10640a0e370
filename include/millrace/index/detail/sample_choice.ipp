// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/index/detail/sample_choice.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

class range_choice final : public sample_choice {
 public:
  range_choice(std::uint64_t begin, std::uint64_t end, bool clipped)
      : sample_choice(kind::subset, {}), begin_(begin), end_(end), clipped_(clipped) {}
  std::uint32_t of(const indexed_sample& s) const override { return s.number >= begin_ && s.number < end_ ? 1 : 0; }
  bool by_numbers(std::uint64_t samples, const std::function<void(std::uint64_t, std::uint64_t)>& take) const override {
    if (begin_ < samples) take(begin_, std::min(end_, samples));
    return true;
  }
  void check(std::uint64_t samples) const override {
    if (end_ <= samples || clipped_) return;
    throw configuration_error("dataset: the subset is samples " + std::to_string(begin_) + " to " +
                              std::to_string(end_) + ", and there are " + std::to_string(samples));
  }
  void add_to(hasher128& h) const override {
    sample_choice::add_to(h);
    h.add(begin_);
    h.add(end_);
  }

 private:
  const std::uint64_t begin_;
  const std::uint64_t end_;
  const bool clipped_;
};

class list_choice final : public sample_choice {
 public:
  explicit list_choice(std::vector<std::uint64_t> samples)
      : sample_choice(kind::subset, {}), samples_(std::move(samples)) {}
  std::uint32_t of(const indexed_sample& s) const override {
    return std::binary_search(samples_.begin(), samples_.end(), s.number) ? 1 : 0;
  }
  bool by_numbers(std::uint64_t, const std::function<void(std::uint64_t, std::uint64_t)>& take) const override {
    for (const std::uint64_t s : samples_) take(s, s + 1);
    return true;
  }
  void check(std::uint64_t samples) const override {
    if (samples_.back() < samples) return;
    throw configuration_error("dataset: the subset has sample " + std::to_string(samples_.back()) +
                              ", and there are " + std::to_string(samples) + " from 0 on");
  }
  void add_to(hasher128& h) const override {
    sample_choice::add_to(h);
    for (const std::uint64_t s : samples_) h.add(s);
  }

 private:
  const std::vector<std::uint64_t> samples_;  // sorted
};

class words_choice final : public sample_choice {
 public:
  words_choice(kind k, weighted_options o, std::vector<std::uint32_t> words)
      : sample_choice(k, o), words_(std::move(words)) {}
  std::uint32_t of(const indexed_sample& s) const override { return words_[static_cast<std::size_t>(s.number)]; }
  void check(std::uint64_t samples) const override {
    if (samples == words_.size()) return;
    throw configuration_error("dataset: there are " + std::to_string(words_.size()) +
                              (is == kind::weights ? " weights" : " classes") + " for " + std::to_string(samples) +
                              " samples");
  }
  void add_to(hasher128& h) const override {
    sample_choice::add_to(h);
    for (const std::uint32_t w : words_) h.add(w);
  }

 private:
  const std::vector<std::uint32_t> words_;
};

MILLRACE_INLINE std::shared_ptr<const sample_choice> choice_of_range(std::uint64_t begin, std::uint64_t end,
                                                                     bool clipped) {
  if (begin >= end) {
    throw configuration_error("dataset: the subset of samples " + std::to_string(begin) + " to " +
                              std::to_string(end) + " is empty");
  }
  return std::make_shared<const range_choice>(begin, end, clipped);
}

MILLRACE_INLINE std::shared_ptr<const sample_choice> choice_of_list(std::vector<std::uint64_t> samples) {
  if (samples.empty()) throw configuration_error("dataset: the subset's list is empty");
  std::sort(samples.begin(), samples.end());
  const auto twice = std::adjacent_find(samples.begin(), samples.end());
  if (twice != samples.end()) {
    throw configuration_error("dataset: sample " + std::to_string(*twice) +
                              " is twice in the subset's list: weighted() delivers samples several times");
  }
  return std::make_shared<const list_choice>(std::move(samples));
}

MILLRACE_INLINE std::shared_ptr<const sample_choice> choice_of_words(sample_choice::kind is, weighted_options how,
                                                                     std::vector<std::uint32_t> words) {
  return std::make_shared<const words_choice>(is, how, std::move(words));
}

/// The bytes of sample `i`. `rows`: those that the one before was among, of the same index.
MILLRACE_INLINE std::uint64_t bytes_of_sample(const shard_index& index, std::size_t i, shard_index::rows& rows) {
  if (index.of_objects()) return index.end(i);
  if (index.row_arrays() != nullptr) return index.end(i) - index.offset(i);
  if (!rows.has(i)) rows = index.rows_of(i);
  return rows.end(i) - rows.offset(i);
}

/// Calls `f` with each sample of the set, and its number in the index.
template <class F>
void each_sample(const index_set& set, const F& f) {
  const sample_selection* const chosen = set.selection().get();
  indexed_sample s;
  std::uint64_t number = 0;
  std::size_t shard = 0;
  for (const shard_index& index : set) {
    s.index = &index;
    const bool hashed = index.layout() == row_layout::fields;
    shard_index::rows rows;
    for (std::size_t i = 0; i < index.samples(); ++i, ++number) {
      if (chosen != nullptr && !chosen->has(number)) continue;
      s.ordinal = i;
      s.bytes = bytes_of_sample(index, i, rows);
      s.key_hash = hashed ? rows.key_hash(i) : index.key_hash(i);
      f(s, number, shard);
      ++s.number;
    }
    ++shard;
  }
}

/// Adds up ranges of samples, one after the other. No row is read of a shard that is taken whole.
class taken_ranges {
 public:
  explicit taken_ranges(const index_set& from, std::vector<std::uint64_t>& bits, std::vector<std::uint64_t>& entries)
      : from_(from), bits_(bits), entries_(entries) {}

  void take(std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t n = begin; n < end;) {
      const std::uint64_t upto = std::min(end, n - n % 64 + 64);  // of one word
      const std::uint64_t all = upto - n == 64 ? UINT64_MAX : (std::uint64_t{1} << (upto - n)) - 1;
      bits_[static_cast<std::size_t>(n / 64)] |= all << n % 64;
      n = upto;
    }
    while (begin < end) {
      for (; first_ + from_[shard_].samples() <= begin; ++shard_) {
        first_ += from_[shard_].samples();
        rows_ = shard_index::rows();
      }
      const shard_index& index = from_[shard_];
      const std::uint64_t upto = std::min(end, first_ + index.samples());
      entries_[shard_] += upto - begin;
      if (upto - begin == index.samples()) {
        bytes_ += index.sample_bytes();
      } else {
        for (std::uint64_t n = begin; n < upto; ++n) {
          bytes_ += bytes_of_sample(index, static_cast<std::size_t>(n - first_), rows_);
        }
      }
      begin = upto;
    }
  }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  const index_set& from_;
  std::vector<std::uint64_t>& bits_;
  std::vector<std::uint64_t>& entries_;
  std::size_t shard_ = 0;
  std::uint64_t first_ = 0;  // number of its first sample
  shard_index::rows rows_;   // of it
  std::uint64_t bytes_ = 0;
};

MILLRACE_INLINE std::shared_ptr<const index_set> subset_of(const index_set& from, const sample_choice& by) {
  const std::uint64_t all = from.counts()->samples();
  std::vector<std::uint64_t> bits(static_cast<std::size_t>((all + 63) / 64), 0);
  std::vector<std::uint64_t> entries(from.size(), 0);
  taken_ranges ranges(from, bits, entries);
  std::uint64_t bytes = 0;
  if (from.selection() == nullptr &&
      by.by_numbers(all, [&](std::uint64_t begin, std::uint64_t end) { ranges.take(begin, end); })) {
    bytes = ranges.bytes();
  } else {
    each_sample(from, [&](const indexed_sample& s, std::uint64_t number, std::size_t shard) {
      if (by.of(s) == 0) return;
      bits[static_cast<std::size_t>(number / 64)] |= std::uint64_t{1} << number % 64;
      ++entries[shard];
      bytes += s.bytes;
    });
  }
  auto selection = std::make_shared<const sample_selection>(all, std::move(bits));
  if (selection->size() == 0) {
    throw configuration_error("dataset: the subset is empty: it has none of the " + std::to_string(from.samples()) +
                              " samples");
  }
  return std::make_shared<const index_set>(from, std::move(selection), entries, bytes);
}

/// Weights as whole numbers, the largest 2^32 - 1, and none but 0 is rounded to 0. `words`: floats' bits.
MILLRACE_INLINE void round_weights(std::vector<std::uint32_t>& words) {
  float largest = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto weight = std::bit_cast<float>(words[i]);
    if (!std::isfinite(weight) || weight < 0) {
      throw configuration_error("dataset: the weight of sample " + std::to_string(i) + " is " +
                                std::to_string(weight) + ": weights are numbers, and not negative");
    }
    largest = std::max(largest, weight);
  }
  if (largest == 0) throw configuration_error("dataset: all weights are 0");
  for (std::uint32_t& w : words) {
    const double share = static_cast<double>(std::bit_cast<float>(w)) / static_cast<double>(largest);
    const auto rounded = static_cast<std::uint32_t>(share * double{UINT32_MAX} + 0.5);
    w = share > 0 ? std::max<std::uint32_t>(rounded, 1) : 0;
  }
}

/// Each sample of a class of `n` has the weight 1 / n.
MILLRACE_INLINE void weigh_classes(std::vector<std::uint32_t>& words) {
  std::map<std::uint32_t, std::uint64_t> sizes;
  for (const std::uint32_t w : words) ++sizes[w];
  for (std::uint32_t& w : words) w = std::bit_cast<std::uint32_t>(1.0F / static_cast<float>(sizes[w]));
}

MILLRACE_INLINE std::shared_ptr<const index_set> draw_of(const index_set& from, const sample_choice& by) {
  constexpr std::uint64_t most = std::uint64_t{1} << 31;
  const std::uint64_t samples = from.samples();
  const std::uint64_t entries = by.how.samples != 0 ? by.how.samples : samples;
  if (samples > most) throw configuration_error("dataset: weights are for at most 2^31 samples");
  if (entries > permutation::most) throw configuration_error("dataset: an epoch has at most 2^48 samples");
  std::vector<std::uint32_t> words;
  words.reserve(static_cast<std::size_t>(samples));
  each_sample(from, [&](const indexed_sample& s, std::uint64_t, std::size_t) { words.push_back(by.of(s)); });
  if (by.is == sample_choice::kind::classes) weigh_classes(words);
  round_weights(words);
  const auto weighty = static_cast<std::uint64_t>(words.size()) -
                       static_cast<std::uint64_t>(std::count(words.begin(), words.end(), 0U));
  if (!by.how.replacement && entries > weighty) {
    throw configuration_error("dataset: " + std::to_string(entries) + " samples an epoch without replacement, and " +
                              std::to_string(weighty) + " have a weight: give fewer .samples");
  }
  auto selection = std::make_shared<const sample_selection>(from.selection().get(), std::move(words), entries,
                                                            by.how.replacement);
  // The samples of each shard in an epoch, and their bytes, on average.
  __extension__ typedef unsigned __int128 wide;
  std::vector<std::uint64_t> sums(from.size(), 0);
  wide total = 0;
  wide bytes = 0;
  each_sample(from, [&](const indexed_sample& s, std::uint64_t, std::size_t shard) {
    const std::uint64_t weight = selection->weights()[static_cast<std::size_t>(s.number)];
    sums[shard] += weight;
    total += weight;
    bytes += wide{weight} * s.bytes;
  });
  std::vector<std::uint64_t> of_shard(from.size(), 0);
  wide before = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    of_shard[i] = static_cast<std::uint64_t>((before + sums[i]) * entries / total - before * entries / total);
    before += sums[i];
  }
  const auto mean = static_cast<std::uint64_t>(bytes / total);
  return std::make_shared<const index_set>(from, std::move(selection), of_shard, mean * entries);
}

MILLRACE_INLINE std::shared_ptr<const index_set> select(const index_set& from, const sample_choice& by) {
  if (from.selection() != nullptr && from.selection()->drawn()) {
    throw configuration_error("dataset: of samples that weighted() or balanced() draws nothing more can be chosen: "
                              "choose first, and weigh what was chosen");
  }
  by.check(from.samples());
  return by.is == sample_choice::kind::subset ? subset_of(from, by) : draw_of(from, by);
}

}  // namespace millrace::detail
