// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// millrace-index: the index of tar shards, files of lines, records or samples, films, or objects. docs/guide/tools.md
// describes it.

#include <algorithm>
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
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/object_samples.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/index/detail/listing_file.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/s3/client.hpp>

#include "src/tools/command_line.hpp"
#include "src/tools/formats.hpp"
#include "src/tools/store.hpp"

namespace mill = millrace;

namespace {

class result {
 public:
  result() = default;
  mill::shard of;
  std::optional<mill::shard_index> index;
  std::string error;      ///< why there is none
  bool bad_data = false;  ///< the shard is broken, and not just out of reach
};

mill::task<result> index_one(std::shared_ptr<const mill::storage> from, mill::shard s, std::string name,
                             tools::format_ptr format, std::shared_ptr<const void> metadata) {
  result out;
  out.of = s;
  try {
    out.index = co_await mill::index_shard(std::move(from), std::move(s), std::move(name), std::move(format),
                                           mill::index_shard_options(), std::move(metadata));
  } catch (const mill::error& e) {
    out.error = tools::text_of(e);
    out.bad_data = tools::command_line::is_about_data(e);
  }
  co_return std::move(out);
}

/// One line that is drawn again and again; where standard error is no terminal, the last one alone.
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

/// The indexes that are there, by name. A file that comes damaged is read once more, over another connection.
std::map<std::string, mill::shard_index> known_in(const tools::store& store, const std::string& url) {
  std::map<std::string, mill::shard_index> known;
  const std::optional<std::string> text = store.read(url);
  if (!text) return known;
  std::vector<mill::shard_index> there;
  try {
    there = mill::read_indexes(*text, url);
  } catch (const mill::index_error&) {
    const std::optional<std::string> again = store.read(url);
    if (!again || *again == *text) throw;
    there = mill::read_indexes(*again, url);
  }
  for (mill::shard_index& index : there) {
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

/// Writes it, and says what it is of.
void write(const tools::store& store, const std::string& out, const mill::index_set& set) {
  std::string text;
  mill::write_indexes(set, text);
  store.write(out, text);
  const char* const unit = set.of_objects() ? "folder" : "shard";
  std::printf("%zu %s%s, %llu samples, %s in samples; %s: %s, digest %s\n", set.size(), unit,
              set.size() == 1 ? "" : "s", static_cast<unsigned long long>(set.samples()),
              mill::format_bytes(static_cast<double>(set.sample_bytes())).c_str(), out.c_str(),
              mill::format_bytes(static_cast<double>(text.size())).c_str(), set.digest().text().c_str());
}

/// Writes what was listed, for dataset_options::listing, unless `file` is empty.
void write_listing(const tools::store& store, const std::string& file, std::string prefix,
                   const std::vector<mill::shard>& listed) {
  if (file.empty()) return;
  if (prefix.find("://") == std::string::npos && prefix.back() != '/') prefix += '/';  // as datasets name a folder
  mill::detail::listing_writer listing(prefix);
  for (const mill::shard& s : listed) listing.add(s);
  const std::string text = listing.text();
  store.write(file, text);
  std::printf("%zu objects listed: %s: %s\n", listed.size(), file.c_str(),
              mill::format_bytes(static_cast<double>(text.size())).c_str());
}

/// Objects that are samples: a listing says all.
int index_objects(std::string prefix, const std::string& out, const std::string& listing,
                  const tools::format_ptr& format) {
  const tools::store store(prefix);
  if (prefix.back() != '/') prefix += '/';
  mill::detail::object_index_builder objects(format, prefix);
  std::vector<mill::shard> listed = store.list(prefix, format.get());
  std::erase_if(listed, [&](const mill::shard& s) { return s.url == out || s.url == listing; });
  for (const mill::shard& s : listed) objects.add(s);
  const std::string passed_over = objects.passed_over();
  if (!passed_over.empty()) std::fprintf(stderr, "millrace-index: %s\n", passed_over.c_str());
  const mill::index_set set = objects.finish();
  if (set.samples() == 0) throw mill::configuration_error("there are no samples under " + prefix);
  write(store, out, set);
  write_listing(store, listing, prefix, listed);
  return tools::fine;
}

int index_all(const std::string& prefix, const std::string& out, const std::string& listing,
              const tools::format_ptr& format, std::size_t limit) {
  const tools::store store(prefix);
  std::vector<mill::shard> shards = store.list(prefix, format.get());
  std::erase_if(shards, [&](const mill::shard& s) { return s.url == out || s.url == listing; });
  std::vector<mill::shard> listed = shards;
  shards = format->choose(std::move(shards));
  if (shards.empty()) {
    const char* const what = tools::is_tar(*format) ? ".tar objects" : "objects";
    throw mill::configuration_error(std::string("there are no ") + what + " under " + prefix);
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
    if (at != known.end() && at->second.is_of(format->name(), format->settings()) && is_fresh(at->second, s)) {
      all.push_back(std::move(at->second));
    } else {
      bytes += s.size.value_or(0);
      to_read.push_back(std::move(s));
    }
  }
  std::vector<std::string> failed;
  bool all_bad_data = true;
  if (!to_read.empty()) {
    const std::shared_ptr<const mill::storage> from = store.storage();
    const std::shared_ptr<const void> metadata = tools::read_metadata(*format, from, listed);
    progress_line shown(to_read.size(), bytes);
    auto one = [from, name_of, format, metadata](mill::shard s) {
      std::string name = name_of(s);
      return index_one(from, std::move(s), std::move(name), format, metadata);
    };
    auto results = mill::from_range(std::move(to_read)) | mill::map_concurrent(std::move(one), {.limit = limit});
    for (result& r : mill::run(std::move(results), {.show = mill::progress::off})) {
      shown.add(r);
      if (r.index) all.push_back(std::move(*r.index));
      if (r.index) continue;
      failed.push_back(r.error);
      all_bad_data = all_bad_data && r.bad_data;
    }
  }
  for (const std::string& reason : failed) std::fprintf(stderr, "not indexed: %s\n", reason.c_str());
  const int status = failed.empty() ? tools::fine : all_bad_data ? tools::bad_data : tools::unfinished;
  if (all.empty()) {
    std::fprintf(stderr, "millrace-index: no shard could be indexed; %s is as it was\n", out.c_str());
    return status;
  }
  const mill::index_set set(std::move(all));
  write(store, out, set);
  write_listing(store, listing, prefix, listed);
  return status;
}

}  // namespace

int main(int count, char** texts) {
  tools::command_line given("millrace-index",
                            "Indexes the tar shards, files of lines or records, or objects under a prefix or in a\n"
                            "folder, so that a training knows its order beforehand and reads any sample by one\n"
                            "request.");
  std::string prefix, out, listing, format = "tar";
  bool stream = false, headers = false;
  std::size_t limit = 16;
  tools::read_bounds bounds;
  mill::video_shards_options clips;
  given.add_option("PREFIX", prefix, "s3://bucket/prefix/, or a folder")
      ->required()
      ->type_name("")
      ->check(tools::not_empty);
  given.add_option("-o,--out", out, "The index: s3://bucket/key or a file (PREFIX/millrace.index)")->type_name("FILE");
  given
      .add_option("--listing", listing,
                  "Write what was listed, too, so that no rank of a\n"
                  "training lists: s3://bucket/key or a file, such as\n"
                  "PREFIX/millrace.listing")
      ->type_name("FILE");
  given
      .add_option("--format", format,
                  "What the samples are: members of tars, lines of text\n"
                  "files, records of TFRecord or RecordIO files, objects,\n"
                  "objects in folders that are classes, whole folders,\n"
                  "samples of MosaicML's MDS, rows of .npy files,\n"
                  "documents of Megatron-LM's .bin and .idx, rows of\n"
                  "Parquet files (all of their columns), or clips of films")
      ->check(tools::is_format())
      ->capture_default_str()
      ->type_name("FORMAT");
  CLI::Option* const all =
      given.add_flag("--stream", stream, "Read every byte once: the index has checksums of the samples");
  given.add_flag("--headers", headers, "Read headers alone: no checksums (default: what costs less)")->excludes(all);
  const CLI::Option* const seconds = given.add_option("--seconds", clips.seconds, "Of a clip of a film")
                                         ->check(tools::decimal)
                                         ->capture_default_str()
                                         ->type_name("S");
  const CLI::Option* const stride =
      given.add_option("--stride", clips.stride, "From a clip's beginning to that of the next one (--seconds)")
          ->check(tools::decimal)
          ->type_name("S");
  given.add_option("--shards", limit, "Shards that are read at the same time")
      ->check(tools::positive)
      ->capture_default_str()
      ->type_name("N");
  tools::add_bounds(given, bounds);
  return given.run(count, texts, [&] {
    const mill::index_way way = stream    ? mill::index_way::stream
                                : headers ? mill::index_way::headers
                                          : mill::index_way::cheaper;
    if (format != "video" && (*seconds || *stride)) {
      throw mill::configuration_error("--seconds and --stride are of films (--format video)");
    }
    const tools::format_ptr chosen =
        format == "video" ? mill::video_shards(clips) : tools::format_by_name(format, {}, bounds, way);
    const std::string file = out.empty() ? tools::index_of(prefix) : out;
    return chosen->of_objects() ? index_objects(prefix, file, listing, chosen)
                                : index_all(prefix, file, listing, chosen, limit);
  });
}
