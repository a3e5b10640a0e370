// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file
/// What random numbers are drawn for: the third word of rng(seed, epoch, purpose), so that stages with the same seed
/// draw independent sequences. Part of the library's contract: the order of an epoch depends on them.

namespace millrace::purpose {

/// Of shuffle(): which item of the window leaves next.
inline constexpr std::uint64_t shuffle = 0x73687566666c6521;  // "shuffle!"
/// Of mix(): which source the next item comes from.
inline constexpr std::uint64_t mix = 0x6d697865642e2e2e;      // "mixed..."
/// Of bucket_by_length(): which batch of the window leaves next.
inline constexpr std::uint64_t bucket = 0x6275636b65747321;  // "buckets!"
/// Of sample::random(), for what crops and mirrors its image.
inline constexpr std::uint64_t augment = 0x6175676d656e7421;  // "augment!"

}  // namespace millrace::purpose
