// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The one sink of what the library says: its default, a program's own, that of one runtime; levels and fields.

#include <millrace/base/log.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/shards.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/forget_lines.hpp"

using namespace millrace;

namespace {

/// What a sink was given.
struct heard {
  struct record {
    std::string level, text, fields;
  };
  std::vector<record> all;

  void operator()(const log_record& r) {
    record copy{to_text(r.level), std::string(r.text), {}};
    for (std::size_t i = 0; i < r.field_count; ++i) {
      copy.fields += std::string(r.fields[i].name) + '=' + std::string(r.fields[i].value) + ';';
    }
    all.push_back(copy);
  }
};

/// The sink of the process, while it lives.
class sink_of_process {
 public:
  explicit sink_of_process(heard& to) {
    test::forget_lines();
    set_log(to);
  }
  sink_of_process(const sink_of_process&) = delete;
  sink_of_process& operator=(const sink_of_process&) = delete;
  ~sink_of_process() { set_log(nullptr); }
};

std::size_t bad_second(const shard& s) {
  if (s.url == "b") throw decode_error("no label", where{"s3://x/b", 7, "0001"});
  return 1;
}

stream<std::size_t> one_bad() {
  failure_policy skip;
  skip.then = on_failure::skip;
  return shards(std::vector<std::string>{"a", "b", "c"}) | map(bad_second, skip);
}

template <class Run>
int count(Run r) {
  int n = 0;
  while (r.next()) ++n;
  return n;
}

const std::string left_out = "millrace: map: left out: s3://x/b at byte 7, 0001: no label";
const std::string its_fields = "stage=map;shard=s3://x/b;offset=7;key=0001;reason=no label;";

}  // namespace

TEST_CASE("a sink of the program gets what stages say: level, text, fields") {
  heard to;
  {
    const sink_of_process sink(to);
    CHECK(count(run(one_bad())) == 2);
  }
  REQUIRE(to.all.size() == 1);
  CHECK(to.all[0].level == "warning");
  CHECK(to.all[0].text == left_out);
  CHECK(to.all[0].fields == its_fields);
}

TEST_CASE("it gets what is said on other threads and before a run, and nothing goes to standard error") {
  heard to;
  test::captured_stderr captured(test::captured_stderr::into::pipe);
  {
    const sink_of_process sink(to);
    detail::say_first("a kind", "an odd image", where{"s3://x/a", 3, "k"});
    detail::say_first("a kind", "an odd image", where{"s3://x/b", 3, "k"});
    rank r;
    r.index = 1;
    r.world_size = 3;
    r.source = "test";
    CHECK(count(run(shards("train-{0..8}.tar") | split_by_rank(r))) == 3);
  }
  CHECK(captured.text() == "");
  REQUIRE(to.all.size() == 2);
  CHECK(to.all[0].fields == "shard=s3://x/a;offset=3;key=k;reason=an odd image;");
  CHECK(to.all[1].level == "info");
  CHECK(to.all[1].text == "millrace: rank 1 of 3 (test) reads 3 of 9 shards");
  CHECK(to.all[1].fields == "rank=1;");
}

TEST_CASE("the sink of a runtime takes its lines, and only these") {
  heard process, own;
  {
    const sink_of_process sink(process);
    runtime rt({.log = own});
    CHECK(count(rt.run(one_bad())) == 2);
    CHECK(count(run(one_bad())) == 2);
  }
  CHECK(own.all.size() == 1);
  CHECK(process.all.size() == 1);
}

TEST_CASE("by default lines go to standard error, and again after a sink was taken away") {
  heard to;
  { const sink_of_process sink(to); }
  test::captured_stderr captured(test::captured_stderr::into::pipe);
  CHECK(count(run(one_bad())) == 2);
  CHECK(captured.text() == left_out + "\n");
  CHECK(to.all.empty());
}

TEST_CASE("an exception that ends a run, and is no error of the library, is an error in the log") {
  heard to;
  {
    const sink_of_process sink(to);
    const auto fails = [](int i) -> int { throw std::out_of_range("vector::at" + std::to_string(i)); };
    auto r = run(from_range(std::vector<int>{1}) | map(fails));
    CHECK_THROWS(r.next());
  }
  REQUIRE(to.all.size() == 1);
  CHECK(to.all[0].level == "error");
  CHECK(to.all[0].fields == "stage=map;reason=vector::at1;");
}

TEST_CASE("a field is found by its name") {
  const log_field fields[] = {{"shard", "a"}, {"key", "b"}};
  const log_record r(log_level::info, "millrace: x", fields, 2);
  CHECK(r.field("key") == "b");
  CHECK(r.field("rank").empty());
}
