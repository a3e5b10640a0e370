// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/units.hpp>

#include "tests/support/catch.hpp"

using millrace::format_bytes;
using millrace::format_count;

TEST_CASE("binary units") {
  CHECK(millrace::KiB == 1024);
  CHECK(millrace::MiB == 1048576);
  CHECK(millrace::GiB == 1073741824);
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
