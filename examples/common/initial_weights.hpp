// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace examples {

/// Small numbers to begin with, between -scale and scale; the same ones every time.
inline std::vector<double> initial_weights(int inputs, int outputs, double scale) {
  std::vector<double> weights(static_cast<std::size_t>(inputs) * static_cast<std::size_t>(outputs));
  // Numerical Recipes' linear congruential generator: good enough here, and any compiler takes it.
  std::uint32_t state = static_cast<std::uint32_t>(inputs * 31 + outputs);
  for (double& w : weights) {
    state = state * 1664525u + 1013904223u;
    w = scale * (static_cast<double>(state >> 8) / 8388608.0 - 1);
  }
  return weights;
}

}  // namespace examples
