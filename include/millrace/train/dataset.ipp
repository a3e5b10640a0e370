// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/index/detail/object_index.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_format.hpp>
#include <millrace/order/detail/words.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/detail/agreement.hpp>
#include <millrace/train/detail/deal_epochs.hpp>
#include <millrace/train/detail/deal_windows.hpp>
#include <millrace/train/detail/epochs_position.hpp>
#include <millrace/train/detail/epochs_request.hpp>
#include <millrace/train/detail/epochs_source.hpp>
#include <millrace/train/detail/listed_index.hpp>
#include <millrace/train/detail/window_state.hpp>
#include <millrace/train/epoch_plan.hpp>
#include <millrace/train/tracks_advice.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// What a dataset is made of, and what has been learnt of it. Copies share it.
class dataset_state {
 public:
  enum class source : unsigned char { prefix, shards, stream, indexes, mix };

  dataset_state(source s, std::shared_ptr<const storage> from, dataset_options o)
      : of(s), store(std::move(from)), options(std::move(o)) {}

  /// Whether epochs have the canonical order: there is an index, or will be.
  bool indexed() const noexcept { return of == source::indexes || of == source::mix || !options.index.empty(); }
  /// What stands before the names of its indexes.
  std::string index_prefix() const;
  /// How messages name it.
  std::string shown() const;
  /// The indexes, if they were given or have been read, or lie in a file; of a mix null.
  std::shared_ptr<const index_set> known() const;
  void learn(std::shared_ptr<const index_set> indexes);
  /// What it is chosen from: itself where it is no part of another one.
  const dataset_state& all() const noexcept { return whole == nullptr ? *this : whole->all(); }
  /// Options that the readers take: those of the training, of the data, and the texts, which refer to `data`.
  epochs_request with(const epochs_options& training, std::string_view state) const;
  /// Throws configuration_error for a mix that cannot be.
  void check_mix() const;
  /// Throws configuration_error for options that mean nothing for how the data is given.
  void check() const;
  /// Its parts with indexes of their own: of a mix the members, else itself.
  static std::vector<std::shared_ptr<dataset_state>> parts(std::shared_ptr<dataset_state> data);
  /// The indexes of its parts, if all are known; whether all were given.
  static std::optional<std::vector<std::shared_ptr<const index_set>>> all_known(std::shared_ptr<dataset_state> data);
  static bool all_given(std::shared_ptr<dataset_state> data);
  /// What the readers take, by the indexes of its parts. `urls`: see epochs_source.
  epochs_source source_of(const std::vector<std::shared_ptr<const index_set>>& its_indexes,
                          const epochs_request& training, std::vector<std::string> urls) const;
  dataset_mix mix_of(const std::vector<std::shared_ptr<const index_set>>& its_indexes) const;
  /// The store of a mix: that of all members, each of whose URLs the right one serves.
  std::shared_ptr<const storage> store_of_mix() const;

  const source of;
  const std::shared_ptr<const storage> store;  // null: a mix
  const dataset_options options;
  std::string prefix;                         // that is listed
  std::vector<weighted_dataset> members;      // of a mix
  dataset_mix_options mix;
  std::shared_ptr<dataset_state> whole;         // of a part: what it is chosen from, which lists and reads the index
  std::shared_ptr<const sample_choice> choice;  // and what of it

  // What changes, under the mutex:
  mutable std::mutex mutex;
  mutable std::shared_ptr<const index_set> indexes;
  mutable std::shared_ptr<const index_set> chosen_from;  // of a part: what `indexes` were chosen from
  stream<shard> given;                          // not read yet
  std::optional<std::vector<shard>> shards;  // given, or read from the stream
};

/// The store of rows of arrays, of which nothing is read through it.
template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_row_storage final : public storage {
 public:
  bool serves(std::string_view url) const noexcept override { return url.substr(0, scheme.size()) == scheme; }
  task<part> read(shard, std::string, std::uint64_t, std::size_t, slab_pool) const override {
    misused("rows of arrays were read as an object");
  }
  bool over_network(std::string_view) const noexcept override { return false; }

  static constexpr std::string_view scheme = "arrays:";
};
using row_storage = basic_row_storage<>;

