// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/feed/sample_order.hpp>

namespace millrace {

/// A sentence where a data set is so small for its tracks that a request brings less than a quarter of a slice, down to
/// single samples, with the number of tracks that would fit; empty where all is well.
std::string tracks_advice(std::uint64_t samples, const order_options& order, std::uint64_t world);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/feed/impl/tracks_advice.ipp>
#endif
