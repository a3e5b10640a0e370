// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Small objects that are read by their names alone, through the stores that read another store.

#include <millrace/shards/storage.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/disk_cache.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/shards/resident_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>

#include "tests/shards/cache_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/checking_client.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using s3_server::fault;

namespace {

namespace digests = s3_server::detail;

enum class kind { hedged, resident, disk_cache };

class fixture {
 public:
  explicit fixture(kind k, std::size_t kept = MiB) : client_(test::checking_client(server)) {
    const std::shared_ptr<const storage> s3 = as_storage(client_);
    if (k == kind::hedged) store = hedged(s3);
    if (k == kind::resident) store = resident(s3, {.bytes = kept});
    if (k == kind::disk_cache) {
      store = disk_cache(s3, {.directory = folder_.path, .bytes = 8 * detail::disk_slots::slot_bytes, .keep_free = 0});
    }
  }

  /// Stores an object with its checksum; gives its ETag.
  std::string put(const std::string& key, const std::string& content) {
    s3_server::object o(bytes::copy(content));
    o.checksums.emplace_back("x-amz-checksum-crc64nvme",
                             digests::to_base64(digests::checksum_of("crc64nvme", content)));
    return server.objects().put("b", key, std::move(o));
  }
  storage::part read_small(const std::string& key, const std::string& etag = {}, std::size_t length = 8 * KiB) {
    return block_on(*loop, store->read_small(shard("s3://b/" + key), etag, length, slab_pool(256 * KiB)));
  }
  /// The requests since the last call, as "GET HEAD GET:bytes=0-99".
  std::string asked() {
    std::string all;
    for (const auto& r : server.log().entries()) {
      all += (all.empty() ? "" : " ") + r.method + (r.range.empty() ? "" : ':' + r.range);
    }
    server.log().clear();
    return all;
  }

  const std::unique_ptr<event_loop> loop = make_event_loop();
  s3_server::background server;
  std::shared_ptr<const storage> store;

 private:
  const test::cache_folder folder_;
  s3::client client_;
};

const std::string small = test::random_text(1, 5000);
const std::string other = test::random_text(2, 6000);

}  // namespace

TEST_CASE("a small object is read and compared by one GET through each store that reads another", "[small]") {
  fixture f(GENERATE(kind::hedged, kind::resident, kind::disk_cache));
  const std::string etag = f.put("a", small);
  f.put("empty", "");
  const storage::part p = f.read_small("a");
  CHECK(p.data.view() == small);
  CHECK(p.total == small.size());
  CHECK(p.etag == etag);
  CHECK(p.whole);
  CHECK(f.asked() == "GET");
  CHECK(f.read_small("empty").data.empty());
  CHECK(f.asked().find("HEAD") == std::string::npos);
  // Damage is seen by that GET, and read over.
  f.put("b", other);
  f.server.faults().add({.method = "GET", .key = "b", .nth = 1}, fault::flipped_bit(123));
  const storage::part mended = f.read_small("b");
  CHECK(mended.data.view() == other);
  CHECK(mended.again);
  CHECK(f.asked() == "GET GET");
}

TEST_CASE("an object that is longer than was likely is read to that length, and not taken for compared", "[small]") {
  fixture f(GENERATE(kind::hedged, kind::resident, kind::disk_cache));
  f.put("a", small);
  // The cache asks for whole grains of its own: all of the object comes, and is cut.
  for (const std::size_t length : {std::size_t(1000), small.size() - 1}) {
    const storage::part p = f.read_small("a", {}, length);
    CHECK(p.data.view() == small.substr(0, length));
    CHECK(p.total == small.size());
    CHECK_FALSE(p.whole);
    CHECK(p.crc.size() != small.size());
  }
  const std::string large = test::random_text(3, 200'000);
  f.put("large", large);
  f.asked();
  const storage::part p = f.read_small("large");
  CHECK(p.data.view() == large.substr(0, 8 * KiB));
  CHECK(p.total == large.size());
  CHECK_FALSE(p.whole);
  CHECK(f.asked() == "GET GET:bytes=0-8191");
}

TEST_CASE("a small object that has changed is another version", "[small]") {
  const kind k = GENERATE(kind::hedged, kind::resident, kind::disk_cache);
  fixture f(k);
  const std::string before = f.put("a", small);
  CHECK(f.read_small("a").data.view() == small);
  const std::string now = f.put("a", other);
  f.asked();
  const storage::part p = f.read_small("a", now);
  CHECK(p.data.view() == other);
  CHECK(p.etag == now);
  CHECK(p.whole);
  CHECK(f.asked() == "GET");
  if (k != kind::disk_cache) CHECK_THROWS_AS(f.read_small("a", before), changed_error);
  f.put("b", small);
  CHECK_THROWS_AS(f.read_small("b", "\"another\""), changed_error);
}

TEST_CASE("resident() keeps a small object, and that it was compared", "[small][resident]") {
  fixture f(kind::resident, 9000);
  f.put("a", small);
  f.put("b", other);
  f.read_small("a");
  f.asked();
  storage::part p = f.read_small("a");
  CHECK(p.data.view() == small);
  CHECK(p.whole);
  CHECK_FALSE(f.read_small("a", {}, 1000).whole);
  CHECK(f.asked().empty());
  // What does not fit comes from the store, and is compared there.
  CHECK(f.read_small("b").whole);
  CHECK(f.read_small("b").whole);
  CHECK(f.asked() == "GET GET");
  // What came by ranges was not compared.
  const std::string c = small.substr(0, 2000);
  f.put("c", c);
  const slab_pool slabs(64 * KiB);
  for (const std::size_t offset : {0, 1000}) {
    block_on(*f.loop, f.store->read(shard("s3://b/c"), {}, offset, 1000, slabs));
  }
  f.asked();
  p = f.read_small("c");
  CHECK(p.data.view() == c);
  CHECK_FALSE(p.whole);
  CHECK(f.asked().empty());
  // Nor is what is put together of two readings.
  block_on(*f.loop, f.store->read_again(shard("s3://b/a"), {}, 0, 1000, slabs));
  p = f.read_small("a");
  CHECK(p.data.view() == small);
  CHECK_FALSE(p.whole);
}

TEST_CASE("resident() reads on to the end of the block, and cuts that off", "[small][resident]") {
  fixture f(kind::resident);
  const std::string blocks = test::random_text(4, 5120);
  f.put("a", blocks);
  const shard sized("s3://b/a", blocks.size(), {});
  const storage::part p = block_on(*f.loop, f.store->read_small(sized, {}, 5000, slab_pool(64 * KiB)));
  CHECK(p.data.view() == blocks.substr(0, 5000));
  CHECK_FALSE(p.whole);
  CHECK(f.read_small("a").whole);
}

TEST_CASE("disk_cache() asks the store for a small object whose version it is not told", "[small][disk_cache]") {
  fixture f(kind::disk_cache);
  const std::string before = f.put("a", small);
  f.read_small("a");
  f.asked();
  CHECK(f.read_small("a", before).data.view() == small);
  CHECK(f.asked().empty());
  CHECK(f.read_small("a").data.view() == small);
  CHECK(f.asked() == "GET");
  const std::string now = f.put("a", other);
  CHECK(f.read_small("a").data.view() == other);
  CHECK(f.asked() == "GET");
  CHECK(f.read_small("a", now).data.view() == other);
  CHECK(f.asked().empty());
}
