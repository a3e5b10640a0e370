// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/detail/numa.hpp>

#include <sched.h>

#include <string>
#include <vector>

#include <millrace/base/error.hpp>

#include "tests/io/machine_folder.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

using detail::cpu_limits;
using detail::numa_node;
using detail::numa_node_of_device;
using detail::numa_nodes;
using detail::place_threads;
using detail::place_wanted;
using detail::share_of_cpus;
using detail::thread_place;

using Catch::Matchers::Contains;

cpu_set_t cpus(unsigned first, unsigned last) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (unsigned i = first; i <= last; ++i) CPU_SET(i, &set);
  return set;
}

/// "0,1,5"
std::string shown(const cpu_set_t& set) {
  std::string text;
  for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) text += (text.empty() ? "" : ",") + std::to_string(i);
  }
  return text;
}

const char gpu[] = "0000:3b:00.0";

/// `nodes` nodes of `each` CPUs, of which the process may use those of `mask`.
std::vector<numa_node> machine(unsigned nodes, unsigned each, const cpu_set_t& mask) {
  machine_folder m;
  m.online("0-" + std::to_string(nodes - 1));
  for (unsigned i = 0; i < nodes; ++i) {
    m.node(i, std::to_string(i * each) + "-" + std::to_string(i * each + each - 1));
  }
  return numa_nodes(m.root(), mask);
}
std::vector<numa_node> machine(unsigned nodes, unsigned each) {
  return machine(nodes, each, cpus(0, nodes * each - 1));
}

place_wanted on_gpu(int node, unsigned ranks, unsigned local_index = 0) {
  place_wanted wanted;
  wanted.ranks = ranks;
  wanted.local_index = local_index;
  wanted.device = gpu;
  wanted.device_node = node;
  return wanted;
}
place_wanted of_rank(unsigned local_index, unsigned ranks) {
  place_wanted wanted;
  wanted.ranks = ranks;
  wanted.local_index = local_index;
  return wanted;
}

}  // namespace

TEST_CASE("the nodes that have CPUs, with those of the mask") {
  machine_folder m;
  CHECK(numa_nodes(m.root(), cpus(0, 7)).empty());
  m.online("0-1,8,255").node(0, "0-3,8-11").node(1, "4-7").node(8, "12").node(255, "");  // 255: the memory of a GPU
  const std::vector<numa_node> nodes = numa_nodes(m.root(), cpus(2, 9));
  REQUIRE(nodes.size() == 3);
  CHECK(nodes[0].number == 0);
  CHECK(shown(nodes[0].cpus) == "2,3,8,9");
  CHECK(shown(nodes[1].cpus) == "4,5,6,7");
  CHECK(nodes[2].number == 8);
  CHECK(shown(nodes[2].cpus).empty());
  m.node(1, "0-11").node(8, "0-12");  // as if the kernel had made nodes up
  REQUIRE(numa_nodes(m.root(), cpus(0, 15)).size() == 3);
  CHECK(shown(numa_nodes(m.root(), cpus(0, 15))[1].cpus) == "4,5,6,7");
  CHECK(shown(numa_nodes(m.root(), cpus(0, 15))[2].cpus) == "12");
  m.online("0-4000000000").node(0, "0-4000000000");  // nothing is read beyond what there can be
  CHECK(numa_nodes(m.root(), cpus(0, 7)).size() == 1);
  for (const char* nonsense : {"", "x", "-", ",", "7-3"}) {
    m.online(nonsense);
    CHECK(numa_nodes(m.root(), cpus(0, 7)).size() <= 1);
  }
}

