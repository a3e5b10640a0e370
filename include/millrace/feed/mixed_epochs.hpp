// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/feed/dataset_mix.hpp>
#include <millrace/feed/epochs.hpp>
#include <millrace/feed/epochs_options.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace {

/// The head of a training over several indexed data sets, mixed by weight:
///
///     auto training = mill::epochs(mill::dataset_mix{{{web, 3, "s3://corpus/web/"}, {books, 1, "s3://corpus/books/"}},
///                                                    mill::mix_until::first_end},
///                                  s3, {.seed = 7, .epochs = 90, .batch = 256, .rank = mine, .resume = saved})
///                     | mill::fill_batches(pool, decode);
///
/// Any options.tracks samples in a row of an epoch, all ranks together, hold each data set in exact proportion, its
/// weight rounded to 1 / tracks; those of one rank nearly (sample_mix). Each data set is read round by round, in a
/// sample_order of its own, another one each round; options.slice counts for all of them, 0 gives each its own. Its
/// rounds run on through the epochs: every sample comes once in each round, on one rank. An epoch is a length that is
/// the same every time:
///
/// - mix_until::last_end: each sample of the set that takes longest comes once, those of the others at least once:
///   they begin anew as often as need be.
/// - mix_until::first_end: each sample of the set that ends first comes once, those of the others at most once a round.
/// - mix_until::forever: dataset_mix::samples.
///
/// Equal batches, padding, marks, reading, losses and errors are those of epochs() of one data set (feed/epochs.hpp);
/// errors name the object, and what is wrong with a data set as a whole names it by its number and prefix. A sample
/// says by its shard which data set it is of (`s.from.from->dataset`), and its round there (`s.from.from->epoch`); its
/// mark has the epoch of the mix. So verify_epoch(), by these two numbers and the set's own counts, tells whether a
/// round was complete, and a sample that comes again draws other random numbers.
///
/// The state is that of one data set and some 12 bytes for each member more, 260 at most. Another weight, seed,
/// member, end, .tracks or .slice is refused by name, also at an epoch's beginning, as the rounds run on; give
/// options.first_epoch in place of .resume to train on with other weights.
template <class Store>
stream<sample> epochs(const dataset_mix& mix, const Store& store, const epochs_options& options);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

template <class Store>
stream<sample> epochs(const dataset_mix& mix, const Store& store, const epochs_options& options) {
  return detail::epochs_of<sample>({mix, detail::storage_of(store), options});
}

}  // namespace millrace
