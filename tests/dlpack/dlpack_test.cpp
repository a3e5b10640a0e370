// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/dlpack.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/batch_pool.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/device/batches.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

namespace {

/// Two samples with a field of every dtype.
batch_pool every_dtype() {
  std::vector<batch_field> fields;
  for (int i = 0; i <= static_cast<int>(dtype::f64); ++i) {
    fields.emplace_back(name_of(static_cast<dtype>(i)), static_cast<dtype>(i), shape{3, 4});
  }
  return batch_pool(batch_layout(2, fields));
}

std::shared_ptr<host_batch> made_by(batch_pool pool) {
  batch_builder builder = pool.start();
  for (std::size_t i = 0; i < builder.capacity(); ++i) builder.row(i).done();
  return std::make_shared<host_batch>(std::move(builder).seal());
}

/// late_device under the name of a GPU.
class late_gpu : public late_device {
 public:
  std::string name() const { return "cuda:3"; }
};
static_assert(device<late_gpu>);

/// A tensor of another library, which counts how often it is freed.
class foreign {
 public:
  foreign() {
    tensor_.dl_tensor.data = numbers_;
    tensor_.dl_tensor.device = {kDLCPU, 0};
    tensor_.dl_tensor.ndim = 2;
    tensor_.dl_tensor.dtype = {kDLFloat, 32, 1};
    tensor_.dl_tensor.shape = extents_;
    tensor_.manager_ctx = this;
    tensor_.deleter = [](DLManagedTensor* self) { ++static_cast<foreign*>(self->manager_ctx)->let_go; };
  }
  DLTensor& tensor() { return tensor_.dl_tensor; }
  DLManagedTensor* handed_over() { return &tensor_; }
  float* numbers() { return numbers_; }
  std::int64_t* extents() { return extents_; }
  std::int64_t* strides() { return tensor_.dl_tensor.strides = strides_; }

  int let_go = 0;

 private:
  float numbers_[16] = {};
  std::int64_t extents_[9] = {2, 3, 1, 1, 1, 1, 1, 1, 1};
  std::int64_t strides_[9] = {3, 1, 1, 1, 1, 1, 1, 1, 1};
  DLManagedTensor tensor_{};
};

template <class Tensor>
concept can_be_viewed = requires(Tensor&& t) {
  from_dlpack(std::forward<Tensor>(t));
};
static_assert(can_be_viewed<dlpack_tensor&>);
static_assert(!can_be_viewed<dlpack_tensor>);  // it would be gone with the statement

}  // namespace

TEST_CASE("a field is exported without a copy, with its type and shape", "[dlpack]") {
  const std::shared_ptr<host_batch> b = made_by(every_dtype());
  const struct {
    const char* field;
    int code, bits;
  } expected[] = {{"bool", 6, 8},       {"u8", kDLUInt, 8},    {"i8", kDLInt, 8},       {"u16", kDLUInt, 16},
                  {"i16", kDLInt, 16},  {"u32", kDLUInt, 32},  {"i32", kDLInt, 32},     {"u64", kDLUInt, 64},
                  {"i64", kDLInt, 64},  {"f16", kDLFloat, 16}, {"bf16", kDLBfloat, 16}, {"f32", kDLFloat, 32},
                  {"f64", kDLFloat, 64}};
  REQUIRE(std::size(expected) == b->layout().fields().size());
  for (const auto& e : expected) {
    INFO(e.field);
    const dlpack_tensor owner = to_dlpack(b, e.field);
    const DLTensor& t = owner->dl_tensor;
    CHECK(t.data == b->field(e.field).data());
    CHECK(t.byte_offset == 0);
    CHECK(t.device.device_type == kDLCPU);
    CHECK(t.device.device_id == 0);
    CHECK(int(t.dtype.code) == e.code);
    CHECK(int(t.dtype.bits) == e.bits);
    CHECK(t.dtype.lanes == 1);
    CHECK(std::vector(t.shape, t.shape + t.ndim) == std::vector<std::int64_t>{2, 3, 4});
    CHECK(std::vector(t.strides, t.strides + t.ndim) == std::vector<std::int64_t>{12, 4, 1});
    // And back.
    const tensor_view seen = from_dlpack(owner);
    CHECK(seen.data() == b->field(e.field).data());
    CHECK(seen.type() == b->field(e.field).type());
    CHECK(seen.dims() == shape{2, 3, 4});
  }
  CHECK_THROWS_WITH(to_dlpack(b, "f8"), Contains("a batch has no field named f8; it has bool, u8"));
  CHECK_THROWS_AS(to_dlpack(std::shared_ptr<host_batch>(), "u8"), usage_error);
  CHECK_THROWS_AS(to_dlpack(std::make_shared<host_batch>(), "u8"), usage_error);
}

