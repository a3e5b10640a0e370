// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/device/batch_layout.hpp>

namespace millrace {

MILLRACE_INLINE std::size_t batch_field::row_bytes() const {
  std::size_t n = 0;
  if (__builtin_mul_overflow(dims_.elements(), size_of(type_), &n)) throw configuration_error("a shape is too large");
  return n;
}

MILLRACE_INLINE batch_layout::batch_layout(std::size_t samples, std::vector<batch_field> fields) {
  auto made = std::make_shared<state>();
  made->samples = samples;
  made->fields = std::move(fields);
  for (std::size_t i = 0; i < made->fields.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (made->fields[i].name() == made->fields[j].name()) {
        throw configuration_error("a batch has two fields named " + made->fields[i].name());
      }
    }
    made->offsets.push_back(0);
  }
  const auto place = [&](std::size_t i) {
    made->offsets[i] = made->device_bytes;
    std::size_t n = 0;
    const std::size_t rows = made->fields[i].has_rows() ? samples : 1;
    if (__builtin_mul_overflow(made->fields[i].row_bytes(), rows, &n) || n > largest - made->device_bytes) {
      throw configuration_error("a batch of " + std::to_string(samples) + " samples of " + made->fields[i].text() +
                                " is too large");
    }
    made->device_bytes += (n + alignment - 1) / alignment * alignment;
  };
  for (std::size_t i = 0; i < made->fields.size(); ++i) {
    if (!made->fields[i].on_host()) continue;
    place(i);
    made->last = i;
  }
  made->bytes = made->device_bytes;
  for (std::size_t i = 0; i < made->fields.size(); ++i) {
    if (!made->fields[i].on_host()) place(i);
  }
  state_ = std::move(made);
}

MILLRACE_INLINE std::size_t batch_layout::find(std::string_view name) const {
  for (std::size_t i = 0; i < fields().size(); ++i) {
    if (fields()[i].name() == name) return i;
  }
  std::string known;
  for (const batch_field& f : fields()) known += (known.empty() ? "" : ", ") + f.name();
  throw configuration_error("a batch has no field named " + std::string(name) + "; it has " +
                            (known.empty() ? "none" : known));
}

}  // namespace millrace
