// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/index/detail/sample_choice.hpp>
#include <millrace/order/sample_mix.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/train/epochs_options.hpp>

namespace millrace::inline MILLRACE_ABI {

class index_set;
class shard_format;

/// See dataset. An aggregate with texts: under g++ 12 write it in a statement without co_await.
struct dataset_options {
  /// The index of the shards: the path of a file, or a URL of the shards' store. Empty: there is no index, and the
  /// shards are read whole.
  std::string index = {};
  /// The first run makes the file `index` if it does not exist. False: that is an error; an object of a store is never
  /// made (millrace-index writes it).
  bool make_index = true;
  /// The format of the samples in the store: tar_shards(), which is null, too, line_shards(), tfrecord_shards(),
  /// recordio_shards(), object_samples(), class_folders(), sample_folders(), npy_shards(), megatron(), mds(),
  /// parquet(), video_shards(), or a program's own. All but tars need an index; of objects the prefix is a folder,
  /// which ends in a slash.
  std::shared_ptr<const shard_format> format = nullptr;
  /// A listing of the prefix that was written beforehand (millrace-index --listing): the path of a file, or a URL of
  /// the shards' store. It is read, by one request up to 64 MiB, and nothing is listed: what has come since is not
  /// seen, and what has changed or gone is an error when it is read. Empty: the store lists.
  std::string listing = {};
  /// A folder of this machine in which its ranks share what each of them needs before its first sample, the listing and
  /// the index of a store: one of them reads it. Not given: /dev/shm, where epochs_options say that there are several
  /// ranks on this machine, and ranks that one process has started share. A folder that is given belongs to one
  /// training, and is on a local disk. Empty: each rank reads for itself.
  std::optional<std::string> host_folder = {};
  /// Of an index in a store that is longer, only the head is read at the start, and held in memory, 12 bytes for 256
  /// samples; the rows are read slice by slice, before the samples. Not of objects that are samples, of groups that are
  /// unpacked together, and where samples are chosen.
  std::size_t index_memory = 64 * MiB;
  /// What stands before the names of the index to make URLs of them. Empty: what is listed, up
  /// to the last slash.
  std::string prefix = {};
  /// order_options::slice; 0: default_slice() of the index and the number of ranks (of a mix:
  /// index_set::slice_in_mix()), and after a resume that of the state.
  std::uint64_t slice = 0;
  // Without an index; these three are part of the order.
  std::size_t shards = 8;                ///< read in turn, a sample each
  std::size_t window = 4096;             ///< samples that the next one is drawn from; 1: they are not shuffled
  std::size_t window_bytes = 512 * MiB;  ///< of those samples; a tenth of both is filled before the first one leaves
};

struct weighted_dataset;

/// See dataset, of several datasets.
struct dataset_mix_options {
  mix_until until = mix_until::last_end;  ///< where an epoch ends
  std::uint64_t samples = 0;              ///< of all members together in an epoch, with mix_until::forever; not 0 then
  std::uint64_t slice = 0;                ///< order_options::slice of every member; 0: each has its own
};

namespace detail {
class dataset_state;
}  // namespace detail

/// What a training is fed with: shards of samples in a store, objects that are samples, or arrays. It
/// says what the data is; epochs() says how to train on it.
///
///     mill::dataset train(s3, "s3://corpus/train/", {.index = "train.index"});
///     auto run = rt.run(mill::epochs(train, {.seed = 7, .epochs = 90, .batch = 256, .rank = mine}, saved)
///                       | mill::decode_images({.height = 224, .width = 224}) | mill::batch());
///
/// With an index, a dataset knows its samples before they are read. Every rank then has equally many batches, and a
/// state resumes on any number of ranks. The index is made by the first run, read from a file or an object, or given.
/// Without one, a dataset is read as a stream and shuffled in a window; see epochs() for ranks and states.
///
/// Construction reads nothing. A run lists the shards when it begins. Copies are the same dataset, and any number of
/// runs may use it, at once, too; a dataset made of a stream of shards is read by one run first.
class dataset {
 public:
  /// The shards whose URLs begin with `prefix`: "s3://corpus/train/". For files(): a folder, with the folders in it, or
  /// a pattern as in glob(). `store` is as in fetch(), and must be able to list (storage::list()).
  template <class Store>
  dataset(const Store& store, std::string prefix, dataset_options options = {})
      : dataset(detail::storage_of(store), std::move(prefix), std::move(options), 0) {}
  /// A list of shards, in any order.
  template <class Store>
  dataset(const Store& store, std::vector<shard> shards, dataset_options options = {})
      : dataset(detail::storage_of(store), std::move(shards), std::move(options), 0) {}
  /// A stream of shards, read when the first run begins and kept: `mill::shards("s3://corpus/train-{000..099}.tar")`.
  template <class Store>
  dataset(const Store& store, stream<shard> shards, dataset_options options = {})
      : dataset(detail::storage_of(store), std::move(shards), std::move(options), 0) {}
  /// Shards whose indexes the program has; .prefix makes URLs of their names. Nothing is listed. Options about the
  /// index and about reading without one are refused.
  template <class Store>
  dataset(const Store& store, std::shared_ptr<const index_set> indexes, dataset_options options = {})
      : dataset(detail::storage_of(store), std::move(indexes), std::move(options), 0) {}
  /// The rows of arrays in memory or in mapped files (decode/array.hpp):
  ///
  ///     const mill::dataset train(mill::arrays({{"x", mill::array(std::move(x), {60'000, 28, 28})},
  ///                                             {"y", mill::array(std::move(y), {60'000})}}));
  ///
  /// Sample i has a field for each array: the bytes of row i, which are not copied and keep the arrays' memory alive.
  /// Its key is the row's number. decode_arrays() gives the fields type and shape. It is a dataset with an index, known
  /// at once; a state is refused where names, types, shapes or the number of rows are others. The rows may contain
  /// something else (arrays::contents()): the log says so, and the training goes on in the same order.
  ///
  /// Arrays in memory are not read: .slice is 1, so the order is a full shuffle, and they count for no bound in bytes.
  /// If an array is mapped, the rows of a slice are read in on the runtime's pool, ahead of the consumer and within
  /// epochs_options::bytes, before the first one is delivered: the loop does not wait for the disk, unless the kernel
  /// has taken pages away again. On a loop without a pool it does. A page that cannot be read is an io_error of that
  /// sample. Options but .slice are refused.
  explicit dataset(const arrays& rows, dataset_options options = {});
  /// Several datasets, mixed in proportion to their weights:
  ///
  ///     mill::dataset corpora({{web, 3}, {books, 1}}, {.until = mill::mix_until::first_end});
  ///
  /// Each must have an index. Any epochs_options::tracks samples in a row of an epoch, all ranks together, hold each
  /// member in exact proportion, its weight rounded to 1 / tracks; those of one rank nearly (sample_mix). Each member
  /// is read round by round, in an order of its own, another one each round. Its rounds run on through the epochs:
  /// every sample comes once in each round, on one rank. An epoch is a length that is the same every time:
  ///
  /// - mix_until::last_end: each sample of the member that takes longest comes once, those of the others at least once:
  ///   they begin anew as often as need be.
  /// - mix_until::first_end: each sample of the member that ends first comes once, those of the others at most once a
  ///   round.
  /// - mix_until::forever: .samples.
  ///
  /// A sample says by its shard which member it is of (`s.from.from->dataset`), and its round (`s.from.from->epoch`).
  /// A member that is a mix itself, has no index, or lies in another store that serves the same URLs is a
  /// configuration_error.
  explicit dataset(std::vector<weighted_dataset> members, dataset_mix_options options = {});

