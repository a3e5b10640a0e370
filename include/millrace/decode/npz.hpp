// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace {

/// What np.savez() and np.savez_compressed() write: the arrays of a zip archive, by libarchive, in the order of the
/// archive, under their names without ".npy". Each has memory of its own.
///
/// Throws decode_error, with the place `at`: for what is no zip or is damaged, for a name that stands twice, for a
/// member that is no .npy, for those that together have more than `most` bytes (no more of them are unpacked), and as
/// parse_npy() does.
std::vector<named_array> parse_npz(const bytes& file, const where& at = where(), std::uint64_t most = GiB);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/impl/npz.ipp>
#endif
