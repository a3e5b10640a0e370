// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// An allocation that fails, whichever it is, ends a run in std::bad_alloc, or is not noticed in what the run gives: it
// neither aborts nor waits for ever.
//
// Each small pipeline below runs again and again, and each time another one of its allocations fails. That is done in a
// child process, as an abort would end the test: it notes in shared memory how far it is, and another one goes on after
// the allocation that it died of. On virtual time a wait without end is an error at once; the pipelines that need real
// loops are killed by an alarm, which only a test that fails waits for.

#include <millrace/train/dataset.hpp>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/log.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/disk_cache.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/replaced_new.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/tar/packers.hpp"
#include "tests/train/epochs_data.hpp"

#if !MILLRACE_ASAN && !MILLRACE_TSAN

namespace {

std::atomic<std::int64_t> asked_for{0};           // allocations of all threads
std::atomic<std::int64_t> fails_from{INT64_MAX};  // the first of them that fails
std::atomic<std::int64_t> fails_until{0};         // and the first one after it that does not

}  // namespace

bool millrace::test::allocation_fails() noexcept {
  const std::int64_t n = asked_for.fetch_add(1, std::memory_order_relaxed);
  return n >= fails_from.load(std::memory_order_relaxed) && n < fails_until.load(std::memory_order_relaxed);
}

