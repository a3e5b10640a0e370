// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/units.hpp>

#include <cstdint>
#include <limits>

#include <millrace/base/clock.hpp>

#include "tests/support/catch.hpp"

using millrace::format_bytes;
using millrace::format_count;

TEST_CASE("binary units") {
  CHECK(millrace::KiB == 1024);
  CHECK(millrace::MiB == 1048576);
  CHECK(millrace::GiB == 1073741824);
}

TEST_CASE("sums and products of sizes and times end at the largest") {
  using millrace::detail::added;
  using millrace::detail::multiplied;
  using millrace::detail::nanoseconds;
  CHECK(added(SIZE_MAX - 1, 1) == SIZE_MAX);
  CHECK(added(SIZE_MAX, 2) == SIZE_MAX);
  CHECK(multiplied(SIZE_MAX / 3, 3) == SIZE_MAX / 3 * 3);
  CHECK(multiplied(SIZE_MAX / 3 + 1, 3) == SIZE_MAX);
  CHECK(multiplied(0, SIZE_MAX) == 0);
  constexpr millrace::duration most = millrace::duration::max();
  constexpr millrace::duration one(1);
  CHECK(added(most - one, one) == most);
  CHECK(added(most, one) == most);
  CHECK(added(-most, -most) == millrace::duration::min());
  CHECK(added(one, -one).count() == 0);
  CHECK(added(millrace::time_point(one), one) == millrace::time_point(one + one));
  CHECK(added(millrace::time_point(one), most) == millrace::time_point::max());
  CHECK(nanoseconds(1e18).count() == 1'000'000'000'000'000'000);
  CHECK(nanoseconds(1e19) == most);
  CHECK(nanoseconds(static_cast<double>(most.count())) == most);
  CHECK(nanoseconds(-1).count() == 0);
  CHECK(nanoseconds(std::numeric_limits<double>::quiet_NaN()).count() == 0);
}

TEST_CASE("format_bytes shows three digits") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(512) == "512 B");
  CHECK(format_bytes(999) == "999 B");
  CHECK(format_bytes(1000) == "1.00 kB");
  CHECK(format_bytes(1840000000) == "1.84 GB");
  CHECK(format_bytes(16000000) == "16.0 MB");
  CHECK(format_bytes(123456) == "123 kB");
  CHECK(format_bytes(999400) == "999 kB");
  CHECK(format_bytes(5e15) == "5.00 PB");
  CHECK(format_bytes(5e18) == "5000 PB");
}

TEST_CASE("format_count shows three digits") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(950) == "950");
  CHECK(format_count(12345) == "12.3k");
  CHECK(format_count(4560000) == "4.56M");
  CHECK(format_count(1e12) == "1.00T");
}

TEST_CASE("rounding up takes the next form, never a fourth digit") {
  CHECK(format_bytes(999.6) == "1.00 kB");
  CHECK(format_bytes(9994) == "9.99 kB");
  CHECK(format_bytes(9996) == "10.0 kB");
  CHECK(format_bytes(99940) == "99.9 kB");
  CHECK(format_bytes(99960) == "100 kB");
  CHECK(format_bytes(999600) == "1.00 MB");
  CHECK(format_count(9996) == "10.0k");
  CHECK(format_count(99960) == "100k");
}
