// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/flow/shuffle.hpp>

namespace millrace {

MILLRACE_INLINE shuffle_stage::shuffle_stage(shuffle_options options) : options_(options) {
  if (options.window == 0) throw configuration_error("shuffle: .window must not be 0");
  if (!(options.startup >= 0 && options.startup <= 1)) {
    throw configuration_error("shuffle: .startup is a share, from 0 to 1");
  }
}

}  // namespace millrace
