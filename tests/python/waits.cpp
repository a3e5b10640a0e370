// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A module of Python with what check.py has no data for: a run that waits, one that fails, and one that is fast.

#include <chrono>
#include <cstdint>
#include <string>

#include <millrace/base/error.hpp>
#include <millrace/device/batch_pool.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>

#include "examples/python/millrace_python.hpp"

namespace mill = millrace;
namespace nb = nanobind;

namespace {

mill::async_generator<std::int64_t> numbers(std::int64_t count, bool then_wait) {
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t next = n;
    co_yield mill::give(next);
  }
  if (then_wait) co_await mill::sleep_for(std::chrono::hours(1));
}

/// Batches of two with a field "number"; the number 7 is an error where `fails`.
nb::object run(std::int64_t count, bool then_wait, bool fails) {
  const mill::batch_pool pool(mill::batch_layout(2, {{"number", mill::dtype::i64}}));
  return millrace_python::run(mill::stream<std::int64_t>(numbers(count, then_wait)) |
                              mill::fill_batches(pool, [fails](std::int64_t n, const mill::batch_row& row) {
                                if (fails && n == 7) throw mill::decode_error("no number", {"a.tar", 512, "k\xff"});
                                row.set("number", n);
                                row.key(n == 1 ? std::string("\xff") : std::to_string(n));
                              }));
}

}  // namespace

NB_MODULE(waits, m) {
  millrace_python::add_classes<mill::host_batch>(m);
  m.def("run", &run, nb::arg("count"), nb::arg("then_wait") = false, nb::arg("fails") = false);
  m.def("refused", [] { mill::detail::misconfigured("it cannot be"); });
  m.def("of_no_class", [] { return millrace_python::run(mill::stream<std::int64_t>(numbers(1, false))); });
}
