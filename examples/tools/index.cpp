// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Indexes the tar shards under a prefix or in a folder: samples, places and checksums, by which a training knows its
// order beforehand and reads any sample by one request.
//
//   millrace-index s3://bucket/prefix/            writes s3://bucket/prefix/millrace.index
//   millrace-index FOLDER --out my.index
//
// An index that is there is brought up to date: what has neither changed nor is new is not read again.

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <millrace/base/clock.hpp>
#include <millrace/base/units.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/feed/index_shard.hpp>
#include <millrace/flow/from_range.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/s3/client.hpp>

#include "examples/tools/store.hpp"

namespace mill = millrace;

namespace {

const char* const usage =
    "millrace-index PREFIX|FOLDER [--out FILE] [--stream | --headers] [--shards N]\n"
    "  --stream    read every byte once: the index has checksums\n"
    "  --headers   read headers alone: no checksums (default: whichever costs less)\n"
    "  --shards N  so many side by side (16)";

class result {
 public:
  result() = default;
  mill::shard of;
  std::optional<mill::shard_index> index;
  std::string error;  ///< why there is none
};

mill::task<result> index_one(std::shared_ptr<const mill::storage> from, mill::shard s, std::string name,
                             mill::index_shard_options how) {
  result out;
  out.of = s;
  try {
    out.index = co_await mill::index_shard(std::move(from), std::move(s), std::move(name), how);
  } catch (const mill::error& e) {
    out.error = e.what();
  }
  co_return std::move(out);
}

/// One line that is drawn again and again; on something that is no terminal, the last one alone.
class progress_line {
 public:
  progress_line(std::size_t shards, std::uint64_t bytes) : shards_(shards), bytes_(bytes) {}
  void add(const result& r) {
    ++done_;
    done_bytes_ += r.of.size.value_or(0);
    if (r.index) samples_ += r.index->samples();
    const bool last = done_ == shards_;
    if (!last && (::isatty(2) == 0 || mill::monotonic_ns() - drawn_ < 100'000'000)) return;
    drawn_ = mill::monotonic_ns();
    char bar[21] = "....................";
    for (std::size_t i = 0; i < 20 * done_ / shards_; ++i) bar[i] = '#';
    std::fprintf(stderr, "\r[%s] %zu of %zu shards, %s of %s, %zu samples%s", bar, done_, shards_,
                 mill::format_bytes(static_cast<double>(done_bytes_)).c_str(),
                 mill::format_bytes(static_cast<double>(bytes_)).c_str(), samples_, last ? "\n" : "");
  }

 private:
  std::size_t shards_;
  std::uint64_t bytes_;
  std::size_t done_ = 0;
  std::uint64_t done_bytes_ = 0;
  std::size_t samples_ = 0;
  std::int64_t drawn_ = 0;
};

/// The indexes that are there, by name.
std::map<std::string, mill::shard_index> known_in(const tools::store& store, const std::string& url) {
  std::map<std::string, mill::shard_index> known;
  const std::optional<std::string> text = store.read(url);
  if (!text) return known;
  for (mill::shard_index& index : mill::read_indexes(*text, url)) {
    std::string name = index.name();
    known.emplace(std::move(name), std::move(index));
  }
  return known;
}
bool is_fresh(const mill::shard_index& index, const mill::shard& s) {
  try {
    index.check(s);
    return !s.etag.empty();  // a file's size alone is no proof
  } catch (const mill::stale_index_error&) {
    return false;
  }
}

int index_all(const std::string& prefix, const std::string& out, mill::index_shard_options how, std::size_t limit) {
  const tools::store store(prefix);
  std::vector<mill::shard> shards = store.list(prefix);
  if (shards.empty()) {
    std::fprintf(stderr, "error: there are no .tar objects under %s\n", prefix.c_str());
    return 1;
  }
  const auto name_of = [&](const mill::shard& s) {
    std::string name = s.url.substr(prefix.size());
    return name.substr(std::min(name.find_first_not_of('/'), name.size()));
  };
  std::map<std::string, mill::shard_index> known = known_in(store, out);
  std::vector<mill::shard_index> all;
  std::vector<mill::shard> to_read;
  std::uint64_t bytes = 0;
  for (mill::shard& s : shards) {
    const auto at = known.find(name_of(s));
    if (at != known.end() && is_fresh(at->second, s)) {
      all.push_back(std::move(at->second));
    } else {
      bytes += s.size.value_or(0);
      to_read.push_back(std::move(s));
    }
  }
  std::vector<std::string> failed;
  if (!to_read.empty()) {
    progress_line shown(to_read.size(), bytes);
    const std::shared_ptr<const mill::storage> from = store.reads();
    auto one = [from, name_of, how](mill::shard s) {
      std::string name = name_of(s);
      return index_one(from, std::move(s), std::move(name), how);
    };
    auto results = mill::from_range(std::move(to_read)) | mill::map_concurrent(std::move(one), {.limit = limit});
    for (result& r : mill::run(std::move(results), {.show = mill::progress::off})) {
      shown.add(r);
      if (r.index) all.push_back(std::move(*r.index));
      if (!r.index) failed.push_back(r.error);
    }
  }
  const mill::index_set set(std::move(all));
  std::string text;
  for (const mill::shard_index& index : set) index.write(text);
  store.write(out, text);
  std::printf("%zu shard%s, %llu samples, %s in samples; %s: %s, digest %s\n", set.size(), set.size() == 1 ? "" : "s",
              static_cast<unsigned long long>(set.samples()),
              mill::format_bytes(static_cast<double>(set.sample_bytes())).c_str(), out.c_str(),
              mill::format_bytes(static_cast<double>(text.size())).c_str(), set.digest().text().c_str());
  for (const std::string& reason : failed) std::fprintf(stderr, "not indexed: %s\n", reason.c_str());
  return failed.empty() ? 0 : 1;
}

}  // namespace

int main(int count, char** texts) {
  tools::arguments given(count, texts, usage);
  mill::index_shard_options how;
  const bool stream = given.flag("--stream");
  const bool headers = given.flag("--headers");
  if (stream && headers) given.refuse();
  if (stream) how.way = mill::index_way::stream;
  if (headers) how.way = mill::index_way::headers;
  const std::size_t limit = static_cast<std::size_t>(given.number("--shards", 16));
  const std::optional<std::string> out = given.option("--out");
  const std::string prefix = given.rest(1, 1)[0];
  if (limit == 0) given.refuse();
  try {
    return index_all(prefix, out ? *out : tools::index_of(prefix), how, limit);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
