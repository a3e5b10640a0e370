// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/error.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/device/dtype.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace {

/// What np.save() writes (NumPy's format 1.0, 2.0 and 3.0), without a copy where the data are aligned, as NumPy aligns
/// them: booleans, whole numbers and floating-point numbers of 16, 32 and 64 bits.
///
/// Throws decode_error, with the place `at`, for what is no .npy, is cut short or longer than it says, and for what
/// there is no tensor for: big-endian elements, Fortran's order (but for arrays that have the same order in both),
/// Python objects, text, structures, complex numbers, more than eight extents. A header of more than 64 KiB is refused.
array parse_npy(const bytes& file, const where& at = where());

/// Elements without a header, little-endian, one behind the other, as ndarray.tofile() writes them: one dimension, as
/// long as there are. array's own constructor gives them a shape. Throws decode_error for a part of an element.
array parse_raw(const bytes& data, dtype type, const where& at = where());

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/impl/npy.ipp>
#endif
