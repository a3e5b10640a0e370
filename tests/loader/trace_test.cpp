// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The trace of a run: its lanes add up to stats(), its file is what Perfetto reads, its memory is bounded.

#include <millrace/loader/detail/run_trace.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/log.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

s3::client client_of(const std::string& endpoint) {
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  return s3::client(s3::config(o), std::make_shared<s3::fixed_credentials>(s3::credentials("test-key", "test-secret")));
}

struct row {
  explicit row(float v) : value(v) {}
  float value;
};
void collate(const row& r, sample_writer& out) { out.write("value", r.value); }

/// Reads a trace by the rules of its format, and compares sums of its lanes with what stats() has.
const char* const checker = R"(
import collections, json, sys
d = json.load(open(sys.argv[1], encoding='utf-8'))
expected = dict(a.split('=') for a in sys.argv[2:])
sums, lanes, open_, tracks, count = collections.Counter(), {}, {}, collections.defaultdict(list), collections.Counter()
for e in d['traceEvents']:
    assert isinstance(e['name'], str) and isinstance(e['pid'], int) and isinstance(e['tid'], int), e
    if e['ph'] == 'M':
        assert e['args'], e
        if e['name'] == 'thread_name': lanes[e['tid']] = e['args']['name']
        continue
    assert e['ts'] >= 0 and e['cat'], e
    if e['ph'] == 'X':
        assert e['dur'] >= 0 and e['tid'] in lanes, e
        tracks[e['tid']].append((e['ts'], e['ts'] + e['dur']))
        sums[e['name']] += e['dur'] / 1e6
        count[e['name']] += 1
    elif e['ph'] == 'b':
        open_[e['cat'], e['id']] = e
    else:
        assert e['ph'] == 'e', e
        b = open_.pop((e['cat'], e['id']))
        assert b['ts'] <= e['ts'] and b['name'] == e['name'], e
        sums[e['name']] += (e['ts'] - b['ts']) / 1e6
        count[e['name']] += 1
assert not open_, open_
for tid, spans in tracks.items():
    spans.sort()
    for a, b in zip(spans, spans[1:]): assert a[1] <= b[0] + 0.002, (lanes[tid], a, b)
kinds = {n.rstrip('0123456789 ') for n in lanes.values()}
assert kinds == {'training thread', 'pool thread', 'connection'}, lanes
assert count['page'] >= 1 and count['copy'] >= 1 and count['part'] >= 1 and count['first item'] == 1, count
assert d['otherData']['dropped_events'] == expected.pop('dropped'), d['otherData']
sums['request'] = sums['queue'] + sums['first byte'] + sums['body']
for name, value in expected.items():
    value = float(value)
    assert abs(sums[name] - value) <= 0.01 * value + 1e-6, (name, sums[name], value)
)";

std::string number(double v) { return std::to_string(v); }

/// Ranges that were pushed, by name; those of a thread that were not, or not in their order, popped.
struct told_ranges {
  std::mutex mutex;
  std::map<std::string, int> pushed;
  std::map<std::thread::id, std::vector<std::string>> open;
  int popped_too_often = 0;
};
told_ranges told;

const profiler_ranges telling = {
    [](const char* name) noexcept {
      const std::lock_guard lock(told.mutex);
      ++told.pushed[name];
      told.open[std::this_thread::get_id()].push_back(name);
    },
    []() noexcept {
      const std::lock_guard lock(told.mutex);
      std::vector<std::string>& mine = told.open[std::this_thread::get_id()];
      if (mine.empty()) {
        ++told.popped_too_often;
      } else {
        mine.pop_back();
      }
    },
};

}  // namespace

