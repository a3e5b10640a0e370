// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <mutex>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/io/detail/cpu_limits.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A NUMA node of the machine that has CPUs. (Memory of GPUs, and memory alone, are nodes without.)
struct numa_node {
  unsigned number = 0;
  cpu_set_t cpus{};  ///< those of them in an affinity mask; none if the process may use none
};

/// The nodes that have CPUs, each with those in `mask`, from the files in `root`/sys/devices/system/node (`root` is ""
/// for the real ones). Empty if these do not exist.
std::vector<numa_node> numa_nodes(const std::string& root, const cpu_set_t& mask);

/// The number of the node to which a device on the PCI bus is attached, by its address, "0000:3b:00.0", in upper or
/// lower case. -1 if the kernel does not know, as in many virtual machines, or if there is no such device.
int numa_node_of_device(const std::string& root, const std::string& address);

/// The inputs of place_threads().
struct place_wanted {
  int node = -1;             ///< a number that the program has chosen; -1: automatic
  unsigned ranks = 1;        ///< on the machine
  unsigned local_index = 0;  ///< of this one among them
  unsigned threads = 0;      ///< of its pool, if the program has chosen that; 0: its share of the CPUs
  std::string device = {};   ///< the PCI address of its GPU; empty: not known
  int device_node = -1;      ///< that device's node; -1: not known
};

/// The place of a rank's threads.
struct thread_place {
  bool kept = false;       ///< threads are kept on `cpus`; if not, their affinity is left alone
  cpu_set_t cpus{};        ///< within the mask that the nodes were read with
  cpu_limits limits = {};  ///< with the CPUs of the nodes that were chosen
  std::string text = {};   ///< "on NUMA node 1 (of 2), where the device at 0000:3b:00.0 is"; empty: there is one node
  bool remark = false;     ///< the text says that a device is elsewhere
};

/// Chooses nodes for the threads of a rank, whose affinity mask `nodes` were read with (limits.affinity).
///
/// Automatic: the ranks that share the mask divide its nodes into groups of neighbours. A rank has the group of its
/// device's node, or that node alone if its threads fit there (a container with a quota, say); without a device that is
/// known, the group of its number among the ranks. One group of all nodes is kept nowhere, and so is a rank without a
/// known device whose launcher has set a mask. Throws configuration_error for a chosen node of which the mask has no
/// CPU.
thread_place place_threads(const std::vector<numa_node>& nodes, const cpu_limits& limits, const place_wanted& wanted);

/// The place of a runtime's threads, which changes once, when it learns of its device. Any thread.
class thread_placer {
 public:
  /// For threads that the calling thread makes, whose mask they have. Without `enabled` they are left alone.
  thread_placer(bool enabled, const place_wanted& wanted, const std::string& root);

  thread_place now() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  /// True if follow() can change anything: the place is automatic, and there are several nodes.
  bool follows() const noexcept { return follows_; }
  /// The runtime uses this device. Returns true if threads are to be moved to now(). `line`: a line for the log.
  bool follow(const std::string& device, std::string& line);

 private:
  const std::string root_;
  cpu_limits limits_;
  std::vector<numa_node> nodes_;
  bool follows_ = false;
  mutable std::mutex mutex_;
  place_wanted wanted_;
  thread_place now_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/detail/numa.ipp>
#endif