/// Makes the index of arrays.
class array_index {
 public:
  static std::shared_ptr<const index_set> of(const arrays& rows) {
    shard_index made;
    made.name_ = row_storage::scheme;
    made.format_ = sample_format::arrays;
    made.flags_ = shard_index::with_keys;
    made.array_rows_ = rows.rows();
    made.mapped_ = rows.mapped();
    std::uint64_t before = 0;
    for (const named_array& one : rows) {
      shard_index::field_row field;
      field.offset = before;
      field.size = one.value.memory().size() / rows.rows();
      field.extension = static_cast<std::uint32_t>(made.extensions_.size());
      before += field.size;
      made.rows_.fields.push_back(field);
      made.extensions_.push_back(one.name);
      made.name_ += (made.extensions_.size() == 1 ? "" : ",") + one.name;
      made.paths_ += one.name + ' ' + name_of(one.value.type()) + ' ' + one.value.dims().text() + '\n';
    }
    made.object_size_ = before * made.array_rows_;
    made.arrays_ = std::make_shared<const arrays>(rows);
    std::vector<shard_index> all;
    all.push_back(std::move(made));
    return std::make_shared<const index_set>(std::move(all));
  }
};

/// For epochs() and what else works on datasets.
class dataset_door {
 public:
  static const std::shared_ptr<dataset_state>& state(const dataset& data) noexcept { return data.state_; }
};

MILLRACE_INLINE std::string dataset_state::index_prefix() const {
  if (!options.prefix.empty() || of != source::prefix) return options.prefix;
  // Of files() it may be a pattern.
  const std::size_t pattern = prefix.find("://") == std::string::npos ? prefix.find_first_of("*?[") : std::string::npos;
  const std::size_t slash = prefix.rfind('/', pattern);
  if (slash != std::string::npos) return prefix.substr(0, slash + 1);
  return pattern == std::string::npos ? prefix : std::string();
}

MILLRACE_INLINE std::string dataset_state::shown() const {
  return detail::shown_url(of == source::prefix ? prefix : options.prefix);
}

MILLRACE_INLINE std::shared_ptr<const index_set> dataset_state::known() const {
  const std::shared_ptr<const index_set> from = whole == nullptr ? nullptr : whole->known();
  const std::lock_guard lock(mutex);
  if (whole != nullptr) {
    if (chosen_from != from) indexes = from == nullptr ? nullptr : select(*from, *choice);
    chosen_from = from;
    return indexes;
  }
  std::error_code ignored;
  const std::string& file = options.index;
  if (indexes == nullptr && !file.empty() && file.find("://") == std::string::npos &&
      std::filesystem::exists(file, ignored)) {
    std::shared_ptr<const index_set> there = listed_index::read(file);
    listed_index::check_format(*there, options.format, file);
    indexes = std::move(there);
  }
  return indexes;
}

MILLRACE_INLINE void dataset_state::learn(std::shared_ptr<const index_set> its_indexes) {
  if (whole != nullptr) return whole->learn(std::move(its_indexes));
  const std::lock_guard lock(mutex);
  indexes = std::move(its_indexes);
}

/// The shards, and where they come from a stream, whether another run is reading it.
template <class Shard>
async_generator<Shard> list_shards(std::shared_ptr<dataset_state> data) {
  while (data->whole != nullptr) data = data->whole;
  std::vector<Shard> all;
  stream<Shard> source;
  {
    const std::lock_guard lock(data->mutex);
    if (data->of == dataset_state::source::prefix) {
      source = data->store->list(data->prefix);
      if (!source) {
        throw configuration_error("this store cannot list: give the dataset its shards, as in dataset(store, "
                                  "shards(names))",
                                  where{data->shown(), std::nullopt, {}});
      }
    } else if (data->shards) {
      all = *data->shards;
    } else if (data->given) {
      source = std::move(data->given);
    } else {
      throw usage_error("dataset: its stream of shards has not been read to its end by the run that began first: give "
                        "it a prefix or a vector of shards");
    }
  }
  const bool keep = data->of == dataset_state::source::stream && source;
  if (source) {
    while (std::optional<Shard> s = co_await source.next()) {
      if (data->of == dataset_state::source::prefix && is_index_beside(data->prefix, s->url)) {
        log_left_out(co_await this_executor(), s->url);
      } else if (keep) {
        all.push_back(std::move(*s));
      } else {
        co_yield give(*s);
      }
    }
  }
  if (keep) {
    const std::lock_guard lock(data->mutex);
    data->shards = all;
  }
  for (Shard& s : all) co_yield give(s);
}

MILLRACE_INLINE epochs_request dataset_state::with(const epochs_options& training, std::string_view state) const {
  epochs_request all{training};
  if (all.batch == 0) {  // not said
    const bool filled = training.equal != nullptr && !training.uneven && !indexed();
    all.batch = filled ? equal_batches_door::state(*training.equal)->batch : 1;
  }
  all.resume = state;
  all.slice = of == source::mix ? mix.slice : options.slice;
  all.index = options.index.empty() ? index_use::none : options.make_index ? index_use::build : index_use::required;
  all.index_file = options.index;
  all.format = options.format;
  all.shards = options.shards;
  all.window = options.window;
  all.window_bytes = options.window_bytes;
  return all;
}

