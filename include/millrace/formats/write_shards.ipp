// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/formats/write_shards.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/index/detail/samples_sum.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/sync/channel.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE shard_names::shard_names(std::string pattern) : pattern_(std::move(pattern)) {
  const std::size_t hole = pattern_.find("{}");
  const std::size_t last = pattern_.rfind('/');
  const bool once = hole != std::string::npos && pattern_.find("{}", hole + 2) == std::string::npos;
  if (!once || (last != std::string::npos && last > hole)) {
    throw configuration_error("write_shards: the name of a shard has {} once, for its number, after the last slash",
                              where{shown_url(pattern_), std::nullopt, {}});
  }
  if (std::string said; !text::append_json_string(said, pattern_)) {
    throw configuration_error("write_shards: the name is not UTF-8, which millrace.json is written in",
                              where{shown_url(pattern_), std::nullopt, {}});
  }
  hole_ = hole;
}

MILLRACE_INLINE std::string shard_names::url(std::uint64_t number) const {
  std::string digits = std::to_string(number);
  if (digits.size() < 6) digits.insert(0, 6 - digits.size(), '0');
  return pattern_.substr(0, hole_) + digits + pattern_.substr(hole_ + 2);
}

MILLRACE_INLINE std::optional<std::uint64_t> shard_names::number(std::string_view url) const {
  const std::size_t around = pattern_.size() - 2;
  if (url.size() < around + 6 || url.size() > around + 19) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : url.substr(hole_, url.size() - around)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (this->url(number) != url) return std::nullopt;
  return number;
}

MILLRACE_INLINE std::string shard_names::beside(std::string_view name) const {
  std::string out = prefix();
  while (!out.empty() && (out.back() == '-' || out.back() == '_' || out.back() == '.')) out.pop_back();
  if (!out.empty() && out.back() != '/') out += '.';
  return out.append(name);
}

/// Parts that hold a whole shard: 10,000 are the most.
MILLRACE_INLINE std::size_t part_of(const write_shards_options& how) noexcept {
  return std::max<std::size_t>(how.part, static_cast<std::size_t>(how.bytes / 9000));
}

MILLRACE_INLINE std::size_t writing_bytes(const write_shards_options& how) noexcept {
  return multiplied(2 * part_of(how), added(how.parts, 2));
}

MILLRACE_INLINE write_options writing_of(const write_shards_options& how, bool only_new) {
  write_options o;
  o.only_new = only_new;
  o.part = part_of(how);
  o.parts = how.parts;
  return o;
}

MILLRACE_INLINE void check_writing(const storage& to, const shard_names& names, const write_shards_options& how) {
  how.rank.check();
  if (how.bytes == 0 || how.part == 0 || how.part > 5 * GiB || how.parts == 0) {
    throw configuration_error("write_shards: .bytes, .part and .parts are 1 or more, and a part has 5 GiB at most");
  }
  require_writing(to, names.url(how.first), writing_of(how, true));
}

MILLRACE_COROUTINE_BODY task<std::vector<shard>> written_shards(std::shared_ptr<const storage> to, shard_names names) {
  std::vector<shard> found = co_await all_objects(std::move(to), names.prefix());
  std::erase_if(found, [&](const shard& s) { return !names.number(s.url); });
  const auto number = [&](const shard& s) { return *names.number(s.url); };
  std::sort(found.begin(), found.end(), [&](const shard& a, const shard& b) { return number(a) < number(b); });
  co_return std::move(found);
}

/// Reads all of a tar, with members of any length, as they were written here.
MILLRACE_INLINE std::shared_ptr<const shard_format> tar_as_written() {
  return tar_shards({.way = index_way::stream, .max_member = UINT64_MAX});
}

