// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/stores.md.

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/environment.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/combine.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/write_shards.hpp>
#include <millrace/http/authorities.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/s3/auth/default_credentials.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/config/config.hpp>
#include <millrace/shards/disk_cache.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/shards/hub_storage.hpp>
#include <millrace/shards/read_whole.hpp>
#include <millrace/shards/resident_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

// begin sse_c
mill::s3::client with_own_key(const std::string& key_of_32_bytes) {
  mill::s3::config c = mill::s3::config::from_environment(mill::process_environment());
  c.encryption_key = mill::s3::customer_key(key_of_32_bytes);
  return mill::s3::client(c, mill::s3::default_credentials());
}
// end sse_c

// begin token
std::string token() {  // what holds now: another program renews the file
  std::string text;
  std::ifstream("/run/secrets/data-token") >> text;
  return text;
}

std::shared_ptr<const mill::storage> web() {
  return std::make_shared<mill::http_storage>(mill::http::transport_from_environment(), mill::retry_options(),
                                              mill::bearer_token("data.example", &token));
}
// end token

// begin hub
mill::dataset captions() { return mill::dataset(mill::hugging_face(), "hf://datasets/owner/name@v1.0/train/"); }
// end hub

// begin storage
class memory_store final : public mill::storage {
 public:
  explicit memory_store(std::map<std::string, std::string> objects = {}) : objects_(std::move(objects)) {}

  bool serves(std::string_view url) const noexcept override { return url.substr(0, 4) == "mem:"; }

  mill::task<part> read(mill::shard object, std::string /*etag*/, std::uint64_t offset, std::size_t length,
                        mill::slab_pool slabs) const override {
    const auto found = objects_.find(object.url);
    if (found == objects_.end()) {
      throw mill::io_error(std::errc::no_such_file_or_directory, "no such object", {object.url, offset, {}});
    }
    const std::string_view rest = std::string_view(found->second).substr(offset);
    const bool small = length <= slabs.slab_bytes() / 8;  // a whole slab would be mostly empty
    mill::writable_bytes memory = small ? mill::writable_bytes::allocate(length) : slabs.acquire();
    part result;
    result.total = found->second.size();  // of the object: fetch asks for the other parts by it
    const std::size_t n = rest.copy(memory.data(), length);
    result.data = memory.share(0, n);
    co_return result;
  }

  // Where it can list and be written to:
  mill::async_generator<mill::shard> list(std::string prefix) const override {
    for (auto at = objects_.lower_bound(prefix); at != objects_.end() && at->first.starts_with(prefix); ++at) {
      mill::shard s(at->first, at->second.size());
      co_yield mill::give(s);
    }
  }
  mill::task<std::string> put(std::string url, mill::async_generator<mill::bytes> content,
                              mill::write_options how) const override {
    std::string text;
    while (std::optional<mill::bytes> piece = co_await content.next()) text += piece->view();
    if (how.only_new && objects_.count(url) != 0) throw mill::changed_error("it is there", {url, {}, {}});
    if (!how.if_match.empty()) throw mill::configuration_error("there are no versions here", {url, {}, {}});
    objects_[url] = std::move(text);
    co_return std::string();  // its ETag, where it has one
  }
  mill::task<void> remove(std::string url) const override {
    objects_.erase(url);
    co_return;
  }

 private:
  mutable std::map<std::string, std::string> objects_;
};
// end storage

// begin decorator
class counted_reads final : public mill::forwarding_storage {
 public:
  explicit counted_reads(std::shared_ptr<const mill::storage> inner) : forwarding_storage(std::move(inner)) {}

  mill::task<part> read(mill::shard object, std::string etag, std::uint64_t offset, std::size_t length,
                        mill::slab_pool slabs) const override {
    ++parts;
    return inner()->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
  }

  mutable std::atomic<std::uint64_t> parts{0};
};
// end decorator

mill::async_generator<mill::sample> notes(int count) {
  for (int i = 0; i < count; ++i) {
    mill::sample s("note/" + std::to_string(i), mill::origin());
    s.fields.emplace_back("txt", mill::bytes::copy("text " + std::to_string(i)));
    co_yield mill::give(s);
  }
}

// begin cache
std::shared_ptr<const mill::disk_cache_storage> on_disk(const std::shared_ptr<const mill::storage>& s3,
                                                        const std::string& folder = "/nvme/mill") {
  return mill::disk_cache(s3, {.directory = folder, .bytes = 2 * mill::TiB});
}
// end cache

