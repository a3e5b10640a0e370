// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/config/settings.hpp>

namespace millrace::s3 {

MILLRACE_INLINE std::optional<std::string_view> settings::service_property(std::string_view service,
                                                                           std::string_view name) const {
  const std::optional<std::string_view> section = property("services");
  if (!section) return std::nullopt;
  const profile* services = files_.find_services(*section);
  if (services == nullptr) {
    throw configuration_error(
        "profile " + profile_name() + " names the services section " + std::string(*section) + ", which is not there",
        where{location_.config_path, std::nullopt, std::string()});
  }
  return filled(services->find(service, name));
}

}  // namespace millrace::s3
