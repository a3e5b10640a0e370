// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/formats/detail/mp4_file.hpp>

namespace millrace::test {

/// A Matroska file that a test makes, with frames of random bytes, which no decoder reads: track 1 has pictures, 2
/// sound, 3 others.
class drawn_matroska {
 public:
  struct block {
    std::uint64_t track = 1;
    std::int64_t time = 0;  // in ms
    bool key = true;
    std::string content;
    std::uint64_t group = 0;  ///< of pictures: the key frame before it, in the order of the file
    std::uint64_t begin = 0;  ///< when the file has been made: where it is in it
    std::uint64_t end = 0;
  };
  std::vector<block> blocks;
  std::string codec = "V_MPEG4/ISO/AVC";
  std::int64_t duration = 0;
  bool cues_first = false;
  bool seek_last = false;   ///< the SeekHead at the front names another one, at the end, which names the Cues
  bool places = true;       ///< cues say where in its cluster a block is
  bool all_cues = true;     ///< else those of the third key frame, the sixth and so on
  bool sizes = true;        ///< of clusters
  bool groups = false;      ///< key frames and others are block groups
  std::size_t cluster = 5;  ///< blocks; 0: one from each key frame
  std::string track_extra;  ///< in the entry of the pictures
  std::string info_extra;

  /// Groups of 2 to 8 frames of 40 ms; sound every 50 ms, up to `late` ms after the pictures that it is heard with.
  static drawn_matroska draw(rng& random, std::size_t groups, std::size_t mean_bytes, bool sound) {
    drawn_matroska made;
    const auto content = [&](std::size_t bytes) {
      std::string text(bytes, '\0');
      for (char& c : text) c = static_cast<char>(random.below(256));
      return text;
    };
    const bool reordered = random.below(3) != 0;
    const bool open = random.below(2) == 0;
    const bool other = random.below(3) == 0;
    const std::int64_t late = static_cast<std::int64_t>(random.below(120));
    std::int64_t now = 0;
    std::int64_t heard = 0;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t frames = 2 + random.below(7);
      // In an open group, frames 1 and 2 are shown before the key frame.
      const std::size_t leading = open && reordered && g != 0 && frames > 3 ? 1 + random.below(2) : 0;
      for (std::size_t i = 0; i < frames; ++i) {
        std::size_t shown = i;
        if (leading != 0) shown = i == 0 ? leading : i <= leading ? i - 1 : i;
        if (leading == 0 && reordered && i % 3 == 2) shown = i - 1;
        if (leading == 0 && reordered && i % 3 == 1 && i + 1 < frames) shown = i + 1;
        block b;
        b.time = now + static_cast<std::int64_t>(shown) * 40;
        b.key = i == 0;
        b.content = content(1 + random.below(2 * mean_bytes));
        b.group = g;
        made.blocks.push_back(b);
        while (sound && heard + late < now + static_cast<std::int64_t>(i) * 40) {
          block s;
          s.track = 2;
          s.time = heard;
          s.content = content(1 + random.below(mean_bytes / 4 + 1));
          made.blocks.push_back(s);
          heard += 50;
        }
        if (other && random.below(4) == 0) {
          block o;
          o.track = 3;
          o.time = b.time;
          o.content = content(1 + random.below(mean_bytes));
          made.blocks.push_back(o);
        }
      }
      now += static_cast<std::int64_t>(frames) * 40;
    }
    made.duration = now;
    if (!reordered) made.codec = "V_VP9";
    made.cues_first = random.below(2) == 0;
    made.seek_last = !made.cues_first && random.below(3) == 0;
    made.places = random.below(3) != 0;
    made.all_cues = groups < 3 || random.below(3) != 0;
    made.sizes = random.below(4) != 0;
    made.groups = random.below(2) == 0;
    made.cluster = !made.places || random.below(2) == 0 ? 0 : 1 + random.below(12);
    return made;
  }

  /// The file. Blocks know where they are then.
  std::string file() {
    const std::string header = element(0x1a45dfa3, element(0x4282, "matroska") + uint(0x4287, 4) + uint(0x4285, 2));
    std::string entries = element(0xae, uint(0xd7, 1) + uint(0x73c5, 1) + uint(0x83, 1) + element(0x86, codec) +
                                            element(0xe0, uint(0xb0, 16) + uint(0xba, 16)) + track_extra);
    entries += element(0xae, uint(0xd7, 2) + uint(0x73c5, 2) + uint(0x83, 2) + element(0x86, "A_AAC"));
    entries += element(0xae, uint(0xd7, 3) + uint(0x73c5, 3) + uint(0x83, 17) + element(0x86, "S_TEXT/UTF8"));
    const std::string info = element(0x1549a966, uint(0x2ad7b1, 1'000'000) + real(0x4489, duration) + info_extra);
    const std::string tracks = element(0x1654ae6b, entries);
    const std::string void_ = element(0xec, std::string(10, '\0'));
    // Places have as many bytes whatever they are: a first file has the length of the second.
    std::uint64_t cues_at = 0;
    std::uint64_t clusters_at = 0;
    std::uint64_t second_at = 0;
    std::string body;
    for (int round = 0; round < 2; ++round) {
      std::string cues;
      std::string clusters = clusters_of(header.size() + 12 + clusters_at, clusters_at, cues);
      cues = element(0x1c53bb6b, cues);
      const auto seek = [](std::uint64_t id, std::uint64_t place) {
        return element(0x4dbb, element(0x53ab, be(id, 4)) + element(0x53ac, be(place, 8)));
      };
      const std::string to_cues = seek(0x1c53bb6b, cues_at);
      body = element(0x114d9b74, seek_last ? seek(0x114d9b74, second_at) : to_cues) + void_ + info + tracks;
      if (cues_first) {
        cues_at = body.size();
        body += cues;
      }
      clusters_at = body.size();
      body += clusters;
      if (!cues_first) {
        cues_at = body.size();
        body += cues;
      }
      second_at = body.size();
      if (seek_last) body += element(0x114d9b74, to_cues + seek(0x1f43b675, clusters_at));
    }
    return header + be(0x18538067, 4) + be(0x0100000000000000 | body.size(), 8) + body;
  }

