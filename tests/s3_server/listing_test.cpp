// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/store.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

namespace detail = millrace::s3_server::detail;
using names = std::vector<std::string>;

detail::object_map objects(const names& keys) {
  detail::object_map all;
  for (const std::string& key : keys) all[key] = std::make_shared<const millrace::s3_server::object>();
  return all;
}

/// Every page of a listing in pages of `limit`: keys as they are, rolled-up prefixes in brackets.
names listed(const detail::object_map& all, const std::string& prefix, const std::string& delimiter, std::size_t limit,
             detail::list_position from = {}) {
  names out;
  for (int pages = 0; pages < 100; ++pages) {
    const detail::list_page page = detail::list(all, prefix, delimiter, from, limit);
    names these;
    for (const auto& [key, entry] : page.objects) these.push_back(key);
    for (const std::string& p : page.prefixes) these.push_back('[' + p + ']');
    CHECK(these.size() <= limit);
    CHECK(!(page.truncated && these.empty()));
    out.insert(out.end(), these.begin(), these.end());
    if (!page.truncated) break;
    from = page.next;
  }
  std::sort(out.begin(), out.end());
  return out;
}

TEST_CASE("prefix and delimiter, whatever the size of a page") {
  const detail::object_map all =
      objects({"a", "a/", "a/1", "a/2/x", "a/2/y", "a0", "b/1", "b\xff", "b\xff\xff/1", "c"});
  for (std::size_t limit : {1u, 2u, 3u, 1000u}) {
    INFO(limit);
    CHECK(listed(all, "", "", limit) ==
          names{"a", "a/", "a/1", "a/2/x", "a/2/y", "a0", "b/1", "b\xff", "b\xff\xff/1", "c"});
    CHECK(listed(all, "", "/", limit) == names{"[a/]", "[b/]", "[b\xff\xff/]", "a", "a0", "b\xff", "c"});
    CHECK(listed(all, "a/", "/", limit) == names{"[a/2/]", "a/", "a/1"});
    CHECK(listed(all, "a/2", "/", limit) == names{"[a/2/]"});
    CHECK(listed(all, "b\xff", "", limit) == names{"b\xff", "b\xff\xff/1"});
    CHECK(listed(all, "x", "/", limit).empty());
    CHECK(listed(all, "", "/2/", limit) == names{"[a/2/]", "a", "a/", "a/1", "a0", "b/1", "b\xff", "b\xff\xff/1", "c"});
  }
}

TEST_CASE("start-after is exclusive and may name no key") {
  const detail::object_map all = objects({"a", "b/1", "b/2", "c"});
  CHECK(listed(all, "", "", 10, {"a", false}) == names{"b/1", "b/2", "c"});
  CHECK(listed(all, "", "", 10, {"b/1x", false}) == names{"b/2", "c"});
  CHECK(listed(all, "", "/", 10, {"b/1", false}) == names{"[b/]", "c"});
  CHECK(listed(all, "b/", "", 10, {"a", false}) == names{"b/1", "b/2"});
  CHECK(listed(all, "b/", "", 10, {"z", false}).empty());
  CHECK(listed(all, "a", "", 10, {"c", false}).empty());
}

TEST_CASE("a page that ends exactly at the end is not truncated; one of no keys neither") {
  const detail::object_map all = objects({"a", "b"});
  CHECK(!detail::list(all, "", "", {}, 2).truncated);
  CHECK(detail::list(all, "", "", {}, 1).truncated);
  CHECK(!detail::list(all, "", "", {}, 0).truncated);
}

}  // namespace
