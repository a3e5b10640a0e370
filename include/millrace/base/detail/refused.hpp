// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace millrace::detail {

/// False for every type: `static_assert(never_v<T>, "...")` in a branch that only a mistake reaches.
template <class...>
inline constexpr bool never_v = false;

/// What a refused composition returns, so that the compiler's answer is the one sentence and not what follows from it:
/// stages, names and run() take it without a further word.
class [[maybe_unused]] refused {
 public:
  constexpr refused() noexcept = default;
  constexpr refused named(const char*) const noexcept { return {}; }
};

}  // namespace millrace::detail
