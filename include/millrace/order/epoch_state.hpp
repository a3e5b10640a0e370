// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
class window_state;

/// The check word of a state: eight hexadecimal digits of the CRC32C of its text without it.
inline std::string check_word(std::string_view text) {
  static constexpr char digits[] = "0123456789abcdef";
  const std::uint32_t crc = crc32c(0, text.data(), text.size());
  std::string word;
  for (int shift = 28; shift >= 0; shift -= 4) word += digits[crc >> shift & 15];
  return word;
}
/// A state's text with its check word, and the version that has one.
std::string with_check_word(std::string text);
/// Throws configuration_error if the check word of a state is not that of `text`, the text of its members without it.
/// States of version 1 have none.
void check_state(const text::json_leaves& state, std::string text);
}  // namespace detail

/// The state of a training in the canonical order: one number, the position that all ranks together have reached in the
/// epoch, and the values that determine the order, so that another order is refused. Written by pipeline_run::state(),
/// read by epochs(). It does not depend on ranks and batches: any number of ranks can resume from it, unless
/// `world_size` is not 0.
class epoch_state {
 public:
  /// The version of a text with `steps`. Other texts have version 2, which earlier programs read.
  static constexpr std::uint64_t version = 3;

  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< samples of the epoch that have been taken
  std::uint64_t tracks = 0;
  std::uint64_t slice = 0;
  std::uint64_t hosts = 1;  ///< order_options::hosts; left out of the text if it is 1
  hash128 index;  ///< index_set::digest()
  /// For arrays: a hash of their contents (arrays::contents()). A training goes on with others, and the log says so.
  /// Left out of the text if there are none.
  std::uint64_t contents = 0;
  /// For a mix of data sets: its parts and weights, as a text. Left out of the text if there is one data set.
  std::string mix;
  /// Batches that were taken of the window of bucket_by_length() that begins here, or tokens of the documents that
  /// pack() had from here, and the number that identifies that window. Left out of the text if there are none.
  std::uint64_t taken = 0;
  std::uint64_t window = 0;
  /// With several ranks after pack(): the rank that this state is for. Left out if it is for all.
  std::uint64_t rank = 0;
  std::uint64_t world_size = 0;
  /// The steps of the epoch that all ranks have taken in such a state (epoch_mark::steps), so that ranks can compare
  /// them. 0: not known, and left out of the text.
  std::uint64_t steps = 0;
  /// Samples before this position that could not be read by the rank that wrote the state, by the numbers of their
  /// shards: of those that lost most. Left out of the text if there are none.
  std::map<std::uint64_t, std::uint64_t> holes;
  std::uint64_t other_holes = 0;  ///< of all other shards

  /// JSON, about 170 bytes: `{"millrace":"epochs","version":2,"seed":7,"epoch":3,"position":40960,"tracks":960,
  /// "slice":32,"index":"9c..","check":"5d.."}`. The last member is a check word over all others.
  std::string text() const;
  /// Parses the result of text(), also with other spaces and another order of its members, and a text of version 1,
  /// which has no check word. configuration_error, which names the fault, for anything else: a changed digit, another
  /// version.
  static epoch_state parse(std::string_view text);

  /// Throws configuration_error, which names the difference, if a training with `now` as its beginning would not
  /// continue the order of this state. At the beginning of an epoch only the seed must be the same; of a mix, whose
  /// data sets run on from epoch to epoch, everything.
  void check(const epoch_state& now) const;

  friend bool operator==(const epoch_state&, const epoch_state&) = default;

 private:
  friend class detail::window_state;  // has holes too
  std::string unchecked_text() const;
  std::string holes_text() const;
  bool read_holes(std::string_view text);
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::string detail::with_check_word(std::string text) {
  text.insert(text.size() - 1, ",\"check\":\"" + check_word(text) + '"');
  return text;
}

inline void detail::check_state(const text::json_leaves& state, std::string text) {
  const std::optional<std::string_view> word = state.find("check");
  const bool first_version = state.find("version") == "1";
  if (first_version && !word) return;
  if (first_version || word != check_word(text)) {
    throw configuration_error("resume: the state is damaged: its check word is not that of its members");
  }
}

inline std::string epoch_state::text() const { return detail::with_check_word(unchecked_text()); }

inline std::string epoch_state::unchecked_text() const {
  const auto member = [](const char* name, std::uint64_t value) {
    return ",\"" + std::string(name) + "\":" + std::to_string(value);
  };
  return "{\"millrace\":\"epochs\"" + member("version", steps == 0 ? 2 : version) + member("seed", seed) +
         member("epoch", epoch) + member("position", position) + member("tracks", tracks) + member("slice", slice) +
         (hosts == 1 ? std::string() : member("hosts", hosts)) + ",\"index\":\"" + index.text() + '"' +
         (contents == 0 ? std::string() : member("contents", contents)) +
         (mix.empty() ? std::string() : ",\"mix\":\"" + mix + '"') +
         (taken == 0 && world_size == 0 ? std::string() : member("taken", taken) + member("window", window)) +
         (world_size == 0 ? std::string() : member("rank", rank) + member("world_size", world_size)) +
         (steps == 0 ? std::string() : member("steps", steps)) + holes_text() + '}';
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
  if (json->find("order")) {
    fail("the state is of a training without an index: resume it without dataset_options::index");
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
  epoch_state out;
  out.seed = number("seed");
  out.epoch = number("epoch");
  out.position = number("position");
  out.tracks = number("tracks");
  out.slice = number("slice");
  if (json->find("hosts")) out.hosts = number("hosts");
  const std::optional<hash128> index = hash128::parse(json->find("index").value_or(std::string_view()));
  if (!index) fail("the state has no digest \"index\"");
  out.index = *index;
  if (json->find("contents")) out.contents = number("contents");
  out.mix = json->find("mix").value_or(std::string_view());
  if (out.mix.find_first_of("\"\\") != std::string::npos) fail("\"mix\" of the state is not valid");
  if (json->find("taken")) {
    out.taken = number("taken");
    out.window = number("window");
    if (out.taken > UINT32_MAX) fail("\"taken\" of the state is no number of batches");
  }
  if (json->find("world_size")) {
    out.rank = number("rank");
    out.world_size = number("world_size");
    if (out.rank >= out.world_size) fail("\"rank\" of the state is not below its \"world_size\"");
  }
  if (json->find("steps")) out.steps = number("steps");
  const std::optional<std::string_view> lost = json->find("holes");
  if (lost && !out.read_holes(*lost)) fail("\"holes\" of the state are no numbers of shards and samples");
  detail::check_state(*json, out.unchecked_text());
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
  compare("number of hosts", std::to_string(hosts), std::to_string(now.hosts));
  compare("number of tracks", std::to_string(tracks), std::to_string(now.tracks));
  compare("slice", std::to_string(slice), std::to_string(now.slice));
}

}  // namespace millrace
