// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/input.hpp>
#include <millrace/testing/s3_server/detail/wire_script.hpp>
#include <millrace/testing/s3_server/fault_plan.hpp>
#include <millrace/testing/s3_server/request_log.hpp>
#include <millrace/testing/s3_server/service.hpp>
#include <millrace/testing/s3_server/statistics.hpp>

namespace millrace::s3_server::detail {

/// What the connections of a server share; all of it outlives them.
class shared_state {
 public:
  explicit shared_state(options o);

  const options settings;
  server_clock clock;
  store objects;
  service operations;
  fault_plan faults;
  request_log log;
  statistics counts;
  std::unique_ptr<tls_context> tls;
};

/// One connection from its first byte to its end. Dropping its task closes it.
class connection {
 public:
  connection(shared_state& s, stream_socket peer, std::uint64_t number)
      : state_(s), stream_(std::move(peer), s.tls.get()), input_(stream_, s.settings.max_head_size), number_(number) {
    stream_.raw().set_no_delay();
    ++state_.counts.open_connections;
  }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection() {
    if (busy_) state_.counts.request_ends();
    --state_.counts.open_connections;
  }

  /// Serves requests until one side ends the connection. A client that goes away is not an error.
  MILLRACE_COROUTINE task<void> run();

 private:
  using handshake = tls_options::handshake;

  /// False when the connection ends in place of a handshake.
  MILLRACE_COROUTINE task<bool> greet();

  /// Reads one request and answers it; false when the connection ends.
  MILLRACE_COROUTINE task<bool> serve_one(bool last);

  void begin() noexcept {
    state_.counts.request_begins();
    busy_ = true;
  }
  void end() noexcept {
    state_.counts.request_ends();
    busy_ = false;
  }

  /// Reads the body, if any; only skips it when the request is refused already. False when it was left unread.
  MILLRACE_COROUTINE task<bool> read_body(request& r, bool refused);

  reply answer(request& r, const caller& who, const std::optional<refusal>& wrong, const fault& f,
               const std::string& id);

  void finish_head(reply& a, const request& r, const std::string& id, bool last);

  /// False when the connection has ended or must end.
  MILLRACE_COROUTINE task<bool> perform(wire_script script);

  MILLRACE_COROUTINE task<void> send(const std::vector<bytes>& slices);

  /// Until the client closes its side.
  MILLRACE_COROUTINE task<void> wait_for_end();

  /// Until the client's kernel has everything, so that a reset cannot overtake data; a second at most.
  MILLRACE_COROUTINE task<void> wait_for_acknowledgement();

  shared_state& state_;
  stream stream_;
  input input_;
  const std::uint64_t number_;
  std::uint64_t requests_ = 0;
  bool busy_ = false;
};

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/connection.ipp>
#endif
