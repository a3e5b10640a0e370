// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: a .npy, a .npz and the lengths of recordings are read or refused, within the bytes that are there.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/arrays_fuzz.cpp -larchive
//   ./a.out -max_len=2000 corpus/

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/decode/detail/sound_parts.hpp>
#include <millrace/decode/npz.hpp>
#include <millrace/memory/bytes.hpp>

namespace {

namespace mill = millrace;

void check(const mill::array& a) {
  const std::size_t size = a.dims().elements() * mill::size_of(a.type());
  if (size != a.memory().size()) std::abort();
  unsigned sum = 0;
  for (const char c : a.memory()) sum += static_cast<unsigned char>(c);
  if (sum > 255 * size) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const mill::bytes file = mill::bytes::copy(std::string_view(reinterpret_cast<const char*>(data), size));
  try {
    check(mill::parse_npy(file));
  } catch (const mill::decode_error&) {
  }
  try {
    for (const mill::named_array& one : mill::parse_npz(file, mill::where(), 100000)) check(one.value);
  } catch (const mill::decode_error&) {
  }
  const mill::detail::sound_parts found =
      mill::detail::find_sound_parts(mill::detail::audio_kind_of(file.view()), file.view());
  for (const mill::detail::sound_part& part : found.parts) {
    if (part.body.size() > file.size() || part.head.size() > 2 * file.size() + 2000) std::abort();
  }
  return 0;
}
