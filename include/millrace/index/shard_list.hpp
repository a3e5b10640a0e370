// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A shard and its number of samples, from the list of another tool.
class counted_shard {
 public:
  std::string url;                    ///< as it stands in the list: often relative to the list's own place
  std::uint64_t samples = 0;          ///< as the list says
  std::optional<std::uint64_t> size;  ///< in bytes, where the list says it
};

/// Reads the JSON lists of shards with counts that WebDataset's tools write, in their order: the shard index of wids
/// (`{"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 1000, "filesize": 123}, ...]}`), and the plain
/// object of names and counts (`{"a.tar": 1000, ...}`). Other members of the first are passed over.
///
/// An index_error, which names `file`, for what is neither, a shard without a URL or a count, and one that stands there
/// twice.
std::vector<counted_shard> read_shard_list(std::string_view text, const std::string& file);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::vector<counted_shard> read_shard_list(std::string_view text, const std::string& file) {
  const auto fail = [&](const std::string& reason) { throw index_error(reason, where{file, std::nullopt, {}}); };
  const auto leaves = text::json_leaves::parse(text, text::json_leaves::arrays::kept);
  if (!leaves) fail("not a list of shards: it is no intact JSON");
  const auto number_of = [&](std::string_view place, std::string_view digits) {
    const std::optional<std::uint64_t> n = text::parse_decimal<std::uint64_t>(digits);
    if (!n) fail("\"" + std::string(place) + "\" is not a number of samples or bytes");
    return *n;
  };
  std::vector<counted_shard> all;
  std::vector<bool> counted;
  constexpr std::string_view list = "shardlist/";
  bool is_wids = false;
  for (const auto& [place, value] : leaves->all()) {
    if (place == "wids_version" && value != "1") fail("the list has wids_version " + value + "; 1 is known");
    is_wids = is_wids || place == "wids_version" || std::string_view(place).substr(0, list.size()) == list;
  }
  for (const auto& [place, value] : leaves->all()) {
    if (!is_wids) {
      counted_shard s;
      s.url = place;
      s.samples = number_of(place, value);
      all.push_back(std::move(s));
      counted.push_back(true);
      continue;
    }
    std::string_view rest = place;
    if (rest.substr(0, list.size()) != list) continue;
    rest.remove_prefix(list.size());
    const std::optional<std::size_t> i = text::take_decimal<std::size_t>(rest);
    if (!i || *i >= text.size()) fail("\"shardlist\" is not a list");
    if (*i >= all.size()) {  // in their order; one without members is left out of the leaves, and is noticed below
      all.resize(*i + 1);
      counted.resize(*i + 1, false);
    }
    if (rest == "/url") all[*i].url = value;
    if (rest == "/filesize") all[*i].size = number_of(place, value);
    if (rest == "/nsamples") {
      all[*i].samples = number_of(place, value);
      counted[*i] = true;
    }
  }
  if (all.empty()) fail("the list has no shards");
  std::vector<std::string_view> urls;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].url.empty()) fail("shard " + std::to_string(i) + " of the list has no url");
    if (!counted[i]) fail("shard " + std::to_string(i) + " of the list, " + all[i].url + ", has no nsamples");
    urls.push_back(all[i].url);
  }
  std::sort(urls.begin(), urls.end());
  const auto twice = std::adjacent_find(urls.begin(), urls.end());
  if (twice != urls.end()) fail("the list has " + std::string(*twice) + " twice");
  return all;
}

}  // namespace millrace
