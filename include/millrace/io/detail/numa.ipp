// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/io/detail/cpu_limits.ipp>
#include <millrace/io/detail/numa.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::vector<numa_node> numa_nodes(const std::string& root, const cpu_set_t& mask) {
  std::vector<numa_node> nodes;
  cpu_set_t listed;  // each CPU counts once: with numa=fake the kernel lists all of them in every node
  CPU_ZERO(&listed);
  const std::string folder = root + "/sys/devices/system/node/";
  const auto add = [&](unsigned long number) {
    numa_node node;
    node.number = static_cast<unsigned>(number);
    bool any = false;
    for_each_range(text_of_small_file(folder + "node" + std::to_string(number) + "/cpulist"),
                   [&](unsigned long first, unsigned long last) {
                     for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) {
                       if (CPU_ISSET(cpu, &listed)) continue;
                       CPU_SET(cpu, &listed);
                       any = true;
                       if (CPU_ISSET(cpu, &mask)) CPU_SET(cpu, &node.cpus);
                     }
                   });
    if (any) nodes.push_back(node);
  };
  constexpr unsigned long most = 1024;  // of Linux
  for_each_range(text_of_small_file(folder + "online"), [&](unsigned long first, unsigned long last) {
    for (unsigned long number = first; number <= last && number < most; ++number) add(number);
  });
  return nodes;
}

MILLRACE_INLINE int numa_node_of_device(const std::string& root, const std::string& address) {
  std::string name;
  for (const char c : address) {
    if (c >= 'A' && c <= 'F') {
      name += static_cast<char>(c - 'A' + 'a');
    } else if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == ':' || c == '.') {
      name += c;
    } else {
      return -1;
    }
  }
  // A domain may come with eight digits; the kernel writes four, unless there are more.
  while (name.find(':') > 4 && name.find(':') != name.npos && name[0] == '0') name.erase(0, 1);
  const std::string text = text_of_small_file(root + "/sys/bus/pci/devices/" + name + "/numa_node");
  if (text.empty() || text[0] < '0' || text[0] > '9') return -1;
  return std::atoi(text.c_str());
}

