// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/formats/detail/mp4_file.hpp>

namespace millrace::test {

/// A track of an MP4 file that a test makes, with frames of random bytes, which no decoder reads.
struct drawn_track {
  struct frame {
    std::string content;
    std::uint32_t duration = 1;
    std::int32_t shift = 0;
    bool key = false;
    std::uint64_t offset = 0;  // when the file has been made
  };
  std::uint32_t id = 1;
  std::string handler = "vide";
  std::string coded = "avc1";
  std::uint32_t timescale = 600;
  std::int64_t media_begin = 0;
  std::uint32_t delay_ms = 0;
  std::vector<frame> frames;

  /// When a frame is decoded, in ticks.
  std::int64_t decode(std::size_t i) const {
    std::int64_t now = 0;
    for (std::size_t k = 0; k < i; ++k) now += frames[k].duration;
    return now;
  }
  /// When it is shown, in the time of the whole file.
  std::int64_t presented(std::size_t i) const {
    return decode(i) + frames[i].shift - media_begin + delay_ms * std::int64_t{timescale} / 1000;
  }
};

/// An MP4 file of one or two tracks, whose chunks are interleaved.
class drawn_mp4 {
 public:
  std::vector<drawn_track> tracks;
  bool moov_first = false;
  bool wide = false;            ///< chunks and sizes of 64 bits
  std::size_t chunk = 4;        ///< frames of a chunk, or of a fragment
  std::size_t sound_chunk = 3;  ///< and packets of sound

  /// Groups of 2 to 8 frames: a key frame, and others of which some are shown before those that are decoded first.
  static drawn_mp4 draw(rng& random, std::size_t groups, std::size_t mean_bytes, bool sound) {
    drawn_mp4 made;
    const auto content = [&](std::size_t bytes) {
      std::string text(bytes, '\0');
      for (char& c : text) c = static_cast<char>(random.below(256));
      return text;
    };
    drawn_track video;
    const bool varies = random.below(3) == 0;
    const bool reordered = random.below(3) != 0;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t frames = 2 + random.below(7);
      for (std::size_t i = 0; i < frames; ++i) {
        drawn_track::frame f;
        f.key = i == 0;
        f.content = content(1 + random.below(2 * mean_bytes));
        f.duration = varies ? 10 + static_cast<std::uint32_t>(random.below(30)) : 20;
        f.shift = reordered ? static_cast<std::int32_t>(i == 0 ? 40 : 20 * random.below(6)) : 0;
        video.frames.push_back(f);
      }
    }
    video.media_begin = reordered && random.below(2) == 0 ? 40 : 0;
    video.delay_ms = random.below(3) == 0 ? 500 : 0;
    made.tracks.push_back(video);
    if (sound) {
      drawn_track audio;
      audio.id = 2;
      audio.handler = "soun";
      audio.coded = "mp4a";
      audio.timescale = 8000;
      const std::int64_t length = video.decode(video.frames.size()) * 8000 / 600;
      for (std::int64_t at = 0; at < length; at += 512) {
        drawn_track::frame f;
        f.content = content(1 + random.below(mean_bytes / 4 + 1));
        f.duration = 512;
        f.key = true;
        audio.frames.push_back(f);
      }
      made.tracks.push_back(audio);
    }
    made.moov_first = random.below(2) == 0;
    made.wide = random.below(2) == 0;
    made.chunk = 1 + random.below(9);
    made.sound_chunk = 1 + random.below(9);
    return made;
  }

  /// A plain file. The frames know their offsets then.
  std::string plain() {
    const std::string type = box("ftyp", "isom" + be(512) + "isom");
    // Offsets have as many bytes whatever they are: a first moov, of chunks somewhere, has the length of the second.
    chunks_.assign(tracks.size(), {});
    interleave([&](std::size_t t, std::size_t first, std::size_t end) { chunks_[t].push_back({0, end - first}); });
    const std::uint64_t begin = type.size() + (moov_first ? moov(false).size() : 0) + (wide ? 16 : 8);
    std::string media;
    chunks_.assign(tracks.size(), {});
    interleave([&](std::size_t t, std::size_t first, std::size_t end) {
      chunks_[t].push_back({begin + media.size(), end - first});
      for (; first < end; ++first) {
        tracks[t].frames[first].offset = begin + media.size();
        media += tracks[t].frames[first].content;
      }
    });
    const std::string movie = moov(false);
    const std::string data = (wide ? be(1) + "mdat" + be(16 + media.size(), 8) : be(8 + media.size()) + "mdat") + media;
    return type + (moov_first ? movie + data : data + movie);
  }