// begin both
std::shared_ptr<const mill::resident_storage> in_memory_and_on_disk(const std::shared_ptr<const mill::storage>& s3,
                                                                    const std::string& folder = "/nvme/mill") {
  return mill::resident(mill::disk_cache(s3, {.directory = folder, .bytes = 2 * mill::TiB}),
                        {.bytes = 200 * mill::GiB});
}
// end both

// begin source
mill::async_generator<mill::shard> listed(std::vector<std::string> names) {
  for (std::string& name : names) {
    mill::shard s(std::move(name));  // with a size and an ETag, where they are known
    co_yield mill::give(s);
  }
}
// end source

std::vector<std::string> texts(mill::stream<mill::line_batch> lines) {
  mill::testing::virtual_loop loop;
  std::vector<std::string> all;
  for (const mill::line_batch& b : block_on(loop, collect(std::move(lines)))) all.insert(all.end(), b.begin(), b.end());
  return all;
}

}  // namespace

TEST_CASE("guide: a key that the store does not keep") {
  CHECK(with_own_key(std::string(32, 'k')).configuration().encryption_key);
  CHECK_THROWS_AS(with_own_key("short"), mill::configuration_error);
}

TEST_CASE("guide: a web server that wants a token") {
  CHECK(token().empty());
  CHECK(web()->serves("https://data.example/train-0.tar"));
  captions();  // asks for nothing yet
}

TEST_CASE("the guide's store is read by fetch", "[guide]") {
  // begin use
  const auto memory =
      std::make_shared<memory_store>(std::map<std::string, std::string>{{"mem:a", "one\ntwo\n"}, {"mem:b", "three\n"}});
  const auto everything = mill::stores(memory, mill::files());  // each URL is read by the first that serves it
  auto lines = listed({"mem:a", "mem:b"})                       //
               | mill::fetch(everything, {.shards = 2})         //
               | mill::lines({.batch = 100});
  // end use
  CHECK(texts(std::move(lines)) == std::vector<std::string>{"one", "two", "three"});
}

TEST_CASE("the guide's store takes shards, and gives them back through a decorator", "[guide]") {
  // begin written
  const auto memory = std::make_shared<memory_store>();
  auto written = mill::stream(notes(100)) | mill::write_shards(memory, "mem:notes-{}.tar", {.samples = 40});
  // end written
  const auto loop = mill::make_event_loop();
  const auto counted = std::make_shared<const counted_reads>(memory);
  CHECK(block_on(*loop, collect(std::move(written))).size() == 3);
  std::size_t samples = 0;
  auto all = mill::stream<mill::shard>(memory->list("mem:notes-")) | mill::filter([](const mill::shard& s) {
               return s.url.ends_with(".tar");
             }) | mill::fetch(counted) | mill::untar_plain() | mill::group_samples();
  for (const mill::sample& s : block_on(*loop, collect(std::move(all)))) samples += s.fields.size();
  CHECK(samples == 100);
  CHECK(counted->parts == 3);
  CHECK_THROWS_AS(block_on(*loop, mill::read_whole(memory, "mem:none")), mill::io_error);
}

TEST_CASE("the guide's cache is a store", "[guide]") {
  const millrace::test::captured_stderr said(millrace::test::captured_stderr::into::pipe);
  CHECK(on_disk(mill::files(), "/proc/none/mill")->serves("data/a.tar"));  // off: it is no error
  CHECK(in_memory_and_on_disk(mill::files(), "/proc/none/mill")->keeps() == 200 * mill::GiB);
}

TEST_CASE("the guide's corpora are mixed", "[guide]") {
  const auto store = std::make_shared<memory_store>(
      std::map<std::string, std::string>{{"mem:web", "w\nw\nw\nw\nw\nw\n"}, {"mem:books", "b\nb\n"}});
  // begin corpora
  const auto corpus = [&](std::string name) {
    return mill::shards(name) | mill::fetch(store, {.shards = 1}) | mill::lines({.batch = 1});
  };
  std::vector<mill::stream<mill::line_batch>> corpora;
  corpora.push_back(corpus("mem:web"));
  corpora.push_back(corpus("mem:books"));
  auto lines = mill::mix(std::move(corpora), {3, 1}, {.seed = 7});
  // end corpora
  CHECK(texts(std::move(lines)).size() == 8);
}
