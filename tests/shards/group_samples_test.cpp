// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/group_samples.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

/// So many members with the key "clip", numbered by their extensions.
async_generator<member> members_of_one_sample(std::size_t count) {
  const auto from = std::make_shared<const shard>("mem:x.tar");
  for (std::size_t i = 0; i < count; ++i) {
    tar::entry e;
    e.name = "clip." + std::to_string(i);
    origin at(from, i * 1024, i);
    member m(std::move(e), std::move(at));
    co_yield give(m);
  }
}

task<std::size_t> fields_of_first(stream<sample> in) {
  const std::optional<sample> first = co_await in.next();
  co_return first ? first->fields.size() : 0;
}

}  // namespace

// Each member is compared with all that the sample has: an archive of one endless sample would take forever.
TEST_CASE("a sample has 4096 members at most") {
  testing::virtual_loop loop;
  try {
    block_on(loop, fields_of_first(members_of_one_sample(4097) | group_samples()));
    FAIL("a sample of any size was taken");
  } catch (const archive_error& e) {
    CHECK_THAT(e.what(), Catch::Matchers::Contains("more than 4096 members"));
    CHECK_THAT(e.what(), Catch::Matchers::Contains("mem:x.tar"));
    CHECK_THAT(e.what(), Catch::Matchers::Contains("clip.4096"));  // the first one too many
  }
}