MILLRACE_INLINE void dataset_state::check_mix() const {
  if (members.empty()) throw configuration_error("dataset: a mix has no members");
  for (std::size_t i = 0; i < members.size(); ++i) {
    const dataset_state& d = *dataset_door::state(members[i].of);
    const auto refuse = [&](const std::string& why) {
      const std::string name = d.shown();
      throw configuration_error("dataset: member " + std::to_string(i) + (name.empty() ? "" : " (" + name + ')') +
                                " of the mix " + why);
    };
    if (d.of == source::mix) refuse("is a mix itself: give its members, and their weights");
    if (!d.indexed()) refuse("has no index, and only samples that are known can be mixed in proportion: give .index");
    if (members[i].weight == 0) refuse("has the weight 0");
    if (d.options.slice != 0 && d.options.slice != mix.slice) {
      refuse("has a .slice of its own: give it to the mix, dataset_mix_options::slice");
    }
    // Each URL is read by the first store that serves it.
    const std::string url = d.of == source::prefix ? d.prefix : d.options.prefix;
    for (std::size_t k = 0; k < i; ++k) {
      const std::shared_ptr<const storage>& other = dataset_door::state(members[k].of)->store;
      if (other == d.store || url.empty() || !other->serves(url) || other->host(url) == d.store->host(url)) continue;
      refuse("lies in another store than member " + std::to_string(k) + ", which serves the same URLs");
    }
  }
}

MILLRACE_INLINE std::shared_ptr<const storage> dataset_state::store_of_mix() const {
  std::vector<std::shared_ptr<const storage>> all;
  for (const weighted_dataset& m : members) {
    const std::shared_ptr<const storage>& its = dataset_door::state(m.of)->store;
    bool there = false;
    for (const auto& other : all) there = there || other == its;
    if (!there) all.push_back(its);
  }
  if (all.size() == 1) return all.front();
  return std::make_shared<const storage_set>(std::move(all));
}

/// A dataset's part with an index of its own: of a mix its members, else itself.
MILLRACE_INLINE std::vector<std::shared_ptr<dataset_state>> dataset_state::parts(std::shared_ptr<dataset_state> data) {
  std::vector<std::shared_ptr<dataset_state>> all;
  for (const weighted_dataset& m : data->members) all.push_back(dataset_door::state(m.of));
  if (all.empty()) all.push_back(std::move(data));
  return all;
}

/// `indexes`: of its parts. `urls`: see epochs_source.
MILLRACE_INLINE epochs_source dataset_state::source_of(const std::vector<std::shared_ptr<const index_set>>& its_indexes,
                                                       const epochs_request& training,
                                                       std::vector<std::string> urls) const {
  if (of != source::mix) return epochs_source(its_indexes.front(), store, training, std::move(urls));
  return epochs_source(mix_of(its_indexes), store_of_mix(), training, std::move(urls));
}

MILLRACE_INLINE dataset_mix dataset_state::mix_of(
    const std::vector<std::shared_ptr<const index_set>>& its_indexes) const {
  dataset_mix all;
  all.until = mix.until;
  all.samples = mix.samples;
  for (std::size_t i = 0; i < members.size(); ++i) {
    all.members.push_back({its_indexes[i], members[i].weight, dataset_door::state(members[i].of)->index_prefix(),
                           members[i].seed, dataset_door::state(members[i].of)->options.format.shards()});
  }
  return all;
}

/// The indexes of its parts, if all are known.
MILLRACE_INLINE std::optional<std::vector<std::shared_ptr<const index_set>>> dataset_state::all_known(
    std::shared_ptr<dataset_state> data) {
  std::vector<std::shared_ptr<const index_set>> all;
  for (const std::shared_ptr<dataset_state>& part : parts(std::move(data))) {
    all.push_back(part->known());
    if (all.back() == nullptr && part->of != source::indexes) return std::nullopt;
  }
  return all;
}

MILLRACE_INLINE bool dataset_state::all_given(std::shared_ptr<dataset_state> data) {
  for (const std::shared_ptr<dataset_state>& part : parts(std::move(data))) {
    if (part->of != source::indexes) return false;
  }
  return true;
}

/// Of the indexes of a dataset's parts.
MILLRACE_INLINE hash128 digest_of(const std::vector<std::shared_ptr<const index_set>>& indexes) {
  hasher128 all;
  for (const std::shared_ptr<const index_set>& i : indexes) all.add(i->digest());
  return all.value();
}

