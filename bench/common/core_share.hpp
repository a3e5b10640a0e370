// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace bench {

/// Gives each loop thread of this process `percent` of a core, no less and no more, by the kernel's deadline scheduling
/// (sched(7)). Loops that are held to little take nothing from each other nor from the server: on two cores they show
/// what loops with a core each do. Returns how many threads it was; 0 where the kernel refuses one (it wants
/// CAP_SYS_NICE, and threads that are not pinned).
inline unsigned hold_loops(unsigned percent) {
  struct attributes {  // of sched_setattr(2), which not every C library declares
    std::uint32_t size = sizeof(attributes);
    std::uint32_t policy = 6;  // SCHED_DEADLINE
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 0, deadline = 10'000'000, period = 10'000'000;  // nanoseconds
  } share;
  share.runtime = share.period / 100 * percent;
  unsigned held = 0;
  ::DIR* const threads = ::opendir("/proc/self/task");
  while (const ::dirent* const thread = threads == nullptr ? nullptr : ::readdir(threads)) {
    std::ifstream file(std::string("/proc/self/task/") + thread->d_name + "/comm");
    std::string name;
    if (!std::getline(file, name) || name.rfind("millrace-loop", 0) != 0) continue;
    if (::syscall(SYS_sched_setattr, std::atoi(thread->d_name), &share, 0) != 0) {
      held = 0;
      break;
    }
    ++held;
  }
  if (threads != nullptr) ::closedir(threads);
  return held;
}

}  // namespace bench