/// The index of a shard that is there: from its own file beside it, or by reading the shard, which then has one.
MILLRACE_COROUTINE task<shard_index> index_of_written(std::shared_ptr<const storage> to, shard_names names, shard s,
                                                      write_shards_options how) {
  const std::string beside = shard_names::index_of(s.url);
  std::string reason = "has no index beside it";
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::optional<std::string> text = co_await text_if_there(to, shard(beside), 8 * MiB, attempt > 0);
    if (!text) break;
    try {
      std::string_view rest = *text;
      shard_index index = shard_index::read(rest, shown_url(beside));
      index.check(s);
      if (rest.empty() && index.is_of("tar", {})) co_return std::move(index);
      reason = "has something else than its index beside it";
    } catch (const index_error& e) {
      reason = std::string("has an index that is not its own, or is damaged: ") + e.what();
    }
  }
  log_line(co_await this_executor(), "millrace: write_shards: " + s.shown() + ' ' + reason + ": the shard is read");
  const std::string url = s.url;
  std::string name = url.substr(names.folder().size());
  shard_index index = co_await index_shard(to, std::move(s), std::move(name), tar_as_written());
  co_await put_text(*to, beside, index.text(), writing_of(how, false));
  co_return std::move(index);
}

/// The shard that is being made, and its bytes on their way.
class shard_in_making {
 public:
  /// Of tar::writer.
  struct sink {
    shard_in_making* to;
    void operator()(std::string_view piece) const { to->append(piece); }
  };

  shard_in_making(const shard_names& names, std::uint64_t its_number, slab_pool memory, std::shared_ptr<event> other)
      : number(its_number),
        url(names.url(its_number)),
        index(url.substr(names.folder().size()), url, tar_index_builder::checksums::crc32c),
        before(std::move(other)),
        archive(sink{this}),
        slabs_(std::move(memory)) {}

  const std::uint64_t number;
  const std::string url;
  tar_index_builder index;
  channel<bytes> parts{1};
  bool ended = false;                                   // all parts have been taken
  const std::shared_ptr<event> before;                  // set when the shard before it is complete; may be null
  const std::shared_ptr<event> stored = std::make_shared<event>();
  tar::writer<sink> archive;
  std::vector<bytes> full;  // parts that have not been sent

  void append(std::string_view piece) {
    while (!piece.empty()) {
      if (!slab_) slab_ = slabs_.acquire();
      const std::size_t n = std::min(piece.size(), slab_.capacity() - filled_);
      std::memcpy(slab_.data() + filled_, piece.data(), n);
      filled_ += n;
      piece.remove_prefix(n);
      if (filled_ == slab_.capacity()) cut();
    }
  }
  void cut() {
    if (filled_ == 0) return;
    full.push_back(slab_.share(0, filled_));
    slab_ = writable_bytes();
    filled_ = 0;
  }

 private:
  slab_pool slabs_;
  writable_bytes slab_;
  std::size_t filled_ = 0;
};

/// Ends when the shard before it is complete: so no shard is without those before it, whenever the program is killed.
MILLRACE_COROUTINE async_generator<bytes> parts_of(std::shared_ptr<shard_in_making> made) {
  for (;;) {
    std::optional<bytes> part = co_await made->parts.receive();
    if (!part) break;
    co_yield give(*part);
  }
  made->ended = true;
  if (made->before != nullptr) co_await made->before->wait();
}

/// Stores a shard, then its index.
MILLRACE_COROUTINE task<written_shard> store_shard(std::shared_ptr<const storage> to, shard_names names,
                                                   std::shared_ptr<shard_in_making> made, write_shards_options how) {
  written_shard out;
  out.number = made->number;
  out.url = made->url;
  std::exception_ptr refused, failure;
  try {
    async_generator<bytes> content = parts_of(made);
    out.etag = co_await to->put(made->url, std::move(content), writing_of(how, true));
  } catch (const changed_error&) {  // an object is there
    failure = refused = std::current_exception();
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure != nullptr) made->parts.close();
  if (failure != nullptr && (!made->ended || refused == nullptr)) std::rethrow_exception(failure);
  out.samples = made->index.samples();
  out.bytes = made->archive.bytes_written();
  std::optional<shard_index> there;
  if (refused != nullptr) {
    // It was not there before. An attempt of ours may have got through, and its answer been lost: then the object has
    // what was sent.
    std::vector<shard> all = co_await written_shards(to, names);
    std::erase_if(all, [&](const shard& s) { return s.url != out.url || s.size != out.bytes; });
    if (all.empty()) std::rethrow_exception(refused);
    std::string name = out.url.substr(names.folder().size());
    there = co_await index_shard(to, std::move(all.front()), std::move(name), tar_as_written());
    out.etag = there->etag();
  }
  const shard_index index = made->index.finish(out.bytes, out.etag);
  if (there && !(*there == index)) std::rethrow_exception(refused);
  co_await put_text(*to, shard_names::index_of(out.url), index.text(), writing_of(how, false));
  made->stored->set();
  co_return std::move(out);
}