TEST_CASE("a batch lives as long as any of its tensors", "[dlpack]") {
  const batch_pool pool = every_dtype();
  std::shared_ptr<host_batch> b = made_by(pool);
  dlpack_tensor tensors[] = {to_dlpack(b, "u8"), to_dlpack(b, "i64"), to_dlpack(b, "f32")};
  b.reset();
  const std::vector<int> order = GENERATE(std::vector{0, 1, 2}, std::vector{2, 1, 0}, std::vector{1, 2, 0});
  for (int i : order) {
    CHECK(pool.live() == 1);
    DLManagedTensor* const given_away = tensors[i].release();
    given_away->deleter(given_away);
  }
  CHECK(pool.live() == 0);
}

TEST_CASE("tensors are dropped on other threads, all at once", "[dlpack]") {
  const batch_pool pool = every_dtype();
  std::shared_ptr<host_batch> b = made_by(pool);
  std::vector<std::thread> consumers;
  for (const batch_field& field : b->layout().fields()) {
    DLManagedTensor* const given_away = to_dlpack(b, field.name()).release();
    consumers.emplace_back([given_away] { given_away->deleter(given_away); });
  }
  b.reset();
  for (std::thread& each : consumers) each.join();
  CHECK(pool.live() == 0);
}

TEST_CASE("a slot comes back after the streams that waited, when the last tensor of its batch has gone", "[dlpack]") {
  const late_gpu gpu;
  {
    testing::virtual_loop loop;
    auto stream = images(4) | batch(2) | to_device(gpu, {.slots = 1});
    std::deque<device_batch> got;
    block_on(loop, take(stream, got, 1));
    auto b = std::make_shared<device_batch>(std::move(got.front()));
    got.clear();
    b->wait(user);
    gpu.control().go();  // the copy

    dlpack_tensor image = to_dlpack(b, "image"), label = to_dlpack(b, "label");
    void* const place = b->field("label").data();
    CHECK(image->dl_tensor.data == b->field("image").data());
    CHECK(label->dl_tensor.data == place);
    CHECK(label->dl_tensor.device.device_type == kDLCUDA);
    CHECK(label->dl_tensor.device.device_id == 3);
    CHECK(from_dlpack(label, "cuda:3").data() == place);
    CHECK_THROWS_WITH(from_dlpack(label), Contains("is on cuda:3, and was expected on host"));
    CHECK_THROWS_WITH(from_dlpack(label, "cuda:0"), Contains("is on cuda:3, and was expected on cuda:0"));
    CHECK(to_dlpack(b->host_field("label"), "host", b)->dl_tensor.data == b->host_field("label").data());

    b.reset();
    CHECK(gpu.control().marks.empty());
    image.reset();
    CHECK(gpu.control().marks.empty());
    std::thread([&] { label.reset(); }).join();
    CHECK(gpu.control().marks.size() == 1);  // the end of what the consumer has enqueued

    gpu.control().after = 2;
    block_on(loop, take(stream, got, 1));
    REQUIRE(got.size() == 1);
    CHECK(got.front().field("label").data() == place);
    CHECK_THROWS_AS(to_dlpack(std::make_shared<device_batch>(), "label"), usage_error);
  }
  check_all_returned(gpu);
}