TEST_CASE("the node of a device, by the address that CUDA or others write") {
  machine_folder m;
  m.device("0000:3b:00.0", 1).device("0000:5e:00.0", -1).device("10000:01:00.0", 3);
  CHECK(numa_node_of_device(m.root(), "0000:3b:00.0") == 1);
  CHECK(numa_node_of_device(m.root(), "0000:3B:00.0") == 1);
  CHECK(numa_node_of_device(m.root(), "00000000:3B:00.0") == 1);
  CHECK(numa_node_of_device(m.root(), "10000:01:00.0") == 3);
  CHECK(numa_node_of_device(m.root(), "00010000:01:00.0") == 3);
  CHECK(numa_node_of_device(m.root(), "0000:5e:00.0") == -1);
  CHECK(numa_node_of_device(m.root(), "0000:00:00.0") == -1);
  for (const char* nonsense : {"", "0", ":", "../../../etc", "0000:3b:00.0/../0000:3b:00.0", "0000:3b:00.0 "}) {
    CHECK(numa_node_of_device(m.root(), nonsense) == -1);
  }
}

TEST_CASE("one node: nothing is done") {
  const cpu_limits all = {.machine = 4, .affinity = 4};
  for (const int node : {-1, 0}) {
    place_wanted wanted = on_gpu(0, 4, 3);
    wanted.node = node;
    const thread_place place = place_threads(machine(1, 4), all, wanted);
    CHECK_FALSE(place.kept);
    CHECK(place.text.empty());
    CHECK(share_of_cpus(place.limits, 2) == 2);
    CHECK_FALSE(place_threads({}, all, wanted).kept);
  }
  place_wanted wanted;
  wanted.node = 1;
  CHECK_THROWS_AS(place_threads(machine(1, 4), all, wanted), configuration_error);
  CHECK_THROWS_AS(place_threads({}, all, wanted), configuration_error);
}

TEST_CASE("ranks that share a machine of two nodes are on the node of their GPU, and divide its CPUs") {
  const cpu_limits all = {.machine = 8, .affinity = 8};
  for (const int node : {0, 1}) {
    for (const unsigned local_index : {0u, 1u}) {  // whatever their numbers are
      const thread_place place = place_threads(machine(2, 4), all, on_gpu(node, 4, local_index));
      CHECK(place.kept);
      CHECK_FALSE(place.remark);
      CHECK(shown(place.cpus) == (node == 0 ? "0,1,2,3" : "4,5,6,7"));
      CHECK(share_of_cpus(place.limits, 4) == 2);
      CHECK(place.text == "on NUMA node " + std::to_string(node) + " (of 2), where the device at 0000:3b:00.0 is");
    }
  }
  CHECK(share_of_cpus(place_threads(machine(2, 4), all, on_gpu(1, 2)).limits, 2) == 4);
  CHECK(share_of_cpus(place_threads(machine(2, 4), all, on_gpu(1, 3)).limits, 3) == 2);
  CHECK(share_of_cpus(place_threads(machine(2, 4), all, on_gpu(1, 100)).limits, 100) == 1);
  const cpu_limits more = {.machine = 16, .affinity = 16};
  CHECK(share_of_cpus(more, 5) == 3);
  CHECK(share_of_cpus(place_threads(machine(2, 8), more, on_gpu(1, 5)).limits, 5) == 2);  // three on one node
}

TEST_CASE("without a device that is known, the ranks divide the nodes by their numbers") {
  const cpu_limits all = {.machine = 8, .affinity = 8};
  std::string where;
  for (unsigned i = 0; i < 4; ++i) {
    const thread_place place = place_threads(machine(2, 4), all, of_rank(i, 4));
    CHECK(place.kept);
    CHECK(share_of_cpus(place.limits, 4) == 2);
    where += shown(place.cpus) + " ";
  }
  CHECK(where == "0,1,2,3 0,1,2,3 4,5,6,7 4,5,6,7 ");
  CHECK(place_threads(machine(2, 4), all, of_rank(3, 4)).text ==
        "on NUMA node 1 (of 2), for rank 3 of the 4 on the machine");
  CHECK(shown(place_threads(machine(2, 4), all, of_rank(9, 4)).cpus) == "4,5,6,7");  // a launcher that counts oddly
  const thread_place unknown = place_threads(machine(2, 4), all, on_gpu(-1, 4, 3));
  CHECK(shown(unknown.cpus) == "4,5,6,7");
  CHECK(unknown.remark);
  CHECK_THAT(unknown.text, Contains("; the node of the device at 0000:3b:00.0 is not known"));
}

