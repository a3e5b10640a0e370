// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/memory/bytes.hpp>
#include <millrace/tar/detail/unpacker.hpp>

namespace millrace::detail {

/// What one job of an unpacker made.
class unpack_step {
 public:
  unpack_step() = default;
  std::vector<bytes> out;
  bool hungry = false;  ///< it needs more input
  bool done = false;
  bool failed = false;  ///< for this reason, in front of this unpacked byte
  std::string reason;
  std::uint64_t offset = 0;
};

/// Gives an unpacker a piece of its input, or the end of it, and runs it until it needs more or has made 4 MiB. Keeps
/// it alive, whoever has been dropped meanwhile.
class unpack_job {
 public:
  unpack_job(std::shared_ptr<tar::detail::unpacker> u, bytes piece, bool last) noexcept
      : unpacker_(std::move(u)), piece_(std::move(piece)), last_(last) {}
  unpack_step operator()();

 private:
  std::shared_ptr<tar::detail::unpacker> unpacker_;
  bytes piece_;
  bool last_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/detail/impl/unpack_job.ipp>
#endif
