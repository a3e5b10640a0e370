// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/order/detail/words.hpp>
#include <millrace/text/entity_tag.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/text.hpp>
#include <millrace/train/detail/window_state.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE constexpr std::uint64_t tar_block = 512;  // all offsets are multiples of it

MILLRACE_INLINE window_state::window_state(const window_plan& plan, std::uint64_t at_epoch)
    : seed(plan.seed),
      epoch(at_epoch),
      rank(plan.rank.index),
      world_size(plan.rank.world_size),
      shards(plan.width),
      window(plan.window),
      window_bytes(plan.window_bytes),
      list(plan.list) {}

MILLRACE_INLINE std::string window_state::unchecked_text() const {
  const auto member = [](const char* name, std::uint64_t value) {
    return ",\"" + std::string(name) + "\":" + std::to_string(value);
  };
  std::string out = "{\"millrace\":\"epochs\",\"order\":\"window\"" + member("version", steps == 0 ? 2 : version) +
                    member("seed", seed) + member("epoch", epoch) + member("position", position) +
                    member("rank", rank) + member("world_size", world_size) + member("shards", shards) +
                    member("window", window) + member("window_bytes", window_bytes) + ",\"list\":\"" + list.text() +
                    '"' + (taken == 0 ? std::string() : member("taken", taken) + member("taken_of", taken_of)) +
                    (steps == 0 ? std::string() : member("steps", steps)) + losses.holes_text();
  if (!place.empty()) out += ",\"place\":\"" + place + '"';
  return out + '}';
}

MILLRACE_INLINE window_state window_state::parse(std::string_view text) {
  const auto fail = [](const std::string& reason) { throw configuration_error("resume: " + reason); };
  const std::optional<text::json_leaves> json = text::json_leaves::parse(text);
  if (!json) fail("the state is not one intact JSON document");
  if (json->find("millrace") != "epochs") fail("the state is not one of epochs()");
  if (json->find("order") != "window") {
    fail("the state is of a training with an index: give the dataset that index again (.index)");
  }
  const auto number = [&](const char* name) {
    const std::optional<std::string_view> digits = json->find(name);
    const std::optional<std::uint64_t> value = digits ? text::parse_decimal<std::uint64_t>(*digits) : std::nullopt;
    if (!value) fail("the state has no whole number \"" + std::string(name) + "\"");
    return *value;
  };
  if (const std::uint64_t v = number("version"); v == 0 || v > version) {
    fail("the state has version " + std::to_string(v) + "; this program reads versions 1 to " +
         std::to_string(version));
  }
  window_state out;
  out.seed = number("seed");
  out.epoch = number("epoch");
  out.position = number("position");
  out.rank = number("rank");
  out.world_size = number("world_size");
  out.shards = number("shards");
  out.window = number("window");
  out.window_bytes = number("window_bytes");
  const std::optional<hash128> digest = hash128::parse(json->find("list").value_or(std::string_view()));
  if (!digest) fail("the state has no digest \"list\"");
  out.list = *digest;
  if (json->find("taken")) {
    out.taken = number("taken");
    out.taken_of = number("taken_of");
    if (out.taken > UINT32_MAX) fail("\"taken\" of the state is no number of batches or tokens");
  }
  if (json->find("steps")) out.steps = number("steps");
  const std::optional<std::string_view> lost = json->find("holes");
  if (lost && !out.losses.read_holes(*lost)) fail("\"holes\" of the state are no numbers of shards and samples");
  out.place = json->find("place").value_or(std::string_view());
  if (out.position != 0 && out.place.empty()) fail("the state has no \"place\"");
  check_state(*json, out.unchecked_text());
  return out;
}

MILLRACE_INLINE void window_state::check(const window_plan& now) const {
  const auto compare = [](const char* what, const auto& then, const auto& here) {
    if (then == here) return;
    throw configuration_error("resume: the state is of another order: its " + std::string(what) + " was " +
                              std::string(then) + " and is " + std::string(here));
  };
  const auto numbers = [&](const char* what, std::uint64_t then, std::uint64_t here) {
    compare(what, std::to_string(then), std::to_string(here));
  };
  numbers("seed", seed, now.seed);
  if (position == 0 && taken == 0) return;
  numbers("rank", rank, now.rank.index);
  numbers("number of ranks", world_size, now.rank.world_size);
  numbers("number of open shards (.shards)", shards, now.width);
  numbers("window", window, now.window);
  numbers("window's bytes (.window_bytes)", window_bytes, now.window_bytes);
  if (position == 0) compare("list", list.text(), now.list.text());  // else its place tells which shard
}