  /// The blocks of a file, or of a part of it; without their groups and places.
  static std::vector<block> read(std::string_view rest) {
    std::vector<block> all;
    std::int64_t cluster = 0;
    const auto number = [&](bool marked) {
      std::size_t bytes = 1;
      while (bytes < 8 && (static_cast<unsigned char>(rest.at(0)) >> (8 - bytes) & 1) == 0) ++bytes;
      rest.at(bytes - 1);
      std::uint64_t value = detail::read_be(rest, 0, static_cast<int>(bytes));
      if (!marked) value &= (std::uint64_t{1} << (7 * bytes)) - 1;
      rest.remove_prefix(bytes);
      return value;
    };
    std::uint64_t left = UINT64_MAX;  // bytes after the cluster
    const auto check = [&] {
      if (left != UINT64_MAX && rest.size() != left) throw std::runtime_error("a cluster has another size");
    };
    while (!rest.empty()) {
      if (detail::read_be(rest, 0, 1) == 0x1f) check();
      const std::uint64_t id = number(true);
      const std::size_t before = rest.size();
      const std::uint64_t size = number(false);
      const bool unknown = size + 1 == std::uint64_t{1} << (7 * (before - rest.size()));
      if (id == 0x1f43b675) left = unknown ? UINT64_MAX : rest.size() - size;
      if (id == 0x18538067 || id == 0x1f43b675 || id == 0xa0) continue;  // what is in them follows
      rest.at(static_cast<std::size_t>(size - 1));
      const std::string_view body = rest.substr(0, static_cast<std::size_t>(size));
      rest.remove_prefix(body.size());
      if (id == 0xe7) cluster = static_cast<std::int64_t>(detail::read_be(body, 0, static_cast<int>(size)));
      if (id != 0xa3 && id != 0xa1) continue;
      block b;
      b.track = static_cast<unsigned char>(body.at(0)) & 0x7fU;
      b.time = cluster + static_cast<std::int16_t>(detail::read_be(body, 1, 2));
      b.content = body.substr(4);
      all.push_back(b);
    }
    check();
    return all;
  }

  static std::string be(std::uint64_t value, int bytes) {
    std::string out;
    detail::append_be(out, value, bytes);
    return out;
  }
  /// With a size of 4 bytes.
  static std::string element(std::uint64_t id, std::string_view body) {
    int bytes = 1;
    while (id >> (8 * bytes) != 0) ++bytes;
    return be(id, bytes) + be(0x10000000 | body.size(), 4) + std::string(body);
  }
  static std::string uint(std::uint64_t id, std::uint64_t value) { return element(id, be(value, 4)); }

 private:
  static std::string real(std::uint64_t id, std::int64_t value) {
    const auto its = static_cast<double>(value);
    std::uint64_t bits = 0;
    static_assert(sizeof bits == sizeof its);
    std::memcpy(&bits, &its, sizeof bits);
    return element(id, be(bits, 8));
  }

  /// `at`: where they are in the file, and `place` in the segment.
  std::string clusters_of(std::uint64_t at, std::uint64_t place, std::string& cues) {
    std::string out;
    std::size_t keys = 0;
    for (std::size_t i = 0; i < blocks.size();) {
      std::size_t end = i + 1;
      const auto begins = [&](const block& b) { return cluster == 0 ? b.track == 1 && b.key : end - i >= cluster; };
      while (end < blocks.size() && !begins(blocks[end])) ++end;
      const std::int64_t time = std::max<std::int64_t>(blocks[i].time - 20, 0);
      std::string body = uint(0xe7, static_cast<std::uint64_t>(time)) + uint(0xab, 7);
      const std::uint64_t here = place + out.size();
      for (; i < end; ++i) {
        block& b = blocks[i];
        const std::string start =
            std::string(1, static_cast<char>(0x80 | b.track)) + be(static_cast<std::uint16_t>(b.time - time), 2);
        const bool grouped = groups && b.track == 1;
        std::string one = start + static_cast<char>(b.key && !grouped ? 0x80 : 0) + b.content;
        one = grouped ? element(0xa0, element(0xa1, one) + (b.key ? "" : element(0xfb, "\xff"))) : element(0xa3, one);
        b.begin = at + out.size() + 8 + body.size();
        b.end = b.begin + one.size();
        if (b.track == 1 && b.key && keys++ % 3 >= (all_cues ? 0U : 2U)) {
          std::string its = uint(0xf7, 1) + element(0xf1, be(here, 8));
          if (places) its += element(0xf0, be(body.size(), 8));
          cues += element(0xbb, uint(0xb3, static_cast<std::uint64_t>(b.time)) + element(0xb7, its));
        }
        body += one;
      }
      out += be(0x1f43b675, 4) + (sizes ? be(0x10000000 | body.size(), 4) : be(0x1fffffff, 4)) + body;
    }
    return out;
  }
};

}  // namespace millrace::test
