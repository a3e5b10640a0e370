// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A pipeline over real transfers, dropped at any moment: what the loop, the slab pool and the process hold returns to
// what it was.

#include <millrace/shards/fetch.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/spawned.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/jumping_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;

namespace {

/// The web, and a census of the slabs that its parts are read into.
class counted_web final : public forwarding_storage {
 public:
  explicit counted_web(testing::census& slabs)
      : forwarding_storage(std::make_shared<const http_storage>()), census_(slabs) {}

  mutable std::size_t reads = 0;

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    if (reads++ == 0) census_.count_slabs(slabs);  // fetch has one pool, and none of it is out yet
    return inner()->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
  }

 private:
  testing::census& census_;
};

task<void> count_bytes(stream<chunk> in, std::size_t& total) {
  while (auto c = co_await in.next()) total += c->data.size();
}

constexpr std::size_t object_size = 300'000;
const fetch_options narrow{.shards = 3, .window = 2 * 64 * KiB, .part = 64 * KiB};

}  // namespace

TEST_CASE("fetch dropped in the middle of its transfers leaves no frame, no slab and no descriptor") {
  bool finished = false;
  bool in_flight = false;
  for (std::size_t turns = 0; !finished; turns += 1 + turns / 8) {
    INFO("dropped after " << turns << " turns");
    testing::census process;
    process.count_descriptors();
    {
      testing::jumping_loop loop;
      s3_server::options open_to_all;
      open_to_all.anonymous = s3_server::anonymous_access::read;
      s3_server::server server(open_to_all);
      const spawned<void> serving(loop, server.serve());
      std::vector<shard> shards;
      for (const char* key : {"0", "1", "2", "3"}) {
        server.objects().put("b", key, std::string(object_size, key[0]));
        shards.emplace_back(server.endpoint() + "/b/" + key);
      }
      std::size_t total = 0;
      testing::census slabs;
      {
        const auto web = std::make_shared<counted_web>(slabs);
        const std::shared_ptr<const storage> store = web;
        spawned<void> running(loop, count_bytes(from_range(std::move(shards)) | fetch(store, narrow), total));
        std::size_t turn = 0;
        loop.run_until([&] { return running.done() || turn++ == turns; });
        finished = running.done();
        in_flight = in_flight || slabs.difference() != "";
      }
      CHECK(slabs.difference() == "");
      if (finished) CHECK(total == 4 * object_size);
    }
    CHECK(process.difference() == "");
  }
  CHECK(in_flight);  // or nothing was tested
}
