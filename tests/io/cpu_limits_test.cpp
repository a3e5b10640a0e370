// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/detail/cpu_limits.hpp>

#include <catch2/catch.hpp>

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/io/machine_folder.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

using detail::cgroup_limits;
using detail::cpu_limits;
using detail::share_of_cpus;
using detail::why_share;

class machine : public machine_folder {
 public:
  machine& file(const std::string& path, const std::string& text) {
    machine_folder::file(path, text);
    return *this;
  }
  cpu_limits limits() const { return cgroup_limits(root()); }
};

const char version_2[] = "25 1 0:22 / / rw - ext4 /dev/sda1 rw\n30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
const char version_1[] =
    "32 31 0:29 /docker/a /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:31 /docker/a /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 /docker/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";

}  // namespace

TEST_CASE("a machine without cgroups, or with files that say nothing, limits nothing") {
  machine m;
  const auto unlimited = [&] {
    const cpu_limits l = m.limits();
    return l.quota == 0 && l.cpuset == 0;
  };
  CHECK(unlimited());
  CHECK(m.file("/proc/self/cgroup", "0::/\n").limits().quota == 0);
  CHECK(m.file("/proc/self/mountinfo", version_2).limits().quota == 0);
  for (const char* nonsense : {"", "\n", "max 100000\n", "100000", "x y", "-1 100000", "100000 0", "0 0"}) {
    INFO(nonsense);
    m.file("/sys/fs/cgroup/cpu.max", nonsense).file("/sys/fs/cgroup/cpuset.cpus.effective", "\n");
    CHECK(unlimited());
  }
  m.file("/sys/fs/cgroup/cpu.max", "100000 100000");
  for (const char* nonsense : {"", "\n", ":", "0:", "0::", "::::\n:\n", "0::/\n - \n"}) {
    m.file("/proc/self/mountinfo", nonsense);
    CHECK(unlimited());
  }
  for (const char* nonsense : {"", "0", "0:", "x\n", "1:cpu", "7:memory:/\n"}) {
    m.file("/proc/self/mountinfo", version_2).file("/proc/self/cgroup", nonsense);
    CHECK(unlimited());
  }
}

TEST_CASE("version 2: the least quota along the path, and the nearest cpuset") {
  machine m;
  m.file("/proc/self/cgroup", "0::/pods/one/main\n").file("/proc/self/mountinfo", version_2);
  m.file("/sys/fs/cgroup/pods/cpu.max", "400000 100000\n").file("/sys/fs/cgroup/pods/one/main/cpu.max", "max 100000\n");
  CHECK(m.limits().quota == 4);
  m.file("/sys/fs/cgroup/pods/one/cpu.max", "150000 100000\n");
  CHECK(m.limits().quota == 1.5);
  m.file("/sys/fs/cgroup/other/cpu.max", "1000 100000\n");
  CHECK(m.limits().quota == 1.5);
  m.file("/sys/fs/cgroup/cpuset.cpus.effective", "0-63\n");
  CHECK(m.limits().cpuset == 64);
  m.file("/sys/fs/cgroup/pods/cpuset.cpus.effective", "0-3,8,10-11\n");
  CHECK(m.limits().cpuset == 7);
}

