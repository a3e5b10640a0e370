// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Which version of an object fetch() reads, and which one its chunks show.

#include <millrace/shards/fetch.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using tags = std::vector<std::string>;

namespace {

constexpr std::size_t part_bytes = 64 * KiB;

/// What the store answers for one part.
struct answer {
  std::string etag;
  duration after = 1ms;
};

/// One object, a part per answer.
class scripted_store final : public storage {
 public:
  explicit scripted_store(std::vector<answer> answers) : answers_(std::move(answers)) {}

  mutable std::map<std::uint64_t, std::string> asked_for;  // by offset: the version that the part had to have

  std::uint64_t size() const noexcept { return answers_.size() * part_bytes; }
  bool serves(std::string_view) const noexcept override { return true; }
  task<part> read(shard, std::string etag, std::uint64_t offset, std::size_t length, slab_pool slabs) const override {
    asked_for[offset] = std::move(etag);
    const answer& a = answers_.at(offset / part_bytes);
    co_await sleep_for(a.after);
    part p;
    p.etag = a.etag;
    p.total = size();
    writable_bytes slab = slabs.acquire();
    p.data = slab.share(0, length);
    co_return p;
  }

 private:
  const std::vector<answer> answers_;
};

/// The ETag that each chunk shows when it comes, and that of the first one once more at the end.
task<void> collect(stream<chunk> in, tags& out) {
  std::shared_ptr<const shard> from;
  while (std::optional<chunk> c = co_await in.next()) {
    from = c->from;
    out.push_back(from->etag);
  }
  if (from != nullptr) out.push_back(from->etag);
}

tags shown(const std::shared_ptr<scripted_store>& store, bool size_known, std::size_t parts_at_once) {
  testing::virtual_loop loop;
  std::vector<shard> one{size_known ? shard("mem:x", store->size()) : shard("mem:x")};
  const std::shared_ptr<const storage> s = store;
  tags out;
  block_on(loop, collect(from_range(std::move(one)) |
                             fetch(s, {.shards = 1, .window = parts_at_once * part_bytes, .part = part_bytes}),
                         out));
  return out;
}

}  // namespace

TEST_CASE("chunks show the ETag that came with the first part") {
  for (const bool size_known : {true, false}) {
    for (const std::size_t parts_at_once : {1, 2, 3}) {
      const auto store = std::make_shared<scripted_store>(std::vector<answer>{{"\"v\""}, {"\"v\""}, {"\"v\""}});
      CHECK(shown(store, size_known, parts_at_once) == tags(4, "\"v\""));
    }
  }
  // The first part is the last one to come: no chunk was shown before it.
  const auto late = std::make_shared<scripted_store>(std::vector<answer>{{"\"v\"", 1h}, {"\"v\""}, {"\"v\""}});
  CHECK(shown(late, true, 3) == tags(4, "\"v\""));
}

TEST_CASE("a shard that chunks show is not written any more: an ETag that comes later is not shown") {
  for (const bool size_known : {true, false}) {
    for (const std::size_t parts_at_once : {1, 2, 4}) {
      const auto store =
          std::make_shared<scripted_store>(std::vector<answer>{{""}, {"\"v\"", 1h}, {"\"v\"", 1h}, {"\"v\"", 1h}});
      CHECK(shown(store, size_known, parts_at_once) == tags(5, ""));
      CHECK(store->asked_for[part_bytes].empty());
      // What is asked for once it is known must be of that version.
      if (parts_at_once < 4) CHECK(store->asked_for[3 * part_bytes] == "\"v\"");
    }
  }
}

TEST_CASE("later parts are compared with each other where the first one has no ETag") {
  for (const bool size_known : {true, false}) {
    for (const std::size_t parts_at_once : {1, 3}) {
      const auto store =
          std::make_shared<scripted_store>(std::vector<answer>{{""}, {"\"old\"", 1h}, {"\"new\"", 2h}});
      try {
        shown(store, size_known, parts_at_once);
        FAIL("two versions were taken for one");
      } catch (const changed_error& e) {
        CHECK(e.offset() == 2 * part_bytes);
        CHECK_THAT(e.what(), Catch::Matchers::Contains("ETag \"old\" became \"new\""));
      }
    }
  }
}
