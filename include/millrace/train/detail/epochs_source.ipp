// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/train/detail/epochs_source.hpp>
#include <millrace/train/detail/mix_text.hpp>
#include <millrace/train/equal_batches.hpp>
#include <millrace/train/tracks_advice.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void check_hosts(const epochs_request& options) {
  const millrace::rank& r = options.rank;
  if (options.hosts == 0 || r.world_size % options.hosts != 0) {
    throw configuration_error("epochs: .hosts is " + std::to_string(options.hosts) + ", and " +
                              std::to_string(r.world_size) + (r.world_size == 1 ? " rank is" : " ranks are") +
                              " not equally many on each");
  }
  if (options.hosts == 1) return;
  const std::uint64_t each = r.world_size / options.hosts;
  if (each == r.local_world_size && std::strcmp(r.source, "replica") != 0 && r.index % each != r.local_index) {
    throw configuration_error("epochs: .hosts needs ranks that are neighbours on each host: rank " +
                              std::to_string(r.index) + " is number " + std::to_string(r.local_index) + " of " +
                              std::to_string(each) + " on its host (" + r.source +
                              "). rank_group::replica() gives ranks other numbers");
  }
}

MILLRACE_INLINE void check_epochs_options(const epochs_request& options) {
  options.rank.check();
  if (options.batch == 0 || options.ahead == 0 || options.requests == 0 || options.part == 0) {
    throw configuration_error("epochs: .batch, .ahead, .requests and .part must not be 0");
  }
  check_hosts(options);
  if (options.rank.world_size > 1 && !options.pad && options.equal == nullptr) {
    throw configuration_error("epochs: .pad = false is for one rank: the batches of several would not be equal");
  }
  if (options.rank.world_size > 1 && options.failures.then == on_failure::stop) {
    throw configuration_error("epochs: on_failure::stop is for one rank: the others would continue without it");
  }
  if (options.epochs != endless && options.epochs > UINT64_MAX - options.first_epoch) {
    throw configuration_error("epochs: too many .epochs");
  }
}

MILLRACE_INLINE std::shared_ptr<equal_state> begin_equal(const epochs_request& options, const epoch_state& from) {
  if (options.equal == nullptr) return nullptr;
  const std::shared_ptr<equal_state>& equal = equal_batches_door::state(*options.equal);
  equal->begin(options.rank, options.seed, options.first_epoch, end_epoch_of(options.first_epoch, options.epochs));
  equal->go_on(from.epoch, from.position, from.steps);
  return equal;
}

MILLRACE_INLINE void log_unchecked_ranks(const executor& ex, const epochs_request& options) {
  if (options.compared || options.rank.world_size == 1 || options.rank.index != 0) return;
  const std::string line = "millrace: epochs: " + std::to_string(options.rank.world_size) +
                           " ranks without a rank_group (.ranks): that seed, dataset, batch, order and state are the "
                           "same on all of them is not checked";
  if (first_time(line)) log_line(ex, line);
}

MILLRACE_INLINE void fill_later(epochs_source& source, equal_state* equal) {
  if (equal == nullptr) return;
  equal->list = source.begin.index;
  source.walk.pad = source.options.pad = false;
}

MILLRACE_INLINE std::uint64_t state_window(std::uint32_t window, std::uint64_t batch, std::uint64_t world) noexcept {
  return key_of(window, batch, world) | 1U;
}

MILLRACE_INLINE void check_state_window(const epoch_state& saved, std::uint32_t window, std::uint64_t batch,
                                        std::uint64_t world) {
  if (saved.taken == 0 && (saved.world_size == 0 || saved.window == 0)) return;
  if (window != 0 && saved.window == state_window(window, batch, world)) return;
  throw configuration_error("resume: the state is " + std::to_string(saved.taken) +
                            " batches into a window of bucket_by_length(), items into a sample of flat_map(), or "
                            "tokens into a document of pack(): it goes on with the same options of that stage, the "
                            "same epochs_options::batch and the same number of ranks");
}

MILLRACE_INLINE std::string dataset_name(std::size_t number, const std::string& prefix) {
  return "data set " + std::to_string(number) + (prefix.empty() ? "" : " (" + detail::shown_url(prefix) + ')');
}

