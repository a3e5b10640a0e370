// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loader/detail/whole_file.hpp>
#include <millrace/loader/export.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A number as JSON and Prometheus both read it; 0 for one that is not finite.
MILLRACE_INLINE std::string number_text(double v) {
  if (!(v - v == 0)) v = 0;
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", v);
  return text;
}

/// Writes one JSON object.
class json_object {
 public:
  explicit json_object(std::string& out) : out_(out) { out_ += '{'; }
  std::string& key(const char* name) {
    if (any_) out_ += ", ";
    any_ = true;
    out_ += '"';
    out_ += name;
    out_ += "\": ";
    return out_;
  }
  void number(const char* name, double v) { key(name) += number_text(v); }
  void integer(const char* name, std::int64_t v) { key(name) += std::to_string(v); }
  void flag(const char* name, bool v) { key(name) += v ? "true" : "false"; }
  void text(const char* name, std::string_view v) { text::append_json_string(key(name), v); }
  void durations(const char* name, const duration_stats& d) {
    json_object inner(key(name));
    inner.integer("count", static_cast<std::int64_t>(d.count));
    inner.number("sum", d.sum);
    std::string& list = inner.key("buckets");
    list += '[';
    for (std::size_t i = 0; i <= duration_stats::bounds; ++i) {
      if (i > 0) list += ", ";
      list += std::to_string(d.buckets[i]);
    }
    list += ']';
    inner.end();
  }
  void end() { out_ += '}'; }

 private:
  std::string& out_;
  bool any_ = false;
};

MILLRACE_INLINE const char* limit_text(read_limit limit) noexcept {
  return limit == read_limit::memory     ? "memory"
         : limit == read_limit::requests ? "requests"
         : limit == read_limit::link     ? "link"
         : limit == read_limit::shards   ? "shards"
         : limit == read_limit::disk     ? "disk"
                                         : "none";
}

