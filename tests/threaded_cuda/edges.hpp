// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#if MILLRACE_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

/// What ThreadSanitizer sees of the model. Its own locks order everything with everything, which a GPU does not: so it
/// works unseen, and shows the orders that CUDA promises one by one. Without the sanitizer all this is nothing.
namespace millrace::threaded_cuda {

/// An order between two threads: what came before publish() happens before what comes after learn().
class edge {
 public:
#if MILLRACE_TSAN
  void publish() { __tsan_release(&place_); }
  void learn() { __tsan_acquire(&place_); }

 private:
  char place_ = 0;
#else
  void publish() {}
  void learn() {}
#endif
};

namespace detail {
inline void hide(bool on) {
#if MILLRACE_TSAN
  if (on) {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  } else {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
#else
  static_cast<void>(on);
#endif
}
}  // namespace detail

/// The model at work: neither its locks nor what it reads and writes are seen.
class unseen {
 public:
  unseen() { detail::hide(true); }
  unseen(const unseen&) = delete;
  unseen& operator=(const unseen&) = delete;
  ~unseen() { detail::hide(false); }
};

/// Within `unseen`: the program's memory is read and written, or an order shown.
class seen {
 public:
  seen() { detail::hide(false); }
  seen(const seen&) = delete;
  seen& operator=(const seen&) = delete;
  ~seen() { detail::hide(true); }
};

}  // namespace millrace::threaded_cuda
