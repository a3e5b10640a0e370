// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE sample_name sample_name::parse(std::string_view name) noexcept {
  if (is_meta(name)) return sample_name(disposition::skip_meta);
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == 0) return sample_name(disposition::skip_no_key);
  // The expression's [^.]+ must begin at the start of some directory (or of the name), after every earlier dot.
  std::size_t begin = 0;
  const std::size_t earlier = name.rfind('.', dot - 1);
  if (earlier != std::string_view::npos) {
    begin = name.find('/', earlier) + 1;
    // Its .* cannot pass a line feed.
    if (begin == dot || name.substr(0, begin).find('\n') != std::string_view::npos) {
      return sample_name(disposition::skip_no_key);
    }
  }
  return sample_name(name.substr(0, dot), name.substr(dot + 1));
}

MILLRACE_INLINE std::string sample_name::lower_extension() const {
  std::string lower(extension_);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

MILLRACE_INLINE bool sample_name::is_meta(std::string_view name) noexcept {
  if (name.substr(0, 2) != "__") return false;
  const std::size_t slash = name.find('/');
  std::string_view first = name.substr(0, slash);
  if (slash == std::string_view::npos && first.back() == '\n') first.remove_suffix(1);
  return first.size() >= 4 && first.substr(first.size() - 2) == "__";
}

MILLRACE_INLINE const bytes* sample::find(std::string_view extension) const noexcept {
  for (const field& f : fields) {
    if (f.extension == extension) return &f.data;
  }
  return nullptr;
}

MILLRACE_INLINE const bytes& sample::operator[](std::string_view extension) const {
  if (const bytes* data = find(extension)) return *data;
  if (mark.padding) {
    throw decode_error("field \"" + std::string(extension) +
                       "\" of an empty entry: it has no fields and weight 0, and stands where a sample was left out, "
                       "could not be read, or where the last batch of an epoch is padded");
  }
  std::string has;
  for (const field& f : fields) has += (has.empty() ? "" : ", ") + f.extension;
  throw decode_error("the sample has no field \"" + std::string(extension) + "\" (it has: " + has + ")",
                     from.at(key));
}

MILLRACE_INLINE std::size_t byte_size(const sample& s) noexcept {
  std::size_t total = s.key.size();
  for (const field& f : s.fields) total += f.data.size();
  return total;
}

}  // namespace millrace
