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
#include <millrace/base/owned.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/http/response.hpp>
#include <millrace/io/timeout.hpp>
#include <millrace/s3/detail/read_small_file.hpp>
#include <millrace/s3/detail/run_process.hpp>
#include <millrace/s3/detail/small_request.hpp>

namespace millrace::s3::detail {

/// What the sources of credentials see of the world: the files of this machine, HTTP on the awaiting loop, processes,
/// the clock. Tests put recordings in its place. Thread-safe. A template, so that only programs that use it pay for it.
template <class = void>
class surroundings {
 public:
  /// `services` is how STS and SSO are reached: proxy and certificate authorities.
  explicit surroundings(http::transport_options services)
      : services_(std::move(services)),
        seed_(static_cast<std::uint64_t>(monotonic_ns()) ^ (static_cast<std::uint64_t>(::getpid()) << 40)) {}

  file_text read_file(const std::string& path) const { return read_small_file(path); }

  task<http::response> send(http::request r, request_limits limits) const {
    http::transport_options options = services_;
    if (limits.direct) options.proxy.clear();  // whatever the variables say
    options.connect_timeout = limits.connect;
    options.first_byte_timeout = options.stall_timeout = limits.total;
    return send_within(std::move(r), make_shared_object<const http::transport_options>(std::move(options)), limits);
  }

  task<process_result> run(std::string command, duration longest, std::size_t limit) const {
    return run_process(std::move(command), longest, limit);
  }

  /// Unix seconds.
  std::int64_t now() const noexcept { return static_cast<std::int64_t>(std::time(nullptr)); }
  /// Uniform in [0, 1), differently in every process.
  double random() const noexcept { return rng(seed_.fetch_add(1)).uniform(); }

 private:
  /// An answer that drips is no answer.
  static task<http::response> send_within(http::request r, std::shared_ptr<const http::transport_options> options,
                                          request_limits limits) {
    const std::string url = http::displayed(r.url);
    try {
      task<http::response> sending = http::send(std::move(r), std::move(options), limits.answer);
      co_return co_await with_timeout(limits.connect + 2 * limits.total, std::move(sending));
    } catch (const timeout_error& e) {
      throw http::error(http::failure::timeout, e.reason(), where{url, std::nullopt, std::string()});
    }
  }

  const http::transport_options services_;
  mutable std::atomic<std::uint64_t> seed_;
};

}  // namespace millrace::s3::detail
