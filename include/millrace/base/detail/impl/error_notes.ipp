// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/error_notes.hpp>

namespace millrace::detail {

MILLRACE_INLINE void error_notes::add(std::string_view bare, std::string_view note) {
  publish([&](state& next, const state* before) {
    const bool first = before == nullptr || !before->noted;
    next.text = before == nullptr ? std::string(bare) : before->text;
    if (first) {
      next.text += " (";
    } else {
      next.text.replace(next.text.size() - 1, 1, "; ");
    }
    next.text += note;
    next.text += ')';
    next.noted = true;
    next.at = before == nullptr ? nullptr : before->at;
    return true;
  });
}

MILLRACE_INLINE void error_notes::place(std::string_view bare, std::string_view text, where at) {
  const auto shared = std::make_shared<const where>(std::move(at));
  publish([&](state& next, const state* before) {
    if (before != nullptr && before->at != nullptr) return false;
    next.text = text;
    next.text += before == nullptr ? bare : std::string_view(before->text);
    next.noted = before != nullptr && before->noted;
    next.at = shared;
    return true;
  });
}

}  // namespace millrace::detail
