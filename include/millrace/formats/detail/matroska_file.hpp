// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Reads the tables of a video file, of either container, whose bytes it asks for. Dropping it drops nothing else.
class video_parser {
 public:
  virtual ~video_parser() = default;
  /// Takes what it can of `window`, the bytes of the object from `at` on. They begin at wanted(), or before it.
  virtual void look(std::string_view window, std::uint64_t at) = 0;
  /// True if it needs no more.
  virtual bool done() const noexcept = 0;
  /// The byte of the object from which it needs the next ones.
  std::uint64_t wanted() const noexcept { return wanted_; }
  /// And how many it needs to go on.
  std::uint64_t wanted_bytes() const noexcept { return wanted_bytes_; }

 protected:
  std::uint64_t wanted_ = 0;
  std::uint64_t wanted_bytes_ = 0;
};

/// An element of EBML (RFC 8794).
class ebml_element {
 public:
  std::uint64_t id = 0;    ///< with its marker
  std::uint64_t size = 0;  ///< of the body; UINT64_MAX: it ends where the next one of its level begins
  std::size_t head = 0;    ///< bytes of id and size
  std::string_view body;   ///< if all of it is in memory
  std::uint64_t at = 0;    ///< byte of the object where the element begins
  std::uint64_t body_at() const noexcept { return at + head; }
};

/// The groups of pictures of a Matroska or WebM file (RFC 9559): one from each key frame that its Cues name. The head
/// of the file is read up to the first cluster, what its SeekHead says of Info, Tracks and Cues, and of each group the
/// heads of its first blocks: all blocks of pictures that are shown before the key frame, which lie after it.
///
/// Bytes are asked for from the front to the back, once what the SeekHead names has been read. Whatever bytes are
/// given, it takes memory in proportion to them, of at most 2^21 cues.
///
/// Throws archive_error for what is damaged or cut, decode_error for what is not read; both have the object's byte.
class matroska_file final : public video_parser {
 public:
  static constexpr std::uint64_t longest_element = 128 * MiB;  ///< that is read, in bytes
  static constexpr std::size_t most_cues = 1 << 21;

  class group {
   public:
    std::uint64_t begin = 0;    ///< byte of the object where its key frame's block begins; of the first one any block
    std::uint64_t lead = 0;     ///< where the last block ends that is shown before the key frame, else its own
    std::uint64_t cluster = 0;  ///< the time of its cluster, in the file's ticks
    std::int64_t shown = 0;     ///< when the key frame is shown, in nanoseconds
    std::int64_t least = 0;     ///< and when the first block before `lead` is
  };

  /// `size`: of the object, where it is known. `sound`: a track of it is wanted, too.
  matroska_file(std::string object, bool sound, std::optional<std::uint64_t> size)
      : object_(std::move(object)), sound_(sound), size_(size), end_(size.value_or(UINT64_MAX)) {}

  static bool is_one(std::string_view head) noexcept { return head.substr(0, 4) == "\x1a\x45\xdf\xa3"; }
  MILLRACE_INLINE void look(std::string_view window, std::uint64_t at) override;
  bool done() const noexcept override { return done_; }

  /// After all bytes have come, of an object of so many. Throws if what was needed has not come.
  void finish(std::uint64_t object_size);
  /// They lie one after the other. At least one.
  const std::vector<group>& groups() const noexcept { return groups_; }
  /// The byte of the object where the last one ends.
  std::uint64_t groups_end() const noexcept;
  /// When the file ends, in nanoseconds.
  std::int64_t duration() const noexcept { return duration_; }
  /// The numbers of the tracks: pictures, and sound, or 0.
  std::uint64_t track(std::size_t which) const noexcept { return tracks_[which].number; }
  /// The beginning of a file with these tracks, up to its first cluster.
  std::string init() const;

