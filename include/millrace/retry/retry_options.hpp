// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/clock.hpp>
#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The numbers of the "standard" retry mode of the AWS SDKs, as revised in 2026, and patience with a store that asks
/// for fewer requests.
struct retry_options {
  int max_attempts = 3;                                ///< the first try counts
  duration base = duration(50'000'000);                ///< first pause, doubled with every further one
  duration throttling_base = duration(1'000'000'000);  ///< likewise, when the store asks for fewer requests
  duration max_pause = duration(20'000'000'000);
  duration max_over_hint = duration(5'000'000'000);  ///< how much longer than ours a pause named by the store may be
  /// Tokens of the quota. A retry takes 14, and 5 if the store asks for fewer requests and `patience` is 0. The SDKs
  /// have 500 tokens, for some 35 requests in flight; here all 256 connections of a loop may break at once and must be
  /// allowed to come back.
  int quota = 4000;
  /// How long one request is tried again while the store asks for fewer requests, counted from the first such answer:
  /// these use up neither attempts nor quota. 0: they count as failures, as in the SDKs.
  duration patience = duration(600'000'000'000);
  /// Second requests for parts of objects that are late, for each request, at most; 0: none. They are for reads of a
  /// storage: fetch(), epochs() and what else reads by parts. The first answer counts, and the other request is
  /// dropped. A part is late by what recent ones of its size took; there are none while the store asks for fewer
  /// requests. Each holds memory for a part beyond the bounds of the readers, eight at a time or a few more.
  double hedges = 0.02;
};

}  // namespace millrace
