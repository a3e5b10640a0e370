// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/order/sample_mix.hpp>
#include <millrace/train/detail/dataset_mix.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

class training_plan;

/// "last_end", or "forever=1000" with the length.
std::string mix_end_text(mix_until until, std::uint64_t samples);

/// A mix in a state: the end of its epochs, and of each member its weight, eight digits of its digest, and its seed if
/// it has one: "last_end 3:9c1b2a3d 1:00f3e211:5". Many members have one digest of all that, so that it stays short.
std::string mix_text(const dataset_mix& mix);

/// The text before the first `mark`, or all; it and the mark are taken off.
std::string_view take_to(std::string_view& text, char mark);

/// Throws configuration_error, which says what differs between a state's mix and that of `now`; either may be of one
/// data set, whose text is empty.
void check_mix(std::string_view then, std::string_view here, const training_plan& now);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/mix_text.ipp>
#endif
