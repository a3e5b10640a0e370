// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>

#include "bench/common/measure.hpp"

/// \file
/// Things that do the same work, measured in turns: what the machine does meanwhile hits all of them.

namespace bench {

/// One of them, and the repeats of its figures.
class contender {
 public:
  /// `run` does the work of one round; it returns the bytes that came through, or what it has measured itself.
  template <class F>
  contender(std::string who, F run) : name(std::move(who)) {
    if constexpr (std::is_same_v<std::invoke_result_t<F&>, cost>) {
      run_ = std::move(run);
    } else {
      run_ = [run = std::move(run)]() mutable { return measure(run); };
    }
  }

  void run(bool counts) {
    last = run_();
    if (!counts) return;
    gb_per_second.add(last.gb_per_second());
    cpu_per_gb.add(last.cpu_per_gb());
    faults_per_gb.add(last.faults_per_gb());
  }
  void print() const {
    std::printf("%-34s %7.2f (%5.2f - %5.2f) %9.4f (%6.4f - %6.4f) %10.0f\n", name.c_str(), gb_per_second.median(),
                gb_per_second.lowest(), gb_per_second.highest(), cpu_per_gb.median(), cpu_per_gb.lowest(),
                cpu_per_gb.highest(), faults_per_gb.median());
  }

  std::string name;
  figure gb_per_second, cpu_per_gb, faults_per_gb;
  cost last;  ///< of the latest round

 private:
  std::function<cost()> run_;
};

/// Runs all of them in every round, one after the other: `warm_up` rounds that do not count, then those that do.
inline void take_turns(std::initializer_list<contender*> all, int counted = rounds, int warm_up = 1) {
  for (int round = -warm_up; round < counted; ++round) {
    for (contender* c : all) c->run(round >= 0);
  }
}

inline void print_table(std::initializer_list<const contender*> all) {
  std::printf("%-34s %7s %15s %9s %17s %10s\n", "", "GB/s", "(low - high)", "CPU s/GB", "(low - high)", "faults/GB");
  for (const contender* c : all) c->print();
}

}  // namespace bench
