// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/failures.md.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/decode/parse_label.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/shard_epochs.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

namespace mill = millrace;

namespace {

std::string shard_of(const std::vector<std::string>& labels) {
  std::string tar;
  mill::tar::writer w(tar);
  for (std::size_t i = 0; i < labels.size(); ++i) w.add(std::to_string(i) + ".cls", labels[i]);
  w.finish();
  return tar;
}

// begin client
mill::s3::client client_of(const std::string& endpoint) {
  mill::s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  o.max_attempts = 5;                           // the first try counts; 3 unless told otherwise
  o.retry.patience = std::chrono::minutes(30);  // with a store that asks for fewer requests; 10 unless told otherwise
  o.retry.hedges = 0.01;                        // requests more for parts that are late, of all; 0.02 unless told
  return mill::s3::client(mill::s3::config(o), mill::s3::credentials("test-key", "test-secret"));
}
// end client

// begin label
std::int64_t label(const mill::sample& s) {
  return mill::parse_label(s["cls"]);  // decode_error: "<shard> at byte N, <key>: the label is not a number: ..."
}
// end label

// begin skip
auto labels_of(const std::string& url, const mill::s3::client& s3) {
  const mill::failure_policy bear{.then = mill::on_failure::skip,  // leave it out, count it, report it
                                  .limit = 100,                    // in the whole stream
                                  .rate = 0.3};                    // and as a share of its items
  return mill::shards(url)                                         //
         | mill::fetch(s3)                                         //
         | mill::untar()                                           //
         | mill::group_samples()                                   //
         | mill::map_concurrent(label, {.failures = bear});
}
// end skip

// begin told
/// Writes a list of what is wrong with the data: shard, byte, key, reason.
std::size_t train_and_list(mill::runtime& rt, mill::stream<std::int64_t> labels, std::FILE* list) {
  const auto write = [&](const mill::skipped_item& item) {
    std::fprintf(list, "%s\t%llu\t%s\t%s\n", item.shard.c_str(),
                 static_cast<unsigned long long>(item.offset.value_or(0)), item.key.c_str(), item.reason.c_str());
  };
  std::size_t steps = 0;
  for (std::int64_t each : rt.run(std::move(labels), {.skipped = write})) steps += each >= 0;
  return steps;
}
// end told

// begin shards
auto bearing(const mill::dataset& data, mill::rank r) {
  return mill::epochs(data, {.seed = 7,
                             .batch = 256,
                             .rank = r,
                             .failures = {.then = mill::on_failure::skip, .limit = 10000}});  // samples of this rank
}
// end shards

// begin listed
auto opened(mill::stream<mill::shard> list, const std::shared_ptr<const mill::storage>& store) {
  const auto open = [store](const mill::shard& s) {
    return mill::from_range(std::vector<mill::shard>{s}) | mill::fetch(store) | mill::untar_plain() |
           mill::group_samples();
  };
  return mill::shard_epochs(std::move(list), {.seed = 7, .epochs = 3}) | mill::map(open) |
         mill::interleave({.width = 8, .failures = {.then = mill::on_failure::skip, .limit = 10}});  // shards
}
// end listed

// begin catch
std::string train(mill::stream<std::int64_t> labels) {
  std::size_t steps = 0;
  try {
    for (std::int64_t each : mill::run(std::move(labels))) steps += each >= 0;
    return std::to_string(steps) + " steps";
  } catch (const mill::too_many_failures& e) {  // the policy's limit; messages() are the first ten
    return "bad data: " + std::to_string(e.failed()) + " of " + std::to_string(e.items());
  } catch (const mill::s3::error& e) {  // the store refused: status(), code(), after all attempts
    return "store: " + e.code();
  } catch (const mill::archive_error& e) {  // a shard that is truncated, or no tar
    return "archive: " + e.object();
  } catch (const mill::error& e) {  // everything else about data, stores and configuration
    return e.what();
  }
}
// end catch

}  // namespace

TEST_CASE("the guide's failures are what its page says", "[guide]") {
  mill::s3_server::background server;
  const mill::s3::client s3 = client_of(server.endpoint());
  server.put("corpus", "good.tar", shard_of({"1", "2", "3", "4"}));
  server.put("corpus", "one.tar", shard_of({"1", "2", "three", "4"}));
  server.put("corpus", "two.tar", shard_of({"1", "two", "three", "4"}));
  server.put("corpus", "cut.tar", shard_of({"1", "2"}).substr(0, 1300));
  mill::runtime rt;
  std::FILE* const list = std::tmpfile();
  CHECK(train_and_list(rt, labels_of("s3://corpus/one.tar", s3), list) == 3);
  std::rewind(list);
  char line[200] = {};
  CHECK(std::fgets(line, sizeof line, list) != nullptr);
  CHECK(std::string(line).substr(0, 28) == "s3://corpus/one.tar\t2048\t2\tt");
  CHECK(std::fgets(line, sizeof line, list) == nullptr);
  std::fclose(list);
  using mill::s3_server::fault;
  server.faults().add({.method = "GET", .key = "good.tar", .times = 1}, fault::reset_in_body(100));
  CHECK(train(labels_of("s3://corpus/good.tar", s3)) == "4 steps");
  CHECK(server.faults().injected() == 1);
  CHECK(train(labels_of("s3://corpus/one.tar", s3)) == "3 steps");
  CHECK(train(labels_of("s3://corpus/two.tar", s3)) == "bad data: 2 of 4");
  CHECK(train(labels_of("s3://corpus/cut.tar", s3)) == "archive: s3://corpus/cut.tar");
  CHECK(train(labels_of("s3://corpus/none.tar", s3)) == "store: NoSuchKey");
}

TEST_CASE("the guide's page on failures: bad shards") {
  const mill::test::tar_dataset data({5, 6, 7}, 300);
  data.store->bad["mem:101.tar"] = mill::test::harm::cut;
  mill::runtime rt;
  std::size_t empty = 0;
  auto run = rt.run(bearing(mill::dataset(data.store, data.indexes, {.prefix = "mem:"}), {}));
  while (const auto s = run.next()) empty += s->weight() == 0;
  CHECK(empty == 6 + 256 - 18);
  CHECK(run.stats().lost.at(0).samples == 6);
  std::size_t whole = 0;
  for (const mill::sample& s : rt.run(opened(mill::shards("mem:10{0..2}.tar"), data.store))) {
    whole += s.from.url() != "mem:101.tar";
  }
  CHECK(whole == 3 * 12);
}
