// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spng.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/exif.hpp>
#include <millrace/decode/detail/image_source.hpp>

namespace millrace::detail {

/// A PNG, by libspng: of any colour type and depth, with its alpha channel or transparent colour left out, as Pillow's
/// convert("RGB") does it; of 16 bits the upper 8. Rows above those that are wanted are decoded, those below are not;
/// of an interlaced image all are.
class png_source final : public image_source {
 public:
  png_source() = default;
  ~png_source() override { close(); }

  MILLRACE_INLINE void open(const bytes& data, bool) override;

  MILLRACE_INLINE void begin(int, const pixel_range& wanted, int& first, int& pixels) override;

  MILLRACE_INLINE void read_row(std::uint8_t* row) override;

  void finish() override {}
  void close() noexcept override {
    spng_ctx_free(state_);
    state_ = nullptr;
  }

 private:
  static constexpr const char* header = "the PNG's header cannot be read";
  static constexpr const char* body = "the PNG is corrupt";

  static void check(int result, const char* what) {
    if (result == SPNG_EMEM) throw std::bad_alloc();
    if (result != 0) throw decode_error(std::string(what) + ": " + spng_strerror(result));
  }

  spng_ctx* state_ = nullptr;
  bool interlaced_ = false;
  std::vector<std::uint8_t> whole_;
  std::size_t row_ = 0;
  std::size_t next_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/impl/png_source.ipp>
#endif