  /// Bytes that fit() needs between the beginning of a file and what follows.
  static constexpr std::size_t room = 22;
  /// Makes a file, in place, of init() of so many bytes, `room`, and `content` bytes from the beginning of a group on.
  /// Its first block is of a cluster of the time `cluster`; blocks of other tracks than these two are left out. Returns
  /// the file's length. archive_error if these are no clusters; `begin` is where they are from.
  static std::size_t fit(char* file, std::size_t init, std::size_t content, std::uint64_t cluster,
                         const std::uint64_t (&tracks)[2], const where& begin);

 private:
  class its_track {
   public:
    std::uint64_t number = 0;
    bool enabled = true;
    bool reorders = true;  // frames may be shown in another order than they are stored in
    std::string entry;     // the element, as it is stored
  };
  class cue {
   public:
    std::uint64_t at = 0;  // where it is
    std::uint64_t track = 0;
    std::uint64_t cluster = 0;
    std::uint64_t place = 0;  // of the block in the cluster's body, and 1; 0: it is the first one of the track
  };

  [[noreturn]] void damaged(const std::string& reason, std::uint64_t at) const;
  [[noreturn]] void refuse(const std::string& reason, std::uint64_t at) const;
  /// True if so many bytes from `at` on, or all up to the segment's end, are in the window: `text` begins there.
  bool have(std::uint64_t at, std::uint64_t bytes, std::string_view& text);
  /// The element that begins here. Its body is not set.
  ebml_element element(std::string_view text, std::uint64_t at) const;
  /// The byte after it, which is `limit` or before.
  std::uint64_t end_of(const ebml_element& e, std::uint64_t limit) const;
  /// Calls `f` with each element in the body of another.
  template <class F>
  void each(const ebml_element& in, const F& f) const;
  std::uint64_t number(const ebml_element& e) const;
  double real(const ebml_element& e) const;
  std::int64_t nanoseconds(std::int64_t ticks, std::uint64_t at) const;

  bool top();
  bool go_on();
  void seek_head(const ebml_element& head);
  void info(const ebml_element& head);
  void tracks(const ebml_element& head);
  void cues(const ebml_element& head);
  void begin_clusters();
  void enter_cluster(const ebml_element& e) noexcept;
  bool enter(const cue& c);
  bool inside();
  void block(std::uint64_t begin, std::uint64_t end, const cue& c);
  void next_cue() noexcept;

  const std::string object_;
  const bool sound_;
  const std::optional<std::uint64_t> size_;
  std::string_view window_;
  std::uint64_t window_at_ = 0;

  std::uint64_t at_ = 0;  // the next element
  std::uint64_t segment_ = 0;
  std::uint64_t end_;                            // of the segment
  std::uint64_t expected_ = 0;                   // the element that begins at at_, of which the SeekHead says so
  std::map<std::uint64_t, std::uint64_t> seek_;  // where elements are that were not read
  unsigned seek_heads_ = 0;
  std::uint64_t first_cluster_ = 0;
  std::string header_;
  bool has_info_ = false;
  std::uint64_t scale_ = 1'000'000;  // nanoseconds of a tick
  std::int64_t duration_ = 0;
  bool has_tracks_ = false;
  its_track tracks_[2];
  std::uint64_t cues_at_ = 0;
  std::vector<cue> cues_;

  bool in_clusters_ = false;
  std::size_t cue_ = 0;
  bool entered_ = false;           // the cluster of this cue
  bool at_block_ = false;          // at_ is where the cue says that its block is
  bool found_ = false;             // the cue's key frame
  bool waits_[2] = {};             // for a block of the track that is shown after the key frame
  std::uint64_t cluster_ = 0;      // that at_ is in,
  std::uint64_t body_ = 0;         // and its body
  std::uint64_t first_block_ = 0;  // of the first cluster
  std::optional<std::uint64_t> cluster_time_;
  std::uint64_t group_ = 0;      // the block group that at_ is in,
  std::uint64_t group_end_ = 0;  // and its end, or 0
  std::uint64_t block_track_ = 0;
  std::int64_t block_time_ = 0;
  bool block_key_ = false;
  std::vector<group> groups_;
  bool done_ = false;
};

}  // namespace millrace::inline MILLRACE_ABI::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/detail/matroska_file.ipp>
#endif