  /// How many samples, shards and bytes of samples there are; of a mix, of all members together. nullopt as long as no
  /// index was given, or has been read by a run: an index file that exists is read now.
  std::optional<std::uint64_t> samples() const;
  std::optional<std::uint64_t> shards() const;
  std::optional<std::uint64_t> bytes() const;
  /// The names of the classes of class_folders(), in the order of their numbers: those of its folders.
  /// usage_error where samples() is not known, as before the first run of a dataset whose index does not exist yet, and
  /// for another format.
  std::vector<std::string> classes() const;
  /// True if the length of an epoch follows from an index, so that all ranks have equally many batches without asking
  /// each other.
  bool exact() const noexcept;
  /// True if a state resumes on another number of ranks and with batches of another size, too, inside an epoch.
  bool elastic() const noexcept;
  /// What an epoch costs, in a few lines for people: stream::plan() of epochs(). Empty where samples() is not known.
  std::string plan(const epochs_options& options = {}) const;

  // A part of the samples, or a draw of them. All of these need an index, and are the same training on any number of
  // ranks, with states of the usual kind; a state is refused if other samples were chosen. They may be members of a
  // mix, and a subset may be chosen from or weighed again. Samples are numbered from 0: shards in the order of their
  // names in the index, and in each in its own. Nothing is copied: the rows of the index are shared, and beside them a
  // subset takes an eighth of a byte for each sample of it, weights 4.1 bytes. Samples that are not chosen are not
  // read, but for gaps of up to epochs_options::gap between samples that are; so a subset of neighbours costs the bytes
  // of its samples, one that is spread thin a request a sample. Functions are called for every sample once when the
  // index is known: here, in epochs(), or when the run begins. They must choose the same on every rank.
  // configuration_error: for a dataset without an index and for a mix, here; for a choice that does not fit the index
  // or is empty, once the index is known.

  /// Samples [begin, end).
  dataset subset(std::uint64_t begin, std::uint64_t end) const;
  /// The samples of a list, in any order; none twice.
  dataset subset(std::vector<std::uint64_t> samples) const;
  /// The samples for which `keep` returns true:
  ///
  ///     train.subset([](const mill::indexed_sample& s) { return s.bytes < 1'000'000; })
  template <std::predicate<const indexed_sample&> F>
  dataset subset(F keep) const {
    return chosen(detail::sample_choice::kind::subset, {}, std::move(keep));
  }
  /// The first samples, for a quick run: the same ones in every epoch, in as few shards as can be; all where there are
  /// no more. They are those of the first shards: where shards are sorted, of the first classes. For the beginning of
  /// each epoch's order, another part of all samples each time, see epochs_options::take_batches.
  dataset take(std::uint64_t samples) const;

