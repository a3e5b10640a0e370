// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <millrace/base/error.hpp>
#include <millrace/decode/detail/image_source.hpp>
#include <millrace/decode/image_format.hpp>

// Set by the components millrace::jpeg, millrace::png and millrace::webp, and by their files for pkg-config.
#if defined(MILLRACE_WITH_JPEG)
#include <millrace/decode/detail/jpeg_source.hpp>
#endif
#if defined(MILLRACE_WITH_PNG)
#include <millrace/decode/detail/png_source.hpp>
#endif
#if defined(MILLRACE_WITH_WEBP)
#include <millrace/decode/detail/webp_source.hpp>
#endif

namespace millrace::detail {

/// In place of a format that the program is not linked with.
struct absent_source {};

/// One decoder of each format, made when it is first needed.
template <class Jpeg, class Png, class WebP>
class image_sources {
 public:
  /// Throws decode_error for data in none of the formats.
  image_source& source_for(image_format format) {
    switch (format) {
      case image_format::jpeg:
        return made(jpeg_, "a JPEG, and the program is built without millrace::jpeg (Debian: libjpeg-dev)");
      case image_format::png:
        return made(png_, "a PNG, and the program is built without millrace::png (Debian: libspng-dev)");
      case image_format::webp:
        return made(webp_, "a WebP, and the program is built without millrace::webp (Debian: libwebp-dev)");
      case image_format::unknown:
        break;
    }
    throw decode_error("not an image: it begins as no JPEG, PNG or WebP does");
  }

 private:
  template <class Source>
  static image_source& made(std::unique_ptr<Source>& source, const char*) {
    if (source == nullptr) source = std::make_unique<Source>();
    return *source;
  }
  [[noreturn]] static image_source& made(std::unique_ptr<absent_source>&, const char* what) { throw decode_error(what); }

  std::unique_ptr<Jpeg> jpeg_;
  std::unique_ptr<Png> png_;
  std::unique_ptr<WebP> webp_;
};

// Parts of one program may be built with different ones: these are different types then.
#if defined(MILLRACE_WITH_JPEG)
using linked_jpeg = jpeg_source;
#else
using linked_jpeg = absent_source;
#endif
#if defined(MILLRACE_WITH_PNG)
using linked_png = png_source;
#else
using linked_png = absent_source;
#endif
#if defined(MILLRACE_WITH_WEBP)
using linked_webp = webp_source;
#else
using linked_webp = absent_source;
#endif
using linked_formats = image_sources<linked_jpeg, linked_png, linked_webp>;

}  // namespace millrace::detail
