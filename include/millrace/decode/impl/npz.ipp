// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/npy.hpp>
#include <millrace/decode/npz.hpp>
#include <millrace/tar/archive_reader.hpp>

namespace millrace {

namespace detail {

inline std::vector<named_array> npz_of(const bytes& file, std::uint64_t most) {
  if (!file.view().starts_with("PK")) throw decode_error("not a .npz: it begins as no zip does");
  tar::archive_options limits;
  limits.members.max_member_bytes = most;
  limits.max_output_bytes = most;
  tar::archive_reader reader("", limits);
  std::vector<named_array> found;
  const auto drain = [&] {
    for (tar::entry e; reader.next(e);) {
      if (e.type == '5') continue;  // a folder
      if (!e.is_regular() || !e.name.ends_with(".npy")) {
        throw decode_error("the member " + e.name + " of the .npz is no .npy");
      }
      std::string name = e.name.substr(0, e.name.size() - 4);
      for (const named_array& other : found) {
        if (other.name == name) throw decode_error("the .npz has two members " + e.name);
      }
      try {
        found.emplace_back(std::move(name), parse_npy(e.body));
      } catch (error& failure) {
        failure.add_note("of the member " + e.name);
        throw;
      }
    }
  };
  reader.feed(file);
  drain();
  reader.finish();
  drain();
  return found;
}

}  // namespace detail

MILLRACE_INLINE std::vector<named_array> parse_npz(const bytes& file, const where& at, std::uint64_t most) {
  try {
    return detail::npz_of(file, most);
  } catch (const archive_error& e) {
    // Its place is one in this file alone.
    const std::string place = e.offset() ? " beyond its byte " + std::to_string(*e.offset()) : "";
    throw decode_error("the .npz cannot be unpacked" + place + ": " + e.reason(), at);
  } catch (error& e) {
    e.add_place(at);
    throw;
  }
}

}  // namespace millrace
