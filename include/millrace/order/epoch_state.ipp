// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// The check word of a state: eight hexadecimal digits of the CRC32C of its text without it.
MILLRACE_INLINE std::string check_word(std::string_view text) {
  static constexpr char digits[] = "0123456789abcdef";
  const std::uint32_t crc = crc32c(0, text.data(), text.size());
  std::string word;
  for (int shift = 28; shift >= 0; shift -= 4) word += digits[crc >> shift & 15];
  return word;
}

/// Reads "5:2 9:1 3", two samples of shard 5, one of shard 9 and three of other shards. False for anything else.
MILLRACE_INLINE bool read_holes(std::string_view text, epoch_state& into) {
  for (;;) {
    const std::optional<std::uint64_t> number = text::take_decimal<std::uint64_t>(text);
    if (!number) return false;
    if (text.empty()) {
      into.other_holes = *number;
      return true;
    }
    if (text.front() != ':') return false;
    text.remove_prefix(1);
    const std::optional<std::uint64_t> samples = text::take_decimal<std::uint64_t>(text);
    if (!samples || text.empty() || text.front() != ' ' || !into.holes.emplace(*number, *samples).second) return false;
    text.remove_prefix(1);
  }
}

}  // namespace detail

MILLRACE_INLINE std::string epoch_state::text() const {
  std::string all = unchecked_text();
  all.insert(all.size() - 1, ",\"check\":\"" + detail::check_word(all) + '"');
  return all;
}

MILLRACE_INLINE std::string epoch_state::unchecked_text() const {
  std::string out = "{\"millrace\":\"epochs\"";
  const auto number = [&](const char* name, std::uint64_t value) {
    out += ",\"" + std::string(name) + "\":" + std::to_string(value);
  };
  const auto word = [&](const char* name, const std::string& value) {
    out += ",\"" + std::string(name) + "\":\"" + value + '"';
  };
  const auto ranks = [&] {
    number("rank", rank);
    number("world_size", world_size);
  };
  if (streamed) word("order", "window");
  number("version", hosts != 1 && !former_homes ? version : steps != 0 ? 3 : 2);
  number("seed", seed);
  number("epoch", epoch);
  number("position", position);
  if (streamed) {
    ranks();
    number("shards", streamed->shards);
    number("window", streamed->window);
    number("window_bytes", streamed->window_bytes);
    word("list", streamed->list.text());
  } else {
    number("tracks", tracks);
    number("slice", slice);
    if (hosts != 1) number("hosts", hosts);
    word("index", index.text());
    if (contents != 0) number("contents", contents);
    if (!mix.empty()) word("mix", mix);
  }
  if (taken != 0 || (world_size != 0 && !streamed)) {
    number("taken", taken);
    number(streamed ? "taken_of" : "window", window);
  }
  if (world_size != 0 && !streamed) ranks();
  if (steps != 0) number("steps", steps);
  if (!holes.empty() || other_holes != 0) {
    std::string all;
    for (const auto& [shard, samples] : holes) all += std::to_string(shard) + ':' + std::to_string(samples) + ' ';
    word("holes", all + std::to_string(other_holes));
  }
  if (streamed && !streamed->place.empty()) word("place", streamed->place);
  return out + '}';
}

