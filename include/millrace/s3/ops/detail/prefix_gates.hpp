// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include <millrace/coro/executor.hpp>
#include <millrace/s3/ops/detail/prefix_gate.hpp>

namespace millrace::s3::detail {

/// The gates of one executor, one per endpoint, bucket and first component of the key: S3 counts requests per prefix,
/// and this is the one that a data set has to itself. Each loop of a group learns from its own refusals.
class prefix_gates final : public executor_service {
 public:
  static prefix_gates& of(executor& ex) {
    return ex.service<prefix_gates>();
  }

  /// Valid while something of it is in use, and until the next call otherwise.
  prefix_gate& gate(const std::string& endpoint, const std::string& bucket, const std::string& key);

  std::size_t size() const noexcept { return gates_.size(); }

 private:
  void forget_idle() {
    std::erase_if(gates_, [](const auto& named) { return named.second.idle(); });
  }

  std::map<std::string, prefix_gate> gates_;
};

/// The gate of a key among those of `ex`.
inline prefix_gate& gate_of(executor& ex, const std::string& endpoint, const std::string& bucket,
                            const std::string& key) {
  return prefix_gates::of(ex).gate(endpoint, bucket, key);
}

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/detail/impl/prefix_gates.ipp>
#endif
