// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/tar/reader.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include <millrace/memory/bytes.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"

namespace {

using namespace millrace;
using test::end_block;
using test::header_block;
using test::outcome;
using test::pax_header;
using test::pax_record;
using test::raw_member;

/// The only member of an archive that must be right.
test::member only_member(const std::string& text, tar::reader_options options = {}) {
  const outcome got = test::read_tar(text + end_block(), options);
  CAPTURE(test::describe(got));
  REQUIRE(got.error.empty());
  REQUIRE(got.members.size() == 1);
  return got.members.front();
}

std::string error_of(const std::string& text, tar::reader_options options = {}) {
  const outcome got = test::read_tar(text + end_block(), options);
  REQUIRE(got.error_offset.has_value());
  for (const test::split& how : test::splits()) CHECK((test::read_tar(text + end_block(), options, how) == got));
  return got.error + " @" + std::to_string(*got.error_offset);
}

}  // namespace

TEST_CASE("tar bodies in one piece are slices of it and others are gathered") {
  const std::string text =
      raw_member({.name = "a"}, std::string(600, 'a')) + raw_member({.name = "b"}, std::string(600, 'b')) + end_block();
  writable_bytes slab = writable_bytes::allocate(text.size());
  std::copy(text.begin(), text.end(), slab.data());
  tar::reader reader("x.tar");
  tar::entry e;
  reader.feed(slab.share(0, 1700 + 512));  // in the middle of b
  REQUIRE(reader.next(e));
  CHECK(e.name == "a");
  CHECK(e.body.data() == slab.data() + 512);
  CHECK(e.is_regular());
  CHECK(!reader.next(e));
  CHECK(!reader.done());
  reader.feed(slab.share(2212, text.size() - 2212));
  REQUIRE(reader.next(e));
  CHECK(e.name == "b");
  CHECK((e.body.data() < slab.data() || e.body.data() >= slab.data() + slab.capacity()));
  CHECK(e.body.view() == std::string(600, 'b'));
  CHECK(e.body.retained() == 600);
  CHECK(!reader.next(e));
  CHECK(reader.done());
  CHECK(reader.warning().empty());
}

TEST_CASE("tar body that begins with a piece is a slice of it") {
  const std::string text = raw_member({}, std::string(600, 'a'));
  const bytes second = bytes::copy(text.substr(512));
  tar::reader reader("x.tar");
  tar::entry e;
  reader.feed(bytes::copy(text.substr(0, 512)));
  CHECK(!reader.next(e));
  reader.feed(second);
  REQUIRE(reader.next(e));
  CHECK(e.body.data() == second.data());
}

TEST_CASE("tar pieces may be fed ahead and are let go when read") {
  const std::string text = raw_member({}, "abc") + raw_member({}, "def") + end_block();
  tar::reader reader("x.tar");
  for (char c : text) reader.feed(bytes::copy(std::string(1, c)));
  reader.finish();
  tar::entry e;
  CHECK(!reader.done());
  REQUIRE(reader.next(e));
  CHECK(e.body.view() == "abc");
  REQUIRE(reader.next(e));
  CHECK(e.body.view() == "def");
  CHECK(!reader.next(e));
  CHECK(reader.done());
}

TEST_CASE("tar errors name object, offset and member, and stay") {
  tar::reader reader("s3://bucket/x.tar");
  tar::entry e;
  reader.feed(bytes::copy(raw_member({.name = "cut.jpg"}, "0123456789").substr(0, 515)));
  CHECK(!reader.next(e));
  for (int i = 0; i < 2; ++i) {
    try {
      i == 0 ? reader.finish() : void(reader.next(e));
      FAIL("no error");
    } catch (const archive_error& error) {
      CHECK(std::string(error.what()) ==
            "s3://bucket/x.tar at byte 515, cut.jpg: the archive is cut inside a member: 3 of 10 bytes are there");
      CHECK(error.key() == "cut.jpg");
    }
  }
  CHECK(!reader.done());
}

