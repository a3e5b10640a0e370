// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/flow/rank_words.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
class group_core;
}

/// The one collective that a rank_group needs, as a function of the program: puts the words of every process into
/// `all`, those of process r at r * mine.size(). All processes call it equally often, with equally many words; it
/// returns when all have. `MPI_Allgather` of MPI_UINT64_T is one (mpi_ranks(), <millrace/mpi.hpp>), and so is the
/// all-gather of any process group for integers of 64 bits.
using gather_words = std::function<void(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all)>;

/// A number that must be equal on all ranks, and its name for the error if it is not.
class rank_setting {
 public:
  std::string name;         ///< equal on all ranks
  std::uint64_t value = 0;  ///< the number that is compared
  /// Shown by the error in place of the number: for a digest, the text that it is the digest of. The last 256 bytes are
  /// shown.
  std::string text = {};
};

/// Of a group by the store.
struct rank_group_options {
  /// How long a rank waits for the others, each time. Processes of one job may start minutes apart.
  duration timeout = std::chrono::minutes(10);
};

/// The processes of a training, which know each other: which one this is, of how many, and one small collective. Given
/// to epochs(), it compares the seed, the dataset, the batch, the order and the state of all ranks at the start, and a
/// difference is the same error on all of them. equal_batches asks it, too.
///
///     const mill::rank_group mine = mill::mpi_ranks();                                           // under mpirun
///     const mill::rank_group mine = mill::pmix_ranks();                                          // srun --mpi=pmix
///     const mill::rank_group mine = mill::c10d_ranks(mill::rank_from_environment(), store, "");  // under torchrun
///     const mill::rank_group mine(mill::rank_from_environment(), all_gather);                    // by a function
///     const mill::rank_group mine(mill::rank_from_environment(), s3, "s3://corpus/runs/17/");    // by the store
///     auto run = rt.run(mill::epochs(train, {.seed = 7, .batch = 256, .ranks = mine}, saved) | mill::batch());
///
/// **By a function**: it is called by gather_now() and epochs(), on the thread that calls these, never on a loop or a
/// pool. So calls that the program makes itself, of the same communicator, keep their order, and the function need not
/// be safe for threads. Every process constructs, and calls, in the same order. With rank_notes beside the function the
/// ranks agree on a stop by these, and a run calls the function no more once it has begun.
///
/// **By the store**, for 64 processes at most: each process puts its words into an object, rank 0 reads them and puts
/// all into one, which the others read: four or five small requests a rank, and one LIST each time that it checks
/// (every 50 ms at first, every second later; slower with many ranks). epochs() does it on the run's loop. The prefix
/// is for one training at a time: beside its checkpoints, say. Names hold a random number of each process, so what an
/// earlier start has left is never taken for an answer; the next start removes it. A rank that does not come is an
/// error, after .timeout, which names it; a line in the log says after 30 s who is missing. Of two processes that give
/// one index at most one trains: it is an error on all ranks, and on the process that came later: at once if both come
/// in time, else in the next round (a comparison, a step of equal_batches) of the group that is complete. The store
/// must show at once what was stored: S3 and local file systems do, NFS only after some seconds.
///
/// Copies are the same group. A group of one process asks nothing. Calls from several threads are allowed where the
/// program makes them in the same order on all ranks.
class rank_group {
 public:
  /// This process alone.
  rank_group() : rank_group(rank(), gather_words()) {}
  /// By a function of the program, which may be empty for one process; else that is a usage_error. `mine` is the
  /// process's number among those that the function gathers of. `notes`: null where there are none.
  rank_group(const rank& mine, gather_words gather, std::shared_ptr<const rank_notes> notes = nullptr);
  /// By objects with this prefix, which is a folder (`s3://bucket/folder/`), in a store that can be written to: an
  /// s3::client, files() of a file system that all processes see, or any storage whose list_all() is right at once.
  /// configuration_error for another prefix, for a store that cannot be written to, and for more than 64 processes.
  template <class Store>
  rank_group(const rank& mine, const Store& store, std::string prefix, const rank_group_options& options = {})
      : rank_group(mine, detail::storage_of(store), std::move(prefix), options) {}
  rank_group(const rank& mine, std::shared_ptr<const storage> store, std::string prefix,
             const rank_group_options& options = {});

  /// Which share of the samples this process takes, of how many: the process's number, unless replica() gave another.
  const rank& mine() const noexcept { return mine_; }
  /// Which process this is, of how many.
  const rank& process() const noexcept;

  /// A group with these processes, in which `processes` neighbours (0 to n-1, n to 2n-1, ...) take the same samples:
  /// those that share one replica of the model, by tensor or pipeline parallelism. All of them still take part in
  /// comparisons. configuration_error unless it divides the processes.
  rank_group replicas(std::uint32_t processes) const;
  /// For replicas that are not neighbours: this process belongs to replica `index` of `of`.
  rank_group replica(std::uint32_t index, std::uint32_t of) const;

  /// Collective: the words of all processes, in their order. Waits on the calling thread, so not for a loop's thread.
  /// `purpose` is a literal that must be the same on all: an error names a process that gathers something else.
  MILLRACE_COROUTINE std::vector<std::uint64_t> gather_now(std::vector<std::uint64_t> words,
                                                           const char* purpose = "words") const;
  /// Gathers by the store, on the loop that awaits it. Counts from the call on: all processes call in the same order
  /// and may await in another. Dropping it gives up; the others wait for this process until their time is up.
  /// usage_error for a group by a function.
  MILLRACE_COROUTINE task<std::vector<std::uint64_t>> gather(std::vector<std::uint64_t> words,
                                                             const char* purpose = "words") const;
  /// True if gather() works: the group is by the store, or of one process.
  bool by_store() const noexcept;

  /// Collective: compares numbers of the program, with the same names on all ranks, in the same order. Throws a
  /// configuration_error with the same sentence on all of them, or on none. Waits like gather_now().
  MILLRACE_COROUTINE void compare(std::span<const rank_setting> settings) const;

 private:
  friend detail::group_core;
  std::shared_ptr<detail::group_core> core_;
  rank mine_;
};

namespace detail {
/// Given by epochs() to its stream, so that a run that is asked to stop does so on all ranks: stream::of_ranks(). One
/// is made at the same place of the program on all ranks.
MILLRACE_COROUTINE std::shared_ptr<const rank_words> words_of(const rank_group& group);
}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/rank_group.ipp>
#endif