/// Samples by indexes that are read or made first, and compared with what is listed.
template <class Sample>
async_generator<Sample> deal_listed_data(std::shared_ptr<dataset_state> data, kept_epochs_options options,
                                         std::shared_ptr<epochs_position> position, std::shared_ptr<equal_state> equal,
                                         std::shared_ptr<agreement> agreed) {
  const epochs_request training = options.get();
  std::vector<std::shared_ptr<const index_set>> indexes;
  std::vector<std::string> urls;
  std::optional<epochs_source> known;
  std::exception_ptr failure;  // which the other ranks learn of
  try {
    for (const std::shared_ptr<dataset_state>& part : dataset_state::parts(data)) {
      if (part->of == dataset_state::source::indexes) {
        indexes.push_back(part->known());
        for (const shard_index& index : *indexes.back()) urls.push_back(part->index_prefix() + index.name());
        continue;
      }
      const std::string prefix = part->index_prefix();
      epochs_request own = part->with(training, {});
      own.prefix = prefix;
      listed_index index(part->store, own, part->all().known());
      async_generator<shard> list = list_shards<shard>(part);
      std::shared_ptr<const index_set> its;
      if (of_objects(part->options.format)) {
        object_index_builder objects(part->options.format, prefix);
        while (std::optional<shard> s = co_await list.next()) {
          if (!index.is_own(*s)) objects.add(*s);
        }
        const std::string passed_over = objects.passed_over();
        executor& ex = co_await this_executor();
        if (!passed_over.empty() && first_time(passed_over)) log_line(ex, "millrace: dataset: " + passed_over);
        auto made = std::make_shared<const index_set>(objects.finish());
        if (made->samples() == 0) {
          throw configuration_error("dataset: there is no object that is a sample", where{part->shown(), {}, {}});
        }
        its = co_await index.of_objects(std::move(made));
      } else {
        std::vector<shard> listed;
        while (std::optional<shard> s = co_await list.next()) listed.push_back(std::move(*s));
        its = co_await index.of(std::move(listed));
      }
      part->learn(std::move(its));
      indexes.push_back(part->known());
      urls.insert(urls.end(), index.urls().begin(), index.urls().end());
    }
    known.emplace(data->source_of(indexes, training, std::move(urls)));
  } catch (...) {
    if (agreed == nullptr) throw;
    failure = std::current_exception();
  }
  if (agreed != nullptr) {
    if (failure == nullptr) agreed->learn("the index", digest_of(indexes));
    co_await agreed->settle(failure);
  }
  epochs_source source = std::move(*known);
  fill_later(source, equal.get());
  position->become(source);
  async_generator<Sample> samples = deal_epochs<Sample>(std::move(source));
  while (std::optional<Sample> s = co_await samples.next()) co_yield give(*s);
}

template <class Sample>
stream<Sample> epochs_of_listed(std::shared_ptr<dataset_state> data, epochs_request options,
                                std::shared_ptr<agreement> agreed) {
  check_epochs_options(options);
  epoch_state from;
  from.epoch = options.first_epoch;
  if (!options.resume.empty()) from = epoch_state::parse(options.resume);
  const bool mixed = data->of == dataset_state::source::mix;
  const std::shared_ptr<const storage> store = mixed ? data->store_of_mix() : data->store;
  auto position = std::make_shared<epochs_position>(options, mixed);
  std::size_t bytes = options.bytes;
  if (const auto known = dataset_state::all_known(data)) {  // by a file or a run before: what is promised can be said
    const epochs_source source = data->source_of(*known, options, {});
    bytes = source.options.bytes;
    position->become(source);
  } else if (bytes == 0) {
    bytes = most_bytes(!mixed && options.tracks == 0 && options.resume.empty());
  }
  std::shared_ptr<equal_state> equal = begin_equal(options, from);
  stream<Sample> made = stream<Sample>(deal_listed_data<Sample>(std::move(data), kept_epochs_options(options), position,
                                                                std::move(equal), std::move(agreed)))
                            .named("epochs", ".bytes");
  return declare_source(std::move(made), options, options.equal != nullptr)
      .bounded(options.ahead, detail::added(bytes, store->keeps()))
      .positioned(position)
      .of_rank(options.rank);
}

