// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A line that flips bits, which TCP's checksum lets through now and then and a broken proxy often: one more reading
// mends it.

#include <millrace/train/dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <millrace/base/crc.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/shards/resident_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/checking_client.hpp"
#include "tests/support/damaging_storage.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/train/epochs_data.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::damaging_storage;
using test::tar_dataset;

namespace {

const test::settings two_epochs{.seed = 7, .epochs = 2, .batch = 4, .tracks = 12, .slice = 4, .prefix = "mem:"};
const test::settings one_epoch{.seed = 7, .epochs = 1, .batch = 1, .tracks = 12, .slice = 4, .prefix = "mem:"};

class taken {
 public:
  std::vector<std::string> samples;  // keys and bytes, in order
  run_stats stats;
};

template <class Store>
taken trained(runtime& rt, const tar_dataset& data, const Store& store, const test::settings& options) {
  taken out;
  auto run = rt.run(test::train_on(data.indexes, store, options));
  for (const sample& s : run) {
    std::string text = s.key;
    for (const field& f : s.fields) text += '|' + std::string(f.data.view());
    out.samples.push_back(text);
  }
  out.stats = run.stats();
  return out;
}

std::string failure_of(runtime& rt, const tar_dataset& data, const std::shared_ptr<const storage>& store,
                       const test::settings& options) {
  try {
    trained(rt, data, store, options);
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

std::int64_t rereads(const run_stats& stats) {
  std::int64_t n = 0;
  for (const stage_stats& s : stats.stages) n += s.reread;
  return n;
}

}  // namespace

TEST_CASE("over a line with rare flips 25 of 25 indexed runs end well, with the right bytes in the right order",
          "[damaged]") {
  const tar_dataset data({40, 3, 60, 17}, 3000);
  runtime rt;
  const taken right = trained(rt, data, data.store, two_epochs);
  std::uint64_t flips = 0;
  std::int64_t mended = 0;
  for (std::uint64_t run = 0; run < 25; ++run) {
    INFO("run " << run);
    const auto line = std::make_shared<damaging_storage>(data.store, run, 2e-6);
    const taken over = trained(rt, data, std::shared_ptr<const storage>(line), two_epochs);
    CHECK(over.samples == right.samples);
    CHECK(over.stats.lost.empty());
    flips += line->flips();
    mended += rereads(over.stats);
    CHECK(static_cast<std::uint64_t>(rereads(over.stats)) == line->second_readings());
  }
  CHECK(flips > 25);
  CHECK(mended > 15);  // the others were in what pads members, or between samples
}

TEST_CASE("any byte of an indexed shard may come with a wrong bit, once", "[damaged]") {
  const tar_dataset data({3}, 600);
  runtime rt;
  const taken right = trained(rt, data, data.store, one_epoch);
  for (std::size_t byte = 0; byte < data.store->objects["mem:100.tar"].size(); byte += 37) {
    INFO("byte " << byte);
    const auto line = std::make_shared<damaging_storage>(data.store);
    line->damage("mem:100.tar", byte);
    CHECK(trained(rt, data, std::shared_ptr<const storage>(line), one_epoch).samples == right.samples);
  }
}

TEST_CASE("a sample that is damaged twice is an error that says whose fault it is", "[damaged]") {
  const tar_dataset data({5}, 900);
  runtime rt;
  const shard_index& index = (*data.indexes)[0];
  const std::uint64_t in_body = index.field_at(2, 1).offset;  // "txt" is never empty
  const std::uint64_t in_header = index.offset(2) + 3;
  for (const std::uint64_t byte : {in_body, in_header}) {
    for (const bool same : {false, true}) {
      INFO(byte << ' ' << same);
      const auto line = std::make_shared<damaging_storage>(data.store);
      line->damage("mem:100.tar", byte, 2, same);
      CHECK_THAT(failure_of(rt, data, line, one_epoch),
                 Contains("mem:100.tar at byte ") &&
                     Contains(same ? "read twice, and both times the same" : "read twice, and not the same"));
    }
  }
  SECTION("where it may be left out, it is one loss") {
    test::settings bearing = one_epoch;
    bearing.failures.then = on_failure::skip;
    const auto line = std::make_shared<damaging_storage>(data.store);
    line->damage("mem:100.tar", in_body, 2);
    const taken rest = trained(rt, data, std::shared_ptr<const storage>(line), bearing);
    REQUIRE(rest.stats.lost.size() == 1);
    CHECK(rest.stats.lost[0].samples == 1);
    CHECK(rereads(rest.stats) == 1);
  }
}

TEST_CASE("what a second reading finds is said by the store: another version, a short answer, none", "[damaged]") {
  const tar_dataset data({5}, 900);
  runtime rt;
  class unwell final : public forwarding_storage {
   public:
    unwell(std::shared_ptr<const storage> inner, int how) : forwarding_storage(std::move(inner)), how_(how) {}
    bool over_network(std::string_view) const noexcept override { return true; }
    task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                    slab_pool slabs) const override {
      part p = co_await inner()->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
      std::string text(p.data.view());
      for (char& c : text) c = static_cast<char>(c ^ 1);
      p.data = bytes::copy(text);
      co_return std::move(p);
    }
    task<part> read_again(shard object, std::string, std::uint64_t offset, std::size_t length,
                          slab_pool) const override {
      if (how_ == 0) throw io_error(std::errc::io_error, "the store is away", where{object.url, offset, {}});
      part p;
      p.etag = how_ == 1 ? "\"v2\"" : "\"v1\"";
      p.data = bytes::copy(std::string(length - (how_ == 2 ? 1 : 0), 'x'));
      co_return std::move(p);
    }

   private:
    int how_;
  };
  const char* const said[] = {"reading it once more failed: mem:100.tar at byte ", "it is another version: \"v2\"",
                              "there were "};
  for (int how = 0; how < 3; ++how) {
    CHECK_THAT(failure_of(rt, data, std::make_shared<unwell>(data.store, how), one_epoch),
               Contains("a header has a wrong checksum") && Contains(said[how]));
  }
}

TEST_CASE("second readings are in the log, the first and then ever fewer, and in the table", "[damaged]") {
  const tar_dataset data({60}, 900);
  const auto line = std::make_shared<damaging_storage>(data.store);
  const shard_index& index = (*data.indexes)[0];
  for (std::size_t i = 0; i < 9; ++i) line->damage("mem:100.tar", index.field_at(3 * i, 1).offset);
  test::captured_stderr log(test::captured_stderr::into::pipe);
  run_stats stats;
  {
    runtime rt;
    stats = trained(rt, data, std::shared_ptr<const storage>(line), one_epoch).stats;
  }
  const std::string text = log.text();
  CHECK(rereads(stats) == 9);
  CHECK_THAT(stats.table(), Contains("epochs read 9 damaged parts once more"));
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = text.find("read once more, over another connection", at)) != std::string::npos; ++at) {
    ++lines;
  }
  CHECK(lines == 4);  // 1, 2, 4, 8
  CHECK_THAT(text, Contains("mem:100.tar at byte ") && Contains("the CRC32C of field \"txt\" is ") &&
                       Contains("(8 times in this run)"));
}