TEST_CASE("a trace is what its format allows, and its lanes add up to stats()") {
  s3_server::background server;
  for (int i = 0; i < 6; ++i) server.put("x", "k" + std::to_string(i), std::string(300'000, 'x'));
  test::temporary_folder folder;
  const std::string file = folder.file("out.json");
  run_stats s;
  {
    runtime rt({.threads = 2});
    const s3::client client = client_of(server.endpoint());
    const auto work = [](const chunk& c) {
      const std::int64_t until = monotonic_ns() + 2'000'000;
      while (monotonic_ns() < until) continue;
      return row(static_cast<float>(c.data.size()));
    };
    auto run =
        rt.run(client.list("s3://x/k") | fetch(client) | map_concurrent(work) | batch(2) | to_device(host_device()),
               {.show = progress::off, .trace = file.c_str()});
    for (auto& b : run) {
      static_cast<void>(b);
      const std::int64_t until = monotonic_ns() + 3'000'000;
      while (monotonic_ns() < until) continue;
    }
    s = run.stats();
  }
  double jobs = 0;
  for (const stage_stats& each : s.stages) jobs += each.name == "map_concurrent" ? each.jobs.sum : 0;
  CHECK(jobs > 0.01);
  const std::string script = folder.file("check.py");
  std::ofstream(script) << checker;
  const std::string command = "python3 " + script + ' ' + file + " dropped=0 step=" + number(s.steps.sum) +
                              " wait=" + number(s.waits.sum) + " map_concurrent=" + number(jobs) +
                              " part=" + number(s.requests.part.sum) + " request=" + number(s.requests.request.sum);
  INFO(command);
  CHECK(std::system(command.c_str()) == 0);
}

TEST_CASE("a profiler hears of jobs, copies and steps as they begin and end, on the threads that do them") {
  told.pushed.clear();
  told.open.clear();
  const std::thread::id training = std::this_thread::get_id();
  {
    runtime rt({.threads = 2, .ranges = &telling});
    const auto rows = [] {
      return shards("train-{0..7}.tar") | map_concurrent([](const shard& s) { return row(float(s.url.size())); }) |
             batch(2) | to_device(host_device());
    };
    const auto open_now = [&training] {
      const std::lock_guard lock(told.mutex);
      return told.open[training];
    };
    {
      auto run = rt.run(rows());
      CHECK(open_now().empty());
      for (int i = 0; i < 4; ++i) {
        CHECK(run.next());
        CHECK(open_now() == std::vector<std::string>{"step"});
      }
      CHECK_FALSE(run.next());
      CHECK(open_now().empty());
    }
    std::string all;
    for (const auto& [name, times] : told.pushed) all += std::to_string(times) + ' ' + name + ", ";
    CHECK(all == "4 copy, 1 first item, 8 map_concurrent, 4 step, 4 to_device, 4 wait, ");
    {
      auto run = rt.run(rows());  // dropped in a step
      CHECK(run.next());
    }
    CHECK(open_now().empty());
  }
  for (const auto& [thread, left] : told.open) CHECK(left.empty());
  CHECK(told.popped_too_often == 0);
}

TEST_CASE("a ring keeps the latest events, and says how many it dropped") {
  detail::tracer t(4);
  CHECK_FALSE(t.on());
  t.add({.begin = 1, .end = 2, .name = "before"});
  std::uint32_t run = 0;
  const std::uint64_t since = t.start(run);
  CHECK(t.on());
  CHECK(run == 1);
  static const char* const names[] = {"a", "b", "c", "d", "e", "f"};
  for (const char* each : names) t.add({.begin = 10, .end = 20, .name = each, .lane = detail::trace_lane::pool});
  std::uint64_t dropped = 0;
  const std::vector<detail::trace_event> left = t.stop(since, dropped);
  CHECK_FALSE(t.on());
  CHECK(dropped == 2);
  REQUIRE(left.size() == 4);
  CHECK(std::string(left[0].name) == "c");
  CHECK(std::string(left[3].name) == "f");
  CHECK_THAT(detail::run_trace::text(left, dropped, 0, 3),
             Contains("\"dropped_events\": \"2\"") && Contains("\"pid\": 3") && Contains("\"ts\": 0.010"));
}

TEST_CASE("each event has its own name and lane in the text, with more of them than are kept from the last time") {
  // One name in two lanes and of two threads, and more names than there are places for the beginnings of lines.
  std::vector<std::string> names(600);
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = "stage \"" + std::to_string(i) + '"';
  std::vector<detail::trace_event> events;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::int64_t at = 1'000 * static_cast<std::int64_t>(events.size());
      const auto key = static_cast<std::uint32_t>(i % 2);
      events.push_back(
          {.begin = at, .end = at + 500, .name = names[i].c_str(), .lane = detail::trace_lane::pool, .key = key});
      events.push_back(
          {.begin = at, .end = at + 250, .name = names[i].c_str(), .lane = detail::trace_lane::part, .bytes = 7});
    }
  }
  const std::string text = detail::run_trace::text(events, 0, 0, 0);
  std::size_t from = text.find("thread_sort_index", text.find("thread_sort_index") + 1);
  from = text.find('\n', from);
  std::string expected;
  std::int64_t id = 0;
  for (std::size_t i = 0; i < events.size(); i += 2) {
    const std::string name = "{\"name\": \"stage \\\"" + std::to_string(i / 2 % names.size()) + "\\\"\", \"cat\": ";
    const std::string us = std::to_string(i);
    expected += '\n' + name + "\"pool thread\", \"pid\": 0, \"tid\": " + std::to_string(i / 2 % 2 + 1) +
                ", \"ph\": \"X\", \"ts\": " + us + ".000, \"dur\": 0.500},";
    const std::string part = '\n' + name + "\"part\", \"pid\": 0, \"tid\": 0, \"id\": " + std::to_string(++id);
    expected += part + ", \"ph\": \"b\", \"ts\": " + us + ".000, \"args\": {\"bytes\": 7}}," + part +
                ", \"ph\": \"e\", \"ts\": " + us + ".250},";
  }
  expected.back() = '\n';
  CHECK(text.substr(from) == expected + "]}\n");
}

