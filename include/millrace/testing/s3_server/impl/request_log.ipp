// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/request_log.hpp>

namespace millrace::s3_server {

MILLRACE_INLINE logged_request::logged_request(const request& r, int answered, fault::kind what_went_wrong)
    : method(r.method),
      bucket(r.bucket),
      key(r.key),
      status(answered),
      fault(what_went_wrong),
      connection(r.connection) {
  if (const std::string* value = r.field("range")) range = *value;
  if (const std::string* value = r.field("if-match")) if_match = *value;
  if (const std::string* value = r.field("x-amz-content-sha256")) payload = *value;
  for (const auto& [name, value] : r.query) {
    if (name.compare(0, 6, "X-Amz-") != 0) query += (query.empty() ? "" : "&") + name + '=' + value;
  }
}

MILLRACE_INLINE void request_log::add(logged_request r) {
  std::lock_guard lock(mutex_);
  ++count_;
  if (entries_.size() < limit_) entries_.push_back(std::move(r));
}

MILLRACE_INLINE void request_log::clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
  count_ = 0;
}

}  // namespace millrace::s3_server
