// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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
  for (const stage_stats& s : stages) {
    if (s.reread == 0) continue;
    std::snprintf(line, sizeof line, "%.32s read %lld damaged part%s once more: look at the network\n", s.name.c_str(),
                  static_cast<long long>(s.reread), s.reread == 1 ? "" : "s");
    text += line;
  }
  for (std::size_t i = 0; i < lost.size() && i < 10; ++i) {
    text += "lost " + std::to_string(lost[i].samples) + " samples of " + lost[i].shard + ": " + lost[i].reason + '\n';
  }
  if (lost.size() > 10) text += "and samples of " + std::to_string(lost.size() - 10) + " more shards\n";
  if (!placement.empty()) text += "loops and pool threads: " + placement + '\n';
  for (std::size_t i = 0; i < hosts.size() && i < 10; ++i) text += hosts[i].text() + '\n';
  if (hosts.size() > 10) text += "and " + std::to_string(hosts.size() - 10) + " more hosts\n";
  if (addresses_passed_over > 0) {
    text += "addresses of servers were passed over " + std::to_string(addresses_passed_over) +
            (addresses_passed_over == 1 ? " time" : " times") + ": the log says which and why\n";
  }
  if (loops > 1) text += std::to_string(loops) + " loops" + (loops_by_cores ? ", as there are so many cores\n" : "\n");
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

MILLRACE_INLINE double run_stats::left() const {
  if (placed == 0 || place.batches == 0 || steady() <= 0) return -1;
  const std::uint64_t all = place.epochs == 0 ? place.batches : place.all();
  const std::uint64_t taken = place.epochs == 0 ? place.batch : place.taken();
  return static_cast<double>(all - std::min(all, taken)) * steady() / static_cast<double>(placed);
}

MILLRACE_INLINE std::string run_stats::progress() const {
  std::string text;
  if (place.batches > 0) {
    text = "epoch " + std::to_string(place.epoch + 1);
    if (place.epochs > 0) text += " of " + std::to_string(place.epochs);
    text += ", batch " + std::to_string(place.batch) + " of " + std::to_string(place.batches) + ": ";
  }
  char share[32];
  std::snprintf(share, sizeof share, ", waited %.1f%%", 100 * waited);
  text += rates() + share;
  const stage_stats* const slow = slowest();
  if (waited >= 0.05 && conclusive() && slow != nullptr) text += " for " + slow->name;
  const double seconds_left = left();
  if (seconds_left < 0) return text;
  const double hours = seconds_left / 3600;
  const double minutes = seconds_left / 60;
  const double number = hours >= 10 ? hours : minutes >= 10 ? minutes : seconds_left;
  text += ", " + std::to_string(static_cast<std::uint64_t>(number + 0.5)) +
          (hours >= 10 ? " h" : minutes >= 10 ? " min" : " s") + " left";
  return place.epochs == 0 ? text + " of the epoch" : text;
}

MILLRACE_INLINE const stage_stats* run_stats::slowest() const {
  const stage_stats* slow = nullptr;
  double most = 0;
  for (const stage_stats& s : stages) {
    const double own = s.busy + s.waiting;  // asked, and not waiting for another stage
    if (own > most) {
      most = own;
      slow = &s;
    }
  }
  return slow;
}

MILLRACE_INLINE std::string run_stats::verdict() const {
  if (items == 0) return "the training thread has taken no item";
  const bool kept_waiting = waited >= 0.05;
  if (!conclusive()) {
    return kept_waiting || items == 1
               ? "too short to tell what holds the run back: " + in_seconds(steady()) + " since the first item"
               : "the training thread was not kept waiting after the first item";
  }
  if (!kept_waiting) return "the training thread is the bottleneck: the pipeline keeps up with it";
  double loop = 0;
  for (const stage_stats& s : stages) loop += s.busy;
  const stage_stats* const slow = slowest();
  if (slow == nullptr) return "the pipeline is the bottleneck, and no stage of it shows why";
  if (loop > 0.9) {
    return "the loop thread is full, most of all by " + slow->name +
           ": move work to the pool, by map_concurrent(), or where it is transfers, to more loops, by "
           "runtime_options::loops";
  }
  if (slow->pool > 0.5 || (slow->pool > 0 && slow->waiting > slow->busy)) return pool_verdict(*slow);
  if (slow->waiting <= slow->busy) return "bottleneck: " + slow->name;
  const std::string waiting = "bottleneck: " + slow->name + " waits for its own I/O";
  if (slow->reads != 0) return waiting + read_verdict(*slow);
  if (slow->bound_by_bytes) return waiting + ": raise its .bytes";
  if (slow->advice == nullptr) return waiting + ": let more of it be under way at once, by map_concurrent()";
  return *slow->advice == 0 ? waiting : waiting + ": " + slow->advice;
}

