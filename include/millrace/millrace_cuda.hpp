// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Batches in GPU memory: beside millrace.hpp, with the component cuda.
///
/// Streams, events, pinned memory and pipelines to a GPU end before main() returns: none of them is a static object,
/// since the CUDA runtime may be gone when those are destroyed.
///
/// nvcc 13 compiles this header and millrace.hpp, with `-std=c++20`: a pipeline may stand in a .cu beside its kernels.

#include <millrace/base/compiler.hpp>
#include <millrace/cuda/device.hpp>
#include <millrace/cuda/stream.hpp>
#include <millrace/cuda/stream_device.hpp>
#include <millrace/device/to_device.hpp>