/// Options that mean nothing for how the data is given are mistakes.
MILLRACE_INLINE void dataset_state::check() const {
  const dataset_options none;
  if (store == nullptr) throw usage_error("dataset: the store is null");
  if (options.format == sample_format::described && options.format.shards() == nullptr) {
    throw usage_error("dataset: .format is null: give what its function returns");
  }
  if (options.format == sample_format::arrays) {
    throw configuration_error("dataset: .format is arrays, which lie in no store: give them, as in "
                              "dataset(arrays({{name, array}}))");
  }
  const bool streamed = options.shards != none.shards || options.window != none.window ||
                        options.window_bytes != none.window_bytes;
  if (indexed() && streamed) {
    throw configuration_error("dataset: .shards, .window and .window_bytes are for data without an index");
  }
  if (of == source::indexes && (!options.index.empty() || !options.make_index)) {
    throw configuration_error("dataset: .index and .make_index are not for a dataset whose indexes are given");
  }
  if (!indexed() && options.format != sample_format::tar) {
    throw configuration_error("dataset: samples of " + std::string(options.format.shards() ? "" : "sample_format::") +
                              format_name(options.format) + " need an index: give .index, the file where it is kept");
  }
  const bool said = options.format != sample_format::tar;
  const bool alike = of != source::indexes || indexes->size() == 0 || (*indexes)[0].is_of(options.format);
  if (said && !alike) {
    throw configuration_error("dataset: .format is " + format_name(options.format) +
                              ", and the indexes that are given are of " + index_format_name(*indexes));
  }
  if (said && of == source::indexes) listed_index::check_fields(*indexes, options.format);
  if (of == source::indexes && of_objects(indexes->format()) && !options.prefix.empty() &&
      options.prefix.back() != '/') {
    throw configuration_error("dataset: the .prefix of objects that are samples is a folder: it ends in a slash");
  }
  const bool listed = of == source::shards || of == source::stream;
  if (listed && of_objects(options.format) && (options.prefix.empty() || options.prefix.back() != '/')) {
    throw configuration_error("dataset: objects that are samples are called by their paths below a folder: give its "
                              "URL, with a slash at its end, as .prefix");
  }
  if (!indexed() && (options.slice != 0 || !options.prefix.empty() || !options.make_index)) {
    throw configuration_error("dataset: .slice, .prefix and .make_index are for data with an index: give .index");
  }
  if (options.shards == 0 || options.window == 0 || options.window_bytes == 0) {
    throw configuration_error("dataset: .shards, .window and .window_bytes must not be 0");
  }
}

}  // namespace detail

MILLRACE_INLINE dataset::dataset(std::shared_ptr<const storage> store, std::string prefix, dataset_options options, int)
    : state_(std::make_shared<detail::dataset_state>(detail::dataset_state::source::prefix, std::move(store),
                                                     std::move(options))) {
  state_->check();
  if (prefix.empty()) throw configuration_error("dataset: the prefix is empty");
  if (!state_->store->serves(prefix)) {
    throw configuration_error("dataset: the store does not serve this prefix",
                              where{detail::shown_url(prefix), std::nullopt, {}});
  }
  const bool pattern = prefix.find("://") == std::string::npos && prefix.find_first_of("*?[") != std::string::npos;
  if (of_objects(state_->options.format)) {
    if (pattern) {
      throw configuration_error("dataset: objects that are samples lie in a folder: give its path and no pattern",
                                where{prefix, std::nullopt, {}});
    }
    if (prefix.back() != '/') prefix += '/';
  }
  std::error_code ignored;
  if (!pattern && prefix.back() != '/' && prefix.find("://") == std::string::npos &&
      std::filesystem::is_directory(prefix, ignored)) {
    prefix += '/';  // the same names in the index, however it is written
  }
  state_->prefix = std::move(prefix);
}

MILLRACE_INLINE dataset::dataset(std::shared_ptr<const storage> store, std::vector<shard> shards,
                                 dataset_options options, int)
    : state_(std::make_shared<detail::dataset_state>(detail::dataset_state::source::shards, std::move(store),
                                                     std::move(options))) {
  state_->check();
  state_->shards = std::move(shards);
}

MILLRACE_INLINE dataset::dataset(std::shared_ptr<const storage> store, stream<shard> shards, dataset_options options,
                                 int)
    : state_(std::make_shared<detail::dataset_state>(detail::dataset_state::source::stream, std::move(store),
                                                     std::move(options))) {
  state_->check();
  state_->given = std::move(shards);
}

MILLRACE_INLINE dataset::dataset(std::shared_ptr<const storage> store, std::shared_ptr<const index_set> indexes,
                                 dataset_options options, int)
    : state_(std::make_shared<detail::dataset_state>(detail::dataset_state::source::indexes, std::move(store),
                                                     std::move(options))) {
  if (indexes == nullptr) throw configuration_error("dataset: the indexes are null");
  state_->indexes = std::move(indexes);
  state_->check();
}

