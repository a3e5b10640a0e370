// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <string>

#include <millrace/base/environment.hpp>
#include <millrace/s3/config/detail/name_table.hpp>

namespace millrace::s3::detail {

/// The variables that credentials may come from, as they were when this was made: what is refreshed hours later must
/// neither depend on a table that has gone nor call getenv(3) beside threads. Overwritten on destruction.
class environment_copy {
 public:
  explicit environment_copy(const environment& from);
  environment_copy(const environment_copy&) = delete;
  environment_copy& operator=(const environment_copy&) = delete;
  ~environment_copy() {
    for (const auto& v : values_.entries()) OPENSSL_cleanse(v->value.data(), v->value.size());
  }

  /// Good as long as this object; to be read from any thread.
  environment view() noexcept { return environment(&look_up, this); }

 private:
  static const char* look_up(void* self, const char* name) {
    const std::string* const found = static_cast<const environment_copy*>(self)->values_.find(name);
    return found == nullptr ? nullptr : found->c_str();
  }

  name_table<std::string> values_;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/detail/impl/environment_copy.ipp>
#endif