  /// A file of fragments.
  std::string fragmented() {
    chunks_.assign(tracks.size(), {});
    std::string out = box("ftyp", "iso6" + be(512) + "iso6") + moov(true);
    std::vector<std::size_t> at(tracks.size());
    std::uint32_t number = 0;
    for (bool more = true; more;) {
      more = false;
      std::vector<std::size_t> end(tracks.size());
      std::size_t samples = 0;
      for (std::size_t t = 0; t < tracks.size(); ++t) {
        end[t] = std::min(tracks[t].frames.size(), at[t] + (t == 0 ? chunk : sound_chunk));
        samples += end[t] - at[t];
        more = more || end[t] != at[t];
      }
      if (!more) break;
      std::string media;
      std::string trafs;
      const std::uint64_t moof_bytes = 24 + tracks.size() * 64 + 16 * samples;
      for (std::size_t t = 0; t < tracks.size(); ++t) {
        std::string run = be(0x01000f01) + be(end[t] - at[t]) + be(moof_bytes + 8 + media.size());
        const std::uint64_t decode = static_cast<std::uint64_t>(tracks[t].decode(at[t]));
        for (; at[t] < end[t]; ++at[t]) {
          drawn_track::frame& f = tracks[t].frames[at[t]];
          run += be(f.duration) + be(f.content.size()) + be(f.key ? 0x02000000 : 0x01010000) +
                 be(static_cast<std::uint32_t>(f.shift));
          f.offset = out.size() + moof_bytes + 8 + media.size();
          media += f.content;
        }
        trafs += box("traf", box("tfhd", be(0x20000) + be(tracks[t].id)) + box("tfdt", be(0x01000000) + be(decode, 8)) +
                                 box("trun", run));
      }
      out += box("moof", box("mfhd", be(0) + be(++number)) + trafs) + box("mdat", media);
    }
    return out;
  }

  static std::string be(std::uint64_t value, int bytes = 4) {
    std::string out;
    detail::append_be(out, value, bytes);
    return out;
  }
  static std::string box(std::string_view type, const std::string& body) {
    return be(body.size() + 8) + std::string(type) + body;
  }

 private:
  struct chunk_place {
    std::uint64_t offset = 0;
    std::size_t frames = 0;
  };

  template <class F>
  void interleave(const F& f) const {
    std::vector<std::size_t> at(tracks.size());
    for (bool more = true; more;) {
      more = false;
      for (std::size_t t = 0; t < tracks.size(); ++t) {
        const std::size_t end = std::min(tracks[t].frames.size(), at[t] + (t == 0 ? chunk : sound_chunk));
        if (end == at[t]) continue;
        f(t, at[t], end);
        at[t] = end;
        more = true;
      }
    }
  }

  std::string moov(bool fragments) const {
    std::string all = box("mvhd", std::string(12, '\0') + be(1000) + std::string(84, '\0'));
    std::string extends;
    for (std::size_t t = 0; t < tracks.size(); ++t) {
      all += trak(tracks[t], chunks_.size() > t ? chunks_[t] : std::vector<chunk_place>(), fragments);
      extends += box("trex", be(0) + be(tracks[t].id) + be(1) + be(0) + be(0) + be(0));
    }
    return box("moov", all + (fragments ? box("mvex", extends) : std::string()));
  }
  std::string trak(const drawn_track& t, const std::vector<chunk_place>& chunks, bool fragments) const {
    std::string edits;
    if (t.delay_ms != 0) edits += be(t.delay_ms) + be(UINT32_MAX) + be(0x10000);
    if (t.delay_ms != 0 || t.media_begin != 0) {
      edits += be(0) + be(static_cast<std::uint64_t>(t.media_begin)) + be(0x10000);
    }
    if (!edits.empty()) edits = box("edts", box("elst", be(0) + be(edits.size() / 12) + edits));
    std::string stts;
    std::string ctts;
    std::string sizes;
    std::string keys;
    std::string runs;
    std::string places;
    const std::size_t frames = fragments ? 0 : t.frames.size();
    for (std::size_t i = 0; i < frames; ++i) {
      stts += be(1) + be(t.frames[i].duration);
      ctts += be(1) + be(static_cast<std::uint32_t>(t.frames[i].shift));
      sizes += be(t.frames[i].content.size());
      if (t.frames[i].key) keys += be(i + 1);
    }
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      runs += be(c + 1) + be(chunks[c].frames) + be(1);
      places += be(chunks[c].offset, wide ? 8 : 4);
    }
    std::string tables = box("stsd", be(0) + be(1) + box(t.coded, std::string(78, '\0')));
    tables += box("stts", be(0) + be(frames) + stts);
    if (t.handler == "vide") {
      tables += box("ctts", be(0) + be(frames) + ctts) + box("stss", be(0) + be(keys.size() / 4) + keys);
    }
    tables += box("stsz", be(0) + be(0) + be(frames) + sizes) + box("stsc", be(0) + be(runs.size() / 12) + runs) +
              box(wide ? "co64" : "stco", be(0) + be(chunks.size()) + places);
    return box("trak", box("tkhd", be(7) + be(0) + be(0) + be(t.id) + std::string(68, '\0')) + edits +
                           box("mdia", box("mdhd", std::string(12, '\0') + be(t.timescale) + std::string(8, '\0')) +
                                           box("hdlr", be(0) + be(0) + t.handler + std::string(13, '\0')) +
                                           box("minf", box("stbl", tables))));
  }

  std::vector<std::vector<chunk_place>> chunks_;
};

}  // namespace millrace::test
