// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/base/log.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/loader/detail/run_trace.hpp>
#include <millrace/loader/detail/whole_file.hpp>

namespace millrace::detail {

/// How many runs of this process MILLRACE_TRACE has named a file for.
inline constinit std::atomic<unsigned> traces_of_process{0};

MILLRACE_INLINE std::string run_trace::file_of(const std::string& path, unsigned n, std::uint32_t rank) {
  std::string more;
  if (rank > 0) more += ".rank" + std::to_string(rank);
  if (n > 1) more += '.' + std::to_string(n);
  const std::size_t dot = path.rfind('.');
  const std::size_t folder = path.rfind('/');
  const bool has = dot != std::string::npos && (folder == std::string::npos || dot > folder + 1);
  std::string out = path;
  return out.insert(has ? dot : path.size(), more);
}

MILLRACE_INLINE void run_trace::begin(tracer& events, const char* path, std::uint32_t rank) {
  if (path != nullptr) {
    path_ = path;
  } else if (const std::optional<std::string> set = process_environment().get("MILLRACE_TRACE")) {
    path_ = file_of(*set, ++traces_of_process, rank);
  } else {
    return;
  }
  since_ = events.start(number_);
  tracer_ = &events;
  began_ = monotonic_ns();
  rank_ = rank;
}

MILLRACE_INLINE void run_trace::end(runtime_parts& log) noexcept {
  tracer* const from = std::exchange(tracer_, nullptr);
  if (from == nullptr) return;
  try {
    std::uint64_t dropped = 0;
    const std::vector<trace_event> events = from->stop(since_, dropped);
    replace_file(path_, text(events, dropped, began_, rank_));
  } catch (const std::exception& e) {
    log.log(log_record(log_level::warning, std::string("millrace: no trace: ") + e.what()));
  }
}

MILLRACE_INLINE std::string run_trace::text(const std::vector<trace_event>& events, std::uint64_t dropped,
                                            std::int64_t began, std::uint32_t rank) {
  // Events on a thread follow each other or are in each other; those of the other lanes may overlap.
  const auto threads = [](trace_lane l) { return l <= trace_lane::connection; };
  static constexpr const char* names[] = {"training thread", "pool thread", "connection", "queue",
                                          "list",            "part",        "copy"};
  std::vector<std::uint64_t> lanes;  // in order
  const auto lane_of = [&lanes](const trace_event& e) {
    const std::uint64_t key = static_cast<std::uint64_t>(e.lane) << 32 | e.key;
    std::size_t i = 0;
    while (i < lanes.size() && lanes[i] < key) ++i;
    if (i == lanes.size() || lanes[i] != key) lanes.insert(lanes.begin() + static_cast<std::ptrdiff_t>(i), key);
    return i + 1;
  };
  for (const trace_event& e : events) {
    if (threads(e.lane)) static_cast<void>(lane_of(e));
  }
  const std::string pid = "\"pid\": " + std::to_string(rank);
  std::string out = "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"dropped_events\": \"" + std::to_string(dropped) +
                    "\"}, \"traceEvents\": [\n{\"ph\": \"M\", \"name\": \"process_name\", " + pid +
                    ", \"tid\": 0, \"args\": {\"name\": \"millrace rank " + std::to_string(rank) + "\"}}";
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const std::string tid = ", \"tid\": " + std::to_string(i + 1) + ", \"args\": {";
    const std::uint64_t lane = lanes[i] >> 32;
    const std::string number = lane == 0 ? std::string() : ' ' + std::to_string(lanes[i] & 0xffffffff);
    out += ",\n{\"ph\": \"M\", \"name\": \"thread_name\", " + pid + tid + "\"name\": \"" + names[lane] +
           number + "\"}},\n{\"ph\": \"M\", \"name\": \"thread_sort_index\", " + pid + tid +
           "\"sort_index\": " + std::to_string(i + 1) + "}}";
  }
  out.reserve(out.size() + 128 * events.size());
  std::vector<std::uint64_t> ends(lanes.size(), static_cast<std::uint64_t>(began));  // of the latest in each lane
  std::int64_t id = 0;
  for (const trace_event& each : events) {
    trace_event e = each;
    e.begin = std::max(e.begin, began);  // of another run
    if (threads(e.lane)) {               // libcurl's microseconds are rounded
      std::uint64_t& latest = ends[lane_of(e) - 1];
      e.begin = std::max(e.begin, static_cast<std::int64_t>(latest));
      latest = std::max(latest, static_cast<std::uint64_t>(e.end));
    }
    e.end = std::max(e.end, e.begin);
    // Appended piece by piece: with temporary strings and snprintf() the text takes four times as long.
    const auto head = [&](const char* what) {
      out += ",\n{\"name\": ";
      append_json(out, e.name);
      out += ", \"cat\": \"";
      out += names[static_cast<int>(e.lane)];
      out += "\", ";
      out += pid;
      out += what;
    };
    const auto number = [&out](const char* name, std::int64_t n) {
      out += name;
      out += std::to_string(n);
    };
    const auto us = [&](const char* name, std::int64_t ns) {
      number(name, ns / 1000);
      const auto rest = static_cast<int>(ns % 1000);
      const char digits[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                             static_cast<char>('0' + rest % 10)};
      out.append(digits, sizeof digits);
    };
    const auto args = [&] {
      if (e.bytes == 0) {
        out += '}';
      } else {
        number(", \"args\": {\"bytes\": ", e.bytes);
        out += "}}";
      }
    };
    if (threads(e.lane)) {
      head("");
      number(", \"tid\": ", static_cast<std::int64_t>(lane_of(e)));
      us(", \"ph\": \"X\", \"ts\": ", e.begin - began);
      us(", \"dur\": ", e.end - e.begin);
      args();
    } else {
      ++id;
      head(", \"tid\": 0");
      number(", \"id\": ", id);
      us(", \"ph\": \"b\", \"ts\": ", e.begin - began);
      args();
      head(", \"tid\": 0");
      number(", \"id\": ", id);
      us(", \"ph\": \"e\", \"ts\": ", e.end - began);
      out += '}';
    }
  }
  return out + "\n]}\n";
}

}  // namespace millrace::detail
