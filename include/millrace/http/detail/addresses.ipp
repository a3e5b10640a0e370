// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/http/detail/addresses.hpp>

namespace millrace::inline MILLRACE_ABI::http::detail {

inline constexpr const char* not_connected = "could not be connected to";

// Not by <cmath>, whose special functions are a twentieth of what the compiler takes for millrace.hpp.
inline double log(double x) noexcept { return __builtin_log(x); }
inline double exp(double x) noexcept { return __builtin_exp(x); }

MILLRACE_INLINE socket_address::socket_address(const char* ip, int port) noexcept {
  sockaddr_in four{};
  sockaddr_in6 six{};
  if (::inet_pton(AF_INET, ip, &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<std::uint16_t>(port));
    size_ = sizeof four;
    std::memcpy(bytes_, &four, sizeof four);
  } else if (::inet_pton(AF_INET6, ip, &six.sin6_addr) == 1) {
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<std::uint16_t>(port));
    size_ = sizeof six;
    std::memcpy(bytes_, &six, sizeof six);
  }
}

MILLRACE_INLINE std::string socket_address::text() const {
  char ip[INET6_ADDRSTRLEN] = "";
  if (size_ == sizeof(sockaddr_in)) {
    sockaddr_in four;
    std::memcpy(&four, bytes_, sizeof four);
    ::inet_ntop(AF_INET, &four.sin_addr, ip, sizeof ip);
    return std::string(ip) + ':' + std::to_string(ntohs(four.sin_port));
  }
  if (size_ != sizeof(sockaddr_in6)) return "an unknown address";
  sockaddr_in6 six;
  std::memcpy(&six, bytes_, sizeof six);
  ::inet_ntop(AF_INET6, &six.sin6_addr, ip, sizeof ip);
  return '[' + std::string(ip) + "]:" + std::to_string(ntohs(six.sin6_port));
}

MILLRACE_INLINE const addresses::one* addresses::find(const socket_address& a, time_point now) const noexcept {
  for (const one& each : all_) {
    if (each.address == a && now < each.until) return &each;
  }
  return nullptr;
}

MILLRACE_INLINE bool addresses::passes_over(const socket_address& a, time_point now) const noexcept {
  const std::lock_guard lock(mutex_);
  return find(a, now) != nullptr;
}

MILLRACE_INLINE bool addresses::slow(const socket_address& a, time_point now) const noexcept {
  const std::lock_guard lock(mutex_);
  const one* const known = find(a, now);
  return known != nullptr && known->slow;
}

MILLRACE_INLINE std::int64_t addresses::passed_over() const noexcept {
  const std::lock_guard lock(mutex_);
  return passed_over_;
}

MILLRACE_INLINE void addresses::needed(const socket_address& a) noexcept {
  const std::lock_guard lock(mutex_);
  for (one& each : all_) {
    if (each.address == a) each.until = time_point();
  }
}

MILLRACE_INLINE std::string addresses::pass_over(std::string_view host, const socket_address& a, time_point now,
                                                 const std::string& why, bool slow, bool tell) {
  one* place = &all_[0];
  for (one& each : all_) {
    if (each.address == a) {
      place = &each;
      break;
    }
    if (each.until < place->until) place = &each;
  }
  if (!(place->address == a)) *place = one();
  const bool begins = now >= place->until;
  place->address = a;
  place->until = millrace::detail::added(now, pause);
  place->slow = slow;
  if (begins) place->untold.clear();
  if (begins && !tell) {
    place->untold = host;
    any_untold_.store(true, std::memory_order_relaxed);
  }
  return begins && tell ? told(*place, host, now, why) : std::string();
}