MILLRACE_INLINE void window_state::stand_at(const window_order& order, const known_shards& known) {
  epoch = order.epoch();
  position = order.count();
  place.clear();
  if (position == 0) return;
  using spot = window_order::spot;
  const std::vector<spot>& held = order.held();
  std::vector<std::size_t> by_place(held.size());
  std::iota(by_place.begin(), by_place.end(), std::size_t{0});
  std::sort(by_place.begin(), by_place.end(), [&](std::size_t a, std::size_t b) {
    return held[a].shard != held[b].shard ? held[a].shard < held[b].shard : held[a].begin < held[b].begin;
  });
  word_writer out;
  out.add(order.next_number());
  out.add(order.turn());
  out.add(order.places().size());
  std::vector<std::uint64_t> used;
  for (const window_order::place& p : order.places()) {
    out.add(p.number);
    out.add(p.offset / tar_block);
    out.add(p.ordinal);
    if (p.offset != 0) used.push_back(order.shard_of(p));
  }
  for (const spot& s : held) used.push_back(s.shard);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  out.add(used.size());
  auto next = by_place.begin();
  std::uint64_t before = 0;
  for (const std::uint64_t number : used) {  // each with its version, and its samples in the window
    out.add(number - std::exchange(before, number));
    const auto found = known.find(number);
    out.add(found != known.end() && found->second.size ? *found->second.size + 1 : 0);
    out.add(std::string_view(found != known.end() ? found->second.etag : std::string()));
    const auto end = std::find_if(next, by_place.end(), [&](std::size_t i) { return held[i].shard != number; });
    out.add(static_cast<std::uint64_t>(end - next));
    std::uint64_t offset = 0;
    std::uint64_t ordinal = 0;
    for (; next != end; ++next) {
      const spot& s = held[*next];
      out.add((s.begin - offset) / tar_block);
      out.add((s.end - s.begin) / tar_block);
      out.add(s.ordinal - ordinal);
      out.add(*next);
      offset = s.end;
      ordinal = s.ordinal + 1;
    }
  }
  place = out.text();
}

MILLRACE_INLINE window_order window_state::order(std::shared_ptr<const window_plan> plan, known_shards& known) const {
  window_order out(plan, epoch);
  if (position == 0) return out;
  const auto fail = [](const char* reason) { throw configuration_error("resume: " + std::string(reason)); };
  constexpr std::uint64_t most = UINT64_MAX / tar_block / 2;  // blocks
  word_reader in(place);
  const std::uint64_t next = in.next();
  const std::uint64_t turn = in.next();
  std::vector<window_order::place> places(static_cast<std::size_t>(in.next_below(in.left())));
  for (window_order::place& p : places) {
    p.number = in.next();
    p.offset = in.next_below(most) * tar_block;
    p.ordinal = in.next();
  }
  std::vector<window_order::spot> held;
  std::vector<std::size_t> slots;
  std::uint64_t number = 0;
  for (std::uint64_t n = in.next_below(in.left() + 1); n > 0 && in.good(); --n) {
    number += in.next();
    const std::uint64_t size = in.next();
    const std::string etag = in.next_text();
    if (!in.good() || number >= plan->shards.size()) {
      // Of another list, or damaged: decided below.
    } else {
      const shard& listed = plan->shards[static_cast<std::size_t>(number)];
      if (!etag.empty() && !listed.etag.empty() && !millrace::detail::same_etag(listed.etag, etag)) {
        throw changed_error("resume: the shard has changed: its ETag was " + etag + " and is " + listed.etag,
                            where{listed.shown(), std::nullopt, {}});
      }
      shard& seen = known.try_emplace(number, listed).first->second;
      if (seen.etag.empty()) seen.etag = etag;
      if (!seen.size && size != 0) seen.size = size - 1;
    }
    std::uint64_t offset = 0;
    std::uint64_t ordinal = 0;
    for (std::uint64_t k = in.next_below(in.left() + 1); k > 0 && in.good(); --k) {
      window_order::spot s;
      s.shard = number;
      s.begin = offset + in.next_below(most) * tar_block;
      s.end = s.begin + in.next_below(most) * tar_block;
      s.ordinal = ordinal + in.next();
      offset = s.end;
      ordinal = s.ordinal + 1;
      held.push_back(s);
      slots.push_back(static_cast<std::size_t>(in.next()));
      if (offset > most * tar_block) fail("\"place\" of the state is damaged");
    }
  }
  if (!in.done()) fail("\"place\" of the state is damaged");
  if (list != plan->list) {
    throw configuration_error("resume: the state is of another order: its list of shards (digest) was " + list.text() +
                              " and is " + plan->list.text());
  }
  std::vector<window_order::spot> in_slots(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) {
    const bool fits = slots[i] < held.size() && in_slots[slots[i]].end == 0 && held[i].end > held[i].begin &&
                      held[i].shard < plan->shards.size();
    if (!fits) fail("\"place\" of the state is of no such window");
    in_slots[slots[i]] = held[i];
  }
  if (turn > places.size() ||
      !out.move_to(position, next, static_cast<std::size_t>(turn), std::move(places), std::move(in_slots))) {
    fail("\"place\" of the state is of no such shards");
  }
  return out;
}

}  // namespace millrace::detail