namespace {

using namespace millrace;
using test::tar_dataset;

/// The report of a child to its parent.
struct progress {
  std::int64_t at = 0;      // the allocation that fails now
  std::int64_t failed = 0;  // how many runs ended in bad_alloc
  bool over = false;        // a run has come to its end before that allocation
  std::int64_t wrong = 0;   // runs that ended otherwise
  char first_wrong[512] = {};
};

void note_wrong(progress& of, const std::string& what) {
  if (of.wrong++ == 0) std::snprintf(of.first_wrong, sizeof of.first_wrong, "%s", what.c_str());
}

constexpr std::int64_t not_counted = -1'000'000'000;  // asked_for, while nothing is to fail

void quiet(const log_record&) {}

/// In a child: one run after the other, each with another allocation that fails, or so many in a row.
[[noreturn]] void run_all(const std::function<bool()>& right, progress& of, std::int64_t step, std::int64_t in_a_row) {
  constexpr unsigned longest = 30;  // seconds for a run of some milliseconds: it waits for ever
  set_log(&quiet);
  for (const int fatal : {SIGABRT, SIGSEGV, SIGALRM}) ::signal(fatal, SIG_DFL);  // the parent reports it
  for (;; of.at += step) {
    ::alarm(longest);
    std::string otherwise;
    asked_for = 0;
    fails_until = of.at + in_a_row;
    fails_from = of.at;
    try {
      if (!right()) note_wrong(of, "at allocation " + std::to_string(of.at) + " items are lost");
    } catch (const std::bad_alloc&) {
      ++of.failed;
    } catch (const io_error& e) {
      fails_from = INT64_MAX;
      if (e.code() != std::errc::not_enough_memory) otherwise = e.what();
    } catch (const std::exception& e) {
      fails_from = INT64_MAX;
      otherwise = e.what();
    }
    const bool reached = asked_for > of.at;
    fails_from = INT64_MAX;
    if (!otherwise.empty()) note_wrong(of, "at allocation " + std::to_string(of.at) + ": " + otherwise);
    if (reached) continue;
    of.over = true;
    ::_exit(0);
  }
}

/// Lets each allocation of a pipeline fail, or every `step`-th. `right`: runs it; whether all of it came.
void fail_each(const std::function<bool()>& right, std::int64_t step = 1, std::int64_t in_a_row = 1) {
  CHECK(right());  // also what is made on first use
  void* const memory = ::mmap(nullptr, sizeof(progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  progress& of = *new (memory) progress();
  int deaths = 0;
  while (!of.over && deaths < 5) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) run_all(right, of, step, in_a_row);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (of.over) break;
    ++deaths;
    INFO("allocation " << of.at << " of the run has failed");
    CHECK(std::string(WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : "no signal") == "none");
    of.at += step;
  }
  INFO("the first run that ended wrongly: " << of.first_wrong);
  CHECK(of.wrong == 0);
  CHECK(of.over);
  CHECK(of.failed * step > 20);  // it was tried
  ::munmap(memory, sizeof(progress));
}

/// The number of items of a batch, or the number itself.
template <class T>
std::size_t count_of(const T& item) {
  if constexpr (std::is_same_v<T, std::size_t>) {
    return item;
  } else {
    return item.size();
  }
}
template <class T>
task<std::size_t> items_of(stream<T> in) {
  std::size_t n = 0;
  while (auto item = co_await in.next()) n += count_of(*item);
  co_return n;
}
/// The samples that a pipeline gives on virtual time.
template <class T>
std::size_t on_virtual_time(stream<T> in) {
  testing::virtual_loop loop;
  return block_on(loop, items_of(std::move(in)));
}
/// A training in batches of so many samples.
test::delivered trained(stream<sample> in, std::size_t batch, std::size_t most = 1'000'000) {
  testing::virtual_loop loop;
  test::delivered out;
  block_on(loop, test::take_batches_of(std::move(in), batch, most, out));
  return out;
}
bool makes_a_pool(runtime& rt) {
  auto run = rt.run(from_range(std::vector<int>{1}) | map_concurrent([](int i) { return i; }, {.limit = 1}));
  std::size_t n = 0;
  while (run.next()) ++n;
  return n == 1;
}
/// The samples that a pipeline gives in a runtime. What making that and its pool takes is not counted: it is mostly of
/// what the system says about cores, and has a test of its own.
template <class Make>
std::size_t in_a_runtime(bool epoll, Make make) {
  asked_for = not_counted;
  runtime rt({.loops = 1, .threads = 2, .force_epoll = epoll});
  makes_a_pool(rt);
  asked_for = 0;
  auto run = rt.run(make());
  std::size_t n = 0;
  while (auto item = run.next()) n += count_of(*item);
  return n;
}

std::vector<shard> objects_of(const tar_dataset& data, bool with_size = true) {
  std::vector<shard> all;
  for (const auto& [url, content] : data.store->objects) {
    all.emplace_back(url);
    if (with_size) all.back().size = content.size();
  }
  return all;
}
stream<sample> samples_of(const tar_dataset& data, bool with_size = true) {
  return from_range(objects_of(data, with_size)) |
         fetch(std::shared_ptr<const storage>(data.store), {.window = 1 * MiB, .part = 64 * KiB}) | untar() |
         group_samples();
}
task<sample> later(sample s) {
  co_await sleep_for(std::chrono::microseconds(50));
  co_return std::move(s);
}

tar_dataset small_data() {
  tar_dataset data({3, 4, 2}, 90'000);
  data.store->delay_us = 300;
  return data;
}

}  // namespace

TEST_CASE("no memory: fetch, untar, group, shuffle, map_concurrent, buffer, batch") {
  const tar_dataset data = small_data();
  fail_each([&] {
    return on_virtual_time(samples_of(data) | shuffle({.window = 4, .seed = 3}) | map_concurrent(later, {.limit = 3}) |
                           buffer({.items = 3}) | batch(2)) == 9;
  });
}

TEST_CASE("no memory: objects of unknown size, merged and interleaved") {
  const tar_dataset data = small_data();
  fail_each([&] {
    std::vector<stream<sample>> both;
    both.push_back(samples_of(data, false));
    both.push_back(samples_of(data));
    return on_virtual_time(merge(std::move(both)) | batch(4)) == 18;
  });
  fail_each([&] {
    auto open = [&](shard s) {
      std::vector<shard> one;
      one.push_back(std::move(s));
      return from_range(std::move(one)) | fetch(std::shared_ptr<const storage>(data.store)) | untar() | group_samples();
    };
    return on_virtual_time(from_range(objects_of(data)) | map(open) | interleave({.width = 2}) | batch(4)) == 9;
  });
}

TEST_CASE("no memory: compressed objects") {
  tar_dataset data = small_data();
  for (auto& [url, content] : data.store->objects) content = test::compress("gzip", content);
  fail_each([&] { return on_virtual_time(samples_of(data) | batch(2)) == 9; });
}

namespace {

class numbered {
 public:
  explicit numbered(float n) noexcept : number(n) {}
  float number;
  friend void collate(const numbered& n, sample_writer& out) { out.write("number", n.number); }
};

}  // namespace

TEST_CASE("no memory: batches for a device") {
  const std::vector<numbered> all(10, numbered(1));
  fail_each([&] { return on_virtual_time(from_range(all) | batch(4) | to_device(host_device(), {.slots = 2})) == 10; });
}

TEST_CASE("no memory: epochs() of an index") {
  const tar_dataset data = small_data();
  test::settings o;
  o.seed = 7;
  o.batch = 3;
  o.epochs = 2;
  o.part = 64 * KiB;
  o.requests = 3;
  fail_each([&] { return trained(data.open(o), 3).samples.size() == 18; });
}

TEST_CASE("no memory: epochs() without an index, resumed") {
  const tar_dataset data({12, 9, 14}, 3000);
  data.store->delay_us = 300;
  test::settings o;
  o.seed = 7;
  o.batch = 4;
  o.streamed = true;
  o.shards = 2;
  o.window = 12;
  const auto list = [&] { return from_range(objects_of(data)); };
  const std::shared_ptr<const storage> store = data.store;
  o.resume = trained(test::train_on(list(), store, o), 4, 4).state;
  fail_each([&] { return trained(test::train_on(list(), store, o), 4).samples.size() == 35 - 16; });
}

namespace {

/// Files of a folder, plain and compressed, with nine samples and as many lines each.
class data_files {
 public:
  data_files() {
    const tar_dataset data = small_data();
    std::string lines;
    for (int i = 0; i < 9; ++i) lines += "a line with the number " + std::to_string(i) + "\n";
    int n = 0;
    for (const auto& [url, content] : data.store->objects) {
      folder_.file("plain-" + std::to_string(n) + ".tar", content);
      folder_.file("packed-" + std::to_string(n++) + ".tar.gz", test::compress("gzip", content));
    }
    folder_.file("text.gz", test::compress("gzip", lines));
  }
  std::string pattern(const std::string& names) const { return folder_.file(names); }

