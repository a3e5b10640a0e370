// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

#include <millrace/base/rng.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/testing/s3_server/background.hpp>

#include "bench/common/measure.hpp"

namespace bench {

namespace mill = millrace;

/// The S3 server of millrace in a child process on a core of its own, 0 unless said otherwise: CPU time, page faults
/// and memory of this process are then the client's alone. Make it before any thread is started. Anonymous reads are
/// allowed; signed requests are checked.
class served {
 public:
  /// `fill(background&)` stores the objects, in the child. `away`: how far the store is.
  template <class Fill>
  explicit served(bool tls, Fill fill, unsigned core = 0, const mill::s3_server::distance& away = {}) {
    int told[2];
    if (::pipe(told) != 0) std::abort();
    child_ = ::fork();
    if (child_ == 0) {
      ::close(told[0]);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      pin(core);
      mill::s3_server::options o;
      o.anonymous = mill::s3_server::anonymous_access::read;
      o.log_limit = 16;
      o.tls.enabled = tls;
      o.away = away;
      o.max_object_size = std::uint64_t(1) << 40;
      mill::s3_server::background server(std::move(o));
      fill(server);
      const std::string text = server.endpoint() + '\n' + server.certificate_file() + '\n';
      if (::write(told[1], text.data(), text.size()) < 0) ::_exit(1);
      ::close(told[1]);
      for (;;) ::pause();
    }
    ::close(told[1]);
    std::string text;
    char buffer[512];
    for (ssize_t n; (n = ::read(told[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
    ::close(told[0]);
    const std::size_t end = text.find('\n');
    if (end == std::string::npos) std::abort();
    endpoint = text.substr(0, end);
    certificate_file = text.substr(end + 1, text.size() - end - 2);
    port = static_cast<std::uint16_t>(std::atoi(endpoint.c_str() + endpoint.rfind(':') + 1));
  }
  served(const served&) = delete;
  served& operator=(const served&) = delete;
  ~served() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    if (!certificate_file.empty()) ::unlink(certificate_file.c_str());
  }

  mill::s3::client client() const {
    mill::s3::config_options options;
    options.endpoint = endpoint;
    mill::s3::config c(options);
    c.ca_bundle = certificate_file;
    return mill::s3::client(std::move(c), mill::s3::credentials("test-key", "test-secret"));
  }

  /// What its process has used until now.
  double cpu_seconds() const {
    clockid_t clock{};
    timespec t{};
    if (::clock_getcpuclockid(child_, &clock) != 0 || ::clock_gettime(clock, &t) != 0) std::abort();
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  std::string endpoint, certificate_file;
  std::uint16_t port = 0;

 private:
  pid_t child_ = -1;
};

/// Runs `f` in a process of its own, for the peak of its memory, and returns what it returned, a plain struct.
template <class F>
std::invoke_result_t<F&> in_child(F f) {
  std::invoke_result_t<F&> result{};
  int told[2];
  if (::pipe(told) != 0) std::abort();
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    result = f();
    if (::write(told[1], &result, sizeof result) < 0) ::_exit(1);
    ::_exit(0);
  }
  ::close(told[1]);
  if (::read(told[0], &result, sizeof result) != sizeof result) std::abort();
  ::close(told[0]);
  ::waitpid(child, nullptr, 0);
  return result;
}

/// Bytes that do not compress.
inline std::string noise(std::size_t size, std::uint64_t seed) {
  std::string text(size, '\0');
  mill::rng random(seed);
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    const std::uint64_t r = random.next();
    std::memcpy(text.data() + i, &r, 8);
  }
  for (; i < size; ++i) text[i] = static_cast<char>(random.next());
  return text;
}

}  // namespace bench
