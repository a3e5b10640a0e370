// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/storage.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/shards/resident_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/sync/all_of.hpp>

#include "tests/s3/uploading.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/memory_storage.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

namespace {

/// Notes which of its functions are called, and answers otherwise than storage does.
class recording_storage final : public storage {
 public:
  mutable std::multiset<std::string> called;

  bool serves(std::string_view) const noexcept override { return noted("serves", true); }
  task<part> read(shard, std::string, std::uint64_t, std::size_t, slab_pool) const override {
    return noted("read", task<part>());
  }
  task<part> read_again(shard, std::string, std::uint64_t, std::size_t, slab_pool) const override {
    return noted("read_again", task<part>());
  }
  task<part> read_small(shard, std::string, std::size_t, slab_pool) const override {
    return noted("read_small", task<part>());
  }
  std::string host(std::string_view) const override { return noted("host", std::string("a host")); }
  bool over_network(std::string_view) const noexcept override { return noted("over_network", false); }
  bool is_local(const shard&, std::uint64_t, std::size_t) const override { return noted("is_local", true); }
  std::uint64_t caches_on_disk(std::string_view) const override { return noted("caches_on_disk", 11u); }
  std::uint64_t held_on_disk(const shard&, std::uint64_t, std::uint64_t) const override {
    return noted("held_on_disk", 12u);
  }
  task<std::unique_ptr<object_check>> check(shard, std::string) const override {
    return noted("check", task<std::unique_ptr<object_check>>());
  }
  std::size_t keeps() const noexcept override { return noted("keeps", std::size_t(13)); }
  async_generator<shard> list(std::string) const override { return noted("list", async_generator<shard>()); }
  async_generator<shard> list_all(std::string) const override { return noted("list_all", async_generator<shard>()); }
  task<std::string> put(std::string, async_generator<bytes>, write_options) const override {
    return noted("put", task<std::string>());
  }
  task<void> remove(std::string) const override { return noted("remove", task<void>()); }
  bool may_be_sequential() const noexcept override { return noted("may_be_sequential", true); }

