// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/s3/ops/with_retries.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE failed_attempt attempt_that(const error& e) noexcept {
  failed_attempt failed;
  failed.what = classify(e.status(), e.code());
  failed.hint = e.retry_after();
  return failed;
}

MILLRACE_INLINE failed_attempt attempt_that(const http::error& e) noexcept {
  failed_attempt failed;
  failed.what = classify(e.kind());
  failed.timed_out = e.kind() == http::failure::timeout;
  return failed;
}

}  // namespace millrace::s3::detail