TEST_CASE("tar finish() hands out whole members before it tells of the cut") {
  tar::reader reader("x.tar");
  tar::entry e;
  reader.feed(bytes::copy(raw_member({}, "whole") + raw_member({}, "cut").substr(0, 513)));
  reader.finish();
  REQUIRE(reader.next(e));
  CHECK(e.body.view() == "whole");
  CHECK_THROWS_AS(reader.next(e), archive_error);
}

TEST_CASE("tar reader can be moved in the middle of a member") {
  const std::string text = raw_member({}, std::string(2000, 'm')) + end_block();
  tar::reader first("x.tar");
  tar::entry e;
  first.feed(bytes::copy(text.substr(0, 1000)));
  CHECK(!first.next(e));
  tar::reader second = std::move(first);
  second.feed(bytes::copy(text.substr(1000)));
  REQUIRE(second.next(e));
  CHECK(e.body.view() == std::string(2000, 'm'));
}

TEST_CASE("tar checksums may be of signed bytes, and must be right") {
  header_block odd{.name = "\xc4\xd6", .signed_checksum = true};
  CHECK(only_member(odd.text()).name == "\xc4\xd6");
  std::string broken = header_block().text();
  broken[0] ^= 1;
  CHECK(error_of(broken) == "not a tar archive: the first header has a wrong checksum @0");
  CHECK(error_of(header_block().text() + broken) == "a header has a wrong checksum @512");
  std::string no_number = header_block().text();
  no_number[150] = 'z';
  CHECK(error_of(no_number) == "not a tar archive: the first header has a wrong checksum @0");
}

TEST_CASE("tar sizes are octal in many shapes, or binary") {
  const std::string body(8, 'x');
  for (const std::string& size :
       {std::string("00000000010\0", 12), std::string("         10 "), std::string("10\0junkjunk\0", 12),
        std::string("000000000010"), std::string("10          "), std::string("\x80\0\0\0\0\0\0\0\0\0\0\x08", 12)}) {
    CAPTURE(size);
    CHECK(only_member(header_block{.size = size}.text() + test::padded(body)).body == body);
  }
  CHECK(only_member(header_block{.size = std::string(12, '\0')}.text()).size == 0);
  CHECK(only_member(header_block{.size = std::string(12, ' ')}.text()).size == 0);
  const auto bad = [](const std::string& size) { return error_of(header_block{.size = size}.text()); };
  CHECK(bad(std::string(12, '\xff')) == "a header's size field is negative @0");
  CHECK(bad("\x80\x01" + std::string(10, '\0')) == "a header's size field is beyond 2^63 @0");
  CHECK(bad(std::string("\x80\0\0\0", 4) + std::string(8, '\xff')) == "a header's size field is beyond 2^63 @0");
  CHECK(bad("0000000009\0\0") == "a header's size field is not an octal number @0");
  CHECK(bad(std::string("\0\0\0\0\0\0\0\0\00010\0", 12)) ==
        "a header's size field has something after a NUL and no number before it @0");
  CHECK(bad("12 34       ") == "a header's size field is not an octal number @0");
  CHECK(bad("-0000000010\0") == "a header's size field is not an octal number @0");
  CHECK(bad(std::string("\x80\0\0\0\x7f", 5) + std::string(7, '\xff')) == "the member reaches beyond byte 2^63 @0");
}

