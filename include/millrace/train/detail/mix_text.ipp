// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/train/detail/mix_text.hpp>
#include <millrace/train/detail/training_plan.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::string mix_end_text(mix_until until, std::uint64_t samples) {
  if (until == mix_until::first_end) return "first_end";
  if (until == mix_until::last_end) return "last_end";
  return "forever=" + std::to_string(samples);
}

MILLRACE_INLINE std::string mix_text(const dataset_mix& mix) {
  constexpr std::size_t most = 240;
  std::string members;
  for (const dataset_mix::member& m : mix.members) {
    members += ' ' + std::to_string(m.weight) + ':' + m.indexes->digest().text().substr(0, 8);
    if (m.seed != 0) members += ':' + std::to_string(m.seed);
  }
  if (members.size() > most) {
    hasher128 all;
    all.add(std::string_view(members));
    members = ' ' + std::to_string(mix.members.size()) + '=' + all.value().text();
  }
  return mix_end_text(mix.until, mix.samples) + members;
}

MILLRACE_INLINE std::string_view take_to(std::string_view& text, char mark) {
  const std::size_t end = std::min(text.find(mark), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

MILLRACE_INLINE void check_mix(std::string_view then, std::string_view here, const training_plan& now) {
  if (then == here) return;
  const auto compare = [](const std::string& what, std::string_view was, std::string_view is) {
    if (was == is) return;
    throw configuration_error("resume: the state is of another order: " + what + " was " + std::string(was) +
                              " and is " + std::string(is));
  };
  const auto sets = [](std::string_view mix) {
    return mix.empty() ? std::string("one data set") : "a mix of data sets";
  };
  compare("its training", sets(then), sets(here));
  compare("the end of its epochs", take_to(then, ' '), take_to(here, ' '));
  const auto members = [](std::string_view mix) {
    const std::size_t many = mix.find('=');
    if (many != std::string_view::npos) return std::string(mix.substr(0, many));
    return std::to_string(std::count(mix.begin(), mix.end(), ' ') + 1);
  };
  compare("the number of its data sets", members(then), members(here));
  if (here.find('=') != std::string_view::npos) compare("its mix (digest)", then, here);
  for (std::size_t d = 0; d < now.sets.size(); ++d) {
    const std::string name = dataset_name(d, now.sets[d].prefix);
    std::string_view was = take_to(then, ' ');
    std::string_view is = take_to(here, ' ');
    compare("the weight of " + name, take_to(was, ':'), take_to(is, ':'));
    compare("the index (digest) of " + name, take_to(was, ':'), take_to(is, ':'));
    compare("the seed of " + name, was.empty() ? "0" : was, is.empty() ? "0" : is);
  }
  compare("its mix", then, here);
}

}  // namespace millrace::detail