  /// Draws .samples in each epoch by weights, one for each sample: in proportion to them, others in each epoch, from
  /// the seed and the epoch. A sample of weight 0 never comes. Weights are compared to 2^-32 of the largest.
  ///
  /// With replacement (the default) a sample comes as often as its weight says, on average; each copy has random
  /// numbers of its own (origin::copy). Without, it comes once at most, with a chance in proportion to its weight;
  /// weights that would come to more than once count for once. sample_selection has the details.
  dataset weighted(std::vector<float> weights, weighted_options options = {}) const;
  /// Weighted by a function that returns the weight of an indexed_sample.
  template <std::invocable<const indexed_sample&> F>
  dataset weighted(F weight, weighted_options options = {}) const {
    return chosen(detail::sample_choice::kind::weights, options, std::move(weight));
  }
  /// weighted(), so that all classes come equally often: each sample counts for 1 / the size of its class. `classes`
  /// has a number for each sample.
  dataset balanced(std::vector<std::uint32_t> classes, weighted_options options = {}) const;
  /// Balanced by a function that returns the class of an indexed_sample:
  ///
  ///     train.balanced([&](const mill::indexed_sample& s) { return class_of.at(s.key_hash); })
  template <std::invocable<const indexed_sample&> F>
  dataset balanced(F class_of, weighted_options options = {}) const {
    return chosen(detail::sample_choice::kind::classes, options, std::move(class_of));
  }

 private:
  friend detail::dataset_state;
  // The last parameter tells these from the constructors above.
  dataset(std::shared_ptr<const storage> store, std::string prefix, dataset_options options, int);
  dataset(std::shared_ptr<const storage> store, std::vector<shard> shards, dataset_options options, int);
  dataset(std::shared_ptr<const storage> store, stream<shard> shards, dataset_options options, int);
  dataset(std::shared_ptr<const storage> store, std::shared_ptr<const index_set> indexes, dataset_options options, int);
  // A part of another dataset.
  dataset(const dataset& of, std::shared_ptr<const detail::sample_choice> choice);
  template <class F>
  dataset chosen(detail::sample_choice::kind is, weighted_options how, F f) const {
    return dataset(*this, std::make_shared<const detail::chosen_by<F>>(is, how, std::move(f)));
  }

  std::shared_ptr<detail::dataset_state> state_;
};

/// A member of a mix.
struct weighted_dataset {
  dataset of;
  std::uint64_t weight = 1;  ///< against the weights of the others; not 0. Exact to 1 / tracks
  std::uint64_t seed = 0;    ///< beside that of the training; another one gives another order of its samples
};

/// The source of a training: the samples of a dataset, epoch after epoch, of which this rank takes its share.
///
///     auto training = mill::epochs(train, {.seed = 7, .epochs = 90, .batch = 256, .rank = mine}, saved)
///                     | mill::fill_batches(pool, decode) | mill::to_device(copies);
///     auto run = rt.run(std::move(training));
///     for (auto& batch : run) {
///       train(batch);
///       if (due()) save(model, run.state());
///     }
///
/// `state` is the result of pipeline_run::state(): the training continues after it. Empty: from the beginning.
///
/// With an index, each sample comes once an epoch, on one rank, in the canonical order (sample_order) of seed and
/// epoch. All ranks have equally many batches of options.batch entries; the last one of an epoch is padded with entries
/// of weight() 0. The state is one text for all ranks, and resumes with any number of ranks and size of batches. The
/// first run verifies the shards and makes the index file. Without an index, shards are read whole and shuffled in a
/// window, several ranks need .equal or .uneven, and each rank has a state of its own.
///
/// Bounds: reads at most options.ahead samples and options.bytes bytes ahead of the consumer, counted as the slabs that
/// hold them, or one larger sample; without an index, the dataset's .window_bytes for its window too. In flight: up to
/// options.requests ranges of up to options.part bytes, shared with the host's other readers in the runtime.
/// Cancellation: dropping the stream ends all transfers at once.
///
/// Errors, thrown in the sample's place, with object and byte: those of the store and the list; stale_index_error for
/// an object of another version than the index, archive_error for a wrong checksum or header, io_error for a short
/// answer, configuration_error for an empty list. options.failures may replace such samples by entries of weight 0.
/// Thrown here, before anything is read: configuration_error for options that contradict each other or the dataset,
/// given indexes without samples, a shard that the store does not serve, and a state of another order.
///
/// docs/guide/epochs.md has the details of hosts, reading, the index file, resuming without an index, and losses.
MILLRACE_COROUTINE stream<sample> epochs(const dataset& data, const epochs_options& options, std::string state = {});

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/dataset.ipp>
#endif
