// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/threaded_cuda/edges.hpp"
#include "tests/threaded_cuda/threaded_cuda.hpp"

namespace millrace::threaded_cuda {

/// The end of a piece of work.
struct mark {
  bool reached = false;
  edge order;
};
using mark_ptr = std::shared_ptr<mark>;

/// A capture of work into a graph, which the model throws away: nothing that is captured runs.
struct capture {
  cudaStreamCaptureMode mode;
  std::thread::id by;
  cudaStream_t origin;
  bool valid = true;
};

/// Memory that a piece of work reads or writes.
struct range {
  const void* address;
  std::size_t size;
};

/// A piece of work in a stream.
struct piece {
  const char* what = "";
  std::vector<range> uses;
  std::function<void(rng&)> action;  // none: a mark only
  std::vector<mark_ptr> after;       // reached first
  mark_ptr done = std::make_shared<mark>();
  edge issued;
};

struct stream {
  stream(int on, bool blocks, std::uint64_t seed) : device(on), blocking(blocks), random(seed) {}
  const int device;
  const bool blocking;  // has an order with the legacy default stream
  bool closed = false;  // destroyed: ends with its work
  rng random;           // of the stream's thread
  std::deque<std::unique_ptr<piece>> queue;
  mark_ptr tail;  // the end of the last piece; none before the first
  std::shared_ptr<capture> into;
  std::condition_variable more;
  std::thread thread;
};

struct event {
  int device = 0;
  unsigned flags = 0;
  bool destroyed = false;
  mark_ptr last;
  std::shared_ptr<capture> into;  // it was last recorded in a stream that captured
};

enum class kind { host, device };

struct block {
  kind of;
  std::size_t size;
  int device;
  bool freed = false;
};

/// Per thread, as in the runtime.
struct thread_state {
  int device = 0;
  cudaError_t last = cudaSuccess;
  bool in_host_function = false;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
};
thread_state& this_thread();

/// The state of the model, under one lock. One for the process.
class machine {
 public:
  machine() = default;
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;
  ~machine() { reset(1); }
  static machine& instance();

  std::mutex mutex;
  std::map<std::string, std::size_t> called;
  std::set<int> contexts;
  std::set<cudaGraph_t> graphs;
  std::map<const void*, std::function<detail::bound_kernel(const void*)>> kernels;

  void reset(std::uint64_t seed);
  void complain(std::string what) { wrong_.push_back(std::move(what)); }
  std::vector<std::string> violations();
  std::string leaks() const;

  // ---- memory

  /// Null when there is not so much.
  void* allocate(kind of, std::size_t size, int device);
  cudaError_t free(void* address, kind of, const char* call);
  /// Overwrites what is freed in its stream's order, there.
  void poison(void* address);
  /// The allocation with this address in it, or its end.
  std::pair<char* const, block>* find(const void* address);

  // ---- streams and events

  using lock = std::unique_lock<std::mutex>;
  cudaStream_t make_stream(int device, bool blocking);
  /// Of a handle, also of those of the default streams. Null when there is no such stream any more.
  stream* find(cudaStream_t handle, const char* call);
  cudaStream_t legacy(int device) { return defaults_[{device, std::thread::id()}]; }
  cudaEvent_t make_event(int device, unsigned flags);
  event* find(cudaEvent_t handle, const char* call);
  void close(cudaStream_t handle);

  /// Puts work at the end of a stream; what is captured is forgotten.
  cudaError_t enqueue(stream& s, std::unique_ptr<piece> work);
  /// Blocks the calling thread, and tells it.
  void wait(lock& held, const mark_ptr& until);
  /// All streams of the device, as they are now.
  std::vector<mark_ptr> tails(int device) const;

  // ---- captures

  /// Whether a stream is the legacy default one, and a blocking stream captures.
  bool captures_beside(const stream& s);
  /// What a call gets that waits for a stream, or asks about it, which must not be where the stream captures.
  cudaError_t refuse_captured(stream& s);
  /// What a call gets that is not safe while other work is captured.
  cudaError_t refuse_unsafe();
  cudaError_t refuse_all(int device);
  void end(const std::shared_ptr<capture>& of);

 private:
  void work_off(stream& s);
  void quiesce(lock& held);
  bool is_legacy(const stream& s);

  std::vector<std::string> wrong_;
  std::uint64_t seed_ = 1;
  std::map<cudaStream_t, std::unique_ptr<stream>> streams_;
  std::map<std::pair<int, std::thread::id>, cudaStream_t> defaults_;  // of no thread: the legacy one
  std::map<cudaEvent_t, std::unique_ptr<event>> events_;
  std::map<char*, block> blocks_;
  std::condition_variable reached_;
};

}  // namespace millrace::threaded_cuda
