// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <millrace/cuda/stream.hpp>
#include <millrace/device/normalise_images.hpp>

namespace millrace::test {

/// cuda::normalise_images(), of a file that nvcc has compiled, or of one in which its kernels are functions.
void normalise(const device_batch& b, std::string_view field, const tensor_view& to, const cuda::stream& work,
               const normalise_options& options);

}  // namespace millrace::test
