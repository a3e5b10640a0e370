// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/numbers.hpp>

namespace millrace {

namespace detail {
class window_state;
}

/// Where a training stands in the canonical order: one number, the position that all ranks together have reached in the
/// epoch, and beside it what fixes the order, so that another one is not taken for it. What pipeline_run::state()
/// writes and epochs_options::resume reads. It says nothing of ranks and batches: any number of ranks goes on from it,
/// except where `world_size` is not 0.
class epoch_state {
 public:
  static constexpr std::uint64_t version = 1;

  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< samples of the epoch that have been taken
  std::uint64_t tracks = 0;
  std::uint64_t slice = 0;
  hash128 index;  ///< index_set::digest()
  /// Of a mix of data sets: what makes it, in words of its own. Left out of the text where there is one data set.
  std::string mix;
  /// Batches that were taken of the window of bucket_by_length() that begins here, or tokens of the documents that
  /// pack() had from here, and what tells that window from others. Left out of the text where there are none.
  std::uint64_t taken = 0;
  std::uint64_t window = 0;
  /// Of several ranks behind pack(): whose state this is, for that rank of as many alone. Left out where it is of all.
  std::uint64_t rank = 0;
  std::uint64_t world_size = 0;
  /// Samples that could not be had before here, of the rank that wrote the state, by the numbers of their shards: of
  /// those that lost most. Left out of the text where there are none.
  std::map<std::uint64_t, std::uint64_t> holes;
  std::uint64_t other_holes = 0;  ///< of all other shards

  /// JSON, about 150 bytes:
  /// `{"millrace":"epochs","version":1,"seed":7,"epoch":3,"position":40960,"tracks":960,"slice":32,"index":"9c.."}`.
  std::string text() const;
  /// What text() gave, whoever has changed its spaces and the order of its members. configuration_error, which says
  /// what is wrong, for anything else, and for another version.
  static epoch_state parse(std::string_view text);

  /// Throws configuration_error, which names what differs, where a training with `now` as its beginning would not go on
  /// with the order of this state. At the beginning of an epoch only the seed must be the same; of a mix, whose data
  /// sets run on from epoch to epoch, everything.
  void check(const epoch_state& now) const;

  friend bool operator==(const epoch_state&, const epoch_state&) = default;

 private:
  friend class detail::window_state;  // has holes too
  std::string holes_text() const;
  bool read_holes(std::string_view text);
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::string epoch_state::text() const {
  const auto member = [](const char* name, std::uint64_t value) {
    return ",\"" + std::string(name) + "\":" + std::to_string(value);
  };
  return "{\"millrace\":\"epochs\"" + member("version", version) + member("seed", seed) + member("epoch", epoch) +
         member("position", position) + member("tracks", tracks) + member("slice", slice) + ",\"index\":\"" +
         index.text() + '"' + (mix.empty() ? std::string() : ",\"mix\":\"" + mix + '"') +
         (taken == 0 && world_size == 0 ? std::string() : member("taken", taken) + member("window", window)) +
         (world_size == 0 ? std::string() : member("rank", rank) + member("world_size", world_size)) +
         holes_text() + '}';
}

inline std::string epoch_state::holes_text() const {
  if (holes.empty() && other_holes == 0) return {};
  std::string text = ",\"holes\":\"";
  for (const auto& [shard, samples] : holes) text += std::to_string(shard) + ':' + std::to_string(samples) + ' ';
  return text + std::to_string(other_holes) + '"';
}

inline bool epoch_state::read_holes(std::string_view text) {
  for (;;) {
    const std::optional<std::uint64_t> number = text::take_decimal<std::uint64_t>(text);
    if (!number) return false;
    if (text.empty()) {
      other_holes = *number;
      return true;
    }
    if (text.front() != ':') return false;
    text.remove_prefix(1);
    const std::optional<std::uint64_t> samples = text::take_decimal<std::uint64_t>(text);
    if (!samples || text.empty() || text.front() != ' ' || !holes.emplace(*number, *samples).second) return false;
    text.remove_prefix(1);
  }
}

inline epoch_state epoch_state::parse(std::string_view text) {
  const auto fail = [](const std::string& reason) { throw configuration_error("resume: " + reason); };
  const std::optional<text::json_leaves> json = text::json_leaves::parse(text);
  if (!json) fail("the state is not one intact JSON document");
  if (json->find("millrace") != "epochs") fail("the state is not one of epochs()");
  if (json->find("order")) fail("the state is of a training without an index: it goes on with index_use::none");
  const auto number = [&](const char* name) {
    const std::optional<std::string_view> digits = json->find(name);
    const std::optional<std::uint64_t> value = digits ? text::parse_decimal<std::uint64_t>(*digits) : std::nullopt;
    if (!value) fail("the state has no whole number \"" + std::string(name) + "\"");
    return *value;
  };
  if (const std::uint64_t v = number("version"); v != version) {
    fail("the state has version " + std::to_string(v) + "; this program reads version " + std::to_string(version));
  }
  epoch_state out;
  out.seed = number("seed");
  out.epoch = number("epoch");
  out.position = number("position");
  out.tracks = number("tracks");
  out.slice = number("slice");
  const std::optional<hash128> index = hash128::parse(json->find("index").value_or(std::string_view()));
  if (!index) fail("the state has no digest \"index\"");
  out.index = *index;
  out.mix = json->find("mix").value_or(std::string_view());
  if (out.mix.find_first_of("\"\\") != std::string::npos) fail("\"mix\" of the state is none");
  if (json->find("taken")) {
    out.taken = number("taken");
    out.window = number("window");
    if (out.taken > UINT32_MAX) fail("\"taken\" of the state is no number of batches");
  }
  if (json->find("world_size")) {
    out.rank = number("rank");
    out.world_size = number("world_size");
    if (out.rank >= out.world_size) fail("\"rank\" of the state is none of its \"world_size\"");
  }
  const std::optional<std::string_view> lost = json->find("holes");
  if (lost && !out.read_holes(*lost)) fail("\"holes\" of the state are no numbers of shards and samples");
  return out;
}

inline void epoch_state::check(const epoch_state& now) const {
  const auto compare = [](const char* what, const std::string& then, const std::string& here) {
    if (then == here) return;
    throw configuration_error("resume: the state is of another order: its " + std::string(what) + " was " + then +
                              " and is " + here);
  };
  compare("seed", std::to_string(seed), std::to_string(now.seed));
  compare("mix", mix.empty() ? "none" : mix, now.mix.empty() ? "none" : now.mix);
  if (mix.empty() && position == 0 && taken == 0) return;
  compare("index (digest)", index.text(), now.index.text());
  compare("number of tracks", std::to_string(tracks), std::to_string(now.tracks));
  compare("slice", std::to_string(slice), std::to_string(now.slice));
}

}  // namespace millrace
