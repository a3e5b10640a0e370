// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/type_id.hpp>

#include <millrace/testing/virtual_loop.hpp>

#include "tests/shared_objects/plugin.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;

// Two shared objects that hide all their symbols, as plugins and modules of Python do.

TEST_CASE("shared objects that hide their symbols see one service of a kind") {
  testing::virtual_loop loop;
  executor_service* const made = first_plugin().service(loop);
  CHECK(second_plugin().service(loop) == made);
  CHECK(loop.find_service<plugin_service>() == made);
}

TEST_CASE("a tag that one shared object has set is there for the other") {
  sample_tags tags(1);
  first_plugin().set_tag(tags, 7);
  CHECK(second_plugin().tags(tags) == 1);
  REQUIRE(tags.get<int>(1).size() == 1);
  CHECK(tags.get<int>(1)[0] == 7);
}

TEST_CASE("a stream that one shared object names is one for the other, and no other kind of stream") {
  CHECK(second_plugin().takes(first_plugin().stream()));
  CHECK(first_plugin().stream() == second_plugin().stream());
  CHECK_FALSE(second_plugin().takes(stream_ref(static_cast<int*>(nullptr))));
}

TEST_CASE("types of unnamed namespaces are not taken for each other") {
  sample_tags tags(1);
  first_plugin().set_own_tag(tags);
  CHECK(first_plugin().own_tags(tags) == 1);
  CHECK(second_plugin().own_tags(tags) == 0);
}
