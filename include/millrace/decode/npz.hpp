// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI {

/// An array of an archive that there is no tensor for, and why.
class unread_array {
 public:
  unread_array(std::string n, std::string r) : name(std::move(n)), reason(std::move(r)) {}
  std::string name;
  std::string reason;
};

/// The contents of an archive of arrays.
class npz_arrays {
 public:
  std::vector<named_array> arrays;
  std::vector<unread_array> unread;  ///< those that parse_npy() has no tensor for, and members that are no .npy
};

/// Reads the files of np.savez() and np.savez_compressed(): the arrays of a zip archive, by libarchive, in the order of
/// the archive, under their names without ".npy". Each has memory of its own. With `names`, those alone.
///
/// Throws decode_error, with the place `at`: for a file that is no zip or is damaged, for a name that stands twice, for
/// members that together have more than `most` bytes (no more of them are unpacked), and as parse_npy() does for those
/// that are damaged. If names are given, also for one that is not there or that there is no tensor for; if none are,
/// for an archive without a readable array.
npz_arrays read_npz(const bytes& file, const std::vector<std::string>& names = {}, const where& at = where(),
                    std::uint64_t most = GiB);

/// The arrays of read_npz(). One line of the log names each array, once in a process, that there is no tensor for.
std::vector<named_array> parse_npz(const bytes& file, const where& at = where(), std::uint64_t most = GiB);
/// The arrays of these names.
std::vector<named_array> parse_npz(const bytes& file, const std::vector<std::string>& names, const where& at = where(),
                                   std::uint64_t most = GiB);

namespace detail {
/// read_npz(); if `all` is false, names that are not there or not read are no error.
npz_arrays read_picked(const bytes& file, const std::vector<std::string>& names, bool all, const where& at,
                       std::uint64_t most);
/// Names the arrays that are not read in the log, each once.
void say_unread(const npz_arrays& archive, const where& at);
}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/npz.ipp>
#endif