MILLRACE_INLINE dataset::dataset(const arrays& rows, dataset_options options)
    : state_(std::make_shared<detail::dataset_state>(detail::dataset_state::source::indexes,
                                                     std::make_shared<const detail::row_storage>(),
                                                     std::move(options))) {
  if (!state_->options.prefix.empty() || state_->options.format != sample_format::tar) {
    throw configuration_error("dataset: .prefix and .format are not for a dataset of arrays");
  }
  state_->indexes = detail::array_index::of(rows);
  state_->check();
}

MILLRACE_INLINE dataset::dataset(std::vector<weighted_dataset> members, dataset_mix_options options)
    : state_(std::make_shared<detail::dataset_state>(detail::dataset_state::source::mix, nullptr, dataset_options())) {
  state_->members = std::move(members);
  state_->mix = options;
  state_->check_mix();
}

MILLRACE_INLINE dataset::dataset(const dataset& of, std::shared_ptr<const detail::sample_choice> choice)
    : state_(std::make_shared<detail::dataset_state>(of.state_->of, of.state_->store, of.state_->options)) {
  if (of.state_->of == detail::dataset_state::source::mix) {
    throw configuration_error("dataset: samples cannot be chosen from a mix: choose from its members");
  }
  if (!of.state_->indexed()) {
    throw configuration_error("dataset: samples can be chosen where they are known beforehand: give it .index; without "
                              "one, filter() leaves samples out, and epochs_options::take_batches ends an epoch early");
  }
  state_->prefix = of.state_->prefix;
  state_->whole = of.state_;
  state_->choice = std::move(choice);
}
MILLRACE_INLINE dataset dataset::subset(std::uint64_t begin, std::uint64_t end) const {
  return dataset(*this, detail::choice_of_range(begin, end, false));
}
MILLRACE_INLINE dataset dataset::subset(std::vector<std::uint64_t> samples) const {
  return dataset(*this, detail::choice_of_list(std::move(samples)));
}
MILLRACE_INLINE dataset dataset::take(std::uint64_t samples) const {
  return dataset(*this, detail::choice_of_range(0, samples, true));
}
MILLRACE_INLINE dataset dataset::weighted(std::vector<float> weights, weighted_options options) const {
  std::vector<std::uint32_t> words;
  words.reserve(weights.size());
  for (const float w : weights) words.push_back(std::bit_cast<std::uint32_t>(w));
  weights = {};
  return dataset(*this, detail::choice_of_words(detail::sample_choice::kind::weights, options, std::move(words)));
}
MILLRACE_INLINE dataset dataset::balanced(std::vector<std::uint32_t> classes, weighted_options options) const {
  return dataset(*this, detail::choice_of_words(detail::sample_choice::kind::classes, options, std::move(classes)));
}

namespace detail {

/// The sum of what `of` gives of each data set, if all are known.
template <class F>
std::optional<std::uint64_t> sum_of(const dataset_state& data, const F& of) {
  if (data.of != dataset_state::source::mix) {
    const std::shared_ptr<const index_set> indexes = data.known();
    if (indexes == nullptr) return std::nullopt;
    return of(*indexes);
  }
  std::uint64_t all = 0;
  for (const weighted_dataset& m : data.members) {
    const std::optional<std::uint64_t> one = sum_of(*dataset_door::state(m.of), of);
    if (!one) return std::nullopt;
    all += *one;
  }
  return all;
}

}  // namespace detail

MILLRACE_INLINE std::optional<std::uint64_t> dataset::samples() const {
  return detail::sum_of(*state_, [](const index_set& i) { return i.samples(); });
}
MILLRACE_INLINE std::optional<std::uint64_t> dataset::shards() const {
  return detail::sum_of(*state_, [](const index_set& i) { return static_cast<std::uint64_t>(i.size()); });
}
MILLRACE_INLINE std::optional<std::uint64_t> dataset::bytes() const {
  return detail::sum_of(*state_, [](const index_set& i) { return i.sample_bytes(); });
}
MILLRACE_INLINE std::vector<std::string> dataset::classes() const {
  const std::shared_ptr<const index_set> indexes = state_->known();
  if ((indexes != nullptr ? indexes->format() : sample_format(state_->options.format)) != sample_format::classes) {
    throw usage_error("dataset: only data of sample_format::classes has classes");
  }
  if (indexes == nullptr) {
    throw usage_error("dataset: its classes are not known yet: the first run of " + state_->shown() +
                      " lists them before its first sample. samples() says whether they are known. A sample has its "
                      "own: its key begins with the class's name, and \"cls\" is the number");
  }
  std::vector<std::string> names;
  for (const shard_index& index : *indexes) names.push_back(index.name());
  return names;
}
MILLRACE_INLINE bool dataset::exact() const noexcept { return state_->indexed(); }
MILLRACE_INLINE bool dataset::elastic() const noexcept { return state_->indexed(); }

