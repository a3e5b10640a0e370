// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace millrace::test {

/// A blocking HTTP client that sees every byte: what a library would hide or repair stays visible. Gives up after 10 s
/// without a byte.
class raw_client {
 public:
  explicit raw_client(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;
  ~raw_client() { ::close(fd_); }

  struct answer {
    int status = 0;
    std::string head;
    std::string body;
    std::string end;  ///< "" while the connection goes on, "FIN", "RST"
    /// The value of a field that is spelt so; "" when there is none.
    std::string field(const std::string& name) const {
      const std::size_t at = head.find("\r\n" + name + ": ");
      if (at == std::string::npos) return std::string();
      const std::size_t begin = at + name.size() + 4;
      return head.substr(begin, head.find("\r\n", begin) - begin);
    }
  };

  void send(const std::string& text) {
    std::size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw std::runtime_error("cannot send");
      sent += static_cast<std::size_t>(n);
    }
  }
  void shutdown() { ::shutdown(fd_, SHUT_WR); }

  /// METHOD TARGET with more fields (each with its CR LF) and a body, and the answer to it.
  answer ask(const std::string& line, const std::string& fields = std::string(),
             const std::string& body = std::string(), bool has_body = false) {
    std::string text = line + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + fields;
    if (has_body || !body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    send(text + "\r\n" + body);
    return read(line.compare(0, 5, "HEAD ") == 0);
  }

  /// One answer: up to its Content-Length, or to the end of the connection where it has none.
  answer read(bool without_body = false) {
    answer a;
    std::size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!fill(a)) {
        a.head.swap(buffer_);
        return a;
      }
    }
    a.head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    a.status = std::atoi(a.head.c_str() + 9);
    if (without_body || a.status == 204 || a.status == 304 || a.status / 100 == 1) return a;
    const std::string length = a.field("Content-Length");
    while (length.empty() || buffer_.size() < std::strtoull(length.c_str(), nullptr, 10)) {
      if (!fill(a)) {
        a.body.swap(buffer_);
        return a;
      }
    }
    a.body = buffer_.substr(0, std::strtoull(length.c_str(), nullptr, 10));
    buffer_.erase(0, a.body.size());
    return a;
  }

  /// Everything to the end of the connection, and how it ends.
  answer read_to_end() {
    answer a;
    while (fill(a)) continue;
    a.body.swap(buffer_);
    return a;
  }

 private:
  bool fill(answer& a) {
    char piece[65536];
    // A ring that this thread has just closed may interrupt a call that has a time-out.
    ssize_t n;
    do n = ::recv(fd_, piece, sizeof piece, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != ECONNRESET) throw std::runtime_error("no answer within 10 s");
    if (n <= 0) {
      a.end = n == 0 ? "FIN" : "RST";
      return false;
    }
    buffer_.append(piece, static_cast<std::size_t>(n));
    return true;
  }

  int fd_;
  std::string buffer_;
};

}  // namespace millrace::test
