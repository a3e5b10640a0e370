// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/loader/run_stats.hpp>

namespace millrace::inline MILLRACE_ABI {

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
  if (disk_cache.hits + disk_cache.misses > 0) {
    const auto reads = [](std::uint64_t n, std::uint64_t of) {
      return std::to_string(n) + (n == 1 ? " read (" : " reads (") + format_bytes(static_cast<double>(of)) + ')';
    };
    text += "disk cache: " + reads(disk_cache.hits, disk_cache.hit_bytes) + " from the disk, " +
            reads(disk_cache.misses, disk_cache.miss_bytes) + " from the store; blocks: " +
            std::to_string(disk_cache.admitted) + " admitted, " + std::to_string(disk_cache.refused) + " refused, " +
            std::to_string(disk_cache.damaged) + " damaged\n";
  }
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
    if (waited >= 0.05) {
      text.pop_back();
      std::snprintf(line, sizeof line, "; without waiting %.*f times as fast\n", headroom() < 10 ? 1 : 0, headroom());
      text += line;
    }
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

MILLRACE_INLINE double run_stats::headroom() const {
  constexpr double most = 1000;
  return waited >= 1 - 1 / most ? most : 1 / (1 - waited);
}

namespace detail {

/// "2.00 ms", "50.0 ms", "1.20 s".
MILLRACE_INLINE std::string in_time(double s) {
  char text[32];
  const double ms = 1e3 * s;
  if (ms >= 1000) {
    std::snprintf(text, sizeof text, "%.2f s", s);
  } else {
    std::snprintf(text, sizeof text, ms >= 100 ? "%.0f ms" : ms >= 10 ? "%.1f ms" : ms >= 0.1 ? "%.2f ms" : "%.4f ms",
                  ms);
  }
  return text;
}

/// A size as a program writes it: "16 * MiB".
MILLRACE_INLINE std::string in_code(std::size_t bytes) {
  if (bytes % MiB == 0) return std::to_string(bytes / MiB) + " * MiB";
  if (bytes % KiB == 0) return std::to_string(bytes / KiB) + " * KiB";
  return std::to_string(bytes);
}

MILLRACE_INLINE std::string counted(std::size_t n, const char* one) {
  return std::to_string(n) + ' ' + one + (n == 1 ? "" : "s");
}

/// "; try .limit = 16 (now 1)".
MILLRACE_INLINE std::string attempt(const std::string& option, const std::string& then, const std::string& is) {
  return "; try " + option + " = " + then + " (now " + is + ')';
}
MILLRACE_INLINE std::string attempt(const char* option, std::size_t then, std::size_t now) {
  return attempt(option, std::to_string(then), std::to_string(now));
}

/// More bytes of the stage's option.
MILLRACE_INLINE std::string more_bytes(const stage_stats& of) {
  const char* const option = of.bytes_option == nullptr ? ".bytes" : of.bytes_option;
  if (of.own_bytes == 0) return std::string("; raise its ") + option;
  return attempt(option, in_code(2 * of.own_bytes), in_code(of.own_bytes));
}

/// True for work of the library itself: if it is on the loop's thread, it cannot be put elsewhere.
MILLRACE_INLINE bool is_work_of_library(const stage_stats& of) {
  if (of.reads != 0) return true;
  static constexpr const char* names[] = {
      "list",   "shards",        "glob",       "fetch",         "untar",        "lines",        "batch",
      "buffer", "merge",         "concat",     "group_samples", "interleave",   "pack",         "tokens",
      "mix",    "epochs",        "to_device",  "shuffle",       "fill_batches", "write_shards", "decode_images",
      "take",   "decode_arrays", "from_range", "decode_audio",  "shard_epochs", "fill",         "decode_video"};
  return std::any_of(std::begin(names), std::end(names), [&of](const char* name) {
    return of.name == name || of.name.starts_with(std::string(name) + " #");
  });
}

}  // namespace detail

MILLRACE_INLINE std::string run_stats::verdict() const {
  if (items == 0) return "the training thread has taken no item";
  const bool kept_waiting = waited >= 0.05;
  if (!conclusive()) {
    return kept_waiting || items == 1
               ? "too short to tell what holds the run back: " + in_seconds(steady()) + " since the first item"
               : "the training thread was not kept waiting after the first item" + start_verdict();
  }
  if (!kept_waiting) return step_verdict() + start_verdict() + cache_verdict();
  double loop = 0;
  const stage_stats* busiest = nullptr;
  for (const stage_stats& s : stages) {
    loop += s.busy;
    if (busiest == nullptr || s.busy > busiest->busy) busiest = &s;
  }
  const stage_stats* const slow = slowest();
  if (slow == nullptr) return "the pipeline is the bottleneck, and no stage of it shows why";
  if (loop > 0.9) return loop_verdict(*busiest);
  if (slow->waits_for != slot_limit::none && slow->waiting > slow->busy && slow->pool < slow->waiting / 2) {
    return slot_verdict(*slow);
  }
  if (slow->pool > 0.5 || (slow->pool > 0 && std::max(slow->pool, slow->waiting) > slow->busy)) {
    return pool_verdict(*slow);
  }
  if (slow->waiting <= slow->busy) return loop_verdict(*slow);
  if (slow->reads != 0) return read_verdict(*slow) + cache_verdict();
  char share[32];
  std::snprintf(share, sizeof share, "%.0f%%", 100 * slow->waiting);
  const std::string text = slow->name + " waits for its own I/O, " + share + " of the time";
  if (slow->bound_by_bytes) return text + detail::more_bytes(*slow);
  if (slow->advice == nullptr) return text + ": let more of it be under way at once, by map_concurrent()";
  if (*slow->advice == 0) return text;
  if (std::string(slow->advice) == ".limit" && slow->pool_limit > 0) {
    return text + ", with at most " + std::to_string(slow->pool_limit) + " under way" +
           detail::attempt(".limit", std::max<std::size_t>(16, 4 * slow->pool_limit), slow->pool_limit);
  }
  return text + (*slow->advice == '.' ? "; raise its " : ": ") + slow->advice;
}

MILLRACE_INLINE double run_stats::pace() const {
  if (items < 2 || stages.empty()) return 0;
  const stage_stats& last = stages.back();
  double most = last.busy + last.waiting + last.starved;  // it was asked for so long
  double loop = 0;
  for (const stage_stats& s : stages) {
    loop += s.busy;
    double pool = 0;  // of all stages on the same one
    for (const stage_stats& other : stages) {
      if (other.pool_threads == s.pool_threads && other.pool_given == s.pool_given) pool += other.pool;
    }
    if (s.pool_threads > 0) most = std::max(most, pool / s.pool_threads);
  }
  return std::max(most, loop) * steady() / static_cast<double>(items - 1);
}

MILLRACE_INLINE std::string run_stats::step_verdict() const {
  const std::string text = "the training thread is the bottleneck: ";
  const double step = steps.count > 0 ? steps.sum / static_cast<double>(steps.count) : 0;
  const double could = pace();
  if (could < 1e-7 || could >= step) return text + "the pipeline keeps up with it";
  return text + "your step takes " + detail::in_time(step) + ", the pipeline could give " +
         (samples > 0 ? "a batch" : "an item") + " every " + detail::in_time(could);
}

MILLRACE_INLINE std::string run_stats::start_verdict() const {
  if (first_after < seconds / 2 || first_after < 0.1) return {};
  const stage_stats* most = nullptr;
  for (const stage_stats& s : stages) {
    if (most == nullptr || s.before_first > most->before_first) most = &s;
  }
  std::string text = "; of " + detail::in_time(seconds) + ", " + detail::in_time(first_after) +
                     " passed before the first " + (samples > 0 ? "batch" : "item");
  if (most == nullptr || most->before_first < first_after / 4) return text;
  text += ", " + detail::in_time(most->before_first) + " of them in " + most->name + ": ";
  const bool says = most->advice != nullptr && *most->advice != 0 && *most->advice != '.';
  return text + (says ? most->advice : "a runtime that makes several runs keeps what it has opened and learnt");
}

MILLRACE_INLINE std::string run_stats::loop_verdict(const stage_stats& slow) const {
  char share[32];
  std::snprintf(share, sizeof share, "%.0f%%", 100 * slow.busy);
  std::string text = slow.name + " runs";
  if (slow.busy_each > 0) text += ' ' + detail::in_time(slow.busy_each) + " an item";
  text += std::string(" on the loop's thread, ") + share + " of its time";
  if (!detail::is_work_of_library(slow)) {
    if (slow.pool_threads != 0)
      return text + ", beside its jobs on the pool: more work in each, as of a batch, makes fewer";
    if (slow.pool_limit != 0) return text + ": a function that returns no task is called on the pool";
    return text + ": map_concurrent puts it on the pool";
  }
  const std::size_t now = std::max<std::size_t>(1, loops);
  return text + detail::attempt("runtime_options::loops", 2 * now, now) + ", which take transfers off it";
}

MILLRACE_INLINE std::string run_stats::slot_verdict(const stage_stats& slow) {
  const std::string taken = slow.name + ": its " + detail::counted(slow.slots, "slot") +
                            (slow.slots == 1 ? " is" : " are") + " taken by ";
  switch (slow.waits_for) {
    case slot_limit::copy:
      return taken + "copies under way, so the link to the device is the limit: copy fewer bytes, as u8 that the "
                     "device converts";
    case slot_limit::device:
      return "the training step is the bottleneck, on the device: " + taken + "its work on earlier batches";
    case slot_limit::consumer:
    case slot_limit::none:
      break;
  }
  return taken + "batches that the program keeps" + detail::attempt(".slots", 2 * slow.slots, slow.slots) +
         ", or let batches go sooner";
}

MILLRACE_INLINE std::string run_stats::read_verdict(const stage_stats& slow) const {
  const std::string name = slow.name + ": ";
  const std::int64_t asked = static_cast<std::int64_t>(std::max(requests.part.count, requests.request.count));
  if (requests.throttles > 0 && requests.throttles >= asked / 20) {
    return name + "the store asked for fewer requests " +
           detail::counted(static_cast<std::size_t>(requests.throttles), "time") + " (" + std::to_string(asked) +
           " reads; " + requests.last_throttle +
           "): larger objects and a larger .part make fewer, and keys under several prefixes may have more";
  }
  const std::string chosen = detail::counted(slow.reads, "request") + " of up to " +
                             format_bytes(static_cast<double>(slow.read_part)) + " at a time";
  char first[64];
  std::snprintf(first, sizeof first, " (%.1f ms to the first byte, ", 1e3 * slow.read_first_byte);
  const std::string measured = slow.read_rate > 0 ? first + format_bytes(slow.read_rate) + "/s on a connection)" : "";
  switch (slow.limit) {
    case read_limit::none:
      break;
    case read_limit::memory:
      return name + chosen + measured + " are as many as its memory holds" + detail::more_bytes(slow);
    case read_limit::requests:
      return name + chosen + measured + " are as many as it may have, and the rate of a connection is the limit" +
             (slow.own_requests == 0
                  ? std::string("; raise its .requests")
                  : detail::attempt(".requests", std::max<std::size_t>(64, 2 * slow.own_requests), slow.own_requests));
    case read_limit::shards: {
      std::string at;
      if (requests.part.count > 0) {
        at = " at " + detail::in_time(requests.part.sum / static_cast<double>(requests.part.count)) + " a request";
      }
      // That of epochs() is part of the order, and has to be a number.
      const bool any = slow.bytes_option != nullptr && std::string(slow.bytes_option) == ".window";
      return name + detail::counted(slow.own_shards, "object") + " open" + at +
             detail::attempt(".shards",
                             any ? "0, as many as there are requests for" : std::to_string(2 * slow.own_shards),
                             std::to_string(slow.own_shards));
    }
    case read_limit::disk:
      return name + "the disk of its cache is the limit: " + format_bytes(per_second(bytes)) +
             "/s; a faster disk or fewer bytes help, no option does";
    case read_limit::link:
      return name + "with " + chosen + measured + " the link, or what the store sends in all, is the limit: " +
             format_bytes(per_second(bytes)) + "/s; fewer bytes or a nearer store help, no option does";
  }
  return name + "waits for " + chosen + measured;
}

MILLRACE_INLINE std::string run_stats::cache_verdict() const {
  const disk_cache_stats& c = disk_cache;
  if (c.refused <= c.admitted) return {};
  if (c.full > c.refused / 2) {
    // The bytes that an epoch reads, as far as they are seen: by hits, or else by the room that there was.
    const auto share = [](std::uint64_t part, std::uint64_t rest) {
      return static_cast<double>(part) / static_cast<double>(std::max<std::uint64_t>(1, part + rest));
    };
    const double kept = std::max(share(c.hit_bytes, c.miss_bytes), share(c.admitted, c.refused));
    const double needed = static_cast<double>(c.bytes) / std::max(kept, 1.0 / 64);
    const auto gib = [](double n) { return std::to_string(static_cast<std::uint64_t>(n / GiB) + 1) + " * GiB"; };
    return "; the disk cache is too small: " + std::to_string(c.full) + " blocks found it full" +
           detail::attempt(".bytes", gib(needed), detail::in_code(static_cast<std::size_t>(c.bytes)));
  }
  if (c.slow > c.refused / 2) {
    return "; the disk cache is slower than the store: " + std::to_string(c.slow) +
           " blocks were not kept, as others waited to be written";
  }
  return {};
}

MILLRACE_INLINE std::string run_stats::pool_verdict(const stage_stats& slow) const {
  constexpr double most = 0.6;  // of the threads' time is full use: there is time between two jobs
  const double each = slow.jobs.count > 0 ? slow.jobs.sum / static_cast<double>(slow.jobs.count) : 0;
  const std::string jobs = slow.name + ": its pool jobs" + (each > 0 ? " of " + detail::in_time(each) : std::string());
  const std::string more_cores = jobs + " take all that the pool has: more cores, or less work per item";
  if (slow.pool_threads == 0) {
    return slow.pool > 0.5 ? more_cores : jobs + " wait for threads that get no core or have other jobs";
  }
  const std::size_t threads = slow.pool_threads;
  const std::string of_threads = detail::counted(threads, "thread");
  if (slow.jobs_slept > 0.5) {
    char share[32];
    std::snprintf(share, sizeof share, "%.0f%%", 100 * slow.jobs_slept);
    // Neither helps where no more of them may be under way.
    const bool limited = slow.pool_limit != 0 && slow.pool_limit <= threads && slow.more_jobs != nullptr &&
                         std::string(slow.more_jobs) == ".limit";
    return jobs + " sleep or wait for " + share + " of their time, each on one of " + of_threads +
           (limited
                ? detail::attempt(".limit", std::max<std::size_t>(16, 4 * slow.pool_limit), slow.pool_limit) + ", and "
                : ": ") +
           "let the function return a task, which waits on the loop without a thread" +
           (slow.pool_given ? ", or give it a larger pool as .on"
                            : ", or raise runtime_options::threads (now " + std::to_string(threads) + ')');
  }
  double all = 0;  // of the jobs on this pool
  const stage_stats* other = nullptr;
  for (const stage_stats& s : stages) {
    if (s.pool_threads != slow.pool_threads || s.pool_given != slow.pool_given) continue;
    all += s.pool;
    if (&s != &slow && s.pool > slow.pool && (other == nullptr || s.pool > other->pool)) other = &s;
  }
  if (all >= most * static_cast<double>(threads)) {
    if (slow.pool_cores <= threads && other == nullptr) return more_cores;
    const std::string busy = jobs + " wait: the pool's " + of_threads + (threads == 1 ? " is" : " are") + " busy" +
                             (other == nullptr ? std::string() : ", most of all with those of " + other->name);
    if (slow.pool_cores <= threads) return busy + ": more cores, or less work";
    const std::string cores = ", with " + detail::counted(slow.pool_cores, "core");
    return slow.pool_given
               ? busy + cores + detail::attempt(".on", "a pool of " + std::to_string(slow.pool_cores) + " threads",
                                                std::to_string(threads))
               : busy + cores + detail::attempt("runtime_options::threads", slow.pool_cores, threads);
  }
  if (slow.jobs_crowded > 0.5) {
    return jobs + " wait for a thread: other work, of other runs or of the program, has the pool's " + of_threads +
           "; try .on = a pool of its own, or runtime_options::threads = " + std::to_string(2 * threads);
  }
  if (slow.bound_by_bytes) return jobs + " wait: few fit into its bound in bytes" + detail::more_bytes(slow);
  if (slow.pool_limit == 0 || slow.pool_limit >= threads) {
    const bool says = slow.more_jobs != nullptr && *slow.more_jobs != 0 && *slow.more_jobs != '.';
    return jobs + ": few are under way at once, on " + of_threads + (says ? std::string(": ") + slow.more_jobs : "");
  }
  if (slow.more_jobs != nullptr && std::string(slow.more_jobs) == ".limit") {
    return slow.name + ": .limit = " + std::to_string(slow.pool_limit) + " of " +
           detail::counted(threads, "pool thread") +
           (each > 0 ? ", at " + detail::in_time(each) + " a job" : std::string()) + "; try .limit = " +
           std::to_string(2 * threads);
  }
  const std::string text = jobs + ": at most " + std::to_string(slow.pool_limit) +
                           (slow.pool_limit == 1 ? " is" : " are") + " under way at once, on " + of_threads;
  if (slow.more_jobs == nullptr || *slow.more_jobs == 0) return text;
  return text + (*slow.more_jobs == '.' ? "; raise its " : ": ") + slow.more_jobs;
}

MILLRACE_INLINE std::string run_stats::in_seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", s);
  return text;
}

}  // namespace millrace
