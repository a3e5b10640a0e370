// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/io/detail/cpu_limits.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Empty if the file cannot be read. Files of /proc have no size: read to the end.
inline std::string text_of_small_file(const std::string& path) {
  std::string text;
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return text;
  char part[4096];
  while (const std::size_t n = std::fread(part, 1, sizeof part, file)) text.append(part, n);
  std::fclose(file);
  return text;
}

/// "a,b,,c" at ',': a, b, "" and c; an empty field at the end is left out.
inline std::vector<std::string_view> fields_of(std::string_view text, char between) {
  std::vector<std::string_view> fields;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(between), text.size());
    fields.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return fields;
}

/// Calls f(first, last) for each range of "0-3,8".
template <class Function>
void for_each_range(std::string_view list, Function f) {
  for (const std::string_view range : fields_of(list.substr(0, list.find('\n')), ',')) {
    const std::size_t dash = range.find('-');
    const unsigned long first = std::strtoul(std::string(range).c_str(), nullptr, 10);
    const unsigned long last =
        dash == range.npos ? first : std::strtoul(std::string(range.substr(dash + 1)).c_str(), nullptr, 10);
    if (!range.empty() && last >= first) f(first, last);
  }
}

/// How many CPUs "0-3,8" names.
inline unsigned count_of_cpu_list(std::string_view list) {
  unsigned long count = 0;
  for_each_range(list, [&count](unsigned long first, unsigned long last) { count += last - first + 1; });
  return static_cast<unsigned>(count);
}

/// CPUs of "150000 100000": quota and period in microseconds. 0 for "max", -1 and text that is not a quota.
inline double quota_of(const std::string& text) {
  char* rest = nullptr;
  const long long quota = std::strtoll(text.c_str(), &rest, 10);
  const long long period = std::strtoll(rest, nullptr, 10);
  return quota > 0 && period > 0 ? static_cast<double>(quota) / static_cast<double>(period) : 0;
}