 private:
  template <class T>
  T noted(const char* name, T answer) const {
    called.insert(name);
    return answer;
  }
};

/// Calls each function of a storage once, and compares what the recording one answers.
void call_each(const storage& s) {
  const slab_pool slabs(1024);
  const shard object("x");
  CHECK(s.serves("x"));
  CHECK_FALSE(s.read(object, "", 0, 1, slabs));
  CHECK_FALSE(s.read_again(object, "", 0, 1, slabs));
  CHECK_FALSE(s.read_small(object, "", 1, slabs));
  CHECK(s.host("x") == "a host");
  CHECK_FALSE(s.over_network("x"));
  CHECK(s.is_local(object, 0, 1));
  CHECK(s.caches_on_disk("x") == 11);
  CHECK(s.held_on_disk(object, 0, 1) == 12);
  CHECK_FALSE(s.check(object, ""));
  CHECK(s.keeps() == 13);
  CHECK_FALSE(s.list("x"));
  CHECK_FALSE(s.list_all("x"));
  CHECK_FALSE(s.put("x", async_generator<bytes>(), write_options()));
  CHECK_FALSE(s.remove("x"));
  CHECK(s.may_be_sequential());
}

/// The virtual functions of storage, by its header.
std::set<std::string> functions_of_storage() {
  std::ifstream in(std::string(MILLRACE_TEST_SOURCE_DIR) + "/include/millrace/shards/storage.hpp");
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::size_t begin = text.find("\nclass storage {");
  text = text.substr(begin, text.find("\n};", begin) - begin);
  std::set<std::string> names;
  const std::regex declared("virtual [^~(]*?([a-z_]+)\\(");
  for (std::sregex_iterator at(text.begin(), text.end(), declared), end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

class passing final : public forwarding_storage {
 public:
  explicit passing(std::shared_ptr<const storage> inner) : forwarding_storage(std::move(inner)) {}
};

class renaming final : public forwarding_storage {
 public:
  explicit renaming(std::shared_ptr<const storage> inner) : forwarding_storage(std::move(inner)) {}
  std::string host(std::string_view) const override { return "another"; }
};

std::string text_of(const storage& s, const std::string& url) {
  const auto loop = make_event_loop();
  const slab_pool slabs(4096);
  return std::string(block_on(*loop, s.read(shard(url), "", 0, 4096, slabs)).data.view());
}

std::string put_now(const storage& s, const std::string& url, const std::string& text, const write_options& how = {}) {
  const auto loop = make_event_loop();
  std::string etag = block_on(*loop, detail::put_text(s, url, text, how));
  loop->drain();
  return etag;
}

std::vector<std::string> all_of_prefix(std::shared_ptr<const storage> s, const std::string& prefix) {
  const auto loop = make_event_loop();
  std::vector<std::string> urls;
  for (const shard& o : block_on(*loop, detail::all_objects(std::move(s), prefix))) urls.push_back(o.url);
  std::sort(urls.begin(), urls.end());
  return urls;
}

/// Runs `body` with S3, files and a store of the program's own, and what their URLs begin with.
void with_stores(const std::function<void(const std::shared_ptr<const storage>&, const std::string&)>& body) {
  s3_server::background server(small_part_server());
  const temporary_folder folder;
  body(s3::as_storage(client_of(server)), "s3://b/");
  body(files(), folder.path() + "/made/");
  body(files(), "file://" + folder.path() + "/");
  body(std::make_shared<const memory_storage>(), "mem://");
}

task<void> putting(const storage& s, std::string url, std::string text, int& won) {
  try {
    co_await detail::put_text(s, url, text, write_options{.only_new = true});
    ++won;
  } catch (const changed_error&) {
  }
}

task<void> side_by_side(const storage& s, const std::string& url, int& won) {
  std::vector<task<void>> all;
  for (int i = 0; i < 4; ++i) all.push_back(putting(s, url, std::to_string(i), won));
  co_await all_of(std::move(all));
}

}  // namespace

TEST_CASE("a decorator passes all calls to its storage, and one that overrides a function passes the others") {
  const std::set<std::string> functions = functions_of_storage();
  CHECK(functions.size() == 16);
  const auto inner = std::make_shared<const recording_storage>();
  const auto called = [&] {
    const std::multiset<std::string> names = std::exchange(inner->called, {});
    CHECK(names.size() == functions.size());
    return std::set<std::string>(names.begin(), names.end());
  };
  call_each(*inner);
  CHECK(called() == functions);  // each is recorded
  call_each(passing(inner));
  CHECK(called() == functions);
  CHECK(renaming(inner).host("x") == "another");
  CHECK(inner->called.empty());
  CHECK(renaming(inner).keeps() == 13);
  inner->called.clear();
  const auto set = stores(files(), inner);
  CHECK(set->host("s3://b/x") == "a host");
  CHECK(set->host("x").empty());
  static_cast<void>(set->put("s3://b/x", async_generator<bytes>(), write_options()));
  CHECK(inner->called.count("put") == 1);
  CHECK(hedged(inner)->held_on_disk(shard("x"), 0, 1) == 12);
  CHECK(resident(inner, {.bytes = 100})->caches_on_disk("x") == 11);
}

TEST_CASE("files, S3 and a store of a program's own are written to alike") {
  with_stores([](const std::shared_ptr<const storage>& s, const std::string& prefix) {
    INFO(prefix);
    CHECK(all_of_prefix(s, prefix + "a/").empty());
    put_now(*s, prefix + "a/x", "one");
    put_now(*s, prefix + "a/y/z", "");
    put_now(*s, prefix + "a/x", "two");
    CHECK(text_of(*s, prefix + "a/x") == "two");
    CHECK(all_of_prefix(s, prefix + "a/") == std::vector<std::string>{prefix + "a/x", prefix + "a/y/z"});
    CHECK(all_of_prefix(s, prefix + "a/y") == std::vector<std::string>{prefix + "a/y/z"});

    CHECK_THROWS_AS(put_now(*s, prefix + "a/x", "three", {.only_new = true}), changed_error);
    CHECK(text_of(*s, prefix + "a/x") == "two");
    put_now(*s, prefix + "a/new", "new", {.only_new = true});
    CHECK(text_of(*s, prefix + "a/new") == "new");

    const auto loop = make_event_loop();
    const auto broken = [&] { block_on(*loop, s->put(prefix + "a/x", failing_after(3000, 1000), {.part = 1000})); };
    CHECK_THROWS_AS(broken(), decode_error);
    loop->drain();
    CHECK(text_of(*s, prefix + "a/x") == "two");

    int won = 0;
    block_on(*loop, side_by_side(*s, prefix + "a/race", won));
    loop->drain();
    CHECK(won == 1);
    CHECK(text_of(*s, prefix + "a/race").size() == 1);

    for (const char* name : {"x", "x", "new", "race", "y/z"}) {
      block_on(*loop, s->remove(prefix + "a/" + name));
    }
    CHECK(all_of_prefix(s, prefix).empty());
    CHECK(detail::is_not_there(std::make_exception_ptr(io_error(std::errc::no_such_file_or_directory, ""))));
    try {
      text_of(*s, prefix + "a/x");
      CHECK(false);
    } catch (const error&) {
      CHECK(detail::is_not_there(std::current_exception()));
    }
  });
}

TEST_CASE("an object is replaced only while it is the version that was named, where the store has versions") {
  with_stores([](const std::shared_ptr<const storage>& s, const std::string& prefix) {
    INFO(prefix);
    const std::string url = prefix + "x";
    const std::string first = put_now(*s, url, "one");
    if (!s->over_network(url) && first.empty()) {
      CHECK_THROWS_WITH(put_now(*s, url, "two", {.if_match = "\"v1\""}), Contains("a file has no version"));
      return;
    }
    for (const std::size_t size : {5, 2500}) {
      const std::string before = put_now(*s, url, "before");
      const std::string second = put_now(*s, url, pattern(size), {.if_match = before, .part = 1000});
      CHECK_THROWS_AS(put_now(*s, url, pattern(size + 1), {.if_match = before, .part = 1000}), changed_error);
      CHECK((text_of(*s, url) == pattern(size)));
      CHECK_THROWS_AS(put_now(*s, prefix + "none", pattern(size), {.if_match = second, .part = 1000}), changed_error);
    }
    CHECK(all_of_prefix(s, prefix) == std::vector<std::string>{url});
  });
}

TEST_CASE("a store that cannot be written to says so by the URL, before anything is done") {
  const auto web = std::make_shared<const http_storage>();
  const auto refused = [&](const storage& s, const std::string& url) {
    return failure_of([&] { static_cast<void>(s.put(url, async_generator<bytes>(), write_options())); });
  };
  CHECK(refused(*web, "https://host/a?secret") == "https://host/a: the store cannot be written to");
  CHECK_THROWS_WITH(web->remove("https://host/a?secret"), "https://host/a: the store cannot be written to");
  CHECK(refused(*hedged(web), "https://host/a") == "https://host/a: the store cannot be written to");
  CHECK(refused(*resident(web, {.bytes = 9}), "https://host/a") == "https://host/a: the store cannot be written to");
  CHECK(refused(*stores(web), "other:x") == "other:x: the store cannot be written to");
  CHECK_THROWS_WITH(detail::require_writing(*web, "s3://b/x"), "s3://b/x: the store does not serve this URL");
}

TEST_CASE("what a writer of the same file leaves when it is killed is removed, and not what one is writing") {
  const temporary_folder folder;
  const auto loop = make_event_loop();
  folder.file(".x.1-1.part", "left");
  folder.file(".xy.1-1.part", "of another file");
  const auto store = files();
  int won = 0;
  block_on(*loop, side_by_side(*store, folder.file("x"), won));
  CHECK(won == 1);
  std::set<std::string> names;
  for (const auto& f : std::filesystem::directory_iterator(folder.path())) names.insert(f.path().filename().string());
  CHECK(names == std::set<std::string>{"x", ".xy.1-1.part"});
}

TEST_CASE("what is written through resident() is read back, and not what it had kept") {
  const auto inner = std::make_shared<const memory_storage>();
  const auto kept = resident(inner, {.bytes = 1000});
  put_now(*kept, "mem://x", "one");
  CHECK(text_of(*kept, "mem://x") == "one");
  CHECK(kept->kept() == 3);
  put_now(*kept, "mem://x", "two");
  CHECK(text_of(*kept, "mem://x") == "two");
  const auto loop = make_event_loop();
  block_on(*loop, kept->remove("mem://x"));
  CHECK(kept->kept() == 0);
  CHECK_THROWS_AS(text_of(*kept, "mem://x"), io_error);
}
