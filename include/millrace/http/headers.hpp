// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/detail/wipe.hpp>

namespace millrace::http {

/// Header fields in the order of the message. Names compare without regard to ASCII case (RFC 9110, 5.1). Values may be
/// secrets (signatures, session tokens): they are overwritten before their memory is freed.
class headers {
 public:
  using field = std::pair<std::string, std::string>;

  headers() = default;
  headers(const headers&) = default;
  headers(headers&&) noexcept = default;
  headers& operator=(headers other) noexcept {
    fields_.swap(other.fields_);
    return *this;
  }
  ~headers() { clear(); }

  /// Appends a field. Refuses CR, LF and NUL in either part and an empty name: what comes from files, keys and
  /// environment variables must not be able to add fields of its own.
  void add(std::string name, std::string value);

  /// The first field of that name, null when there is none.
  const std::string* find(std::string_view name) const noexcept;
  std::size_t count(std::string_view name) const noexcept;

  std::size_t size() const noexcept { return fields_.size(); }
  void clear() noexcept {
    for (field& f : fields_) millrace::detail::wipe(f.second);
    fields_.clear();
  }
  auto begin() const noexcept { return fields_.begin(); }
  auto end() const noexcept { return fields_.end(); }

 private:
  std::vector<field> fields_;
};

}  // namespace millrace::http

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/impl/headers.ipp>
#endif
