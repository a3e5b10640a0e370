// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// millrace-reshard: shards of any format, or objects, to tars in a new order, of another size, split, filtered.
// docs/guide/tools.md describes it.

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/formats/write_shards.hpp>
#include <millrace/index/detail/samples_sum.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/sync/channel.hpp>

#include "src/tools/command_line.hpp"
#include "src/tools/samples.hpp"
#include "src/tools/shuffle_spool.hpp"

namespace mill = millrace;

namespace {

struct options {
  std::string source, destination, format, spool;
  std::vector<std::string> columns, split, rename, drop, only, with;
  std::string keys;
  bool no_shuffle = false, go_on = false, shard_in_key = false, dry_run = false, read_back = false;
  std::uint64_t seed = 0;
  std::uint64_t shard_bytes = 256 * mill::MiB;
  std::uint64_t shard_samples = 0;
  std::uint64_t memory = 512 * mill::MiB;
  std::uint64_t disk = 0;
  std::uint64_t checkpoint = mill::GiB;
  double price_get = 0, price_put = 0, price_gb = 0;
  tools::read_bounds bounds;
};

/// Wrong options that CLI11 does not see.
class usage : public mill::configuration_error {
 public:
  using mill::configuration_error::configuration_error;
};

std::string shown(std::uint64_t bytes) { return mill::format_bytes(static_cast<double>(bytes)); }
unsigned long long number(std::uint64_t n) { return static_cast<unsigned long long>(n); }
std::string plural(std::uint64_t n, const char* what) { return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s"); }

/// A part of the samples, and the names of its shards.
struct output {
  std::string name;  // empty: all
  double share = 1;
  std::string pattern;
};

std::vector<output> outputs_of(const options& o) {
  std::vector<output> all;
  for (const std::string& text : o.split) {
    const std::size_t equals = text.find('=');
    output out;
    out.name = text.substr(0, equals);
    char* end = nullptr;
    if (equals != std::string::npos) out.share = std::strtod(text.c_str() + equals + 1, &end);
    bool good = !out.name.empty() && end != nullptr && end != text.c_str() + equals + 1 && *end == '\0';
    good = good && out.share > 0 && out.share <= 1 && out.name.find('/') == std::string::npos;
    if (!good) throw usage("--split: '" + text + "' is not NAME=SHARE, with a share above 0 and at most 1");
    for (const output& other : all) {
      if (other.name == out.name) throw usage("--split: " + out.name + " is there twice");
    }
    all.push_back(std::move(out));
  }
  double sum = 0;
  for (const output& out : all) sum += out.share;
  if (!all.empty() && std::abs(sum - 1) > 1e-9) throw usage("--split: the shares have the sum 1, and not another");
  const bool split = !all.empty();
  if (!split) all.emplace_back();
  std::string to = o.destination;
  const bool has_number = to.find("{}") != std::string::npos;
  if (!has_number) to += std::string(to.back() == '/' ? "" : "/") + (split ? "{split}-{}.tar" : "shard-{}.tar");
  for (output& out : all) {
    out.pattern = to;
    const std::size_t at = to.find("{split}");
    if (split && at == std::string::npos) throw usage("a DESTINATION with {} has {split}, too, where --split is given");
    if (!split && at != std::string::npos) throw usage("a DESTINATION with {split} needs --split");
    if (split) out.pattern.replace(at, 7, out.name);
  }
  return all;
}

/// Which output a key is of: by its hash alone, so that a sample stays where it is, whatever the seed, and whatever
/// other samples there are.
std::size_t output_of(const std::vector<output>& outputs, std::string_view key) {
  if (outputs.size() == 1) return 0;
  const std::uint64_t hash = mill::detail::mix64(mill::key_hash(key) ^ 0x73706c69742e2e2e);  // "split..."
  const double at = static_cast<double>(hash >> 11) * 0x1p-53;
  double sum = 0;
  for (std::size_t i = 0; i + 1 < outputs.size(); ++i) {
    sum += outputs[i].share;
    if (at < sum) return i;
  }
  return outputs.size() - 1;
}

/// What is done to each sample.
class change {
 public:
  explicit change(const options& o) : keys_(o.keys), with_(o.with), shard_in_key_(o.shard_in_key) {
    drop_.insert(o.drop.begin(), o.drop.end());
    only_.insert(o.only.begin(), o.only.end());
    for (const std::string& text : o.rename) {
      const std::size_t equals = text.find('=');
      if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
        throw usage("--rename: '" + text + "' is not OLD=NEW");
      }
      rename_.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  }

  /// Whether the sample is written. `key_changed` is set where dots of its key had to go.
  bool operator()(mill::sample& s, const mill::shard& of, bool& key_changed) const {
    if (!takes(s.key)) return false;
    for (const std::string& name : with_) {
      if (s.find(name) == nullptr) return false;
    }
    std::erase_if(s.fields, [&](const mill::field& f) {
      return drop_.count(f.extension) != 0 || (!only_.empty() && only_.count(f.extension) == 0);
    });
    for (const auto& [old, name] : rename_) {
      for (mill::field& f : s.fields) {
        if (f.extension == old) {
          f.extension = name;
          break;
        }
      }
    }
    for (std::size_t i = 0; i < s.fields.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (s.fields[i].extension != s.fields[k].extension) continue;
        throw mill::archive_error("two fields of the sample would have this name", place_of(s, s.fields[i].extension));
      }
    }
    s.key = key_in_tar(std::move(s.key), of, key_changed);
    return true;
  }
  /// True if --keys matches a key of the source.
  bool takes(const std::string& key) const { return keys_.empty() || ::fnmatch(keys_.c_str(), key.c_str(), 0) == 0; }
  bool takes_all_keys() const noexcept { return keys_.empty(); }
  bool shard_in_key() const noexcept { return shard_in_key_; }
  /// The key that is written of one of the source.
  std::string key_in_tar(std::string key, const mill::shard& of, bool& changed) const {
    if (shard_in_key_) {
      std::string name = of.url.substr(of.url.rfind('/') + 1);
      key = name.substr(0, name.find('.')) + '/' + key;
    }
    // In a tar the key ends at the first dot after the last slash.
    for (std::size_t i = key.rfind('/') + 1; i < key.size(); ++i) {
      if (key[i] != '.') continue;
      key[i] = '_';
      changed = true;
    }
    return key;
  }

 private:
  static mill::where place_of(const mill::sample& s, const std::string& name) {
    mill::where at = s.from.at(s.key + '.' + name);
    return at;
  }

  std::string keys_;
  std::vector<std::string> with_;
  bool shard_in_key_;
  std::set<std::string> drop_, only_;
  std::vector<std::pair<std::string, std::string>> rename_;
};

/// Keys of the source that are one in a tar, as dots become `_`: those of two shards of lines or records, whose keys
/// are their names and numbers, and of two folders.
class merged_keys {
 public:
  /// Throws where there are such among those that are taken, as far as that is known before they are read: with --keys
  /// it is not known of lines and records.
  merged_keys(const tools::sample_source& source, const change& to_change) : source_(source), to_change_(to_change) {
    twin_.resize(source.shards().size());
    const bool folders = source.format() == "folders";
    std::map<std::string, std::pair<std::size_t, std::uint64_t>> written;
    for (std::size_t i = 0; i < twin_.size(); ++i) {
      for (std::uint64_t n = 0; n < source.telling_keys(i); ++n) {
        const std::string key = source.key(i, n);
        if (folders && !to_change.takes(key)) continue;
        bool changed = false;
        const auto [at, fresh] = written.try_emplace(to_change.key_in_tar(key, source.shards()[i], changed), i, n);
        const auto other = std::exchange(at->second, std::pair(i, n));
        if (fresh) continue;
        if (folders) refuse(i, source.key(other.first, other.second), key);
        twin_[i] = other.first;
        if (to_change.takes_all_keys()) check(i, key);
      }
    }
  }

