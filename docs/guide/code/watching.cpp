// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What the page on watching a run shows.

#include <millrace/millrace.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/log.hpp>
#include <millrace/loader/export.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_data.hpp"

namespace mill = millrace;

namespace {

// begin log
/// Keeps what the library says: in a program of yours, calls its logger.
class line_keeper {
 public:
  void operator()(const mill::log_record& r) {
    std::string line = std::string(to_text(r.level)) + ' ' + std::string(r.text);
    if (!r.field("shard").empty()) line += " [shard " + std::string(r.field("shard")) + ']';
    lines.push_back(line);
  }
  std::vector<std::string> lines;
};

void keep_lines(line_keeper& keeper) { mill::set_log(keeper); }
// end log

// begin export
/// Trains, and tells Prometheus every hundred steps.
std::int64_t train(mill::pipeline_run<std::size_t> run, const std::string& file) {
  std::int64_t steps = 0;
  for (std::size_t each : run) {
    steps += each > 0;
    if (steps % 100 == 1) mill::write_prometheus(file, run.stats(), {{"rank", "0"}});
  }
  std::puts(mill::stats_json(run.stats()).c_str());
  return steps;
}
// end export

// begin trace
std::int64_t train_traced(mill::runtime& rt, mill::stream<std::size_t> items) {
  std::int64_t steps = 0;
  for (std::size_t each : rt.run(std::move(items), {.trace = "out.json"})) steps += each > 0;
  return steps;
}
// end trace

}  // namespace

TEST_CASE("the guide's log is what its page says", "[guide]") {
  line_keeper keeper;
  keep_lines(keeper);
  const mill::failure_policy skip{.then = mill::on_failure::skip};
  const auto label = [](const mill::shard& s) -> int {
    throw mill::decode_error("no label", mill::where{s.url, {}, {}});
  };
  {
    auto run = mill::run(mill::shards("train-0.tar") | mill::map(label, skip));
    CHECK_FALSE(run.next());
  }
  mill::set_log(nullptr);
  CHECK(keeper.lines == std::vector<std::string>{
                            "warning millrace: map: left out: train-0.tar: no label [shard train-0.tar]"});
}

TEST_CASE("the guide's trace is what its page says", "[guide]") {
  mill::runtime rt;
  CHECK(train_traced(rt, mill::shards("train-{0..8}.tar") |
                             mill::map([](const mill::shard& s) { return s.url.size(); })) == 9);
  CHECK(mill::test::read_file("out.json").find("\"first item\"") != std::string::npos);
  std::remove("out.json");
}

TEST_CASE("the guide's export is what its page says", "[guide]") {
  mill::test::temporary_folder folder;
  const std::string file = folder.file("millrace.prom");
  auto run = mill::run(mill::shards("train-{0..8}.tar") | mill::map([](const mill::shard& s) { return s.url.size(); }));
  CHECK(train(std::move(run), file) == 9);
  CHECK(mill::test::read_file(file).find("millrace_run_items_total{rank=\"0\"} 1\n") != std::string::npos);
}
