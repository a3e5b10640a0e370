// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Samples at the ends of shards, and what the shard after them may do to them: nothing.

#include <millrace/shards/group_samples.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::string_literals;

namespace {

/// A tar of these members, each with its own name as content.
std::string tar_of(const std::vector<std::string>& names) {
  std::string out;
  tar::writer<tar::string_sink> w{tar::string_sink(out)};
  for (const std::string& name : names) w.add(name, name);
  w.finish();
  return out;
}

struct source {
  source(std::string where, std::string what, std::size_t pieces_of)
      : url(std::move(where)), content(std::move(what)), piece(pieces_of) {}
  std::string url;
  std::string content;
  std::size_t piece;  ///< bytes of a chunk
};

/// What fetch would give of these objects; an object without content cannot be read.
async_generator<chunk> chunks_of(std::vector<source> objects) {
  for (const source& o : objects) {
    if (o.content.empty()) throw io_error("cannot be read", where{o.url, std::nullopt, {}});
    const auto from = std::make_shared<const shard>(o.url);
    for (std::size_t at = 0; at < o.content.size(); at += o.piece) {
      const std::string_view piece = std::string_view(o.content).substr(at, o.piece);
      chunk c(from, at, bytes::copy(piece), at + piece.size() == o.content.size());
      co_yield give(c);
    }
  }
}

/// "shard/key:fields@offset#ordinal" of every sample, then the error that ended the stream.
task<std::vector<std::string>> told(stream<sample> in) {
  std::vector<std::string> all;
  try {
    while (std::optional<sample> s = co_await in.next()) {
      std::string text = s->from.url() + '/' + s->key + ':';
      for (const field& f : s->fields) text += f.extension + ' ';
      text.back() = '@';
      all.push_back(text + std::to_string(s->from.offset) + '#' + std::to_string(s->from.ordinal));
    }
  } catch (const error& e) {
    all.push_back(e.what());
  }
  co_return all;
}

std::vector<std::string> samples_of(std::vector<source> objects) {
  testing::virtual_loop loop;
  return block_on(loop, told(chunks_of(std::move(objects)) | untar_plain() | group_samples()));
}

}  // namespace

TEST_CASE("the samples of a whole shard come before the error of the next one") {
  const std::string good = tar_of({"a.jpg", "a.cls", "b.jpg", "c.jpg", "c.cls"});
  const std::vector<std::string> all = {"good/a:jpg cls@0#0", "good/b:jpg@2048#1", "good/c:jpg cls@3072#2"};
  // Not to be had, a page instead of a tar, half a header: whatever the pieces that the good one came in.
  for (const std::string& next : {std::string(), std::string(4096, '<'), std::string(300, 'x')}) {
    for (const std::size_t piece : {std::size_t(1) << 20, std::size_t(700), std::size_t(512)}) {
      std::vector<std::string> got = samples_of({source("good", good, piece), source("bad", next, 1 << 20)});
      REQUIRE(got.size() == 4);
      CHECK_THAT(got.back(), Catch::Matchers::Contains("bad"));
      got.pop_back();
      CHECK(got == all);
    }
  }
}

TEST_CASE("a sample leaves with the end of its shard: what is after it is not even asked for") {
  testing::virtual_loop loop;
  std::vector<source> objects = {source("one", tar_of({"a.jpg", "b.jpg"}), 512), source("none", "", 1)};
  const std::vector<std::string> got =
      block_on(loop, told(chunks_of(std::move(objects)) | untar_plain() | group_samples() | take(2)));
  CHECK(got == std::vector<std::string>{"one/a:jpg@0#0", "one/b:jpg@1024#1"});
}

TEST_CASE("what came whole of a cut archive is delivered, but no sample that may lack members") {
  std::string cut = tar_of({"a.jpg", "b.jpg", "b.cls"});
  cut.resize(2048 + 512 + 2);  // inside the last member's content
  const std::vector<std::string> got = samples_of({source("cut", cut, 512)});
  REQUIRE(got.size() == 2);
  CHECK(got[0] == "cut/a:jpg@0#0");
  CHECK_THAT(got[1], Catch::Matchers::Contains("cut inside a member"));
}

TEST_CASE("what a stage in between has cut off costs no member that came whole") {
  testing::virtual_loop loop;
  std::vector<source> objects = {source("x", tar_of({"a", "b", "c", "d"}), 1024)};
  const auto names = [](stream<member> in) -> task<std::string> {
    std::string text;
    while (std::optional<member> m = co_await in.next()) {
      text += m->entry.name;
      if (m->last) text += '!';
    }
    co_return text;
  };
  CHECK(block_on(loop, names(chunks_of(std::move(objects)) | take(3) | untar_plain())) == "abc");
}

TEST_CASE("members of one archive: the last one says that it is, and no other") {
  testing::virtual_loop loop;
  std::vector<source> objects = {source("x", tar_of({"a.jpg", "b.jpg", "c.jpg"}), 512), source("y", tar_of({"d"}), 1)};
  const auto last = [](stream<member> in) -> task<std::string> {
    std::string text;
    while (std::optional<member> m = co_await in.next()) {
      text += m->entry.name;
      if (m->last) text += '!';
      text += ' ';
    }
    co_return text;
  };
  CHECK(block_on(loop, last(chunks_of(std::move(objects)) | untar_plain())) == "a.jpg b.jpg c.jpg! d! ");
}

