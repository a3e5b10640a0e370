// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: MP4 files, plain and of fragments, Matroska files, and descriptions of their clips in an index are read or
// refused, in memory that is bounded by what they have; a clip reads inside of the object. The first byte is
// edits.hpp's.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -I. -Iinclude tests/fuzz/clips_fuzz.cpp
//     -larchive -lz -lzstd -luring
//   ./a.out -max_len=200 -len_control=0 -malloc_limit_mb=512

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/index/sample_index_builder.hpp>
#include <millrace/index/shard_index.hpp>

#include "tests/fuzz/edits.hpp"
#include "tests/support/drawn_matroska.hpp"
#include "tests/support/drawn_mp4.hpp"
#include "tests/support/scanned.hpp"

namespace {

namespace mill = millrace;

std::string whole(bool fragments) {
  mill::rng random(3);
  mill::test::drawn_mp4 drawn = mill::test::drawn_mp4::draw(random, 3, 20, true);
  drawn.tracks[0].media_begin = 40;
  drawn.tracks[0].delay_ms = 500;
  return fragments ? drawn.fragmented() : drawn.plain();
}

std::string matroska(bool cues_first) {
  mill::rng random(5);
  mill::test::drawn_matroska drawn = mill::test::drawn_matroska::draw(random, 3, 20, true);
  drawn.codec = "V_MPEG4/ISO/AVC";
  drawn.cues_first = cues_first;
  drawn.seek_last = !cues_first;
  drawn.groups = drawn.sizes = cues_first;
  drawn.places = true;
  drawn.cluster = 4;
  return drawn.file();
}

const mill::video_shards_options options{.seconds = 0.1, .partial = true, .audio = true};

std::optional<mill::shard_index> scanned(const std::string& file, bool size_known) {
  const auto format = mill::video_shards(options);
  try {
    const auto scanner = format->scanner("x", mill::shard("s3://b/x.mp4"), nullptr);
    if (size_known) return mill::test::scanned_by_ranges(std::move(*scanner), file, 100);
    return mill::test::scanned(std::move(*scanner), file, 100);
  } catch (const mill::archive_error&) {
  } catch (const mill::decode_error&) {
  }
  return std::nullopt;
}

/// Reads clips by the index. `trusted`: it was made of the file.
void read_clips(const mill::shard_index& index, const std::string& file, bool trusted) {
  try {
    const auto reader = mill::video_shards(options)->reader(index);
    for (std::size_t c = 0; c < index.samples() && c < 20; ++c) {
      std::vector<mill::bytes> parts;
      for (const mill::object_range& r : reader->ranges(index, c)) {
        if (r.begin >= r.end || r.end > file.size()) std::abort();
        parts.push_back(mill::bytes::copy(std::string_view(file).substr(r.begin, r.end - r.begin)));
      }
      mill::sample s;
      reader->unpack(mill::shard("s3://b/x.mp4"), c, parts).samples->fill(s, c);
      const std::uint64_t said = index.end(c) - index.offset(c);
      const std::uint64_t size = s["video"].size();
      // Of Matroska blocks of other tracks are left out.
      if (trusted && (index.description()[0] == 1 ? size != said : size > said)) std::abort();
    }
  } catch (const mill::index_error&) {
    if (trusted) std::abort();
  } catch (const mill::archive_error&) {  // clusters of which the index says nothing
  }
}

/// An index with the clips of another one, which are described so.
mill::shard_index described(const mill::shard_index& like, const std::string& description) {
  mill::sample_index_builder builder(*mill::video_shards(options), "x");
  builder.describe(description);
  for (std::size_t c = 0; c < like.samples(); ++c) {
    builder.begin_group(like.group(c).begin);
    builder.add(like.offset(c), like.end(c) - like.offset(c));
  }
  return builder.finish(like.object_size(), "", false, like.object_size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string files[] = {whole(false), whole(true), matroska(true), matroska(false)};
  static const mill::shard_index right[] = {scanned(files[0], true).value(), scanned(files[2], true).value()};
  for (const std::string& file : files) {
    const std::string its = mill::fuzz::edited(file, data, size);
    const auto known = scanned(its, true);
    const auto streamed = scanned(its, false);
    if (known && streamed && known->samples() != streamed->samples()) std::abort();
    if (known) read_clips(*known, its, true);
    if (streamed) read_clips(*streamed, its, true);
  }
  for (const mill::shard_index& its : right) {
    read_clips(described(its, mill::fuzz::edited(its.description(), data, size)), files[&its == right ? 0 : 2], false);
  }
  return 0;
}
