// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The archives that Go, CPython and WebDataset test their readers with, against what those tests demand.

#include <millrace/tar/reader.hpp>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/digests.hpp"

namespace {

using namespace millrace;
using test::member;
using test::outcome;

using table = std::vector<std::vector<std::string>>;

/// Where this reader decides otherwise than the table, and why.
struct difference {
  enum kind { sparse, refused, accepted } what;
  const char* reason;
};
const std::map<std::string, difference>& differences() {
  const char* const no_sparse = "sparse members are refused";
  static const std::map<std::string, difference> all = {
      {"go/sparse-formats.tar", {difference::sparse, no_sparse}},
      {"go/gnu-incremental.tar", {difference::sparse, no_sparse}},
      {"go/gnu-nil-sparse-data.tar", {difference::sparse, no_sparse}},
      {"go/gnu-nil-sparse-hole.tar", {difference::sparse, no_sparse}},
      {"go/gnu-sparse-big.tar", {difference::sparse, no_sparse}},
      {"go/pax-nil-sparse-data.tar", {difference::sparse, no_sparse}},
      {"go/pax-nil-sparse-hole.tar", {difference::sparse, no_sparse}},
      {"go/pax-sparse-big.tar", {difference::sparse, no_sparse}},
      {"cpython/testtar.tar", {difference::sparse, no_sparse}},
      {"go/pax-path-hdr.tar", {difference::refused, "an extended header without a member is a cut archive"}},
      {"go/writer-big.tar",
       {difference::refused, "a member is delivered whole or not at all: 16 GiB are over the cap"}},
      {"go/writer-big-long.tar", {difference::refused, "as writer-big.tar"}},
      {"go/pax-bad-mtime-file.tar", {difference::accepted, "times are not read"}},
  };
  return all;
}

std::map<std::string, table> expectations(const std::string& folder, const std::string& corpus) {
  std::map<std::string, table> by_file;
  for (auto& row : test::read_table(folder + "/tar/" + corpus + "/EXPECTED.tsv")) {
    REQUIRE(row.size() >= 8);
    by_file[corpus + "/" + row[0]].push_back(row);
  }
  return by_file;
}

bool type_matches(const std::string& wanted, const member& m) {
  static const std::map<std::string, std::string> types = {
      {"reg", "07"}, {"cont(7)", "7"}, {"dir", "5"},  {"hardlink", "1"},       {"symlink", "2"},
      {"chr", "3"},  {"blk", "4"},     {"fifo", "6"}, {"gnu-dumpdir(D)", "D"},
  };
  const auto found = types.find(wanted);
  return found != types.end() && found->second.find(m.type) != std::string::npos;
}

void check_member(const std::vector<std::string>& row, const member& m) {
  CAPTURE(row[0], row[3], m.name, m.type);
  CHECK(type_matches(row[3], m));
  if (m.type != '0' && m.type != '7') {
    CHECK(m.body.empty());
    if (row[3] == "gnu-dumpdir(D)") CHECK(std::to_string(m.size) == row[5]);
    if (std::string("123456").find(m.type) != std::string::npos) CHECK(m.size == 0);
    return;
  }
  if (row[5] != "-") CHECK(std::to_string(m.size) == row[5]);
  CHECK(m.body.size() == m.size);
  if (row[7].rfind("md5:", 0) == 0) CHECK(test::md5_hex(m.body) == row[7].substr(4));
  if (row[7].rfind("sha256:", 0) == 0) CHECK(test::sha256_hex(m.body) == row[7].substr(7));
}

void check_members(const table& rows, const outcome& got) {
  std::size_t next = 0;
  for (const auto& row : rows) {
    CAPTURE(row[0], row[2], row[4]);
    if (row[3] == "global" || row[3] == "-") continue;  // global headers describe; they are no members
    const std::string name = test::unescape_bytes(row[4]);
    const auto matches = [&](const member& m) {
      const bool table_cut_it =
          name.find('*') != std::string::npos && m.name.rfind(name.substr(0, name.find('*')), 0) == 0;
      return m.name == name || m.name == name + "/" || table_cut_it;
    };
    const member* found = nullptr;
    if (row[2] != "-") {
      if (next < got.members.size() && matches(got.members[next])) found = &got.members[next++];
    } else {
      for (const member& m : got.members) {
        if (matches(m)) found = &m;
      }
    }
    REQUIRE(found != nullptr);
    check_member(row, *found);
  }
  if (rows.front()[2] != "-") CHECK(next == got.members.size());
}

void check_corpus(const std::string& corpus, int files_wanted) {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data folder");
  int files = 0;
  for (const auto& [file, rows] : expectations(folder, corpus)) {
    if (file.find(".tar") == std::string::npos || file.find(".bz2") != std::string::npos) continue;
    CAPTURE(file);
    const std::string text = test::read_file(folder + "/tar/" + file);
    const auto differs = differences().find(file);
    const outcome strict = test::read_tar(text);
    CAPTURE(test::describe(strict));
    for (const test::split& how : test::splits()) {
      CAPTURE(how.size, how.seed);
      CHECK((test::read_tar(text, {}, how) == strict));
    }
    const bool error_wanted = rows.front()[1] != "ok";
    if (differs == differences().end()) {
      CHECK(strict.error.empty() == !error_wanted);
      if (error_wanted) CHECK(strict.error_offset.has_value());
      if (!error_wanted) check_members(rows, strict);
    } else {
      CAPTURE(differs->second.reason);
      switch (differs->second.what) {
        case difference::sparse:
          CHECK(strict.error == "sparse members are not supported");
          CHECK(strict.error_offset.has_value());
          break;
        case difference::refused:
          CHECK(!error_wanted);
          CHECK(!strict.error.empty());
          CHECK(strict.error_offset.has_value());
          break;
        case difference::accepted:
          CHECK(error_wanted);
          CHECK(strict.error.empty());
          break;
      }
    }
    ++files;
  }
  CHECK(files == files_wanted);
}

}  // namespace

