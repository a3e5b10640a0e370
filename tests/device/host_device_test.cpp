// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/device.hpp>

#include <cstdint>
#include <cstring>

#include "tests/support/catch.hpp"

using namespace millrace;

TEST_CASE("the host device copies, never aliases", "[device]") {
  const host_device host;
  char* from = static_cast<char*>(host.allocate_pinned(100));
  char* to = static_cast<char*>(host.allocate_device(100));
  CHECK(reinterpret_cast<std::uintptr_t>(to) % 256 == 0);
  std::memset(from, 'x', 100);
  host.copy_to_device(to, from, 100);
  host_device::event_type done = host.make_event();
  host.record(done);
  CHECK(host.query(done));
  from[5] = 'y';
  CHECK(std::string(to, 100) == std::string(100, 'x'));
  host.copy_to_device(to, nullptr, 0);
  host.free_pinned(from, 100);
  host.free_device(to, 100);
}

TEST_CASE("the host device takes its own stream and refuses others", "[device]") {
  const host_device host;
  host_device::event_type e = host.make_event();
  host.wait(host_stream, e);
  host.record(e, host_stream);
  int other = 0;
  CHECK_THROWS_AS(host.wait(&other, e), configuration_error);
  CHECK_THROWS_AS(host.record(e, &other), configuration_error);
}

TEST_CASE("a stream reference remembers the type of its handle", "[device]") {
  int handle = 0;
  const stream_ref s(&handle);
  CHECK(s.is<int>());
  CHECK_FALSE(s.is<long>());
  CHECK(s.as<int>() == &handle);
  CHECK_THROWS_AS(s.as<long>(), configuration_error);
  int* none = nullptr;
  CHECK(stream_ref(none).as<int>() == nullptr);
}