MILLRACE_INLINE void check_sample(const sample& s, std::string_view key_before, const shard_names& names,
                                  std::uint64_t number) {
  const auto refuse = [&](const std::string& reason, const std::string& name) {
    throw archive_error(reason, where{shown_url(names.url(number)), std::nullopt, name});
  };
  if (s.key.empty()) refuse("a sample without a key cannot be written", s.key);
  if (s.fields.empty()) refuse("a sample without fields cannot be written", s.key);
  if (s.key == key_before) {
    refuse("the sample before it has the same key: they would be read as one", s.key);
  }
  if (s.key.front() == '/' || ('/' + s.key + '/').find("/../") != std::string::npos) {
    refuse("a key that begins with a slash or has a \"..\" would be unpacked elsewhere", s.key);
  }
  for (const field& f : s.fields) {
    const std::string name = s.key + '.' + f.extension;
    if (name.size() > 4096) {
      refuse("the name has " + std::to_string(name.size()) + " bytes, and 4096 are the most", s.key);
    }
    for (const char c : name) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) refuse("a name with a control character", name);
    }
    const sample_name read = sample_name::parse(name);
    if (!read.is_sample() || read.key() != s.key) {
      refuse("the key would not be read back: in WebDataset's names it ends at the first dot after the last slash, and "
             "a folder that begins and ends with \"__\" has no samples", name);
    }
    if (read.lower_extension() != f.extension || f.extension.empty()) {
      refuse("the extension would not be read back: it has no capital letters and is not empty", name);
    }
  }
}

/// At most so many bytes of the archive.
MILLRACE_INLINE std::uint64_t archive_bytes(const sample& s) noexcept {
  std::uint64_t all = 0;
  for (const field& f : s.fields) {
    const std::size_t name = s.key.size() + 1 + f.extension.size();
    all += 512 + f.data.size() + tar::detail::padding(f.data.size());
    if (name > 100 || f.data.size() >> 33 != 0) all += 512 + name + 64 + tar::detail::padding(name + 64);
  }
  return all;
}

MILLRACE_COROUTINE task<std::optional<sample>> next_sample(async_generator<sample>& in) {
  for (;;) {
    std::optional<sample> s = co_await in.next();
    if (!s || s->weight() != 0) co_return std::move(s);
  }
}

/// Of the shards that are there, those of this writer, without a gap.
MILLRACE_INLINE std::vector<shard> own_shards(std::vector<shard> all, const shard_names& names,
                                              const write_shards_options& how, std::uint32_t writer) {
  std::uint64_t next = how.first + writer;
  std::vector<shard> own;
  for (shard& s : all) {
    const std::uint64_t number = *names.number(s.url);
    if (number < how.first || (number - how.first) % how.rank.world_size != writer) continue;
    if (number != next) {
      throw configuration_error("write_shards: the shard " + names.url(next) + " is not there, and this one is",
                                where{s.shown(), std::nullopt, {}});
    }
    own.push_back(std::move(s));
    next += how.rank.world_size;
  }
  return own;
}

[[noreturn]] MILLRACE_INLINE void refuse_overwriting(const std::string& url) {
  throw configuration_error(
      "write_shards: it is there, and nothing is overwritten: .go_on continues after what is there",
      where{shown_url(url), std::nullopt, {}});
}

MILLRACE_COROUTINE task<void> refuse_if_there(std::shared_ptr<const storage> to, std::string url) {
  const std::optional<std::string> text = co_await text_if_there(std::move(to), shard(url), 8 * MiB);
  if (text) refuse_overwriting(url);
}

MILLRACE_COROUTINE_BODY task<void> refuse_what_is_there(std::shared_ptr<const storage> to, shard_names names,
                                                        write_shards_options how) {
  const std::vector<shard> all = co_await written_shards(to, names);
  for (const shard& s : all) {
    const std::uint64_t number = *names.number(s.url);
    const bool own = number >= how.first && (number - how.first) % how.rank.world_size == how.rank.index;
    if (own) refuse_overwriting(s.url);
  }
  co_await refuse_if_there(to, names.beside("millrace.json"));
}

