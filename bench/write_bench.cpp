// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Writing shards: samples of 100 KB through write_shards() to a store, beside client::put() of the finished archives,
// and to files. Server in a process of its own on core 0, client on core 1.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/write_bench.cpp -o write_bench -lcurl -luring -larchive
//   -lssl -lcrypto -lexpat
//
//   write_bench [MiB of data, default 128] [folder, default .] [tls]
//
// What it writes, it deletes.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/formats/write_shards.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t sample_bytes = 100000;
constexpr std::size_t shard_bytes = 32 * mill::MiB;

mill::async_generator<mill::sample> samples(mill::bytes content, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    mill::sample s(std::to_string(i), mill::origin());
    s.fields.emplace_back("jpg", content.slice((i % 64) * sample_bytes, sample_bytes));
    s.fields.emplace_back("cls", mill::bytes::copy("7"));
    co_yield mill::give(s);
  }
}

mill::async_generator<mill::bytes> pieces(mill::bytes content, std::size_t size) {
  for (std::size_t at = 0; at < size; at += 8 * mill::MiB) {
    mill::bytes part = content.slice(at % shard_bytes, 8 * mill::MiB);
    co_yield mill::give(part);
  }
}

mill::task<std::vector<std::string>> names_of(mill::stream<mill::written_shard> shards) {
  std::vector<std::string> all;
  while (std::optional<mill::written_shard> s = co_await shards.next()) all.push_back(std::move(s->url));
  co_return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t size = static_cast<std::uint64_t>(argc > 1 ? std::atoi(argv[1]) : 128) * mill::MiB;
  const std::string folder = (argc > 2 ? std::string(argv[2]) : std::string(".")) + "/";
  bench::print_machine();
  const bool tls = argc > 3 && std::string(argv[3]) == "tls";  // bodies are encrypted then, and not hashed
  const bench::served server(tls, [](mill::s3_server::background& s) { s.objects().create_bucket("b"); });
  bench::pin(1);
  const mill::s3::client s3 = server.client();
  const auto loop = mill::make_event_loop();
  const mill::bytes content = mill::bytes::copy(bench::noise(shard_bytes, 1));
  const std::uint64_t count = size / sample_bytes;
  mill::write_shards_options o;
  o.bytes = shard_bytes;

  bench::contender bare("put() of the archives", [&] {
    for (std::uint64_t at = 0; at < size; at += shard_bytes) {
      const std::string url = "s3://b/bare-" + std::to_string(at);
      mill::stream<mill::bytes> archive(pieces(content, shard_bytes));
      mill::block_on(*loop, s3.put(url, std::move(archive)));
      mill::block_on(*loop, s3.remove(url));
    }
    return size;
  });
  bench::contender written("write_shards(s3)", [&] {
    auto shards = mill::stream<mill::sample>(samples(content, count)) | mill::write_shards(s3, "s3://b/x-{}.tar", o);
    std::vector<std::string> all = mill::block_on(*loop, names_of(std::move(shards)));
    all.emplace_back("s3://b/x.millrace.json");
    for (const std::string& name : all) mill::block_on(*loop, s3.remove(name));
    return count * sample_bytes;
  });
  bench::contender filed("write_shards(files())", [&] {
    auto shards = mill::stream<mill::sample>(samples(content, count)) |
                  mill::write_shards(mill::files(), folder + "millrace-write-{}.tar", o);
    for (const std::string& name : mill::block_on(*loop, names_of(std::move(shards)))) {
      ::unlink(name.c_str());
      ::unlink((name + ".millrace.index").c_str());
    }
    ::unlink((folder + "millrace-write.millrace.index").c_str());
    ::unlink((folder + "millrace-write.millrace.json").c_str());
    return count * sample_bytes;
  });
  bench::take_turns({&bare, &written, &filed});
  bench::print_table({&bare, &written, &filed});
  bench::goal_at_most("CPU s/GB, write_shards(s3)", written.cpu_per_gb.median(), 0.2, "s");
  bench::goal_at_most("CPU s/GB, write_shards(s3) / put()", bench::ratio(written.cpu_per_gb, bare.cpu_per_gb), 1.5);
}