TEST_CASE("fewer ranks than nodes: each has several, neighbours, so that no CPU is left out") {
  const cpu_limits all = {.machine = 16, .affinity = 16};
  const auto nodes = machine(4, 4);
  CHECK(shown(place_threads(nodes, all, on_gpu(3, 2)).cpus) == "8,9,10,11,12,13,14,15");
  CHECK(place_threads(nodes, all, on_gpu(2, 2)).text ==
        "on NUMA nodes 2, 3 (of 4), where the device at 0000:3b:00.0 is");
  CHECK(share_of_cpus(place_threads(nodes, all, on_gpu(2, 2)).limits, 2) == 8);
  CHECK(shown(place_threads(nodes, all, of_rank(0, 2)).cpus) == "0,1,2,3,4,5,6,7");
  std::string where;
  for (unsigned i = 0; i < 3; ++i) where += shown(place_threads(nodes, all, of_rank(i, 3)).cpus) + " ";
  CHECK(where == "0,1,2,3,4,5,6,7 8,9,10,11 12,13,14,15 ");
}

TEST_CASE("a rank that is alone keeps all CPUs, or is near its GPU if its threads fit there") {
  cpu_limits l = {.machine = 64, .affinity = 64};
  const auto nodes = machine(2, 32);
  const thread_place alone = place_threads(nodes, l, of_rank(0, 1));
  CHECK_FALSE(alone.kept);
  CHECK_FALSE(alone.remark);
  CHECK(alone.text == "on any NUMA node (of 2): the rank is alone on the machine");
  CHECK(share_of_cpus(alone.limits, 1) == 64);

  const thread_place large = place_threads(nodes, l, on_gpu(1, 1));
  CHECK_FALSE(large.kept);
  CHECK(large.remark);
  CHECK(large.text ==
        "on any NUMA node (of 2): the rank is alone on the machine, and has more threads than node 1, where the device "
        "at 0000:3b:00.0 is, has CPUs for it: runtime_options::placement keeps them there all the same");
  CHECK(share_of_cpus(large.limits, 1) == 64);

  place_wanted few = on_gpu(1, 1);
  few.threads = 16;
  CHECK(shown(place_threads(nodes, l, few).cpus) == shown(cpus(32, 63)));

  l.quota = 2;  // a container with 2 of 64 CPUs
  CHECK(share_of_cpus(place_threads(nodes, l, of_rank(0, 1)).limits, 1) == 2);
  const thread_place container = place_threads(nodes, l, on_gpu(1, 1));
  CHECK(container.kept);
  CHECK(shown(container.cpus) == shown(cpus(32, 63)));
  CHECK(share_of_cpus(container.limits, 1) == 2);
}

TEST_CASE("a cpuset of one node: the threads stay there, and a GPU elsewhere is remarked") {
  const cpu_limits l = {.machine = 8, .affinity = 4, .cpuset = 4};
  const auto nodes = machine(2, 4, cpus(0, 3));
  const thread_place place = place_threads(nodes, l, on_gpu(1, 2));
  CHECK_FALSE(place.kept);
  CHECK(place.remark);
  CHECK(place.text ==
        "on NUMA node 0 (of 2), by the affinity mask; the device at 0000:3b:00.0 is on node 1, of which no CPU is in "
        "the affinity mask");
  CHECK(share_of_cpus(place.limits, 2) == 2);
  CHECK_FALSE(place_threads(nodes, l, on_gpu(0, 2)).remark);
  place_wanted wanted;
  wanted.node = 1;
  CHECK_THROWS_WITH(place_threads(nodes, l, wanted),
                    "runtime_options::placement is NUMA node 1, and no CPU of it is in the process's affinity mask");
}

TEST_CASE("a cpuset across both nodes: never outside of it") {
  const cpu_limits l = {.machine = 8, .affinity = 4, .cpuset = 4};
  const auto nodes = machine(2, 4, cpus(2, 5));
  const thread_place place = place_threads(nodes, l, on_gpu(1, 2));
  CHECK(place.kept);
  CHECK(shown(place.cpus) == "4,5");
  CHECK(share_of_cpus(place.limits, 2) == 2);
  CHECK(shown(place_threads(nodes, l, of_rank(0, 2)).cpus) == "2,3");
}

