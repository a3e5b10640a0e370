// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::vector<std::string> expand_braces(std::string_view text) {
  const auto fail = [&](std::string why) {
    throw configuration_error(std::move(why), where{detail::shown_url(std::string(text)), std::nullopt, std::string()});
  };
  std::vector<std::string> names{std::string()};
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t open = text.find('{', at);
    const std::string_view literal = text.substr(at, open == std::string_view::npos ? open : open - at);
    for (std::string& n : names) n += literal;
    if (open == std::string_view::npos) break;
    const std::size_t close = text.find('}', open);
    if (close == std::string_view::npos) fail("the brace list has no closing brace");
    const std::string_view list = text.substr(open + 1, close - open - 1);
    if (list.find('{') != std::string_view::npos) fail("brace lists cannot be nested");
    std::vector<std::string> choices;
    if (const std::size_t dots = list.find(".."); dots != std::string_view::npos) {
      const std::string_view low = list.substr(0, dots);
      const std::string_view high = list.substr(dots + 2);
      const auto number = [&](std::string_view digits) {
        const std::optional<std::uint64_t> value = text::parse_decimal<std::uint64_t>(digits);
        if (!value) fail("a brace range needs two numbers");
        return *value;
      };
      const std::uint64_t first = number(low);
      const std::uint64_t last = number(high);
      if (first > last) fail("a brace range must ascend");
      if (last - first >= 10'000'000) fail("the brace list has more than ten million names");
      for (std::uint64_t i = first; i <= last; ++i) {
        std::string digits = std::to_string(i);
        if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
        choices.push_back(std::move(digits));
      }
    } else {
      std::size_t start = 0;
      for (;;) {
        const std::size_t comma = list.find(',', start);
        choices.emplace_back(list.substr(start, comma == std::string_view::npos ? comma : comma - start));
        if (comma == std::string_view::npos) break;
        start = comma + 1;
      }
      if (choices.size() == 1) fail("a brace list needs a range or a comma");
    }
    if (names.size() > 10'000'000 / choices.size()) fail("the brace list has more than ten million names");
    std::vector<std::string> longer;
    longer.reserve(names.size() * choices.size());
    for (const std::string& n : names) {
      for (const std::string& c : choices) longer.push_back(n + c);
    }
    names.swap(longer);
    at = close + 1;
  }
  return names;
}

MILLRACE_COROUTINE_BODY async_generator<shard> detail::shards_of_names(std::vector<std::string> names) {
  for (std::string& n : names) {
    shard s(std::move(n));
    co_yield give(s);
  }
}

MILLRACE_COROUTINE_BODY stream<shard> shards(std::string_view names) {
  if (names.find('*') != std::string_view::npos) {
    throw configuration_error(
        "shards: names with * are not looked up: list them by list(\"s3://bucket/prefix/\") of the client, of a folder "
        "by glob(), or write {000..099}",
        where{detail::shown_url(std::string(names)), std::nullopt, std::string()});
  }
  return stream<shard>(detail::shards_of_names(expand_braces(names))).named("shards");
}

MILLRACE_COROUTINE_BODY stream<shard> shards(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& n : names) {
    for (std::string& each : expand_braces(n)) all.push_back(std::move(each));
  }
  return stream<shard>(detail::shards_of_names(std::move(all))).named("shards");
}

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_COROUTINE_BODY async_generator<shard> permute_shards(async_generator<shard> in,
                                                              shuffle_shards_options options) {
  std::vector<shard> all;
  while (auto s = co_await in.next()) all.push_back(std::move(*s));
  rng random(options.seed, options.epoch, 0x7368617264u);  // "shard"
  permute(all, random);
  for (shard& s : all) {
    s.seed = options.seed;
    s.epoch = options.epoch;
    co_yield give(s);
  }
}

MILLRACE_INLINE void log_rank(const rank& r, std::size_t mine, std::uint64_t count) {
  if (r.world_size == 1 && std::strcmp(r.source, rank().source) == 0) return;
  const std::string line = "millrace: rank " + std::to_string(r.index) + " of " + std::to_string(r.world_size) + " (" +
                           r.source + ") reads " + std::to_string(mine) + " of " + std::to_string(count) + " shards";
  if (!first_time(line)) return;
  const std::string index = std::to_string(r.index);
  const log_field fields[] = {{"rank", index}};
  log_to_process(log_record(log_level::info, line, fields, 1));
}

MILLRACE_COROUTINE_BODY async_generator<shard> take_every(async_generator<shard> in, rank r) {
  std::vector<shard> mine;
  std::uint64_t count = 0;
  while (auto s = co_await in.next()) {
    if (count++ % r.world_size == r.index) mine.push_back(std::move(*s));
  }
  log_rank(r, mine.size(), count);
  if (mine.empty() && count > 0) {
    throw configuration_error("rank " + std::to_string(r.index) + " of " + std::to_string(r.world_size) +
                              " gets no shard: there are only " + std::to_string(count));
  }
  for (shard& s : mine) co_yield give(s);
}

}  // namespace millrace::detail
