// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/dlpack/batch_library.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <millrace/device/batch_pool.hpp>
#include <millrace/device/dlpack.hpp>

namespace mill = millrace;

namespace {

struct state {
  mill::batch_pool pool{mill::batch_layout(2, {{"image", mill::dtype::u8, {3, 4}},
                                               {"label", mill::dtype::i64},
                                               {"wave", mill::dtype::f32, {5}},
                                               {"half", mill::dtype::f16, {2}},
                                               {"brain", mill::dtype::bf16, {2}}})};
  std::shared_ptr<mill::host_batch> batch;
  mill::dlpack_tensor foreign;
  std::string refusal;
};

state& here() {
  static state s;
  return s;
}

template <class T>
void count(const mill::tensor_view& t) {
  const std::span<T> numbers = t.values<T>();
  std::iota(numbers.begin(), numbers.end(), T(0));
}

/// 0, 1, 2 and 3 in 16 bits.
void write(const mill::tensor_view& t, const std::uint16_t (&numbers)[4]) {
  std::copy(std::begin(numbers), std::end(numbers), static_cast<std::uint16_t*>(t.data()));
}

}  // namespace

void make_batch() {
  mill::batch_builder builder = here().pool.start();
  for (std::size_t i = 0; i < builder.capacity(); ++i) builder.row(i).done();
  here().batch = std::make_shared<mill::host_batch>(std::move(builder).seal());
  count<std::uint8_t>(here().batch->field("image"));
  count<std::int64_t>(here().batch->field("label"));
  count<float>(here().batch->field("wave"));
  write(here().batch->field("half"), {0x0000, 0x3c00, 0x4000, 0x4200});
  write(here().batch->field("brain"), {0x0000, 0x3f80, 0x4000, 0x4040});
}

DLManagedTensor* take_field(const char* name) {
  try {
    return mill::to_dlpack(here().batch, name).release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

std::uintptr_t address_of(const char* name) {
  return reinterpret_cast<std::uintptr_t>(here().batch->field(name).data());
}

void drop_batch() { here().batch.reset(); }

std::uint64_t live_batches() { return here().pool.live(); }

std::uintptr_t keep_foreign(DLManagedTensor* tensor) {
  mill::dlpack_tensor owner(tensor);
  try {
    const std::span<const float> numbers = mill::from_dlpack(owner).values<const float>();
    here().foreign = std::move(owner);
    return reinterpret_cast<std::uintptr_t>(numbers.data());
  } catch (const std::exception& e) {
    here().refusal = e.what();
    return 0;
  }
}

const char* last_refusal() { return here().refusal.c_str(); }

double sum_of_foreign() {
  const std::span<const float> numbers = mill::from_dlpack(here().foreign).values<const float>();
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

void drop_foreign() {
  std::thread([] { here().foreign.reset(); }).join();
}
