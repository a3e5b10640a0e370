// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/feed/detail/late_position.hpp>
#include <millrace/feed/detail/listed_index.hpp>
#include <millrace/feed/epochs.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace {

/// The same of a list of shards, whose index is kept in a file, options.index_file:
///
///     auto training = mill::epochs(s3.list("s3://corpus/train/"), s3,
///                                  {.seed = 7, .epochs = 90, .batch = 256, .rank = mine,
///                                   .index_file = "/data/train.index", .resume = saved})
///                     | mill::fill_batches(pool, decode);
///
/// The first run makes the index, before its first sample: each shard is read once, in full or from header to header,
/// whichever is less (index_shard), several at a time; the log says so. Then this run and all others have the canonical
/// order, from their first epoch on. Every rank that finds no file reads all shards, and rank 0 writes it: for large
/// data and many ranks, let millrace-index make it beforehand. The file must be of this list: where a shard is new,
/// gone or another version, as far as the list says, that is a stale_index_error which names it, and what to do is to
/// make the file anew. With index_use::required a file that is not there is a configuration_error.
///
/// Names in the index are the URLs without options.prefix, and without what may be secrets; the URLs to read are those
/// of the list, so they may be signed anew for every run.
///
/// pipeline_run::batches() is known, and a state of another order refused, once the first sample is there; all else is
/// as above. Errors, at the first sample: those of the list, of index_shard() and of the file; configuration_error for
/// an empty list. A shard that cannot be indexed is an error, whatever options.failures bears later.
template <class Store>
stream<sample> epochs(stream<shard> list, const Store& store, const epochs_options& options);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

/// Options with texts of their own, for later.
class kept_epochs_options {
 public:
  explicit kept_epochs_options(const epochs_options& options)
      : options_(options), prefix_(options.prefix), resume_(options.resume) {}
  epochs_options get() const {
    epochs_options now = options_;
    now.prefix = prefix_;
    now.resume = resume_;
    now.index_file = {};
    return now;
  }

 private:
  epochs_options options_;
  std::string prefix_;
  std::string resume_;
};

template <class Sample>
async_generator<Sample> deal_listed(async_generator<shard> list, std::shared_ptr<const storage> store,
                                    listed_index index, kept_epochs_options options,
                                    std::shared_ptr<late_position> position) {
  std::vector<shard> all;
  while (std::optional<shard> s = co_await list.next()) all.push_back(std::move(*s));
  list = async_generator<shard>();
  std::shared_ptr<const index_set> indexes = co_await index.of(std::move(all));
  epochs_source source(std::move(indexes), std::move(store), options.get(), index.urls());
  position->become(std::make_shared<const epochs_position>(source));
  async_generator<Sample> samples = deal_epochs<Sample>(std::move(source));
  while (std::optional<Sample> s = co_await samples.next()) co_yield give(*s);
}

}  // namespace detail

template <class Store>
stream<sample> epochs(stream<shard> list, const Store& store, const epochs_options& options) {
  detail::check_epochs_options(options);
  if (!options.resume.empty()) static_cast<void>(epoch_state::parse(options.resume));
  std::shared_ptr<const storage> from = detail::storage_of(store);
  auto position = std::make_shared<detail::late_position>(options);
  detail::listed_index index(from, options);
  return stream<sample>(detail::deal_listed<sample>(std::move(list).generator(), std::move(from), std::move(index),
                                                    detail::kept_epochs_options(options), position))
      .named("epochs", "raise its .bytes or .requests")
      .bounded(options.ahead, options.bytes)
      .positioned(position)
      .of_rank(options.rank.index);
}

}  // namespace millrace
