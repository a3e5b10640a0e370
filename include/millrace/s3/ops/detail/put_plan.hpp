// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/http/headers.hpp>
#include <millrace/s3/config/config.hpp>
#include <millrace/s3/ops/put_options.hpp>

namespace millrace::s3::detail {

inline constexpr std::uint64_t max_parts = 10000;

/// put_options, checked, with everything copied: what a coroutine may keep.
class put_plan {
 public:
  /// Throws configuration_error for sizes that cannot work and for text that no header may carry.
  template <class Config>
  put_plan(const Config& c, const put_options& o)
      : part(o.part), size(o.size), only_new(o.only_new), checksums(o.checksums.value_or(c.send_checksums)) {
    if (part == 0 || part > 5 * GiB) throw configuration_error("put: a part has 1 byte to 5 GiB");
    if (c.endpoint_url.empty() && part < 5 * MiB) throw configuration_error("put: AWS wants parts of 5 MiB or more");
    if (size && *size / max_parts >= part) {
      const std::uint64_t needed = *size / max_parts + 1;
      if (needed > 5 * GiB) throw configuration_error("put: no object may be that large");
      part = static_cast<std::size_t>((needed + MiB - 1) / MiB * MiB);
    }
    limit = std::max<std::size_t>(1, std::min(o.parts, o.window / part));
    if (!o.content_type.empty()) {
      check_text(o.content_type, "the content type");
      fields.add("content-type", std::string(o.content_type));
    }
    for (const header_field& m : o.metadata) {
      check_name(m.name);
      check_text(m.value, "the metadata");
      fields.add("x-amz-meta-" + std::string(m.name), std::string(m.value));
    }
  }

  std::size_t part;
  std::size_t limit = 1;  ///< parts held at once
  std::optional<std::uint64_t> size;
  bool only_new;
  bool checksums;
  http::headers fields;  ///< those of the object

 private:
  static void check_text(std::string_view text, const char* what) {
    for (char c : text) {
      if (c < 0x20 || c > 0x7e) {
        throw configuration_error(std::string("put: ") + what + " may hold printable ASCII only");
      }
    }
  }
  static void check_name(std::string_view name) {
    bool good = !name.empty();
    for (char c : name) {
      const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
      good = good && (letter || c == '-' || c == '_' || c == '.');
    }
    if (!good) throw configuration_error("put: the name of metadata is made of letters, digits, '-', '_' and '.'");
  }
};

}  // namespace millrace::s3::detail
