// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <millrace/coro/executor.hpp>
#include <millrace/http/options.hpp>

namespace millrace::http {

/// The limits of the HTTP engine that an executor will have, for when whoever makes the engine says nothing: requests
/// deep inside a pipeline do. A service of the executor, for its thread.
template <class = void>
class basic_engine_defaults final : public executor_service {
 public:
  explicit basic_engine_defaults(const engine_options& o) noexcept : options(o) {}

  /// Has no effect on an engine that is there already, nor when called again.
  static void set(executor& ex, const engine_options& o) {
    ex.service<basic_engine_defaults>([&] { return std::make_unique<basic_engine_defaults>(o); });
  }
  static engine_options of(executor& ex) {
    const auto* set_before = ex.find_service<basic_engine_defaults>();
    return set_before == nullptr ? engine_options() : set_before->options;
  }

  const engine_options options;
};
using engine_defaults = basic_engine_defaults<>;

}  // namespace millrace::http