TEST_CASE("tar links, devices and directories have no body whatever their size says") {
  for (char type : {'1', '2', '3', '4', '5', '6'}) {
    CAPTURE(type);
    const outcome got = test::read_tar(header_block{.type = type, .size = test::octal_size(1000)}.text() +
                                       raw_member({.name = "next"}, "body") + end_block());
    REQUIRE(got.members.size() == 2);
    CHECK(got.members[0].type == type);
    CHECK(got.members[0].size == 0);
    CHECK(got.members[1].body == "body");
  }
  for (char type : {'D', 'V', 'N', 'A', '8', 'z', '\x7f'}) {
    CAPTURE(type);
    const outcome got = test::read_tar(raw_member({.type = type}, std::string(1000, 'b')) +
                                       raw_member({.name = "next"}, "body") + end_block());
    REQUIRE(got.members.size() == 2);
    CHECK(got.members[0].type == type);
    CHECK(got.members[0].size == 1000);
    CHECK(got.members[0].body.empty());
    CHECK(got.members[1].body == "body");
  }
}

TEST_CASE("tar old archives mark directories by a slash") {
  const test::member file = only_member(raw_member({.type = '\0', .magic = ""}, "abc"));
  CHECK(file.type == '0');
  CHECK(file.body == "abc");
  CHECK(only_member(header_block{.name = "dir/", .type = '\0', .magic = ""}.text()).type == '5');
  CHECK(error_of(raw_member({.name = "dir/", .type = '\0', .magic = ""}, "abc")) ==
        "a directory of the old kind has a body @0");
  CHECK(only_member(raw_member({.type = '7'}, "abc")).body == "abc");
}

TEST_CASE("tar prefixes count for POSIX headers only") {
  const std::string posix(
      "ustar\0"
      "00",
      8);
  const std::string gnu("ustar  \0", 8);
  CHECK(only_member(header_block{.magic = posix, .prefix = "dir/sub"}.text()).name == "dir/sub/file");
  CHECK(only_member(header_block{.name = std::string(100, 'n'), .prefix = std::string(155, 'p')}.text()).name ==
        std::string(155, 'p') + "/" + std::string(100, 'n'));
  CHECK(only_member(header_block{.magic = gnu,
                                 .prefix = "12345670123\0"
                                           "1234567"}
                        .text())
            .name == "file");
  CHECK(only_member(header_block{.magic = gnu, .prefix = std::string(20, 'a')}.text()).name ==
        std::string(20, 'a') + "/file");
  CHECK(only_member(header_block{.magic = "", .prefix = "dir"}.text()).name == "file");
  std::string star(167, '\0');
  star.replace(0, 131, 131, 's');
  star.replace(131, 12, "12345670123 ");
  star.replace(163, 4, std::string("tar\0", 4));
  CHECK(only_member(header_block{.magic = posix, .prefix = star}.text()).name == std::string(131, 's') + "/file");
}

TEST_CASE("tar long names come from GNU and pax headers") {
  const std::string l1 = raw_member({.name = "././@LongLink", .type = 'L'}, std::string("first\0", 6));
  const std::string l2 = raw_member({.name = "././@LongLink", .type = 'L'}, std::string("second\0more", 11));
  const std::string k = raw_member({.name = "././@LongLink", .type = 'K'}, std::string("target\0", 7));
  CHECK(only_member(l1 + k + l2 + raw_member({}, "x")).name == "second");
  const std::string x1 = pax_header(pax_record("path", "one"));
  const std::string x2 = pax_header(pax_record("path", "two") + pax_record("linkpath", "t"));
  CHECK(only_member(x1 + x2 + raw_member({}, "x")).name == "two");
  CHECK(only_member(x1 + pax_header(pax_record("comment", "c")) + raw_member({}, "x")).name == "file");
  CHECK(only_member(pax_header(pax_record("path", "one") + pax_record("path", "")) + raw_member({}, "x")).name ==
        "file");
  CHECK(only_member(pax_header(pax_record("path", "one"), 'X') + raw_member({}, "x")).name == "one");
  CHECK(only_member(pax_header(pax_record("path", "all"), 'g') + raw_member({}, "x")).name == "file");
  // One member's extended headers do not reach the next one.
  const outcome two =
      test::read_tar(l1 + raw_member({}, "x") + x1 + raw_member({}, "y") + raw_member({}, "z") + end_block());
  REQUIRE(two.members.size() == 3);
  CHECK(two.members[0].name == "first");
  CHECK(two.members[1].name == "one");
  CHECK(two.members[2].name == "file");
}