namespace detail {

/// `agreed`: by the store, when the run begins; may be null.
template <class Sample>
stream<Sample> epochs_of_rank(const dataset& data, const epochs_options& options, const std::string& state,
                              std::shared_ptr<agreement> agreed, bool compared) {
  if (options.epochs == 0) throw configuration_error("epochs: .epochs is 0, which reads nothing: `endless` has no end");
  const std::shared_ptr<dataset_state>& of = dataset_door::state(data);
  const std::string prefix = of->index_prefix();
  epochs_request all = of->with(options, state);
  all.prefix = prefix;
  all.compared = compared;
  stream<sample> made;
  if (!of->indexed()) {
    if (options.tracks != 0) throw configuration_error("epochs: .tracks is for a dataset with an index");
    if (options.hosts != 1) throw configuration_error("epochs: .hosts is for a dataset with an index");
    made = windowed_epochs<sample>(list_shards<shard>(of), of->store, all, std::move(agreed));
  } else if (dataset_state::all_given(of)) {
    made = epochs_of<sample>(of->source_of(*dataset_state::all_known(of), all, {}), std::move(agreed));
  } else {
    made = epochs_of_listed<sample>(of, all, std::move(agreed));
  }
  return options.batch == 0 ? std::move(made) : std::move(made).batches_of(options.batch);
}

/// What a state says that all ranks must have in common, as far as it can be read. `batch`: entries of a step.
MILLRACE_INLINE void compare_state(agreement& with, bool indexed, const epochs_options& options, std::size_t batch,
                                   const std::string& text) {
  hasher128 common;
  std::string shown = "none";
  state_step step;
  try {
    if (text.empty()) {
      // From the beginning.
    } else if (indexed) {
      epoch_state s = epoch_state::parse(text);
      shown = "at sample " + std::to_string(s.position) + " of epoch " + std::to_string(s.epoch);
      if (s.world_size != 0) {
        shown = "one of each rank's own";
        step.known = options.equal != nullptr && s.steps != 0;
        step.epoch = s.epoch;
        step.steps = s.steps;
        s = epoch_state();
      }
      s.holes.clear();
      s.other_holes = 0;
      s.contents = 0;  // which each rank may have computed by itself
      common.add(std::string_view(s.text()));
    } else {
      const window_state s = window_state::parse(text);
      shown = "one of each rank's own";
      step.epoch = s.epoch;
      step.steps = s.steps;
      step.known = options.equal != nullptr && (s.steps != 0 || (!options.uneven && s.taken == 0));
      if (s.steps == 0) {  // an earlier program's: by the samples that the rank has taken
        word_reader place(s.place);
        place.next();
        place.next();
        step.steps = (s.position + batch - 1) / batch;
        step.ended = s.position != 0 && place.next() == 0 && place.next() == 0;
      }
      common.add(std::uint64_t{1});
    }
  } catch (const error&) {  // which epochs() says
    shown = "no state of epochs()";
  }
  with.add({"the state", text.empty() ? 0 : common.value().low | 1U, shown});
  with.at_step(step);
}

/// What all ranks must have in common, as far as it is known before the run begins. Called on all ranks at the same
/// place of the program.
MILLRACE_INLINE std::shared_ptr<agreement> agreement_of(const rank_group& group, const dataset& data,
                                                        const epochs_options& options, const std::string& state) {
  const std::shared_ptr<dataset_state>& of = dataset_door::state(data);
  auto all = std::make_shared<agreement>(group, "epochs");
  std::uint64_t slice = of->of == dataset_state::source::mix ? of->mix.slice : of->options.slice;
  if (slice == 0 && of->of == dataset_state::source::indexes) {
    slice = default_slice(*of->known(), group.mine().world_size);
  }
  all->add({"the seed", options.seed});
  all->add({".epochs", options.epochs, options.epochs == endless ? "endless" : ""});
  all->add({".first_epoch", options.first_epoch});
  all->add({".batch", of->with(options, {}).batch});
  all->add({".take_batches", options.take_batches});
  all->add({".pad", options.pad ? 1U : 0U, options.pad ? "on" : "off"});
  all->add({".uneven", options.uneven ? 1U : 0U, options.uneven ? "on" : "off"});
  all->add({".equal", options.equal != nullptr ? 1U : 0U, options.equal != nullptr ? "given" : "not given"});
  all->add({".tracks", options.tracks});
  all->add({".hosts", options.hosts});
  all->add({".slice", slice});
  all->add({".index", of->indexed() ? 1U : 0U, of->indexed() ? "given" : "not given"});
  const dataset_format& format = of->options.format;
  const std::string its_name = format_name(format);
  const bool described = format == sample_format::described;
  all->add({".format", described ? detail::text_hash(its_name) : static_cast<std::uint64_t>(sample_format(format)),
            described ? its_name : std::string()});
  all->add({".shards", of->options.shards});
  all->add({".window", of->options.window});
  all->add({".window_bytes", of->options.window_bytes});
  hasher128 what;
  std::string shown;
  for (const std::shared_ptr<dataset_state>& part : dataset_state::parts(of)) {
    what.add(std::string_view(part->prefix));
    if (part->of == dataset_state::source::indexes) what.add(part->known()->digest());
    for (const dataset_state* d = part.get(); d->whole != nullptr; d = d->whole.get()) d->choice->add_to(what);
    const std::string its = part->of == dataset_state::source::prefix    ? part->shown()
                            : part->of == dataset_state::source::indexes ? "the index " + part->known()->digest().text()
                                                                         : "a list of shards";
    shown += (shown.empty() ? "" : " with ") + its;
  }
  for (const weighted_dataset& m : of->members) {
    what.add(m.weight);
    what.add(m.seed);
  }
  what.add(of->mix.samples);
  what.add(static_cast<std::uint64_t>(of->mix.until));
  all->add({"the dataset", what.value().low, shown});
  hash128 index;
  if (of->indexed()) {
    try {
      if (const auto known = dataset_state::all_known(of)) index = digest_of(*known);
    } catch (const error&) {  // the file of the index: which epochs() says
    }
  }
  all->add_digest("the index", index);
  all->add_digest("the list of shards", hash128());
  compare_state(*all, of->indexed(), options, of->with(options, {}).batch, state);
  return all;
}

}  // namespace detail