/// Drops the samples of a shard from the input, the last of whose keys is then `key`.
MILLRACE_COROUTINE task<void> drop_samples(async_generator<sample>& in, const shard_index& index, std::string url,
                                           std::string& key) {
  for (std::size_t i = 0; i < index.samples(); ++i) {
    std::optional<sample> s = co_await next_sample(in);
    if (!s) {
      throw configuration_error("write_shards: the input ends within the samples of a shard that is there: it is not "
                                "the input of before",
                                where{shown_url(url), std::nullopt, {}});
    }
    if (key_hash(s->key) != index.key_hash(i)) {
      throw configuration_error("write_shards: sample " + std::to_string(i) + " of this shard, which is there, has "
                                "another key: it is not the input of before",
                                where{shown_url(url), index.offset(i), s->key});
    }
    key = std::move(s->key);
  }
}

MILLRACE_COROUTINE_BODY async_generator<written_shard> write_samples(async_generator<sample> in,
                                                                     std::shared_ptr<const storage> to,
                                                                     shard_names names, write_shards_options how) {
  const coroutine_context here = co_await this_context();
  std::uint64_t number = how.first + how.rank.index;
  std::string key;  // of the last sample
  std::uint64_t samples = 0;
  if (how.go_on) {
    std::vector<shard> all = co_await written_shards(to, names);
    const std::vector<shard> own = own_shards(std::move(all), names, how, how.rank.index);
    for (const shard& s : own) {
      const shard_index index = co_await index_of_written(to, names, s, how);
      co_await drop_samples(in, index, s.url, key);
      samples += index.samples();
      number += how.rank.world_size;
    }
    log_line(here.get_executor(),
             "millrace: write_shards: goes on at " + shown_url(names.url(number)) + ", after " +
                 std::to_string(own.size()) + " shards with " + std::to_string(samples) + " samples",
             log_level::info);
  } else {
    co_await refuse_what_is_there(to, names, how);
  }

  const slab_pool slabs = here.runtime().slabs(part_of(how));
  std::shared_ptr<shard_in_making> open;
  std::shared_ptr<event> stored;  // of the shard before
  spawned<written_shard> storing;
  spawned<written_shard> storing_before;
  tar::entry entry;
  for (bool more = true; more;) {
    std::optional<sample> s = co_await next_sample(in);
    more = s.has_value();
    if (s) check_sample(*s, key, names, open != nullptr ? open->number : number);
    const bool full =
        open != nullptr && s && (open->archive.bytes_written() + archive_bytes(*s) + 1024 > how.bytes ||
                                 (how.samples != 0 && open->index.samples() >= how.samples));
    if (open != nullptr && (full || !more)) {
      open->archive.finish();
      open->cut();
      for (bytes& part : open->full) {
        const bool sent = co_await open->parts.send(std::move(part));
        if (!sent) break;  // its task has failed
      }
      open->parts.close();
      open.reset();
      if (storing_before) {
        written_shard done = co_await storing_before;
        storing_before = spawned<written_shard>();
        co_yield give(done);
      }
      storing_before = std::move(storing);
    } else if (storing_before.done()) {
      written_shard done = storing_before.take();
      storing_before = spawned<written_shard>();
      co_yield give(done);
    }
    if (!more) break;
    if (open == nullptr) {
      open = std::make_shared<shard_in_making>(names, number, slabs, std::move(stored));
      stored = open->stored;
      number += how.rank.world_size;
      task<written_shard> work = store_shard(to, names, open, how);
      storing = spawned<written_shard>(here, std::move(work));
    }
    for (const field& f : s->fields) {
      entry.name = s->key + '.' + f.extension;
      entry.body = f.data;
      entry.size = f.data.size();
      entry.header_offset = open->archive.bytes_written();
      open->archive.begin(entry.name, entry.size);
      entry.data_offset = open->archive.bytes_written();
      open->index.add(entry);
      for (std::size_t at = 0; at <= f.data.size(); at += slabs.slab_bytes()) {
        open->archive.write(f.data.view().substr(at, slabs.slab_bytes()));
        for (bytes& part : open->full) {
          const bool sent = co_await open->parts.send(std::move(part));
          if (sent) continue;
          co_await storing;  // throws why
          misused("write_shards: a shard ended before its bytes");
        }
        open->full.clear();
      }
      open->archive.end();
    }
    ++samples;
    key = std::move(s->key);
  }
  entry = tar::entry();
  if (storing_before) {
    written_shard done = co_await storing_before;
    co_yield give(done);
  }
  if (how.rank.world_size > 1) co_return;
  if (samples == 0) {
    throw configuration_error("write_shards: the input has no samples",
                              where{shown_url(names.pattern()), std::nullopt, {}});
  }
  co_await finish_written(to, names, how);
}

