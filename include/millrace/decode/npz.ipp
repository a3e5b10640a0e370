// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/decode/npz.hpp>
#include <millrace/tar/archive_reader.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

inline npz_arrays npz_of(const bytes& file, const std::vector<std::string>& names, bool all, std::uint64_t most) {
  if (!file.view().starts_with("PK")) throw decode_error("not a .npz: it begins as no zip does");
  tar::archive_options limits;
  limits.members.max_member_bytes = most;
  limits.max_output_bytes = most;
  tar::archive_reader reader("", limits);
  npz_arrays found;
  std::vector<std::string> there;
  const auto drain = [&] {
    for (tar::entry e; reader.next(e);) {
      if (e.type == '5') continue;  // a folder
      const bool is_array = e.is_regular() && e.name.ends_with(".npy");
      const std::string name = is_array ? e.name.substr(0, e.name.size() - 4) : e.name;
      if (std::find(there.begin(), there.end(), name) != there.end()) {
        throw decode_error("the .npz has two members " + e.name);
      }
      there.push_back(name);
      if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end()) continue;
      try {
        if (!is_array) throw no_tensor("the member " + e.name + " of the .npz is no .npy");
        found.arrays.emplace_back(name, parse_npy(e.body));
      } catch (no_tensor& failure) {
        found.unread.emplace_back(name, failure.reason());
        if (names.empty() || !all) continue;
        failure.add_note("of the member " + e.name);
        throw;
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
  for (const std::string& name : names) {
    if (!all || std::find(there.begin(), there.end(), name) != there.end()) continue;
    std::string has;
    for (const std::string& one : there) has += (has.empty() ? "" : ", ") + one;
    throw decode_error("the .npz has no array \"" + name + "\" (it has: " + has + ")");
  }
  if (names.empty() && found.arrays.empty() && !found.unread.empty()) {
    const unread_array& first = found.unread.front();
    no_tensor failure(first.reason);
    failure.add_note("of the member " + first.name);
    throw failure;
  }
  return found;
}

MILLRACE_INLINE void say_unread(const npz_arrays& archive, const where& at) {
  for (const unread_array& one : archive.unread) {
    if (!first_time(one.name + ": " + one.reason)) continue;
    log_error_line(log_level::warning,
                   decode_error("the array " + one.name + " of a .npz is left out: " + one.reason, at));
  }
}

}  // namespace detail

MILLRACE_INLINE npz_arrays detail::read_picked(const bytes& file, const std::vector<std::string>& names, bool all,
                                               const where& at, std::uint64_t most) {
  try {
    return npz_of(file, names, all, most);
  } catch (const archive_error& e) {
    // Its place is one in this file alone.
    const std::string place = e.offset() ? " beyond its byte " + std::to_string(*e.offset()) : "";
    throw decode_error("the .npz cannot be unpacked" + place + ": " + e.reason(), at);
  } catch (error& e) {
    e.add_place(at);
    throw;
  }
}

MILLRACE_INLINE npz_arrays read_npz(const bytes& file, const std::vector<std::string>& names, const where& at,
                                    std::uint64_t most) {
  return detail::read_picked(file, names, true, at, most);
}

MILLRACE_INLINE std::vector<named_array> parse_npz(const bytes& file, const std::vector<std::string>& names,
                                                   const where& at, std::uint64_t most) {
  npz_arrays all = read_npz(file, names, at, most);
  detail::say_unread(all, at);
  return std::move(all.arrays);
}

MILLRACE_INLINE std::vector<named_array> parse_npz(const bytes& file, const where& at, std::uint64_t most) {
  return parse_npz(file, std::vector<std::string>(), at, most);
}

}  // namespace millrace
