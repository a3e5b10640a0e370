// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The kernel of the model of nvJPEG, for this model to call, with what it reads and writes.

#include "tests/nvjpeg_model/nvjpeg_model.hpp"

#include "tests/fake_cuda/fake_cuda.hpp"

namespace millrace::fake_cuda {

inline void used_by_decode(nvjpeg_model::decode_work& w, kernel_memory& memory) {
  memory.reads(w.file, w.size);
  memory.writes(w.to, w.pixel_bytes());
}
const bool known = know_kernel(&nvjpeg_model::decode, &used_by_decode);

}  // namespace millrace::fake_cuda
