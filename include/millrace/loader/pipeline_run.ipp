// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/loader/pipeline_run.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::string budget_table(const std::vector<stage_bounds>& bounds) {
  std::string text = "stage                 items       bytes\n";
  std::size_t total = 0;
  char line[128];
  for (const stage_bounds& b : bounds) {
    std::snprintf(line, sizeof line, "%-16.16s %10zu %11s\n", b.name, b.items,
                  b.bytes > 0 ? format_bytes(static_cast<double>(b.bytes)).c_str() : "not stated");
    text += line;
    total = detail::added(total, b.bytes);
  }
  std::snprintf(line, sizeof line, "%-16s %10s %11s\n", "together", "",
                format_bytes(static_cast<double>(total)).c_str());
  return text + line;
}

MILLRACE_INLINE std::size_t check_budget(const std::vector<stage_bounds>& bounds, std::size_t budget) {
  if (budget == 0) return SIZE_MAX;
  std::size_t total = 0;
  std::string list;
  for (const stage_bounds& b : bounds) {
    if (b.bytes == 0 && b.items > 0) {
      throw configuration_error("stage " + std::string(b.name) +
                                " states no bound in bytes, so a memory budget cannot be kept: give it one (.bytes, "
                                "of run .prefetch_bytes, of to_device .slot_bytes, of open pipelines .inner_bytes)");
    }
    total = detail::added(total, b.bytes);
    // One line: what() escapes line breaks, so the table cannot be part of it.
    list += (list.empty() ? "" : ", ") + std::string(b.name) + ' ' + format_bytes(static_cast<double>(b.bytes));
  }
  if (total > budget) {
    throw configuration_error("the stages may hold " + format_bytes(static_cast<double>(total)) +
                              ", more than the budget of " + format_bytes(static_cast<double>(budget)) + ": " + list);
  }
  return budget - total;
}

namespace detail {

MILLRACE_INLINE const char* check_places(const std::vector<place_note>& notes, const std::optional<rank>& mine) {
  const auto refuse = [](const place_note& n, const std::string& why) {
    throw configuration_error(std::string(n.stage) + ", in a pipeline that begins with epochs(): " + why);
  };
  const char* no_state = nullptr;
  const place_note* counter = nullptr;   // a stage that counts its items in marks
  const place_note* unequal = nullptr;   // the stage after which ranks have unequally many
  const place_note* ends = nullptr;      // a stage that may end a rank alone
  bool source = false, empty = false, uneven = false, evened = false;
  std::uint64_t step = 0;  // of a rank; 0: any
  for (const place_note& n : notes) {
    if (n.effect == place_effect::steps) {
      source = true;
      step = n.number;
      continue;
    }
    if (n.effect == place_effect::ends_alone) ends = &n;
    if (n.effect == place_effect::evens) evened = true;
    if (!source) continue;
    switch (n.effect) {
      case place_effect::steps:
        break;
      case place_effect::uneven:
        uneven = true;
        break;
      case place_effect::makes_empty:
        empty = true;
        break;
      case place_effect::needs_items:
        if (empty) refuse(n, n.why);
        break;
      case place_effect::loses:
        refuse(n, n.why);
        break;
      case place_effect::unequal:
        if (n.number == 1) {
          if (!evened) unequal = &n;
          break;
        }
        unequal = &n;
        empty = true;
        step = 0;
        break;
      case place_effect::counts:
        // After one that leaves the counting to it there is but one count.
        if (counter != nullptr && (counter->number != count_of::steps_or_later || n.number == count_of::parts)) {
          refuse(n, std::string("a state says how far a training is in one such stage, and ") + counter->stage +
                        " is before it: make all items in one of them");
        }
        counter = &n;
        break;
      case place_effect::evens:
        unequal = nullptr;
        empty = true;
        step = n.number;
        break;
      case place_effect::stateless:
        no_state = n.why;
        break;
      case place_effect::ends_alone:
        break;
      case place_effect::batches:
        if (step != 0 && step % n.number != 0) {
          refuse(n, "batches of " + std::to_string(n.number) + " do not fit steps of " + std::to_string(step) +
                        " items (epochs_options::batch, or that of equal_batches): give both the same size");
        }
        step = 0;
        break;
    }
  }
  if (ends != nullptr && (source || evened) && !uneven && mine && mine->world_size > 1) refuse(*ends, ends->why);
  if (unequal != nullptr && !uneven && mine && mine->world_size > 1) {
    refuse(*unequal, unequal->why);
  }
  return no_state;
}

MILLRACE_INLINE stopping how_to_stop(const std::vector<place_note>& notes) noexcept {
  stopping how = stopping::by_vote;
  for (const place_note& n : notes) {
    if (n.effect == place_effect::uneven) how = stopping::alone;
    if (n.effect == place_effect::evens) return stopping::by_steps;
  }
  return how;
}

MILLRACE_INLINE void empty_epochs::took(const epoch_mark& mark, bool begins, runtime_parts& log) {
  if (!latest_.known || mark.epoch != latest_.epoch) {
    const bool first = !latest_.known;
    ended(log);
    items_ = 0;
    empty_ = !first || begins;
  }
  ++items_;
  empty_ = empty_ && mark.padding;
  latest_ = mark;
  if (mark.last) ended(log);
}

MILLRACE_INLINE void empty_epochs::ended(runtime_parts& log) {
  if (!std::exchange(empty_, false) || std::exchange(said_, true)) return;
  log.log(log_record(log_level::warning,
                     "millrace: epoch " + std::to_string(latest_.epoch) + " has not one sample: all " +
                         std::to_string(items_) +
                         " batches or items that were taken of it are empty entries, of weight 0. A stage after "
                         "epochs() has left everything out (filter(), flat_map(), a failure_policy)"));
}

MILLRACE_INLINE void log_stops_alone(runtime_parts& log, const std::optional<rank>& mine) {
  if (!mine || mine->world_size < 2) return;
  const std::string line = "millrace: a signal stops rank " + std::to_string(mine->index) + " of " +
                           std::to_string(mine->world_size) +
                           " by itself, and the others do not know: give epochs() a rank_group";
  if (first_time(line)) log.log(log_record(log_level::warning, line));
}

MILLRACE_TEMPLATE(std::shared_ptr<run_state<device_batch>> make_run_state<device_batch>(
    async_generator<device_batch>, const run_options&, std::size_t, std::uint32_t));
MILLRACE_TEMPLATE(std::shared_ptr<run_state<std::vector<sample>>> make_run_state<std::vector<sample>>(
    async_generator<std::vector<sample>>, const run_options&, std::size_t, std::uint32_t));

}  // namespace detail

MILLRACE_TEMPLATE(class pipeline_run<device_batch>);
MILLRACE_TEMPLATE(class pipeline_run<std::vector<sample>>);

}  // namespace millrace
