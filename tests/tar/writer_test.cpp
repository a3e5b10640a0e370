// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/tar/writer.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/tools.hpp"

namespace {

using namespace millrace;
using test::outcome;

struct file {
  std::string name;
  std::string body;
  std::int64_t mtime_ns;
};

std::vector<file> files() {
  return {{"a.jpg", "abc", 0},
          {"dir/empty", "", 1700000000000000000},
          {"dir/time", "t", 1700000000123456000},
          {std::string(100, 'n'), std::string(512, 'x'), 0},
          {std::string(101, 'n'), std::string(513, 'y'), 1500000000},
          {std::string(120, 'd') + "/" + std::string(200, 'n'), std::string(100000, 'z'), 1},
          {"\xe6\x97\xa5\xe6\x9c\xac.jpg", "utf-8", 0}};
}

std::string pack() {
  std::string text;
  tar::writer archive(text);
  for (const file& f : files()) archive.add(f.name, f.body, {.mtime_ns = f.mtime_ns});
  archive.finish();
  CHECK(archive.bytes_written() == text.size());
  return text;
}

}  // namespace

TEST_CASE("tar writer's archives are read back") {
  const outcome got = test::read_tar(pack());
  CHECK(got.error.empty());
  CHECK(got.warning.empty());
  const std::vector<file> wanted = files();
  REQUIRE(got.members.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK(got.members[i].name == wanted[i].name);
    CHECK((got.members[i].body == wanted[i].body));
    CHECK(got.members[i].type == '0');
  }
  CHECK(pack() == pack());
}

TEST_CASE("tar writer writes pieces to any sink") {
  std::vector<std::string> pieces;
  tar::writer archive([&](std::string_view piece) { pieces.emplace_back(piece); });
  archive.begin("a", 6);
  archive.write("abc");
  archive.write("");
  archive.write("def");
  archive.end();
  archive.finish();
  std::string text;
  for (const std::string& p : pieces) {
    CHECK(!p.empty());
    text += p;
  }
  const outcome got = test::read_tar(text);
  REQUIRE(got.members.size() == 1);
  CHECK(got.members[0].body == "abcdef");
}

TEST_CASE("tar writer announces sizes of 8 GiB and more by pax") {
  const std::uint64_t limit = std::uint64_t(8) << 30;
  for (std::uint64_t size : {limit - 1, limit, std::uint64_t(1) << 45}) {
    CAPTURE(size);
    std::string text;
    tar::writer archive(text);
    archive.begin("huge", size);
    CHECK(text.size() == (size < limit ? 512u : 1536u));
    const outcome got = test::read_tar(text, {.max_member_bytes = INT64_MAX});
    CHECK(got.error == "the archive is cut inside a member: 0 of " + std::to_string(size) + " bytes are there");
  }
}

TEST_CASE("tar writer refuses what tar cannot hold") {
  std::string text;
  tar::writer archive(text);
  CHECK_THROWS_AS(archive.add("", "x"), archive_error);
  CHECK_THROWS_AS(archive.add(std::string("a\0b", 3), "x"), archive_error);
  CHECK_THROWS_AS(archive.add("dir/", "x"), archive_error);
  CHECK_THROWS_AS(archive.add("a", "x", {.mtime_ns = -1}), archive_error);
  CHECK_THROWS_AS(archive.begin("a", UINT64_MAX), archive_error);
  CHECK_THROWS_AS(archive.write("x"), archive_error);
  CHECK(text.empty());
  archive.begin("a", 2);
  CHECK_THROWS_AS(archive.begin("b", 1), archive_error);
  CHECK_THROWS_AS(archive.write("xyz"), archive_error);
  archive.write("x");
  CHECK_THROWS_AS(archive.end(), archive_error);
  CHECK_THROWS_AS(archive.finish(), archive_error);
}

TEST_CASE("tar writer's archives are read by GNU tar") {
  if (!test::shell("tar --version | grep -q 'GNU tar'")) MILLRACE_SKIP("no GNU tar");
  const test::temporary_folder folder;
  test::write_file(folder.path() + "/a.tar", pack());
  REQUIRE(test::shell("cd '" + folder.path() + "' && mkdir out && tar -xf a.tar -C out"));
  for (const file& f : files()) CHECK((test::read_file(folder.path() + "/out/" + f.name) == f.body));
}

TEST_CASE("tar writer's archives are read by Python") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  const test::temporary_folder folder;
  test::write_file(folder.path() + "/a.tar", pack());
  test::write_file(folder.path() + "/list.py",
                   "import tarfile, sys\n"
                   "out = open('list', 'wb')\n"
                   "t = tarfile.open('a.tar')\n"
                   "for i in t:\n"
                   "    assert i.isreg() and i.mode == 0o644\n"
                   "    out.write(i.name.encode() + b' %d %.6f\\n' % (len(t.extractfile(i).read()), i.mtime))\n");
  REQUIRE(test::shell("cd '" + folder.path() + "' && python3 list.py"));
  std::string wanted;
  for (const file& f : files()) {
    char rest[64];
    std::snprintf(rest, sizeof rest, " %zu %.6f\n", f.body.size(), static_cast<double>(f.mtime_ns) / 1e9);
    wanted += f.name + rest;
  }
  CHECK(test::read_file(folder.path() + "/list") == wanted);
}