  /// Throws where another shard has a sample with the key that this one would have.
  void check(std::size_t shard, const std::string& key) const {
    for (std::optional<std::size_t> other = twin_[shard]; other; other = twin_[*other]) {
      const std::string first = source_.key(*other, 0);
      const std::string its = first.substr(0, first.rfind('#')) + key.substr(key.rfind('#'));
      if (to_change_.takes(its)) refuse(shard, its, key);
    }
  }

 private:
  [[noreturn]] void refuse(std::size_t shard, const std::string& a, const std::string& b) const {
    bool changed = false;
    const bool may_help = source_.format() != "folders" && !to_change_.shard_in_key();
    throw mill::archive_error(
        a + " and " + b + " would have one key in a tar, where dots of its last part become _: give one another name" +
            (may_help ? ", or both that of their shard (--shard-in-key)" : ""),
        mill::where{source_.shards()[shard].shown(), std::nullopt,
                    to_change_.key_in_tar(b, source_.shards()[shard], changed)});
  }

  const tools::sample_source& source_;
  const change& to_change_;
  std::vector<std::optional<std::size_t>> twin_;  // of each shard the last one before whose keys are its own in a tar
};

/// Where it is, and for how long still. On a terminal one line that is drawn again and again, else one every 10 s.
class progress {
 public:
  void begin(const char* what, std::uint64_t total, std::uint64_t done) {
    what_ = what;
    total_ = total;
    begun_at_ = done;
    begun_ = drawn_ = mill::monotonic_ns();
  }
  void show(std::uint64_t done, std::uint64_t samples, bool last = false) {
    const std::int64_t now = mill::monotonic_ns();
    if (!last && now - drawn_ < (terminal_ ? 200'000'000 : 10'000'000'000)) return;
    drawn_ = now;
    done = std::min(done, total_);
    const double seconds = static_cast<double>(now - begun_) * 1e-9;
    const double rate = seconds > 0 ? static_cast<double>(done - std::min(done, begun_at_)) / seconds : 0;
    std::string left;
    if (!last && rate > 0) {
      const auto s = static_cast<std::uint64_t>(static_cast<double>(total_ - done) / rate + 0.5);
      char text[64];
      std::snprintf(text, sizeof text, ", %llu:%02llu:%02llu left", number(s / 3600), number(s / 60 % 60),
                    number(s % 60));
      left = text;
    }
    const std::uint64_t percent =
        total_ == 0 ? 100 : static_cast<std::uint64_t>(100.0 * static_cast<double>(done) / static_cast<double>(total_));
    std::fprintf(stderr, "%s%s: %s of %s (%llu %%), %s samples, %s/s%s%s", terminal_ ? "\r\x1b[K" : "", what_,
                 shown(done).c_str(), shown(total_).c_str(), number(percent),
                 mill::format_count(static_cast<double>(samples)).c_str(), mill::format_bytes(rate).c_str(),
                 left.c_str(), terminal_ && !last ? "" : "\n");
  }

 private:
  const bool terminal_ = ::isatty(2) != 0;  // asked once: show() is called for each sample
  const char* what_ = "";
  std::uint64_t total_ = 0;
  std::uint64_t begun_at_ = 0;
  std::int64_t begun_ = 0;
  std::int64_t drawn_ = 0;
};

/// All that a job is: the source, the outputs, and where the samples are on their way.
class job {
 public:
  explicit job(const options& o)
      : how(o),
        outputs(outputs_of(o)),
        to_change(o),
        source(o.source, tools::given_format(o.format), o.columns, o.bounds),
        one_key(source, to_change),
        to(o.destination) {
    for (const output& out : outputs) {
      names.emplace_back(out.pattern);
      mill::detail::check_writing(*to.storage(), names.back(), writing(false));
    }
    counts.resize(outputs.size());
    written.resize(outputs.size());
    before_.resize(source.shards().size() + 1);
    for (std::size_t i = 0; i < source.shards().size(); ++i) {
      before_[i + 1] = before_[i] + source.shards()[i].size.value_or(0);
    }
  }

  mill::write_shards_options writing(bool go_on) const {
    mill::write_shards_options w;
    w.bytes = how.shard_bytes;
    w.samples = how.shard_samples;
    w.go_on = go_on;
    w.part = std::clamp<std::size_t>(static_cast<std::size_t>(how.memory / 64), 5 * mill::MiB, w.part);
    return w;
  }
  /// Bytes of the source before this sample, as the listing counts them.
  std::uint64_t bytes_at(const tools::placed_sample& s) const noexcept {
    const std::uint64_t size = before_[s.shard + 1] - before_[s.shard];
    return before_[s.shard] + std::min(s.it.from.offset, size);
  }
  std::uint64_t bytes_at(const tools::place_in_source& p) const noexcept { return before_[p.shard]; }

  /// What the output depends on: a line for each, for the journal.
  std::string text() const {
    mill::hasher128 list;
    for (const mill::shard& s : source.shards()) {
      list.add(s.url);
      list.add(s.size.value_or(0));
      list.add(s.etag);
    }
    std::string out;
    const auto one = [&](const char* name, const std::string& value) { out += std::string(name) + ' ' + value + '\n'; };
    const auto several = [&](const char* name, const std::vector<std::string>& values) {
      for (const std::string& v : values) one(name, v);
    };
    one("source", how.source);
    one("format", source.format());
    one("list", list.value().text());
    for (const output& o : outputs) one("destination", o.pattern + " " + std::to_string(o.share));
    one("seed", std::to_string(how.seed));
    one("shard-bytes", std::to_string(how.shard_bytes));
    one("shard-samples", std::to_string(how.shard_samples));
    one("keys", how.keys);
    several("column", how.columns);
    several("with", how.with);
    several("rename", how.rename);
    several("drop", how.drop);
    several("only", how.only);
    one("shard-in-key", how.shard_in_key ? "1" : "0");
    return out;
  }

  const options how;
  const std::vector<output> outputs;
  const change to_change;
  const tools::sample_source source;
  const merged_keys one_key;
  const tools::store to;
  std::vector<mill::detail::shard_names> names;
  std::vector<tools::output_count> counts;
  struct written_count {
    std::uint64_t shards = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<written_count> written;  // by this run
  std::uint64_t samples = 0;           // read
  std::uint64_t rekeyed = 0;
  progress line;

 private:
  std::vector<std::uint64_t> before_;
};

mill::async_generator<mill::sample> each_of(std::shared_ptr<mill::channel<mill::sample>> from) {
  for (;;) {
    std::optional<mill::sample> s = co_await from->receive();
    if (!s) co_return;
    co_yield mill::give(*s);
  }
}

/// Writes all samples of an output.
mill::task<void> write(job& j, std::size_t i, mill::async_generator<mill::sample> samples, bool go_on) {
  mill::write_shards_options how = j.writing(go_on);
  mill::async_generator<mill::written_shard> shards =
      mill::detail::write_samples(std::move(samples), j.to.storage(), j.names[i], how);
  while (std::optional<mill::written_shard> s = co_await shards.next()) {
    ++j.written[i].shards;
    j.written[i].bytes += s->bytes;
  }
}

/// The same of what comes through a channel; where it fails, what sends learns that.
mill::task<void> write_what_comes(job& j, std::size_t i, std::shared_ptr<mill::channel<mill::sample>> from) {
  class closer {
   public:
    explicit closer(mill::channel<mill::sample>& c) : c_(c) {}
    ~closer() { c_.close(); }

   private:
    mill::channel<mill::sample>& c_;
  };
  const closer at_end(*from);
  mill::async_generator<mill::sample> samples = each_of(from);
  co_await write(j, i, std::move(samples), j.how.go_on);
}

/// Two of one key would stand side by side, and be read as one.
[[noreturn]] void refuse_neighbour(const mill::origin& before, const mill::sample& s) {
  const mill::where first = before.at();
  throw mill::archive_error("the sample before it, at byte " + std::to_string(first.offset.value_or(0)) + " of " +
                                first.object +
                                ", has the same key, and they would be read as one: --shard-in-key "
                                "makes keys of different shards different, and a shuffle keeps them apart",
                            s.from.at(s.key));
}

/// One pass over the source, and nothing is sorted.
mill::task<void> repack(job& j) {
  const mill::coroutine_context here = co_await mill::this_context();
  std::vector<std::shared_ptr<mill::channel<mill::sample>>> to;
  std::vector<mill::spawned<void>> writers;
  for (std::size_t i = 0; i < j.outputs.size(); ++i) {
    to.push_back(std::make_shared<mill::channel<mill::sample>>(16));
    mill::task<void> work = write_what_comes(j, i, to.back());
    writers.emplace_back(here, std::move(work));
  }
  std::vector<std::optional<mill::origin>> before(j.outputs.size());
  std::vector<std::string> key_before(j.outputs.size());
  j.line.begin("repacking", j.source.bytes(), 0);
  mill::stream<tools::placed_sample> all = j.source.samples({}, static_cast<std::size_t>(j.how.memory / 4));
  while (std::optional<tools::placed_sample> s = co_await all.next()) {
    ++j.samples;
    bool changed = false;
    const std::string key = s->it.key;
    if (!j.to_change(s->it, j.source.shards()[s->shard], changed)) continue;
    j.one_key.check(s->shard, key);
    j.rekeyed += changed ? 1 : 0;
    const std::size_t i = output_of(j.outputs, s->it.key);
    if (before[i] && key_before[i] == s->it.key) refuse_neighbour(*before[i], s->it);
    before[i] = s->it.from;
    key_before[i] = s->it.key;
    tools::output_count& count = j.counts[i];
    ++count.samples;
    for (const mill::field& f : s->it.fields) count.bytes += f.data.size();
    count.sum.add(s->it);
    j.line.show(j.bytes_at(*s), j.samples);
    const bool sent = co_await to[i]->send(std::move(s->it));
    if (sent) continue;
    co_await writers[i];  // throws why; the others are dropped, as their samples are not all
    throw mill::error("a writer ended before its samples", mill::where{j.outputs[i].pattern, std::nullopt, {}});
  }
  for (const auto& c : to) c->close();
  for (mill::spawned<void>& w : writers) co_await w;
  j.line.show(j.source.bytes(), j.samples, true);
}

/// Into the runs of the spool.
mill::task<void> deal(job& j, tools::shuffle_spool& spool) {
  co_await spool.open();
  j.line.begin("1/2 reading", j.source.bytes(), j.bytes_at(spool.place));
  std::uint64_t committed = spool.bytes();
  mill::stream<tools::placed_sample> all = j.source.samples(spool.place, static_cast<std::size_t>(j.how.memory / 4));
  while (std::optional<tools::placed_sample> s = co_await all.next()) {
    ++spool.samples;
    bool changed = false;
    const std::uint64_t at = j.bytes_at(*s);
    const std::string key = s->it.key;
    if (j.to_change(s->it, j.source.shards()[s->shard], changed)) {
      j.one_key.check(s->shard, key);
      spool.rekeyed += changed ? 1 : 0;
      const std::size_t i = output_of(j.outputs, s->it.key);
      mill::detail::check_sample(s->it, {}, j.names[i], 0);  // now, and not when all has been read
      co_await spool.add(i, s->shard, s->ordinal, s->it);
    }
    spool.place.shard = s->shard;
    spool.place.ordinal = s->ordinal + 1;
    j.line.show(at, spool.samples);
    if (spool.bytes() - committed < j.how.checkpoint) continue;
    if (j.how.disk != 0 && spool.bytes() > j.how.disk) {
      throw mill::error("the spool is larger than --disk allows", mill::where{j.how.spool, std::nullopt, {}});
    }
    co_await spool.commit();
    committed = spool.bytes();
  }
  spool.place.shard = j.source.shards().size();
  spool.place.ordinal = 0;
  for (std::size_t i = 0; i < j.outputs.size(); ++i) {
    if (spool.counts[i].samples != 0) continue;
    const std::string of = j.outputs[i].name.empty() ? "" : " for " + j.outputs[i].name;
    throw mill::configuration_error("there is no sample" + of + " among " + plural(spool.samples, "sample"));
  }
  co_await spool.end_deal();
  j.line.show(j.source.bytes(), spool.samples, true);
}

/// Counts what passes.
mill::async_generator<mill::sample> watched(job& j, mill::async_generator<mill::sample> in, std::uint64_t& done,
                                            std::uint64_t& samples) {
  while (std::optional<mill::sample> s = co_await in.next()) {
    for (const mill::field& f : s->fields) done += f.data.size();
    j.line.show(done, ++samples);
    co_yield mill::give(*s);
  }
}

mill::task<void> shuffle(job& j, tools::shuffle_spool& spool) {
  const bool go_on = spool.at() != tools::shuffle_spool::phase::deal;
  if (!go_on) co_await deal(j, spool);
  j.counts = spool.counts;
  j.samples = spool.samples;
  j.rekeyed = spool.rekeyed;
  if (spool.at() == tools::shuffle_spool::phase::done) co_return;
  std::uint64_t all = 0, done = 0, samples = 0;
  for (const tools::output_count& c : j.counts) all += c.bytes;
  j.line.begin("2/2 writing", all, 0);
  for (std::size_t i = 0; i < j.outputs.size(); ++i) {
    mill::async_generator<mill::sample> sorted = tools::shuffle_spool::shuffled(&spool, i, &j.source.shards());
    mill::async_generator<mill::sample> in = watched(j, std::move(sorted), done, samples);
    co_await write(j, i, std::move(in), go_on);
  }
  j.line.show(all, samples, true);
}

/// Throws where something of an output is there.
mill::task<void> refuse_what_is_there(job& j) {
  for (std::size_t i = 0; i < j.outputs.size(); ++i) {
    co_await mill::detail::refuse_what_is_there(j.to.storage(), j.names[i], j.writing(false));
  }
}

std::string_view after(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + name.size());
}

/// Whether the manifest of an output, which is made of the indexes that lie in the destination, has the samples that
/// were read.
bool is_as_read(const job& j, std::size_t i) {
  const std::string url = j.names[i].beside("millrace.json");
  const std::optional<std::string> text = j.to.read(url);
  if (!text) throw mill::error("the manifest is not there", mill::where{url, std::nullopt, {}});
  std::string_view count = after(*text, "\"samples\": ");
  const std::optional<std::uint64_t> samples = mill::text::take_decimal<std::uint64_t>(count);
  const std::string_view sum = after(*text, "\"fingerprint\": \"").substr(0, 32);
  const tools::output_count& read = j.counts[i];
  if (samples == read.samples && sum == read.sum.value().text()) return true;
  std::fprintf(stderr, "millrace-reshard: %s says %llu samples with fingerprint %s, and %llu with %s were read\n",
               url.c_str(), number(samples.value_or(0)), std::string(sum).c_str(), number(read.samples),
               read.sum.value().text().c_str());
  return false;
}

/// The same of the shards' own bytes, all of which are read.
mill::task<void> read_back(job& j, bool& good) {
  for (std::size_t i = 0; i < j.outputs.size(); ++i) {
    std::vector<mill::shard> shards = co_await mill::detail::written_shards(j.to.storage(), j.names[i]);
    std::uint64_t all = 0, done = 0;
    for (const mill::shard& s : shards) all += s.size.value_or(0);
    j.line.begin("reading back", all, 0);
    const std::shared_ptr<const mill::storage> from = j.to.storage();
    auto one = [from](mill::shard s) {
      mill::index_shard_options by_reading;
      by_reading.verify = false;  // the comparison is what follows
      auto tars = mill::tar_shards({.way = mill::index_way::stream, .max_member = UINT64_MAX});
      return mill::index_shard(from, std::move(s), std::string("it"), std::move(tars), by_reading);
    };
    mill::stream<mill::shard_index> indexes =
        mill::from_range(std::move(shards)) | mill::map_concurrent(std::move(one), {.limit = 4});
    mill::detail::samples_sum sum;
    std::uint64_t samples = 0;
    while (std::optional<mill::shard_index> index = co_await indexes.next()) {
      sum.add(*index);
      samples += index->samples();
      done += index->object_size();
      j.line.show(done, samples);
    }
    j.line.show(all, samples, true);
    if (samples == j.counts[i].samples && sum.value() == j.counts[i].sum.value()) continue;
    good = false;
    std::fprintf(stderr,
                 "millrace-reshard: %s: the shards have %llu samples with fingerprint %s, and %llu with %s were "
                 "read\n",
                 j.outputs[i].pattern.c_str(), number(samples), sum.value().text().c_str(), number(j.counts[i].samples),
                 j.counts[i].sum.value().text().c_str());
  }
}

/// Runs a task on a runtime's loop, with its pool.
mill::async_generator<int> as_source(mill::task<void> work) {
  co_await std::move(work);
  int done = 0;
  co_yield mill::give(done);
}
void run(mill::task<void> work) {
  auto done = mill::run(mill::stream<int>(as_source(std::move(work))), {.show = mill::progress::off});
  for (const int& one : done) static_cast<void>(one);
}

int dry_run(const job& j) {
  const options& o = j.how;
  const tools::sample_source& from = j.source;
  const std::uint64_t again = from.without_index() == 0 ? 1 : 2;
  const std::uint64_t bytes = from.bytes();
  std::printf("source: %s of %s, %s\n", plural(from.shards().size(), "shard").c_str(), from.format().c_str(),
              shown(bytes).c_str());
  if (again == 2) {
    std::printf("  %s without an index: read once for it, and once for the samples (millrace-index makes it)\n",
                plural(from.without_index(), "shard").c_str());
  }
  if (!o.no_shuffle) {
    std::printf("spool: about %s in %s, where %s are free\n", shown(bytes).c_str(),
                o.spool.empty() ? "--spool" : o.spool.c_str(),
                shown(tools::shuffle_spool::free_bytes(o.spool.empty() ? "." : o.spool)).c_str());
  }
  std::printf("memory: about %s\n", shown(o.memory).c_str());
  const std::uint64_t gets = tools::store::is_s3(o.source) ? from.requests() * again : 0;
  std::uint64_t puts = 0, gets_of_written = 0, shards = 0;
  const std::uint64_t part = j.writing(false).part;
  const tools::sample_source::as_tars all = from.written(o.shard_samples != 0);
  for (const output& out : j.outputs) {
    const auto share = [&](std::uint64_t of) {
      return static_cast<std::uint64_t>(static_cast<double>(of) * out.share + 0.5);
    };
    const std::uint64_t its = share(all.bytes);
    std::uint64_t n = std::max<std::uint64_t>(1, (its + o.shard_bytes - 1) / o.shard_bytes);
    if (o.shard_samples != 0) n = std::max(n, (share(all.samples.value_or(0)) + o.shard_samples - 1) / o.shard_samples);
    const std::uint64_t size = std::min(its / n + 1, o.shard_bytes);
    const std::uint64_t parts = (size + part - 1) / part;
    shards += n;
    puts += n * (parts <= 1 ? 1 : parts + 2) + n + 2;
    gets_of_written += 2 * n + (o.no_shuffle ? 3 : 4);  // indexes twice, and looks for a manifest
  }
  const bool to_store = tools::store::is_s3(o.destination);
  if (!to_store) puts = gets_of_written = 0;
  if (to_store && o.read_back) gets_of_written += (bytes + 8 * mill::MiB - 1) / (8 * mill::MiB) + shards;
  const bool least = all.least || (o.shard_samples != 0 && !all.samples);
  const std::string most = o.shard_samples == 0 ? "" : " and " + plural(o.shard_samples, "sample");
  std::printf("destination: %s %s of up to %s%s%s\n", least ? "at least" : "about", plural(shards, "shard").c_str(),
              shown(o.shard_bytes).c_str(), most.c_str(),
              o.keys.empty() && o.with.empty() && o.drop.empty() && o.only.empty()
                  ? ""
                  : ", if all samples and fields were taken");
  if (least && !all.samples)
    std::printf("  how many samples there are is known by an index (millrace-index makes it)\n");
  if (least && all.samples) std::printf("  the headers of the files of a sample are not counted\n");
  for (const output& out : j.outputs) std::printf("  %s\n", out.pattern.c_str());
  std::printf("requests: about %llu GET, %llu PUT; %s read from the store\n", number(gets + gets_of_written),
              number(puts), shown(gets != 0 ? bytes * again : 0).c_str());
  if (o.price_get != 0 || o.price_put != 0 || o.price_gb != 0) {
    const double requests = static_cast<double>(gets + gets_of_written) / 1000 * o.price_get +
                            static_cast<double>(puts) / 1000 * o.price_put;
    const double traffic = gets != 0 ? static_cast<double>(bytes * again) * 1e-9 * o.price_gb : 0;
    std::printf("price: %.4f for requests, %.4f for bytes that leave the store\n", requests, traffic);
  }
  return tools::fine;
}

int reshard(const options& o) {
  job j(o);
  const std::string left_out = j.source.left_out();
  if (!left_out.empty()) std::fprintf(stderr, "millrace-reshard: %s\n", left_out.c_str());
  if (o.dry_run) return dry_run(j);
  if (!tools::store::is_s3(o.destination)) {
    std::error_code error;
    for (const mill::detail::shard_names& n : j.names) {
      const std::string folder = n.folder();
      if (!folder.empty()) std::filesystem::create_directories(folder, error);
      if (error) throw mill::io_error::of(error.value(), "the folder cannot be made", mill::where{folder, {}, {}});
    }
  }
  std::unique_ptr<tools::shuffle_spool> spool;
  if (o.no_shuffle) {
    run(repack(j));
  } else {
    const bool begun = ::access((o.spool + "/journal").c_str(), F_OK) == 0;
    if (!begun) {
      run(refuse_what_is_there(j));
      const std::uint64_t free = tools::shuffle_spool::free_bytes(o.spool);
      if (free < j.source.bytes()) {
        throw mill::configuration_error(
            "there are " + shown(free) + " free, and the spool takes about " + shown(j.source.bytes()),
            mill::where{o.spool, std::nullopt, {}});
      }
      if (o.disk != 0 && o.disk < j.source.bytes()) {
        throw mill::configuration_error(
            "--disk allows " + shown(o.disk) + ", and the spool takes about " + shown(j.source.bytes()),
            mill::where{o.spool, std::nullopt, {}});
      }
    }
    spool = std::make_unique<tools::shuffle_spool>(o.spool, j.text(), j.outputs.size(), j.source.bytes(),
                                                   static_cast<std::size_t>(o.memory));
    spool->seed = o.seed;
    if (spool->resumed()) {
      std::fprintf(stderr, "millrace-reshard: goes on by %s/journal, after %s%s\n", o.spool.c_str(),
                   plural(spool->samples, "sample").c_str(),
                   spool->at() == tools::shuffle_spool::phase::deal ? " that were read" : ", all that there are");
    }
    run(shuffle(j, *spool));
  }
  bool good = true;
  std::uint64_t taken = 0;
  for (std::size_t i = 0; i < j.outputs.size(); ++i) {
    good = is_as_read(j, i) && good;
    taken += j.counts[i].samples;
  }
  if (o.read_back) run(read_back(j, good));
  for (std::size_t i = 0; i < j.outputs.size(); ++i) {
    const char* const verdict = !good ? "NOT VERIFIED" : o.read_back ? "read back, and agrees" : "the indexes agree";
    std::printf("%s: %s, %s, fingerprint %s; %s\n", j.outputs[i].pattern.c_str(),
                plural(j.counts[i].samples, "sample").c_str(), shown(j.counts[i].bytes).c_str(),
                j.counts[i].sum.value().text().c_str(), verdict);
  }
  if (j.samples != taken) std::printf("left out by the filters: %s\n", plural(j.samples - taken, "sample").c_str());
  if (j.rekeyed != 0) std::printf("keys with dots, which became _: %llu\n", number(j.rekeyed));
  if (!good) return tools::bad_data;
  if (spool != nullptr) spool->remove();
  return tools::fine;
}

}  // namespace

int main(int count, char** texts) {
  tools::command_line given("millrace-reshard",
                            "Writes the samples of shards of any format, or of objects, to new tar shards: shuffled,\n"
                            "of another size, split, filtered. A run that was killed goes on by the same command.");
  options o;
  given.add_option("SOURCE", o.source, "A shard, s3://bucket/prefix/, or a folder")
      ->required()
      ->type_name("")
      ->check(tools::not_empty);
  given
      .add_option("DESTINATION", o.destination,
                  "s3://bucket/prefix/ or a folder, for shard-000000.tar and so on;\n"
                  "or names with {}, the number, and with --split {split}")
      ->required()
      ->type_name("")
      ->check(tools::not_empty);
  tools::add_format(given, o.format, o.columns);
  CLI::Option* const spool =
      given.add_option("--spool", o.spool, "A folder on a local disk, with room for all samples")->type_name("FOLDER");
  given.add_option("--disk", o.disk, "Of that disk, at most")->transform(CLI::AsSizeValue(false))->type_name("SIZE");
  CLI::Option* const seed =
      given.add_option("--seed", o.seed, "Of the order")->check(tools::number)->type_name("S")->capture_default_str();
  CLI::Option* const no_shuffle = given.add_flag("--no-shuffle", o.no_shuffle, "Keep the order; nothing is spooled")
                                      ->excludes(spool)
                                      ->excludes(seed);
  given.add_flag("--go-on", o.go_on, "With --no-shuffle: go on after the shards that are there")->needs(no_shuffle);
  given.add_option("--shard-bytes", o.shard_bytes, "Of a shard, at most (256MiB)")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  given.add_option("--shard-samples", o.shard_samples, "Of a shard, at most")->check(tools::positive)->type_name("N");
  given.add_option("--split", o.split, "By the keys' hashes: train=0.9,val=0.1")
      ->delimiter(',')
      ->type_name("NAME=SHARE");
  given.add_option("--keys", o.keys, "Only samples whose keys match this pattern (* ? [])")->type_name("PATTERN");
  given.add_option("--with", o.with, "Only samples that have all these fields")->delimiter(',')->type_name("FIELD");
  given.add_option("--only", o.only, "Only these fields")->delimiter(',')->type_name("FIELD");
  given.add_option("--drop", o.drop, "Not these fields")->delimiter(',')->type_name("FIELD");
  given.add_option("--rename", o.rename, "Fields get other names: jpeg=jpg")->delimiter(',')->type_name("OLD=NEW");
  given.add_flag("--shard-in-key", o.shard_in_key, "Put the shard's name before each key, as its folder");
  given.add_option("--memory", o.memory, "What it takes, about (512MiB)")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  given.add_option("--checkpoint", o.checkpoint, "What is read twice after a kill, at most (1GiB)")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  given.add_flag("--read-back", o.read_back, "Read all that was written, and compare it");
  given.add_flag("--dry-run", o.dry_run, "Say what it costs, and do nothing");
  tools::add_bounds(given, o.bounds);
  const auto price = [&](const char* option, double& value, const char* what) {
    given.add_option(option, value, what)->type_name("PRICE")->check(tools::decimal);
  };
  price("--price-1000", o.price_get, "Price of 1000 GETs, for --dry-run");
  price("--price-put-1000", o.price_put, "Price of 1000 PUTs");
  price("--price-gb", o.price_gb, "Price of a gigabyte that leaves the store");
  return given.run(count, texts, [&] {
    try {
      if (o.spool.empty() && !o.no_shuffle && !o.dry_run) {
        throw usage("--spool is required: a folder on a local disk, for the shuffle; or --no-shuffle");
      }
      if (o.shard_bytes == 0) throw usage("--shard-bytes must not be 0");
      o.memory = std::max<std::uint64_t>(o.memory, 128 * mill::MiB);
      return reshard(o);
    } catch (const usage& e) {
      std::fprintf(stderr, "millrace-reshard: %s\nTry 'millrace-reshard --help'.\n", e.what());
      return static_cast<int>(tools::bad_usage);
    }
  });
}