MILLRACE_COROUTINE async_generator<shard> each_of(std::vector<shard> all) {
  for (shard& s : all) co_yield give(s);
}

/// The indexes of shards, in their order, a few of them read ahead.
MILLRACE_COROUTINE async_generator<shard_index> indexes_of(std::shared_ptr<const storage> to, shard_names names,
                                                           std::vector<shard> all, write_shards_options how) {
  auto read = [&](shard s) { return index_of_written(to, names, std::move(s), how); };
  // Not from_range(), whose type is deduced: that would emit its coroutine here.
  stream<shard_index> indexes = stream<shard>(each_of(std::move(all))) | map_concurrent(read, {.limit = 8});
  while (std::optional<shard_index> index = co_await indexes.next()) co_yield give(*index);
}

MILLRACE_COROUTINE async_generator<bytes> index_in_parts(std::string head, async_generator<shard_index> indexes,
                                                         std::uint64_t length, std::string url) {
  bytes front = bytes::copy(head);
  co_yield give(front);
  std::uint64_t came = 0;
  while (std::optional<shard_index> index = co_await indexes.next()) {
    bytes text = bytes::copy(index->text());
    came += text.size();
    co_yield give(text);
  }
  if (came == length) co_return;
  throw index_error("the indexes of the shards have changed", where{shown_url(url), std::nullopt, {}});
}

MILLRACE_COROUTINE_BODY task<void> finish_written(std::shared_ptr<const storage> to, shard_names names,
                                                  write_shards_options how) {
  std::vector<shard> all = co_await written_shards(to, names);
  if (all.empty()) {
    throw configuration_error("write_shards: no shard has this name",
                              where{shown_url(names.pattern()), std::nullopt, {}});
  }
  for (std::uint32_t writer = 0; writer < how.rank.world_size; ++writer) own_shards(all, names, how, writer);
  const std::string manifest_url = names.beside("millrace.json");
  if (!how.go_on) co_await refuse_if_there(to, manifest_url);

  index_file_head head;
  samples_sum fingerprint;
  std::string shards;
  std::uint64_t samples = 0, size = 0;
  async_generator<shard_index> first = indexes_of(to, names, all, how);
  while (std::optional<shard_index> index = co_await first.next()) {
    head.expect(*index);
    head.add(*index, index->text());
    fingerprint.add(*index);
    shards += shards.empty() ? "\n    {\"name\": " : ",\n    {\"name\": ";
    text::append_json_string(shards, index->name());
    shards += ", \"samples\": " + std::to_string(index->samples()) + ", \"bytes\": " +
              std::to_string(index->object_size()) + ", \"etag\": ";
    text::append_json_string(shards, index->etag());
    shards += '}';
    samples += index->samples();
    size += index->object_size();
  }
  const std::string index_url = names.beside("millrace.index");
  const std::uint64_t length = head.length();
  async_generator<shard_index> second = indexes_of(to, names, std::move(all), how);
  async_generator<bytes> content = index_in_parts(head.text(), std::move(second), length, index_url);
  co_await to->put(index_url, std::move(content), writing_of(how, false));

  std::string manifest = "{\n  \"version\": 1,\n  \"index\": ";
  text::append_json_string(manifest, std::string_view(index_url).substr(names.folder().size()));
  manifest += ",\n  \"samples\": " + std::to_string(samples) + ",\n  \"bytes\": " + std::to_string(size) +
              ",\n  \"fingerprint\": \"" + fingerprint.value().text() + "\",\n  \"shards\": [" + shards + "\n  ]\n}\n";
  co_await put_text(*to, manifest_url, std::move(manifest), writing_of(how, false));
}

}  // namespace millrace::detail
