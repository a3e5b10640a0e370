// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/runtime.hpp>

#include <sched.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>

#include "tests/io/machine_folder.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

using Catch::Matchers::Contains;

/// Of the calling thread.
cpu_set_t mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  static_cast<void>(::sched_getaffinity(0, sizeof set, &set));
  return set;
}

void add_line(std::vector<std::string>& lines, const log_record& r) { lines.emplace_back(r.text); }

struct row {
  int id;
};
void collate(const row& r, sample_writer& out) { out.write("id", r.id); }

/// A host_device that is attached to the PCI bus.
class attached_device : public host_device {
 public:
  explicit attached_device(std::string address) : address_(std::move(address)) {}
  std::string pci_address() const { return address_; }
  friend bool operator==(const attached_device&, const attached_device&) noexcept = default;

 private:
  std::string address_;
};

const char first_gpu[] = "0000:3b:00.0";  // of node 0
const char other_gpu[] = "0000:86:00.0";  // of node 1

/// A machine of two nodes: the first CPU that this process may use, and all others.
class two_nodes {
 public:
  two_nodes() : all_(mask()) {
    unsigned first = 0;
    while (!CPU_ISSET(first, &all_)) ++first;
    folder_.online("0-1").node(0, "0-" + std::to_string(first)).node(1, std::to_string(first + 1) + "-1023");
    folder_.device(first_gpu, 0).device(other_gpu, 1);
    CPU_ZERO(&node_0_);
    CPU_SET(first, &node_0_);
    CPU_XOR(&node_1_, &all_, &node_0_);
  }
  const cpu_set_t& all() const { return all_; }
  const cpu_set_t& node(int number) const { return number == 0 ? node_0_ : node_1_; }
  unsigned cpus(int number) const { return static_cast<unsigned>(CPU_COUNT(&node(number))); }

  std::shared_ptr<detail::runtime_core> runtime(runtime_options o, std::vector<std::string>* lines = nullptr) const {
    if (lines != nullptr) o.log = log_function::to<&add_line>(*lines);
    return detail::runtime_core::make(o, nullptr, folder_.root());
  }

 private:
  const cpu_set_t all_;
  cpu_set_t node_0_, node_1_;
  machine_folder folder_;
};

rank local(std::uint32_t index, std::uint32_t size) {
  rank r;
  r.index = r.local_index = index;
  r.world_size = r.local_world_size = size;
  return r;
}

/// Where the threads of a run were.
struct seen {
  cpu_set_t loop, pool;
  run_stats stats;
};

/// Runs a pipeline whose batches go to `device`, if there is one.
template <class Device>
seen run_on(const std::shared_ptr<detail::runtime_core>& core, std::optional<Device> device, pool_ref on = nullptr) {
  seen s;
  auto rows = iota(4) | map([&s](int i) {
                s.loop = mask();
                return i;
              }) |
              map_concurrent(
                  [&s](int i) {
                    s.pool = mask();
                    return row{i};
                  },
                  {.limit = 1, .on = on});
  const auto take_all = [&](auto pipeline) {
    pipeline_run<typename decltype(pipeline)::value_type> run(core, std::move(pipeline), {});
    while (run.next()) {
    }
    s.stats = run.stats();
  };
  if (device) {
    take_all(std::move(rows) | batch(2) | to_device(*device));
  } else {
    take_all(std::move(rows));
  }
  return s;
}
seen run_on_gpu(const std::shared_ptr<detail::runtime_core>& core, const char* address, pool_ref on = nullptr) {
  return run_on(core, std::optional<attached_device>(address), on);
}
seen run_without(const std::shared_ptr<detail::runtime_core>& core) {
  return run_on(core, std::optional<attached_device>());
}

bool equal(const cpu_set_t& a, const cpu_set_t& b) { return CPU_EQUAL(&a, &b) != 0; }

}  // namespace

