// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Archives that GNU tar and Python write at test time, read back here.

#include <millrace/tar/reader.hpp>

#include <map>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/tools.hpp"

namespace {

using namespace millrace;
using test::outcome;

using files = std::map<std::string, std::string>;

std::string random_body(rng& random, std::size_t size) {
  std::string body(size, '\0');
  for (char& c : body) c = static_cast<char>(random.next());
  return body;
}

/// Files whose names and sizes are where the formats have their seams. `longest` bounds the names.
files make_files(std::size_t longest) {
  rng random(11);
  files all;
  for (std::size_t size : {0, 1, 511, 512, 513, 10240, 100000}) {
    all["s" + std::to_string(size) + ".bin"] = random_body(random, size);
  }
  all["\xe6\x97\xa5\xe6\x9c\xac.jpg"] = "utf-8";
  all["a b.c'd"] = "blank";
  all[std::string(97, 'n')] = "99 with the ./ before it";
  if (longest >= 100) all[std::string(100, 'n')] = "100";
  if (longest >= 200) all[std::string(90, 'p') + "/" + std::string(90, 'n')] = "split at the slash";
  if (longest >= 300) {
    all[std::string(101, 'n')] = "101";
    all[std::string(120, 'p') + "/" + std::string(170, 'n')] = "long";
    all["latin-\xe9.txt"] = "not utf-8";
  }
  return all;
}

void write_files(const std::string& folder, const files& all) {
  for (const auto& [name, body] : all) {
    const std::size_t slash = name.find('/');
    if (slash != std::string::npos) test::shell("mkdir -p '" + folder + "/" + name.substr(0, slash) + "'");
    test::write_file(folder + "/" + name, body);
  }
}

void check(const std::string& path, const files& wanted) {
  const std::string text = test::read_file(path);
  const outcome got = test::read_tar(text);
  CAPTURE(test::describe(got));
  CHECK(got.error.empty());
  CHECK(got.warning.empty());
  files found;
  for (const test::member& m : got.members) {
    std::string name = m.name.rfind("./", 0) == 0 ? m.name.substr(2) : m.name;
    if (m.type == '0') found[name] = m.body;
  }
  CHECK(found.size() == wanted.size());
  for (const auto& [name, body] : wanted) {
    CAPTURE(name);
    CHECK(found.count(name) == 1);
    CHECK((found[name] == body));
  }
  for (const test::split& how : test::splits()) CHECK((test::read_tar(text, {}, how) == got));
}

}  // namespace

TEST_CASE("tar reader reads what GNU tar writes") {
  if (!test::shell("tar --version | grep -q 'GNU tar'")) MILLRACE_SKIP("no GNU tar");
  struct format {
    const char* name;
    std::size_t longest;
  };
  for (const format f :
       {format{"v7", 99}, format{"ustar", 200}, format{"gnu", 300}, format{"pax", 300}, format{"oldgnu", 300}}) {
    CAPTURE(f.name);
    const test::temporary_folder folder;
    const files wanted = make_files(f.longest);
    REQUIRE(test::shell("mkdir '" + folder.path() + "/in'"));
    write_files(folder.path() + "/in", wanted);
    REQUIRE(test::shell("cd '" + folder.path() + "/in' && ln -s s1.bin link && ln s511.bin zhard && mkdir zdir && " +
                        "LC_ALL=C tar --sort=name --format=" + f.name + " -cf ../out.tar ."));
    check(folder.path() + "/out.tar", wanted);
  }
}

TEST_CASE("tar reader reads what Python writes") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  const std::string script =
      "import sys, os, tarfile\n"
      "fmt = {'ustar': tarfile.USTAR_FORMAT, 'gnu': tarfile.GNU_FORMAT, 'pax': tarfile.PAX_FORMAT}[sys.argv[1]]\n"
      "with tarfile.open(sys.argv[3], 'w', format=fmt) as t:\n"
      "    for d, _, names in os.walk(sys.argv[2]):\n"
      "        for n in names:\n"
      "            p = os.path.join(d, n)\n"
      "            i = tarfile.TarInfo(os.path.relpath(p, sys.argv[2]))\n"
      "            i.size = os.path.getsize(p)\n"
      "            if sys.argv[1] == 'pax': i.mtime = 1700000000.123456\n"  // as WebDataset writes it
      "            t.addfile(i, open(p, 'rb'))\n";
  struct format {
    const char* name;
    std::size_t longest;
  };
  for (const format f : {format{"ustar", 200}, format{"gnu", 300}, format{"pax", 300}}) {
    CAPTURE(f.name);
    const test::temporary_folder folder;
    const files wanted = make_files(f.longest);
    REQUIRE(test::shell("mkdir '" + folder.path() + "/in'"));
    write_files(folder.path() + "/in", wanted);
    test::write_file(folder.path() + "/pack.py", script);
    REQUIRE(test::shell("cd '" + folder.path() + "' && python3 pack.py " + f.name + " in out.tar"));
    check(folder.path() + "/out.tar", wanted);
  }
}