TEST_CASE("stores in front of others pass a second reading on, and keep what it gave", "[damaged]") {
  const tar_dataset data({12}, 900);
  runtime rt;
  const taken right = trained(rt, data, data.store, two_epochs);
  const shard_index& index = (*data.indexes)[0];
  const auto line = std::make_shared<damaging_storage>(data.store);
  const auto damage = [&] {
    for (std::size_t i = 0; i < 3; ++i) line->damage("mem:100.tar", index.field_at(4 * i, 1).offset);
  };
  const std::shared_ptr<const storage> damaged = line;
  damage();
  CHECK(trained(rt, data, hedged(damaged), two_epochs).samples == right.samples);
  CHECK(line->second_readings() == 3);
  damage();
  CHECK(trained(rt, data, stores(damaged), two_epochs).samples == right.samples);
  CHECK(line->second_readings() == 6);
  damage();
  const auto kept = resident(damaged, {.bytes = 1 << 20});
  test::settings close = two_epochs;
  close.ahead = 1;
  CHECK(trained(rt, data, kept, close).samples == right.samples);
  CHECK(line->second_readings() == 9);  // not again in the second epoch
}

namespace {

/// A store in memory that keeps the CRC32C of its objects.
class checked_store final : public forwarding_storage {
 public:
  explicit checked_store(const tar_dataset& data) : forwarding_storage(data.store), data_(data) {}
  bool over_network(std::string_view) const noexcept override { return true; }
  task<std::unique_ptr<object_check>> check(shard object, std::string) const override { return of(object.url); }

 private:
  class sum final : public object_check {
   public:
    sum(std::string url, std::uint32_t right) : url_(std::move(url)), right_(right) {}
    const std::string& etag() const noexcept override { return etag_; }
    void add(const bytes& data, const running_crc&) override { is_ = crc32c(is_, data.data(), data.size()); }
    task<void> compare(std::uint64_t) override {
      const where at{url_, {}, {}};
      if (is_ != right_) throw s3::checksum_error("the bytes do not have the crc32c of the object", at);
      co_return;
    }