TEST_CASE("tar pax sizes override the header's, for the member alone") {
  // The header says 0: a reader that believes it would read the body as headers. The long name between is not resized.
  const std::string inner = raw_member({.name = "smuggled"}, "evil");
  const std::string text = pax_header(pax_record("size", "000" + std::to_string(inner.size()))) +
                           raw_member({.name = "././@LongLink", .type = 'L'}, std::string("outer\0", 6)) +
                           header_block().text() + inner;
  const test::member m = only_member(text);
  CHECK(m.name == "outer");
  CHECK(m.body == inner);
  CHECK(only_member(pax_header(pax_record("size", "5") + pax_record("size", "")) + raw_member({}, "abc")).body ==
        "abc");
  const auto bad = [](const std::string& size) {
    return error_of(pax_header(pax_record("comment", "c") + pax_record("size", size)) + header_block().text());
  };
  const std::string reason = "a pax size is not a number below 2^63 @525";
  for (const char* size : {"-1", "+1", " 1", "1x", "0x10", "9223372036854775808", "99999999999999999999"}) {
    CAPTURE(size);
    CHECK(bad(size) == reason);
  }
  CHECK(error_of(pax_header(pax_record("size", "1"), 'g') + header_block().text()) ==
        "a global pax header sets the size of every member @512");
}

TEST_CASE("tar pax records follow their grammar") {
  const auto bad = [](const std::string& records) { return error_of(pax_header(records) + header_block().text()); };
  CHECK(bad("no\n") == "a pax record does not begin with its length @512");
  CHECK(bad("8 a=b\nxx") == "a pax record does not end in a line feed @512");
  CHECK(bad("6 a=b\n6 a=b") == "a pax record is longer than its header @518");
  CHECK(bad(pax_record("path", std::string("a\0b", 3))) == "a pax name contains a NUL byte @512");
  CHECK(bad(pax_record(std::string("k\0", 2), "v")) == "a pax key contains a NUL byte @512");
  CHECK(bad(pax_record("", "v")) == "a pax record has an empty key @512");
  CHECK(bad("5 ab\n") == "a pax record has no '=' @512");
  CHECK(bad("2 \n") == "a pax record's length is too small @512");
  CHECK(only_member(pax_header(pax_record("a", "b=c\nd")) + raw_member({}, "x")).name == "file");
  CHECK(only_member(pax_header(pax_record("a", std::string("\0", 1))) + raw_member({}, "x")).name == "file");
  CHECK(only_member(pax_header("") + raw_member({}, "x")).name == "file");
}

TEST_CASE("tar extended headers need a member after them") {
  const std::string x = pax_header(pax_record("path", "p"));
  CHECK(error_of(x) == "the archive ends between an extended header and its member @1024");
  const outcome cut = test::read_tar(x);
  CHECK(cut.error == "the archive is cut between an extended header and its member");
  CHECK(cut.error_offset == 1024u);
  CHECK(test::read_tar(pax_header(pax_record("a", "b"), 'g') + end_block()).error.empty());
}

