// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/error.hpp>

namespace millrace::test {

/// What an error of the library that `body` throws says; "no error" if it throws nothing.
template <class F>
std::string failure_of(const F& body) {
  try {
    body();
    return "no error";
  } catch (const error& e) {
    return e.what();
  }
}

}  // namespace millrace::test