MILLRACE_INLINE sample_mix order_of(const dataset_mix& mix, const epochs_request& how) {
  if (how.hosts != 1) throw configuration_error("epochs: .hosts is for one data set, not for a mix");
  std::vector<std::uint64_t> weights;
  std::vector<std::uint64_t> sizes;
  for (std::size_t d = 0; d < mix.members.size(); ++d) {
    const dataset_mix::member& m = mix.members[d];
    const bool empty = m.indexes == nullptr || m.indexes->samples() == 0;
    if (empty || m.weight == 0) {
      throw configuration_error("epochs: " + dataset_name(d, m.prefix.empty() ? std::string(how.prefix) : m.prefix) +
                                " of the mix has " + (empty ? "no samples" : "the weight 0"));
    }
    weights.push_back(m.weight);
    sizes.push_back(m.indexes->samples());
  }
  if (mix.until == mix_until::forever && mix.samples == 0) {
    throw configuration_error("epochs: a mix with mix_until::forever must say how many .samples an epoch has");
  }
  return sample_mix(weights, sizes, how.tracks, mix.until, mix.samples);
}

MILLRACE_INLINE std::size_t share_of_bytes(std::size_t bytes, std::uint64_t tracks, std::uint64_t of) noexcept {
  return static_cast<std::size_t>(static_cast<double>(bytes) * static_cast<double>(tracks) / static_cast<double>(of));
}

MILLRACE_INLINE epochs_source::epochs_source(std::shared_ptr<const storage> from, const epochs_request& how)
    : store(std::move(from)) {
  check_epochs_options(how);
}

/// `how`: as given, with what was left to epochs() chosen.
MILLRACE_INLINE void epochs_source::begin_with(const epochs_request& how) {
  options = how;
  options.prefix = options.resume = options.index_file = {};
  walk.tracks = options.tracks;
  walk.seed = options.seed;
  walk.batch = options.batch;
  walk.index = options.rank.index;
  walk.world = options.rank.world_size;
  walk.hosts = options.hosts;
  walk.pad = options.pad;
  walk.end_epoch = end_epoch_of(options.first_epoch, options.epochs);
  begin.seed = options.seed;
  begin.epoch = options.first_epoch;
  begin.tracks = options.tracks;
  begin.hosts = options.hosts;
}

MILLRACE_INLINE epochs_source::epochs_source(std::shared_ptr<const index_set> of, std::shared_ptr<const storage> from,
                                             const epochs_request& how, std::vector<std::string> listed)
    : epochs_source(std::move(from), how) {
  if (of == nullptr || of->samples() == 0) throw configuration_error("epochs: the index has no samples");
  epochs_request fitted = how;
  chosen = choose_reading(*of, fitted);
  begin_with(fitted);
  urls = std::move(listed);
  begin.index = of->digest();
  const std::uint64_t samples = of->samples();
  add(std::move(of), std::string(how.prefix), options.seed, how.format);
  begin.slice = walk.sets.front().order.groups ? 0 : walk.sets.front().order.slice;
  finish(samples, how.resume);
}

MILLRACE_INLINE epochs_source::epochs_source(const dataset_mix& several, std::shared_ptr<const storage> from,
                                             const epochs_request& how, std::vector<std::string> listed)
    : epochs_source(std::move(from), how) {
  dataset_mix named = several;
  for (dataset_mix::member& m : named.members) {
    if (m.prefix.empty()) m.prefix = how.prefix;
  }
  epochs_request fitted = how;
  chosen = choose_reading(named, fitted);
  begin_with(fitted);
  mix = std::make_shared<const dataset_mix>(std::move(named));
  urls = std::move(listed);
  auto order = std::make_shared<const sample_mix>(order_of(*mix, fitted));
  hasher128 all;
  for (std::size_t d = 0; d < mix->members.size(); ++d) {
    const dataset_mix::member& m = mix->members[d];
    all.add(m.indexes->digest());
    add(m.indexes, m.prefix, key_of(options.seed, d, m.seed), m.format);
  }
  for (std::size_t d = 0; d < sets.size(); ++d) {
    order_options& of = walk.sets[d].order;
    of.tracks = order->tracks(d);
    of.slice = sets[d].indexes->slice_in_mix(options.slice);
  }
  begin.index = all.value();
  begin.slice = options.slice;
  begin.mix = mix_text(*mix);
  const std::uint64_t samples = order->size();
  walk.mix = std::move(order);
  finish(samples, how.resume);
}

