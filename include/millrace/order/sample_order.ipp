// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/order/sample_order.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// The numbers of the partitions that each of `hosts` has, host by host, and then those that are left. Each has the
/// same number; a host more takes it from all others.
MILLRACE_INLINE std::vector<std::uint32_t> partitions_of_hosts(std::uint32_t partitions, std::uint64_t hosts) {
  std::vector<std::vector<std::uint32_t>> of_host;
  std::vector<std::uint32_t> left;
  for (std::uint32_t p = 0; p < partitions; ++p) left.push_back(p);
  while (of_host.size() < hosts) {
    const auto each = static_cast<std::size_t>(partitions / (of_host.size() + 1));
    for (std::vector<std::uint32_t>& host : of_host) {
      if (host.size() == each) break;  // as all others
      left.insert(left.end(), host.begin() + static_cast<std::ptrdiff_t>(each), host.end());
      host.resize(each);
    }
    of_host.emplace_back(left.end() - static_cast<std::ptrdiff_t>(each), left.end());
    left.resize(left.size() - each);
  }
  std::vector<std::uint32_t> all;
  for (const std::vector<std::uint32_t>& host : of_host) all.insert(all.end(), host.begin(), host.end());
  all.insert(all.end(), left.begin(), left.end());
  return all;
}

}  // namespace detail

MILLRACE_INLINE sample_order::sample_order(std::shared_ptr<const shard_counts> counts, std::uint64_t seed,
                                           std::uint64_t epoch, order_options options,
                                           std::shared_ptr<const sample_selection> selection)
    : counts_(std::move(counts)),
      selection_(std::move(selection)),
      samples_(selection_ == nullptr ? counts_->samples() : selection_->size()),
      tracks_(options.tracks),
      slice_(options.slice),
      hosts_(options.hosts),
      seed_(seed),
      epoch_(epoch) {
  constexpr std::uint64_t most = std::uint64_t{1} << 24;
  if (tracks_ == 0 || tracks_ > most) throw configuration_error("tracks must be 1 to 2^24");
  if (slice_ == 0 || slice_ > most) throw configuration_error("a slice must have 1 to 2^24 samples");
  if (hosts_ == 0 || hosts_ > most) throw configuration_error("hosts must be 1 to 2^24");
  if (tracks_ % hosts_ != 0) {
    throw configuration_error(std::to_string(hosts_) + " hosts do not divide " + std::to_string(tracks_) +
                              " tracks: each must have equally many");
  }
  full_slices_ = samples_ / slice_;
  quotient_ = samples_ / tracks_;
  remainder_ = samples_ % tracks_;
  phase_ = samples_ == 0 || hosts_ > 1 ? 0 : detail::key_of(seed, epoch, 1) % samples_;
  tape_key_ = detail::key_of(seed, epoch, 2);
  (hosts_ == 1 ? tape_ : homes_) = permutation(full_slices_, hosts_ == 1 ? tape_key_ : detail::key_of(seed, 0, 5));
  slice_key_ = detail::mix64(detail::key_of(seed, epoch, 3));
  if (hosts_ > 1 && !options.former_homes) {
    constexpr std::uint64_t most_partitions = 1 << 16;
    partition_ = (full_slices_ + most_partitions - 1) / most_partitions;
    const std::uint64_t partitions = partition_ == 0 ? 0 : full_slices_ / partition_;
    if (partitions >= hosts_) {
      owned_ = partitions / hosts_ * partition_;
      partitions_ = std::make_shared<const std::vector<std::uint32_t>>(
          detail::partitions_of_hosts(static_cast<std::uint32_t>(partitions), hosts_));
    }
  }
  if (!options.groups || selection_ != nullptr || counts_->groups().empty()) return;
  const std::vector<std::uint64_t>& groups = counts_->groups();
  if (hosts_ > 1) {
    throw configuration_error("samples that are read by groups have no homes on hosts: hosts must be 1");
  }
  tape_ = permutation(groups.size() - 1, tape_key_);
  phase_ = 0;
  std::vector<std::uint64_t> begins{0};
  begins.reserve(groups.size());
  for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
    const auto group = static_cast<std::size_t>(tape_(i));
    begins.push_back(begins.back() + groups[group + 1] - groups[group]);
  }
  tape_begins_ = std::make_shared<const std::vector<std::uint64_t>>(std::move(begins));
}

MILLRACE_INLINE std::size_t sample_order::group_at(std::uint64_t place) const noexcept {
  return static_cast<std::size_t>(std::upper_bound(tape_begins_->begin(), tape_begins_->end(), place) -
                                  tape_begins_->begin() - 1);
}

MILLRACE_INLINE sample_order::stretch sample_order::track(std::uint64_t track) const noexcept {
  const std::uint64_t host = home_of(track);
  const std::uint64_t number = track / hosts_;                                                     // among the host's
  const std::uint64_t longer = remainder_ > host ? (remainder_ - host + hosts_ - 1) / hosts_ : 0;  // of the host's
  const std::uint64_t before = host * (samples_ / hosts_) + std::min(host, samples_ % hosts_);
  return {before + number * quotient_ + std::min(number, longer), quotient_ + (track < remainder_ ? 1 : 0)};
}

MILLRACE_INLINE std::uint64_t sample_order::host_at(std::uint64_t place) const noexcept {
  if (hosts_ == 1) return 0;
  const std::uint64_t each = samples_ / hosts_;
  const std::uint64_t longer = samples_ % hosts_;  // hosts, of one sample more
  if (place < longer * (each + 1)) return place / (each + 1);
  return longer + (place - longer * (each + 1)) / each;
}

