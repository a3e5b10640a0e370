// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "tests/support/catch.hpp"

namespace millrace::test {

/// A server that answers only on request of the test.
class patient_server {
 public:
  patient_server() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener_, 8) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
  }
  ~patient_server() {
    if (peer_ >= 0) ::close(peer_);
    ::close(listener_);
  }
  /// Answers the first request, which must have been started. `text` must fit into the buffers of the sockets.
  void answer(std::string_view text) {
    peer_ = ::accept(listener_, nullptr, nullptr);
    REQUIRE(peer_ >= 0);
    REQUIRE(::send(peer_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }
  /// More of the answer; false where the client has gone.
  bool more(std::string_view text) {
    return ::send(peer_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }

  std::string url;

 private:
  const int listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int peer_ = -1;
};

}  // namespace millrace::test