 private:
  test::temporary_folder folder_;
};

void fail_each_of_files(std::int64_t step, std::int64_t in_a_row = 1) {
  const data_files data;
  const auto samples = [&](const char* names) {
    return glob(data.pattern(names)) | fetch(files()) | untar() | group_samples();
  };
  for (const bool epoll : {false, true}) {
    CAPTURE(epoll);
    const auto plain = [&] {
      return samples("plain-*") | map_concurrent([](sample s) { return s; }, {.limit = 3}) | batch(2);
    };
    fail_each([&] { return in_a_runtime(epoll, plain) == 9; }, step, in_a_row);
    const auto packed = [&] { return samples("packed-*") | batch(2); };
    fail_each([&] { return in_a_runtime(epoll, packed) == 9; }, step, in_a_row);
    const auto text = [&] {
      return glob(data.pattern("text.gz")) | fetch(files()) | lines() |
             map([](const line_batch& some) -> std::size_t { return some.size(); });
    };
    fail_each([&] { return in_a_runtime(epoll, text) == 9; }, step, in_a_row);
  }
}

void fail_each_of_a_store(std::int64_t step, std::int64_t in_a_row = 1) {
  s3_server::background server;
  const tar_dataset data = small_data();
  for (const auto& [url, content] : data.store->objects) server.put("b", "t/" + url.substr(4), content);
  const auto client = [&] {
    s3::config_options how;
    how.endpoint = server.endpoint();
    how.region = "us-east-1";
    return s3::client(s3::config(how), s3::credentials("test-key", "test-secret"));
  };
  for (const bool epoll : {false, true}) {
    CAPTURE(epoll);
    const auto listed = [&] {
      const s3::client c = client();
      return c.list("s3://b/t/") | fetch(c) | untar() | group_samples() | batch(2);
    };
    fail_each([&] { return in_a_runtime(epoll, listed) == 9; }, step, in_a_row);
    const auto indexed = [&] {
      const dataset train(client(), "s3://b/t/");
      return epochs(train, {.seed = 7, .batch = 3}) | batch();
    };
    fail_each([&] { return in_a_runtime(epoll, indexed) == 9; }, step, in_a_row);
  }
  const test::temporary_folder folder;
  const std::string place = folder.file("cache");
  const auto cached = [&] {
    const s3::client c = client();
    const auto store = disk_cache(c, {.directory = place, .bytes = 64 * MiB, .keep_free = 0});
    return c.list("s3://b/t/") | fetch(store) | untar() | group_samples() | batch(2);
  };
  const auto anew = [&] {
    asked_for = not_counted;
    std::filesystem::remove_all(place);
    return in_a_runtime(false, cached) == 9;
  };
  fail_each(anew, 2 * step, in_a_row);
  const bytes half = bytes::copy(std::string(3 * MiB, 'x'));
  const auto sent_and_read = [&] {
    const auto loop = make_event_loop();
    const s3::client c = client();
    const auto sent = block_on(*loop, c.put("s3://b/two", from_range(std::vector{half, half}), {.part = 5 * MiB}));
    return block_on(*loop, c.read("s3://b/two")).size() == sent.size && sent.size == 6 * MiB;
  };
  fail_each(sent_and_read, 2 * step, in_a_row);
}

void fail_each_of_a_runtime(std::int64_t step) {
  fail_each(
      [] {
        runtime rt({.loops = 2, .threads = 2});
        return makes_a_pool(rt);
      },
      step);
}

}  // namespace

TEST_CASE("no memory: files, in a runtime, on both loops") { fail_each_of_files(3); }

TEST_CASE("no memory: a store, in a runtime, on both loops") { fail_each_of_a_store(11); }

TEST_CASE("no memory: each allocation, in a runtime, on both loops", "[slow]") {
  fail_each_of_files(1);
  fail_each_of_a_store(1);
  fail_each_of_a_runtime(7);
}

TEST_CASE("no memory: four allocations in a row, in a runtime, on both loops", "[slow]") {
  fail_each_of_files(1, 4);
  fail_each_of_a_store(3, 4);
}

#else

TEST_CASE("no memory: pipelines") { MILLRACE_SKIP("operator new is the sanitizer's"); }

#endif
