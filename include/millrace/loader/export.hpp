// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <millrace/loader/run_stats.hpp>

/// \file
/// Writes run.stats() for programs: JSON, and the text format of Prometheus.
///
///     mill::write_prometheus("/var/lib/node_exporter/millrace.prom", run.stats(), {{"rank", "0"}});
///
/// The names are stable: docs/guide/watching.md lists them. They follow OpenTelemetry's conventions as Prometheus
/// writes them: millrace.request.duration, in seconds, is millrace_request_duration_seconds.

namespace millrace::inline MILLRACE_ABI {

/// A label that every sample gets, beside its own: a rank, a job.
struct metric_label {
  std::string name;   ///< letters, digits and underscores; not first a digit
  std::string value;  ///< any text
};

/// The whole of it as one JSON object, on one line.
std::string stats_json(const run_stats& stats);

/// Prometheus' text format, version 0.0.4: HELP and TYPE before each family, a line for each sample. Throws
/// configuration_error for a label whose name is none.
std::string prometheus_text(const run_stats& stats, const std::vector<metric_label>& labels = {});

/// Writes prometheus_text() to a file, for the textfile collector of node_exporter: to `path` with ".part" first, which
/// is then renamed, so that a reader sees the old file or the new one. Throws io_error. Any thread, not
/// two at once for one path.
void write_prometheus(const std::string& path, const run_stats& stats, const std::vector<metric_label>& labels = {});

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/export.ipp>
#endif
