// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: a function is no store: call it, as in fetch\(files\(\)\)
// expect: this is no store to fetch from: pass an s3::client, files\(\) or a std::shared_ptr<const storage>
// expect: fetch takes shards: a source of them comes first
// expect: fetch needs the store to read from, before its options
// errors: 5
// not: as_storage. was not declared
#include <millrace/flow/sources.hpp>

#include <memory>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/shards.hpp>

std::shared_ptr<const millrace::storage> disk() { return nullptr; }

int main() {
  namespace mill = millrace;
#ifdef MILLRACE_MUST_FAIL
  auto a = mill::shards("a.tar") | mill::fetch(disk);
  auto b = mill::shards("a.tar") | mill::fetch("s3://bucket/a.tar");
  auto c = mill::iota(3) | mill::fetch(disk());
  auto d = mill::shards("a.tar") | mill::fetch();
  auto e = mill::shards("a.tar") | mill::fetch({.shards = 2});
#else
  auto a = mill::shards("a.tar") | mill::fetch(disk());
#endif
}
