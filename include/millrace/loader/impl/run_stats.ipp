// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/loader/run_stats.hpp>

namespace millrace {

MILLRACE_INLINE std::string run_stats::table() const {
  std::string text;
  char line[256];
  int width = 16;
  for (const stage_stats& s : stages) {
    if (static_cast<int>(s.name.size()) > width) width = static_cast<int>(s.name.size() < 32 ? s.name.size() : 32);
  }
  std::snprintf(line, sizeof line, "%-*s %9s %10s %10s %7s %7s %8s %8s %8s\n", width, "stage", "items", "items/s",
                "bytes/s", "busy", "pool", "starved", "waiting", "blocked");
  text += line;
  for (const stage_stats& s : stages) {
    std::snprintf(line, sizeof line, "%-*.*s %9s %10s %10s %6.1f%% %6.2fx %7.1f%% %7.1f%% %7.1f%%\n", width, width,
                  s.name.c_str(), format_count(static_cast<double>(s.items)).c_str(),
                  format_count(per_second(s.items)).c_str(),
                  s.bytes > 0 ? format_bytes(per_second(s.bytes)).c_str() : "-", 100 * s.busy, s.pool, 100 * s.starved,
                  100 * s.waiting, 100 * s.blocked);
    text += line;
  }
  for (const stage_stats& s : stages) {
    if (s.failed == 0) continue;
    std::snprintf(line, sizeof line, "%.32s left out %lld of %lld items that failed\n", s.name.c_str(),
                  static_cast<long long>(s.failed), static_cast<long long>(s.items + s.failed));
    text += line;
  }
  for (std::size_t i = 0; i < lost.size() && i < 10; ++i) {
    text += "lost " + std::to_string(lost[i].samples) + " samples of " + lost[i].shard + ": " + lost[i].reason + '\n';
  }
  if (lost.size() > 10) text += "and samples of " + std::to_string(lost.size() - 10) + " more shards\n";
  text += "training thread: " + rates() + " in " + in_seconds(seconds);
  if (items > 0) text += ", the first after " + in_seconds(first_after);
  text += '\n';
  if (items > 1) {
    std::snprintf(line, sizeof line, "next item: p50 %.2f ms, p99 %.2f ms, max %.2f ms; waited %.1f%% of %s\n",
                  static_cast<double>(next_p50_ns) * 1e-6, static_cast<double>(next_p99_ns) * 1e-6,
                  static_cast<double>(next_max_ns) * 1e-6, 100 * waited, in_seconds(steady()).c_str());
    text += line;
  }
  text += verdict();
  text += '\n';
  return text;
}

MILLRACE_INLINE std::string run_stats::rates() const {
  std::string text = format_count(static_cast<double>(items));
  if (samples > 0) {
    text += " batches, " + format_count(static_cast<double>(samples)) + " samples (" +
            format_count(per_second(samples)) + "/s)";
  } else {
    text += " items (" + format_count(per_second(items)) + "/s)";
  }
  if (bytes > 0) text += ", " + format_bytes(per_second(bytes)) + "/s";
  return text;
}

MILLRACE_INLINE std::string run_stats::verdict() const {
  if (items == 0) return "the training thread has taken no item";
  const bool waits = waited >= 0.05;
  if (!tells()) {
    return waits || items == 1
               ? "too short to tell what holds the run back: " + in_seconds(steady()) + " since the first item"
               : "the training thread was not kept waiting after the first item";
  }
  if (!waits) return "the training thread is the bottleneck: the pipeline keeps up with it";
  double loop = 0;
  const stage_stats* slow = nullptr;
  double most = 0;
  for (const stage_stats& s : stages) {
    loop += s.busy;
    const double own = s.busy + s.waiting;  // asked, and not waiting for somebody else
    if (own > most) {
      most = own;
      slow = &s;
    }
  }
  if (slow == nullptr) return "the pipeline is the bottleneck, and no stage of it shows why";
  if (loop > 0.9) {
    return "the loop thread is full, most of all by " + slow->name +
           ": move work to a pool, by map_concurrent(f, {.on = pool}), or transfers to more loops, "
           "run_options::loops";
  }
  if (slow->pool > 0.5) return "bottleneck: " + slow->name + " (its pool jobs): more cores, or less work per item";
  if (slow->waiting <= slow->busy) return "bottleneck: " + slow->name;
  if (slow->pool > 0)
    return "bottleneck: " + slow->name + " waits for its pool jobs, whose threads get no core or have other jobs";
  const std::string waiting = "bottleneck: " + slow->name + " waits for its own I/O";
  if (slow->advice == nullptr) return waiting + ": let more of it be under way at once, by map_concurrent()";
  return *slow->advice == 0 ? waiting : waiting + ": " + slow->advice;
}

MILLRACE_INLINE std::string run_stats::in_seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", s);
  return text;
}

}  // namespace millrace
