// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>

namespace bench {

/// A way to a server on this machine that takes `round_trip` nanoseconds there and back, in a process of its own. What
/// comes over a new connection is a round trip late, as the connection itself would be.
class distant {
 public:
  distant(std::uint16_t server, std::int64_t round_trip) {
    const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at = here(0);
    socklen_t length = sizeof at;
    if (::bind(listening, reinterpret_cast<sockaddr*>(&at), length) != 0 || ::listen(listening, 128) != 0 ||
        ::getsockname(listening, reinterpret_cast<sockaddr*>(&at), &length) != 0) {
      std::abort();
    }
    port = ntohs(at.sin_port);
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::signal(SIGPIPE, SIG_IGN);
      carry(listening, server, round_trip);
    }
    ::close(listening);
  }
  distant(const distant&) = delete;
  distant& operator=(const distant&) = delete;
  ~distant() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  std::uint16_t port = 0;

 private:
  struct parcel {
    std::int64_t due;
    std::string data;  // empty: the end
  };
  struct way {
    int from, to;
    std::int64_t delay, not_before;
    std::deque<parcel> on_it;
    bool ended = false;  // nothing more comes in
    bool over = false;   // nothing more goes out
  };

  static sockaddr_in here(std::uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
  }
  [[noreturn]] static void carry(int listening, std::uint16_t server, std::int64_t round_trip) {
    std::list<std::pair<way, way>> all;
    std::vector<char> buffer(std::size_t(1) << 20);
    for (;;) {
      std::vector<pollfd> watched{{listening, POLLIN, 0}};
      std::int64_t due = INT64_MAX;
      for (auto& [there, back] : all) {
        for (way* w : {&there, &back}) {
          watched.push_back({w->ended ? -1 : w->from, POLLIN, 0});
          if (!w->on_it.empty() && w->on_it.front().due < due) due = w->on_it.front().due;
        }
      }
      const std::int64_t wait = due == INT64_MAX ? 1'000'000'000 : due - millrace::monotonic_ns();
      ::poll(watched.data(), watched.size(), wait < 0 ? 0 : static_cast<int>(wait / 1'000'000 + 1));
      const std::int64_t now = millrace::monotonic_ns();
      std::size_t i = 1;
      for (auto& [there, back] : all) {
        for (way* w : {&there, &back}) {
          if (watched[i++].revents != 0) take(*w, buffer, now);
          while (!w->on_it.empty() && w->on_it.front().due <= now) give(*w);
        }
      }
      all.remove_if([](const std::pair<way, way>& c) {
        if (!c.first.over || !c.second.over) return false;
        ::close(c.first.from);
        ::close(c.first.to);
        return true;
      });
      if (watched[0].revents != 0) {
        const int client = ::accept(listening, nullptr, nullptr);
        const int other = ::socket(AF_INET, SOCK_STREAM, 0);
        const sockaddr_in to = here(server);
        if (client < 0 || ::connect(other, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) std::abort();
        const int one = 1;
        for (const int fd : {client, other}) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        const std::int64_t half = round_trip / 2;
        all.emplace_back(way{client, other, half, now + round_trip + half, {}}, way{other, client, half, 0, {}});
      }
    }
  }
  static void take(way& w, std::vector<char>& buffer, std::int64_t now) {
    const ssize_t n = ::recv(w.from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const std::int64_t due = now + w.delay < w.not_before ? w.not_before : now + w.delay;
    w.on_it.push_back({due, n > 0 ? std::string(buffer.data(), static_cast<std::size_t>(n)) : std::string()});
    w.ended = n <= 0;
  }
  static void give(way& w) {
    const std::string data = std::move(w.on_it.front().data);
    w.on_it.pop_front();
    if (data.empty()) {
      ::shutdown(w.to, SHUT_WR);
      w.over = true;
    }
    for (std::size_t sent = 0; sent < data.size();) {
      const ssize_t n = ::send(w.to, data.data() + sent, data.size() - sent, 0);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }

  pid_t child_ = -1;
};

}  // namespace bench
