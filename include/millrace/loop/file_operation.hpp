// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

struct statx;

namespace millrace {

namespace detail {
class file_queue;
}

/// What a file operation asks of the kernel. Memory, path and descriptor must stay valid until the operation completes.
struct file_request {
  enum class kind : std::uint8_t { open, stat, read, write, sync, close };

  kind what = kind::read;
  int fd = -1;                       ///< all but open
  int flags = 0;                     ///< open: as open(2)
  unsigned mode = 0;                 ///< open: as open(2)
  const char* path = nullptr;        ///< open
  void* data = nullptr;              ///< read: filled; write: the source, not changed
  std::size_t size = 0;              ///< read, write: bytes; the kernel may do less
  std::uint64_t offset = 0;          ///< read, write: in the file
  struct ::statx* status = nullptr;  ///< stat: filled with STATX_BASIC_STATS
};

/// One operation of an event loop on a file. Lives on the heap, because the kernel may need its memory for longer than
/// the coroutine that asked lives: derive from it to keep alive what the request points to. Between event_loop::start()
/// and complete() it belongs to the loop.
class file_operation {
 public:
  explicit file_operation(const file_request& r) noexcept : request_(r) {}
  file_operation(const file_operation&) = delete;
  file_operation& operator=(const file_operation&) = delete;
  const file_request& request() const noexcept { return request_; }

 protected:
  virtual ~file_operation() = default;

  /// Called once, on the loop's thread, when the kernel is done with the operation: bytes, a descriptor, 0, or a
  /// negative errno value. It may delete the operation and post coroutines; it must not resume one.
  virtual void complete(std::int64_t result) noexcept = 0;

 private:
  friend class detail::file_queue;
  enum class place : std::uint8_t { outside, queued, kernel };

  const file_request request_;
  file_operation* prev_ = nullptr;
  file_operation* next_ = nullptr;
  std::int64_t result_ = 0;
  place place_ = place::outside;
  bool cancelled_ = false;
};

}  // namespace millrace
