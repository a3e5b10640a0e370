// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/records/mx_record.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The header, little-endian: 4 bytes flag, 4 label (a float), 8 id, 8 id2. If the flag is not 0, so many labels follow
/// the header, and the one in it means nothing.
MILLRACE_INLINE mx_record::mx_record(const bytes& record, const where& at) {
  constexpr std::size_t head = 24;
  const std::string_view all = record.view();
  const auto number = [all](std::size_t from, std::size_t size) {
    std::uint64_t made = 0;
    for (std::size_t i = size; i-- > 0;) made = made << 8 | static_cast<unsigned char>(all[from + i]);
    return made;
  };
  if (all.size() < head) {
    throw decode_error("the record has " + std::to_string(all.size()) + " bytes, and MXNet's header has 24", at);
  }
  const std::uint64_t flag = number(0, 4);
  if (flag > (all.size() - head) / 4) {
    throw decode_error("the record has " + std::to_string(flag) + " labels, by its header, and " +
                           std::to_string(all.size() - head) + " bytes after it",
                       at);
  }
  const auto count = static_cast<std::size_t>(flag);
  for (std::size_t i = 0; i < (count == 0 ? 1 : count); ++i) {
    labels.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(number(count == 0 ? 4 : head + 4 * i, 4))));
  }
  id = number(8, 8);
  id2 = number(16, 8);
  data = record.slice(head + 4 * count, all.size() - head - 4 * count);
}

MILLRACE_INLINE sample mx_fields::operator()(sample s) const {
  if (s.weight() == 0) return s;
  mx_record all(s["record"], s.from.at(s.key));
  std::erase_if(s.fields, [](const field& f) { return f.extension == "record"; });
  std::string label;
  for (const float x : all.labels) {
    auto bits = std::bit_cast<std::uint32_t>(x);
    for (int k = 0; k < 4; ++k, bits >>= 8) label += static_cast<char>(bits & 0xff);
  }
  s.fields.emplace_back("data", std::move(all.data));
  s.fields.emplace_back("label", bytes::copy(label));
  constexpr float most = 16777216;  // up to here floats have every whole number
  const float first = all.labels.front();
  if (all.labels.size() == 1 && std::fabs(first) <= most && std::trunc(first) == first) {
    s.fields.emplace_back("cls", bytes::copy(std::to_string(static_cast<std::int64_t>(first))));
  }
  return s;
}

}  // namespace millrace