MILLRACE_INLINE thread_place place_threads(const std::vector<numa_node>& nodes, const cpu_limits& limits,
                                           const place_wanted& wanted) {
  thread_place place;
  place.limits = limits;
  std::vector<numa_node> usable;
  const numa_node* chosen = nullptr;
  bool exists = nodes.empty() && wanted.node == 0;
  for (const numa_node& each : nodes) {
    if (static_cast<int>(each.number) == wanted.node) exists = true;
    if (CPU_COUNT(&each.cpus) == 0) continue;
    usable.push_back(each);
    if (static_cast<int>(each.number) == wanted.node) chosen = &each;
  }
  if (wanted.node >= 0 && chosen == nullptr && !(nodes.empty() && exists)) {
    throw configuration_error(
        "runtime_options::placement is NUMA node " + std::to_string(wanted.node) +
        (exists ? ", and no CPU of it is in the process's affinity mask" : ", which has no CPUs or does not exist"));
  }
  if (nodes.size() < 2 || usable.empty()) return place;

  const std::string of = " (of " + std::to_string(nodes.size()) + ")";
  const std::string device = "the device at " + wanted.device;
  std::size_t at = usable.size();  // the device's node
  for (std::size_t i = 0; i < usable.size(); ++i) {
    if (static_cast<int>(usable[i].number) == wanted.device_node) at = i;
  }
  const bool known = at < usable.size();
  std::string elsewhere;
  if (!wanted.device.empty() && !known) {
    elsewhere = wanted.device_node < 0 ? "; the node of " + device + " is not known"
                                       : "; " + device + " is on node " + std::to_string(wanted.device_node) +
                                             ", of which no CPU is in the affinity mask";
  }
  place.remark = !elsewhere.empty();

  // A mask that is not the whole container's, or machine's, is for a part of the ranks; for which is not known.
  const unsigned all = limits.cpuset > 0 ? std::min(limits.machine, limits.cpuset) : limits.machine;
  const bool own_mask = limits.affinity < all;
  const std::size_t on_machine = std::max(1u, wanted.ranks);
  const std::size_t ranks = own_mask ? (on_machine * limits.affinity + all - 1) / all : on_machine;
  const std::size_t groups = std::min(ranks, usable.size());  // of nodes that are neighbours
  place.limits.node_ranks = static_cast<unsigned>((ranks + groups - 1) / groups);
  std::vector<numa_node> here;
  std::string why;
  if (chosen != nullptr) {
    here.push_back(*chosen);
    why = ", as runtime_options::placement says";
  } else if (usable.size() == 1) {
    place.text = "on NUMA node " + std::to_string(usable[0].number) + of + ", by the affinity mask" + elsewhere;
    return place;
  } else if (const unsigned share = wanted.threads != 0 ? wanted.threads : share_of_cpus(limits, wanted.ranks);
             known && groups < usable.size() && share <= static_cast<unsigned>(CPU_COUNT(&usable[at].cpus))) {
    here.push_back(usable[at]);
    place.limits.node_ranks = 1;  // the share is already divided
  } else if (known || !own_mask) {
    const std::size_t mine =
        known ? at * groups / usable.size() : std::min<std::size_t>(wanted.local_index, ranks - 1) * groups / ranks;
    for (std::size_t i = 0; i < usable.size(); ++i) {
      if (i * groups / usable.size() == mine) here.push_back(usable[i]);
    }
  }
  if (here.empty() || here.size() == usable.size()) {
    place.text = "on any NUMA node" + of +
                 (own_mask ? " of the rank's affinity mask" : ": the rank is alone on the machine") + elsewhere;
    if (known) {
      place.text += ", and has more threads than node " + std::to_string(usable[at].number) + ", where " + device +
                    " is, has CPUs for it: runtime_options::placement keeps them there all the same";
      place.remark = true;
    }
    return place;
  }
  if (chosen == nullptr) {
    why = known ? ", where " + device + " is"
                : ", for rank " + std::to_string(wanted.local_index) + " of the " + std::to_string(on_machine) +
                      " on the machine" + elsewhere;
  }
  place.kept = true;
  place.text = here.size() == 1 ? "on NUMA node " : "on NUMA nodes ";
  for (const numa_node& each : here) {
    if (&each != &here.front()) place.text += ", ";
    place.text += std::to_string(each.number);
    CPU_OR(&place.cpus, &place.cpus, &each.cpus);
  }
  place.text += of + why;
  place.limits.node_cpus = static_cast<unsigned>(CPU_COUNT(&place.cpus));
  return place;
}

MILLRACE_INLINE thread_placer::thread_placer(bool enabled, const place_wanted& wanted, const std::string& root)
    : root_(root), limits_(limits_of_process()), wanted_(wanted) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  // Fails on a machine with more CPUs than a cpu_set_t has room for: there threads are left alone.
  if (enabled && ::sched_getaffinity(0, sizeof mask, &mask) == 0) nodes_ = numa_nodes(root, mask);
  follows_ = nodes_.size() > 1 && wanted.node < 0;
  now_ = place_threads(nodes_, limits_, wanted_);
}

MILLRACE_INLINE bool thread_placer::follow(const std::string& device, std::string& line) {
  if (!follows_) return false;
  const std::lock_guard lock(mutex_);
  place_wanted wanted = wanted_;
  wanted.device = device;
  wanted.device_node = numa_node_of_device(root_, device);
  const thread_place there = place_threads(nodes_, limits_, wanted);
  if (!wanted_.device.empty()) {  // another one before it
    if (wanted.device_node >= 0 && there.kept && !CPU_EQUAL(&there.cpus, &now_.cpus)) {
      line = "millrace: loops and pool threads stay " + now_.text + "; the device at " + device + " is on node " +
             std::to_string(wanted.device_node);
    }
    return false;
  }
  const bool moves = there.kept && !CPU_EQUAL(&there.cpus, &now_.cpus);
  wanted_ = wanted;
  now_ = there;
  if (moves || now_.remark) line = "millrace: loops and pool threads are " + now_.text;
  return moves;
}

}  // namespace millrace::detail