MILLRACE_INLINE epoch_state epoch_state::parse(std::string_view text) {
  const auto fail = [](const std::string& reason) { throw configuration_error("resume: " + reason); };
  const std::optional<text::json_leaves> json = text::json_leaves::parse(text);
  if (!json) fail("the state is not one intact JSON document");
  if (json->find("millrace") != "epochs") fail("the state is not one of epochs()");
  const auto number = [&](const char* name) {
    const std::optional<std::string_view> digits = json->find(name);
    const std::optional<std::uint64_t> value = digits ? text::parse_decimal<std::uint64_t>(*digits) : std::nullopt;
    if (!value) fail("the state has no whole number \"" + std::string(name) + "\"");
    return *value;
  };
  const auto digest = [&](const char* name) {
    const std::optional<hash128> value = hash128::parse(json->find(name).value_or(std::string_view()));
    if (!value) fail("the state has no digest \"" + std::string(name) + "\"");
    return *value;
  };
  const std::uint64_t its_version = number("version");
  if (its_version == 0 || its_version > version) {
    fail("the state has version " + std::to_string(its_version) + "; this program reads versions 1 to " +
         std::to_string(version));
  }
  epoch_state out;
  out.seed = number("seed");
  out.epoch = number("epoch");
  out.position = number("position");
  if (json->find("order") == "window") {
    streamed_order& s = out.streamed.emplace();
    s.shards = number("shards");
    s.window = number("window");
    s.window_bytes = number("window_bytes");
    s.list = digest("list");
    s.place = json->find("place").value_or(std::string_view());
    if (out.position != 0 && s.place.empty()) fail("the state has no \"place\"");
  } else {
    out.tracks = number("tracks");
    out.slice = number("slice");
    if (json->find("hosts")) out.hosts = number("hosts");
    out.former_homes = out.hosts != 1 && its_version < version;
    out.index = digest("index");
    if (json->find("contents")) out.contents = number("contents");
    out.mix = json->find("mix").value_or(std::string_view());
    if (out.mix.find_first_of("\"\\") != std::string::npos) fail("\"mix\" of the state is not valid");
  }
  if (json->find("taken")) {
    out.taken = number("taken");
    out.window = number(out.streamed ? "taken_of" : "window");
    if (out.taken > UINT32_MAX) fail("\"taken\" of the state is no number of batches or tokens");
  }
  if (out.streamed || json->find("world_size")) {
    out.rank = number("rank");
    out.world_size = number("world_size");
    if (out.rank >= out.world_size) fail("\"rank\" of the state is not below its \"world_size\"");
  }
  if (json->find("steps")) out.steps = number("steps");
  const std::optional<std::string_view> lost = json->find("holes");
  if (lost && !detail::read_holes(*lost, out)) fail("\"holes\" of the state are no numbers of shards and samples");
  // Texts of version 1 have no check word.
  const std::optional<std::string_view> word = json->find("check");
  const bool intact = its_version == 1 ? !word : word == detail::check_word(out.unchecked_text());
  if (!intact) fail("the state is damaged: its check word is not that of its members");
  return out;
}

MILLRACE_INLINE void epoch_state::check(const epoch_state& now) const {
  const auto compare = [](const char* what, const std::string& then, const std::string& here) {
    if (then == here) return;
    throw configuration_error("resume: the state is of another order: its " + std::string(what) + " was " + then +
                              " and is " + here);
  };
  const auto numbers = [&](const char* what, std::uint64_t then, std::uint64_t here) {
    compare(what, std::to_string(then), std::to_string(here));
  };
  numbers("seed", seed, now.seed);
  compare("mix", mix.empty() ? "none" : mix, now.mix.empty() ? "none" : now.mix);
  if (mix.empty() && position == 0 && taken == 0) return;
  if (streamed) {
    numbers("rank", rank, now.rank);
    numbers("number of ranks", world_size, now.world_size);
    numbers("number of open shards (.shards)", streamed->shards, now.streamed->shards);
    numbers("window", streamed->window, now.streamed->window);
    numbers("window's bytes (.window_bytes)", streamed->window_bytes, now.streamed->window_bytes);
    // Inside an epoch the list is compared after its place, which tells the shard that is another one.
    if (position == 0) compare("list", streamed->list.text(), now.streamed->list.text());
    return;
  }
  compare("index (digest)", index.text(), now.index.text());
  numbers("number of hosts", hosts, now.hosts);
  numbers("number of tracks", tracks, now.tracks);
  numbers("slice", slice, now.slice);
}

}  // namespace millrace
