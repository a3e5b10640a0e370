// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>

#include <millrace/decode/detail/image_source.hpp>

namespace millrace::detail {

class jpeg_source;
class png_source;
class webp_source;

/// How the decoder of each format is made; null for a format that the program is not linked with.
class source_makers {
 public:
  using maker = std::unique_ptr<image_source> (*)();
  maker jpeg = nullptr, png = nullptr, webp = nullptr;
};

/// In place of a format that the program is not linked with.
struct absent_source {};

template <class Jpeg, class Png, class WebP>
class formats_of {
 public:
  static source_makers makers() noexcept {
    source_makers m;
    m.jpeg = maker_of<Jpeg>();
    m.png = maker_of<Png>();
    m.webp = maker_of<WebP>();
    return m;
  }

 private:
  template <class Source>
  static source_makers::maker maker_of() noexcept {
    if constexpr (std::is_same_v<Source, absent_source>) {
      return nullptr;
    } else {
      return [] { return std::unique_ptr<image_source>(std::make_unique<Source>()); };
    }
  }
};

// The components millrace::jpeg, millrace::png and millrace::webp, and their files for pkg-config, define these.
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

#if defined(MILLRACE_SEPARATE_COMPILATION)
/// What the compiled bodies are linked with.
class linked_formats {
 public:
  static source_makers makers() noexcept;
};
#else
/// Parts of one program may be built with different ones: functions that name this type are different ones then.
using linked_formats = formats_of<linked_jpeg, linked_png, linked_webp>;
#endif

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/impl/linked_formats.ipp>
#endif
