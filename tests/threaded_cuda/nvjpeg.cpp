// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The kernel of the model of nvJPEG, for this model to call.

#include "tests/nvjpeg_model/nvjpeg_model.hpp"

#include "tests/threaded_cuda/threaded_cuda.hpp"

namespace millrace::threaded_cuda {

const bool known = know_kernel(&nvjpeg_model::decode);

}  // namespace millrace::threaded_cuda
