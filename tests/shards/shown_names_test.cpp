// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What messages show of the names of shards: of a URL neither its query nor its password, of an object or a file all.

#include <millrace/shards/fetch.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

constexpr const char* presigned = "http://user:PASSWORD@host:81/b/k.tar?X-Amz-Expires=9&X-Amz-Signature=SIGNATURE";
constexpr const char* shown = "http://host:81/b/k.tar";
constexpr std::size_t part_bytes = 64 * KiB;

/// Two parts of no tar for every name, with one thing wrong.
class strange_store final : public storage {
 public:
  enum class wrong { content, etag, total, no_total, length, ranges };
  explicit strange_store(wrong what) : what_(what) {}

  bool serves(std::string_view) const noexcept override { return true; }
  task<part> read(shard, std::string, std::uint64_t offset, std::size_t, slab_pool) const override {
    part p;
    p.etag = what_ == wrong::etag && offset > 0 ? "\"new\"" : "\"old\"";
    if (what_ != wrong::no_total) p.total = 2 * part_bytes + (what_ == wrong::total && offset > 0 ? 1 : 0);
    if (what_ == wrong::ranges && offset > 0) {
      p.rest = std::make_unique<nothing>();
    } else {
      p.data = bytes::copy(std::string(what_ == wrong::length ? 1000 : part_bytes, 'x'));
    }
    co_return p;
  }

 private:
  class nothing final : public sequential_rest {
   public:
    task<bytes> next() override { co_return bytes(); }
  };
  const wrong what_;
};
using wrong = strange_store::wrong;

template <class Item>
task<void> drain(stream<Item> items) {
  while (std::optional<Item> item = co_await items.next()) {
  }
}
/// What ends it.
template <class Item>
std::string problem(stream<Item> items) {
  testing::virtual_loop loop;
  try {
    block_on(loop, drain(std::move(items)));
  } catch (const error& e) {
    return e.what();
  }
  return "(nothing)";
}
stream<chunk> chunks_of(const std::string& name, wrong what) {
  const std::shared_ptr<const storage> store = std::make_shared<strange_store>(what);
  std::vector<shard> one{shard(name)};
  return from_range(std::move(one)) | fetch(store, {.shards = 1, .window = part_bytes, .part = part_bytes});
}

void check_hidden(const std::string& message, const char* reason) {
  CHECK_THAT(message, Contains(shown) && Contains(reason));
  CHECK_THAT(message, !Contains("PASSWORD") && !Contains("SIGNATURE") && !Contains("X-Amz"));
}

}  // namespace

TEST_CASE("no signature and no password of a URL comes into a message about what it holds") {
  check_hidden(problem(chunks_of(presigned, wrong::content) | untar_plain()), "at byte 0");
  check_hidden(problem(chunks_of(presigned, wrong::content) | untar()), "at byte");
  check_hidden(problem(chunks_of(presigned, wrong::etag)), "\"old\" became \"new\"");
  check_hidden(problem(chunks_of(presigned, wrong::total)), "as listed");
  check_hidden(problem(chunks_of(presigned, wrong::no_total)), "the size");
  check_hidden(problem(chunks_of(presigned, wrong::length)), "1000 bytes instead of 65536");
  check_hidden(problem(chunks_of(presigned, wrong::ranges)), "stopped serving ranges");
}

TEST_CASE("nor into one about a URL that no store serves, or that is no name") {
  const std::shared_ptr<const storage> local = stores(files());
  check_hidden(problem(shards(presigned) | fetch(local)), "no store");
  testing::virtual_loop loop;
  try {
    block_on(loop, local->read(shard(presigned), std::string(), 0, 10, slab_pool(part_bytes)));
    FAIL("it was read");
  } catch (const configuration_error& e) {
    check_hidden(e.what(), "no store");
  }
  try {
    expand_braces(presigned + std::string("{"));
    FAIL("it was expanded");
  } catch (const configuration_error& e) {
    check_hidden(e.what(), "brace");
  }
}

TEST_CASE("an item of a shard has its whole URL, and its errors the one that may be shown") {
  const origin from(std::make_shared<const shard>(presigned), 512, 3);
  CHECK(from.url() == presigned);
  CHECK(from.at("key").object == shown);
  CHECK(from.at("key").offset == 512);
  CHECK(origin().at("key").object.empty());
}

TEST_CASE("names of objects and files come whole into messages") {
  for (const char* name : {"s3://b/user:a@b/c?d#e.tar", "/data/user:a@b/c?d#e.tar", "file:///data/a@b/c?d#e.tar"}) {
    CHECK_THAT(problem(chunks_of(name, wrong::content) | untar_plain()), Contains(name));
    CHECK_THAT(problem(chunks_of(name, wrong::content) | untar()), Contains(name));
    CHECK_THAT(problem(chunks_of(name, wrong::etag)), Contains(name));
  }
}
