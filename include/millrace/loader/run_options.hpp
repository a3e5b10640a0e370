// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include <millrace/base/log.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/http/options.hpp>

namespace millrace::inline MILLRACE_ABI {

class run_stats;
class skipped_item;
struct profiler_ranges;

/// Progress of run(), as lines of the log: after 1, 2, 4, 8, 16 and 32 seconds and then every 30, and at the end one
/// with the stage table.
enum class progress {
  automatic,  ///< when standard error is a terminal and the rank is 0
  off,
  on,  ///< always
};

/// What a run's next() came to: see pipeline_run::outcome().
enum class run_outcome : unsigned char {
  item,
  timed_out,  ///< nothing came in the time that next() was given; the run goes on
  stopped,    ///< the run was asked to stop: there may be more
  ended,      ///< the pipeline has no more
};

/// Signals that ask a run to stop: `{SIGTERM, SIGUSR1}`, see run_options::stop_on.
class stop_signals {
 public:
  constexpr stop_signals() noexcept = default;
  /// The numbers of <csignal>; others than 1 to 64 are refused by run().
  constexpr stop_signals(std::initializer_list<int> numbers) noexcept {
    for (const int n : numbers) {
      if (n >= 1 && n <= 64) {
        mask_ |= std::uint64_t{1} << (n - 1);
      } else {
        valid_ = false;
      }
    }
  }
  constexpr bool empty() const noexcept { return valid_ && mask_ == 0; }
  constexpr bool valid() const noexcept { return valid_; }
  constexpr bool has(int number) const noexcept {
    return number >= 1 && number <= 64 && (mask_ >> (number - 1) & 1) != 0;
  }

 private:
  std::uint64_t mask_ = 0;
  bool valid_ = true;
};

/// How a pipeline is run: runtime::run(), run(). Its loops and pool are those of runtime_options.
struct run_options {
  /// Items made ahead of the training thread. 0: two; of types with byte_size(), strings and vectors, up to 1024 as
  /// long as they have 1 MiB together (256 KiB, if any has more than 32 KiB), so that the threads need not wake each
  /// other for each small item.
  std::size_t prefetch = 0;
  /// Bound of those items together, for types with byte_size(); one item is always let in. 0: no bound. Required if a
  /// budget is set (not for batches of a device: their slots are to_device's).
  std::size_t prefetch_bytes = 0;
  /// Bytes; if set, the bounds that the stages declare must fit into it, prefetch_bytes included. Not counted are the
  /// training thread's current item, one item that each other stage works on, and memory that jobs of a pool allocate.
  /// The rest is for stages that learn from the data that they need more: unpacking, and slots that grow. No item may
  /// be larger than the whole budget, even if its stage's own limit is higher: a member (max_member_bytes), a sample, a
  /// line (max_line), a recording, an unpacked .npz.
  std::size_t budget = 0;
  progress show = progress::automatic;
  /// The rank whose progress it is; by default the runtime's, else that of split_by_rank(), else 0.
  std::optional<millrace::rank> rank = {};
  /// Called for every item that a failure_policy leaves out (on_failure::skip), with its shard, byte, key and the
  /// reason: complete, where the log has one line a second. On the thread of the run's loop, in the order in which each
  /// stage delivers, before the next item is yielded; it should be quick. It is called for what stages make ahead, too,
  /// whether the program takes it or not. What it throws ends the stream. See skipped_item, in
  /// flow/failure_policy.hpp.
  callback<void(const skipped_item& item)> skipped = nullptr;

  /// Called every second, and when the run has ended, with what a line of progress says, on every rank: for a line or a
  /// bar of the program's own. On the thread of the run's loop, which waits for it; it must not throw. See run_stats.
  callback<void(const run_stats& so_far)> report = nullptr;

