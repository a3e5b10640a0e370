// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/s3_storage.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/http/engine.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/writer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;

namespace {

s3::client client_of(const s3_server::background& server, const char* secret = "test-secret") {
  const std::string endpoint = server.endpoint();
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  return s3::client(s3::config(o), s3::credentials("test-key", secret));
}

std::string body_of(int shard, int i, std::size_t size) {
  std::string text = "shard " + std::to_string(shard) + " sample " + std::to_string(i) + " ";
  while (text.size() < size) text += text;
  text.resize(size);
  return text;
}

/// Shard n has 10 + n samples of two fields, the first growing beyond a small slab.
std::string tar_of(int n, std::size_t size) {
  std::string text;
  tar::writer w(text);
  for (int i = 0; i < 10 + n; ++i) {
    const std::string key = "dir/" + std::to_string(n) + "-" + std::to_string(i);
    w.add(key + ".jpg", body_of(n, i, size + static_cast<std::size_t>(i) * 777));
    w.add(key + ".CLS", std::to_string(i));
  }
  w.finish();
  return text;
}

task<std::vector<std::string>> collect(stream<sample> in) {
  std::vector<std::string> out;
  while (std::optional<sample> s = co_await in.next()) {
    out.push_back(s->from.url() + " " + std::to_string(s->from.ordinal) + " " + s->key + " " +
                  std::to_string((*s)["jpg"].size()) + " " + std::string((*s)["cls"].view()));
  }
  co_return out;
}

template <class Generator>
std::vector<std::string> run_on_loop(Generator g) {
  const auto loop = make_event_loop();
  std::vector<std::string> out = block_on(*loop, collect(std::move(g)));
  CHECK(loop->frames() == 0);
  return out;
}

std::string failure(stream<sample> g) {
  try {
    run_on_loop(std::move(g));
  } catch (const error& e) {
    return e.what();
  }
  return "no error";
}

const fetch_options small{.shards = 3, .window = 512 * KiB, .part = 256 * KiB};

auto samples_of(s3::client c, stream<shard> source, fetch_options o = small) {
  return std::move(source) | fetch(c, o) | untar() | group_samples();
}

}  // namespace

TEST_CASE("list, fetch, untar, group: every sample once, in the order of the listing, whatever the part size") {
  s3_server::background server;
  std::vector<std::string> expected;
  for (int n = 0; n < 7; ++n) {
    const std::string key = "train/" + std::to_string(n) + ".tar";
    server.put("corpus", key, tar_of(n, 60000));
    for (int i = 0; i < 10 + n; ++i) {
      expected.push_back("s3://corpus/" + key + " " + std::to_string(i) + " dir/" + std::to_string(n) + "-" +
                         std::to_string(i) + " " + std::to_string(60000 + i * 777) + " " + std::to_string(i));
    }
  }
  server.put("corpus", "train/", std::string());  // a folder marker
  server.put("corpus", "other/x.tar", std::string("not ours"));
  s3::client c = client_of(server);
  const fetch_options variants[] = {small, {.shards = 1, .window = 64 * KiB, .part = 64 * KiB}, {}};
  for (const fetch_options& o : variants) {
    CHECK(run_on_loop(samples_of(c, c.list("s3://corpus/train/"), o)) == expected);
    CHECK(run_on_loop(samples_of(c, shards("s3://corpus/train/{0..6}.tar"), o)) == expected);  // sizes unknown
  }
}

TEST_CASE("shards are permuted and split the same way everywhere") {
  s3_server::background server;
  for (int n = 0; n < 9; ++n) server.put("corpus", "train/" + std::to_string(n) + ".tar", tar_of(n, 100));
  s3::client c = client_of(server);
  auto of_rank = [&](std::uint32_t index) {
    rank r;
    r.index = index;
    r.world_size = 2;
    return run_on_loop(samples_of(c, c.list("s3://corpus/train/") | shuffle_shards({.seed = 7}) | split_by_rank(r)));
  };
  std::vector<std::string> all = run_on_loop(samples_of(c, c.list("s3://corpus/train/")));
  std::vector<std::string> both = of_rank(0);
  const std::vector<std::string> second = of_rank(1);
  CHECK(both == of_rank(0));
  CHECK(both.size() != all.size());
  both.insert(both.end(), second.begin(), second.end());
  std::sort(both.begin(), both.end());
  std::sort(all.begin(), all.end());
  CHECK(both == all);
}

