// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: a range is not a generator: .*, or shards\(names\) \| stage where they are names of shards
// errors: 1
#include <memory>
#include <string>
#include <vector>

#include <millrace/shards/fetch.hpp>
#include <millrace/shards/shards.hpp>

int main() {
  std::shared_ptr<const millrace::storage> disk;
  std::vector<std::string> names{"a.tar", "b.tar"};
#ifdef MILLRACE_MUST_FAIL
  auto chunks = names | millrace::fetch(disk);
#else
  auto chunks = millrace::shards(names) | millrace::fetch(disk);
#endif
}
