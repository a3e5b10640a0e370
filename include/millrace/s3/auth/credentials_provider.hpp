// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/s3/sign/credentials.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// Gives a client credentials, for every request that it sends. Shared by clients and loops: get() may be awaited on
/// several loops at once; an implementation that refreshes does so once for all waiters.
class credentials_provider {
 public:
  virtual ~credentials_provider() = default;
  /// The present snapshot. Throws if there are none; anonymous is a valid answer.
  virtual task<credentials> get() = 0;
  /// Called when the store refused `used` as expired: true if a later get() may give others.
  virtual bool refused(const credentials& used) {
    static_cast<void>(used);
    return false;
  }
  /// The region of this machine, asked for when nothing else names one; an empty task: there is no service to ask.
  virtual task<std::string> region() { return task<std::string>(); }
};

/// Always the same credentials.
template <class = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_fixed_credentials final : public credentials_provider {
 public:
  explicit basic_fixed_credentials(credentials value) : value_(std::move(value)) {}
  task<credentials> get() override { co_return value_; }

 private:
  const credentials value_;
};
using fixed_credentials = basic_fixed_credentials<>;

}  // namespace millrace::s3