MILLRACE_COROUTINE_BODY stream<sample> epochs(const dataset& data, const epochs_options& options, std::string state) {
  const rank_group* const group = options.ranks.get();
  if (group == nullptr) return detail::epochs_of_rank<sample>(data, options, state, nullptr, false);
  const rank& mine = group->mine();
  std::shared_ptr<detail::agreement> agreed = detail::agreement_of(*group, data, options, state);
  std::exception_ptr failure;
  stream<sample> made;
  try {
    if (options.rank.world_size != 1 &&
        (options.rank.index != mine.index || options.rank.world_size != mine.world_size)) {
      throw configuration_error("epochs: .rank is " + std::to_string(options.rank.index) + " of " +
                                std::to_string(options.rank.world_size) + ", and .ranks is " +
                                std::to_string(mine.index) + " of " + std::to_string(mine.world_size) +
                                ": leave .rank out");
    }
    epochs_options its = options;
    its.ranks = rank_group_ref();
    its.rank = mine;
    made = detail::epochs_of_rank<sample>(data, its, state, agreed->by_store() ? agreed : nullptr, true);
  } catch (...) {
    if (agreed->by_store()) throw;
    failure = std::current_exception();
  }
  if (!agreed->by_store()) agreed->settle_now(failure);
  if (group->process().world_size > 1) {
    made = std::move(made).of_ranks(std::make_shared<const detail::group_words>(*group));
  }
  return made;
}

MILLRACE_INLINE epoch_plan epoch_plan::of_training(const dataset& data, const epochs_options& training,
                                                   plan_options prices) {
  const std::shared_ptr<detail::dataset_state>& of = detail::dataset_door::state(data);
  const auto known = detail::dataset_state::all_known(of);
  if (!of->indexed() || !known) {
    throw configuration_error("dataset: what an epoch costs is not known before its index has been made or read",
                              where{of->shown(), std::nullopt, {}});
  }
  detail::epochs_request all = of->with(training, {});
  const bool mixed = of->of == detail::dataset_state::source::mix;
  if (const auto store = mixed ? of->store_of_mix() : of->store) {
    all.cached = store->caches_on_disk(of->index_prefix());
    if (all.cached != 0 && !mixed) detail::note_held(all, *store, *known->front(), of->index_prefix(), {});
  }
  detail::check_hosts(all);
  return mixed ? of_request(of->mix_of(*known), all, prices)
                                                      : of_request(*known->front(), all, prices);
}

MILLRACE_COROUTINE_BODY std::string dataset::plan(const epochs_options& options) const {
  return samples() ? epochs(*this, options).plan() : std::string();
}

}  // namespace millrace
