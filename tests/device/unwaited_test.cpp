// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/to_device.hpp>

#include <deque>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/device/batches.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

namespace {

/// The first of a few batches, and what follows it.
struct one_batch {
  explicit one_batch(int after) {
    device.control().after = after;
    block_on(loop, take(source, got, 1));
    REQUIRE(got.size() == 1);
  }
  device_batch& first() { return got.front(); }
  /// How many batches follow.
  int rest() {
    int n = 0;
    for (;;) {
      std::deque<device_batch> next;
      block_on(loop, take(source, next, 1));
      if (next.empty()) return n;
      ++n;
    }
  }

  const late_device device;
  testing::virtual_loop loop;
  stream<device_batch> source = images(8) | batch(2) | to_device(device, {.slots = 1});
  std::deque<device_batch> got;
};

}  // namespace

#ifndef NDEBUG

TEST_CASE("a batch that is used without waiting for its copy is misuse, in debug builds", "[to_device]") {
  one_batch o(3);
  REQUIRE(o.first().field("label").data() != nullptr);
  SECTION("told by release()") {
    CHECK_THROWS_WITH(o.first().release(user), Contains("used without waiting for its copy"));
    REQUIRE(o.first());
    o.first().wait(user);
    o.first().release(user);
    CHECK(o.rest() == 3);
  }
  SECTION("and where it is dropped, by the next batch") {
    o.got.clear();
    CHECK_THROWS_WITH(o.rest(), Contains("used without waiting for its copy"));
  }
}

TEST_CASE("whatever gives the address of a field is a use of it, in debug builds", "[to_device]") {
  one_batch o(3);
  const tensor_view kept = o.first().field("label");
  const tensor_view copy = kept;
  REQUIRE(kept.dims() == shape{2});
  SECTION("as()") { CHECK(o.first().field("label").as<std::int64_t>() != nullptr); }
  SECTION("values()") { CHECK(o.first().field(1).values<const std::int64_t>().size() == 2); }
  SECTION("data() of a copy") { CHECK(copy.data() != nullptr); }
  SECTION("a view that was kept while the batch moved") {
    device_batch moved = std::move(o.first());
    o.got.front() = std::move(moved);
    CHECK(kept.data() != nullptr);
  }
  CHECK_THROWS_WITH(o.first().release(user), Contains("used without waiting for its copy"));
  o.first().wait(user);
}

TEST_CASE("the address of a batch that has gone says nothing of the one in its slot", "[to_device]") {
  one_batch o(3);
  const tensor_view old = o.first().field("label");
  o.first().wait(user);
  o.first().release(user);
  o.got.clear();
  block_on(o.loop, take(o.source, o.got, 1));
  REQUIRE(o.got.size() == 1);
  CHECK(old.data() == o.first().field("label").data());  // the same slot
  o.first().wait(user);
  o.got.clear();
  block_on(o.loop, take(o.source, o.got, 1));
  CHECK(old.data() != nullptr);
  o.got.clear();
  CHECK(o.rest() == 1);
}

#endif

TEST_CASE("what is known of a batch before its copy may be asked without waiting", "[to_device]") {
  one_batch o(3);
  device_batch& b = o.first();
  SECTION("of a field") {
    CHECK(b.field("label").dims() == shape{2});
    CHECK(b.field("label").dims().rank() == 1);
    CHECK(b.field(0).elements() != 0);
    CHECK(b.field("label").bytes() == 16);
    CHECK(b.field("label").type() == dtype::i64);
    CHECK(b.field("label").strides() == shape{1});
  }
  SECTION("of a field that is kept") {
    const tensor_view kept = b.field("label");
    const tensor_view copy = kept;
    CHECK(copy.dims() == shape{2});
    CHECK_THROWS_AS(kept.as<float>(), configuration_error);  // no address was given
    CHECK_THROWS_AS(kept.values<float>(), configuration_error);
  }
  SECTION("of the batch") {
    CHECK(b.size() == 2);
    CHECK(b.layout().fields().size() == 2);
    CHECK(b.layout().find("label") < 2);
    CHECK(b.bytes() != 0);
    CHECK(b.device() == "late");
    CHECK_FALSE(b.mark().known);
    CHECK(b.keys().size() == 2);
    CHECK(b.weights().size() == 2);
    CHECK(b.tags<int>().empty());
    CHECK(byte_size(b) != 0);
    CHECK(b.host_field("label").values<const std::int64_t>().size() == 2);
  }
  SECTION("and a field that there is not") { CHECK_THROWS_AS(b.field("labels"), configuration_error); }
  SECTION("by a batch that moves") {
    device_batch other = std::move(b);
    CHECK(other.field("label").dims() == shape{2});
    b = std::move(other);
  }
  o.got.clear();
  CHECK(o.rest() == 3);
}

TEST_CASE("no wait is missed where the host waited, or nothing was looked at", "[to_device]") {
  one_batch o(3);
  SECTION("synchronize") {
    o.first().synchronize();
    CHECK(o.first().field("label").data() != nullptr);
  }
  SECTION("ready") {
    while (!o.first().ready()) {
    }
    CHECK(o.first().field("label").data() != nullptr);
  }
  SECTION("a wait after it") {
    CHECK(o.first().field("label").data() != nullptr);
    o.first().wait(user);
  }
  SECTION("nothing") { CHECK(o.first().host_field("label").data() != nullptr); }
  o.first().release(user);
  o.got.clear();
  CHECK(o.rest() == 3);
}

TEST_CASE("the host's own memory needs no wait", "[to_device]") {
  testing::virtual_loop loop;
  auto source = images(8) | batch(2) | to_device(host_device(), {.slots = 1});
  for (int i = 0; i < 4; ++i) {
    std::deque<device_batch> got;
    block_on(loop, take(source, got, 1));
    REQUIRE(got.size() == 1);
    CHECK(got.front().field("label").as<std::int64_t>()[0] == 2 * i);
  }
}
