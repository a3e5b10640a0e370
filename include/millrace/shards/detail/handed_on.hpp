// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/error.hpp>
#include <millrace/data/shard.hpp>

namespace millrace::detail {

/// Adds to an error that breaks `from` off how many of its items ("sample", "member") had left a stage before.
template <class = void>
void note_handed_on(error& broken, const shard& from, std::uint64_t count, const char* item) {
  std::string note = "after " + std::to_string(count) + ' ' + item + (count == 1 ? " of " : "s of ");
  const std::string name = from.shown();
  note += broken.object() == name ? "this shard" : name;
  broken.add_note(note + (count == 1 ? " was handed on" : " were handed on"));
}

}  // namespace millrace::detail
