// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/decode/detail/linked_formats.hpp>

#if defined(MILLRACE_WITH_JPEG)
#include <millrace/decode/detail/jpeg_source.hpp>
#endif
#if defined(MILLRACE_WITH_PNG)
#include <millrace/decode/detail/png_source.hpp>
#endif
#if defined(MILLRACE_WITH_WEBP)
#include <millrace/decode/detail/webp_source.hpp>
#endif

#if defined(MILLRACE_SEPARATE_COMPILATION)
namespace millrace::detail {

source_makers linked_formats::makers() noexcept { return formats_of<linked_jpeg, linked_png, linked_webp>::makers(); }

}  // namespace millrace::detail
#endif