MILLRACE_INLINE void epochs_source::add(std::shared_ptr<const index_set> indexes, std::string prefix,
                                        std::uint64_t seed, std::shared_ptr<const shard_format> its_format) {
  if (its_format == nullptr) its_format = tar_shards();
  if (indexes->size() != 0 && !indexes->of_arrays() &&
      !(*indexes)[0].is_of(its_format->name(), its_format->settings())) {
    throw configuration_error("epochs: the index is of the format " + (*indexes)[0].shown_format() +
                              ", and dataset_options::format is " + shown_format(*its_format));
  }
  epoch_walk::dataset d;
  d.counts = indexes->counts();
  d.selection = indexes->selection();
  d.order = indexes->options_of(options.tracks, options.slice, options.hosts);
  d.seed = seed;
  static_cast<void>(sample_order(d.counts, 0, 0, d.order));  // refuses what is out of range
  const std::uint64_t first = sets.empty() ? 0 : shards();
  walk.sets.push_back(std::move(d));
  sets.push_back({std::move(indexes), std::move(prefix), first, std::move(its_format)});
}

/// `samples`: of an epoch.
MILLRACE_INLINE void epochs_source::finish(std::uint64_t samples, std::string_view resume) {
  begin.contents = contents();
  options.cached = store->caches_on_disk(url(0));
  if (options.cached != 0 && mix == nullptr) note_held(options, *store, *sets[0].indexes, sets[0].prefix, urls);
  walk.end = end_of_epoch(samples, walk.batch, walk.world, options.take_batches);
  if (!resume.empty()) resume_at(epoch_state::parse(resume), samples);
  walk.begin_epoch = begin.epoch;
  walk.begin = begin.position;
  walk.taken = static_cast<std::uint32_t>(begin.taken);
  for (std::uint64_t i = 0; i < shards(); ++i) {
    if (!store->serves(url(i))) {
      throw configuration_error("no store is configured for this URL (.prefix stands in front of the index's names)",
                                where{shown(i), std::nullopt, {}});
    }
  }
}

MILLRACE_INLINE void note_held(epochs_request& training, const storage& store, const index_set& indexes,
                               std::string_view prefix, const std::vector<std::string>& urls) {
  struct range {
    shard object;
    std::uint64_t end;
  };
  const auto parts = [](std::uint64_t n, std::uint64_t of) { return n / of + (n % of != 0 ? 1 : 0); };
  std::vector<range> all;
  const bool of_fields = indexes.of_objects();
  // Objects are looked at by samples, of which a folder may have many.
  const std::uint64_t units = of_fields ? indexes.counts()->samples() : indexes.size();
  const std::uint64_t step = parts(units, 1024);
  std::uint64_t unit = 0;
  for (std::size_t i = 0; i < indexes.size() && !indexes.in_memory(); ++i) {
    const shard_index& index = indexes[i];
    if (index.samples() == 0 || indexes.entries()->count(i) == 0) {  // no sample of it was selected
      unit += of_fields ? index.samples() : 1;
      continue;
    }
    const std::string url = urls.empty() ? std::string(prefix) + index.name() : urls[i];
    if (!of_fields) {
      const std::uint64_t end = index.is_packed() ? index.object_size() : index.end(index.samples() - 1);
      if (unit++ % step == 0) all.push_back({shard(url, index.object_size(), index.etag()), end});
      continue;
    }
    for (std::size_t s = 0; s < index.samples(); ++s) {
      if (unit++ % step != 0) continue;
      for (std::size_t f = 0; f < index.field_count(s); ++f) {
        const shard_index::object o = index.object_at(s, f);
        const std::uint64_t size = index.field_at(s, f).size;
        std::string name = url + (index.name().empty() ? "" : "/");
        name += o.path;
        all.push_back({shard(std::move(name), size, o.etag), size});
      }
    }
  }
  std::uint64_t blocks = 0, number = 0, held = 0, looked = 0;
  for (const range& r : all) blocks += parts(r.end, MiB);
  const std::uint64_t every = parts(blocks, 4096);
  for (const range& r : all) {
    for (std::uint64_t at = 0; at < r.end; at += MiB) {
      if (number++ % every != 0) continue;
      const std::uint64_t length = std::min<std::uint64_t>(MiB, r.end - at);
      held += store.held_on_disk(r.object, at, length);
      looked += length;
    }
  }
  if (looked == 0) return;
  // What pads the samples lies between them.
  const double share = static_cast<double>(held) / static_cast<double>(looked);
  training.held_of = indexes.sample_bytes();
  training.held = static_cast<std::uint64_t>(share * static_cast<double>(training.held_of) + 0.5);
}

