// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// For nvcc, and for an ordinary compiler together with one of the models.

#include "tests/cuda/blocks.hpp"

#include <millrace/cuda/normalise_images.hpp>

#include "tests/cuda/normalise.hpp"

namespace millrace::test {

void normalise(const device_batch& b, std::string_view field, const tensor_view& to, const cuda::stream& work,
               const normalise_options& options) {
  cuda::normalise_images(b, field, to, work, options);
}

}  // namespace millrace::test