MILLRACE_INLINE std::string addresses::told(one& place, std::string_view host, time_point now, const std::string& why) {
  ++passed_over_;
  constexpr duration rest = 10 * pause;
  constexpr unsigned most_lines = 16;
  if (lines_ == 0 || now - lines_since_ >= rest) {
    lines_since_ = now;
    lines_ = 0;
  }
  if (lines_ == most_lines || (place.logged != time_point() && now - place.logged < rest)) return {};
  place.logged = now;
  ++lines_;
  return "millrace: " + std::string(host) + ": its address " + place.address.text() + ' ' + why + ": passed over for " +
         std::to_string(pause / duration(1'000'000'000)) + " s, unless all others fail" +
         (lines_ == most_lines ? "; more addresses in the next ten minutes are only counted" : "");
}

MILLRACE_INLINE std::string addresses::failed(std::string_view host, const socket_address& a, time_point now,
                                              bool only_one) {
  const std::lock_guard lock(mutex_);
  return pass_over(host, a, now, not_connected, false, !only_one);
}

MILLRACE_INLINE std::string addresses::unwell(std::string_view host, const socket_address& a, time_point now,
                                              const char* what) {
  constexpr unsigned many = 4;
  const std::lock_guard lock(mutex_);
  failures* of = &failing_[0];
  for (failures& each : failing_) {
    if (each.address == a) {
      of = &each;
      break;
    }
    if (each.latest < of->latest) of = &each;
  }
  if (!(of->address == a) || now - of->latest > 2 * pause) {
    *of = failures();
    of->address = a;
    of->host = host;
  }
  of->latest = now;
  ++of->count;
  any_failing_.store(true, std::memory_order_relaxed);
  if (of->count < many || of->others < many) return {};
  const std::string why = "fails while others do not (" + std::to_string(of->count) + " times in a row, " + what + ")";
  return pass_over(host, a, now, why, true);
}

MILLRACE_INLINE void addresses::well(std::string_view host, const socket_address& a) noexcept {
  if (!any_failing_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  bool any = false;
  for (failures& each : failing_) {
    if (each.count == 0) continue;
    if (each.address == a) {
      each.count = each.others = 0;
    } else {
      any = true;
      each.others += each.host == host ? 1U : 0U;
    }
  }
  any_failing_.store(any, std::memory_order_relaxed);
}

MILLRACE_INLINE bool addresses::suspect(const socket_address& a, time_point now) const noexcept {
  const std::lock_guard lock(mutex_);
  for (const failures& each : failing_) {
    if (each.address == a) return each.count > 0 && now - each.latest < pause;
  }
  return false;
}

MILLRACE_INLINE std::string addresses::reached(std::string_view host, const socket_address& a, time_point now) {
  if (!any_untold_.load(std::memory_order_relaxed)) return {};
  const std::lock_guard lock(mutex_);
  std::string line;
  bool more = false;
  for (one& each : all_) {
    if (each.untold.empty()) continue;
    if (now >= each.until || each.address == a) {  // it is reached
      each.untold.clear();
    } else if (each.untold == host && line.empty()) {
      each.untold.clear();
      line = told(each, host, now, not_connected);
    } else {
      more = true;
    }
  }
  any_untold_.store(more, std::memory_order_relaxed);
  return line;
}

MILLRACE_INLINE addresses::server& addresses::server_of(std::string_view host, time_point now) {
  server* oldest = servers_;  // its round began first, or it has not been used
  for (server& each : servers_) {
    if (each.name == host) return each;
    if (each.began < oldest->began) oldest = &each;
  }
  oldest->name = host;
  oldest->began = now;
  oldest->count = 0;
  return *oldest;
}

MILLRACE_INLINE std::string addresses::took(std::string_view host, const socket_address& a, time_point now,
                                            duration first, duration body, std::size_t bytes) {
  constexpr std::size_t tells = 256 * KiB;  // of a body: a shorter one says nothing of the rate
  constexpr double shortest = 1e-6;
  const std::lock_guard lock(mutex_);
  server& s = server_of(host, now);
  reads* of = nullptr;
  for (reads& each : s) {
    if (each.address == a) of = &each;
  }
  if (of == nullptr) {
    if (s.count == most_addresses) return {};
    of = &s.of[s.count++];
    *of = reads();
    of->address = a;
  }
  ++of->count;
  of->first += detail::log(std::max(shortest, 1e-9 * static_cast<double>(first.count())));
  if (bytes >= tells) {
    ++of->bodies;
    of->pace += detail::log(std::max(shortest, 1e-9 * static_cast<double>(body.count())) * static_cast<double>(MiB) /
                         static_cast<double>(bytes));
  }
  return s.count < 2 || of->count % enough != 0 ? std::string() : judge(s, now);
}

MILLRACE_INLINE std::string addresses::slowness(const server& s, const reads& r) {
  constexpr double times = 4;
  /// The median of the others; 0: there are none.
  const auto others = [&](double reads::*sum, unsigned reads::*count) {
    double means[most_addresses];  // ascending
    std::size_t n = 0;
    for (const reads& each : s) {
      if (&each == &r || each.*count < enough) continue;
      const double mean = each.*sum / each.*count;
      std::size_t at = n++;
      for (; at > 0 && means[at - 1] > mean; --at) means[at] = means[at - 1];
      means[at] = mean;
    }
    return n == 0 ? 0.0 : detail::exp(means[(n - 1) / 2]);
  };
  char text[160];
  if (r.count >= enough) {
    const double own = detail::exp(r.first / r.count);
    const double theirs = others(&reads::first, &reads::count);
    if (theirs > 0 && own > times * theirs && own > theirs + 0.02) {
      std::snprintf(text, sizeof text, "is slow, %.0f ms to the first byte where others take %.1f ms", 1e3 * own,
                    1e3 * theirs);
      return text;
    }
  }
  if (r.bodies >= enough) {
    const double own = detail::exp(r.pace / r.bodies);
    const double theirs = others(&reads::pace, &reads::bodies);
    if (theirs > 0 && own > times * theirs && own > 0.005) {
      const auto rate = [](double pace) { return format_bytes(static_cast<double>(MiB) / pace); };
      return "is slow, " + rate(own) + "/s on a connection where others send " + rate(theirs) + "/s";
    }
  }
  return {};
}

MILLRACE_INLINE std::string addresses::judge(server& s, time_point now) {
  constexpr duration long_enough = pause / 6;
  constexpr unsigned most_waited = 6;  // rounds
  std::size_t count = 0;
  bool all = true;
  for (const reads& each : s) {
    const bool counts = each.count >= enough;
    count += counts ? 1 : 0;
    all = all && counts;
  }
  if (count < 2 || (!all && now - s.began < long_enough)) {
    if (now - s.began < pause) return {};
    count = 0;  // too long ago
  }
  std::string line;
  socket_address left;
  for (reads& each : s) {
    if (count == 0) each.count = 0;
    if (each.count < enough) {
      if (++each.waited == most_waited) each.count = 0;
      continue;
    }
    const std::string why = slowness(s, each);
    each.slow_rounds = why.empty() ? 0 : each.slow_rounds + 1;
    if (each.slow_rounds < 2 || left) continue;
    left = each.address;
    line = pass_over(s.name, left, now, why, true);
  }
  const std::size_t before = std::exchange(s.count, 0);
  for (std::size_t i = 0; i < before; ++i) {
    reads each = s.of[i];
    if (each.count == 0 || each.address == left) continue;
    if (each.count >= enough) {
      each.first = each.pace = 0;
      each.count = each.bodies = each.waited = 0;
    }
    s.of[s.count++] = each;
  }
  s.began = now;
  return line;
}

}  // namespace millrace::http::detail
