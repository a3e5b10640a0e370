// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What stats() has, as JSON and as the text of Prometheus, from runs in which something goes wrong.

#include <millrace/loader/export.hpp>

#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

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
using s3_server::fault;

namespace {

/// The text format 0.0.4, as its specification has it; throws for what is against it.
struct exposition {
  std::map<std::string, double> samples;  // by "name{labels}"
  std::map<std::string, std::string> types;
  std::set<std::string> names;  // of samples

  explicit exposition(const std::string& text) {
    if (text.empty() || text.back() != '\n') throw std::runtime_error("the last line has no end");
    std::istringstream in(text);
    std::string line, family;
    std::set<std::string> helped;
    while (std::getline(in, line)) {
      if (line.rfind("# HELP ", 0) == 0) {
        family = line.substr(7, line.find(' ', 7) - 7);
        need(valid(family) && helped.insert(family).second, line);
      } else if (line.rfind("# TYPE ", 0) == 0) {
        const std::string name = line.substr(7, line.find(' ', 7) - 7);
        const std::string type = line.substr(line.rfind(' ') + 1);
        need(name == family && types.emplace(name, type).second, line);
        need(type == "counter" || type == "gauge" || type == "histogram", line);
        need((type == "counter") == name.ends_with("_total"), line);
      } else {
        sample(line, family);
      }
    }
    check_histograms();
  }

 private:
  static void need(bool good, const std::string& line) {
    if (!good) throw std::runtime_error("against the format: " + line);
  }
  static bool valid(const std::string& name) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return false;
    for (const char c : name) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') return false;
    }
    return true;
  }
  void sample(const std::string& line, const std::string& family) {
    std::size_t i = 0;
    while (i < line.size() && line[i] != '{' && line[i] != ' ') ++i;
    const std::string name = line.substr(0, i);
    need(valid(name), line);
    std::string base = name;
    if (types[family] == "histogram") {
      for (const char* suffix : {"_bucket", "_sum", "_count"}) {
        if (base == family + suffix) base = family;
      }
    }
    need(base == family, line);  // families are not mixed
    if (line[i] == '{') {
      ++i;
      std::set<std::string> labels;
      for (;;) {
        const std::size_t equals = line.find('=', i);
        need(equals != std::string::npos && valid(line.substr(i, equals - i)), line);
        need(labels.insert(line.substr(i, equals - i)).second && line[equals + 1] == '"', line);
        for (i = equals + 2; line.at(i) != '"'; ++i) {
          if (line[i] == '\\') {
            ++i;
            need(line.at(i) == '\\' || line[i] == '"' || line[i] == 'n', line);
          }
        }
        ++i;
        if (line.at(i) == ',') {
          ++i;
        } else {
          break;
        }
      }
      need(line[i] == '}', line);
      ++i;
    }
    need(line.at(i) == ' ', line);
    char* end = nullptr;
    const double value = std::strtod(line.c_str() + i + 1, &end);
    need(end != line.c_str() + i + 1 && *end == '\0', line);
    need(samples.emplace(line.substr(0, i), value).second, line);
    names.insert(name);
  }
  void check_histograms() {
    for (const auto& [family, type] : types) {
      if (type != "histogram") continue;
      for (const auto& [key, value] : samples) {
        if (key.rfind(family + "_bucket", 0) != 0 || key.find("le=\"+Inf\"") == std::string::npos) continue;
        std::string labels = key.substr(family.size() + 7);
        const std::size_t at = labels.find("le=");
        labels.erase(at > 1 ? at - 1 : at, std::string("le=\"+Inf\"").size() + (at > 1 ? 1 : 0));
        if (labels == "{}") labels.clear();
        need(samples.at(family + "_count" + labels) == value, key);
        need(samples.count(family + "_sum" + labels) == 1, key);
      }
    }
  }
};

s3::client client_of(const std::string& endpoint) {
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  o.retry.base = std::chrono::microseconds(10);
  o.retry.throttling_base = std::chrono::microseconds(20);
  return s3::client(s3::config(o), std::make_shared<s3::fixed_credentials>(s3::credentials("test-key", "test-secret")));
}

