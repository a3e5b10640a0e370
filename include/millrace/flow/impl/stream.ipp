// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::detail {

MILLRACE_INLINE void stream_description::followed_by(stream_description later) {
  bounds.insert(bounds.end(), later.bounds.begin(), later.bounds.end());
  if (!rank) rank = later.rank;
  many_positions = many_positions || later.many_positions || (position && later.position);
  if (window == 0) window = later.window;
  if (!position) position = std::move(later.position);
}

}  // namespace millrace::detail
