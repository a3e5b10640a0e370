// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/shards/detail/handed_on.hpp>

namespace millrace::detail {

MILLRACE_INLINE void note_handed_on(error& broken, const shard& from, std::uint64_t count, const char* item) {
  std::string note = "after " + std::to_string(count) + ' ' + item + (count == 1 ? " of " : "s of ");
  const std::string name = from.shown();
  note += broken.object() == name ? "this shard" : name;
  broken.add_note(note + (count == 1 ? " was handed on" : " were handed on"));
}

}  // namespace millrace::detail
