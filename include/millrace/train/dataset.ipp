// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <ctime>
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
#include <millrace/formats/object_samples.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/detail/listing_file.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/sample_index_builder.hpp>
#include <millrace/order/detail/words.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/detail/agreement.hpp>
#include <millrace/train/detail/deal_epochs.hpp>
#include <millrace/train/detail/deal_windows.hpp>
#include <millrace/train/detail/epochs_position.hpp>
#include <millrace/train/detail/host_copy.hpp>
#include <millrace/train/detail/listed_index.hpp>
#include <millrace/train/detail/training_plan.hpp>
#include <millrace/train/epoch_plan.hpp>
#include <millrace/train/tracks_advice.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// The parts of a dataset, and the facts that have been learnt of it. Copies share it.
class dataset_state {
  static dataset_options with_format(dataset_options o) {
    if (o.format == nullptr) o.format = tar_shards();
    return o;
  }

 public:
  enum class source : unsigned char { prefix, shards, stream, indexes, mix };

  dataset_state(source s, std::shared_ptr<const storage> from, dataset_options o)
      : of(s), store(std::move(from)), options(with_format(std::move(o))) {}

  /// True if epochs have the canonical order: there is an index, or will be.
  bool indexed() const noexcept { return of == source::indexes || of == source::mix || !options.index.empty(); }
  /// The text before the names of its indexes.
  std::string index_prefix() const;
  /// How messages name it.
  std::string shown() const;
  /// The indexes, if they were given or have been read, or lie in a file; of a mix null.
  std::shared_ptr<const index_set> known() const;
  void learn(std::shared_ptr<const index_set> indexes);
  /// The dataset that it is chosen from: itself if it is no part of another one.
  const dataset_state& all() const noexcept { return whole == nullptr ? *this : whole->all(); }
  static const std::shared_ptr<dataset_state>& in(const dataset& data) noexcept { return data.state_; }
  /// A training on it, as asked for.
  training_plan asked(const epochs_options& training, std::string_view state) const;
  /// The training by the indexes of its parts. `urls`: see training_plan.
  training_plan plan_of(const training_plan& asked, const std::vector<std::shared_ptr<const index_set>>& its_indexes,
                        std::vector<std::string> urls) const;
  /// Throws configuration_error for a mix that cannot be.
  void check_mix() const;
  /// Throws configuration_error for options that mean nothing for how the data is given.
  void check() const;
  /// Its parts with indexes of their own: of a mix the members, else itself.
  static std::vector<std::shared_ptr<dataset_state>> parts(std::shared_ptr<dataset_state> data);
  /// The indexes of its parts, if all are known; whether all were given.
  static std::optional<std::vector<std::shared_ptr<const index_set>>> all_known(std::shared_ptr<dataset_state> data);
  static bool all_given(std::shared_ptr<dataset_state> data);
  dataset_mix mix_of(const std::vector<std::shared_ptr<const index_set>>& its_indexes) const;
  /// Its store; of a mix that of all members, each of whose URLs the right one serves.
  std::shared_ptr<const storage> store_of_all() const;

  const source of;
  const std::shared_ptr<const storage> store;  // null: a mix
  const dataset_options options;               // .format is not null
  std::string prefix;                         // that is listed
  std::vector<weighted_dataset> members;      // of a mix
  dataset_mix_options mix;
  std::shared_ptr<dataset_state> whole;         // of a part: what it is chosen from, which lists and reads the index
  std::shared_ptr<const sample_choice> choice;  // and what of it

