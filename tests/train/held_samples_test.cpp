// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/detail/held_samples.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

// What a sample that is read again, by its place, is held against.
namespace {

std::string tar_member(const std::string& name, std::size_t size) {
  test::header_block h;
  h.name = name;
  return test::raw_member(h, std::string(size, name[0]));
}

/// The sample whose place begins at byte 1024 of a shard and is as long as `data`.
sample read_again(std::string_view data) {
  auto from = std::make_shared<shard>("s3://b/shard.tar", 100000);
  from->seed = 7;
  from->epoch = 3;
  detail::window_order::spot spot;
  spot.begin = 1024;
  spot.end = 1024 + data.size();
  spot.ordinal = 5;
  return detail::sample_at(spot, from, bytes::copy(data));
}

}  // namespace

TEST_CASE("a sample that is read again is that which ends where the state says") {
  const std::string whole = tar_member("a.jpg", 700) + tar_member("a.cls", 1);
  const sample s = read_again(whole);
  CHECK(s.key == "a");
  CHECK(s["jpg"].view() == std::string(700, 'a'));
  CHECK(s["cls"].view() == "a");
  CHECK(s.from.offset == 1024);
  CHECK(s.from.end == 1024 + whole.size());
  CHECK(s.from.ordinal == 5);
  CHECK(s.mark.epoch == 3);
}

TEST_CASE("another sample at the place of one that is read again is an error that says where") {
  const char* const gone = "resume: the sample that the window had from here is not there any more";
  // It ends before: two samples, a shorter one with another or the shard's end after it.
  CHECK_THROWS_WITH(read_again(tar_member("a.jpg", 100) + tar_member("b.jpg", 100)), Contains(gone));
  CHECK_THROWS_WITH(read_again(tar_member("a.jpg", 100) + test::end_block()), Contains(gone));
  CHECK_THROWS_WITH(read_again(tar_member("a.jpg", 100) + tar_member("README", 100)), Contains(gone));
  CHECK_THROWS_AS(read_again(tar_member("a.jpg", 100) + tar_member("b.jpg", 100)), changed_error);
  // It ends after: its last member is cut.
  CHECK_THROWS_WITH(read_again(tar_member("a.jpg", 100) + tar_member("a.cls", 2000).substr(0, 1024)), Contains(gone));
  // There is none.
  CHECK_THROWS_WITH(read_again(test::end_block()), Contains(gone));
  CHECK_THROWS_WITH(read_again(tar_member("README", 100)), Contains(gone));
  try {
    read_again(test::end_block());
    FAIL("not refused");
  } catch (const changed_error& e) {
    CHECK_THAT(e.what(), Contains("s3://b/shard.tar"));
    CHECK_THAT(e.what(), Contains("1024"));
  }
}