TEST_CASE("any memory is exported, on devices that DLPack knows", "[dlpack]") {
  auto numbers = std::make_shared<std::vector<float>>(6);
  const std::weak_ptr<std::vector<float>> alive = numbers;
  const tensor_view t(numbers->data(), dtype::f32, {2, 3});
  dlpack_tensor gpu = to_dlpack(t, "cuda:12", numbers);
  CHECK(gpu->dl_tensor.device.device_id == 12);
  CHECK(to_dlpack(tensor_view(t.data(), dtype::f32, {}), "host", numbers)->dl_tensor.ndim == 0);
  for (const char* unknown :
       {"", "hosts", "cuda", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999999", "toy:0"}) {
    CHECK_THROWS_WITH(to_dlpack(t, unknown, numbers),
                      Contains("no name for the device \"" + std::string(unknown) + "\""));
  }
  CHECK(numbers.use_count() == 2);
  numbers.reset();
  CHECK_FALSE(alive.expired());
  gpu.reset();
  CHECK(alive.expired());
}

TEST_CASE("a tensor of another library is read where it lies, and let go of once", "[dlpack]") {
  foreign other;
  other.numbers()[5] = 7;
  {
    dlpack_tensor owner(other.handed_over());
    const tensor_view t = from_dlpack(owner);
    CHECK(t.dims() == shape{2, 3});
    CHECK(t.as<float>() == other.numbers());
    CHECK(t.values<const float>()[5] == 7);
    const dlpack_tensor moved = std::move(owner);
    CHECK(other.let_go == 0);
  }
  CHECK(other.let_go == 1);
  other.handed_over()->deleter = nullptr;  // nothing to be done
  dlpack_tensor(other.handed_over()).reset();
  CHECK(other.let_go == 1);
  const dlpack_tensor nothing;
  CHECK_THROWS_AS(from_dlpack(nothing), usage_error);
}

TEST_CASE("strides in C order are taken, wherever there are any", "[dlpack]") {
  foreign other;
  const dlpack_tensor owner(other.handed_over());
  std::int64_t* const strides = other.strides();
  CHECK(from_dlpack(owner).dims() == shape{2, 3});
  strides[0] = 4;  // rows with a gap
  CHECK_THROWS_WITH(from_dlpack(owner),
                    Contains("of 2x3 has a stride of 4 in dimension 0, not 3: it must lie dense and in C order"));
  strides[0] = 1, strides[1] = 2;  // columns first
  CHECK_THROWS_WITH(from_dlpack(owner), Contains("has a stride of 2 in dimension 1, not 1"));
  strides[0] = 3, strides[1] = -1;  // backwards
  CHECK_THROWS_WITH(from_dlpack(owner), Contains("has a stride of -1 in dimension 1, not 1"));
  strides[0] = 0, strides[1] = 1;  // a row repeated
  CHECK_THROWS_WITH(from_dlpack(owner), Contains("has a stride of 0 in dimension 0, not 3"));
  other.extents()[0] = 1;  // what is there once has any stride
  CHECK(from_dlpack(owner).dims() == shape{1, 3});
  other.extents()[0] = 0;  // and so has what is not there
  strides[1] = 17;
  CHECK(from_dlpack(owner).dims() == shape{0, 3});
}

TEST_CASE("a tensor that cannot be taken is refused with a sentence, and stays its owner's", "[dlpack]") {
  foreign other;
  {
    const dlpack_tensor owner(other.handed_over());
    DLTensor& t = other.tensor();
    SECTION("lanes") {
      t.dtype.lanes = 4;
      CHECK_THROWS_WITH(from_dlpack(owner), Contains("has 4 numbers to an element (lanes); there must be one"));
    }
    SECTION("complex numbers") {
      t.dtype = {kDLComplex, 64, 1};
      CHECK_THROWS_WITH(from_dlpack(owner), Contains("elements of type 5 with 64 bits, which millrace does not have"));
    }
    SECTION("four bits") {
      t.dtype = {kDLInt, 4, 1};
      CHECK_THROWS_WITH(from_dlpack(owner), Contains("elements of type 0 with 4 bits"));
    }
    SECTION("a device") {
      t.device = {kDLOpenCL, 1};
      CHECK_THROWS_WITH(from_dlpack(owner),
                        Contains("is on DLPack's device type 4, number 1, and was expected on host"));
    }
    SECTION("dimensions") {
      t.ndim = 9;
      CHECK_THROWS_WITH(from_dlpack(owner), Contains("has 9 dimensions; there may be 0 to 8"));
      t.ndim = -1;
      CHECK_THROWS_WITH(from_dlpack(owner), Contains("has -1 dimensions; there may be 0 to 8"));
      t.ndim = 1, t.shape = nullptr;
      CHECK_THROWS_WITH(from_dlpack(owner), Contains("has 1 dimensions without extents"));
    }
    SECTION("extents") {
      other.extents()[1] = -3;
      CHECK_THROWS_WITH(from_dlpack(owner), Contains("negative extent"));
      other.extents()[1] = std::int64_t(1) << 62;
      CHECK_THROWS_WITH(from_dlpack(owner), Contains("too large"));
    }
    SECTION("no data") {
      t.data = nullptr;
      CHECK_THROWS_WITH(from_dlpack(owner), Contains("a DLPack tensor of 2x3 has no data"));
      other.extents()[0] = 0;
      CHECK(from_dlpack(owner).elements() == 0);
    }
    SECTION("begin") {
      t.byte_offset = 8;
      CHECK(from_dlpack(owner).data() == other.numbers() + 2);
      t.byte_offset = 6;
      CHECK_THROWS_WITH(from_dlpack(owner), Contains("a DLPack tensor of f32 begins between two elements"));
    }
    CHECK(other.let_go == 0);
  }
  CHECK(other.let_go == 1);
}

TEST_CASE("page-locked memory of a GPU's runtime is host memory", "[dlpack]") {
  foreign other;
  const dlpack_tensor owner(other.handed_over());
  for (DLDeviceType type : {kDLCUDAHost, kDLROCMHost}) {
    other.tensor().device.device_type = type;
    CHECK(from_dlpack(owner).data() == other.numbers());
  }
}