  // These change, under the mutex:
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
MILLRACE_INLINE std::shared_ptr<const index_set> index_of_arrays(const arrays& rows) {
  std::string name(row_storage::scheme);
  std::string dims;
  std::vector<std::pair<std::string, std::uint64_t>> fields;
  for (const named_array& one : rows) {
    name += (fields.empty() ? "" : ",") + one.name;
    dims += one.name + ' ' + name_of(one.value.type()) + ' ' + one.value.dims().text() + '\n';
    fields.emplace_back(one.name, one.value.memory().size() / rows.rows());
  }
  std::vector<shard_index> all;
  all.push_back(sample_index_builder::of_arrays(std::move(name), std::make_shared<const arrays>(rows), rows.rows(),
                                                rows.mapped(), std::move(dims), fields));
  return std::make_shared<const index_set>(std::move(all));
}

MILLRACE_INLINE std::string dataset_state::index_prefix() const {
  if (!options.prefix.empty() || of != source::prefix) return options.prefix;
  // It may be a pattern for files().
  const std::size_t pattern = prefix.find("://") == std::string::npos ? prefix.find_first_of("*?[") : std::string::npos;
  const std::size_t slash = prefix.rfind('/', pattern);
  if (slash != std::string::npos) return prefix.substr(0, slash + 1);
  return pattern == std::string::npos ? prefix : std::string();
}

MILLRACE_INLINE std::string dataset_state::shown() const {
  return detail::shown_url(of == source::prefix ? prefix : options.prefix);
}

MILLRACE_INLINE std::shared_ptr<const index_set> dataset_state::known() const {
  std::shared_ptr<const index_set> from = whole == nullptr ? nullptr : whole->known();
  if (from != nullptr && from->rows_in_store()) from = nullptr;  // a choice looks at every row
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
    listed_index::check_format(*there, *options.format, file);
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

/// The same, once for the ranks of a machine. Others wait for it: it is to be taken to its end at once.
template <class Shard>
async_generator<Shard> list_once(std::shared_ptr<dataset_state> data, rank mine) {
  const executor& ex = co_await this_executor();
  const dataset_state& all = data->all();
  const std::string prefix = all.prefix;
  const std::string shown = all.shown();
  const std::string file = all.options.listing;
  const bool shared = all.of == dataset_state::source::prefix;
  if (!shared) mine = rank();
  host_copy copy(all.options.host_folder,
                 "the listing of " + shown + '\n' + (shared ? all.store->host(prefix) : "") + '\n' + prefix + '\n' +
                     file,
                 mine);
  const bool there = co_await copy.find();
  std::string own;
  if (!there && !file.empty()) {
    own = co_await text_of_listing(all.store, file);
    copy.give(ex, own);
  }
  if (there || !file.empty()) {
    listing_reader listed(there ? copy.text() : own, file.empty() ? shown : shown_url(file), prefix);
    if (!file.empty()) {
      log_line(ex, "millrace: dataset: " + std::to_string(listed.count()) + " objects by the listing " +
                       shown_url(file) + " of " + std::to_string(::time(nullptr) - listed.made()) + " s ago",
               log_level::info);
    }
    while (std::optional<Shard> s = listed.next()) co_yield give(*s);
    co_return;
  }
  listing_writer text(prefix);
  async_generator<Shard> list = list_shards<Shard>(std::move(data));
  while (std::optional<Shard> s = co_await list.next()) {
    if (copy.makes()) text.add(*s);
    co_yield give(*s);
  }
  if (copy.makes()) copy.give(ex, text.text());
}

MILLRACE_INLINE training_plan dataset_state::asked(const epochs_options& training, std::string_view state) const {
  epoch_state order;
  if (indexed()) {
    order.slice = of == source::mix ? mix.slice : options.slice;
  } else {
    order.streamed = {options.shards, options.window, options.window_bytes, {}, {}};
  }
  return training_plan(training, std::move(order), state);
}

MILLRACE_INLINE void dataset_state::check_mix() const {
  if (members.empty()) throw configuration_error("dataset: a mix has no members");
  for (std::size_t i = 0; i < members.size(); ++i) {
    const dataset_state& d = *dataset_state::in(members[i].of);
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
      const std::shared_ptr<const storage>& other = dataset_state::in(members[k].of)->store;
      if (other == d.store || url.empty() || !other->serves(url) || other->host(url) == d.store->host(url)) continue;
      refuse("lies in another store than member " + std::to_string(k) + ", which serves the same URLs");
    }
  }
}

MILLRACE_INLINE std::shared_ptr<const storage> dataset_state::store_of_all() const {
  if (of != source::mix) return store;
  std::vector<std::shared_ptr<const storage>> all;
  for (const weighted_dataset& m : members) {
    const std::shared_ptr<const storage>& its = dataset_state::in(m.of)->store;
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
  for (const weighted_dataset& m : data->members) all.push_back(dataset_state::in(m.of));
  if (all.empty()) all.push_back(std::move(data));
  return all;
}

MILLRACE_INLINE training_plan dataset_state::plan_of(const training_plan& asked,
                                                     const std::vector<std::shared_ptr<const index_set>>& its_indexes,
                                                     std::vector<std::string> urls) const {
  if (of == source::mix) return training_plan(asked, mix_of(its_indexes), store_of_all(), std::move(urls));
  dataset_mix::member only{its_indexes.front(), 1, index_prefix(), 0, options.format};
  return training_plan(asked, std::move(only), store, std::move(urls));
}

MILLRACE_INLINE dataset_mix dataset_state::mix_of(
    const std::vector<std::shared_ptr<const index_set>>& its_indexes) const {
  dataset_mix all;
  all.until = mix.until;
  all.samples = mix.samples;
  for (std::size_t i = 0; i < members.size(); ++i) {
    all.members.push_back({its_indexes[i], members[i].weight, dataset_state::in(members[i].of)->index_prefix(),
                           members[i].seed, dataset_state::in(members[i].of)->options.format});
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

/// The digest of the indexes of a dataset's parts.
MILLRACE_INLINE hash128 digest_of(const std::vector<std::shared_ptr<const index_set>>& indexes) {
  hasher128 all;
  for (const std::shared_ptr<const index_set>& i : indexes) all.add(i->digest());
  return all.value();
}

/// Samples by indexes that are read or made first, and compared with what is listed.
template <class Sample>
async_generator<Sample> deal_listed_data(std::shared_ptr<dataset_state> data,
                                         std::shared_ptr<const training_plan> asked,
                                         std::shared_ptr<epochs_position> position, std::shared_ptr<equal_state> equal,
                                         std::shared_ptr<agreement> agreed) {
  std::vector<std::shared_ptr<const index_set>> indexes;
  std::vector<std::string> urls;
  std::shared_ptr<const training_plan> plan;
  std::exception_ptr failure;  // which the other ranks learn of
  try {
    for (const std::shared_ptr<dataset_state>& part : dataset_state::parts(data)) {
      if (part->of == dataset_state::source::indexes) {
        indexes.push_back(part->known());
        for (const shard_index& index : *indexes.back()) urls.push_back(part->index_prefix() + index.name());
        continue;
      }
      const std::string prefix = part->index_prefix();
      const bool all_rows = part->choice != nullptr;
      std::shared_ptr<const index_set> known = part->all().known();
      if (all_rows && known != nullptr && known->rows_in_store()) known = nullptr;
      listed_index index(part->store, prefix, part->options, asked->options, std::move(known), all_rows);
      async_generator<shard> list = list_once<shard>(part, asked->options.rank);
      std::shared_ptr<const index_set> its;
      if (part->options.format->of_objects()) {
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
    plan = std::make_shared<const training_plan>(data->plan_of(*asked, indexes, std::move(urls)));
    plan->check_store();
    position->become(plan);
  } catch (...) {
    if (agreed == nullptr) throw;
    failure = std::current_exception();
  }
  if (agreed != nullptr) {
    if (failure == nullptr) agreed->learn("the index", digest_of(indexes));
    co_await agreed->settle(failure);
  }
  async_generator<Sample> samples =
      deal_epochs<Sample>(std::move(plan), position->losses(), std::move(equal), nullptr);
  while (std::optional<Sample> s = co_await samples.next()) co_yield give(*s);
}

template <class Sample>
stream<Sample> indexed_epochs(std::shared_ptr<dataset_state> data, std::shared_ptr<const training_plan> asked,
                              std::shared_ptr<agreement> agreed) {
  const epochs_options& options = asked->options;
  const bool mixed = data->of == dataset_state::source::mix;
  const bool given = dataset_state::all_given(data);
  std::shared_ptr<const training_plan> known;  // by a file or a run before: what is promised can be said
  if (const auto indexes = dataset_state::all_known(data)) {
    known = std::make_shared<const training_plan>(data->plan_of(*asked, *indexes, {}));
    known->check_store();
  }
  auto position = std::make_shared<epochs_position>(given ? known : asked, mixed);
  if (known != nullptr) position->become(known);
  std::shared_ptr<equal_state> equal = begin_equal(*asked);
  std::size_t bytes = known != nullptr ? known->options.bytes : options.bytes;
  if (bytes == 0) bytes = most_bytes(!mixed && options.tracks == 0 && !asked->saved);
  bytes = added(bytes, data->store_of_all()->keeps());
  // It holds nothing of rows in memory; 0 would say that its bound is not known.
  if (known != nullptr && !mixed && known->sets.front().indexes->in_memory()) bytes = 1;
  stream<Sample> made(given ? deal_epochs<Sample>(known, position->losses(), std::move(equal), std::move(agreed))
                            : deal_listed_data<Sample>(std::move(data), asked, position, std::move(equal),
                                                       std::move(agreed)));
  return declare_source(std::move(made).named("epochs", ".bytes"), options)
      .bounded(options.ahead, bytes)
      .positioned(position)
      .of_rank(options.rank);
}

/// Options that mean nothing for how the data is given are mistakes.
MILLRACE_INLINE void dataset_state::check() const {
  const dataset_options none;
  if (store == nullptr) throw usage_error("dataset: the store is null");
  const bool streamed = options.shards != none.shards || options.window != none.window ||
                        options.window_bytes != none.window_bytes;
  if (indexed() && streamed) {
    throw configuration_error("dataset: .shards, .window and .window_bytes are for data without an index");
  }
  if (of == source::indexes && (!options.index.empty() || !options.make_index)) {
    throw configuration_error("dataset: .index and .make_index are not for a dataset whose indexes are given");
  }
  if (!options.listing.empty() && of != source::prefix) {
    throw configuration_error("dataset: .listing is for a dataset of a prefix");
  }
  const shard_format& format = *options.format;
  if (!indexed() && !format.of_tars()) {
    throw configuration_error("dataset: samples of " + shown_format(format) +
                              " need an index: give .index, the file where it is kept");
  }
  if (of == source::indexes && indexes->size() != 0 && !indexes->of_arrays()) {
    if (!(*indexes)[0].is_of(format.name(), format.settings())) {
      throw configuration_error("dataset: .format is " + shown_format(format) +
                                ", and the indexes that are given are of " + (*indexes)[0].shown_format());
    }
    listed_index::check_fields(*indexes, format);
  }
  if (of == source::indexes && format.of_objects() && !options.prefix.empty() && options.prefix.back() != '/') {
    throw configuration_error("dataset: the .prefix of objects that are samples is a folder: it ends in a slash");
  }
  const bool listed = of == source::shards || of == source::stream;
  if (listed && format.of_objects() && (options.prefix.empty() || options.prefix.back() != '/')) {
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
  if (state_->options.format->of_objects()) {
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

MILLRACE_INLINE dataset::dataset(const arrays& rows, dataset_options options) {
  if (!options.prefix.empty() || options.format != nullptr) {
    throw configuration_error("dataset: .prefix and .format are not for a dataset of arrays");
  }
  state_ = std::make_shared<detail::dataset_state>(detail::dataset_state::source::indexes,
                                                   std::make_shared<const detail::row_storage>(), std::move(options));
  state_->indexes = detail::index_of_arrays(rows);
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
    const std::optional<std::uint64_t> one = sum_of(*dataset_state::in(m.of), of);
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
  if (!state_->options.format->of_classes()) {
    throw usage_error("dataset: only data of class_folders() has classes");
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

/// `agreed`: by the store, when the run begins; may be null. `batch`: as given, 0 where it was not.
template <class Sample>
stream<Sample> epochs_of(const std::shared_ptr<dataset_state>& data, std::shared_ptr<const training_plan> asked,
                         std::shared_ptr<agreement> agreed, std::size_t batch) {
  const rank mine = asked->options.rank;
  stream<Sample> made =
      data->indexed() ? indexed_epochs<Sample>(data, std::move(asked), std::move(agreed))
                      : windowed_epochs<Sample>(list_once<shard>(data, mine), data->store, std::move(asked),
                                                std::move(agreed));
  return batch == 0 ? std::move(made) : std::move(made).batches_of(batch);
}

/// The state is the same on all ranks, or of the same step. `asked`: null on a rank that cannot begin.
MILLRACE_INLINE void compare_states(agreement& with, const training_plan* asked) {
  hasher128 common;
  std::string shown = "none";
  state_step step;
  const bool resumed = asked != nullptr && asked->saved;
  if (resumed) {
    epoch_state s = *asked->saved;
    const epochs_options& options = asked->options;
    const bool of_rank = s.world_size != 0;
    shown = of_rank ? "one of each rank's own"
                    : "at sample " + std::to_string(s.position) + " of epoch " + std::to_string(s.epoch);
    step.epoch = s.epoch;
    step.steps = s.steps;
    step.known = options.equal != nullptr && of_rank && s.steps != 0;
    if (s.streamed) {
      step.known = step.known || (options.equal != nullptr && !options.uneven && s.taken == 0);
      if (s.steps == 0) {  // an earlier program's: by the samples that the rank has taken
        word_reader place(s.streamed->place);
        place.next();
        place.next();
        step.steps = steps_from(s.position, 0, options.batch, 1);
        step.ended = s.position != 0 && place.next() == 0 && place.next() == 0;
      }
      common.add(std::uint64_t{1});
    } else {
      if (of_rank) s = epoch_state();
      s.holes.clear();
      s.other_holes = 0;
      s.contents = 0;  // which each rank may have computed by itself
      common.add(std::string_view(s.text()));
    }
  }
  with.add({"the state", resumed ? common.value().low | 1U : 0, shown});
  with.at_step(step);
}

/// Compares all that ranks must have in common, as far as it is known before the run begins. `options`: as given;
/// `asked`: null on a rank that cannot begin, which compares as many settings as the others.
MILLRACE_INLINE void compare_plans(const std::shared_ptr<agreement>& all, std::uint64_t world,
                                   const std::shared_ptr<dataset_state>& of, const epochs_options& options,
                                   const training_plan* asked) {
  std::uint64_t slice = of->of == dataset_state::source::mix ? of->mix.slice : of->options.slice;
  if (slice == 0 && of->of == dataset_state::source::indexes) slice = default_slice(*of->known(), world);
  all->add({"the seed", options.seed});
  all->add({".epochs", options.epochs, options.epochs == endless ? "endless" : ""});
  all->add({".first_epoch", options.first_epoch});
  all->add({".batch", asked != nullptr ? asked->options.batch : options.batch});
  all->add({".take_batches", options.take_batches});
  all->add({".pad", options.pad ? 1U : 0U, options.pad ? "on" : "off"});
  all->add({".uneven", options.uneven ? 1U : 0U, options.uneven ? "on" : "off"});
  all->add({".equal", options.equal != nullptr ? 1U : 0U, options.equal != nullptr ? "given" : "not given"});
  all->add({".tracks", options.tracks});
  all->add({".hosts", options.hosts});
  all->add({".slice", slice});
  all->add({".index", of->indexed() ? 1U : 0U, of->indexed() ? "given" : "not given"});
  const std::string format = shown_format(*of->options.format);
  all->add({".format", detail::text_hash(format), format});
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
  compare_states(*all, asked);
}

}  // namespace detail

MILLRACE_COROUTINE_BODY stream<sample> epochs(const dataset& data, const epochs_options& options, std::string state) {
  const std::shared_ptr<detail::dataset_state>& of = detail::dataset_state::in(data);
  const auto asked = [&] { return std::make_shared<const detail::training_plan>(of->asked(options, state)); };
  const rank_group* const group = options.ranks.get();
  if (group == nullptr) return detail::epochs_of<sample>(of, asked(), nullptr, options.batch);
  // Made at the same place of the program on all ranks.
  auto agreed = std::make_shared<detail::agreement>(*group, "epochs");
  std::shared_ptr<const detail::training_plan> plan;
  std::exception_ptr failure;
  stream<sample> made;
  try {
    plan = asked();
    made = detail::epochs_of<sample>(of, plan, agreed->by_store() ? agreed : nullptr, options.batch);
  } catch (...) {
    if (agreed->by_store()) throw;
    failure = std::current_exception();
  }
  detail::compare_plans(agreed, group->mine().world_size, of, options, plan.get());
  if (!agreed->by_store()) agreed->settle_now(failure);
  if (group->process().world_size > 1) {
    made = std::move(made).of_ranks(detail::words_of(*group));
  }
  return made;
}

namespace detail {

/// The plan of a training on a dataset whose indexes are known.
MILLRACE_INLINE training_plan known_plan(const std::shared_ptr<dataset_state>& of, const epochs_options& training) {
  const auto known = dataset_state::all_known(of);
  if (!of->indexed() || !known) {
    throw configuration_error("dataset: what an epoch costs is not known before its index has been made or read",
                              where{of->shown(), std::nullopt, {}});
  }
  return of->plan_of(of->asked(training, {}), *known, {});
}

}  // namespace detail

MILLRACE_INLINE epoch_plan epoch_plan::of_training(const dataset& data, const epochs_options& training,
                                                   plan_options prices) {
  return of_plan(detail::known_plan(detail::dataset_state::in(data), training), prices);
}

MILLRACE_INLINE std::string dataset::plan(const epochs_options& options) const {
  return samples() ? detail::known_plan(state_, options).text() : std::string();
}

}  // namespace millrace
