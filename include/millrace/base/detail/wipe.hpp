// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string.h>

#include <string>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Overwrites a text that may be secret, before its memory goes back to the heap; no compiler leaves that out.
inline void wipe(std::string& text) noexcept { ::explicit_bzero(text.data(), text.size()); }

}  // namespace millrace::detail
