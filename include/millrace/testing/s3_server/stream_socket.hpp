// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/loop/event_loop.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

/// A non-blocking stream socket of the test server, whose operations are awaited on an event loop.
///
///     stream_socket listener = stream_socket::listen("127.0.0.1", 0);
///     stream_socket peer = co_await listener.accept();
///     std::size_t n = co_await peer.read_some(memory);           // 0: the peer has ended its side
///     co_await peer.write_all(pieces);
///
/// Concurrency: at most one read_some() or accept() and one write_all() are under way at a time. The socket belongs to
/// the loop of the coroutine that first waits on it and must be destroyed before that loop, on its thread. The system
/// call is made at once and the kernel is asked to report readiness only when the call would block; it is then repeated
/// by the loop, without resuming the coroutine, until it is done. Dropping an operation ends it: no memory of it is
/// touched afterwards; bytes that write_all() has passed to the kernel are sent, bytes that a read had just taken are
/// lost. Errors: io_error with the errno value.
class stream_socket {
  class state;

 public:
  stream_socket() noexcept = default;
  /// Takes over a stream socket and makes it non-blocking.
  explicit stream_socket(int fd) : state_(std::make_unique<state>(fd)) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) throw_errno(errno, "fcntl");
  }

  /// A listening IPv4 socket; port 0 lets the kernel choose. Connections use the cubic congestion control if it
  /// exists: a default of bbr paces loopback traffic and moves the sender's work to the receiver's core.
  static stream_socket listen(const char* address, std::uint16_t port, int backlog = 1024);

  explicit operator bool() const noexcept { return state_ != nullptr; }
  int fd() const noexcept { return state_ == nullptr ? -1 : state_->fd; }

  /// The local port of an IPv4 socket.
  std::uint16_t port() const;

  /// Small writes go out at once.
  void set_no_delay() noexcept {
    const int on = 1;
    ::setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  /// Ends our side: the peer reads the end of the stream after the bytes written.
  void shutdown_write() noexcept { ::shutdown(fd(), SHUT_WR); }
  /// Closing becomes a reset of the connection; bytes that the peer has not acknowledged are dropped.
  void reset_on_close() noexcept {
    const linger now{1, 0};
    ::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

  class operation;
  class reading;
  class accepting;
  class writing;
  template <class Awaiter, class Argument>
  class awaitable;

  /// Awaitable for at least one byte into `memory`, or 0 at the end of the stream: std::size_t.
  awaitable<reading, std::span<char>> read_some(std::span<char> memory) noexcept;
  /// Awaitable for the next connection: stream_socket. Connections that died in the queue are passed over; running out
  /// of descriptors is an io_error (EMFILE, ENFILE) after which the connection still waits.
  awaitable<accepting, int> accept() noexcept;
  /// Awaitable for all of `pieces` to be with the kernel. The list and the memory must stay until then. A peer that has
  /// gone is io_error (EPIPE, ECONNRESET), never a signal.
  awaitable<writing, std::span<const std::string_view>> write_all(std::span<const std::string_view> pieces) noexcept;

 private:
  [[noreturn]] static void throw_errno(int code, const char* what) {
    throw io_error::of(code, std::string(what) + " failed");
  }

  /// The watch: the descriptor and the operations that wait for it. Interest is given up lazily, when the kernel
  /// reports something that no operation waits for: a coroutine that reads in a loop does not change the watch.
  class state final : public fd_watch {
   public:
    explicit state(int descriptor) noexcept : fd(descriptor) {}
    ~state() override {
      stop();
      ::close(fd);
    }
    void bind(executor& ex) {
      if (loop == nullptr) loop = &event_loop::of(ex);
      if (loop != &ex) {
        millrace::detail::misused("a socket was awaited on two loops: from its first wait on it belongs to one");
      }
    }
    void wait();
    void stop() noexcept {
      if (watched()) loop->unwatch(*this);
      interest_ = 0;
    }
    void dropped() noexcept {
      if (reader == nullptr && writer == nullptr) stop();
    }
    MILLRACE_INLINE void ready(unsigned reported) noexcept override;

    const int fd;
    event_loop* loop = nullptr;
    operation* reader = nullptr;
    operation* writer = nullptr;

   private:
    unsigned events() const noexcept { return (reader ? unsigned(POLLIN) : 0u) | (writer ? unsigned(POLLOUT) : 0u); }
    unsigned interest_ = 0;
  };

  std::unique_ptr<state> state_;
};

/// One system call that waits for its descriptor. attempt() makes it and says whether it is over.
class stream_socket::operation {
 public:
  operation(state& s, operation*& place, promise_base& promise) : state_(s), place_(place), promise_(promise) {
    s.bind(promise.get_executor());
  }
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;
  MILLRACE_INLINE virtual ~operation();

  bool await_ready() noexcept { return attempt(); }
  void await_suspend(std::coroutine_handle<> handle);

 protected:
  static state& state_of(const stream_socket& s) {
    if (s.state_ == nullptr) {
      millrace::detail::misused("a socket was used that is empty: moved from, or never opened");
    }
    return *s.state_;
  }
  virtual bool attempt() noexcept = 0;
  int fd() const noexcept { return state_.fd; }
  /// Takes the result of the call: true when it is over, false when it would block.
  bool over(std::ptrdiff_t result) noexcept;
  std::ptrdiff_t result(const char* what) const {
    if (error_ != 0) throw_errno(error_, what);
    return result_;
  }

 private:
  friend class stream_socket::state;
  bool step() noexcept;
  void fail(int code) noexcept;

  state& state_;
  operation*& place_;
  promise_base& promise_;
  ready_node node_;
  std::ptrdiff_t result_ = 0;
  int error_ = 0;
};

class stream_socket::reading final : public operation {
 public:
  reading(stream_socket& s, std::span<char> memory, promise_base& promise)
      : operation(state_of(s), state_of(s).reader, promise), memory_(memory) {}
  std::size_t await_resume() const { return static_cast<std::size_t>(result("reading from a socket")); }

 private:
  MILLRACE_INLINE bool attempt() noexcept override;
  std::span<char> memory_;
};

class stream_socket::accepting final : public operation {
 public:
  accepting(stream_socket& s, int, promise_base& promise) : operation(state_of(s), state_of(s).reader, promise) {}
  ~accepting() override {
    if (accepted_ >= 0) ::close(accepted_);
  }
  stream_socket await_resume();

 private:
  MILLRACE_INLINE bool attempt() noexcept override;
  int accepted_ = -1;
};

class stream_socket::writing final : public operation {
 public:
  writing(stream_socket& s, std::span<const std::string_view> pieces, promise_base& promise)
      : operation(state_of(s), state_of(s).writer, promise), pieces_(pieces) {}
  void await_resume() const { result("writing to a socket"); }

 private:
  static constexpr int batch = 64;                            // pieces per call
  static constexpr std::size_t turn = std::size_t(16) << 20;  // bytes before other sockets get their turn

  MILLRACE_INLINE bool attempt() noexcept override;
  void advance(std::size_t n) noexcept;

  std::span<const std::string_view> pieces_;
  std::size_t done_ = 0;  // of the first piece
};

template <class Awaiter, class Argument>
class [[nodiscard("a socket operation does nothing until it is awaited")]] stream_socket::awaitable {
 public:
  awaitable(stream_socket & s, Argument argument) noexcept : socket_(&s), argument_(argument) {}
  Awaiter awaited_by(promise_base & promise) const { return Awaiter(*socket_, argument_, promise); }

 private:
  stream_socket* socket_;
  Argument argument_;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/stream_socket.ipp>
#endif
