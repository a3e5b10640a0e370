// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <millrace/http/headers.hpp>
#include <millrace/s3/config/config.hpp>
#include <millrace/s3/ops/put_options.hpp>

namespace millrace::s3::detail {

inline constexpr std::uint64_t max_parts = 10000;

/// put_options, checked, with everything copied: what a coroutine may keep.
class put_plan {
 public:
  /// Throws configuration_error for sizes that cannot work and for text that no header may carry.
  put_plan(const config& c, const put_options& o);

  std::size_t part;
  std::size_t limit = 1;  ///< parts held at once
  std::optional<std::uint64_t> size;
  bool only_new;
  bool checksums;
  http::headers fields;  ///< those of the object

 private:
  static void check_text(std::string_view text, const char* what);
  static void check_name(std::string_view name);
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/detail/impl/put_plan.ipp>
#endif
