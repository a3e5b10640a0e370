// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/auth/default_credentials.hpp>
#include <millrace/s3/auth/detail/metadata_sources.hpp>
#include <millrace/s3/auth/spot_notice.hpp>
#include <millrace/s3/config/settings.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {
namespace detail {

template <class = void>
task<std::string> spot_notice_at(instance_place place, duration every) {
  surroundings world{http::transport_options()};
  task<std::string> watching = watch_for_spot_notice(world, std::move(place), every);
  co_return co_await std::move(watching);
}

}  // namespace detail

MILLRACE_COROUTINE_BODY task<std::string> spot_notice(duration every, const environment& variables) {
  const settings s(variables);
  return detail::spot_notice_at(detail::instance_place(s), every);
}

}  // namespace millrace::s3