/// Writes families of metrics.
class metrics_writer {
 public:
  metrics_writer(std::string& out, const std::vector<metric_label>& labels) : out_(out) {
    for (const metric_label& l : labels) {
      bool good = !l.name.empty() && !(l.name[0] >= '0' && l.name[0] <= '9');
      for (const char c : l.name) {
        good = good && ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_');
      }
      if (!good) throw configuration_error("prometheus: \"" + l.name + "\" is not the name of a label");
      common_ += label(common_.empty(), l.name.c_str(), l.value);
    }
  }
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    out_ += std::string("# HELP ") + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
  }
  /// One sample of the family, with one label of its own, or two.
  void sample(double v, const char* name = nullptr, std::string_view value = {}, const char* name2 = nullptr,
              std::string_view value2 = {}) {
    line("", own(name, value) + own(name2, value2), number_text(v));
  }
  void histogram(const duration_stats& d, const char* name = nullptr, std::string_view value = {}) {
    const std::string mine = own(name, value);
    std::uint64_t below = 0;
    for (std::size_t i = 0; i <= duration_stats::bounds; ++i) {
      below += d.buckets[i];
      const std::string le = i < duration_stats::bounds ? number_text(duration_stats::upper[i]) : "+Inf";
      line("_bucket", mine + label(false, "le", le), std::to_string(below));
    }
    line("_sum", mine, number_text(d.sum));
    line("_count", mine, std::to_string(below));
  }

 private:
  static std::string label(bool first, const char* name, std::string_view value) {
    std::string out = first ? "" : ",";
    out += name;
    out += "=\"";
    for (const char c : value) {
      if (c == '\n') {
        out += "\\n";
        continue;
      }
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
    return out + '"';
  }
  static std::string own(const char* name, std::string_view value) {
    return name == nullptr ? std::string() : label(false, name, value);
  }
  /// `own` begins with a comma, or is empty.
  void line(const char* suffix, const std::string& own, const std::string& value) {
    out_ += name_;
    out_ += suffix;
    std::string all = common_ + own;
    if (!all.empty() && all[0] == ',') all.erase(0, 1);
    if (!all.empty()) out_ += '{' + all + '}';
    out_ += ' ' + value + '\n';
  }

  std::string& out_;
  std::string common_;
  const char* name_ = "";
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::string stats_json(const run_stats& s) {
  std::string out;
  detail::json_object all(out);
  all.number("seconds", s.seconds);
  all.number("first_after", s.first_after);
  all.integer("items", s.items);
  all.integer("samples", s.samples);
  all.integer("bytes", s.bytes);
  all.number("waited", s.waited);
  all.integer("next_p50_ns", s.next_p50_ns);
  all.integer("next_p99_ns", s.next_p99_ns);
  all.integer("next_max_ns", s.next_max_ns);
  {
    detail::json_object p(all.key("place"));
    p.integer("epoch", static_cast<std::int64_t>(s.place.epoch));
    p.integer("epochs", static_cast<std::int64_t>(s.place.epochs));
    p.integer("batch", static_cast<std::int64_t>(s.place.batch));
    p.integer("batches", static_cast<std::int64_t>(s.place.batches));
    p.end();
  }
  all.integer("placed", static_cast<std::int64_t>(s.placed));
  all.number("left", s.left());
  all.text("verdict", s.verdict());
  all.number("headroom", s.headroom());
  std::string& bounds = all.key("bucket_bounds");
  for (std::size_t i = 0; i < duration_stats::bounds; ++i) {
    bounds += (i == 0 ? "[" : ", ") + detail::number_text(duration_stats::upper[i]);
  }
  bounds += ']';
  all.durations("steps", s.steps);
  all.durations("waits", s.waits);
  {
    detail::json_object r(all.key("requests"));
    r.durations("request", s.requests.request);
    r.durations("first_byte", s.requests.first_byte);
    r.durations("part", s.requests.part);
    r.integer("retries", s.requests.retries);
    r.integer("throttles", s.requests.throttles);
    r.integer("hedges", s.requests.hedges);
    r.integer("resumed", s.requests.resumed);
    r.integer("skipped", s.requests.skipped);
    r.text("last_retry", s.requests.last_retry);
    r.text("last_throttle", s.requests.last_throttle);
    r.text("last_skipped", s.requests.last_skipped);
    r.end();
  }
  {
    const disk_cache_stats& c = s.disk_cache;
    detail::json_object r(all.key("disk_cache"));
    const auto count = [&r](const char* name, std::uint64_t n) { r.integer(name, static_cast<std::int64_t>(n)); };
    count("hits", c.hits);
    count("misses", c.misses);
    count("hit_bytes", c.hit_bytes);
    count("miss_bytes", c.miss_bytes);
    count("waited", c.waited);
    count("admitted", c.admitted);
    count("refused", c.refused);
    count("full", c.full);
    count("slow", c.slow);
    count("given", c.given);
    count("damaged", c.damaged);
    r.end();
  }
  all.key("stages") += '[';
  for (const stage_stats& each : s.stages) {
    if (&each != s.stages.data()) out += ", ";
    detail::json_object o(out);
    o.text("name", each.name);
    o.integer("items", each.items);
    o.integer("failed", each.failed);
    o.integer("bytes", each.bytes);
    o.integer("reread", each.reread);
    o.number("busy", each.busy);
    o.number("pool", each.pool);
    o.number("starved", each.starved);
    o.number("waiting", each.waiting);
    o.number("blocked", each.blocked);
    o.number("before_first", each.before_first);
    o.durations("jobs", each.jobs);
    o.integer("pool_threads", each.pool_threads);
    o.integer("pool_limit", static_cast<std::int64_t>(each.pool_limit));
    o.number("jobs_slept", each.jobs_slept);
    o.number("jobs_crowded", each.jobs_crowded);
    o.integer("reads", static_cast<std::int64_t>(each.reads));
    o.integer("read_part", static_cast<std::int64_t>(each.read_part));
    o.text("limit", detail::limit_text(each.limit));
    o.number("read_first_byte", each.read_first_byte);
    o.number("read_rate", each.read_rate);
    o.end();
  }
  out += ']';
  all.key("lost") += '[';
  for (const lost_shard& each : s.lost) {
    if (&each != s.lost.data()) out += ", ";
    detail::json_object o(out);
    o.text("shard", each.shard);
    o.integer("samples", static_cast<std::int64_t>(each.samples));
    o.text("reason", each.reason);
    o.end();
  }
  out += ']';
  all.key("hosts") += '[';
  for (const host_stats& each : s.hosts) {
    if (&each != s.hosts.data()) out += ", ";
    detail::json_object o(out);
    o.text("name", each.name);
    o.integer("in_flight", static_cast<std::int64_t>(each.in_flight));
    o.integer("requests", static_cast<std::int64_t>(each.requests));
    o.integer("part", static_cast<std::int64_t>(each.part));
    o.flag("measured", each.measured);
    o.number("first_byte", each.first_byte);
    o.number("connection_rate", each.connection_rate);
    o.number("rate", each.rate);
    o.text("limit", detail::limit_text(each.limit));
    o.end();
  }
  out += ']';
  all.integer("addresses_passed_over", s.addresses_passed_over);
  all.text("placement", s.placement);
  all.integer("loops", static_cast<std::int64_t>(s.loops));
  all.end();
  return out;
}

MILLRACE_INLINE std::string prometheus_text(const run_stats& s, const std::vector<metric_label>& labels) {
  std::string out;
  detail::metrics_writer w(out, labels);
  const auto one = [&w](const char* name, const char* type, const char* help, double v) {
    w.family(name, type, help);
    w.sample(v);
  };
  const auto durations = [&w](const char* name, const char* help, const duration_stats& d) {
    w.family(name, "histogram", help);
    w.histogram(d);
  };
  one("millrace_run_duration_seconds", "gauge", "Since the run began.", s.seconds);
  one("millrace_run_first_item_seconds", "gauge", "From the run's beginning to the first item.", s.first_after);
  one("millrace_run_items_total", "counter", "Items (batches) that the training thread took.",
      static_cast<double>(s.items));
  one("millrace_run_samples_total", "counter", "Samples in them.", static_cast<double>(s.samples));
  one("millrace_run_io_bytes_total", "counter", "Bytes that came into the pipeline.", static_cast<double>(s.bytes));
  one("millrace_run_wait_ratio", "gauge", "Share of the time since the first item that the training waited.", s.waited);
  const auto known = [&w](const char* name, const char* help, double v, bool is) {
    w.family(name, "gauge", help);
    if (is) w.sample(v);
  };
  const bool counted = s.place.batches > 0;
  known("millrace_training_epoch", "Epoch of the latest item, from 0.", static_cast<double>(s.place.epoch),
        s.items > 0);
  known("millrace_training_epochs", "Epochs of the training.", static_cast<double>(s.place.epochs),
        s.place.epochs > 0);
  known("millrace_training_batch", "Batches of the epoch that were taken.", static_cast<double>(s.place.batch),
        counted);
  known("millrace_training_batches", "Batches of an epoch.", static_cast<double>(s.place.batches), counted);
  const double left = s.left();
  known("millrace_training_left_seconds", "Until the training's end, or the epoch's where it is endless.", left,
        left >= 0);
  durations("millrace_run_step_duration_seconds", "Steps of the training thread.", s.steps);
  durations("millrace_run_wait_duration_seconds", "Waits of the training thread for an item.", s.waits);
  durations("millrace_request_duration_seconds", "Requests, with the wait for a connection.", s.requests.request);
  durations("millrace_request_first_byte_duration_seconds", "From sending to the first byte.", s.requests.first_byte);
  durations("millrace_part_duration_seconds", "Ranged reads of stages, with their retries.", s.requests.part);
  one("millrace_request_retries_total", "counter", "Requests that were repeated.",
      static_cast<double>(s.requests.retries));
  one("millrace_request_throttles_total", "counter", "Of those, because the store asked for fewer.",
      static_cast<double>(s.requests.throttles));
  one("millrace_request_hedges_total", "counter", "Second requests for parts that were late.",
      static_cast<double>(s.requests.hedges));
  one("millrace_request_resumed_bodies_total", "counter", "Bodies that broke off and were continued.",
      static_cast<double>(s.requests.resumed));
  one("millrace_skipped_samples_total", "counter", "Items that a failure policy left out.",
      static_cast<double>(s.requests.skipped));
  const disk_cache_stats& c = s.disk_cache;
  const auto cache = [&one](const char* name, const char* help, std::uint64_t n) {
    one(name, "counter", help, static_cast<double>(n));
  };
  cache("millrace_disk_cache_hits_total", "Reads that came from the disk.", c.hits);
  cache("millrace_disk_cache_misses_total", "Reads that went to the store.", c.misses);
  cache("millrace_disk_cache_hit_bytes_total", "Bytes that came from the disk.", c.hit_bytes);
  cache("millrace_disk_cache_miss_bytes_total", "Bytes that came from the store.", c.miss_bytes);
  cache("millrace_disk_cache_waits_total", "Reads that waited for another reader of the same bytes.", c.waited);
  cache("millrace_disk_cache_admitted_blocks_total", "Blocks that were written.", c.admitted);
  cache("millrace_disk_cache_refused_blocks_total", "Blocks that were not.", c.refused);
  cache("millrace_disk_cache_given_segments_total", "Segments of older data whose slots were given to new.", c.given);
  cache("millrace_disk_cache_damaged_blocks_total", "Blocks that were not as they had been written.", c.damaged);
  std::uint64_t lost = 0;
  for (const lost_shard& each : s.lost) lost += each.samples;
  one("millrace_lost_shards_total", "counter", "Shards of which samples could not be read.",
      static_cast<double>(s.lost.size()));
  one("millrace_lost_samples_total", "counter", "Samples of them.", static_cast<double>(lost));
  w.family("millrace_last_reason_info", "gauge", "The latest reason of each kind, as a label; 1.");
  const auto reason = [&w](const char* kind, const std::string& text) {
    if (!text.empty()) w.sample(1, "kind", kind, "reason", text);
  };
  reason("retry", s.requests.last_retry);
  reason("throttle", s.requests.last_throttle);
  reason("skipped_sample", s.requests.last_skipped);
  if (!s.lost.empty()) reason("lost_shard", s.lost.back().shard + ": " + s.lost.back().reason);

  const auto stages = [&](const char* name, const char* type, const char* help, auto value) {
    w.family(name, type, help);
    for (const stage_stats& each : s.stages) w.sample(static_cast<double>(value(each)), "stage", each.name);
  };
  using stage = const stage_stats&;
  stages("millrace_stage_items_total", "counter", "Items that the stage yielded.", [](stage x) { return x.items; });
  stages("millrace_stage_io_bytes_total", "counter", "Bytes of them.", [](stage x) { return x.bytes; });
  stages("millrace_stage_skipped_total", "counter", "Items that it left out.", [](stage x) { return x.failed; });
  stages("millrace_stage_reread_parts_total", "counter", "Damaged parts that it read again.",
         [](stage x) { return x.reread; });
  stages("millrace_stage_busy_ratio", "gauge", "Share of the time on the loop.", [](stage x) { return x.busy; });
  stages("millrace_stage_pool_ratio", "gauge", "Seconds of pool threads per second.", [](stage x) { return x.pool; });
  stages("millrace_stage_starved_ratio", "gauge", "Share of the time that it waited for a stage before it.",
         [](stage x) { return x.starved; });
  stages("millrace_stage_waiting_ratio", "gauge", "Share of the time that it waited for its own I/O or jobs.",
         [](stage x) { return x.waiting; });
  stages("millrace_stage_blocked_ratio", "gauge", "Share of the time that it was not asked.",
         [](stage x) { return x.blocked; });
  w.family("millrace_stage_job_duration_seconds", "histogram", "Jobs of stages on a pool: decoding, unpacking.");
  for (const stage_stats& each : s.stages) {
    if (each.jobs.count > 0) w.histogram(each.jobs, "stage", each.name);
  }
  const auto hosts = [&](const char* name, const char* help, auto value) {
    w.family(name, "gauge", help);
    for (const host_stats& each : s.hosts) w.sample(static_cast<double>(value(each)), "server_address", each.name);
  };
  using host = const host_stats&;
  hosts("millrace_host_active_requests", "Ranged reads in flight.", [](host x) { return x.in_flight; });
  hosts("millrace_host_request_limit", "How many may be in flight.", [](host x) { return x.requests; });
  hosts("millrace_host_first_byte_seconds", "Time to the first byte, as measured.",
        [](host x) { return x.first_byte; });
  hosts("millrace_host_io_bytes_per_second", "Rate of all reads, as measured.", [](host x) { return x.rate; });
  return out;
}

MILLRACE_INLINE void write_prometheus(const std::string& path, const run_stats& stats,
                                      const std::vector<metric_label>& labels) {
  detail::replace_file(path, prometheus_text(stats, labels));
}

}  // namespace millrace