/// Of all arrays; 0 where there are none.
MILLRACE_INLINE std::uint64_t epochs_source::contents() const {
  hasher128 all;
  bool any = false;
  for (const dataset& d : sets) {
    if (!d.indexes->of_arrays()) continue;
    all.add((*d.indexes)[0].row_arrays()->contents());
    any = true;
  }
  return any ? all.value().low | 1U : 0;
}

MILLRACE_INLINE std::string epochs_source::shown(std::uint64_t shard) const { return detail::shown_url(url(shard)); }

MILLRACE_INLINE std::string epochs_source::advice() const {
  std::string lines;
  if (other_contents) {
    lines = "the arrays do not contain what they did when the state was written; names, types and shapes are the same, "
            "so the training goes on in the same order, with what they contain now";
  }
  for (std::size_t d = 0; d < sets.size(); ++d) {
    if (sets[d].indexes->in_memory()) continue;
    const order_options& order = walk.sets[d].order;
    epochs_request own = options;
    own.bytes = share_of_bytes(options.bytes, order.tracks, walk.tracks);
    std::string sentence = reading_advice(*sets[d].indexes, order, walk.world, own);
    // Only of shards that are classes is it known that neighbours are alike; plan() says it of others, too.
    const bool alike = sets[d].format != nullptr && sets[d].format->of_classes();
    if (sentence.empty() && mix == nullptr && !chosen.empty() && alike) {
      sentence = default_tracks_advice(*sets[d].indexes, order, walk.world, walk.batch);
    }
    if (sentence.empty()) continue;
    if (!lines.empty()) lines += '\n';
    lines += (mix == nullptr ? "" : dataset_name(d, sets[d].prefix) + " of the mix: ") + sentence;
  }
  return lines;
}

MILLRACE_INLINE void epochs_source::resume_at(const epoch_state& saved, std::uint64_t samples) {
  check_mix(saved.mix, begin.mix, *this);
  saved.check(begin);
  if (saved.epoch < options.first_epoch || saved.epoch > walk.end_epoch) {
    throw configuration_error("resume: the state is in epoch " + std::to_string(saved.epoch) +
                              ", which is not one of this training");
  }
  if (saved.world_size != 0 && (saved.rank != options.rank.index || saved.world_size != options.rank.world_size)) {
    throw configuration_error("resume: the state is that of rank " + std::to_string(saved.rank) + " of " +
                              std::to_string(saved.world_size) + " after pack() or flat_map(), and this is rank " +
                              std::to_string(options.rank.index) + " of " + std::to_string(options.rank.world_size) +
                              ": each resumes from its own");
  }
  if (saved.position > samples || (saved.position == samples && options.equal == nullptr)) {
    throw configuration_error("resume: the state is at sample " + std::to_string(saved.position) +
                              " of an epoch of " + std::to_string(samples));
  }
  other_contents = saved.contents != 0 && begin.contents != 0 && saved.contents != begin.contents;
  begin.epoch = saved.epoch;
  begin.position = saved.position;
  begin.taken = saved.taken;
  begin.window = saved.window;
  begin.rank = saved.rank;
  begin.world_size = saved.world_size;
  begin.steps = saved.steps;
  // The losses of a rank are in its own state; where all go on from one, one of them takes them over.
  if ((options.rank.index != 0 && saved.world_size == 0) || saved.index != begin.index) return;
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < shards(); ++i) names.push_back(shown(i));
  if (!saved.holes.empty() && saved.holes.rbegin()->first >= names.size()) {
    throw configuration_error("resume: the state has losses of shard " + std::to_string(saved.holes.rbegin()->first) +
                              " of " + std::to_string(names.size()));
  }
  begin.holes = saved.holes;
  begin.other_holes = saved.other_holes;
  losses->carry(saved, names);
}

}  // namespace millrace::detail
