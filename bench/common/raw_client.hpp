// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace bench {

namespace mill = millrace;

/// One ranged GET.
struct range {
  std::string path;  ///< "/bucket/key"
  std::uint64_t offset = 0;
  std::size_t length = 0;

  std::string text() const {
    return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=" + std::to_string(offset) + '-' +
           std::to_string(offset + length - 1) + "\r\n\r\n";
  }
};

/// The parts of `size` bytes at `path`, `part` bytes each, appended to `all`.
inline void add_parts(std::vector<range>& all, const std::string& path, std::uint64_t size, std::size_t part) {
  for (std::uint64_t at = 0; at < size; at += part) {
    all.push_back({path, at, static_cast<std::size_t>(size - at < part ? size - at : part)});
  }
}

inline int connect_to(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) std::abort();
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

/// The least that any client does: the requests in order over epoll and kept connections, bodies received straight into
/// the slabs of a pool. `landed(bytes)` takes each body. No errors are handled: the program ends.
class raw_client {
 public:
  raw_client(std::uint16_t port, std::size_t connections)
      : connections_(connections), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (std::size_t i = 0; i < connections; ++i) {
      connections_[i].fd = connect_to(port);
      epoll_event e{};
      e.events = EPOLLIN;
      e.data.u64 = i;
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connections_[i].fd, &e);
    }
  }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;
  ~raw_client() {
    for (connection& c : connections_) ::close(c.fd);
    ::close(epoll_);
  }

  template <class Landed>
  std::uint64_t fetch(const std::vector<range>& all, mill::slab_pool pool, Landed&& landed) {
    std::size_t next = 0;
    std::size_t running = 0;
    std::uint64_t total = 0;
    const auto ask = [&](connection& c) {
      if (next == all.size()) return;
      c.wanted = all[next].length;
      c.filled = 0;
      c.head.clear();
      c.in_body = false;
      c.slab = pool.acquire();
      const std::string text = all[next++].text();
      if (::send(c.fd, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) std::abort();
      ++running;
    };
    for (connection& c : connections_) ask(c);
    epoll_event ready[64];
    while (running > 0) {
      const int n = ::epoll_wait(epoll_, ready, 64, -1);
      for (int i = 0; i < n; ++i) {
        connection& c = connections_[ready[i].data.u64];
        receive(c);
        if (!c.in_body || c.filled < c.wanted) continue;
        total += c.filled;
        landed(c.slab.share(0, c.filled));
        c.slab = mill::writable_bytes();
        --running;
        ask(c);
      }
    }
    return total;
  }

 private:
  struct connection {
    int fd = -1;
    mill::writable_bytes slab;
    std::size_t wanted = 0, filled = 0;
    bool in_body = false;
    std::string head;
  };

  static void receive(connection& c) {
    if (c.in_body) {
      const ssize_t n = ::recv(c.fd, c.slab.data() + c.filled, c.wanted - c.filled, MSG_DONTWAIT);
      if (n <= 0 && errno != EAGAIN) std::abort();
      if (n > 0) c.filled += static_cast<std::size_t>(n);
      return;
    }
    char buffer[4096];
    const ssize_t n = ::recv(c.fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n <= 0) std::abort();
    c.head.append(buffer, static_cast<std::size_t>(n));
    const std::size_t end = c.head.find("\r\n\r\n");
    if (end == std::string::npos) return;
    if (c.head.compare(0, 12, "HTTP/1.1 206") != 0) std::abort();
    c.filled = c.head.size() - end - 4;
    std::memcpy(c.slab.data(), c.head.data() + end + 4, c.filled);
    c.in_body = true;
  }

  std::vector<connection> connections_;
  int epoll_;
};

/// The same over one TLS connection: blocking SSL_read straight into the slabs.
class raw_tls_client {
 public:
  raw_tls_client(std::uint16_t port, const std::string& authorities)
      : context_(SSL_CTX_new(TLS_client_method())), fd_(connect_to(port)) {
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    if (SSL_CTX_load_verify_locations(context_, authorities.c_str(), nullptr) != 1) std::abort();
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd_);
    if (SSL_connect(ssl_) != 1) std::abort();
  }
  raw_tls_client(const raw_tls_client&) = delete;
  raw_tls_client& operator=(const raw_tls_client&) = delete;
  ~raw_tls_client() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    ::close(fd_);
  }

  const char* cipher() const { return SSL_get_cipher_name(ssl_); }

  std::uint64_t fetch(const std::vector<range>& all, mill::slab_pool pool) {
    std::uint64_t total = 0;
    for (const range& r : all) {
      const std::string text = r.text();
      if (SSL_write(ssl_, text.data(), static_cast<int>(text.size())) <= 0) std::abort();
      mill::writable_bytes slab = pool.acquire();
      std::string head;
      std::size_t end;
      while ((end = head.find("\r\n\r\n")) == std::string::npos) {
        char buffer[4096];
        const int n = SSL_read(ssl_, buffer, sizeof buffer);
        if (n <= 0) std::abort();
        head.append(buffer, static_cast<std::size_t>(n));
      }
      std::size_t filled = head.size() - end - 4;
      std::memcpy(slab.data(), head.data() + end + 4, filled);
      while (filled < r.length) {
        const int n = SSL_read(ssl_, slab.data() + filled, static_cast<int>(r.length - filled));
        if (n <= 0) std::abort();
        filled += static_cast<std::size_t>(n);
      }
      total += filled;
    }
    return total;
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  int fd_;
};

}  // namespace bench
