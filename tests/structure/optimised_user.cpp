// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Functions of a user's, compiled with optimisation and warnings as errors: what the compiler inlines from the library
// must not make it warn about the user's own code. Never run.

#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/device/batch.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/shards/sample.hpp>

namespace mill = millrace;

void released(mill::pipeline_run<mill::device_batch>& run);
void all_of_them(mill::pipeline_run<mill::device_batch>& device_batches,
                 mill::pipeline_run<mill::host_batch>& host_batches, mill::pipeline_run<mill::sample>& samples);

namespace {

template <class T>
void first_only(mill::pipeline_run<T>& run) {
  auto b = run.next();
  if (b) std::puts("one");
  b.reset();
}

template <class T>
void one_after_the_other(mill::pipeline_run<T>& run) {
  for (;;) {
    auto b = run.next();
    if (!b) break;
    std::puts("one");
    b.reset();
  }
}

template <class T>
void two_at_once(mill::pipeline_run<T>& run) {
  auto a = run.next();
  auto b = run.next();
  std::printf("%d %d\n", a.has_value(), b.has_value());
  a.reset();
  a = run.next();
  b.reset();
}

template <class T>
void keep(mill::pipeline_run<T>& run, std::vector<T>& into) {
  while (auto b = run.next()) {
    into.push_back(std::move(*b));
    b.reset();
  }
}

template <class T>
void all(mill::pipeline_run<T>& run) {
  first_only(run);
  one_after_the_other(run);
  two_at_once(run);
  std::vector<T> kept;
  keep(run, kept);
}

}  // namespace

void released(mill::pipeline_run<mill::device_batch>& run) {
  for (;;) {
    auto b = run.next();
    if (!b) break;
    b->wait(mill::host_stream);
    b->release();
    b.reset();
  }
}

void all_of_them(mill::pipeline_run<mill::device_batch>& device_batches,
                 mill::pipeline_run<mill::host_batch>& host_batches, mill::pipeline_run<mill::sample>& samples) {
  all(device_batches);
  all(host_batches);
  all(samples);
}
