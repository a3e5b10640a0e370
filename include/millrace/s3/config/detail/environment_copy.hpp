// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <map>
#include <string>

#include <millrace/base/environment.hpp>

namespace millrace::s3::detail {

/// The variables that credentials may come from, as they were when this was made: what is refreshed hours later must
/// neither depend on a table that has gone nor call getenv(3) beside threads. Overwritten on destruction.
class environment_copy {
 public:
  explicit environment_copy(const environment& from);
  environment_copy(const environment_copy&) = delete;
  environment_copy& operator=(const environment_copy&) = delete;
  ~environment_copy() {
    for (auto& [name, value] : values_) OPENSSL_cleanse(value.data(), value.size());
  }

  /// Good as long as this object; to be read from any thread.
  environment view() const noexcept { return environment(&look_up, const_cast<environment_copy*>(this)); }

 private:
  static const char* look_up(void* self, const char* name) {
    const environment_copy& copy = *static_cast<const environment_copy*>(self);
    const auto found = copy.values_.find(name);
    return found == copy.values_.end() ? nullptr : found->second.c_str();
  }

  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/detail/impl/environment_copy.ipp>
#endif
