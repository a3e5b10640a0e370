// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/sockios.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/testing/s3_server/detail/requests.hpp>
#include <millrace/testing/s3_server/fault.hpp>
#include <millrace/testing/s3_server/message.hpp>
#include <millrace/testing/s3_server/options.hpp>
#include <millrace/testing/s3_server/statistics.hpp>
#include <millrace/testing/s3_server/stream_socket.hpp>
#include <millrace/testing/store_limits.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

struct tls_free {
  void operator()(SSL_CTX* p) const noexcept { SSL_CTX_free(p); }
  void operator()(SSL* p) const noexcept { SSL_free(p); }
  void operator()(EVP_PKEY* p) const noexcept { EVP_PKEY_free(p); }
  void operator()(X509* p) const noexcept { X509_free(p); }
  void operator()(X509_EXTENSION* p) const noexcept { X509_EXTENSION_free(p); }
  void operator()(FILE* p) const noexcept { std::fclose(p); }
};
template <class T>
using tls_handle = std::unique_ptr<T, tls_free>;

/// A fresh key with a certificate, and the authority that has signed it, whose PEM lies in a file for clients to trust,
/// removed with the context unless its path was given. Two certificates, since rustls refuses an authority as a server.
class tls_context {
 public:
  explicit tls_context(const tls_options& o);
  tls_context(const tls_context&) = delete;
  tls_context& operator=(const tls_context&) = delete;
  ~tls_context() {
    if (temporary_) ::unlink(path_.c_str());
  }

  SSL_CTX* get() const noexcept { return context_.get(); }
  /// The path of the authority's certificate.
  const std::string& path() const noexcept { return path_; }

 private:
  [[noreturn]] static void failed() { throw configuration_error("OpenSSL cannot make a key and a certificate"); }

  /// The server's certificate, of `key`; with no authority, the authority's, of `signer`.
  static tls_handle<X509> sign(const tls_options& o, EVP_PKEY& key, EVP_PKEY& signer, X509* authority);

  void write(X509& certificate);

  tls_handle<SSL_CTX> context_;
  std::string path_;
  bool temporary_ = false;
};

/// The server's side of TLS over a socket, through memory: OpenSSL never sees the descriptor. Socket and context must
/// outlive it.
class tls_session {
 public:
  tls_session(stream_socket& s, tls_context& context);

  /// Like socket::read_some(); makes the handshake on the way. A clean end and a bare FIN are both 0.
  MILLRACE_COROUTINE task<std::size_t> read_some(std::span<char> memory);

  /// Like socket::write_all().
  MILLRACE_COROUTINE task<void> write_all(std::span<const std::string_view> pieces);

 private:
  MILLRACE_COROUTINE task<void> flush();

  stream_socket& socket_;
  tls_handle<SSL> ssl_;
  BIO* in_ = nullptr;  // both belong to ssl_
  BIO* out_ = nullptr;
  std::vector<char> memory_;
};

/// A connection, plain or under TLS.
class stream {
 public:
  /// `context` null: plain. It must outlive the stream.
  stream(stream_socket s, tls_context* context) : socket_(std::move(s)) {
    if (context != nullptr) tls_ = std::make_unique<tls_session>(socket_, *context);
  }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  /// 0 at the end.
  MILLRACE_COROUTINE task<std::size_t> read_some(std::span<char> memory);
  MILLRACE_COROUTINE task<void> write_all(std::span<const std::string_view> pieces);
  /// Below TLS.
  stream_socket& raw() noexcept { return socket_; }

 private:
  stream_socket socket_;
  std::unique_ptr<tls_session> tls_;
};

/// The receiving side of a connection: heads, and bodies of either framing. Bytes read ahead wait for the next call.
class input {
 public:
  explicit input(stream& from) : stream_(from), memory_(64 * KiB) {}

  /// A head without its empty line (each field with its CR LF); empty at the end of the connection. Throws refusal when
  /// it is too long.
  MILLRACE_COROUTINE task<std::string> head();