TEST_CASE("a mask that the launcher has set for the rank is not divided among all of them") {
  // Eight nodes of eight CPUs and four ranks, each with the CPUs of two nodes.
  const cpu_limits l = {.machine = 64, .affinity = 16};
  const auto nodes = machine(8, 8, cpus(16, 31));
  CHECK_FALSE(place_threads(nodes, l, of_rank(1, 4)).kept);
  CHECK(place_threads(nodes, l, of_rank(1, 4)).text == "on any NUMA node (of 8) of the rank's affinity mask");
  CHECK_FALSE(place_threads(nodes, l, on_gpu(2, 4, 1)).kept);
  CHECK(share_of_cpus(place_threads(nodes, l, on_gpu(2, 4, 1)).limits, 4) == 16);
  // Eight ranks, four of them in each mask of four nodes.
  const cpu_limits half = {.machine = 64, .affinity = 32};
  const thread_place place = place_threads(machine(8, 8, cpus(32, 63)), half, on_gpu(5, 8, 1));
  CHECK(shown(place.cpus) == shown(cpus(40, 47)));
  CHECK(share_of_cpus(place.limits, 8) == 8);
}

TEST_CASE("a node that the program has chosen") {
  const cpu_limits all = {.machine = 8, .affinity = 8};
  place_wanted wanted = on_gpu(0, 1);
  wanted.node = 1;
  const thread_place place = place_threads(machine(2, 4), all, wanted);
  CHECK(place.kept);
  CHECK(shown(place.cpus) == "4,5,6,7");
  CHECK(place.text == "on NUMA node 1 (of 2), as runtime_options::placement says");
  CHECK(share_of_cpus(place.limits, 1) == 4);
  wanted.node = 2;
  CHECK_THROWS_WITH(place_threads(machine(2, 4), all, wanted),
                    "runtime_options::placement is NUMA node 2, which has no CPUs or does not exist");
}

TEST_CASE("the first device decides, another one on other nodes is a line") {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  REQUIRE(::sched_getaffinity(0, sizeof mine, &mine) == 0);
  if (!can_play_two_nodes()) return;
  unsigned first = 0;
  while (!CPU_ISSET(first, &mine)) ++first;
  machine_folder m;  // the first CPU of the mask is a node, the others are another one
  m.online("0-1").node(0, "0-" + std::to_string(first)).node(1, std::to_string(first + 1) + "-1023");
  m.device("0000:3b:00.0", 1).device("0000:3c:00.0", 0).device("0000:3d:00.0", 1);
  detail::thread_placer placer(true, of_rank(0, 2), m.root());
  CHECK(placer.follows());
  CHECK(shown(placer.now().cpus) == std::to_string(first));
  std::string line;
  CHECK(placer.follow("0000:3B:00.0", line));
  CHECK(line == "millrace: loops and pool threads are on NUMA node 1 (of 2), where the device at 0000:3B:00.0 is");
  const thread_place moved = placer.now();
  CHECK(CPU_COUNT(&moved.cpus) == CPU_COUNT(&mine) - 1);
  CHECK_FALSE(CPU_ISSET(first, &moved.cpus));
  line.clear();
  CHECK_FALSE(placer.follow("0000:3B:00.0", line));
  CHECK_FALSE(placer.follow("0000:3d:00.0", line));
  CHECK_FALSE(placer.follow("0000:77:00.0", line));
  CHECK(line.empty());
  CHECK_FALSE(placer.follow("0000:3c:00.0", line));
  CHECK(line ==
        "millrace: loops and pool threads stay on NUMA node 1 (of 2), where the device at 0000:3B:00.0 is; the device "
        "at 0000:3c:00.0 is on node 0");

  detail::thread_placer off(false, of_rank(0, 2), m.root());
  CHECK_FALSE(off.follows());
  CHECK_FALSE(off.now().kept);
  CHECK(off.now().text.empty());
}