   private:
    std::string url_;
    std::string etag_ = "\"v1\"";
    std::uint32_t right_;
    std::uint32_t is_ = 0;
  };
  task<std::unique_ptr<object_check>> of(std::string url) const {
    const std::string& all = data_.store->objects.at(url);
    std::unique_ptr<object_check> result = std::make_unique<sum>(url, crc32c(0, all.data(), all.size()));
    co_return std::move(result);
  }
  const tar_dataset& data_;
};

class made {
 public:
  std::optional<shard_index> index;
  std::string error;
};
made index_over(const std::shared_ptr<const storage>& line, index_shard_options how = {},
                std::shared_ptr<const shard_format> format = nullptr) {
  testing::virtual_loop loop;
  made out;
  try {
    out.index = block_on(loop, index_shard(line, shard("mem:100.tar"), "100.tar", std::move(format), how));
  } catch (const error& e) {
    out.error = e.what();
  }
  return out;
}

}  // namespace

TEST_CASE("an index is made of verified bytes: of a store's checksum, or of two readings that agree", "[damaged]") {
  const tar_dataset data({9}, 900);
  const shard_index& right = (*data.indexes)[0];
  const std::uint64_t size = data.store->objects["mem:100.tar"].size();
  const bool has_checksums = GENERATE(true, false);
  const auto store = [&]() -> std::shared_ptr<const storage> {
    if (has_checksums) return std::make_shared<checked_store>(data);
    return data.store;
  };
  SECTION("a healthy line costs a HEAD, or twice the bytes") {
    const auto line = std::make_shared<damaging_storage>(store());
    CHECK(index_over(line).index == right);
    CHECK(line->read_bytes() == (has_checksums ? size : 2 * size));
    CHECK(line->second_readings() == (has_checksums ? 0 : 1));
    index_shard_options once;
    once.verify = false;
    const auto again = std::make_shared<damaging_storage>(store());
    CHECK(index_over(again, once).index == right);
    CHECK(again->read_bytes() == size);
  }
  SECTION("whichever byte is wrong once, the index is right") {
    for (std::uint64_t byte = 0; byte < size; byte += 101) {
      INFO(byte);
      const auto line = std::make_shared<damaging_storage>(store());
      line->damage("mem:100.tar", byte);
      CHECK(index_over(line).index == right);
    }
  }
  SECTION("damage twice at one place is an error that says so, or is found by the third reading") {
    const std::uint64_t byte = right.field_at(4, 1).offset;
    const auto line = std::make_shared<damaging_storage>(store());
    line->damage("mem:100.tar", byte, 2, false);
    const made other = index_over(line);
    if (has_checksums) {
      CHECK_THAT(other.error, Contains("crc32c of the object") && Contains("read twice, and not the same"));
    } else {
      CHECK_THAT(other.error, Contains("mem:100.tar: read three times, and no two of the indexes are the same"));
    }
    const auto header = std::make_shared<damaging_storage>(store());
    header->damage("mem:100.tar", right.offset(4) + 3, 2, true);
    CHECK_THAT(index_over(header).error, Contains("a header has a wrong checksum") &&
                                             Contains("read twice, and both times the same: it is so in the store"));
  }
}

TEST_CASE("an index of headers alone is of two readings that agree", "[damaged]") {
  const tar_dataset data({9}, 9000);
  const auto headers = tar_shards({.way = index_way::headers});
  const shard_index right = *index_over(data.store, {}, headers).index;
  // A record of a pax header: no checksum is of it, and the key is another.
  std::string content;
  tar::writer out([&](std::string_view piece) { content += piece; });
  const std::string key(150, 'k');
  out.add(key + ".bin", "1234");
  out.add(key + ".txt", "5678");
  out.finish();
  data.store->objects["mem:100.tar"] = content;
  const shard_index named = *index_over(data.store, {}, headers).index;
  REQUIRE(named.samples() == 1);
  for (std::uint64_t byte = 0; byte < content.size(); byte += 7) {
    INFO(byte);
    const auto line = std::make_shared<damaging_storage>(std::make_shared<checked_store>(data));
    line->damage("mem:100.tar", byte);
    CHECK(index_over(line, {}, headers).index == named);
  }
}

TEST_CASE("the index that a first run makes over a damaging line takes the healthy data afterwards", "[damaged]") {
  const tar_dataset data({9, 4}, 900);
  runtime rt;
  std::string folder = "/tmp/millrace-test-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()));
  const std::string file = folder + "/train.index";
  test::settings o = one_epoch;
  o.index_file = file;
  const auto listed = [&](const std::shared_ptr<const storage>& from) {
    std::vector<std::string> keys;
    auto run = rt.run(test::train_on(shards("mem:{100..101}.tar"), from, o));
    for (const sample& s : run) keys.push_back(s.key);
    return keys.size();
  };
  const auto line = std::make_shared<damaging_storage>(data.store);
  line->damage("mem:100.tar", (*data.indexes)[0].field_at(4, 1).offset);
  line->damage("mem:101.tar", (*data.indexes)[1].field_at(1, 1).offset);
  CHECK(listed(line) == 13);
  CHECK(line->flips() == 2);
  CHECK(listed(data.store) == 13);
  std::filesystem::remove_all(folder);
}

