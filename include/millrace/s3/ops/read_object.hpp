// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/retry/detail/store_host.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/s3/ops/objects.hpp>
#include <millrace/s3/session.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// Reads one object as a whole: a first part, which says how long the object is, then all others in parallel, each
/// straight into its place. For one loop; it must stay where it is while a read is under way.
class object_reader {
 public:
  MILLRACE_COROUTINE object_reader(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                   const coroutine_context& here, std::atomic<std::uint64_t>* progress);

  /// Into memory of its own.
  MILLRACE_COROUTINE task<bytes> read(std::size_t max_bytes);
  /// Into `memory`; gives the object's size.
  MILLRACE_COROUTINE task<std::size_t> read_into(std::span<std::byte> memory);

 private:
  /// An object of this size is one request.
  static constexpr std::size_t first_part = 1 * MiB;
  static constexpr std::size_t longest_part = 8 * MiB;
  /// Most parts that are in flight, or in place and not yet compared: the memory for them does not grow with the
  /// object.
  static constexpr std::size_t most_parts = 256;

  /// Reads the object, once more if its bytes do not have the store's checksum.
  MILLRACE_COROUTINE task<void> read_all();
  MILLRACE_COROUTINE task<void> read_once();
  MILLRACE_COROUTINE task<object_part> read_part(std::uint64_t offset, std::size_t length, slab_pool slabs,
                                                 millrace::detail::host_share::request request);
  /// Begins as many parts as the host's share allows.
  MILLRACE_COROUTINE void begin_parts();
  /// Throws if the object does not fit; else there is memory for all of it, and the first part is there.
  void make_room(const object_part& first);
  MILLRACE_COROUTINE task<void> take_checksum();

  const std::shared_ptr<const session> session_;
  const std::string bucket_;
  const std::string key_;
  const coroutine_context here_;
  std::atomic<std::uint64_t>* const progress_;
  millrace::detail::host_share share_;
  bool own_ = true;           // the memory is made here
  std::size_t limit_ = 0;     // bytes of the object, at most
  char* memory_ = nullptr;    // memory for the object; null while there is none
  writable_bytes made_;
  bytes small_;               // the whole object, if it is one part and the memory is made here
  object_info object_;        // as the first part said
  std::uint64_t next_ = 0;    // offset of the next part
  bool again_ = false;        // this is the second reading
  bool failed_ = false;       // a part has failed: no other one begins
  std::unique_ptr<object_checksum> checksum_;
  spawned<std::unique_ptr<object_checksum>> asking_;
  std::deque<spawned<object_part>> parts_;  // in their order; declared last: they refer to the reader
};

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

/// A whole object, of at most `max_bytes`, in one piece of memory.
///
/// One GET brings the first MiB, and with it the size; the rest comes in ranges of at most 8 MiB, in parallel, each
/// straight into its place: as many at once, and as long, as pays at this store. Beside the object's own memory about 1
/// MiB is used. All parts are of one version, that of the first answer, else changed_error. A part that breaks off is
/// continued at the next byte; retries as in get_object_range.
///
/// With config::validate_checksums the store's checksum is asked for, by a HEAD beside the first GET, and compared with
/// the bytes. If they differ, the object is read once more over other connections, and then a checksum_error says
/// whether it was the same both times.
///
/// An object of more than `max_bytes` is an http::error (too_large) with both sizes; at most its first MiB was
/// fetched. `progress`, if given, has the number of bytes that are in place, and may be read on any thread; it begins
/// anew with a second reading, and must outlive the task. Dropping the task ends all transfers.
MILLRACE_COROUTINE task<bytes> read_object(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                           std::size_t max_bytes, std::atomic<std::uint64_t>* progress = nullptr);

/// Reads into `memory` of the caller, page-locked memory too; gives the size of the object. The transport writes there,
/// with no buffer of the library in between. Memory after the object stays unchanged.
///
/// An object that is longer than `memory` is an http::error (too_large) with both sizes; at most its first MiB has been
/// written. The memory must live until the task has ended or is dropped: after that it is not written any more. After
/// an error its content is undefined.
MILLRACE_COROUTINE task<std::size_t> read_object_into(std::shared_ptr<const session> s, std::string bucket,
                                                      std::string key, std::span<std::byte> memory,
                                                      std::atomic<std::uint64_t>* progress = nullptr);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/read_object.ipp>
#endif