  /// A body of `size` bytes in memory of its own.
  MILLRACE_COROUTINE task<bytes> body(std::uint64_t size);

  /// Reads a body and forgets it.
  MILLRACE_COROUTINE task<void> skip(std::uint64_t size);

  /// A body in chunked coding, of at most `limit` bytes; its trailing fields go to `r`.
  MILLRACE_COROUTINE task<bytes> chunked_body(request& r, std::uint64_t limit);

 private:
  [[noreturn]] static void throw_cut() {
    throw io_error(std::errc(ECONNRESET), "the client closed the connection in a request");
  }

  std::string_view view() const noexcept { return {memory_.data() + begin_, end_ - begin_}; }

  MILLRACE_COROUTINE task<bool> fill();

  std::size_t take(char* to, std::size_t limit) noexcept;

  MILLRACE_COROUTINE task<std::string> line();

  stream& stream_;
  std::vector<char> memory_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Applies the changes of a fault to an answer before it is sent: fields and content.
void alter_reply(reply& a, const fault& f);

/// The answer that a fault puts in the place of the real one; called for refuse, error_in_success and page only.
reply substitute(const fault& f, const std::string& resource, const std::string& request_id);

/// One thing to do with the connection.
class step {
 public:
  enum class kind : std::uint8_t {
    send,   ///< the slices
    pause,  ///< nothing for a while
    stall,  ///< nothing until the client closes
    reset,  ///< RST, once the client has all bytes sent
    close,  ///< FIN
  };
  explicit step(kind k) : what(k) {}
  explicit step(duration d) : what(kind::pause), length(d) {}
  explicit step(std::vector<bytes> data) : what(kind::send), slices(std::move(data)) {}

  kind what;
  duration length{0};
  std::vector<bytes> slices;
};

using wire_script = std::vector<step>;

std::uint64_t total(const std::vector<bytes>& slices) noexcept;

/// `slices` in chunked coding (RFC 9112, 7.1), chunks of 64 KiB; the last one is left out when `cut`.
std::vector<bytes> in_chunks(std::vector<bytes> slices, bool cut);

/// The steps on the connection that give the answer `a` with the fault `f`: pure, so that it can be tested without a
/// socket. The script ends in close if the connection cannot go on.
wire_script make_script(reply a, fault f);

/// State that the connections of a server share; all of it outlives them.
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
  rng latencies{1};           // of the loop that serves
  time_point link_free_at{};  // likewise: when the link has sent its bytes
  std::map<std::string, testing::request_bucket> prefixes;  // likewise
};

/// True if the prefix of `r` has a token left for it, as options::away says; takes it.
bool takes_token(shared_state& s, const request& r, time_point now);

/// From a request to the first byte of its answer, as options::away says: drawn anew for each.
duration latency(shared_state& s);

/// One connection from its first byte to its end. Dropping its task closes it.
class connection {
 public:
  connection(shared_state& s, stream_socket peer, std::uint64_t number)
      : state_(s), stream_(std::move(peer), s.tls.get()), input_(stream_), number_(number) {
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

  MILLRACE_COROUTINE task<void> send(std::vector<bytes> slices);

  /// When a piece of `size` bytes may be sent, by the rates of the connection and of the link.
  time_point due(std::uint64_t size, time_point now);

  /// Until the client closes its side.
  MILLRACE_COROUTINE task<void> wait_for_end();

  /// Until the client's kernel has everything, so that a reset cannot overtake data; a second at most.
  MILLRACE_COROUTINE task<void> wait_for_acknowledgement();

  shared_state& state_;
  stream stream_;
  input input_;
  const std::uint64_t number_;
  std::uint64_t requests_ = 0;
  time_point free_at_{};  // when the bytes sent have left, at the rate of the connection
  bool busy_ = false;
};

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/connection.ipp>
#endif
