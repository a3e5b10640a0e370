// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Lines of text that is compressed by frames of zstd or members of gzip. What is expected is cut by hand from the text
// before it was compressed.

#include <millrace/formats/line_shards.hpp>
#include <millrace/index/detail/text_frames.hpp>

#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/damaging_storage.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/scanned.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/record_epochs.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::failure_of;
using test::part_of_training;
using test::seen_samples;
using test::store_of;
using test::trained;

namespace {

// --- compressed text ---

std::string zstd_frame(std::string_view text, bool checksum = true) {
  ZSTD_CCtx* const c = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, checksum ? 1 : 0);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(c, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(c);
  return out;
}

/// What pzstd and the seekable format write between frames.
std::string skippable_frame(std::string_view content) {
  std::string out;
  detail::append_le(out, 0x184d2a50, 4);
  detail::append_le(out, content.size(), 4);
  return out.append(content);
}

/// A member as of bgzip: with an extra field that says how long it is.
std::string bgzf_block(std::string_view text) {
  const std::string plain = test::gzip_member(text);
  std::string out = plain.substr(0, 3) + '\4' + plain.substr(4, 6);
  out += std::string("\6\0BC\2\0", 6);
  detail::append_le(out, plain.size() + 8 - 1, 2);
  return out + plain.substr(10);
}

enum class way { zstd, zstd_without_checksums, seekable, gzip, bgzf };
constexpr way ways[] = {way::zstd, way::zstd_without_checksums, way::seekable, way::gzip, way::bgzf};

/// In frames of `size` bytes of text.
std::string packed(std::string_view text, way how, std::size_t size) {
  std::string out;
  for (std::size_t at = 0; at == 0 || at < text.size(); at += size) {
    const std::string_view piece = text.substr(at, size);
    switch (how) {
      case way::zstd: out += zstd_frame(piece); break;
      case way::zstd_without_checksums: out += zstd_frame(piece, false); break;
      case way::seekable: out += skippable_frame("frame") + zstd_frame(piece); break;
      case way::gzip: out += test::gzip_member(piece); break;
      case way::bgzf: out += bgzf_block(piece); break;
    }
  }
  if (how == way::seekable) out += skippable_frame("the seek table stands here");
  if (how == way::bgzf) out += bgzf_block("");  // of all such files
  return out;
}

// --- models ---

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    all.push_back(line);
    at = end + 1;
  }
  return all;
}

/// The lines of files, as the canonical order has them.
seen_samples model_of(const std::map<std::string, std::string>& files, const epochs_options& o, std::uint64_t slice) {
  test::record_files lines;
  for (const auto& [name, text] : files) lines[name] = lines_of(text);
  return test::model_of(lines, o, slice);
}

/// An index whose entries are single frames, however short.
shard_index index_by_frames(const std::string& name, const std::string& object, std::uint64_t least = 1) {
  return test::scanned(
      detail::line_scanner(*line_shards(), name, shard("mem:d/" + name), 16 * MiB, detail::frame_bounds(least)), object,
      1000);
}

dataset with_frames(const std::shared_ptr<const storage>& store, const std::map<std::string, std::string>& objects,
                    std::uint64_t slice) {
  std::vector<shard_index> all;
  for (const auto& [name, content] : objects) all.push_back(index_by_frames(name, content));
  return dataset(store, std::make_shared<const index_set>(std::move(all)),
                 {.format = line_shards(), .prefix = "mem:d/", .slice = slice});
}

