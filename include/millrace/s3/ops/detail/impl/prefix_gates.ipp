// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/ops/detail/prefix_gates.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE prefix_gate& prefix_gates::gate(const std::string& endpoint, const std::string& bucket,
                                                const std::string& key) {
  if (gates_.size() >= 256) forget_idle();
  std::string name = endpoint;
  name += '\n';
  name += bucket;
  name += '/';
  if (key.find('/') != std::string::npos) name.append(key, 0, key.find('/'));
  return gates_[name];
}

}  // namespace millrace::s3::detail