MILLRACE_INLINE std::string run_stats::read_verdict(const stage_stats& slow) {
  const std::string chosen = std::to_string(slow.reads) + (slow.reads == 1 ? " request" : " requests") + " of up to " +
                             format_bytes(static_cast<double>(slow.read_part)) + " at a time";
  const bool advised = slow.advice != nullptr && *slow.advice != 0;
  char first[64];
  std::snprintf(first, sizeof first, " (%.1f ms to the first byte, ", 1e3 * slow.read_first_byte);
  const std::string measured = slow.read_rate > 0 ? first + format_bytes(slow.read_rate) + "/s on a connection)" : "";
  switch (slow.limit) {
    case read_limit::none:
      break;
    case read_limit::memory:
      return ": " + chosen + measured + " are as many as its memory holds" +
             (advised ? std::string(": ") + slow.advice : "");
    case read_limit::requests:
      return ": " + chosen + measured +
             " are as many as it may have, and the store's rate of a connection is the limit: raise its .requests";
    case read_limit::link:
      return ": with " + chosen + measured + " the link, or what the store sends in all, is the limit";
  }
  return ": " + chosen + measured;
}

MILLRACE_INLINE std::string run_stats::pool_verdict(const stage_stats& slow) const {
  constexpr double most = 0.6;  // of the threads' time is full use: there is time between two jobs
  const std::string stage = "bottleneck: " + slow.name;
  const std::string more_cores = stage + " (its pool jobs): more cores, or less work per item";
  if (slow.pool_threads == 0) {
    return slow.pool > 0.5 ? more_cores
                           : stage + " waits for its pool jobs, whose threads get no core or have other jobs";
  }
  double all = 0;  // of the jobs on this pool
  const stage_stats* other = nullptr;
  for (const stage_stats& s : stages) {
    if (s.pool_threads != slow.pool_threads || s.pool_given != slow.pool_given) continue;
    all += s.pool;
    if (&s != &slow && s.pool > slow.pool && (other == nullptr || s.pool > other->pool)) other = &s;
  }
  const double threads = slow.pool_threads;
  const std::string of_threads =
      std::to_string(slow.pool_threads) + (slow.pool_threads == 1 ? " thread" : " threads");
  if (all >= most * threads) {
    const std::string busy = stage + " waits for its pool jobs: the pool's " + of_threads +
                             (slow.pool_threads == 1 ? " is" : " are") + " busy" +
                             (other == nullptr ? std::string() : ", most of all with those of " + other->name);
    if (slow.pool_cores <= slow.pool_threads) {
      return other == nullptr ? more_cores : busy + ": more cores, or less work";
    }
    return busy + " and there are " + std::to_string(slow.pool_cores) + " cores: " +
           (slow.pool_given ? "give it a larger pool as .on, or the runtime's" : "raise runtime_options::threads");
  }
  std::string text = stage + " waits for its pool jobs, of which ";
  if (slow.bound_by_bytes) return text + "few fit into its bound in bytes: raise its .bytes";
  if (slow.pool_limit == 0 || slow.pool_limit >= slow.pool_threads) {
    text += "few are under way at once";
  } else if (slow.pool_limit == 1) {
    text += "one is under way at a time, on " + of_threads;
  } else {
    text += "at most " + std::to_string(slow.pool_limit) + " are under way at once, on " + of_threads;
  }
  if (slow.more_jobs == nullptr || *slow.more_jobs == 0) return text;
  return text + ": " + slow.more_jobs;
}

MILLRACE_INLINE std::string run_stats::in_seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", s);
  return text;
}

}  // namespace millrace