std::string text_of_lines(std::size_t lines, std::uint64_t seed) {
  rng random(seed);
  std::string text;
  for (std::size_t i = 0; i < lines; ++i) {
    text += "{\"n\": " + std::to_string(i) + ", \"x\": \"" + std::string(random.below(30), 'a') +
            std::to_string(random.below(1'000'000'000)) + "\"}" + (random.below(9) == 0 ? "\r\n" : "\n");
  }
  return text;
}

}  // namespace

TEST_CASE("an index of compressed text is that of its text, whatever the frames are and however the bytes come") {
  rng random(11);
  for (const way how : ways) {
    for (const std::size_t size : {1, 7, 100, 5000, 1'000'000}) {
      const std::string text = text_of_lines(size < 100 ? 20 : 400, 3) + "\n\nthe last one";
      const std::vector<std::string> wanted = lines_of(text);
      CAPTURE(static_cast<int>(how), size);
      const std::string object = packed(text, how, size);
      const shard_index index = index_by_frames("x", object);
      REQUIRE(index.is_packed());
      REQUIRE(index.samples() == wanted.size());
      CHECK(index.object_size() == object.size());
      // As a file, too.
      std::string file = index.text();
      std::string_view rest = file;
      CHECK(shard_index::read(rest, "x") == index);
      CHECK(shard_index::read(rest = file, "x").digest() == index.digest());
      for (int n = 0; n < 50; ++n) {
        const std::size_t i = random.below(wanted.size());
        const std::size_t last = std::min(i + random.below(4), wanted.size() - 1);
        const std::uint64_t begin = index.offset(i);
        const std::uint64_t end = index.end(last);
        if (begin == end) continue;
        const detail::frame_range frames = index.frames_of(begin, end);
        CHECK(frames.text <= begin);
        if (frames.text + size <= begin) FAIL("more frames than needed");
        const bytes part = bytes::copy(object.substr(frames.begin, frames.length()));
        const bytes got =
            detail::unpack_frames(shard("x"), frames, part, begin, end, writable_bytes::allocate(end - begin));
        if (got.view() != text.substr(begin, end - begin)) FAIL("other text");
        CHECK(got.view().substr(0, wanted[i].size()) == wanted[i]);
      }
    }
  }
}

TEST_CASE("lines of compressed files, plain ones beside them, on one to three ranks, resumed at each step") {
  std::map<std::string, std::string> texts;
  std::map<std::string, std::string> objects;
  std::size_t n = 0;
  for (const way how : ways) {
    const std::string name = std::string(1, static_cast<char>('a' + n)) + ".jsonl.z";
    texts[name] = text_of_lines(9 + n, n);
    objects[name] = packed(texts[name], how, 40 + 17 * n);
    ++n;
  }
  texts["plain.jsonl"] = objects["plain.jsonl"] = text_of_lines(8, 99);
  texts["empty.zst"] = "";
  objects["empty.zst"] = zstd_frame("");
  const auto store = store_of(objects);
  const dataset data = with_frames(store, objects, 4);
  epochs_options o{.seed = 5, .epochs = 2, .batch = 3};
  o.tracks = 4;
  const seen_samples wanted = model_of(texts, o, 4);
  runtime rt;
  test::check_trainings(rt, data, o, wanted);
}

TEST_CASE("drawn texts, frames, ranks and bounds: every compressed line comes once an epoch, in the model's order") {
  rng random(21);
  runtime rt;
  for (int n = 0; n < 40; ++n) {
    CAPTURE(n);
    std::map<std::string, std::string> texts;
    std::map<std::string, std::string> objects;
    for (std::size_t i = 1 + random.below(3); i > 0; --i) {
      std::string text;
      for (std::size_t k = random.below(300); k > 0; --k) text += "abc\n\n\r"[random.below(6)];
      const std::string name = std::to_string(random.below(1000)) + ".gz";
      texts[name] = text + "x";
      objects[name] = packed(texts[name], ways[random.below(5)], 1 + random.below(90));
    }
    const auto store = store_of(objects);
    store->delay_us = random.below(2) * 300;
    const std::uint64_t slice = 1 + random.below(8);
    const dataset data = with_frames(store, objects, slice);
    epochs_options o{.seed = random.below(9), .epochs = 1 + random.below(2), .batch = 1 + random.below(4)};
    o.tracks = 1 + random.below(6);
    o.part = 1 + random.below(60);
    o.gap = random.below(4);
    o.bytes = 1 + random.below(4000);
    test::check_drawn_training(rt, random, data, o, model_of(texts, o, slice));
  }
}

TEST_CASE("many lines in frames of every size: the index that a run makes, read by need, and all lines once") {
  test::temporary_folder at;
  std::map<std::string, std::string> texts;
  std::map<std::string, std::string> objects;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string name = std::string(1, static_cast<char>('a' + i)) + ".jsonl.z";
    texts[name] = text_of_lines(20'000, i);
    objects[name] = packed(texts[name], i == 0 ? way::zstd : i == 1 ? way::bgzf : way::gzip,
                           i == 0 ? 300'000 : i == 1 ? 65'280 : 700'000);
  }
  const auto store = store_of(objects);
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/", {.index = at.file("i"), .format = line_shards()});
  epochs_options o{.seed = 3, .epochs = 1, .batch = 256};
  o.tracks = 24;
  runtime rt;
  part_of_training first = trained(rt, data, o, {}, 100);
  const part_of_training rest = trained(rt, data, o, first.state);
  first.samples.insert(rest.samples.begin(), rest.samples.end());
  CHECK((first.samples == model_of(texts, o, 256)));
  CHECK(data.samples() == 60'000U);
  // The entries of the index: frames with less than 256 KiB are joined.
  const std::vector<shard_index> indexes = open_indexes(at.file("i"));
  CHECK(indexes[1].frames_of(0, 1).length() < objects["b.jsonl.z"].size() / 2);
  CHECK(indexes[2].frames_of(0, 1).length() == test::gzip_member(texts["c.jsonl.z"].substr(0, 700'000)).size());
  // A part of the lines reads its frames alone.
  store->read_bytes = 0;
  CHECK(trained(rt, data.subset(30'000, 30'010), {.seed = 1, .batch = 1}).samples.size() == 10);
  CHECK(store->read_bytes < 2 * indexes[1].frames_of(0, 1).length());
}

TEST_CASE("compressed text that cannot be read by frames is refused, with what to write instead") {
  const auto refusal = [](const std::string& object) {
    return failure_of([&] { static_cast<void>(index_by_frames("x", object)); });
  };
  const std::string text = text_of_lines(50, 1);
  CHECK(refusal(zstd_frame(text)) == "no error");  // one frame, which is small
  std::string large(17 * MiB, 'x');
  large[large.size() / 2] = '\n';
  CHECK_THAT(refusal(zstd_frame(text) + zstd_frame(large)),
             Contains("mem:d/x at byte " + std::to_string(zstd_frame(text).size()) +
                      ": this frame of zstd has more than 16 MiB of text") &&
                 Contains("`split -C 4M --filter=zstd`"));
  CHECK_THAT(refusal(test::gzip_member(large)),
             Contains("mem:d/x at byte 0: this frame of gzip") && Contains("`bgzip`"));
  CHECK_THAT(refusal("BZh91AY&SY" + text), Contains("this is bzip2 data, of which no line can be read alone"));
  // Cut, damaged, and with something after it.
  for (const way how : ways) {
    CAPTURE(static_cast<int>(how));
    const std::string object = packed(text, how, 400);
    const std::string last = how == way::bgzf ? bgzf_block("") : std::string();
    CHECK_THAT(refusal(object.substr(0, object.size() - last.size() - 3)),
               Contains("the object ends in the middle of this frame of"));
    CHECK(refusal(object + std::string(700, '\0')) == "no error");
    CHECK_THAT(refusal(object + "text"), Contains("that begins here is damaged: what follows a frame is none"));
    if (how == way::zstd_without_checksums) continue;
    std::string damaged = object;
    damaged[object.size() / 2] = static_cast<char>(damaged[object.size() / 2] ^ 4);
    CHECK_THAT(refusal(damaged), Contains("mem:d/x at byte ") && Contains("that begins here is damaged: "));
  }
}

TEST_CASE("an index of compressed text with other bytes is refused, or is another one") {
  const std::string object = packed(text_of_lines(30, 1), way::zstd, 200);
  const shard_index index = index_by_frames("x", object);
  const std::string file = index.text();
  std::size_t refused = 0;
  for (std::size_t at = 0; at + 4 < file.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string other = file;
      other[at] = static_cast<char>(other[at] ^ (1 << bit));
      std::string crc;
      detail::append_le(crc, crc32c(0, other.data(), other.size() - 4), 4);
      other.replace(other.size() - 4, 4, crc);
      std::string_view rest = other;
      try {
        const shard_index read = shard_index::read(rest, "x");
        if (read == index) FAIL("byte " << at << " says nothing");
        for (std::size_t i = 0; i < read.samples(); ++i) {
          if (!read.is_packed() || read.offset(i) == read.end(i)) continue;
          const detail::frame_range frames = read.frames_of(read.offset(i), read.end(i));
          if (frames.begin >= frames.end || frames.end > read.object_size()) FAIL("frames outside of the object");
        }
      } catch (const index_error&) {
        ++refused;
      }
    }
  }
  CHECK(refused > 100);
}

TEST_CASE("a frame that is damaged is an error with object, byte and reason; on the way it is read once more") {
  std::map<std::string, std::string> objects;
  const std::string text = text_of_lines(60, 4);
  const epochs_options o = [] {
    epochs_options made{.seed = 1, .epochs = 1, .batch = 1};
    made.tracks = 4;
    return made;
  }();
  runtime rt;
  for (const way how : ways) {
    CAPTURE(static_cast<int>(how));
    objects["x"] = packed(text, how, 300);
    const auto store = store_of(objects);
    const dataset right = with_frames(store, objects, 4);
    const seen_samples wanted = trained(rt, right, o).samples;
    CHECK(wanted == model_of({{"x", text}}, o, 4));
    test::captured_stderr log(test::captured_stderr::into::pipe);
    std::size_t mended = 0;
    for (std::size_t byte = 5; byte < objects["x"].size(); byte += 61) {
      const auto line = std::make_shared<test::damaging_storage>(store);
      line->damage("mem:d/x", byte);
      if (trained(rt, with_frames(line, objects, 4), o).samples != wanted) FAIL("byte " << byte);
      mended += line->second_readings();
    }
    CHECK(mended > 3);
    // It is so in the store.
    const auto broken = store_of(objects);
    std::string& object = broken->objects["mem:d/x"];
    const std::size_t at = objects["x"].size() / 2;
    object[at] = static_cast<char>(object[at] ^ 4);
    const std::string said =
        failure_of([&] { static_cast<void>(trained(rt, with_frames(broken, objects, 4), o)); });
    CHECK_THAT(said, Contains("mem:d/x at byte ") && (Contains("that begin here are damaged: ") ||
                                                       Contains("as in the index, at this byte of the unpacked text")));
    const auto twice = std::make_shared<test::damaging_storage>(store);
    twice->damage("mem:d/x", at, 100, true);
    CHECK_THAT(failure_of([&] { static_cast<void>(trained(rt, with_frames(twice, objects, 4), o)); }),
               Contains("read twice, and both times the same"));
    CHECK_THAT(log.text(), Contains("read once more, over another connection: mem:d/x at byte "));
  }
}

TEST_CASE("fewer bytes of text than the index says are an error") {
  const std::string object = packed(text_of_lines(60, 4), way::zstd, 300);
  const shard_index index = index_by_frames("x", object);
  const detail::frame_range frames = index.frames_of(0, 10);
  CHECK_THAT(failure_of([&] {
               static_cast<void>(detail::unpack_frames(shard("mem:x"), frames,
                                                       bytes::copy(object.substr(0, frames.length())), 290, 310,
                                                       writable_bytes::allocate(20)));
             }),
             Contains("mem:x at byte 0: the frames of zstd that begin here end after byte 300 of the text"));
}
