// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <millrace/base/clock.hpp>

/// \file
/// What the benchmarks measure with. Their server runs in a process of its own (served.hpp), so that the figures of
/// this process are the client's.

namespace bench {

inline constexpr int rounds = 7;

/// Keeps the calling thread, and those it starts later, on one core: 0 the server's, 1 the client's. Nothing happens
/// where there is only one.
inline void pin(unsigned core) {
  if (std::thread::hardware_concurrency() < 2) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}
/// Keeps the calling thread, and those it starts later, on the cores from `first` on. Nothing happens where there is
/// none.
inline void pin_from(unsigned first) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (unsigned i = first; i < std::thread::hardware_concurrency(); ++i) CPU_SET(i, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}
/// All cores again.
inline void unpin() { pin_from(0); }

/// What something cost this process, all of its threads together.
struct cost {
  double seconds = 0;
  double cpu_seconds = 0;
  double bytes = 0;
  double faults = 0;  ///< minor ones

  double gb_per_second() const { return bytes / seconds * 1e-9; }
  double cpu_per_gb() const { return cpu_seconds / bytes * 1e9; }
  double faults_per_gb() const { return faults / bytes * 1e9; }
};

/// Measures what this process spends between start() and stop().
class meter {
 public:
  void start() {
    before_ = used();
    begin_ = millrace::monotonic_ns();
  }
  cost stop(double bytes) const {
    cost c;
    c.bytes = bytes;
    c.seconds = 1e-9 * static_cast<double>(millrace::monotonic_ns() - begin_);
    const rusage after = used();
    c.cpu_seconds = cpu(after) - cpu(before_);
    c.faults = static_cast<double>(after.ru_minflt - before_.ru_minflt);
    return c;
  }

 private:
  static rusage used() {
    rusage u{};
    ::getrusage(RUSAGE_SELF, &u);
    return u;
  }
  static double cpu(const rusage& u) {
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  }

  rusage before_{};
  std::int64_t begin_ = 0;
};

/// Runs `f`, which returns the bytes that came through.
template <class F>
cost measure(F&& f) {
  meter m;
  m.start();
  const auto bytes = f();
  return m.stop(static_cast<double>(bytes));
}

/// Repeats of one figure.
class figure {
 public:
  void add(double x) { values_.push_back(x); }
  double median() const { return at(0.5); }
  double at(double share) const {
    if (values_.empty()) return 0;
    std::vector<double> sorted(values_);
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
  }
  double lowest() const { return at(0); }
  double highest() const { return at(1); }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
};

/// Median over the rounds of the quotient within the round: what the machine did meanwhile falls out of it.
inline double ratio(const figure& a, const figure& b) {
  figure quotients;
  for (std::size_t i = 0; i < a.values().size(); ++i) quotients.add(a.values()[i] / b.values()[i]);
  return quotients.median();
}

inline void goal_at_least(const char* what, double value, double goal, const char* unit = "x") {
  std::printf("  %-58s %9.3f %-3s goal >= %-8g %s\n", what, value, unit, goal, value >= goal ? "PASS" : "MISS");
}
inline void goal_at_most(const char* what, double value, double goal, const char* unit = "x") {
  std::printf("  %-58s %9.3f %-3s goal <= %-8g %s\n", what, value, unit, goal, value <= goal ? "PASS" : "MISS");
}

/// The most memory that this process has had resident, in bytes.
inline double peak_rss() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_maxrss) * 1024;
}

/// What it ran on, and how busy that was.
inline void print_machine() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::FILE* f = std::fopen("/proc/cpuinfo", "r");
  char line[256];
  std::string model = "unknown CPU";
  while (f != nullptr && std::fgets(line, sizeof line, f) != nullptr) {
    const std::string text(line);
    if (text.rfind("model name", 0) != 0) continue;
    model = text.substr(text.find(':') + 2);
    model.pop_back();
    break;
  }
  if (f != nullptr) std::fclose(f);
  double load[1] = {0};
  ::getloadavg(load, 1);
  std::printf("%s, %u cores, compiler %s; load average %.1f at the start%s\n\n", model.c_str(),
              std::thread::hardware_concurrency(), __VERSION__, load[0],
              load[0] > 1 ? ": THE MACHINE IS SHARED, trust CPU seconds more than GB/s" : "");
}

}  // namespace bench
