// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/loader/pipeline_run.hpp>

namespace millrace {

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

}  // namespace millrace
