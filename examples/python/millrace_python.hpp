// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/device/dlpack.hpp>
#include <millrace/loader/export.hpp>
#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/loader/runtime.hpp>

/// \file
/// Pipelines of batches for Python, by nanobind. To be copied beside the source of a module: docs/guide/python.md.

namespace millrace_python {

namespace nb = nanobind;
namespace mill = millrace;

/// A run as an iterator of Python, for one pass. Every function is called with Python's lock.
template <class Batch>
class loader {
 public:
  explicit loader(mill::pipeline_run<Batch> run) : run_(std::make_unique<decltype(run)>(std::move(run))) {}
  ~loader() { close(); }

  /// The next batch; StopIteration at the end, and once it was stopped. Other threads of Python run while it waits, and
  /// ten times a second the handlers of signals; no batch is lost where one throws, as that of Ctrl-C does.
  Batch next() {
    do {
      const std::unique_lock<std::mutex> here = alone();
      mill::pipeline_run<Batch>& from = run();
      const nb::gil_scoped_release others_run;
      if (std::optional<Batch> batch = from.next(std::chrono::milliseconds(100))) return std::move(*batch);
      if (from.outcome() != mill::run_outcome::timed_out) throw nb::stop_iteration();
    } while (PyErr_CheckSignals() == 0);
    throw nb::python_error();
  }
  std::string state() const { return (static_cast<void>(alone()), run().state()); }
  std::optional<std::uint64_t> batches() const { return (static_cast<void>(alone()), run().batches()); }
  nb::object stats() const { return nb::module_::import_("json").attr("loads")(mill::stats_json(run().stats())); }
  void stop() const { run().stop(); }
  bool stopped() const { return run().stopped(); }
  /// Ends the run, and waits until nothing of it is left; a thread that waits for a batch gets the end.
  void close() {
    if (run_ == nullptr) return;
    run_->stop();
    std::unique_lock<std::mutex> last(taking_, std::defer_lock);
    if (process_ == ::getpid()) {  // a child of fork() has none of the other threads
      const nb::gil_scoped_release others_run;
      last.lock();
    }
    std::unique_ptr<mill::pipeline_run<Batch>> ended = std::move(run_);
    const nb::gil_scoped_release others_run;
    ended.reset();
  }

 private:
  mill::pipeline_run<Batch>& run() const {
    if (run_ == nullptr) throw mill::usage_error("a loader was used that was closed");
    return *run_;
  }
  std::unique_lock<std::mutex> alone() const {
    std::unique_lock<std::mutex> here(taking_, std::try_to_lock);
    if (!here) throw mill::usage_error("a loader was used while another thread takes a batch of it");
    return here;
  }

  std::unique_ptr<mill::pipeline_run<Batch>> run_;  // null: closed
  mutable std::mutex taking_;                       // locked while a thread is in next()
  const pid_t process_ = ::getpid();
};

/// The runtime of all runs of the module: null before the first one, and at Python's end.
inline std::unique_ptr<mill::runtime> runtime;

/// Starts a pipeline of batches, as an object of the class Loader.
template <class Batch>
nb::object run(mill::stream<Batch> pipeline, const mill::run_options& options = {}) {
  if (!nb::type<loader<Batch>>()) throw mill::usage_error("run(): add_classes() was not called for such batches");
  if (runtime == nullptr) {
    runtime = std::make_unique<mill::runtime>(mill::runtime_options{.rank = mill::rank_from_environment()});
  }
  auto* const its = new loader<Batch>(runtime->run(std::move(pipeline), options));
  const nb::object made = nb::cast(its);
  // Also before Python's end: no thread of it is left in next() then.
  nb::module_::import_("weakref").attr("finalize")(made, nb::cpp_function([its] { its->close(); }));
  return made;
}

/// A field as an object of DLPack, without a copy; it keeps the batch.
template <class Batch>
nb::ndarray<nb::array_api> field(nb::handle batch, const std::string& name) {
  const std::shared_ptr<const Batch> its(std::shared_ptr<void>(), &nb::cast<const Batch&>(batch));
  const mill::dlpack_tensor made = mill::to_dlpack(its, name);
  const DLTensor& t = made->dl_tensor;
  const std::vector<std::size_t> dims(t.shape, t.shape + t.ndim);
  const nb::dlpack::dtype type{t.dtype.code, t.dtype.bits, t.dtype.lanes};
  return nb::ndarray<nb::array_api>(t.data, dims.size(), dims.data(), batch, t.strides, type, t.device.device_type,
                                    t.device.device_id);
}

/// The classes Loader and Batch, and those of errors, in `m`. Returns that of batches, for members of the program's.
template <class Batch>
nb::class_<Batch> add_classes(nb::module_& m) {
  const nb::exception<mill::error> error(m, "Error", PyExc_RuntimeError);
  nb::exception<mill::configuration_error>(m, "ConfigurationError", error);
  nb::exception<mill::usage_error>(m, "UsageError", error);
  nb::exception<mill::archive_error>(m, "ArchiveError", error);
  nb::exception<mill::decode_error>(m, "DecodeError", error);
  nb::exception<mill::changed_error>(m, "ChangedError", error);
  nb::exception<mill::io_error>(m, "IOError", error);
  using run = loader<Batch>;
  nb::class_<run> runs(m, "Loader", nb::is_weak_referenceable());
  runs.def("__iter__", [](nb::object self) { return self; }).def("__next__", &run::next).def("state", &run::state);
  runs.def("stats", &run::stats).def("stop", &run::stop).def("close", &run::close);
  runs.def_prop_ro("stopped", &run::stopped).def_prop_ro("batches", &run::batches);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] { runtime.reset(); }));
  nb::class_<Batch> batches(m, "Batch");
  batches.def("__len__", &Batch::size).def("__getitem__", &field<Batch>);
  batches.def_prop_ro("keys", [](const Batch& b) {
    nb::list all;  // bytes that are no UTF-8 become lone surrogates, as in Python's names of files
    for (const auto& k : b.keys()) all.append(nb::bytes(k.data(), k.size()).attr("decode")("utf-8", "surrogateescape"));
    return all;
  });
  batches.def_prop_ro("epoch", [](const Batch& b) { return b.mark().epoch; });
  batches.def_prop_ro("last", [](const Batch& b) { return b.mark().last; });
  batches.def_prop_ro("weights", [](nb::handle batch) {
    const auto all = nb::cast<const Batch&>(batch).weights();
    return nb::ndarray<float, nb::array_api>(const_cast<float*>(all.data()), {all.size()}, batch);
  });
  return batches;
}

}  // namespace millrace_python