TEST_CASE("what is wrong is named: object, offset, reason") {
  using Catch::Matchers::Contains;
  s3_server::background server;
  const std::string good = tar_of(0, 1000);
  server.put("corpus", "good.tar", good);
  server.put("corpus", "cut.tar", good.substr(0, 4000));
  server.put("corpus", "page.tar", std::string("<html>") + std::string(600, ' ') + "</html>");
  server.put("corpus", "empty.tar", std::string());
  s3::client c = client_of(server);
  auto of = [&](const char* url) { return failure(samples_of(c, shards(url))); };
  CHECK_THAT(of("s3://corpus/none.tar"), Contains("s3://corpus/none.tar") && Contains("404 NoSuchKey"));
  CHECK_THAT(of("s3://nobucket/x.tar"), Contains("s3://nobucket/x.tar") && Contains("404 NoSuchBucket"));
  CHECK_THAT(of("s3://corpus/cut.tar"), Contains("s3://corpus/cut.tar at byte 2560, dir/0-1.jpg"));
  CHECK_THAT(of("s3://corpus/page.tar"), Contains("s3://corpus/page.tar at byte 0"));
  CHECK_THAT(of("s3://corpus/empty.tar"), Contains("s3://corpus/empty.tar"));
  CHECK_THAT(of("ftp://corpus/empty.tar"), Contains("no store"));
  CHECK_THAT(failure(samples_of(c, c.list("s3://corpus/nothing/"))),
             Contains("s3://corpus/nothing/") && Contains("no object"));
  s3::client wrong = client_of(server, "not-the-secret");
  const std::string refused = failure(samples_of(wrong, shards("s3://corpus/good.tar")));
  CHECK_THAT(refused, Contains("403 SignatureDoesNotMatch"));
  CHECK(refused.find("not-the-secret") == std::string::npos);
  s3::config_options nowhere;
  nowhere.endpoint = "http://127.0.0.1:1";
  nowhere.max_attempts = 2;
  s3::client down = s3::client(s3::config(nowhere), s3::credentials("k", "s"));
  CHECK_THAT(failure(samples_of(down, shards("s3://corpus/good.tar"))), Contains("127.0.0.1:1") && Contains("onnect"));
  // The samples before a broken shard are delivered first.
  const auto loop = make_event_loop();
  auto g = samples_of(c, shards("s3://corpus/{good,cut}.tar"));
  std::size_t delivered = 0;
  auto count = [](stream<sample> in, std::size_t& n) -> task<void> {
    while (co_await in.next()) ++n;
  };
  CHECK_THROWS_AS(block_on(*loop, count(std::move(g), delivered)), archive_error);
  CHECK(delivered == 10);  // the second shard's first sample is not known to be whole
}

TEST_CASE("a pipeline dropped at any moment ends its transfers and leaves nothing") {
  s3_server::background server;
  for (int n = 0; n < 5; ++n) server.put("corpus", "train/" + std::to_string(n) + ".tar", tar_of(n, 60000));
  s3::client c = client_of(server);
  const auto loop = make_event_loop();
  for (int turns = 0; turns < 60; turns += 3) {
    {
      spawned<std::vector<std::string>> running(*loop, collect(samples_of(c, c.list("s3://corpus/train/"))));
      int turn = 0;
      loop->run_until([&] { return running.done() || turn++ >= turns; });
    }
    CHECK(loop->frames() == 0);
    CHECK(http::engine::of(*loop).transfers() == 0);
  }
  loop->drain();
  CHECK(loop->timers() <= 1);  // libcurl's own, for idle connections
}