  /// The file to which the run writes its trace, at its end: the times of requests, parts, listings, jobs of the pool,
  /// copies, steps of the training thread. Chrome's JSON of trace events, which https://ui.perfetto.dev draws. Null:
  /// the file that the variable MILLRACE_TRACE names, with ".2" and so on before its extension for the next runs of the
  /// process, ".rank1" for other ranks; without the variable there is no trace. The latest 131,072 events are kept (6
  /// MiB); the file says how many were dropped. The text is copied. A file that cannot be written is a line in the log.
  const char* trace = nullptr;

  /// The first of each of these signals that comes stops the run, as pipeline_run::stop() does, and a log line says so.
  /// The next one has the effect that it had before run(), so that Ctrl-C twice ends the program. The earlier effect is
  /// restored when the run has ended, or, if it was stopped, when it is dropped. Several runs may name the same signal:
  /// it stops all of them. A child of fork() is not concerned: there signals have the effect that they had before.
  ///
  /// The handler (sigaction(2), with SA_RESTART) writes to an eventfd that the run's loop watches; there is no thread
  /// for it. The library's threads block all signals, so a signal comes to a thread of the program, which must not
  /// block it in all of them; a run that begins on a thread that does logs a line. Throws configuration_error for
  /// signals that no program can go on after (SIGKILL, SIGSTOP, SIGSEGV and the like).
  stop_signals stop_on = {};
};

/// The NUMA nodes for a runtime's threads: see runtime_options::placement. Other values are the number of a node:
/// `mill::placement{1}`.
enum class placement : int { automatic = -1, off = -2 };

/// The parts of a runtime.
struct runtime_options {
  /// Event loops, each with a thread; fetch spreads its transfers over them, and each run lives on one. One loop
  /// carries some 16 Gbit/s of TLS, and 50 without. 0: by the cores that this process may use, see `threads`: one below
  /// 16, two from 16 and four from 32. With several, a store of the program's is called on several threads at once.
  unsigned loops = 0;
  millrace::http::engine_options http = {};  ///< connections and receive buffers, of each loop
  /// Threads of the pool for functions that compute. 0: the cores of the machine, or of the cgroup's cpuset and CPU
  /// quota where those are fewer, divided by the ranks on the machine (`rank`); at most those of the process's affinity
  /// mask, which launchers set for each rank, and its part of the NUMA nodes that it is kept on (`placement`); at least
  /// one. If these are not all of the machine's, one log line says why.
  unsigned threads = 0;
  /// The rank of this process: `rank_from_environment()`. Without it the pool's size is that of a process that is alone
  /// on its machine.
  std::optional<millrace::rank> rank = {};
  /// The NUMA nodes on which the loops and the threads of the pool are kept, and with them the memory that they are the
  /// first to write: slabs, and page-locked memory. Never outside of the affinity mask of the thread that makes the
  /// runtime, and so of the cgroup's cpuset. No other thread is touched: not the training thread, nor those of pools
  /// and loops that the program makes. If there is one node, or the mask has CPUs of only one, nothing is done.
  ///
  /// Automatic: the ranks of the machine (`rank`) divide its nodes by their numbers, and from the first to_device() on
  /// a rank is on the node of that GPU. If there are fewer ranks than nodes, each has several, neighbours, unless its
  /// pool fits onto the GPU's node (a container with a CPU quota). A rank that is alone, with a pool larger than a
  /// node, is kept nowhere: all CPUs stay in use. A node's number: there, whatever the GPU's is. Throws
  /// configuration_error if the process may use no CPU of it. A log line says the placement, and so does
  /// run_stats::placement. Nothing is kept where CPU numbers are above 1,023, or where the kernel shows no nodes (in
  /// some sandboxes).
  millrace::placement placement = millrace::placement::automatic;
  bool force_epoll = false;  ///< epoll even where io_uring works
  /// Called, instead of the log of the process (set_log()), with each line that loops and stages of this runtime log.
  log_function log = nullptr;
  /// Called as jobs, copies and training steps begin and end: `&mill::cuda::nvtx_ranges`, of cuda/nvtx.hpp, for the
  /// profilers of NVIDIA, or functions of the program's for another one. Must outlive the runtime. See profiler_ranges.
  const profiler_ranges* ranges = nullptr;
};

}  // namespace millrace
