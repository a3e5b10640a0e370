// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/tar/detail/header.hpp>
#include <millrace/tar/detail/input.hpp>
#include <millrace/tar/detail/pax.hpp>
#include <millrace/tar/reader_options.hpp>

namespace millrace::tar::detail {

/// Collects the extended headers before a member: pax 'x' and 'g', Solaris 'X', GNU long names 'L' and 'K'.
class extended_headers {
 public:
  static bool is_type(char type) noexcept {
    return type == 'x' || type == 'L' || type == 'g' || type == 'K' || type == 'X';
  }

  /// Starts on a header with a payload of `size` bytes. False: it is refused, see refusal().
  bool begin(char type, std::uint64_t size, const reader_options& options) noexcept;

  /// Why begin() refused the header.
  static std::string refusal(char type, std::uint64_t size) {
    if (type == 'L' || type == 'K') return "a name is longer than max_name_bytes";
    return "a pax header of " + std::to_string(size) + " bytes is larger than max_pax_bytes";
  }

  /// Reads and applies the payload. False: more input is needed. What is wrong with it goes to `problem`.
  bool read(input& in, const reader_options& options, pax_problem& problem);

  /// Bytes of the payload.
  std::size_t size() const noexcept { return wanted_; }

  /// True when a header has been read that a member must follow.
  bool pending() const noexcept { return pending_; }

  /// The member's name, which `block` has when no extended header says otherwise.
  void assign_name(std::string& name, const char* block);

  /// Applies the rest to the member and forgets it.
  void finish_member(std::uint64_t& size, bool& sparse) noexcept;

 private:
  pax_problem apply(std::string_view payload, std::size_t max_name);

  pax_problem apply_other(std::string_view payload, std::size_t max_name);

  char type_ = 0;
  bool pending_ = false;
  bool has_long_name_ = false;
  std::size_t wanted_ = 0;
  pax_records pax_;
  std::string long_name_;
  std::string gathered_;
};

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/impl/extended.ipp>
#endif
