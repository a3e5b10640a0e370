// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/http/options.hpp>
#include <millrace/http/request.hpp>
#include <millrace/http/response.hpp>
#include <millrace/io/process.hpp>
#include <millrace/s3/auth/detail/small_request.hpp>
#include <millrace/s3/config/detail/read_small_file.hpp>

namespace millrace::s3::detail {

/// What the sources of credentials see of the world: the files of this machine, HTTP on the awaiting loop, processes,
/// the clock. Tests put recordings in its place. Thread-safe.
class surroundings {
 public:
  /// `services` is how STS and SSO are reached: proxy and certificate authorities.
  explicit surroundings(http::transport_options services)
      : services_(std::move(services)),
        seed_(static_cast<std::uint64_t>(monotonic_ns()) ^ (static_cast<std::uint64_t>(::getpid()) << 40)) {}

  file_text read_file(const std::string& path) const { return read_small_file(path); }

  MILLRACE_COROUTINE task<http::response> send(http::request r, request_limits limits) const;

  MILLRACE_COROUTINE task<millrace::process_result> run(std::string command, duration longest, std::size_t limit) const;

  /// Unix seconds.
  std::int64_t now() const noexcept { return static_cast<std::int64_t>(std::time(nullptr)); }
  /// Uniform in [0, 1), differently in every process.
  double random() const noexcept { return rng(seed_.fetch_add(1)).uniform(); }

 private:
  /// As http::send(), but nothing of the answer is left behind in memory that has been freed: it may be a secret.
  MILLRACE_COROUTINE static task<http::response> send_wiped(
      http::request r, std::shared_ptr<const http::transport_options> options, std::size_t limit);

  /// An answer that drips is no answer.
  MILLRACE_COROUTINE static task<http::response> send_within(
      http::request r, std::shared_ptr<const http::transport_options> options, request_limits limits);

  const http::transport_options services_;
  mutable std::atomic<std::uint64_t> seed_;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/auth/detail/impl/surroundings.ipp>
#endif