MILLRACE_INLINE sample_order::home sample_order::home_at(std::uint64_t host) const noexcept {
  const auto share = [&](std::uint64_t samples) {
    const std::uint64_t each = samples / hosts_;
    const std::uint64_t longer = samples % hosts_;
    return stretch{host * each + std::min(host, longer), each + (host < longer ? 1 : 0)};
  };
  const std::uint64_t owned = hosts_ * owned_;  // slices of all partitions
  const stretch rest = share(samples_ - owned * slice_);
  const std::uint64_t first = (rest.begin + slice_ - 1) / slice_;
  const std::uint64_t end = std::min((rest.begin + rest.length) / slice_, full_slices_ - owned);
  home h;
  h.host = host;
  h.line = share(samples_);
  h.rest = rest.begin;
  h.first = owned + first;
  h.full = owned_ + (end > first ? end - first : 0);
  h.before = std::min(first * slice_, rest.begin + rest.length) - rest.begin;
  return h;
}

MILLRACE_INLINE std::uint64_t sample_order::rotation(std::uint64_t track) const noexcept {
  const stretch on_tape = this->track(track);
  if (on_tape.length == 0 || by_groups()) return 0;
  const std::uint64_t aim = ((track * 0x9e3779b97f4a7c15u >> 32) * slice_) >> 32;  // multiples of the golden ratio
  const std::uint64_t in_home = on_tape.begin - (hosts_ == 1 ? 0 : home_at(home_of(track)).line.begin);
  return (aim + slice_ - in_home % slice_) % slice_ % on_tape.length;
}

MILLRACE_INLINE sample_order::placed_slice sample_order::slice_at(std::uint64_t place) const noexcept {
  if (by_groups()) {
    const std::size_t s = group_at(place);
    const std::uint64_t begin = (*tape_begins_)[s];
    return {s, begin, {counts_->groups()[static_cast<std::size_t>(tape_(s))], (*tape_begins_)[s + 1] - begin}};
  }
  if (hosts_ == 1) {
    const std::uint64_t s = place / slice_;
    const bool full = s < full_slices_;
    std::uint64_t begin = (full ? tape_(s) : full_slices_) * slice_ + phase_;
    if (begin >= samples_) begin -= samples_;
    return {s, s * slice_, {begin, full ? slice_ : samples_ - full_slices_ * slice_}};
  }
  return slice_at(place, home_at(host_at(place)));
}

MILLRACE_INLINE sample_order::placed_slice sample_order::slice_at(std::uint64_t place, const home& h) const noexcept {
  const std::uint64_t at = (place - h.line.begin) / slice_;
  if (at < h.full) {
    const permutation tape(h.full, detail::mix64(detail::mix64(tape_key_) ^ h.host));
    const std::uint64_t i = tape(at);
    const std::uint64_t s = i < owned_ ? h.host * owned_ + i : h.first + (i - owned_);
    return {s, h.line.begin + at * slice_, {first_of(s), slice_}};
  }
  // What it has of the slice that the host before has the beginning of, and then that of which it has the beginning.
  const std::uint64_t parts = h.line.begin + h.full * slice_;
  if (place < parts + h.before) {
    const std::uint64_t s = hosts_ * owned_ + h.rest / slice_;
    return {full_slices_ + 1 + s, parts, {first_of(s) + h.rest % slice_, h.before}};
  }
  const std::uint64_t s = h.first + h.full - owned_;
  return {s, parts + h.before, {first_of(s), h.line.length - h.full * slice_ - h.before}};
}

MILLRACE_INLINE std::uint64_t sample_order::slices_of(std::uint64_t track) const noexcept {
  const stretch on_tape = this->track(track);
  if (on_tape.length == 0) return 0;
  if (by_groups()) return group_at(on_tape.begin + on_tape.length - 1) - group_at(on_tape.begin) + 1;
  const home h = home_at(home_of(track));
  const auto number_at = [&](std::uint64_t place) {  // on the host's tape
    const std::uint64_t at = place - h.line.begin;
    if (at < h.full * slice_) return at / slice_;
    return h.full + (h.before != 0 && at >= h.full * slice_ + h.before ? 1 : 0);
  };
  return number_at(on_tape.begin + on_tape.length - 1) - number_at(on_tape.begin) + 1;
}

MILLRACE_INLINE sample_place sample_order::at(std::uint64_t position) const {
  if (MILLRACE_UNLIKELY(position >= samples_)) {
    detail::misused("a position of the order was asked for that the epoch does not have");
  }
  return track_cursor(*this, position % tracks_, position / tracks_).next();
}

MILLRACE_INLINE track_cursor::track_cursor(const sample_order& order, std::uint64_t track, std::uint64_t taken)
    : order_(&order), track_(order.track(track)), left_(taken < track_.length ? track_.length - taken : 0) {
  if (track_.length != 0) at_ = (order.rotation(track) + taken) % track_.length;
  if (order.hosts_ > 1) home_ = order.home_at(order.home_of(track));
  if (order.selection_ != nullptr) selected_ = selected_entries(*order.selection_, order.seed_, order.epoch_);
}

MILLRACE_INLINE void track_cursor::enter(std::uint64_t place) {
  slice_ = order_->hosts_ == 1 ? order_->slice_at(place) : order_->slice_at(place, home_);
  inside_ = permutation(slice_.samples.length, detail::mix64(order_->slice_key_ ^ slice_.number));
  shard_ = UINT64_MAX;
}

}  // namespace millrace::inline MILLRACE_ABI