/// A run of four objects: the first request is throttled, one body breaks off, one object is left out.
run_stats troubled() {
  s3_server::background server;
  for (const char* key : {"a", "b", "c", "d"}) server.put("x", key, std::string(300'000, 'x'));
  server.faults().add({.method = "GET", .key = "a", .times = 1}, fault::refuse(503, "SlowDown"));
  server.faults().add({.method = "GET", .key = "b", .times = 1}, fault::reset_in_body(200'000));
  failure_policy skip;
  skip.then = on_failure::skip;
  skip.report = false;
  const auto length = [](const chunk& c) {
    if (c.from->url.ends_with('c')) throw decode_error("a \"bad\"\\sample", where{c.from->url, 0, ""});
    return c.data.size();
  };
  runtime rt({.threads = 2});
  auto run = rt.run(shards("s3://x/{a,b,c,d}") | fetch(client_of(server.endpoint())) |
                        map_concurrent(length, {.failures = skip}),
                    {.show = progress::off});
  while (run.next()) continue;
  return run.stats();
}

double total(const exposition& e, const std::string& name) {
  double sum = 0;
  for (const auto& [key, value] : e.samples) {
    if (key == name || key.rfind(name + "{", 0) == 0) sum += value;
  }
  return sum;
}

}  // namespace

TEST_CASE("a run's figures count what went wrong, with the latest reason") {
  const run_stats s = troubled();
  CHECK(s.requests.retries == 2);
  CHECK(s.requests.throttles == 1);
  CHECK(s.requests.resumed == 1);
  CHECK(s.requests.hedges == 0);
  CHECK(s.requests.skipped >= 1);
  CHECK_THAT(s.requests.last_throttle, Contains("s3://x/a") && Contains("SlowDown"));
  CHECK_THAT(s.requests.last_retry, Contains("s3://x/"));
  CHECK_THAT(s.requests.last_skipped, Contains("s3://x/c"));
  CHECK(s.requests.request.count >= 4);
  CHECK(s.requests.first_byte.count == s.requests.request.count);
  CHECK(s.requests.part.count >= 4);
  CHECK(s.steps.count == static_cast<std::uint64_t>(s.items));
  CHECK(s.waits.count == static_cast<std::uint64_t>(s.items) - 1);
  CHECK(s.stages.back().jobs.count == static_cast<std::uint64_t>(s.items + s.requests.skipped));
}

TEST_CASE("the text of Prometheus is what its format allows, and has the figures") {
  const run_stats s = troubled();
  const std::string text = prometheus_text(s, {{"rank", "0"}, {"job", "a\\b\"c\nd"}});
  const exposition e(text);
  const std::string common = "{rank=\"0\",job=\"a\\\\b\\\"c\\nd\"}";
  CHECK(e.samples.at("millrace_run_items_total" + common) == static_cast<double>(s.items));
  CHECK(e.samples.at("millrace_request_retries_total" + common) == 2);
  CHECK(e.samples.at("millrace_request_duration_seconds_count" + common) ==
        static_cast<double>(s.requests.request.count));
  CHECK(total(e, "millrace_stage_job_duration_seconds_count") == static_cast<double>(s.stages.back().jobs.count));
  CHECK(total(e, "millrace_last_reason_info") == 3);
  CHECK_THAT(text, Contains("kind=\"throttle\",reason=\""));
  CHECK_THROWS_AS(prometheus_text(s, {{"a-b", "x"}}), configuration_error);
  CHECK_NOTHROW(exposition(prometheus_text(run_stats())));
}

TEST_CASE("the place in the training is in both texts, and left out of the metrics where it is not known") {
  run_stats s;
  s.seconds = 101;
  s.first_after = 1;
  s.items = 51;
  s.place = {.epoch = 2, .epochs = 4, .batch = 10, .batches = 20};
  s.placed = 50;
  REQUIRE(s.left() == Approx(60));  // 30 of 80 are left, and 50 took 100 s
  const exposition e(prometheus_text(s));
  CHECK(e.samples.at("millrace_training_epoch") == 2);
  CHECK(e.samples.at("millrace_training_epochs") == 4);
  CHECK(e.samples.at("millrace_training_batch") == 10);
  CHECK(e.samples.at("millrace_training_batches") == 20);
  CHECK(e.samples.at("millrace_training_left_seconds") == Approx(60));
  CHECK_THAT(stats_json(s), Contains("\"place\": {\"epoch\": 2, \"epochs\": 4, \"batch\": 10, \"batches\": 20}, "
                                     "\"placed\": 50, \"left\": 60,"));
  s.place.epochs = 0;  // endless
  CHECK(exposition(prometheus_text(s)).samples.at("millrace_training_left_seconds") == Approx(20));
  const exposition none(prometheus_text(run_stats()));
  CHECK(total(none, "millrace_training_batches") == 0);
  for (const auto& [name, value] : none.samples) CHECK(name.rfind("millrace_training_", 0) == std::string::npos);
  CHECK_THAT(stats_json(run_stats()), Contains("\"left\": -1,"));
}

TEST_CASE("buckets hold what is at most their bound") {
  detail::duration_histogram h;
  for (const std::int64_t ns : {0LL, 100'000LL, 100'001LL, 60'000'000'000LL, 60'000'000'001LL, -5LL}) h.add(ns);
  const duration_stats d = h.stats();
  CHECK(d.count == 6);
  CHECK(d.buckets[0] == 3);
  CHECK(d.buckets[1] == 1);
  CHECK(d.buckets[duration_stats::bounds - 1] == 1);
  CHECK(d.buckets[duration_stats::bounds] == 1);
  CHECK(d.sum == Approx(120.000200002));
}

TEST_CASE("the JSON of a run is JSON for Python, and has the figures") {
  test::temporary_folder folder;
  run_stats s = troubled();
  s.requests.last_retry = "odd: \x01\"\\\xff\xc3\xa9";
  const std::string path = folder.file("stats.json");
  std::ofstream(path, std::ios::binary) << stats_json(s);
  const std::string script = "import json, sys; d = json.load(open(sys.argv[1], encoding='utf-8')); "
                             "assert d['items'] == " + std::to_string(s.items) + ", d; "
                             "assert d['requests']['throttles'] == 1 and d['requests']['part']['count'] > 3; "
                             "assert d['requests']['last_retry'] == 'odd: \\u0001\\\"\\\\\\ufffd\\u00e9', d; "
                             "assert len(d['bucket_bounds']) + 1 == len(d['steps']['buckets']); "
                             "assert [s['name'] for s in d['stages']][-1] == 'map_concurrent'";
  const std::string checker = folder.file("check.py");
  std::ofstream(checker) << script << '\n';
  CHECK(std::system(("python3 " + checker + " " + path).c_str()) == 0);
}

TEST_CASE("the file is replaced as a whole, and what cannot be written is an error that names it") {
  test::temporary_folder folder;
  const std::string path = folder.file("millrace.prom");
  write_prometheus(path, run_stats());
  run_stats s;
  s.items = 7;
  write_prometheus(path, s);
  CHECK(test::read_file(path) == prometheus_text(s));
  CHECK(::access((path + ".part").c_str(), F_OK) != 0);
  CHECK_THROWS_WITH(write_prometheus(folder.path() + "/none/x", s), Contains("/none/x") && Contains("No such file"));
}

TEST_CASE("every metric of the dashboard and of the guide's page is exported") {
  const exposition e(prometheus_text(troubled()));
  const auto exported = [&e](const std::string& name) { return e.names.count(name) > 0 || e.types.count(name) > 0; };
  for (const char* file : {"/docs/grafana.json", "/docs/guide/watching.md"}) {
    const std::string text = test::read_file(std::string(MILLRACE_TEST_SOURCE_DIR) + file);
    int found = 0;
    for (std::size_t at = text.find("millrace_"); at != std::string::npos; at = text.find("millrace_", at + 1)) {
      std::size_t end = at;
      while (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_') ++end;
      const std::string name = text.substr(at, end - at);
      INFO(file << ": " << name);
      CHECK(exported(name));
      ++found;
    }
    CHECK(found >= 20);
  }
  const std::string page = test::read_file(std::string(MILLRACE_TEST_SOURCE_DIR) + "/docs/guide/watching.md");
  for (const auto& [name, type] : e.types) {
    INFO(name);
    CHECK_THAT(page, Contains(name));
  }
}
