// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/index/detail/text_frames.hpp>
#include <millrace/tar/entry.hpp>
#if defined(MILLRACE_WITH_TAR)
#include <millrace/tar/detail/unpacker.hpp>
#include <millrace/tar/detail/window.hpp>
#endif

namespace millrace::inline MILLRACE_ABI::detail {

#if defined(MILLRACE_WITH_TAR)

class tar_frame_unpacker final : public frame_unpacker {
 public:
  explicit tar_frame_unpacker(tar::format kind)
      : windows_(kind, tar::archive_options(), nullptr), decoder_(tar::detail::make_stream_decoder(kind, windows_)) {}

  std::string_view next(std::string_view& in) override {
    if (between_ && begun_ && !in.empty() && (padding_ || !decoder_->begins(in.front()))) {
      padding_ = true;
      const std::size_t zeros = std::min(in.find_first_not_of('\0'), in.size());
      in.remove_prefix(zeros);
      if (!in.empty()) wrong_ = "what follows a frame is none";
      return {};
    }
    begun_ = true;
    std::span<char> room(text_.get(), size);
    if (const char* const reason = decoder_->step(in, room)) wrong_ = reason;
    between_ = decoder_->complete();
    full_ = room.empty() && !between_;
    return std::string_view(text_.get(), size - room.size());
  }
  bool more() const noexcept override { return full_; }
  bool between_frames() const noexcept override { return between_; }
  const std::string& wrong() const noexcept override { return wrong_; }

 private:
  static constexpr std::size_t size = 64 * KiB;

  tar::detail::window_claim windows_;
  std::unique_ptr<tar::detail::stream_decoder> decoder_;
  std::unique_ptr<char[]> text_{new char[size]};
  bool between_ = true;
  bool begun_ = false;
  bool full_ = false;     // the last step has filled `text_`
  bool padding_ = false;  // zeros follow the last frame, as tapes and some stores add them
  std::string wrong_;
};

MILLRACE_INLINE std::unique_ptr<frame_unpacker> make_tar_frame_unpacker(tar::format kind) {
  return std::make_unique<tar_frame_unpacker>(kind);
}

#else

MILLRACE_OTHER_COMPONENT std::unique_ptr<frame_unpacker> make_tar_frame_unpacker(tar::format kind);

#endif

MILLRACE_INLINE std::unique_ptr<frame_unpacker> make_frame_unpacker(tar::format kind, const shard& object) {
  if (is_linked(make_tar_frame_unpacker)) return make_tar_frame_unpacker(kind);
  throw configuration_error(std::string("text in frames of ") + frames_name(kind) +
                                " needs the component tar, which this program is compiled without",
                            where{object.shown(), 0, {}});
}

/// Gives the text of frames to `take`, piece by piece with the byte that each begins at, up to byte `end` of it or, if
/// `whole`, to the end of the last frame. Returns where the text has ended.
template <class Take>
std::uint64_t for_text_of_frames(const shard& object, frame_range frames, const bytes& packed, std::uint64_t end,
                                 bool whole, Take take) {
  std::string_view in = packed.view();
  tar::format kind = tar::format::zstd;
  if (!in.empty() && in.front() == '\x1f') kind = tar::format::gzip;
  if (begins_zlib(in)) kind = tar::format::deflate;
  const std::unique_ptr<frame_unpacker> unpacker = make_frame_unpacker(kind, object);
  std::uint64_t at = frames.text;
  std::string reason;
  while ((whole || at < end) && (!in.empty() || unpacker->more())) {
    const std::string_view text = unpacker->next(in);
    if (!unpacker->wrong().empty()) {
      reason = " are damaged: " + unpacker->wrong() + ',';
    } else if (whole && text.size() > end - at) {
      reason = " are damaged: they have more text than the index says,";
    } else {
      take(at, text);
    }
    at += text.size();
    if (!reason.empty()) break;
  }
  if (reason.empty() && at < end) reason = " end";
  if (reason.empty() && whole && !unpacker->between_frames()) reason = " are damaged: the last one has no end,";
  if (reason.empty()) return at;
  throw archive_error(std::string("the frames of ") + frames_name(kind) + " that begin here" + reason +
                          " after byte " + std::to_string(at) + " of the text, which the index has to byte " +
                          std::to_string(end),
                      where{object.shown(), frames.begin, {}});
}

MILLRACE_INLINE bytes unpack_frames(const shard& object, frame_range frames, const bytes& packed, std::uint64_t begin,
                                    std::uint64_t end, writable_bytes into) {
  for_text_of_frames(object, frames, packed, end, false, [&](std::uint64_t at, std::string_view text) {
    const std::uint64_t from = std::max(at, begin);
    const std::uint64_t to = std::min(at + text.size(), end);
    if (from < to) {
      std::memcpy(into.data() + (from - begin), text.data() + (from - at), static_cast<std::size_t>(to - from));
    }
  });
  return into.share(0, static_cast<std::size_t>(end - begin));
}

MILLRACE_INLINE bytes unpack_all_frames(const shard& object, frame_range frames, const bytes& packed,
                                        std::uint64_t end) {
  const auto size = static_cast<std::size_t>(end - frames.text);
  writable_bytes into = writable_bytes::allocate(size);
  for_text_of_frames(object, frames, packed, end, true, [&](std::uint64_t at, std::string_view text) {
    std::memcpy(into.data() + (at - frames.text), text.data(), text.size());
  });
  return into.share(0, size);
}

}  // namespace millrace::detail
