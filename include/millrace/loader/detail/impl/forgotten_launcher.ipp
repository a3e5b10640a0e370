// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loader/detail/forgotten_launcher.hpp>
#include <millrace/loader/rank_from_environment.hpp>

namespace millrace::detail {

MILLRACE_INLINE std::string forgotten_launcher(const rank& said, const environment& variables) {
  if (said.world_size != 1) return {};
  std::string why;
  try {
    const rank launched = rank_from_environment(variables);
    if (launched.world_size == 1) return {};
    why = std::string(launched.source) + " says that it is rank " + std::to_string(launched.index) + " of " +
          std::to_string(launched.world_size);
  } catch (const configuration_error& e) {
    // One process of a platform that sets these for all: nothing to say.
    const std::optional<std::string> size = variables.get("WORLD_SIZE");
    if (size && *size == "1") return {};
    why = e.what();
  }
  return "millrace: this process reads as rank 0 of 1, so all of the data, but " + why +
         ": unless that is meant, give epochs() rank_from_environment() as its .rank";
}

MILLRACE_INLINE void say_launcher(runtime_parts& log, const rank& said, const environment& variables) {
  const std::string line = forgotten_launcher(said, variables);
  if (!line.empty() && first_time(line)) log.say(line.c_str());
}

}  // namespace millrace::detail