/// A mount point as mountinfo writes it: white space and backslashes are "\040".
inline std::string unescaped_mount_point(std::string_view text) {
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      path += static_cast<char>(std::strtoul(std::string(text.substr(i + 1, 3)).c_str(), nullptr, 8));
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

/// A hierarchy of cgroups that is mounted, and where the process is in it.
struct cgroup_place {
  bool version_2;
  bool cpu, cpuset;    // the controllers of version 1; both for version 2
  std::string top;     // the path that it is mounted on
  std::string inside;  // the process's path below it: empty or "/a/b"
};

/// Calls f(place) for each hierarchy that the process is in.
template <class Function>
void for_each_cgroup(const std::string& root, Function f) {
  const std::string cgroups = text_of_small_file(root + "/proc/self/cgroup");
  const std::string mounts = text_of_small_file(root + "/proc/self/mountinfo");
  const auto has = [](std::string_view list, std::string_view name) {
    for (const std::string_view each : fields_of(list, ',')) {
      if (each == name) return true;
    }
    return false;
  };
  std::vector<std::string_view> of_cgroups;  // a machine may have ten thousand others
  for (std::string_view rest = mounts; !rest.empty();) {
    const std::string_view mount = rest.substr(0, rest.find('\n'));
    if (mount.find(" - cgroup") != mount.npos) of_cgroups.push_back(mount);
    rest.remove_prefix(std::min(mount.size() + 1, rest.size()));
  }
  for (const std::string_view line : fields_of(cgroups, '\n')) {  // 4:cpu,cpuacct:/path
    const std::size_t list = line.find(':');
    const std::size_t path_at = list == line.npos ? list : line.find(':', list + 1);
    if (path_at == line.npos) continue;
    const std::string_view controllers = line.substr(list + 1, path_at - list - 1);
    const std::string_view path = line.substr(path_at + 1);
    for (const std::string_view mount : of_cgroups) {
      // 31 23 0:28 /root /mount/point rw,relatime - cgroup cgroup rw,cpu
      const std::size_t dash = mount.find(" - ");
      if (dash == mount.npos) continue;
      const std::vector<std::string_view> where = fields_of(mount.substr(0, dash), ' ');
      const std::vector<std::string_view> what = fields_of(mount.substr(dash + 3), ' ');
      if (where.size() < 5 || what.size() < 3) continue;
      const bool version_2 = controllers.empty() && what[0] == "cgroup2";
      const bool cpu = version_2 || (what[0] == "cgroup" && has(controllers, "cpu") && has(what[2], "cpu"));
      const bool cpuset = version_2 || (what[0] == "cgroup" && has(controllers, "cpuset") && has(what[2], "cpuset"));
      if (!cpu && !cpuset) continue;
      std::string_view inside = path;
      if (where[3] != "/") {  // a part of the hierarchy is mounted
        if (inside.substr(0, where[3].size()) != where[3]) continue;
        inside.remove_prefix(where[3].size());
        if (!inside.empty() && inside.front() != '/') continue;
      }
      if (inside == "/" || inside.substr(0, 3) == "/..") inside = {};
      f(cgroup_place{version_2, cpu, cpuset, root + unescaped_mount_point(where[4]), std::string(inside)});
    }
  }
}

MILLRACE_INLINE cpu_limits cgroup_limits(const std::string& root) {
  cpu_limits l;
  for_each_cgroup(root, [&l](cgroup_place each) {
    bool cpuset = each.cpuset;  // the nearest group that has one: each contains those below it
    for (;;) {
      const std::string group = each.top + each.inside + "/";
      if (each.cpu) {
        const double quota = quota_of(each.version_2 ? text_of_small_file(group + "cpu.max")
                                                     : text_of_small_file(group + "cpu.cfs_quota_us") + " " +
                                                           text_of_small_file(group + "cpu.cfs_period_us"));
        if (quota > 0) l.quota = l.quota > 0 ? std::min(l.quota, quota) : quota;
      }
      if (cpuset) {
        const char* const name = each.version_2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus";
        unsigned count = count_of_cpu_list(text_of_small_file(group + name));
        if (count == 0) count = count_of_cpu_list(text_of_small_file(group + "cpuset.cpus"));
        if (count > 0) {
          l.cpuset = l.cpuset > 0 ? std::min(l.cpuset, count) : count;
          cpuset = false;
        }
      }
      if (each.inside.empty()) break;
      each.inside.erase(each.inside.rfind('/'));
    }
  });
  return l;
}

MILLRACE_INLINE cpu_limits limits_of_process() {
  cpu_limits l = cgroup_limits("");
  const long all = ::sysconf(_SC_NPROCESSORS_ONLN);
  l.machine = all < 1 ? 1 : static_cast<unsigned>(all);
  cpu_set_t set;
  l.affinity = ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set))
                                                             : l.machine;  // more CPUs than a cpu_set_t has room for
  return l;
}

MILLRACE_INLINE unsigned share_of_cpus(const cpu_limits& l, unsigned ranks) noexcept {
  unsigned all = l.machine;
  if (l.cpuset > 0) all = std::min(all, l.cpuset);
  if (l.quota > 0 && l.quota < all) {
    const auto whole = static_cast<unsigned>(l.quota);
    all = whole < l.quota ? whole + 1 : whole;
  }
  unsigned share = std::min(l.affinity, all / std::max(1u, ranks));
  if (l.node_cpus > 0) share = std::min(share, l.node_cpus / std::max(1u, l.node_ranks));
  return std::max(1u, share);
}

MILLRACE_INLINE std::string why_share(const cpu_limits& l, unsigned ranks) {
  if (share_of_cpus(l, ranks) == l.machine) return {};
  std::string why = "of " + std::to_string(l.machine) + (l.machine == 1 ? " CPU" : " CPUs");
  if (l.affinity < l.machine) why += ", " + std::to_string(l.affinity) + " in the affinity mask";
  if (l.cpuset > 0 && l.cpuset < l.machine) why += ", " + std::to_string(l.cpuset) + " in the cgroup's cpuset";
  if (l.quota > 0 && l.quota < l.machine) {
    char quota[32];
    std::snprintf(quota, sizeof quota, "%.3g", l.quota);
    why += std::string(", ") + quota + " by the cgroup's quota";
  }
  if (l.node_cpus > 0) why += ", " + std::to_string(l.node_cpus) + " on this rank's NUMA nodes";
  if (ranks > 1) why += ", shared by " + std::to_string(ranks) + " ranks";
  return why;
}

}  // namespace millrace::detail
