// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/coro/task.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/s3/session.hpp>
#include <millrace/s3/error.hpp>

/// \file
/// What the conformance checks share. A check is a coroutine that throws where the library and the server disagree.

namespace real_server {

/// Where the checks work: a bucket that belongs to them.
class place {
 public:
  explicit place(std::string bucket_name)
      : s3(millrace::s3::client::from_environment()),
        who(millrace::s3::credentials_from_environment(millrace::process_environment()).value()),
        bucket(std::move(bucket_name)) {}

  std::string url(std::string_view key) const { return "s3://" + bucket + "/" + std::string(key); }

  /// The same again, for what is below the client.
  std::shared_ptr<const millrace::s3::session> session() const {
    return std::make_shared<const millrace::s3::session>(
        s3.configuration(), std::make_shared<millrace::s3::fixed_credentials>(who),
        millrace::http::transport_options());
  }

  const millrace::s3::client s3;
  const millrace::s3::credentials who;
  const std::string bucket;
};

inline void expect(bool fine, const std::string& what) {
  if (!fine) throw std::logic_error("expected: " + what);
}

inline millrace::task<void> put(const place& p, std::string_view key, std::string_view body) {
  co_await p.s3.put(p.url(key), millrace::bytes::copy(body));
}

/// The s3::error that `t` ends with; a failed check when it ends otherwise.
template <class T>
millrace::task<millrace::s3::error> refusal(millrace::task<T> t) {
  std::optional<millrace::s3::error> caught;
  try {
    co_await std::move(t);
  } catch (const millrace::s3::error& e) {
    caught = e;
  }
  expect(caught.has_value(), "the store refuses this");
  co_return *caught;
}

inline void expect_refused(const millrace::s3::error& e, int status, std::string_view code) {
  expect(e.status() == status && e.code() == code,
         std::to_string(status) + " " + std::string(code) + ", but it was: " + e.what());
}

/// Bytes that do not repeat soon.
inline std::string pattern(std::size_t size) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 2654435761u) >> 13);
  return text;
}

/// Keys, listings, ranges: requests that must be carried out.
millrace::task<void> hostile_keys(const place& p);
millrace::task<void> long_listing(const place& p);
millrace::task<void> listing_rules(const place& p);
millrace::task<void> ranges(const place& p);
millrace::task<void> clock_skew(const place& p);

/// Buckets in host names, URLs that carry their signature.
millrace::task<void> presigned(const place& p);
millrace::task<void> virtual_hosts(const place& p);

/// Streams that are stored.
millrace::task<void> streams(const place& p);
millrace::task<void> broken_streams(const place& p);
millrace::task<void> new_objects_only(const place& p);

/// Requests that must be refused, each with its typed error.
millrace::task<void> changed_objects(const place& p);
millrace::task<void> wrong_keys(const place& p);
millrace::task<void> missing_things(const place& p);
millrace::task<void> anonymous(const place& p);

}  // namespace real_server
