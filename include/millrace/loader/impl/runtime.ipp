// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <millrace/base/compiler.hpp>
#include <millrace/loader/runtime.hpp>

namespace millrace {

MILLRACE_INLINE runtime::runtime(const runtime_options& options)
    : core_(std::make_shared<detail::runtime_core>(options)) {}

}  // namespace millrace