TEST_CASE("tar limits refuse before memory is taken") {
  CHECK(error_of(raw_member({}, std::string(11, 'x')), {.max_member_bytes = 10}) ==
        "the member's 11 bytes are more than max_member_bytes @0");
  CHECK(only_member(raw_member({}, std::string(10, 'x')), {.max_member_bytes = 10}).size == 10);
  CHECK(error_of(header_block{.size = "77777777777"}.text(), {}) ==
        "the member's 8589934591 bytes are more than max_member_bytes @0");
  CHECK(error_of(header_block{.size = test::octal_size(4000)}.text(), {.object_bytes = 1536}) ==
        "the member's 4000 bytes reach beyond the object's end @0");
  CHECK(error_of(header_block{.type = 'x', .size = test::octal_size(MiB + 1)}.text()) ==
        "a pax header of 1048577 bytes is larger than 1 MiB @0");
  CHECK(error_of(header_block{.type = 'L', .size = test::octal_size(4098)}.text()) ==
        "a name is longer than 4096 bytes @0");
  const std::string name(4097, 'n');
  const std::string reason = "a name is longer than 4096 bytes @";
  CHECK(error_of(raw_member({.type = 'L'}, name)) == reason + "512");
  CHECK(error_of(pax_header(pax_record("path", name)) + header_block().text()) == reason + "512");
  CHECK(error_of(pax_header(pax_record("linkpath", name)) + header_block().text()) == reason + "512");
  CHECK(only_member(raw_member({.type = 'L'}, name.substr(1) + '\0') + raw_member({}, "")).name.size() == 4096);
}

TEST_CASE("tar sparse and multi-volume members are refused") {
  const std::string reason = "sparse members are not supported @";
  CHECK(error_of(raw_member({.type = 'S'}, "x")) == reason + "0");
  for (const char* key : {"GNU.sparse.major", "GNU.sparse.map", "GNU.sparse.realsize", "SUN.holesdata"}) {
    CHECK(error_of(pax_header(pax_record(key, "1")) + raw_member({}, "x")) == reason + "1024");
  }
  CHECK(error_of(pax_header(pax_record("GNU.sparse.major", "1"), 'g')) ==
        "a global pax header makes every member sparse @512");
  CHECK(error_of(raw_member({.type = 'M'}, "x")) == "multi-volume archives are not supported @0");
}

TEST_CASE("tar reader stops at the end block unless told otherwise") {
  const std::string one = raw_member({.name = "one"}, "1") + std::string(512 * 7, '\0');
  const std::string two = raw_member({.name = "two"}, "2") + end_block();
  CHECK(test::read_tar(one + two).members.size() == 1);
  CHECK(test::read_tar(one + "garbage").error.empty());
  const outcome both = test::read_tar(one + two, {.concatenated = true});
  REQUIRE(both.members.size() == 2);
  CHECK(both.members[1].header_offset == one.size());
  CHECK(both.warning.empty());
  CHECK(both.error.empty());
  const outcome garbage = test::read_tar(one + std::string(512, 'x'), {.concatenated = true});
  CHECK(garbage.error == "a header has a wrong checksum");
  CHECK(garbage.error_offset == one.size());
  CHECK(error_of(raw_member({}, "1") + std::string(512, '\0') + raw_member({}, "2")) ==
        "something other than the end of the archive follows a block of zeros @1536");
}

TEST_CASE("tar reader resumes at any member's header_offset") {
  const std::string text = raw_member({.name = "a"}, "1") + pax_header("", 'g') + pax_header(pax_record("path", "b")) +
                           raw_member({}, "22") + raw_member({.name = "c"}, "3") + end_block();
  const outcome whole = test::read_tar(text);
  REQUIRE(whole.members.size() == 3);
  CHECK(whole.members[1].header_offset == 1024);
  CHECK(whole.members[1].data_offset == 3072);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto at = static_cast<std::size_t>(whole.members[i].header_offset);
    const outcome rest = test::read_tar(text.substr(at), {.object_bytes = text.size(), .start = at});
    CHECK(rest.error.empty());
    CHECK(std::vector<test::member>(whole.members.begin() + static_cast<std::ptrdiff_t>(i), whole.members.end()) ==
          rest.members);
  }
  CHECK(test::read_tar("", {.start = text.size()}).error.empty());
}

TEST_CASE("tar input of no bytes is an error") {
  CHECK(test::read_tar("").error == "the object is empty, not an archive");
  CHECK(test::read_tar("").error_offset == 0u);
  CHECK(test::read_tar(end_block()).error.empty());
  CHECK(test::read_tar(end_block()).members.empty());
}