TEST_CASE("tar digests are right") {
  CHECK(test::md5_hex("abc") == "900150983cd24fb0d6963f7d28e17f72");
  CHECK(test::sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("tar reader agrees with the tables of Go's archives") { check_corpus("go", 42); }

TEST_CASE("tar reader agrees with the tables of CPython's archives") { check_corpus("cpython", 2); }

TEST_CASE("tar reader refuses the pax records that CPython refuses") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data folder");
  int records = 0;
  for (const auto& row : test::read_table(folder + "/tar/cpython/EXPECTED.tsv")) {
    if (row[0].rfind("(pax record) ", 0) != 0) continue;
    std::string record = row[0].substr(13);
    REQUIRE(record.substr(record.size() - 2) == "\\n");
    record.replace(record.size() - 2, 2, "\n");
    CAPTURE(record);
    const outcome got = test::read_tar(test::pax_header(record) + test::header_block().text() + test::end_block());
    CHECK(!got.error.empty());
    CHECK(got.error_offset == 512u);
    ++records;
  }
  CHECK(records == 10);
}

TEST_CASE("tar reader reads WebDataset's own shards", "[slow]") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data folder");
  for (const auto& row : test::read_table(folder + "/tar/webdataset/EXPECTED.tsv")) {
    if (row[0].find(".tgz") != std::string::npos) continue;
    CAPTURE(row[0]);
    const std::string text = test::read_file(folder + "/tar/webdataset/" + row[0]);
    const outcome whole = test::read_tar(text);
    CHECK(whole.error.empty());
    int regular = 0;
    for (const member& m : whole.members) regular += m.type == '0';
    CHECK(std::to_string(regular) == row[1]);
    for (const test::split& how : test::splits()) CHECK((test::read_tar(text, {}, how) == whole));
  }
}
