// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/extended.hpp>

namespace millrace::tar::detail {

MILLRACE_INLINE bool extended_headers::begin(char type, std::uint64_t size, const reader_options& options) noexcept {
  const bool is_name = type == 'L' || type == 'K';
  if (MILLRACE_UNLIKELY(size > (is_name ? options.max_name_bytes + std::uint64_t(1) : options.max_pax_bytes))) {
    return false;
  }
  if (type != 'g') pending_ = true;
  type_ = type;
  wanted_ = static_cast<std::size_t>(size);
  gathered_.clear();
  return true;
}

MILLRACE_INLINE bool extended_headers::read(input& in, const reader_options& options, pax_problem& problem) {
  if (MILLRACE_LIKELY(gathered_.empty() && in.together() >= wanted_)) {
    const char* payload = in.here();
    in.advance(wanted_);
    problem = apply({payload, wanted_}, options.max_name_bytes);
    return true;
  }
  const std::size_t had = gathered_.size();
  gathered_.resize(wanted_);
  const std::size_t got = in.copy(gathered_.data() + had, wanted_ - had);
  gathered_.resize(had + got);
  if (gathered_.size() != wanted_) return false;
  problem = apply(gathered_, options.max_name_bytes);
  return true;
}

MILLRACE_INLINE void extended_headers::assign_name(std::string& name, const char* block) {
  std::string* own = has_long_name_                        ? &long_name_
                     : !pax_.sparse_name.empty()           ? &pax_.sparse_name
                     : MILLRACE_LIKELY(!pax_.path.empty()) ? &pax_.path
                                                           : nullptr;
  if (own == nullptr) {
    detail::assign_name(name, block);
  } else {
    std::swap(name, *own);
  }
}

MILLRACE_INLINE void extended_headers::finish_member(std::uint64_t& size, bool& sparse) noexcept {
  if (pax_.size) size = *pax_.size;
  if (pax_.sparse) sparse = true;
  pax_.clear();
  has_long_name_ = false;
  pending_ = false;
}

MILLRACE_INLINE pax_problem extended_headers::apply(std::string_view payload, std::size_t max_name) {
  if (MILLRACE_UNLIKELY(type_ != 'x' && type_ != 'X')) return apply_other(payload, max_name);
  pax_.clear();  // of several headers before one member the last counts
  return parse_pax(payload, false, max_name, pax_);
}

MILLRACE_INLINE MILLRACE_NOINLINE pax_problem extended_headers::apply_other(std::string_view payload,
                                                                            std::size_t max_name) {
  switch (type_) {
    case 'L':
    case 'K': {
      const std::string_view name = payload.substr(0, payload.find('\0'));
      if (name.size() > max_name) return {0, "a name is longer than max_name_bytes"};
      if (type_ == 'K') return {};  // a link's target, which is not reported
      long_name_.assign(name.data(), name.size());
      has_long_name_ = true;
      return {};
    }
    default: {  // 'g'
      // Nothing that a global header may say has a bearing on a body or a name; it is checked, not kept.
      pax_records global;
      const pax_problem problem = parse_pax(payload, true, max_name, global);
      if (problem.reason == nullptr && global.sparse) return {0, "a global pax header makes every member sparse"};
      return problem;
    }
  }
}

}  // namespace millrace::tar::detail
