// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace millrace::test {

/// What a scripted server does with one request, byte for byte.
struct scripted_answer {
  enum class then { keep, fin, reset, stall };
  std::string text;
  then after = then::keep;
};

/// A server on a free loopback port that answers request n (over all connections, in order of arrival) with answer n,
/// and repeats the last one. It understands nothing: it reads to the empty line that ends a head and sends its script.
/// One connection at a time is served; a stalled one is held open until the server ends.
class scripted_server {
 public:
  explicit scripted_server(std::vector<scripted_answer> answers) : scripted_server(std::move(answers), AF_INET) {}
  /// `family` AF_INET6: at ::1.
  scripted_server(std::vector<scripted_answer> answers, int family) : answers_(std::move(answers)) {
    listener_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 address{};
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    if (family == AF_INET) {
      four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      address.sin6_addr = in6addr_loopback;
    }
    address.sin6_family = static_cast<sa_family_t>(family);
    socklen_t size = family == AF_INET ? sizeof four : sizeof address;
    if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener_, 64) != 0 || ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("no loopback socket");
    }
    port_ = ntohs(address.sin6_port);  // at the same place in both
    if (::pipe(stop_) != 0) throw std::runtime_error("no pipe");
    thread_ = std::thread([this] { serve(); });
  }
  /// Each answer is what `answer` makes of the head of its request; it is called on the server's thread.
  explicit scripted_server(std::function<scripted_answer(const std::string&)> answer)
      : scripted_server(std::vector<scripted_answer>()) {
    std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }
  ~scripted_server() {
    static_cast<void>(!::write(stop_[1], "x", 1));
    thread_.join();
    for (int fd : held_) ::close(fd);
    ::close(listener_);
    ::close(stop_[0]);
    ::close(stop_[1]);
  }

  std::string url(const std::string& path = "/object") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::uint16_t port() const { return port_; }
  int connections() const { return connections_; }
  /// The heads of the requests so far.
  std::vector<std::string> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  bool readable(int fd) {
    pollfd p[2] = {{fd, POLLIN, 0}, {stop_[0], POLLIN, 0}};
    ::poll(p, 2, -1);
    return p[1].revents == 0;
  }
  void serve() {
    while (readable(listener_)) {
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) continue;
      ++connections_;
      if (!converse(fd)) return;
    }
  }
  bool converse(int fd) {
    std::string in;
    for (;;) {
      while (in.find("\r\n\r\n") == std::string::npos) {
        if (!readable(fd)) {
          ::close(fd);
          return false;
        }
        char buffer[4096];
        const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
        if (n <= 0) {
          ::close(fd);
          return true;
        }
        in.append(buffer, static_cast<std::size_t>(n));
      }
      const std::size_t end = in.find("\r\n\r\n") + 4;
      scripted_answer a;
      {
        std::lock_guard lock(mutex_);
        requests_.push_back(in.substr(0, end));
        a = answer_ ? answer_(requests_.back()) : answers_[std::min(requests_.size(), answers_.size()) - 1];
      }
      in.erase(0, end);
      ::send(fd, a.text.data(), a.text.size(), MSG_NOSIGNAL);
      switch (a.after) {
        case scripted_answer::then::keep:
          break;
        case scripted_answer::then::stall:
          held_.push_back(fd);
          return true;
        case scripted_answer::then::reset: {
          const linger hard{1, 0};
          ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
          [[fallthrough]];
        }
        case scripted_answer::then::fin:
          ::close(fd);
          return true;
      }
    }
  }

  std::vector<scripted_answer> answers_;
  std::function<scripted_answer(const std::string&)> answer_;
  int listener_ = -1;
  int stop_[2] = {-1, -1};
  std::uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::vector<int> held_;
  std::thread thread_;
};

}  // namespace millrace::test