TEST_CASE("many mounts that are no cgroups are looked at once, whatever number of groups a process is in") {
  machine m;
  std::string mounts;
  for (int i = 0; i < 4000; ++i)
    mounts += std::to_string(100 + i) + " 25 0:40 / /pods/" + std::to_string(i) +
              " rw,relatime shared:1 - overlay overlay rw,lowerdir=/a,upperdir=/b\n";
  m.file("/proc/self/mountinfo", mounts + version_1);
  m.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  m.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  const std::string mine = "4:cpu,cpuacct:/docker/a\n";
  std::string many;
  for (int i = 0; i < 16; ++i) many += std::to_string(5 + i) + ":other" + std::to_string(i) + ":/docker/a\n";
  const auto takes = [&](const std::string& groups) {
    m.file("/proc/self/cgroup", groups);
    std::int64_t least = INT64_MAX;
    for (int i = 0; i < 5; ++i) {
      ::timespec begun{}, ended{};
      ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
      CHECK(m.limits().quota == 1.5);
      ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
      const std::int64_t ns =
          (ended.tv_sec - begun.tv_sec) * std::int64_t(1'000'000'000) + ended.tv_nsec - begun.tv_nsec;
      least = std::min(least, ns);
    }
    return least;
  };
  CHECK(takes(mine + many) < 5 * takes(mine));
}

TEST_CASE("version 2 in a container: its own group is the root that it sees") {
  machine m;
  m.file("/proc/self/cgroup", "0::/\n").file("/proc/self/mountinfo", version_2);
  m.file("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(m.limits().quota == 2);
  m.file("/proc/self/cgroup", "0::/../sibling\n");  // it was moved out of what it sees
  CHECK(m.limits().quota == 2);
}

TEST_CASE("version 1: quota and period of the mount that has the controller") {
  machine m;
  m.file("/proc/self/cgroup", "5:memory:/docker/a\n4:cpuacct,cpu:/docker/a\n3:cpuset:/docker/a/b\n");
  m.file("/proc/self/mountinfo", version_1);
  m.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  m.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK(m.limits().quota == 0);
  m.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
  CHECK(m.limits().quota == 2.5);
  m.file("/sys/fs/cgroup/cpuset/cpuset.cpus", "0-7\n").file("/sys/fs/cgroup/cpuset/b/cpuset.cpus", "4-5\n");
  CHECK(m.limits().cpuset == 2);
  m.file("/sys/fs/cgroup/cpuset/b/cpuset.effective_cpus", "4\n");
  CHECK(m.limits().cpuset == 1);
}

TEST_CASE("a mount of another part of the hierarchy is not the process's") {
  machine m;
  m.file("/proc/self/cgroup", "4:cpu,cpuacct:/docker/ab\n").file("/proc/self/mountinfo", version_1);
  m.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000");
  m.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  CHECK(m.limits().quota == 0);
}

TEST_CASE("both versions at once: version 1 has the controllers") {
  machine m;
  m.file("/proc/self/cgroup", "2:cpu:/a\n0::/a\n");
  m.file("/proc/self/mountinfo",
         "33 31 0:30 / /cg\\040v1/cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 "
         "cgroup2 rw\n");
  m.file("/cg v1/cpu/a/cpu.cfs_quota_us", "300000").file("/cg v1/cpu/a/cpu.cfs_period_us", "100000");
  CHECK(m.limits().quota == 3);
  m.file("/sys/fs/cgroup/unified/a/cpu.max", "50000 100000");
  CHECK(m.limits().quota == 0.5);
}

TEST_CASE("the share is the least of mask, cpuset and quota, the last two divided by the ranks") {
  CHECK(share_of_cpus({.machine = 64, .affinity = 64}, 1) == 64);
  CHECK(share_of_cpus({.machine = 64, .affinity = 64}, 8) == 8);
  CHECK(share_of_cpus({.machine = 64, .affinity = 64}, 0) == 64);
  CHECK(share_of_cpus({.machine = 64, .affinity = 2, .cpuset = 2}, 1) == 2);
  CHECK(share_of_cpus({.machine = 64, .affinity = 64, .cpuset = 0, .quota = 1.5}, 1) == 2);
  CHECK(share_of_cpus({.machine = 64, .affinity = 64, .cpuset = 0, .quota = 0.1}, 1) == 1);
  CHECK(share_of_cpus({.machine = 2, .affinity = 2, .cpuset = 0, .quota = 1e12}, 1) == 2);
  CHECK(share_of_cpus({.machine = 64, .affinity = 64, .cpuset = 0, .quota = 16}, 4) == 4);
  CHECK(share_of_cpus({.machine = 64, .affinity = 16, .cpuset = 16}, 4) == 4);  // all ranks in one container
  CHECK(share_of_cpus({.machine = 64, .affinity = 16, .cpuset = 64}, 4) == 16);  // the launcher bound each
  CHECK(share_of_cpus({.machine = 4, .affinity = 4}, 100) == 1);
}

TEST_CASE("one sentence says why the share is not the machine's CPUs") {
  CHECK(why_share({.machine = 64, .affinity = 64, .cpuset = 64, .quota = 64}, 1).empty());
  CHECK(why_share({.machine = 64, .affinity = 2, .cpuset = 2, .quota = 1.5}, 4) ==
        "of 64 CPUs, 2 in the affinity mask, 2 in the cgroup's cpuset, 1.5 by the cgroup's quota, shared by 4 ranks");
}

TEST_CASE("this process has at least one CPU") {
  const cpu_limits l = detail::limits_of_process();
  CHECK(l.machine >= 1);
  CHECK(share_of_cpus(l, 1) >= 1);
  CHECK(share_of_cpus(l, 1) <= l.affinity);
}
