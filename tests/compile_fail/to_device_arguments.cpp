// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: this is neither a device nor a stream: pass a millrace::host_device, a millrace::cuda::stream, or
// expect: items of this type cannot be laid out in a batch: declare void collate\(const item&,
// expect: to_device copies batches: put batch\(n\) or fill_batches\(pool, f\) before it
// expect: the function given to to_device lays one item out: it must be callable, without being changed, with
// errors: 4
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

struct row {
  explicit row(int n) : value(n) {}
  int value;
};
#ifndef MILLRACE_MUST_FAIL
void collate(const row& r, millrace::sample_writer& out) { out.write("value", r.value); }
#endif

int main() {
  namespace mill = millrace;
  const auto make = [](int n) { return row(n); };
  const mill::host_device host;
#ifdef MILLRACE_MUST_FAIL
  auto a = mill::iota(3) | mill::map(make) | mill::batch(2) | mill::to_device(3);
  auto b = mill::iota(3) | mill::map(make) | mill::to_device(host);
  auto d = mill::iota(3) | mill::map(make) | mill::batch(2) | mill::to_device(host, {}, [](const row&) {});
#endif
  auto c = mill::iota(3) | mill::map(make) | mill::batch(2) | mill::to_device(host);
}
