// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlpack/dlpack.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/tensor.hpp>

/// Passes tensors to other libraries, and takes them from those, without a copy: the component millrace::dlpack.

namespace millrace::inline MILLRACE_ABI {

/// Calls the deleter that came with a tensor of DLPack.
struct dlpack_deleter {
  void operator()(DLManagedTensor* t) const noexcept {
    if (t->deleter != nullptr) t->deleter(t);
  }
};
/// A tensor of DLPack. Its deleter is called exactly once: by this owner, or by the one that took it by release() (in
/// Python, a capsule named "dltensor").
using dlpack_tensor = std::unique_ptr<DLManagedTensor, dlpack_deleter>;

/// The memory of `t` for another library, dense and in C order. No copy: both see the same bytes, and the other one's
/// writes are written in `t`.
///
/// `device` says where the memory is, in the words of device_batch::device(): "host", or "cuda:0" for the first GPU.
/// Page-locked host memory is "host", too: consumers know it as that, and ask their runtime whether it is page-locked.
/// `owner` keeps the memory; the other library drops it when it is done with the tensor, on any thread. A
/// dtype::boolean is DLPack's kDLBool since its version 0.8. Throws configuration_error for a device that DLPack has no
/// name for. Source: https://dmlc.github.io/dlpack/latest/c_api.html
dlpack_tensor to_dlpack(const tensor_view& t, std::string_view device, std::shared_ptr<const void> owner);

/// A field of a batch in host memory for another library, see above. The batch lives as long as any of its tensors:
///
///     auto b = std::make_shared<mill::host_batch>(std::move(batch));
///     mill::dlpack_tensor image = mill::to_dlpack(b, "image"), label = mill::to_dlpack(b, "label");
///
/// Throws configuration_error that lists the fields when there is none of that name, and usage_error without a batch.
inline dlpack_tensor to_dlpack(std::shared_ptr<const host_batch> batch, std::string_view field) {
  if (batch == nullptr || !*batch) detail::misused("to_dlpack() was given no batch");
  const tensor_view t = batch->field(field);
  return to_dlpack(t, "host", std::move(batch));
}

/// A field of a batch in a device's memory. Give the stream on which the other library works to its wait() first: later
/// work on that stream starts after the copy. When the last tensor of the batch is dropped, the slot is released after
/// the work that is then enqueued on the streams that waited; those must still exist, and the batch must not be in use
/// at that moment. Do not release() it before. The labels as the host sent them: `to_dlpack(b->host_field("label"),
/// "host", b)`.
inline dlpack_tensor to_dlpack(std::shared_ptr<const device_batch> batch, std::string_view field) {
  if (batch == nullptr || !*batch) detail::misused("to_dlpack() was given no batch");
  const tensor_view t = batch->field(field);
  const std::string device = batch->device();
  return to_dlpack(t, device, std::move(batch));
}

/// A tensor of another library, to be read or written in place. Valid as long as `tensor`, which frees it when it is
/// destroyed:
///
///     mill::dlpack_tensor owner(handed_over);
///     const mill::tensor_view t = mill::from_dlpack(owner);
///
/// `device` is where the memory is expected, "host" (page-locked or not) or "cuda:0"; the data is ready on the stream
/// that was passed to the other library when the tensor was requested. Throws configuration_error for a tensor that is
/// elsewhere, whose elements are of no dtype or several to a place (lanes), that does not lie dense and in C order, or
/// that is inconsistent; the owner then keeps it. Throws usage_error for an empty owner.
tensor_view from_dlpack(const dlpack_tensor& tensor, std::string_view device = "host");
/// The view would outlive its owner.
tensor_view from_dlpack(dlpack_tensor&& tensor, std::string_view device = "host") = delete;

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/dlpack.ipp>
#endif
