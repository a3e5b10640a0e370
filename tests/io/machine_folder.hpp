// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <millrace/io/detail/cpu_limits.hpp>

#include "tests/support/temporary_folder.hpp"


namespace millrace::test {

/// A folder that stands for "/", with files in it as the kernel shows them.
class machine_folder {
 public:
  machine_folder() = default;
  machine_folder(const machine_folder&) = delete;
  machine_folder& operator=(const machine_folder&) = delete;
  ~machine_folder() { std::filesystem::remove_all(root()); }

  std::string root() const { return folder_.path() + "/root"; }
  machine_folder& file(const std::string& path, const std::string& text) {
    const std::filesystem::path at = root() + path;
    std::filesystem::create_directories(at.parent_path());
    std::FILE* const f = std::fopen(at.c_str(), "w");
    if (f == nullptr) throw std::runtime_error("cannot write " + at.string());
    std::fputs(text.c_str(), f);
    std::fclose(f);
    return *this;
  }
  /// A NUMA node with these CPUs, "0-3"; which nodes there are is in the file of online().
  machine_folder& node(unsigned number, const std::string& cpus) {
    return file("/sys/devices/system/node/node" + std::to_string(number) + "/cpulist", cpus + "\n");
  }
  machine_folder& online(const std::string& nodes) { return file("/sys/devices/system/node/online", nodes + "\n"); }
  /// A device on the PCI bus that is attached to this node; -1: the kernel does not know.
  machine_folder& device(const std::string& address, int node) {
    return file("/sys/bus/pci/devices/" + address + "/numa_node", std::to_string(node) + "\n");
  }

 private:
  temporary_folder folder_;
};

/// Whether this process's CPUs can stand for a machine of two nodes: there are two, and its affinity mask is not a
/// rank's part of the machine or the container.
inline bool can_play_two_nodes() {
  const detail::cpu_limits l = detail::limits_of_process();
  return l.affinity >= 2 && l.affinity >= (l.cpuset > 0 && l.cpuset < l.machine ? l.cpuset : l.machine);
}

}  // namespace millrace::test
