// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/failure_policy.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <millrace/decode/parse_label.hpp>
#include <millrace/flow/bucket_by_length.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/shards/sample.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace flow_tests;
using namespace std::chrono_literals;
using mill::testing::virtual_loop;
using labels = std::vector<std::int64_t>;

namespace {

constexpr mill::failure_policy skip{.then = mill::on_failure::skip, .report = false};
const std::string second = "s3://b/a.tar at byte 1024, train/a-key-that-needs-memory-of-its-own-1: ";
const std::string no_number = "the label is not a number: \"cat\"";

/// Samples with the labels 0, "cat", 2, 3 and so on, at byte 512 * (i + 1).
std::vector<mill::sample> samples(int n, int bad = 1) {
  const auto from = std::make_shared<const mill::shard>("s3://b/a.tar");
  std::vector<mill::sample> all;
  for (int i = 0; i < n; ++i) {
    mill::sample s("train/a-key-that-needs-memory-of-its-own-" + std::to_string(i),
                   mill::origin(from, 512u * static_cast<unsigned>(i + 1), static_cast<unsigned>(i)));
    s.fields.emplace_back("cls", mill::bytes::copy(i == bad ? "cat" : std::to_string(i)));
    all.push_back(std::move(s));
  }
  return all;
}

std::int64_t label(mill::sample s) { return mill::parse_label(s["cls"]); }
std::int64_t label_of(const mill::sample& s) { return mill::parse_label(s["cls"]); }
mill::task<std::int64_t> slow_label(mill::sample s) {
  co_await mill::sleep_for(1ms);
  co_return mill::parse_label(s["cls"]);
}

/// The one error that the stream ends with.
template <class Error = mill::decode_error, class T>
Error error_of(mill::stream<T> stream) {
  virtual_loop loop;
  try {
    mill::block_on(loop, mill::collect(std::move(stream)));
  } catch (const Error& e) {
    return e;
  }
  throw std::logic_error("no error");
}

TEST_CASE("what the function of a map throws names the object, the offset and the key of its item") {
  const auto in = [] { return mill::from_range(samples(3)); };
  CHECK(error_of(in() | mill::map(label)).what() == second + no_number);
  CHECK(error_of(in() | mill::map(label_of)).what() == second + no_number);
  CHECK(error_of(in() | mill::map(slow_label)).what() == second + no_number);
  const mill::decode_error e = error_of(in() | mill::map(label));
  CHECK(e.object() == "s3://b/a.tar");
  CHECK(e.offset() == 1024u);
  CHECK(e.key() == "train/a-key-that-needs-memory-of-its-own-1");
  CHECK(e.reason() == no_number);
}

TEST_CASE("what the function of a map_concurrent throws names its item, on the loop and on a pool") {
  mill::cpu_pool cores(2);
  for (const std::size_t limit : {1u, 2u, 8u}) {
    for (const mill::order order : {mill::order::ordered, mill::order::arrival}) {
      auto tasks =
          mill::from_range(samples(20, 13)) | mill::map_concurrent(slow_label, {.limit = limit, .order = order});
      CHECK(error_of(std::move(tasks)).offset() == 512u * 14);
      auto jobs = mill::from_range(samples(20, 13)) |
                  mill::map_concurrent(label, {.limit = limit, .order = order, .on = cores});
      const mill::decode_error e = error_of(std::move(jobs));
      CHECK(e.key() == "train/a-key-that-needs-memory-of-its-own-13");
      CHECK(e.offset() == 512u * 14);
      CHECK(e.object() == "s3://b/a.tar");
    }
  }
}

TEST_CASE("what a filter's predicate throws names its item") {
  const auto odd = [](const mill::sample& s) { return mill::parse_label(s["cls"]) % 2 == 1; };
  const auto slow_odd = [](const mill::sample& s) -> mill::task<bool> {
    co_return mill::parse_label(s["cls"]) % 2 == 1;
  };
  CHECK(error_of(mill::from_range(samples(3)) | mill::filter(odd)).what() == second + no_number);
  CHECK(error_of(mill::from_range(samples(3)) | mill::filter(slow_odd)).what() == second + no_number);
}

TEST_CASE("a policy's list names the items, for exceptions of any type") {
  mill::cpu_pool cores(2);
  const mill::failure_policy one{.then = mill::on_failure::skip, .limit = 1, .report = false};
  const auto foreign = [](mill::sample s) -> std::int64_t {
    if (s.from.ordinal == 1) throw std::runtime_error("of another library");
    if (s.from.ordinal == 2) throw 7;
    return mill::parse_label(s["cls"]);
  };
  const auto check = [&](mill::stream<std::int64_t> stream) {
    const auto e = error_of<mill::too_many_failures>(std::move(stream));
    REQUIRE(e.messages().size() == 2);
    CHECK(e.messages()[0] == second + "of another library");
    CHECK(e.messages()[1] ==
          "s3://b/a.tar at byte 1536, train/a-key-that-needs-memory-of-its-own-2: an exception that is no "
          "std::exception");
  };
  check(mill::from_range(samples(5)) | mill::map(foreign, one));
  check(mill::from_range(samples(5)) | mill::map_concurrent(foreign, {.limit = 1, .on = cores, .failures = one}));
  check(mill::from_range(samples(5)) | mill::map_concurrent(foreign, {.limit = 4, .on = cores, .failures = one}));
  const mill::failure_policy none{.then = mill::on_failure::skip, .limit = 0, .report = false};
  for (const auto& e :
       {error_of<mill::too_many_failures>(mill::from_range(samples(3)) | mill::map(label, none)),
        error_of<mill::too_many_failures>(mill::from_range(samples(3)) | mill::map(slow_label, none)),
        error_of<mill::too_many_failures>(mill::from_range(samples(3)) |
                                          mill::map_concurrent(slow_label, {.limit = 2, .failures = none}))}) {
    REQUIRE(e.messages().size() == 1);
    CHECK(e.messages()[0] == second + no_number);
  }
  CHECK(run(mill::from_range(samples(4)) | mill::map(label, skip)) == labels{0, 2, 3});
}

TEST_CASE("an error that has a place keeps its own, and errors about options have none") {
  const auto elsewhere = [](const mill::sample& s) {
    return mill::parse_label(s["cls"], mill::where{"labels.csv", 7, ""});
  };
  CHECK(error_of(mill::from_range(samples(3)) | mill::map(elsewhere)).what() == "labels.csv at byte 7: " + no_number);
  const auto by_hand = [](const mill::sample& s) { return mill::parse_label(s["cls"], s.from.at(s.key)); };
  CHECK(error_of(mill::from_range(samples(3)) | mill::map(by_hand)).what() == second + no_number);
  const auto wrong = [](const mill::sample&) -> int { throw mill::configuration_error("no such mode"); };
  CHECK(error_of<mill::configuration_error>(mill::from_range(samples(3)) | mill::map(wrong)).what() ==
        std::string("no such mode"));
  // The stage before has said which item it was.
  const auto nested = [](const mill::sample& s) { return s; };
  CHECK(
      error_of(mill::from_range(samples(3)) | mill::map(label) | mill::map([](std::int64_t x) { return x; })).what() ==
      second + no_number);
  CHECK(error_of(mill::from_range(samples(3)) | mill::map(nested) | mill::map(label)).what() == second + no_number);
}

TEST_CASE("an item of another shard is named by its own, and one of none by its key") {
  std::vector<mill::sample> mixed = samples(2, 5);
  mixed.emplace_back("made", mill::origin());
  mixed.back().fields.emplace_back("cls", mill::bytes::copy("cat"));
  CHECK(error_of(mill::from_range(mixed) | mill::map(label)).what() == "made: " + no_number);
  mixed.back() =
      mill::sample("k", mill::origin(std::make_shared<const mill::shard>("https://u:secret@h/b.tar?sig=1"), 0, 0));
  mixed.back().fields.emplace_back("cls", mill::bytes::copy("cat"));
  CHECK(error_of(mill::from_range(mixed) | mill::map(label)).what() == "https://h/b.tar at byte 0, k: " + no_number);
}

/// A type of a user, with an origin and no key.
class located {
 public:
  int value = 0;
  mill::origin from;
};

TEST_CASE("members are named by their entry, and types of users by what they have") {
  const auto from = std::make_shared<const mill::shard>("s3://b/a.tar");
  mill::member m;
  m.entry.name = "train/1.jpg";
  m.from = mill::origin(from, 512, 0);
  const auto refuse_member = [](mill::member taken) -> int {
    throw mill::decode_error("no " + std::to_string(taken.entry.body.size()));
  };
  CHECK(error_of(mill::from_range(std::vector<mill::member>{m}) | mill::map(refuse_member)).what() ==
        std::string("s3://b/a.tar at byte 512, train/1.jpg: no 0"));
  located mine;
  mine.from = mill::origin(from, 512, 0);
  const auto refuse = [](located taken) -> int { throw mill::decode_error("no " + std::to_string(taken.value)); };
  CHECK(error_of(mill::from_range(std::vector<located>{mine}) | mill::map(refuse)).what() ==
        std::string("s3://b/a.tar at byte 512: no 0"));
}

// ---- exceptions that are not the library's

/// A type of a user that derives from nothing.
struct refusal {
  int code;
};

/// What the stream ends with: the place, and the type and text of what is nested in it.
template <class T>
std::string foreign_of(mill::stream<T> stream) {
  virtual_loop loop;
  try {
    mill::block_on(loop, mill::collect(std::move(stream)));
  } catch (const mill::item_error& e) {
    CHECK(e.object() == "s3://b/a.tar");
    CHECK(e.offset() == 1024u);
    CHECK(e.key() == "train/a-key-that-needs-memory-of-its-own-1");
    CHECK(e.what() == second + e.reason());
    try {
      std::rethrow_if_nested(e);
    } catch (const std::invalid_argument& inner) {
      return std::string("invalid_argument: ") + inner.what();
    } catch (const std::runtime_error& inner) {
      return std::string("runtime_error: ") + inner.what();
    } catch (const refusal& inner) {
      CHECK(e.reason() == "an exception that is no std::exception");
      return "refusal " + std::to_string(inner.code);
    } catch (int inner) {
      CHECK(e.reason() == "an exception that is no std::exception");
      return "int " + std::to_string(inner);
    }
    return "nothing nested";
  } catch (const std::bad_alloc& e) {
    CHECK(e.what() == second + std::bad_alloc().what());
    try {
      std::rethrow_if_nested(e);
    } catch (const std::bad_array_new_length&) {
      return "bad_array_new_length";
    } catch (const std::bad_alloc&) {
      return "bad_alloc";
    }
    return "a bad_alloc, nothing nested";
  }
  return "no error";
}

int refuse(const mill::sample& s, int how) {
  if (s.from.ordinal != 1) return 0;
  if (how == 0) return std::stoi(std::string(s["cls"].view()));  // "cat"
  if (how == 1) throw std::runtime_error("of another library");
  if (how == 2) throw refusal{5};
  if (how == 3) throw 42;
  throw std::bad_alloc();
}
const std::vector<std::string> refusals = {"invalid_argument: stoi", "runtime_error: of another library", "refusal 5",
                                           "int 42", "bad_alloc"};

/// Every stage that calls a function of the program, with that function.
template <class Check>
void each_stage(Check check) {
  mill::cpu_pool cores(2);
  for (int how = 0; how < 5; ++how) {
    const auto in = [] { return mill::from_range(samples(3)); };
    const auto f = [how](const mill::sample& s) { return refuse(s, how); };
    const auto slow = [how](mill::sample s) -> mill::task<int> {
      co_await mill::sleep_for(1ms);
      co_return refuse(s, how);
    };
    const auto member = [how](mill::sample s) -> std::vector<int> { return {refuse(s, how)}; };
    const auto lazily = [](mill::sample s, int h) -> mill::async_generator<int> {
      int made = refuse(s, h);
      co_yield mill::give(made);
    };
    const auto opened = [how, lazily](mill::sample s) { return lazily(std::move(s), how); };
    const auto length = [f](const mill::sample& s) { return static_cast<std::size_t>(f(s) + 1); };
    const std::string& expected = refusals[static_cast<std::size_t>(how)];
    check("map", foreign_of(in() | mill::map(f)), expected);
    check("map by task", foreign_of(in() | mill::map(slow)), expected);
    check("filter", foreign_of(in() | mill::filter([f](const mill::sample& s) { return f(s) == 0; })), expected);
    check("filter by task", foreign_of(in() | mill::filter([how](const mill::sample& s) -> mill::task<bool> {
                                         co_return refuse(s, how) == 0;
                                       })),
          expected);
    check("map_concurrent", foreign_of(in() | mill::map_concurrent(f, {.limit = 2, .on = cores})), expected);
    check("by tasks", foreign_of(in() | mill::map_concurrent(slow, {.limit = 2})), expected);
    check("flat_map", foreign_of(in() | mill::flat_map(member)), expected);
    check("flat_map of a generator", foreign_of(in() | mill::flat_map(opened)), expected);
    check("bucket_by_length",
          foreign_of(in() | mill::bucket_by_length(length, {.batch = 2})), expected);
  }
}

TEST_CASE("exceptions of any type that a function throws say shard, byte and key, and are nested") {
  each_stage([](const char* stage, const std::string& got, const std::string& expected) {
    INFO(stage);
    CHECK(got == expected);
  });
}

TEST_CASE("an exception about an item that has no place stays what it is") {
  const auto f = [](int i) -> int { throw refusal{i}; };
  virtual_loop loop;
  CHECK_THROWS_AS(mill::block_on(loop, mill::collect(mill::from_range(std::vector<int>{1}) | mill::map(f))), refusal);
  const auto full = [](int) -> int { throw std::bad_array_new_length(); };
  CHECK_THROWS_AS(mill::block_on(loop, mill::collect(mill::from_range(std::vector<int>{1}) | mill::map(full))),
                  std::bad_array_new_length);
}

TEST_CASE("an exception is given a place once, by the stage that it comes from") {
  const auto later = [](mill::stream<int> in) { return std::move(in) | mill::map([](int x) { return x; }); };
  const auto first = mill::map([](const mill::sample& s) { return refuse(s, 0); });
  CHECK(foreign_of(later(mill::from_range(samples(3)) | first)) == "invalid_argument: stoi");
  const auto twice = mill::map([](const mill::sample& s) -> mill::sample {
    refuse(s, 0);
    return s;
  });
  const auto last = mill::map([](const mill::sample& s) { return refuse(s, 3); });
  CHECK(foreign_of(mill::from_range(samples(3)) | twice | last) == "invalid_argument: stoi");
}

TEST_CASE("lack of memory is never forgiven, and says its item") {
  const auto none = [](const mill::sample& s) { return refuse(s, 4); };
  CHECK(foreign_of(mill::from_range(samples(3)) | mill::map(none, skip)) == "bad_alloc");
  CHECK(foreign_of(mill::from_range(samples(3)) | mill::map_concurrent([](mill::sample s) -> mill::task<int> {
          co_return refuse(s, 4);
        }, {.failures = skip})) == "bad_alloc");
}

}  // namespace
