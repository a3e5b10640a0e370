// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// millrace-cache: the folder of a disk cache. docs/guide/tools.md describes it.

#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/cache/cache_folder.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/disk_cache.hpp>
#include <millrace/shards/fetch.hpp>

#include "src/tools/command_line.hpp"
#include "src/tools/formats.hpp"
#include "src/tools/store.hpp"

namespace mill = millrace;

namespace {

using folder = mill::detail::cache_folder;

std::string shown(std::uint64_t bytes) { return mill::format_bytes(static_cast<double>(bytes)); }
unsigned long long number(std::uint64_t n) { return static_cast<unsigned long long>(n); }

std::string utc(std::int64_t seconds) {
  const auto at = static_cast<::time_t>(seconds);
  struct ::tm parts {};
  char text[32] = "unknown";
  if (::gmtime_r(&at, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

int stat(const std::string& directory) {
  const folder::report r = folder::inspect(directory, false);
  std::printf("%s: %llu segments, %llu in use; %llu slots of 1 MiB taken; %s in %llu blocks\n",
              directory.c_str(), number(r.segments), number(r.used), number(r.taken), shown(r.bytes).c_str(),
              number(r.blocks));
  for (const folder::data_set& d : r.sets) {
    std::string endpoint = mill::detail::shown_endpoint(d.prefix);
    if (!endpoint.empty()) endpoint.insert(0, ", of ");
    std::printf("  %s: %s, last used %s%s\n", mill::detail::shown_name(d.prefix).c_str(), shown(d.bytes).c_str(),
                utc(d.used).c_str(), endpoint.c_str());
  }
  if (!r.damaged.empty()) {
    std::printf("blocks without a whole header: %zu; millrace-cache verify says which\n", r.damaged.size());
  }
  return tools::fine;
}

int verify(const std::string& directory) {
  const folder::report r = folder::inspect(directory, true);
  for (const std::string& d : r.damaged) std::printf("%s\n", d.c_str());
  std::printf("%s: %llu blocks, %s, are as they were written; %zu damaged\n", directory.c_str(), number(r.blocks),
              shown(r.bytes).c_str(), r.damaged.size());
  return r.damaged.empty() ? tools::fine : tools::bad_data;
}

int drop(const std::string& directory) {
  const folder::removed r = folder::drop(directory);
  std::string names;
  std::size_t segments = 0;
  for (const std::string& name : r.names) {
    const bool segment = name.compare(0, 8, "segment.") == 0;
    segments += segment ? 1 : 0;
    if (!segment) names += ", " + name;
  }
  std::printf("%s: removed %zu segments%s: %s; the folder stays", directory.c_str(), segments, names.c_str(),
              shown(r.bytes).c_str());
  if (r.left != 0) std::printf(", and %zu that are not of the cache", r.left);
  std::printf("\n");
  return tools::fine;
}

/// One line that is drawn again and again; where standard error is no terminal, the last one alone.
class progress_line {
 public:
  progress_line(std::size_t objects, std::uint64_t bytes) : objects_(objects), bytes_(bytes) {}
  void add(std::size_t size) {
    done_ += size;
    if (::isatty(2) == 0 || mill::monotonic_ns() - drawn_ < 100'000'000) return;
    drawn_ = mill::monotonic_ns();
    draw("");
  }
  void draw(const char* end) const {
    char bar[21] = "....................";
    for (std::uint64_t i = 0; i < 20 && bytes_ != 0 && i * bytes_ < 20 * done_; ++i) bar[i] = '#';
    std::fprintf(stderr, "\r[%s] %zu object%s, %s of %s%s", bar, objects_, objects_ == 1 ? "" : "s",
                 shown(done_).c_str(), shown(bytes_).c_str(), end);
  }
  std::uint64_t done() const { return done_; }

 private:
  std::size_t objects_;
  std::uint64_t bytes_;
  std::uint64_t done_ = 0;
  std::int64_t drawn_ = 0;
};

mill::task<void> read_all(std::vector<mill::shard> objects, std::shared_ptr<const mill::storage> from,
                          mill::fetch_options how, progress_line& shown) {
  auto chunks = mill::from_range(std::move(objects)) | mill::fetch(from, how);
  while (auto c = co_await chunks.next()) shown.add(c->data.size());
}

int fill(const std::string& prefix, const std::string& directory, std::uint64_t bytes, double keep_free,
         const tools::format_ptr& format, std::size_t limit) {
  const tools::store store(prefix);
  std::vector<mill::shard> objects = store.list(prefix, format.get());
  if (objects.empty()) {
    const char* const what = tools::is_tar(*format) ? ".tar objects" : "objects";
    throw mill::configuration_error(std::string("there are no ") + what + " under " + prefix);
  }
  std::uint64_t all = 0;
  for (const mill::shard& s : objects) all += s.size.value_or(0);
  const auto cache = mill::disk_cache(
      store.storage(), {.directory = directory, .bytes = bytes, .keep_free = keep_free, .wait_for_disk = true});
  const auto loop = mill::make_event_loop();
  progress_line line(objects.size(), all);
  mill::fetch_options how;
  how.shards = limit;
  std::string failed;
  try {
    mill::block_on(*loop, read_all(std::move(objects), cache, how, line));  // and what is being written
  } catch (const mill::error& e) {
    failed = e.what();
  }
  line.draw("\n");
  const mill::disk_cache_stats s = cache->stats();
  std::printf("%s: %s from the store, %s from the cache; %llu blocks or parts of them written, %llu refused, "
              "%llu damaged\n",
              directory.c_str(), shown(s.miss_bytes).c_str(), shown(s.hit_bytes).c_str(), number(s.admitted),
              number(s.refused), number(s.damaged));
  if (!failed.empty()) throw mill::error("not all was read: " + failed);
  if (s.hit_bytes + s.miss_bytes < line.done()) {
    throw mill::error("the cache was off, at least for a time: what was read then is not kept");
  }
  if (s.refused != 0) throw mill::error("not all is kept: the cache or its disk is full, or there is no strong ETag");
  return tools::fine;
}

}  // namespace

int main(int count, char** texts) {
  tools::command_line given("millrace-cache", "Shows, checks, fills or removes the folder of a disk cache.");
  given.require_subcommand(1);
  std::string directory, prefix, format = "tar";
  std::uint64_t bytes = 0;
  double keep_free = 0.05;
  std::size_t limit = 16;
  const auto command = [&](const char* name, const char* what) {
    CLI::App* const c = given.add_subcommand(name, what);
    c->get_formatter()->column_width(34);
    return c;
  };
  const auto with_directory = [&](CLI::App* c) {
    c->add_option("DIRECTORY", directory, "The folder of the cache")
        ->required()
        ->type_name("")
        ->check(tools::not_empty);
    return c;
  };
  with_directory(command("stat", "Say what the cache holds, of which data sets, and when they were used"));
  with_directory(command("verify", "Read all that is in the cache, and say what is damaged"));
  with_directory(command("drop", "Remove the files of the cache, if no process uses them"));
  CLI::App* const filling = command("fill", "Read all objects under a prefix through the cache");
  filling->add_option("PREFIX", prefix, "s3://bucket/prefix/")->required()->type_name("")->check(tools::not_empty);
  with_directory(filling);
  filling->add_option("--bytes", bytes, "The most that the cache takes of the disk, as 500GB or 2TiB")
      ->required()
      ->transform(CLI::AsSizeValue(true))
      ->type_name("SIZE");
  filling->add_option("--keep-free", keep_free, "Share of the file system that stays free")
      ->check(tools::decimal)
      ->capture_default_str()
      ->type_name("SHARE");
  filling
      ->add_option("--format", format, "What the samples are: 'tar' reads .tar objects, all others\nread every object")
      ->check(CLI::IsMember({"tar", "lines", "objects", "classes", "folders"}))
      ->capture_default_str()
      ->type_name("FORMAT");
  filling->add_option("--shards", limit, "Objects that are read at the same time")
      ->check(tools::positive)
      ->capture_default_str()
      ->type_name("N");
  return given.run(count, texts, [&] {
    if (given.got_subcommand("stat")) return stat(directory);
    if (given.got_subcommand("verify")) return verify(directory);
    if (given.got_subcommand("drop")) return drop(directory);
    return fill(prefix, directory, bytes, keep_free, tools::format_by_name(format), limit);
  });
}
