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
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/base/log.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/loader/detail/run_trace.hpp>
#include <millrace/loader/detail/whole_file.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

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
    whole_file to(path_);
    to.write(text(events, dropped, began_, rank_, &to));
    to.finish();
  } catch (const std::exception& e) {
    try {
      log.log(log_record(log_level::warning, std::string("millrace: no trace: ") + e.what()));
    } catch (...) {
      log.log(log_record(log_level::warning, "millrace: no trace: there is no memory for it"));
    }
  }
}

/// Text of a trace, in pieces that are written into one string. The text that all events of a name and lane share is
/// kept from the last time: names and lanes are few, and events are hundreds of thousands.
class trace_text {
 public:
  explicit trace_text(std::uint32_t rank) : pid_("\"pid\": " + std::to_string(rank)) {}

  const std::string& pid() const noexcept { return pid_; }
  std::string& out() noexcept { return out_; }

  /// ",\n{"name": ..., "tid": ..., " of an event: the part before its own values.
  void head(const trace_event& e, const char* category, std::size_t tid) {
    cached& c = heads_[(reinterpret_cast<std::uintptr_t>(e.name) / 8 * 31 + tid) % most];
    if (c.name != e.name || c.category != category || c.tid != tid) {
      c.name = e.name;
      c.category = category;
      c.tid = tid;
      c.text = ",\n{\"name\": ";
      text::append_json_string(c.text, e.name);
      ((((c.text += ", \"cat\": \"") += category) += "\", ") += pid_) += ", \"tid\": ";
      (c.text += std::to_string(tid)) += ", ";
    }
    out_ += c.text;
  }
  void number(std::string_view name, std::int64_t n) {
    out_ += name;
    digits(n);
  }
  /// Writes nanoseconds as microseconds.
  void microseconds(std::string_view name, std::int64_t ns) {
    number(name, ns / 1000);
    const auto rest = static_cast<int>(ns % 1000);
    const char text[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                         static_cast<char>('0' + rest % 10)};
    out_.append(text, sizeof text);
  }

 private:
  struct cached {
    const char* name = nullptr;
    const char* category = nullptr;
    std::size_t tid = 0;
    std::string text;
  };
  static constexpr std::size_t most = 256;

  void digits(std::int64_t n) {
    char text[20];  // of a number that is not negative
    char* at = text + sizeof text;
    do {
      *--at = static_cast<char>('0' + n % 10);
      n /= 10;
    } while (n > 0);
    out_.append(at, static_cast<std::size_t>(text + sizeof text - at));
  }

  std::string pid_;
  std::string out_;
  cached heads_[most];  // no vector of a new type: see docs/design/compiling.md
};

MILLRACE_INLINE std::string run_trace::text(const std::vector<trace_event>& events, std::uint64_t dropped,
                                            std::int64_t began, std::uint32_t rank, whole_file* to) {
  // Events on a thread follow each other or are in each other; those of the other lanes may overlap.
  const auto threads = [](trace_lane l) { return l <= trace_lane::connection; };
  static constexpr const char* names[] = {
      "training thread", "pool thread", "connection", "queue", "list", "part", "copy"};
  const auto key_of = [](const trace_event& e) { return static_cast<std::uint64_t>(e.lane) << 32 | e.key; };
  std::vector<std::uint64_t> lanes;  // in order
  const auto place_of = [&lanes](std::uint64_t key) {
    std::size_t first = 0;
    for (std::size_t n = lanes.size(); n > 0;) {
      const std::size_t half = n / 2;
      const bool right = lanes[first + half] < key;
      first += right ? half + 1 : 0;
      n = right ? n - half - 1 : half;
    }
    return first;
  };
  for (const trace_event& e : events) {
    if (!threads(e.lane)) continue;
    const std::size_t at = place_of(key_of(e));
    if (at == lanes.size() || lanes[at] != key_of(e)) {
      lanes.insert(lanes.begin() + static_cast<std::ptrdiff_t>(at), key_of(e));
    }
  }
  trace_text text(rank);
  std::string& out = text.out();
  constexpr std::size_t piece = std::size_t{1} << 16;
  out.reserve(piece + 4096);
  ((out += "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"dropped_events\": \"") += std::to_string(dropped)) +=
      "\"}, \"traceEvents\": [\n{\"ph\": \"M\", \"name\": \"process_name\", ";
  ((out += text.pid()) += ", \"tid\": 0, \"args\": {\"name\": \"millrace rank ") += std::to_string(rank) + "\"}}";
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const std::string tid = ", \"tid\": " + std::to_string(i + 1) + ", \"args\": {";
    const std::uint64_t lane = lanes[i] >> 32;
    const std::string number = lane == 0 ? std::string() : ' ' + std::to_string(lanes[i] & 0xffffffff);
    out += ",\n{\"ph\": \"M\", \"name\": \"thread_name\", " + text.pid() + tid + "\"name\": \"" + names[lane] + number +
           "\"}},\n{\"ph\": \"M\", \"name\": \"thread_sort_index\", " + text.pid() + tid +
           "\"sort_index\": " + std::to_string(i + 1) + "}}";
  }
  std::vector<std::uint64_t> ends(lanes.size(), static_cast<std::uint64_t>(began));  // of the latest in each lane
  std::int64_t id = 0;
  for (const trace_event& e : events) {
    if (to != nullptr && out.size() >= piece) {  // memory that is in the cache, and not megabytes that are new
      to->write(out);
      out.clear();
    }
    std::int64_t begin = std::max(e.begin, began);  // of another run
    const char* const category = names[static_cast<int>(e.lane)];
    const auto args = [&] {
      if (e.bytes == 0) {
        out += '}';
      } else {
        text.number(", \"args\": {\"bytes\": ", e.bytes);
        out += "}}";
      }
    };
    if (threads(e.lane)) {
      const std::size_t lane = place_of(key_of(e));
      begin = std::max(begin, static_cast<std::int64_t>(ends[lane]));  // libcurl's microseconds are rounded
      ends[lane] = std::max(ends[lane], static_cast<std::uint64_t>(e.end));
      text.head(e, category, lane + 1);
      text.microseconds("\"ph\": \"X\", \"ts\": ", begin - began);
      text.microseconds(", \"dur\": ", std::max(e.end, begin) - begin);
      args();
    } else {
      ++id;
      text.head(e, category, 0);
      text.number("\"id\": ", id);
      text.microseconds(", \"ph\": \"b\", \"ts\": ", begin - began);
      args();
      text.head(e, category, 0);
      text.number("\"id\": ", id);
      text.microseconds(", \"ph\": \"e\", \"ts\": ", std::max(e.end, begin) - began);
      out += '}';
    }
  }
  out += "\n]}\n";
  return std::move(out);
}

}  // namespace millrace::detail
