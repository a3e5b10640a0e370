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
#include <millrace/base/units.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/train/detail/mix_text.hpp>
#include <millrace/train/detail/training_plan.hpp>
#include <millrace/train/epoch_plan.hpp>
#include <millrace/train/equal_batches.hpp>
#include <millrace/train/rank_group.hpp>
#include <millrace/train/tracks_advice.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Throws configuration_error for .hosts that cannot be.
MILLRACE_INLINE void check_hosts(const epochs_options& options) {
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

/// Throws configuration_error for options that contradict each other, or an index, or that there is none.
MILLRACE_INLINE void check_options(const epochs_options& options, bool indexed) {
  if (options.epochs == 0) throw configuration_error("epochs: .epochs is 0, which reads nothing: `endless` has no end");
  if (options.epochs != endless && options.epochs > UINT64_MAX - options.first_epoch) {
    throw configuration_error("epochs: too many .epochs");
  }
  options.rank.check();
  if (options.batch == 0 || options.ahead == 0 || options.requests == 0 || options.part == 0) {
    throw configuration_error("epochs: .batch, .ahead, .requests and .part must not be 0");
  }
  const bool several = options.rank.world_size > 1;
  if (!indexed) {
    if (options.tracks != 0) throw configuration_error("epochs: .tracks is for a dataset with an index");
    if (options.hosts != 1) throw configuration_error("epochs: .hosts is for a dataset with an index");
    if (several) check_ranks_end(options.equal, options.uneven);
    const bool fills = options.equal != nullptr && !options.uneven;
    if (fills && equal_state::in(*options.equal)->batch != options.batch) {
      throw configuration_error("epochs: .batch is not that of .equal");
    }
    return;
  }
  check_hosts(options);
  if (several && !options.pad && options.equal == nullptr) {
    throw configuration_error("epochs: .pad = false is for one rank: the batches of several would not be equal");
  }
  if (several && options.failures.then == on_failure::stop) {
    throw configuration_error("epochs: on_failure::stop is for one rank: the others would continue without it");
  }
}

MILLRACE_INLINE training_plan::training_plan(const epochs_options& training, epoch_state order, std::string_view state)
    : options(training), begin(std::move(order)) {
  const bool indexed = !begin.streamed;
  if (const rank_group* const group = training.ranks.get()) {
    const millrace::rank& mine = group->mine();
    if (options.rank.world_size != 1 &&
        (options.rank.index != mine.index || options.rank.world_size != mine.world_size)) {
      throw configuration_error("epochs: .rank is " + std::to_string(options.rank.index) + " of " +
                                std::to_string(options.rank.world_size) + ", and .ranks is " +
                                std::to_string(mine.index) + " of " + std::to_string(mine.world_size) +
                                ": leave .rank out");
    }
    options.ranks = rank_group_ref();
    options.rank = mine;
    compared = true;
  }
  const bool fills = options.equal != nullptr && !options.uneven && !indexed;
  if (options.batch == 0) options.batch = fills ? equal_state::in(*options.equal)->batch : 1;
  if (options.bytes == 0 && !indexed) options.bytes = 160 * MiB;
  check_options(options, indexed);
  begin.seed = options.seed;
  begin.epoch = options.first_epoch;
  if (indexed) {
    begin.tracks = options.tracks;
    begin.hosts = options.hosts;
  } else {
    begin.rank = options.rank.index;
    begin.world_size = options.rank.world_size;
  }
  if (state.empty()) return;
  saved = epoch_state::parse(state);
  if (saved->streamed.has_value() == indexed) {
    throw configuration_error(
        indexed ? "resume: the state is of a training without an index: resume it without dataset_options::index"
                : "resume: the state is of a training with an index: give the dataset that index again (.index)");
  }
  if (saved->epoch < options.first_epoch || saved->epoch > end_epoch_of(options.first_epoch, options.epochs)) {
    throw configuration_error("resume: the state is in epoch " + std::to_string(saved->epoch) +
                              ", which is not one of this training");
  }
  begin.former_homes = saved->former_homes && saved->hosts == options.hosts;
  if (fills && saved->taken != 0) {
    throw configuration_error(
        "resume: the state is inside a window of bucket_by_length(), a document of pack() or a sample of flat_map(): "
        "it does not go on with .equal, unless .uneven is said too and equal.fill() is after that stage");
  }
}

MILLRACE_INLINE std::shared_ptr<equal_state> begin_equal(const training_plan& asked) {
  const epochs_options& options = asked.options;
  if (options.equal == nullptr) return nullptr;
  const std::shared_ptr<equal_state>& equal = equal_state::in(*options.equal);
  equal->begin(options.rank, options.seed, options.first_epoch, end_epoch_of(options.first_epoch, options.epochs));
  if (asked.saved) equal->go_on(asked.saved->epoch, asked.saved->position, asked.saved->steps);
  return equal;
}

MILLRACE_INLINE void log_unchecked_ranks(const executor& ex, const training_plan& plan) {
  const millrace::rank& r = plan.options.rank;
  if (plan.compared || r.world_size == 1 || r.index != 0) return;
  const std::string line = "millrace: epochs: " + std::to_string(r.world_size) +
                           " ranks without a rank_group (.ranks): that seed, dataset, batch, order and state are the "
                           "same on all of them is not checked";
  if (first_time(line)) log_line(ex, line);
}

MILLRACE_INLINE std::uint64_t training_plan::window_number(std::uint32_t window) const noexcept {
  return key_of(window, options.batch, options.rank.world_size) | 1U;
}

MILLRACE_INLINE void training_plan::check_window(std::uint32_t window) const {
  if (!saved || (saved->taken == 0 && (saved->world_size == 0 || saved->window == 0))) return;
  if (window != 0 && saved->window == window_number(window)) return;
  throw configuration_error("resume: the state is " + std::to_string(saved->taken) +
                            " batches into a window of bucket_by_length(), items into a sample of flat_map(), or "
                            "tokens into a document of pack(): it goes on with the same options of that stage, the "
                            "same epochs_options::batch and the same number of ranks");
}

MILLRACE_INLINE std::string training_plan::text() const {
  return epoch_plan::of_plan(*this, {}).text() +
         "requests in flight and their length: chosen by what the store is measured to give, at most " +
         std::to_string(options.requests) + " of " + in_bytes(options.part) + " (runtime::hosts())\n";
}

MILLRACE_INLINE std::string dataset_name(std::size_t number, const std::string& prefix) {
  return "data set " + std::to_string(number) + (prefix.empty() ? "" : " (" + detail::shown_url(prefix) + ')');
}

/// Throws configuration_error, which names the data set, for a mix that cannot be.
MILLRACE_INLINE sample_mix order_of(const dataset_mix& mix, const epochs_options& how) {
  if (how.hosts != 1) throw configuration_error("epochs: .hosts is for one data set, not for a mix");
  std::vector<std::uint64_t> weights;
  std::vector<std::uint64_t> sizes;
  for (std::size_t d = 0; d < mix.members.size(); ++d) {
    const dataset_mix::member& m = mix.members[d];
    const bool empty = m.indexes == nullptr || m.indexes->samples() == 0;
    if (empty || m.weight == 0) {
      throw configuration_error("epochs: " + dataset_name(d, m.prefix) + " of the mix has " +
                                (empty ? "no samples" : "the weight 0"));
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

MILLRACE_INLINE training_plan::training_plan(const training_plan& asked, dataset_mix::member data,
                                             std::shared_ptr<const storage> from, std::vector<std::string> listed)
    : training_plan(asked) {
  if (data.indexes == nullptr || data.indexes->samples() == 0) {
    throw configuration_error("epochs: the index has no samples");
  }
  store = std::move(from);
  urls = std::move(listed);
  chosen = choose_reading(*data.indexes, options, begin.slice, saved ? &*saved : nullptr);
  begin_walk();
  begin.index = data.indexes->digest();
  const std::uint64_t samples = data.indexes->samples();
  add(std::move(data.indexes), std::move(data.prefix), options.seed, std::move(data.format));
  begin.slice = walk.sets.front().order.groups ? 0 : walk.sets.front().order.slice;
  finish(samples);
}

MILLRACE_INLINE training_plan::training_plan(const training_plan& asked, dataset_mix data,
                                             std::shared_ptr<const storage> from, std::vector<std::string> listed)
    : training_plan(asked) {
  store = std::move(from);
  urls = std::move(listed);
  chosen = choose_reading(data, options, begin.slice);
  begin_walk();
  mix = std::make_shared<const dataset_mix>(std::move(data));
  auto order = std::make_shared<const sample_mix>(order_of(*mix, options));
  hasher128 all;
  for (std::size_t d = 0; d < mix->members.size(); ++d) {
    const dataset_mix::member& m = mix->members[d];
    all.add(m.indexes->digest());
    add(m.indexes, m.prefix, key_of(options.seed, d, m.seed), m.format);
  }
  for (std::size_t d = 0; d < sets.size(); ++d) {
    order_options& of = walk.sets[d].order;
    of.tracks = order->tracks(d);
    of.slice = sets[d].indexes->slice_in_mix(begin.slice);
  }
  begin.index = all.value();
  begin.mix = mix_text(*mix);
  const std::uint64_t samples = order->size();
  walk.mix = std::move(order);
  finish(samples);
}

/// Called once .tracks is chosen.
MILLRACE_INLINE void training_plan::begin_walk() {
  begin.tracks = walk.tracks = options.tracks;
  walk.seed = options.seed;
  walk.batch = options.batch;
  walk.index = options.rank.index;
  walk.world = options.rank.world_size;
  walk.hosts = options.hosts;
  walk.pad = options.pad && options.equal == nullptr;  // else equal_batches::fill() fills up the steps
  walk.end_epoch = end_epoch_of(options.first_epoch, options.epochs);
}

MILLRACE_INLINE void training_plan::add(std::shared_ptr<const index_set> indexes, std::string prefix,
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
  d.order = indexes->options_of(options.tracks, begin.slice, options.hosts);
  d.order.former_homes = begin.former_homes;
  d.seed = seed;
  static_cast<void>(sample_order(d.counts, 0, 0, d.order));  // refuses what is out of range
  const std::uint64_t first = sets.empty() ? 0 : shards();
  walk.sets.push_back(std::move(d));
  sets.push_back({std::move(indexes), std::move(prefix), first, std::move(its_format)});
}

/// `samples`: of an epoch.
MILLRACE_INLINE void training_plan::finish(std::uint64_t samples) {
  begin.contents = contents();
  cached = store->caches_on_disk(url(0));
  if (cached != 0 && mix == nullptr) held = look_on_disk(*store, *sets[0].indexes, sets[0].prefix, urls);
  walk.end = end_of_epoch(samples, walk.batch, walk.world, options.take_batches);
  if (saved) resume(samples);
  walk.begin_epoch = begin.epoch;
  walk.begin = begin.position;
  walk.taken = static_cast<std::uint32_t>(begin.taken);
}

MILLRACE_INLINE void training_plan::check_store() const {
  for (std::uint64_t i = 0; i < shards(); ++i) {
    if (!store->serves(url(i))) {
      throw configuration_error("no store is configured for this URL (.prefix stands in front of the index's names)",
                                where{shown(i), std::nullopt, {}});
    }
  }
}

MILLRACE_INLINE samples_on_disk look_on_disk(const storage& store, const index_set& indexes, std::string_view prefix,
                                             const std::vector<std::string>& urls) {
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
      const std::uint64_t end =
          index.is_packed() || index.in_store() ? index.object_size() : index.end(index.samples() - 1);
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
  if (looked == 0) return {};
  // Padding lies between the samples.
  const double share = static_cast<double>(held) / static_cast<double>(looked);
  const std::uint64_t of = indexes.sample_bytes();
  return {static_cast<std::uint64_t>(share * static_cast<double>(of) + 0.5), of};
}

/// The digest of all arrays; 0 if there are none.
MILLRACE_INLINE std::uint64_t training_plan::contents() const {
  hasher128 all;
  bool any = false;
  for (const dataset& d : sets) {
    if (!d.indexes->of_arrays()) continue;
    all.add((*d.indexes)[0].row_arrays()->contents());
    any = true;
  }
  return any ? all.value().low | 1U : 0;
}

MILLRACE_INLINE std::string training_plan::shown(std::uint64_t shard) const { return detail::shown_url(url(shard)); }

MILLRACE_INLINE std::string training_plan::advice() const {
  std::string lines;
  if (other_contents) {
    lines = "the arrays do not contain what they did when the state was written; names, types and shapes are the same, "
            "so the training goes on in the same order, with what they contain now";
  }
  for (std::size_t d = 0; d < sets.size(); ++d) {
    if (sets[d].indexes->in_memory()) continue;
    const order_options& order = walk.sets[d].order;
    epochs_options own = options;
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

/// `samples`: of an epoch.
MILLRACE_INLINE void training_plan::resume(std::uint64_t samples) {
  const epoch_state& from = *saved;
  check_mix(from.mix, begin.mix, *this);
  from.check(begin);
  if (from.world_size != 0 && (from.rank != options.rank.index || from.world_size != options.rank.world_size)) {
    throw configuration_error("resume: the state is that of rank " + std::to_string(from.rank) + " of " +
                              std::to_string(from.world_size) + " after pack() or flat_map(), and this is rank " +
                              std::to_string(options.rank.index) + " of " + std::to_string(options.rank.world_size) +
                              ": each resumes from its own");
  }
  if (from.position > samples || (from.position == samples && options.equal == nullptr)) {
    throw configuration_error("resume: the state is at sample " + std::to_string(from.position) +
                              " of an epoch of " + std::to_string(samples));
  }
  other_contents = from.contents != 0 && begin.contents != 0 && from.contents != begin.contents;
  begin.epoch = from.epoch;
  begin.position = from.position;
  begin.taken = from.taken;
  begin.window = from.window;
  begin.rank = from.rank;
  begin.world_size = from.world_size;
  begin.steps = from.steps;
  // The losses of a rank are in its own state; where all go on from one, one of them takes them over.
  if ((options.rank.index != 0 && from.world_size == 0) || from.index != begin.index) return;
  if (!from.holes.empty() && from.holes.rbegin()->first >= shards()) {
    throw configuration_error("resume: the state has losses of shard " + std::to_string(from.holes.rbegin()->first) +
                              " of " + std::to_string(shards()));
  }
  begin.holes = from.holes;
  begin.other_holes = from.other_holes;
}

}  // namespace millrace::detail
