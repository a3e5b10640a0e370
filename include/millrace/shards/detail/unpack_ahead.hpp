// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/shards/detail/unpack_job.hpp>
#include <millrace/shards/detail/unpacked_chunk.hpp>
#include <millrace/sync/notifier.hpp>

namespace millrace::detail {

/// The objects that have been read and not yet handed on; part of unpack_objects().
///
/// A task of its own (the pump) reads ahead, once start() has been called; one for each object that is unpacked gives
/// jobs to the pool, one at a time. The first object may always go on, the others while there is room.
class unpack_ahead {
 public:
  unpack_ahead(async_generator<chunk>& source, executor& ex, stage_record* stage, format_of_head look,
               std::size_t head_bytes, const tar::archive_options& limits, const unpack_place& place);
  unpack_ahead(const unpack_ahead&) = delete;
  unpack_ahead& operator=(const unpack_ahead&) = delete;
  ~unpack_ahead();

  /// The next piece of the source.
  MILLRACE_COROUTINE void take(chunk&& c);
  /// Whether an object was compressed.
  bool met_packed() const noexcept { return met_packed_; }
  /// From now on the source is read ahead.
  MILLRACE_COROUTINE void start();

  bool has_output();
  /// After the last piece: nothing more will come, or an error.
  bool ended();
  void rethrow();
  unpacked_chunk pop();
  auto wait() noexcept { return changed_.wait(); }

 private:
  struct object {
    std::shared_ptr<const shard> from;
    std::string head;  // its first bytes, until it is known what it is
    bool known = false;
    bool packed = false;
    bool whole = false;         // its last piece has come
    bool cut = false;           // no more of it will come, though it is not whole
    bool told_end = false;      // to the unpacker
    bool hungry = true;         // the unpacker has nothing to work on
    bool finished = false;      // all of it is in `out`
    std::deque<chunk> waiting;  // to be unpacked, or known
    std::shared_ptr<tar::detail::unpacker> unpacker;
    std::uint64_t unpacked = 0;
    std::deque<unpacked_chunk> out;
    std::exception_ptr error;  // behind `out`
    spawned<void> worker;
  };

  MILLRACE_COROUTINE static task<void> pump(unpack_ahead& self);
  MILLRACE_COROUTINE static task<void> work(unpack_ahead& self, object& o);

  MILLRACE_COROUTINE void decide(object& o);
  void put(object& o, unpack_step&& made);
  void end_source() noexcept;
  /// Takes objects off whose every piece has been handed on.
  void advance();
  /// Starts the tasks of the next objects.
  MILLRACE_COROUTINE void start_workers();
  bool wants_input() const noexcept;
  bool may_work(const object& o) const noexcept;

  static constexpr std::size_t most_unstated = 256 * MiB;

  async_generator<chunk>& source_;
  executor& ex_;
  stage_record* const stage_;
  const format_of_head look_;
  const std::size_t head_bytes_;
  const tar::archive_options limits_;
  cpu_pool::share pool_;
  slab_pool slabs_;
  std::size_t most_bytes_;
  const bool bound_stated_;
  std::size_t granted_ = 0;  // of the run's budget
  std::size_t most_workers_;
  std::size_t held_ = 0;     // bytes of the pieces that wait, before and after
  std::size_t input_ = 0;    // of them, before
  std::size_t workers_ = 0;  // not at their ends
  bool met_packed_ = false;
  bool reads_ahead_ = false;
  bool source_ended_ = false;
  std::exception_ptr error_;  // of the source
  notifier changed_;
  std::deque<object*> to_start_;
  std::deque<std::unique_ptr<object>> objects_;  // with their tasks, and the pump: destroyed first
  spawned<void> pump_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/detail/impl/unpack_ahead.ipp>
#endif
