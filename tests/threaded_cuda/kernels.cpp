// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The tests' kernels as functions, for this model to call.

#include "tests/cuda/kernels.cu"  // NOLINT(bugprone-suspicious-include): one source for GPU and model
