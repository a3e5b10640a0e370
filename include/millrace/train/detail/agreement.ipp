// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/train/detail/agreement.hpp>
#include <millrace/train/rank_group.hpp>
#include <millrace/train/rank_group.ipp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_COROUTINE_BODY void rank_group::compare(std::span<const rank_setting> settings) const {
  detail::agreement all(*this, "settings");
  for (const rank_setting& s : settings) all.add(s);
  all.settle_now(nullptr);
}

// --- The settings.

namespace detail {

MILLRACE_INLINE agreement::agreement(const rank_group& group, const char* purpose)
    : group_(group),
      purpose_(purpose),
      number_(group_core::of(group)->rounds.fetch_add(1, std::memory_order_relaxed)) {}

MILLRACE_INLINE void agreement::add_digest(const char* name, const hash128& digest) {
  digests_.push_back(settings_.size());
  settings_.push_back({name, 0, std::string()});
  learn(name, digest);
}

MILLRACE_INLINE void agreement::learn(const char* name, const hash128& digest) {
  if (digest == hash128()) return;
  for (rank_setting& s : settings_) {
    if (s.name != name) continue;
    s.value = digest.low | 1U;
    s.text = digest.text();
  }
}

MILLRACE_INLINE std::vector<std::uint64_t> agreement::numbers(bool failed) const {
  hasher128 names;
  for (const rank_setting& s : settings_) names.add(s.name);
  std::vector<std::uint64_t> words{failed ? 1U : 0U, names.value().low, group_.mine().index, group_.mine().world_size};
  words.insert(words.end(), {step_.known ? 1U : 0U, step_.epoch, step_.steps, step_.ended ? 1U : 0U});
  for (const rank_setting& s : settings_) words.push_back(s.value);
  return words;
}

MILLRACE_INLINE bool agreement::settled(const std::vector<std::uint64_t>& all) {
  const std::size_t world = group_.process().world_size;
  const std::size_t each = all.size() / world;
  const auto at = [&](std::size_t r, std::size_t i) { return all[r * each + i]; };
  const auto differs = [&](std::size_t i) {
    for (std::size_t r = 1; r < world; ++r) {
      if (at(r, i) != at(0, i)) return true;
    }
    return false;
  };
  numbers_ = all;
  for (std::size_t r = 0; r < world; ++r) {
    if (at(r, 0) != 0) return say(what::failure);
  }
  if (differs(1)) return say(what::names);
  if (differs(3)) return say(what::replicas);
  std::vector<std::uint64_t> members(static_cast<std::size_t>(at(0, 3)), 0);
  for (std::size_t r = 0; r < world; ++r) ++members[static_cast<std::size_t>(at(r, 2))];
  for (const std::uint64_t n : members) {
    if (n != members[0]) return say(what::replicas);
  }
  for (std::size_t i = 0; i < settings_.size(); ++i) {
    const bool may_lack = std::find(digests_.begin(), digests_.end(), i) != digests_.end();
    std::uint64_t known = at(0, fixed_words + i);
    for (std::size_t r = 1; r < world; ++r) {
      const std::uint64_t its = at(r, fixed_words + i);
      if (may_lack && (its == 0 || known == 0)) {
        known |= its;
      } else if (its != known) {
        setting_ = i;
        return say(what::setting);
      }
    }
  }
  std::uint64_t furthest = 0;
  for (std::size_t r = 0; r < world; ++r) {
    if (at(r, 4) == 0) return true;  // not all have a step
    if (at(r, 5) != at(0, 5)) return say(what::step);
    furthest = std::max(furthest, at(r, 6));
  }
  for (std::size_t r = 0; r < world; ++r) {
    if (at(r, 6) != furthest && at(r, 7) == 0) return say(what::step);
  }
  return true;
}

MILLRACE_INLINE std::vector<std::uint64_t> agreement::texts(const std::string& failure) const {
  std::string text = differs_ == what::failure ? failure : std::string();
  if (differs_ == what::setting) text = settings_[setting_].text;
  if (text.size() > text_bytes) text = "..." + text.substr(text.size() - text_bytes + 3);
  text.resize(text_bytes);
  std::vector<std::uint64_t> words(text_bytes / 8);
  std::memcpy(words.data(), text.data(), text_bytes);
  return words;
}

/// "7 on ranks 0 and 1 and 8 on rank 2".
MILLRACE_INLINE std::string agreement::values(const std::vector<std::string>& shown) const {
  std::vector<std::string> different;
  for (const std::string& s : shown) {
    if (std::find(different.begin(), different.end(), s) == different.end()) different.push_back(s);
  }
  std::string text;
  for (std::size_t i = 0; i < different.size() && i < 4; ++i) {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t r = 0; r < shown.size(); ++r) {
      if (shown[r] == different[i]) ranks.push_back(r);
    }
    text += (i == 0 ? "" : ", ") + different[i] + " on " + ranks_text(ranks);
  }
  if (different.size() > 4) text += ", and " + std::to_string(different.size() - 4) + " other values on other ranks";
  return text;
}

