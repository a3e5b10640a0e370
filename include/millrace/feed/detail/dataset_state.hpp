// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/feed/dataset.hpp>
#include <millrace/feed/detail/epochs_source.hpp>
#include <millrace/feed/detail/epochs_request.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::detail {

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

/// For epochs() and what else works on datasets.
class dataset_door {
 public:
  static const std::shared_ptr<dataset_state>& state(const dataset& data) noexcept { return data.state_; }
};

}  // namespace millrace::detail