TEST_CASE("files of a variable have the number of the run and the rank in their names") {
  using detail::run_trace;
  CHECK(run_trace::file_of("out.json", 1, 0) == "out.json");
  CHECK(run_trace::file_of("out.json", 3, 0) == "out.3.json");
  CHECK(run_trace::file_of("/a.b/out", 2, 1) == "/a.b/out.rank1.2");
  CHECK(run_trace::file_of("a/.out", 2, 0) == "a/.out.2");
}

TEST_CASE("MILLRACE_TRACE traces the runs of a program, and without it nothing is written") {
  test::temporary_folder folder;
  const auto names = [] { return shards("train-{0..8}.tar") | map([](const shard& s) { return s.url.size(); }); };
  const auto all = [&](const char* trace) {
    runtime rt;
    auto run = rt.run(names(), {.trace = trace});
    while (run.next()) continue;
  };
  const std::string file = folder.file("v.json");
  all(nullptr);
  CHECK(::access(file.c_str(), F_OK) != 0);
  ::setenv("MILLRACE_TRACE", file.c_str(), 1);
  all(nullptr);
  all(nullptr);
  ::unsetenv("MILLRACE_TRACE");
  CHECK_THAT(test::read_file(file), Contains("first item"));
  CHECK_THAT(test::read_file(folder.file("v.2.json")), Contains("first item"));
}

TEST_CASE("a trace that cannot be written is a line in the log, and the run goes on") {
  std::string said;
  {
    const auto add = [&](const log_record& r) { said += r.text; };
    runtime rt({.log = add});
    auto run = rt.run(shards("a.tar"), {.trace = "/none/of/these/out.json"});
    CHECK(run.next());
    CHECK_FALSE(run.next());
  }
  CHECK_THAT(said, Contains("no trace: /none/of/these/out.json"));
}
