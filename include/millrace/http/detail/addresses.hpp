// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>

namespace millrace::inline MILLRACE_ABI::http::detail {

/// The bytes of an IPv4 or IPv6 address and port; empty: none.
class socket_address {
 public:
  socket_address() noexcept = default;
  socket_address(const sockaddr& of, std::size_t size) noexcept
      : size_(size <= sizeof bytes_ ? static_cast<unsigned char>(size) : 0) {
    std::memcpy(bytes_, &of, size_);
  }
  /// Parses numbers, as libcurl writes them; empty if these are not.
  socket_address(const char* ip, int port) noexcept;
  explicit operator bool() const noexcept { return size_ != 0; }
  friend bool operator==(const socket_address& a, const socket_address& b) noexcept {
    return a.size_ == b.size_ && std::memcmp(a.bytes_, b.bytes_, a.size_) == 0;
  }
  /// "192.0.2.1:443", "[2001:db8::1]:443".
  std::string text() const;

 private:
  unsigned char size_ = 0;
  unsigned char bytes_[28] = {};
};

/// Addresses that connections pass over while others of the same name may do: those that could not be connected to,
/// those whose requests fail, and those whose requests are much slower than those of the others; for a minute, the
/// latest sixteen. Shared by the loops of a runtime. Any thread.
///
/// The requests of an address fail if four in a row did (a status of 5xx, a broken connection, an answer that is not
/// valid, none in time) and four of other addresses of its server have succeeded since the first of them.
///
/// An address is slow if in two rounds, one after the other, its ranged reads have waited four times as long for their
/// first byte as those of the others (the median address), and 20 ms longer; or if a connection to it has sent bytes at
/// a quarter of their rate, and less than 200 MB/s. A round has eight reads and more of each address that counts; means
/// are those of logarithms, which one slow read does not move far.
class addresses {
 public:
  addresses() = default;
  addresses(const addresses&) = delete;
  addresses& operator=(const addresses&) = delete;

  /// `a`, of the server `host`, could not be connected to. `only_one`: the name is not seen to have another, so it is
  /// counted and logged by reached() only. Returns the line to log, empty if there is none: an address has one in ten
  /// minutes, all together have sixteen.
  std::string failed(std::string_view host, const socket_address& a, time_point now, bool only_one = false);
  /// A request to `host` is sent to `a`: so it has an address beside those that failed() took for its only one.
  /// Returns as failed() does, for one of them.
  std::string reached(std::string_view host, const socket_address& a, time_point now);
  /// A ranged read of `bytes` bytes from `a` has ended: the first byte came `first` after the request, the last one
  /// `body` after that. Returns as failed() does.
  std::string took(std::string_view host, const socket_address& a, time_point now, duration first, duration body,
                   std::size_t bytes);
  /// A request to `a` has failed there, with `what` ("status 500"). Returns as failed() does.
  std::string unwell(std::string_view host, const socket_address& a, time_point now, const char* what);
  /// A request to `a` has succeeded.
  void well(std::string_view host, const socket_address& a) noexcept;
  /// True if the latest request to `a` has failed: one that is tried again goes to another address.
  bool suspect(const socket_address& a, time_point now) const noexcept;
  /// All other addresses fail: this one is not passed over any more.
  void needed(const socket_address& a) noexcept;

  bool passes_over(const socket_address& a, time_point now) const noexcept;
  /// True if it is passed over because it is slow or its requests fail: connections that are open are not used any
  /// more, either.
  bool slow(const socket_address& a, time_point now) const noexcept;
  /// How often an address began to be passed over.
  std::int64_t passed_over() const noexcept;

  static constexpr duration pause = duration(60'000'000'000);

 private:
  struct one {
    socket_address address;
    time_point until{};
    time_point logged{};
    std::string untold = {};  // the server of which it seemed to be the only one
    bool slow = false;
  };
  /// Requests to one address that have failed, one after the other.
  struct failures {
    socket_address address;
    std::string host = {};
    time_point latest{};
    unsigned count = 0;   // 0: none
    unsigned others = 0;  // requests to other addresses of the server that have succeeded since the first
  };
  /// Times of the reads from one address, in a round: sums of logarithms.
  struct reads {
    socket_address address;
    double first = 0, pace = 0;     // seconds; seconds for a MiB
    unsigned count = 0, bodies = 0;  // of both
    unsigned slow_rounds = 0;        // one after the other, before this one
    unsigned waited = 0;             // rounds in which it had too few reads
  };
  static constexpr std::size_t most_addresses = 16;  // of one server
  static constexpr std::size_t most_servers = 16;
  static constexpr unsigned enough = 8;  // reads

  struct server {
    reads* begin() noexcept { return of; }
    reads* end() noexcept { return of + count; }
    const reads* begin() const noexcept { return of; }
    const reads* end() const noexcept { return of + count; }

    std::string name;
    time_point began{};
    std::size_t count = 0;
    reads of[most_addresses];
  };

  const one* find(const socket_address& a, time_point now) const noexcept;
  std::string pass_over(std::string_view host, const socket_address& a, time_point now, const std::string& why,
                        bool slow, bool tell = true);
  std::string told(one& place, std::string_view host, time_point now, const std::string& why);
  server& server_of(std::string_view host, time_point now);
  /// Ends the round, if it has come to enough reads. At most one address begins to be passed over.
  std::string judge(server& s, time_point now);
  /// Why it is slow, beside the others of the round; empty if it is not.
  static std::string slowness(const server& s, const reads& r);

  mutable std::mutex mutex_;
  one all_[16];
  std::int64_t passed_over_ = 0;
  time_point lines_since_{};
  unsigned lines_ = 0;                 // since then
  std::atomic<bool> any_untold_ = false;  // may be true when there is none
  failures failing_[16];
  std::atomic<bool> any_failing_ = false;  // may be true when there is none
  server servers_[most_servers];
};

}  // namespace millrace::http::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/detail/addresses.ipp>
#endif
