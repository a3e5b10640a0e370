// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace millrace {

/// In which order a concurrent stage hands on its results.
enum class order {
  ordered,  ///< as their inputs came: reproducible
  arrival,  ///< as they get ready: no item waits for a slower one, and no two runs need be alike
};

}  // namespace millrace
