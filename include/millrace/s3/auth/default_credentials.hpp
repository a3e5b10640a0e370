// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <millrace/base/environment.hpp>
#include <millrace/http/options.hpp>
#include <millrace/s3/auth/detail/default_chain.hpp>
#include <millrace/s3/auth/detail/surroundings.hpp>
#include <millrace/s3/auth/refreshing_credentials.hpp>

namespace millrace::s3 {

/// Credentials from where the AWS SDKs look for them, refreshed before they end.
///
/// In this order: the environment; the selected profile (static keys, roles over source_profile or credential_source,
/// web identity, credential_process, the cached token of IAM Identity Center); the web identity of the environment (EKS
/// service accounts); the container's agent (ECS, EKS Pod Identity), and then never the instance; instance metadata,
/// version 2 only. What is not configured is passed over, what is configured and broken is an error that says where;
/// when no source has any, the error lists why each was passed over. No message contains a secret.
///
/// The variables are copied now; files are read at every refresh, and nothing is asked before the first request.
/// `services` is how STS and SSO are reached (proxy, certificate authorities); instance and container are always asked
/// directly. A template so that programs that do not use it do not pay for it.
template <class Surroundings = detail::surroundings>
std::shared_ptr<credentials_provider> default_credentials(const environment& variables = process_environment(),
                                                 http::transport_options services = http::transport_options()) {
  using chain = detail::default_chain<Surroundings>;
  static_cast<void>(credentials_from_environment(variables));  // half a pair is an error now, not at the first request
  auto world = std::make_shared<Surroundings>(std::move(services));
  return std::make_shared<refreshing_credentials<chain>>(std::make_shared<chain>(std::move(world), variables));
}

}  // namespace millrace::s3
