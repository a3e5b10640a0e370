// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <dlpack/dlpack.h>

/// A program that hands its batches to Python, as a shared library that Python's ctypes loads: consumers.py.
extern "C" {
/// Makes a batch of two samples: image (u8, 3x4), label (i64), wave (f32, 5), half (f16, 2), brain (bf16, 2); its
/// numbers are 0, 1, 2, ... in each field. It is gone with the last of its tensors.
void make_batch();
/// Hands one field over. Null when there is no such field or no batch.
DLManagedTensor* take_field(const char* name);
/// The address of that field.
std::uintptr_t address_of(const char* name);
/// The program lets go of its batch; tensors keep theirs.
void drop_batch();
/// How many batches there are.
std::uint64_t live_batches();

/// Takes a tensor of f32 from another library and gives the address of its data, or 0 when it is refused: then
/// last_refusal() says why. Lets go of it in drop_foreign(), on another thread than the caller's, or at once when
/// refused.
std::uintptr_t keep_foreign(DLManagedTensor* tensor);
const char* last_refusal();
/// The sum of what was taken, read in place.
double sum_of_foreign();
void drop_foreign();
}
