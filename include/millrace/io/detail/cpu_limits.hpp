// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/compiler.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Limits of the CPUs of a process.
struct cpu_limits {
  unsigned machine = 1;     ///< CPUs that are online
  unsigned affinity = 1;    ///< those in the process's affinity mask
  unsigned cpuset = 0;      ///< those of its cgroup's cpuset; 0: not known
  double quota = 0;         ///< CPU time that its cgroups allow, per time: the least along the path; 0: no limit
  unsigned node_cpus = 0;   ///< those in the affinity mask on the NUMA nodes where its threads are kept; 0: on all
  unsigned node_ranks = 1;  ///< ranks that are kept on these nodes
};

/// The cpuset and the quota of the process's cgroups, of version 1, 2 or both, from the files below `root` ("" for the
/// real ones): proc/self/cgroup, proc/self/mountinfo, and the hierarchies mounted there. A file that cannot be read
/// limits nothing.
cpu_limits cgroup_limits(const std::string& root);

/// The present limits of this process. Reads some ten small files: not for a hot path.
cpu_limits limits_of_process();

/// How many CPUs each of `ranks` processes on the machine may count on, at least one. Quota and cpuset are shared by
/// the ranks, and half a CPU of a quota counts as one. The affinity mask is not divided: launchers set one for each
/// rank. The CPUs of NUMA nodes are divided by `node_ranks`.
unsigned share_of_cpus(const cpu_limits& l, unsigned ranks) noexcept;

/// Why that share is not the machine's number of CPUs: "of 64 CPUs, the cgroup's quota allows 1.5". Empty if it is.
std::string why_share(const cpu_limits& l, unsigned ranks);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/detail/cpu_limits.ipp>
#endif
