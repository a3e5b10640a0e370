// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/flow/detail/item_place.hpp>

namespace millrace::detail {

MILLRACE_INLINE void item_place::complete() const noexcept {
  try {
    try {
      throw;
    } catch (const configuration_error&) {
    } catch (const usage_error&) {
    } catch (error& e) {
      e.add_place(at());
    }
  } catch (...) {  // not ours, or no memory for the place: it goes on as it is
  }
}

}  // namespace millrace::detail
