// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Which names of files glob() and brace lists stand for.

#include <millrace/shards/file_storage.hpp>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using names = std::vector<std::string>;

namespace {

task<void> collect(stream<shard> in, names& out) {
  while (std::optional<shard> s = co_await in.next()) out.push_back(s->url);
}
/// What the pattern stands for below the folder.
names below(const std::string& folder, const std::string& pattern) {
  testing::virtual_loop loop;
  names out;
  block_on(loop, collect(glob(folder + pattern), out));
  for (std::string& n : out) n.erase(0, folder.size());
  return out;
}
std::string problem(const std::string& pattern) {
  try {
    below(std::string(), pattern);
  } catch (const error& e) {
    return e.what();
  }
  return "(nothing)";
}

void make_file(const std::string& name) {
  std::FILE* f = std::fopen(name.c_str(), "w");
  REQUIRE(f != nullptr);
  REQUIRE(std::fclose(f) == 0);
}

/// Sets the locale that sorts names in another order than their bytes do, if there is one, and the old one at the end.
class sorting_locale {
 public:
  sorting_locale() : before_(std::setlocale(LC_ALL, nullptr)) {
    for (const char* name : {"", "en_US.UTF-8", "en_GB.UTF-8", "de_DE.UTF-8", "fr_FR.UTF-8", "en_US.utf8"}) {
      if (std::setlocale(LC_ALL, name) != nullptr && std::strcoll("B", "a-1") > 0) {
        found = true;
        return;
      }
    }
  }
  ~sorting_locale() { std::setlocale(LC_ALL, before_.c_str()); }

  bool found = false;

 private:
  const std::string before_;
};

names unordered_names(test::temporary_folder& folder) {
  const names sorted{"/B", "/C", "/a", "/a-1", "/a.b", "/a_2", "/ab", "/\xc3\xa4"};
  for (const std::size_t i : {5, 2, 7, 0, 4, 1, 6, 3}) make_file(folder.file(sorted[i].substr(1)));
  return sorted;
}

}  // namespace

TEST_CASE("glob() gives names in the order of their bytes", "[glob]") {
  test::temporary_folder folder;
  const names sorted = unordered_names(folder);
  CHECK(below(folder.path(), "/*") == sorted);
  CHECK(below(folder.path(), "/a[-_]*") == names{"/a-1", "/a_2"});
}

TEST_CASE("glob() leaves out an index that lies among the shards, and says so", "[glob]") {
  test::temporary_folder folder;
  for (const char* name : {"a.tar", "millrace.index", "millrace.index.part", "other.index", "zmillrace.index"}) {
    make_file(folder.file(name));
  }
  test::captured_stderr said(test::captured_stderr::into::pipe);
  CHECK(below(folder.path(), "/*") == names{"/a.tar", "/other.index", "/zmillrace.index"});
  CHECK(below(folder.path(), "/*") == names{"/a.tar", "/other.index", "/zmillrace.index"});
  CHECK(below(folder.path(), "/millrace.index") == names{"/millrace.index"});  // asked for by name
  const std::string text = said.text();
  CHECK(text == "millrace: the listing leaves out an index: " + folder.file("millrace.index") + "\n" +
                    "millrace: the listing leaves out an index: " + folder.file("millrace.index.part") + "\n");
}

TEST_CASE("glob() gives names in the same order under every locale", "[glob][outside]") {
  test::temporary_folder folder;
  const names sorted = unordered_names(folder);
  const sorting_locale other;
  if (!other.found) MILLRACE_SKIP("no locale here sorts otherwise than by bytes");
  CHECK(below(folder.path(), "/*") == sorted);
}

TEST_CASE("glob() tells of a folder that it cannot read, and passes over what is none", "[glob]") {
  test::temporary_folder folder;
  const std::string open = folder.path() + "/open";
  const std::string shut = folder.path() + "/shut";
  make_file(folder.file("file"));
  REQUIRE(::symlink("nowhere", folder.file("link").c_str()) == 0);
  for (const std::string& f : {open, shut}) {
    REQUIRE(::mkdir(f.c_str(), 0755) == 0);
    make_file(f + "/1.tar");
  }
  CHECK(below(folder.path(), "/*/*.tar") == names{"/open/1.tar", "/shut/1.tar"});

  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::chmod(shut.c_str(), 0) == 0);
  const uid_t user = ::geteuid();
  const bool as_other = user != 0 || ::seteuid(65534) == 0;  // the super-user reads everything
  const std::string refused = problem(folder.path() + "/*/*.tar");
  const bool back = ::seteuid(user) == 0;
  for (const std::string& f : {open, shut}) {
    ::chmod(f.c_str(), 0755);
    ::unlink((f + "/1.tar").c_str());
    ::rmdir(f.c_str());
  }
  REQUIRE(back);
  if (!as_other) MILLRACE_SKIP("the super-user cannot become another user here");
  CHECK_THAT(refused, Contains(folder.path() + "/*/*.tar: cannot read a folder: " + std::strerror(EACCES)));
}

TEST_CASE("glob() without a descriptor left is an error", "[glob]") {
  test::temporary_folder folder;
  make_file(folder.file("1.tar"));
  const std::string pattern = folder.path() + "/*.tar";
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const std::string refused = problem(pattern);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK_THAT(refused, Contains("cannot read a folder: " + std::string(std::strerror(EMFILE))));
  CHECK(problem(pattern) == "(nothing)");
}

TEST_CASE("a pattern that nothing matches is an error", "[glob]") {
  test::temporary_folder folder;
  for (const char* pattern : {"/*", "/none/*", "/file", "/*/*"}) {
    CHECK_THROWS_WITH(below(folder.path(), pattern), Contains(pattern) && Contains("no file matches"));
  }
}

TEST_CASE("brace lists within brace lists are refused, not half expanded", "[shards]") {
  for (const char* nested : {"x-{a,{b,c}}.tar", "x-{{0..2},7}.tar", "x-{{0..2}}.tar", "{a,{b}", "{{"}) {
    CHECK_THROWS_WITH(expand_braces(nested), Contains(nested));
  }
  CHECK_THROWS_WITH(expand_braces("x-{a,{b,c}}.tar"), Contains("cannot be nested"));
  CHECK_THROWS_WITH(shards("s3://b/*.tar"), Contains("s3://b/*.tar") && Contains("are not looked up: list them"));
  CHECK(expand_braces("{a,b}-{0..1}.tar") == names{"a-0.tar", "a-1.tar", "b-0.tar", "b-1.tar"});
  CHECK(expand_braces("x}.tar") == names{"x}.tar"});
}

TEST_CASE("numbers of a brace range are as wide as the first one is written", "[shards]") {
  const names all = expand_braces("s3://b/train-{0000..1023}.tar");
  REQUIRE(all.size() == 1024);
  CHECK(all.front() == "s3://b/train-0000.tar");
  CHECK(all[7] == "s3://b/train-0007.tar");
  CHECK(all.back() == "s3://b/train-1023.tar");
  CHECK(expand_braces("{8..11}") == names{"8", "9", "10", "11"});
  CHECK(expand_braces("{008..11}") == names{"008", "009", "010", "011"});
  CHECK(expand_braces("{99..100}-{a,b}") == names{"99-a", "99-b", "100-a", "100-b"});
  for (const char* wrong : {"{5..3}", "{..3}", "{1..}", "{a..b}", "{-1..3}", "{0..99999999}", "{a}", "{0..3"}) {
    CHECK_THROWS_AS(expand_braces(wrong), configuration_error);
  }
}
