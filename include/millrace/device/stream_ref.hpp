// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/error.hpp>
#include <millrace/base/type_id.hpp>

namespace millrace {

/// A user's stream, of whatever device: the native handle and its type, not owned.
///
/// Every runtime's stream handle is a pointer (`cudaStream_t` is `CUstream_st*`), so any pointer converts, the null
/// pointer of that type too (the default stream). Which type it was is remembered, and a device refuses a stream of
/// another runtime instead of passing a wrong pointer on. The stream must stay alive for the call it is given to and
/// until the work enqueued on it is done.
class stream_ref {
 public:
  template <class Native>
  stream_ref(Native* stream) noexcept : handle_(stream), kind_(type_id::of<Native>()) {}

  template <class Native>
  bool is() const noexcept {
    return kind_ == type_id::of<Native>();
  }

  /// The native handle. Throws configuration_error when this is a stream of another runtime.
  template <class Native>
  Native* as() const {
    if (!is<Native>()) throw configuration_error("a stream of another kind of device was passed");
    return static_cast<Native*>(handle_);
  }

  friend bool operator==(const stream_ref&, const stream_ref&) noexcept = default;

 private:
  void* handle_;
  type_id kind_;
};

}  // namespace millrace
