// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/compiling.md. The declarations come before every include, as in a header of a program's own.

// begin header
#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {
class device_batch;
class runtime;
}  // namespace millrace::inline MILLRACE_ABI

// What the model's files need to know of the loader.
double train_step(const millrace::device_batch& batch);
double train_epoch(millrace::runtime& rt);
// end header

#include <utility>
#include <vector>

// begin parts
#include <millrace/device/collate.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
// end parts

#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace measured {

class value {
 public:
  explicit value(float v) : number(v) {}
  float number;
};
void collate(const value& v, mill::sample_writer& out) { out.write("number", v.number); }

}  // namespace measured

double train_step(const mill::device_batch& batch) {
  double sum = 0;
  for (const float v : batch.host_field("number").values<float>()) sum += v;
  return sum;
}

// begin pipeline
double train_epoch(mill::runtime& rt) {
  const std::vector<measured::value> values = {measured::value(1), measured::value(2), measured::value(3)};
  auto run = rt.run(mill::from_range(values) | mill::batch(2) | mill::to_device(mill::host_device()));
  double sum = 0;
  for (mill::device_batch& b : run) sum += train_step(b);
  return sum;
}
// end pipeline

TEST_CASE("guide: a header of the program declares what it passes on", "[guide]") {
  mill::runtime rt;
  CHECK(train_epoch(rt) == 6);
}
