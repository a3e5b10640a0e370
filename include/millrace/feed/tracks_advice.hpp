// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/feed/epochs_options.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/feed/sample_order.hpp>

namespace millrace {

/// A sentence where a data set is so small for its tracks that a request brings less than a quarter of a slice, down to
/// single samples, with the number of tracks that would fit; empty where all is well.
std::string tracks_advice(std::uint64_t samples, const order_options& order, std::uint64_t world);

/// A sentence where epochs_options::bytes of memory hold so little of the slices that a rank has open that it makes
/// more than twice the requests that whole slices take, or reads more than 1.25 times the bytes: what it costs, how
/// many bytes would hold them, and which number of tracks would fit. Empty where all is well.
std::string bytes_advice(const index_set& indexes, const order_options& order, std::uint64_t world,
                         const epochs_options& reading);

/// The first of these two that has something to say.
std::string reading_advice(const index_set& indexes, const order_options& order, std::uint64_t world,
                           const epochs_options& reading);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/feed/impl/tracks_advice.ipp>
#endif