TEST_CASE("a rank's loops and pool are on the node of its number, then on that of its GPU") {
  if (!can_play_two_nodes()) return;
  const two_nodes machine;
  std::vector<std::string> lines;
  const auto core = machine.runtime({.loops = 2, .rank = local(0, 2)}, &lines);
  CHECK(core->cores() == 1);
  const seen before = run_without(core);
  CHECK(equal(before.loop, machine.node(0)));
  CHECK(equal(before.pool, machine.node(0)));
  CHECK(before.stats.placement == "on NUMA node 0 (of 2), for rank 0 of the 2 on the machine");
  CHECK_THAT(before.stats.table(),
             Contains("loops and pool threads: on NUMA node 0 (of 2), for rank 0 of the 2 on the machine\n"));
  for (int i = 0; i < 2; ++i) {  // one on each loop
    const seen after = run_on_gpu(core, other_gpu);
    CHECK(equal(after.loop, machine.node(1)));
    CHECK(equal(after.pool, machine.node(1)));
    CHECK(after.stats.placement == "on NUMA node 1 (of 2), where the device at 0000:86:00.0 is");
  }
  CHECK(equal(mask(), machine.all()));  // the training thread
  static_cast<void>(run_on_gpu(core, first_gpu));
  REQUIRE(lines.size() >= 3);
  CHECK(lines.front() ==
        "millrace: loops and pool threads are on NUMA node 0 (of 2), for rank 0 of the 2 on the machine");
  CHECK(lines[lines.size() - 2] ==
        "millrace: loops and pool threads are on NUMA node 1 (of 2), where the device at 0000:86:00.0 is");
  CHECK_THAT(lines.back(), Contains("stay on NUMA node 1") && Contains("0000:3b:00.0 is on node 0"));
}

TEST_CASE("loops are kept before there is a pool") {
  if (!can_play_two_nodes()) return;
  const two_nodes machine;
  cpu_set_t there = machine.all();
  auto pipeline = iota(1) | map([&there](int i) {
                    there = mask();
                    return i;
                  });
  pipeline_run<int> run(machine.runtime({.rank = local(1, 2)}), std::move(pipeline), {});
  CHECK(run.next() == 0);
  CHECK(equal(there, machine.node(1)));
}

TEST_CASE("the runtime's pool is made for the GPU's node, if the first run has one") {
  if (!can_play_two_nodes()) return;
  const two_nodes machine;
  const auto core = machine.runtime({.rank = local(0, 2)});
  CHECK(equal(run_on_gpu(core, other_gpu).pool, machine.node(1)));
  CHECK(core->cores() == core->pool()->threads());
  CHECK(core->cores() <= machine.cpus(1));
}

TEST_CASE("a pool that the training thread has the runtime make is kept as well") {
  if (!can_play_two_nodes()) return;
  const two_nodes machine;
  const auto core = machine.runtime({.rank = local(0, 2)});
  CHECK(core->pool()->threads() == 1);
  CHECK(equal(run_without(core).pool, machine.node(0)));
}

TEST_CASE("a pool and a thread of the program's are left alone") {
  if (!can_play_two_nodes()) return;
  const two_nodes machine;
  const auto core = machine.runtime({.placement = placement{0}});
  cpu_pool own(1);
  const seen there = run_on_gpu(core, other_gpu, own);
  CHECK(equal(there.loop, machine.node(0)));
  CHECK(equal(there.pool, machine.all()));
  CHECK(equal(mask(), machine.all()));
  CHECK(core->pool()->threads() == 1);
  CHECK(there.stats.placement == "on NUMA node 0 (of 2), as runtime_options::placement says");
}

TEST_CASE("a rank that is alone is kept nowhere, and neither is one that does not want it") {
  if (!can_play_two_nodes()) return;
  const two_nodes machine;
  std::vector<std::string> lines;
  {
    const auto core = machine.runtime({.threads = 1'000}, &lines);
    CHECK(lines.empty());
    CHECK(equal(run_without(core).pool, machine.all()));
    const seen there = run_on_gpu(core, first_gpu);
    CHECK(equal(there.loop, machine.all()));
    CHECK(equal(there.pool, machine.all()));
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Contains("on any NUMA node (of 2)") && Contains("runtime_options::placement"));
  }
  lines.clear();
  const auto core = machine.runtime({.threads = 1, .rank = local(0, 2), .placement = placement::off}, &lines);
  const seen there = run_on_gpu(core, first_gpu);
  CHECK(equal(there.loop, machine.all()));
  CHECK(equal(there.pool, machine.all()));
  CHECK(there.stats.placement.empty());
  CHECK(lines.empty());
}

TEST_CASE("a node that is not there is refused when the runtime is made") {
  CHECK_THROWS_AS(runtime({.placement = placement{1000}}), configuration_error);
}

TEST_CASE("on this machine, whatever it is, a runtime says what it does or does nothing") {
  runtime rt;
  auto run = rt.run(iota(1));
  CHECK(run.next() == 0);
  const run_stats stats = run.stats();
  CHECK((stats.table().find("loops and pool threads: ") == std::string::npos) == stats.placement.empty());
}
