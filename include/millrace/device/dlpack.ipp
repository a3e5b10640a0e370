// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/device/dlpack.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// kDLBool of DLPack 0.8 and newer; earlier headers do not name it.
inline constexpr std::uint8_t dlpack_bool = 6;

struct dlpack_type {
  dtype type;
  std::uint8_t code;
};
inline constexpr dlpack_type dlpack_types[] = {
    {dtype::boolean, dlpack_bool}, {dtype::u8, kDLUInt},   {dtype::i8, kDLInt},      {dtype::u16, kDLUInt},
    {dtype::i16, kDLInt},          {dtype::u32, kDLUInt},  {dtype::i32, kDLInt},     {dtype::u64, kDLUInt},
    {dtype::i64, kDLInt},          {dtype::f16, kDLFloat}, {dtype::bf16, kDLBfloat}, {dtype::f32, kDLFloat},
    {dtype::f64, kDLFloat},
};

MILLRACE_INLINE DLDataType dlpack_type_of(dtype type) noexcept {
  DLDataType result{};
  for (const dlpack_type& each : dlpack_types) {
    if (each.type == type) result.code = each.code;
  }
  result.bits = static_cast<std::uint8_t>(size_of(type) * 8);
  result.lanes = 1;
  return result;
}

MILLRACE_INLINE dtype dtype_of_dlpack(const DLDataType& type) {
  if (type.lanes != 1) {
    throw configuration_error("a DLPack tensor has " + std::to_string(type.lanes) +
                              " numbers to an element (lanes); there must be one");
  }
  for (const dlpack_type& each : dlpack_types) {
    if (each.code == type.code && size_of(each.type) * 8 == type.bits) return each.type;
  }
  throw configuration_error("a DLPack tensor has elements of type " + std::to_string(type.code) + " with " +
                            std::to_string(type.bits) + " bits, which millrace does not have");
}

MILLRACE_INLINE DLDevice dlpack_device_of(std::string_view name) {
  constexpr std::string_view cuda = "cuda:";
  if (name == "host") return DLDevice{kDLCPU, 0};
  if (name.substr(0, cuda.size()) == cuda) {
    int number = -1;
    const char* const end = name.data() + name.size();
    const std::from_chars_result read = std::from_chars(name.data() + cuda.size(), end, number);
    if (read.ec == std::errc() && read.ptr == end && number >= 0) return DLDevice{kDLCUDA, number};
  }
  throw configuration_error("DLPack has no name for the device \"" + std::string(name) +
                            "\"; known are \"host\" and \"cuda:<number>\"");
}

/// In the words of device_batch::device().
MILLRACE_INLINE std::string dlpack_name_of(const DLDevice& device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
    case kDLROCMHost:
      return "host";
    case kDLCUDA:
      return "cuda:" + std::to_string(device.device_id);
    default:
      return "DLPack's device type " + std::to_string(static_cast<int>(device.device_type)) + ", number " +
             std::to_string(device.device_id);
  }
}

/// Throws unless the tensor lies dense and in C order. With one element or none in a dimension, its stride does not
/// matter.
MILLRACE_INLINE void check_order(const DLTensor& t, const shape& dims, std::size_t elements) {
  if (t.strides == nullptr || elements == 0) return;
  std::uint64_t dense = 1;
  for (std::size_t i = dims.rank(); i-- > 0;) {
    if (dims[i] != 1 && t.strides[i] != static_cast<std::int64_t>(dense)) {
      throw configuration_error("a DLPack tensor of " + dims.text() + " has a stride of " +
                                std::to_string(t.strides[i]) + " in dimension " + std::to_string(i) + ", not " +
                                std::to_string(dense) + ": it must lie dense and in C order");
    }
    dense *= static_cast<std::uint64_t>(dims[i]);
  }
}

/// One exported tensor: what the other library sees, and what keeps it.
struct exported_tensor {
  DLManagedTensor seen{};
  std::int64_t dims[shape::max_rank] = {};
  std::int64_t strides[shape::max_rank] = {};
  std::shared_ptr<const void> owner;
};

}  // namespace detail

MILLRACE_INLINE dlpack_tensor to_dlpack(const tensor_view& t, std::string_view device,
                                        std::shared_ptr<const void> owner) {
  auto made = std::make_unique<detail::exported_tensor>();
  DLTensor& seen = made->seen.dl_tensor;
  seen.data = t.data();
  seen.device = detail::dlpack_device_of(device);
  seen.dtype = detail::dlpack_type_of(t.type());
  seen.ndim = static_cast<int>(t.dims().rank());
  seen.shape = made->dims;
  // Null would say the same, but newer consumers need not understand that.
  seen.strides = made->strides;
  const shape strides = t.strides();
  for (std::size_t i = 0; i < t.dims().rank(); ++i) {
    made->dims[i] = t.dims()[i];
    made->strides[i] = strides[i];
  }
  made->owner = std::move(owner);
  made->seen.manager_ctx = made.get();
  made->seen.deleter = [](DLManagedTensor* self) { delete static_cast<detail::exported_tensor*>(self->manager_ctx); };
  return dlpack_tensor(&made.release()->seen);
}

MILLRACE_INLINE tensor_view from_dlpack(const dlpack_tensor& tensor, std::string_view device) {
  if (tensor == nullptr) detail::misused("from_dlpack() was given no tensor");
  const DLTensor& t = tensor->dl_tensor;
  const std::string place = detail::dlpack_name_of(t.device);
  if (place != device) {
    throw configuration_error("a DLPack tensor is on " + place + ", and was expected on " + std::string(device));
  }
  if (t.ndim < 0 || t.ndim > static_cast<int>(shape::max_rank) || (t.ndim > 0 && t.shape == nullptr)) {
    throw configuration_error("a DLPack tensor has " + std::to_string(t.ndim) + " dimensions" +
                              (t.shape == nullptr ? " without extents" : "; there may be 0 to 8"));
  }
  const dtype type = detail::dtype_of_dlpack(t.dtype);
  shape dims;
  for (int i = 0; i < t.ndim; ++i) dims.push_back(t.shape[i]);
  const std::size_t bytes = batch_field("tensor", type, dims).row_bytes();  // throws if they do not fit
  detail::check_order(t, dims, bytes);
  if (bytes != 0 && t.data == nullptr) throw configuration_error("a DLPack tensor of " + dims.text() + " has no data");
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(t.data) + t.byte_offset;
  if (bytes != 0 && address % size_of(type) != 0) {
    throw configuration_error(std::string("a DLPack tensor of ") + name_of(type) + " begins between two elements");
  }
  return tensor_view(reinterpret_cast<void*>(address), type, dims);
}

}  // namespace millrace
