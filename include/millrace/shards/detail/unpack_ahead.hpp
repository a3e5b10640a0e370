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
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/shards/unpack.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/tar/detail/unpacker.hpp>
#include <millrace/tar/entry.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The result of one job of an unpacker.
class unpack_step {
 public:
  unpack_step() = default;
  std::vector<bytes> out;
  bool hungry = false;  ///< it needs more input
  bool done = false;
  bool failed = false;  ///< for this reason, in front of this unpacked byte
  std::string reason;
  std::uint64_t offset = 0;
};

/// Gives an unpacker a piece of its input, or the end of it, and runs it until it needs more or has made 4 MiB. Keeps
/// it alive even if the stage is dropped meanwhile.
class unpack_job {
 public:
  unpack_job(std::shared_ptr<tar::detail::unpacker> u, bytes piece, bool last) noexcept
      : unpacker_(std::move(u)), piece_(std::move(piece)), last_(last) {}
  unpack_step operator()();

 private:
  std::shared_ptr<tar::detail::unpacker> unpacker_;
  bytes piece_;
  bool last_;
};

/// The objects that have been read and not yet delivered; part of unpack_objects().
///
/// A pump reads the source ahead, once start() has been called; a task for each object that is unpacked gives jobs to
/// the pool, one at a time. The first object may always continue, the others while there is room.
class unpack_ahead {
 public:
  unpack_ahead(async_generator<chunk>& source, const coroutine_context& here, format_of_head look,
               std::size_t head_bytes, const tar::archive_options& limits, const unpack_place& place);
  unpack_ahead(const unpack_ahead&) = delete;
  unpack_ahead& operator=(const unpack_ahead&) = delete;
  ~unpack_ahead();

  /// The next piece of the source.
  MILLRACE_COROUTINE void take(chunk&& c);
  /// True if an object was compressed.
  bool met_packed() const noexcept { return met_packed_; }
  /// Begins to read the source ahead.
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
    std::string head;  // its first bytes, until its kind is known
    bool known = false;
    bool packed = false;
    bool whole = false;         // its last piece has come
    bool cut = false;           // no more of it will come, though it is not whole
    bool input_ended = false;   // for the unpacker
    bool hungry = true;         // the unpacker has nothing to work on
    bool finished = false;      // all of it is in `out`
    std::deque<chunk> waiting;  // to be unpacked, or known
    std::shared_ptr<tar::detail::unpacker> unpacker;
    std::uint64_t unpacked = 0;
    std::deque<unpacked_chunk> out;
    std::exception_ptr error;  // after `out`
    spawned<void> worker;
  };

  friend pump<chunk, unpack_ahead>;
  bool has_room() const noexcept;
  void source_ended() noexcept;

  MILLRACE_COROUTINE static task<void> work(unpack_ahead& self, object& o);

  MILLRACE_COROUTINE void keep(object& o, chunk&& c);
  MILLRACE_COROUTINE void decide(object& o);
  void put(object& o, unpack_step&& made);
  /// In a handler: the object ends with that exception. The consumer gets it in its place, whatever else is under way.
  void fail(object& o) noexcept;
  /// No more of the object is unpacked: what waits for that is let go.
  void end(object& o) noexcept;
  /// Removes objects whose pieces have all been delivered.
  void advance();
  /// Starts the tasks of the next objects. One that cannot be started has failed.
  MILLRACE_COROUTINE void start_workers() noexcept;
  bool may_work(const object& o) const noexcept;

  static constexpr std::size_t most_unstated = 256 * MiB;

  async_generator<chunk>& source_;
  const coroutine_context here_;
  const format_of_head look_;
  const std::size_t head_bytes_;
  tar::archive_options limits_;
  cpu_pool::share pool_;
  slab_pool slabs_;
  std::shared_ptr<tar::detail::window_budget> windows_;
  std::size_t most_bytes_;
  const bool bound_stated_;
  std::size_t granted_ = 0;  // of the run's budget
  std::size_t most_workers_;
  std::size_t held_ = 0;     // bytes of the pieces that wait, before and after
  std::size_t input_ = 0;    // of them, before
  std::size_t workers_ = 0;  // not at their ends
  bool met_packed_ = false;
  bool reads_ahead_ = false;
  notifier changed_;
  std::deque<object*> to_start_;
  std::deque<object> objects_;  // with their tasks; stay where they are
  pump<chunk, unpack_ahead> pump_{changed_};     // declared last: destroyed first
};

/// The stage before untar() and lines() look at objects: unpacks those that are compressed, on a pool, side by side and
/// in order. `head_bytes`: how much of an object's beginning `look` needs, if the object has that much. Until the first
/// compressed object nothing is read ahead and pieces pass through unchanged. Errors of an object (archive_error) come
/// after the data that was unpacked before. Dropping it drops what waits; a job that a thread has begun runs to its
/// end, of 4 MiB.
MILLRACE_COROUTINE async_generator<unpacked_chunk> unpack_objects(async_generator<chunk> in, format_of_head look,
                                                                  std::size_t head_bytes, tar::archive_options limits,
                                                                  unpack_place place);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/detail/unpack_ahead.ipp>
#endif
