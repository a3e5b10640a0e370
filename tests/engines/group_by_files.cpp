// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engines/training.hpp"

#include <string>

#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/shards/file_storage.hpp>

int test::with_group(int, char** arguments, const std::function<int(const millrace::rank_group&)>& train) {
  const std::string folder = std::string(arguments[1]) + "/ranks/";
  return train(millrace::rank_group(millrace::rank_from_environment(), millrace::files(), folder));
}
