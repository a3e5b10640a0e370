// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Compiled by nvcc, and no more: millrace.hpp, and what it takes to read samples from S3 in a .cu.

#include <cstddef>
#include <string_view>
#include <utility>

#include <millrace/millrace.hpp>
#include <millrace/millrace_cuda.hpp>

namespace mill = millrace;

std::size_t bytes_of(const mill::s3::client& s3, std::string_view prefix) {
  auto samples = s3.list(prefix) | mill::shuffle_shards({.seed = 7}) | mill::fetch(s3) | mill::untar() |
                 mill::group_samples() | mill::shuffle();
  std::size_t total = 0;
  for (mill::sample& s : mill::run(std::move(samples))) total += byte_size(s);
  return total;
}
