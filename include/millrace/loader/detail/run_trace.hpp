// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <millrace/coro/run_context.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

class tracer;
class whole_file;
struct trace_event;

/// The trace of one run: run_options::trace, MILLRACE_TRACE.
class run_trace {
 public:
  /// `events`: of the runtime. `path`: of the option; null: of the variable MILLRACE_TRACE, if it is set.
  void begin(tracer& events, const char* path, std::uint32_t rank);
  /// Writes the file, once; a log line says why it cannot. Nothing if the run is not traced.
  void end(runtime_parts& log) noexcept;
  /// Null: the run is not traced.
  tracer* events() const noexcept { return tracer_; }
  std::uint32_t number() const noexcept { return number_; }

  /// The file: Chrome's JSON of trace events, with the number of dropped events. `to`: gets it, in pieces, but for the
  /// last one, which is returned; null: all is returned.
  static std::string text(const std::vector<trace_event>& events, std::uint64_t dropped, std::int64_t began,
                          std::uint32_t rank, whole_file* to = nullptr);
  /// The file of the n-th traced run of a process, by the variable: "out.json", "out.2.json", "out.rank1.json".
  static std::string file_of(const std::string& path, unsigned n, std::uint32_t rank);

 private:
  tracer* tracer_ = nullptr;
  std::string path_;
  std::uint64_t since_ = 0;
  std::int64_t began_ = 0;
  std::uint32_t rank_ = 0;
  std::uint32_t number_ = 0;  // among the traced runs of the runtime
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/detail/run_trace.ipp>
#endif
