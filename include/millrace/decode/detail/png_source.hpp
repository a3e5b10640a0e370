// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spng.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/image_source.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A PNG, by libspng: of any colour type and depth, with its alpha channel or transparent colour left out, as Pillow's
/// convert("RGB") does it; of 16 bits the upper 8. Rows above those that are wanted are decoded, those below are not;
/// of an interlaced image all are. An animation gives its default image.
///
/// libspng is given the chunks that make the pixels and no other: texts, profiles and other chunks cost no memory,
/// whatever their number and size, and their faults are none of the image's.
class png_source final : public image_source {
 public:
  png_source() = default;
  ~png_source() override { close(); }

  MILLRACE_INLINE void open(const bytes& data, bool) override;

  MILLRACE_INLINE void begin(int, const pixel_range& wanted, int& first, int& pixels) override;

  MILLRACE_INLINE void read_row(std::uint8_t* row) override;

  MILLRACE_INLINE const char* no_numbers() const noexcept override;

  void finish() override {}
  void close() noexcept override {
    spng_ctx_free(state_);
    state_ = nullptr;
  }

 private:
  static constexpr const char* header = "the PNG's header cannot be read";
  static constexpr const char* body = "the PNG is corrupt";

  /// A chunk with its length, name and checksum.
  class chunk {
   public:
    std::string_view all;
    std::size_t at = 0;  // in the file

    std::string_view name() const noexcept { return all.substr(4, 4); }
    std::string_view body() const noexcept { return all.substr(8, all.size() - 12); }
    void check_sum() const;
  };
  /// The parts of the file that libspng reads, as one file.
  class pieces {
   public:
    static int read(spng_ctx*, void* self, void* to, std::size_t size) noexcept;
    std::string_view left[3];
  };

  static std::uint32_t number(std::string_view text, std::size_t at) noexcept;
  /// Throws if there is no whole chunk. `before`: the name of the one that stands there.
  static chunk chunk_at(std::string_view file, std::size_t at, std::string_view before);
  [[noreturn]] static void refuse(const std::string& why) { throw decode_error(std::string(header) + ": " + why); }
  static std::string named(const chunk& c) {
    return "the chunk " + std::string(c.name()) + " at byte " + std::to_string(c.at);
  }

  /// The chunks that the image needs, before its data and with them.
  void select(std::string_view file);
  /// Takes as many colours as the image can have; further ones are left out, as in Pillow.
  void take_palette(std::string_view colours, int depth);
  /// Keeps one that may say how the image is turned.
  void keep(const chunk& c);
  int stated_orientation() const;
  /// The text of tEXt, zTXt and iTXt, unpacked; empty if it cannot be.
  static std::string text_of(const chunk& c);

  static void check(int result, const char* what) {
    if (result == SPNG_EMEM) throw std::bad_alloc();
    if (result != 0) throw decode_error(std::string(what) + ": " + spng_strerror(result));
  }

  /// The next row of an image that is not interlaced, in row_ bytes.
  void decode_row(std::uint8_t* to);

  spng_ctx* state_ = nullptr;
  pieces stream_;
  std::string palette_;
  chunk exif_, profile_, xmp_;  // the last one of each
  bool interlaced_ = false;
  unsigned depth_ = 8;    // bits of a value
  unsigned colours_ = 0;  // the colour type, as PNG counts
  std::vector<std::uint8_t> whole_;
  std::size_t row_ = 0;
  std::size_t next_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/png_source.ipp>
#endif
