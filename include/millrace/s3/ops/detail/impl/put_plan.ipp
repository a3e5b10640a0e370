// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/ops/detail/put_plan.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE put_plan::put_plan(const config& c, const put_options& o)
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

MILLRACE_INLINE void put_plan::check_text(std::string_view text, const char* what) {
  for (char c : text) {
    if (c < 0x20 || c > 0x7e) {
      throw configuration_error(std::string("put: ") + what + " may hold printable ASCII only");
    }
  }
}

MILLRACE_INLINE void put_plan::check_name(std::string_view name) {
  bool good = !name.empty();
  for (char c : name) {
    const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    good = good && (letter || c == '-' || c == '_' || c == '.');
  }
  if (!good) throw configuration_error("put: the name of metadata is made of letters, digits, '-', '_' and '.'");
}

}  // namespace millrace::s3::detail