TEST_CASE("samples end with their shard, even where the next one goes on with their key") {
  CHECK(samples_of({source("s1", tar_of({"w.jpg", "x.jpg"}), 512), source("s2", tar_of({"x.cls"}), 512)}) ==
        std::vector<std::string>{"s1/w:jpg@0#0", "s1/x:jpg@1024#1", "s2/x:cls@0#0"});
  // Also where a stage in between has dropped the member that ends the shard.
  testing::virtual_loop loop;
  std::vector<source> objects = {source("s1", tar_of({"x.jpg", "y.txt"}), 512), source("s2", tar_of({"x.cls"}), 512)};
  auto images =
      chunks_of(std::move(objects)) | untar_plain() | filter([](const member& m) { return m.entry.name != "y.txt"; });
  CHECK(block_on(loop, told(std::move(images) | group_samples())) ==
        std::vector<std::string>{"s1/x:jpg@0#0", "s2/x:cls@0#0"});
}

TEST_CASE("a key that comes again later is a new sample") {
  CHECK(samples_of({source("s", tar_of({"a.jpg", "b.jpg", "a.cls", "__meta__/i.json", "none", "a.txt"}), 512)}) ==
        std::vector<std::string>{"s/a:jpg@0#0", "s/b:jpg@1024#1", "s/a:cls txt@2048#2"});
}

TEST_CASE("an extension that a sample has already is an error that names shard and offset") {
  for (const char* again : {"a.jpg", "a.JPG", "a.__key__", "a.__url__", "a.__bad__", "a.__local_path__"}) {
    const std::vector<std::string> got = samples_of({source("s.tar", tar_of({"a.jpg", "a.cls", again}), 512)});
    REQUIRE(got.size() == 1);
    CHECK_THAT(got[0], Catch::Matchers::Contains("extension"));
    CHECK_THAT(got[0], Catch::Matchers::Contains("s.tar"));
    CHECK_THAT(got[0], Catch::Matchers::Contains("2048"));
    CHECK_THAT(got[0], Catch::Matchers::Contains(again));
  }
}

TEST_CASE("the error that breaks a shard off says how many members and samples of it came before") {
  const std::string good = tar_of({"w.jpg", "x.jpg"});
  std::string cut = tar_of({"a.jpg", "a.cls", "b.jpg", "c.jpg", "c.cls"});
  cut.resize(4096 + 512 + 2);  // inside the last member's content
  const std::vector<std::string> got = samples_of({source("good", good, 512), source("cut", cut, 512)});
  REQUIRE(got.size() == 5);
  CHECK(got[4] ==
        "cut at byte 4610, c.cls: the archive is cut inside a member: 2 of 5 bytes are there (after 4 members of this "
        "shard were delivered; after 2 samples of this shard were delivered)");
  // A fault of grouping, which members have nothing to do with, and a shard of which nothing came.
  CHECK_THAT(
      samples_of({source("s", tar_of({"a.jpg", "b.jpg", "b.jpg"}), 512)}).back(),
      Catch::Matchers::EndsWith("two members with the extension \"jpg\" (after 1 sample of this shard was delivered)"));
  CHECK_THAT(samples_of({source("good", good, 512), source("bad", std::string(600, '<'), 512)}).back(),
             Catch::Matchers::EndsWith("(after 0 members of this shard were delivered)") &&
                 Catch::Matchers::Contains("not a tar archive, but XML or HTML"));
  // One that could not be opened: there is nothing to add.
  CHECK(samples_of({source("good", good, 512), source("none", "", 1)}).back() == "none: cannot be read");
}

namespace {

/// Two pieces of a shard, then a failure to get the third.
async_generator<chunk> broken_off(std::string content, std::string object) {
  const auto from = std::make_shared<const shard>("s3://b/x.tar");
  for (const std::size_t at : {0, 1024}) {
    chunk c(from, at, bytes::copy(std::string_view(content).substr(at, 1024)), false);
    co_yield give(c);
  }
  throw io_error(std::errc::io_error, "broke off", where{object, 2048, {}});
}

/// The error of a stream of samples.
task<io_error> error_of(stream<sample> in) {
  try {
    while (co_await in.next()) {
    }
  } catch (const io_error& e) {
    co_return e;
  }
  throw std::logic_error("no error");
}

}  // namespace

TEST_CASE("an error that is completed keeps its type and all that it knew") {
  testing::virtual_loop loop;
  const std::string content = tar_of({"a.jpg", "b.jpg", "c.jpg"});
  const io_error same = block_on(loop, error_of(broken_off(content, "s3://b/x.tar") | untar_plain() | group_samples()));
  CHECK(same.code() == std::errc::io_error);
  CHECK(same.reason() == "broke off");
  CHECK(same.offset() == 2048u);
  CHECK(same.what() ==
        "s3://b/x.tar at byte 2048: broke off (after 2 members of this shard were delivered; after 1 sample of this "
        "shard was delivered)"s);
  // An error about something else, as of a connection or of credentials, has the shard's name added.
  const io_error other = block_on(loop, error_of(broken_off(content, "https://b/x") | untar_plain() | group_samples()));
  CHECK(other.what() ==
        "https://b/x at byte 2048: broke off (after 2 members of s3://b/x.tar were delivered; after 1 sample of "
        "s3://b/x.tar was delivered)"s);
}
