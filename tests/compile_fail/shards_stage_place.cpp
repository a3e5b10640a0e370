// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the right side of \| is not a stage for these items: it cannot be called with the async_generator on the left

#include <millrace/shards/fetch.hpp>

#include <memory>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar.hpp>

int main() {
  std::shared_ptr<const millrace::storage> disk;
#ifdef MILLRACE_MUST_FAIL
  auto members = millrace::shards("a.tar") | millrace::untar();
#else
  auto members = millrace::shards("a.tar") | millrace::fetch(disk) | millrace::untar();
#endif
}