TEST_CASE("an index that lies in the store is read once more where it comes damaged", "[damaged]") {
  const tar_dataset data({9, 4}, 900);
  runtime rt;
  std::string text;
  for (const shard_index& index : *data.indexes) text += index.text();
  test::settings o = one_epoch;
  o.index_file = "mem://my.index";
  data.store->objects["mem://my.index"] = text;
  const auto read = [&](const std::shared_ptr<const storage>& from) -> std::string {
    try {
      std::size_t n = 0;
      auto run = rt.run(test::train_on(shards("mem:{100..101}.tar"), from, o));
      for (const sample& s : run) n += s.weight() != 0;
      return std::to_string(n);
    } catch (const error& e) {
      return e.what();
    }
  };
  for (std::size_t byte = 0; byte < text.size(); byte += 31) {
    INFO(byte);
    const auto line = std::make_shared<damaging_storage>(data.store);
    line->damage("mem://my.index", byte);
    CHECK(read(line) == "13");
  }
  for (const bool same : {true, false}) {
    const auto line = std::make_shared<damaging_storage>(data.store);
    line->damage("mem://my.index", 200, 2, same);
    CHECK_THAT(read(line), Contains("mem://my.index") &&
                               Contains(same ? "read twice, and both times the same" : "read twice, and not the same"));
  }
}

TEST_CASE("a first run over HTTP whose index, samples and listing come damaged once each ends well", "[damaged]") {
  const tar_dataset data({9, 4, 30}, 900);
  s3_server::background server;
  std::size_t samples = 0;
  for (const shard_index& index : *data.indexes) {
    server.put("corpus", "train/" + index.name(), data.store->objects["mem:" + index.name()]);
    samples += index.samples();
    // The first answer of each shard makes the index, later ones are samples.
    const std::string key = "train/" + index.name();
    for (const std::uint64_t nth : {1, 4}) {
      server.faults().add({.method = "GET", .key = key.c_str(), .nth = nth}, s3_server::fault::flipped_bit(3));
    }
  }
  server.faults().add({.method = "GET", .key = "", .nth = 1}, s3_server::fault::flipped_bit(1));  // "<?xml": no XML
  const s3::client client = test::checking_client(server);
  std::string folder = "/tmp/millrace-test-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()));
  const std::string file = folder + "/train.index";
  std::size_t taken = 0;
  {
    runtime rt;
    test::settings o = one_epoch;
    o.prefix = "s3://corpus/train/";
    o.index_file = file;
    auto run = rt.run(test::train_on(client.list("s3://corpus/train/"), s3::as_storage(client), o));
    for (const sample& s : run) taken += s["txt"].view() == s.key ? 1 : 0;
    CHECK(rereads(run.stats()) >= 3);
  }
  CHECK(taken == samples);
  CHECK(server.faults().injected() == 7);
  std::filesystem::remove_all(folder);
}

TEST_CASE("after a resume without an index, the samples of the window are read once more where they come damaged",
          "[damaged]") {
  const tar_dataset data({40, 30}, 900);
  runtime rt;
  test::settings o{.seed = 7, .epochs = 1, .batch = 4, .streamed = true};
  o.shards = 2;
  o.window = 20;
  const auto trained_from = [&](const std::shared_ptr<const storage>& from, std::string_view saved, std::size_t most,
                                std::string& state) {
    test::settings now = o;
    now.resume = saved;
    std::vector<std::string> keys;
    auto run = rt.run(test::train_on(shards("mem:{100..101}.tar"), from, now) | batch(4));
    for (const std::vector<sample>& b : run) {
      for (const sample& s : b) keys.push_back(s.key);
      state = run.state();
      if (keys.size() >= most) break;
    }
    return keys;
  };
  std::string saved;
  std::string end;
  trained_from(data.store, {}, 24, saved);
  const std::vector<std::string> right = trained_from(data.store, saved, SIZE_MAX, end);
  std::uint64_t mended = 0;
  for (const shard_index& index : *data.indexes) {
    for (std::size_t i = 0; i < index.samples(); ++i) {
      INFO(index.name() << ' ' << i);
      const auto line = std::make_shared<damaging_storage>(data.store);
      line->damage("mem:" + index.name(), index.offset(i));
      CHECK(trained_from(line, saved, SIZE_MAX, end) == right);
      mended += line->second_readings();
    }
  }
  CHECK(mended > 40);  // of the window, and of what is walked; the others were over
}