MILLRACE_INLINE void agreement::refuse(const std::vector<std::uint64_t>& all, const std::exception_ptr& failure) const {
  if (failure != nullptr) std::rethrow_exception(failure);
  const std::size_t world = group_.process().world_size;
  const std::size_t each = numbers_.size() / world;
  const auto at = [&](std::size_t r, std::size_t i) { return numbers_[r * each + i]; };
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < world; ++r) {
    std::string text(text_bytes, '\0');
    std::memcpy(text.data(), all.data() + r * (text_bytes / 8), text_bytes);
    text.resize(std::min(text.find('\0'), text.size()));
    texts.push_back(std::move(text));
  }
  std::vector<std::string> shown;
  switch (differs_) {
    case what::failure:
      for (std::size_t r = 0; r < world; ++r) {
        if (at(r, 0) == 0) continue;
        throw configuration_error("rank " + std::to_string(r) + " of " + std::to_string(world) +
                                  " cannot begin, so no rank does: " + texts[r]);
      }
      break;
    case what::names:
      throw usage_error("the ranks do not compare the same settings: all must give the same names in the same order");
    case what::replicas:
      for (std::size_t r = 0; r < world; ++r) {
        shown.push_back(std::to_string(at(r, 2)) + " of " + std::to_string(at(r, 3)));
      }
      throw configuration_error("the ranks do not agree: which replica takes which share is " + values(shown) +
                                ": every replica must have equally many processes");
    case what::setting:
      for (std::size_t r = 0; r < world; ++r) {
        const bool may_lack = std::find(digests_.begin(), digests_.end(), setting_) != digests_.end();
        const bool unknown = texts[r].empty() && may_lack;
        shown.push_back(unknown            ? std::string("not known yet")
                        : texts[r].empty() ? std::to_string(at(r, fixed_words + setting_))
                                           : texts[r]);
      }
      for (std::size_t r = 1; r < world; ++r) {  // texts that are the same although what they are of is not
        for (std::size_t q = 0; q < r; ++q) {
          if (shown[q] != shown[r] || at(q, fixed_words + setting_) == at(r, fixed_words + setting_)) continue;
          shown[r] += " with another content";
        }
      }
      throw configuration_error("the ranks do not agree: " + settings_[setting_].name + " is " + values(shown));
    case what::step:
      for (std::size_t r = 0; r < world; ++r) {
        shown.push_back("after step " + std::to_string(at(r, 6)) + " of epoch " + std::to_string(at(r, 5)));
      }
      throw configuration_error("the ranks do not agree: the state is " + values(shown) +
                                ": give all ranks the states that were saved after the same step");
  }
  throw usage_error("rank_group: the ranks do not agree");
}

MILLRACE_COROUTINE_BODY void agreement::settle_now(std::exception_ptr failure) {
  const std::shared_ptr<group_core>& core = group_core::of(group_);
  if (settled(gather_waiting(core, purpose_, round_name(number_, 0), numbers(failure != nullptr)))) return;
  refuse(gather_waiting(core, purpose_, round_name(number_, 1), texts(text_of(failure))), failure);
}

MILLRACE_COROUTINE_BODY task<void> agreement::settle(std::exception_ptr failure) {
  const std::shared_ptr<group_core> core = group_core::of(group_);
  std::vector<std::uint64_t> sent = to_send(*core, purpose_, numbers(failure != nullptr));
  const std::vector<std::uint64_t> all =
      co_await gather_by_board<std::uint64_t>(core, purpose_, round_name(number_, 0), std::move(sent));
  if (settled(all)) co_return;
  sent = to_send(*core, purpose_, texts(text_of(failure)));
  const std::vector<std::uint64_t> why =
      co_await gather_by_board<std::uint64_t>(core, purpose_, round_name(number_, 1), std::move(sent));
  refuse(why, failure);
}

}  // namespace detail

}  // namespace millrace
