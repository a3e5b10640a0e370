// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The library's kernels as functions, for this model to call, with what they read and write.

#include "tests/cuda/normalise.cu"  // NOLINT(bugprone-suspicious-include): one source for GPU and model

#include <cstddef>

#include "tests/fake_cuda/fake_cuda.hpp"

namespace millrace::fake_cuda {

inline void used_by_normalise(millrace::detail::pixel_work& w, kernel_memory& memory, dtype type) {
  const auto images = static_cast<std::size_t>(w.images);
  memory.reads(w.pixels, static_cast<std::size_t>(w.bytes));
  if (w.offsets != nullptr) memory.reads(w.offsets, images * sizeof *w.offsets);
  if (w.parts != nullptr) memory.reads(w.parts, images * sizeof *w.parts);
  memory.writes(w.to,
                images * 3 * static_cast<std::size_t>(w.height) * static_cast<std::size_t>(w.width) * size_of(type));
}

template <dtype Type>
bool know_normalise() {
  const auto uses = [](millrace::detail::pixel_work& w, kernel_memory& memory) { used_by_normalise(w, memory, Type); };
  return know_kernel(&cuda::detail::normalise<Type>, +uses);
}
const bool known = know_normalise<dtype::f32>() && know_normalise<dtype::f16>() && know_normalise<dtype::bf16>();

}  // namespace millrace::fake_cuda
