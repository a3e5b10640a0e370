// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/stream_socket.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

MILLRACE_INLINE stream_socket stream_socket::listen(const char* address, std::uint16_t port, int backlog) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) throw_errno(errno, "socket");
  stream_socket s(fd);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  if (::inet_pton(AF_INET, address, &name.sin_addr) != 1) throw_errno(EINVAL, "the address to listen on");
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) throw_errno(errno, "bind");
  if (::listen(fd, backlog) != 0) throw_errno(errno, "listen");
  return s;
}

MILLRACE_INLINE std::uint16_t stream_socket::port() const {
  sockaddr_in name{};
  socklen_t size = sizeof name;
  if (::getsockname(fd(), reinterpret_cast<sockaddr*>(&name), &size) != 0) throw_errno(errno, "getsockname");
  return ntohs(name.sin_port);
}

MILLRACE_INLINE void stream_socket::state::wait() {
  const unsigned wanted = events();
  if (watched() && (interest_ & wanted) == wanted) return;
  loop->watch(*this, fd, wanted | (watched() ? interest_ : 0));
  interest_ = wanted | (watched() ? interest_ : 0);
}

MILLRACE_INLINE stream_socket::operation::~operation() {
  if (place_ != this) return;
  place_ = nullptr;
  state_.dropped();
}

MILLRACE_INLINE void stream_socket::operation::await_suspend(std::coroutine_handle<> handle) {
  if (place_ != nullptr) millrace::detail::misused("two operations of one kind wait for a socket");
  node_.set(handle, promise_.stage());
  place_ = this;
  try {
    state_.wait();
  } catch (...) {
    place_ = nullptr;
    throw;
  }
}

MILLRACE_INLINE bool stream_socket::operation::over(std::ptrdiff_t result) noexcept {
  result_ = result;
  error_ = result < 0 ? errno : 0;
  return error_ != EAGAIN && error_ != EWOULDBLOCK;
}

MILLRACE_INLINE bool stream_socket::operation::step() noexcept {
  if (!attempt()) return false;
  place_ = nullptr;
  state_.loop->post(node_);
  return true;
}

MILLRACE_INLINE void stream_socket::operation::fail(int code) noexcept {
  error_ = code;
  place_ = nullptr;
  state_.loop->post(node_);
}

MILLRACE_INLINE void stream_socket::state::ready(unsigned reported) noexcept {
  const bool broken = (reported & (POLLERR | POLLHUP | POLLNVAL)) != 0;
  bool woken = false;
  if (reader != nullptr && (broken || (reported & POLLIN) != 0)) woken |= reader->step();
  if (writer != nullptr && (broken || (reported & POLLOUT) != 0)) woken |= writer->step();
  // The loop cannot watch it: operations that still wait would never end.
  const bool refused = (reported & POLLNVAL) != 0;
  if (!refused && (woken || (events() == interest_ && !broken))) return;
  if (refused || events() == 0) {
    stop();
    if (reader != nullptr) reader->fail(ENOMEM);
    if (writer != nullptr) writer->fail(ENOMEM);
    return;
  }
  try {
    interest_ = events();
    loop->watch(*this, fd, interest_);
  } catch (...) {
    stop();
    if (reader != nullptr) reader->fail(ENOMEM);
    if (writer != nullptr) writer->fail(ENOMEM);
  }
}

MILLRACE_INLINE bool stream_socket::reading::attempt() noexcept {
  std::ptrdiff_t n;
  do {
    n = ::recv(fd(), memory_.data(), memory_.size(), 0);
  } while (n < 0 && errno == EINTR);
  return over(n);
}

MILLRACE_INLINE stream_socket stream_socket::accepting::await_resume() {
  result("accepting a connection");
  const int fd = accepted_;
  accepted_ = -1;  // first: a socket that cannot be made closes it
  return stream_socket(fd);
}

MILLRACE_INLINE bool stream_socket::accepting::attempt() noexcept {
  do {
    accepted_ = ::accept4(fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  } while (accepted_ < 0 && (errno == EINTR || errno == ECONNABORTED));
  return over(accepted_);
}

MILLRACE_INLINE bool stream_socket::writing::attempt() noexcept {
  std::size_t sent = 0;
  while (!pieces_.empty() && sent < turn) {
    iovec parts[batch];
    std::size_t count = 0;
    std::size_t skipped = done_;
    for (const std::string_view piece : pieces_.first(std::min<std::size_t>(pieces_.size(), batch))) {
      parts[count].iov_base = const_cast<char*>(piece.data()) + skipped;
      parts[count].iov_len = piece.size() - skipped;
      skipped = 0;
      ++count;
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const std::ptrdiff_t n = ::sendmsg(fd(), &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return over(n);
    sent += static_cast<std::size_t>(n);
    advance(static_cast<std::size_t>(n));
  }
  if (pieces_.empty()) return over(0);
  return false;
}

MILLRACE_INLINE void stream_socket::writing::advance(std::size_t n) noexcept {
  done_ += n;
  while (!pieces_.empty() && done_ >= pieces_.front().size()) {
    done_ -= pieces_.front().size();
    pieces_ = pieces_.subspan(1);
  }
}

MILLRACE_INLINE stream_socket::awaitable<stream_socket::reading, std::span<char>> stream_socket::read_some(
    std::span<char> memory) noexcept {
  return {*this, memory};
}

MILLRACE_INLINE stream_socket::awaitable<stream_socket::accepting, int> stream_socket::accept() noexcept {
  return {*this, 0};
}

MILLRACE_INLINE stream_socket::awaitable<stream_socket::writing, std::span<const std::string_view>>
stream_socket::write_all(std::span<const std::string_view> pieces) noexcept {
  return {*this, pieces};
}

}  // namespace millrace::s3_server
