// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The library's kernels as functions, for this model to call.

#include "tests/cuda/normalise.cu"  // NOLINT(bugprone-suspicious-include): one source for GPU and model

#include "tests/threaded_cuda/threaded_cuda.hpp"

namespace millrace::threaded_cuda {

namespace kernels = cuda::detail;
const bool known = know_kernel(&kernels::normalise<dtype::f32>) && know_kernel(&kernels::normalise<dtype::f16>) &&
                   know_kernel(&kernels::normalise<dtype::bf16>);

}  // namespace millrace::threaded_cuda
