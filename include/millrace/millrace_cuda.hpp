// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Batches in GPU memory: beside millrace.hpp, with the component cuda.

#include <millrace/cuda/cuda_device.hpp>
#include <millrace/cuda/device.hpp>
#include <millrace/cuda/event.hpp>
#include <millrace/cuda/pinned_source.hpp>
#include <millrace/cuda/stream.hpp>
#include <millrace/device/to_device.hpp>
