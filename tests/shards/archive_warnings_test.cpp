// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Archives that are unusual but not broken: untar reads them, and says so.

#include <millrace/shards/untar.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/packers.hpp"

using namespace millrace;
using test::captured_stderr;

namespace {

struct object {
  object(std::string where, std::string what) : url(std::move(where)), content(std::move(what)) {}
  std::string url;
  std::string content;
};

/// A tar of members of 512 bytes, a.txt and so on.
std::string tar_of(std::size_t members) {
  std::string out;
  tar::writer<tar::string_sink> w{tar::string_sink(out)};
  for (std::size_t i = 0; i < members; ++i) w.add(std::string(1, static_cast<char>('a' + i)) + ".txt", "text");
  w.finish();
  return out;
}
/// Cut after its n-th member.
std::string cut_behind(std::size_t n) { return tar_of(4).substr(0, n * 1024); }

async_generator<chunk> chunks_of(std::vector<object> objects) {
  for (const object& o : objects) {
    chunk c(std::make_shared<const shard>(o.url, o.content.size()), 0, bytes::copy(o.content), true);
    co_yield give(c);
  }
}

struct outcome {
  std::size_t members = 0;
  std::string said;
};

template <class Item = member, class Stage>
outcome read(std::vector<object> objects, Stage stage) {
  testing::virtual_loop loop;
  const auto count = [](stream<Item> in) -> task<std::size_t> {
    std::size_t n = 0;
    while (std::optional<Item> m = co_await in.next()) ++n;
    co_return n;
  };
  outcome result;
  captured_stderr heard(captured_stderr::into::pipe);
  result.members = block_on(loop, count(chunks_of(std::move(objects)) | std::move(stage)));
  // Line by line: a sanitizer may have something to say about fibers, too.
  const std::string all = heard.text();
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size() - 1) + 1;
    if (all.compare(at, 10, "millrace: ") == 0) result.said += all.substr(at, end - at);
    at = end;
  }
  return result;
}

const char cut_off[] = ": no end-of-archive block: the archive may have been cut between two members\n";

}  // namespace

TEST_CASE("a tar that may have been cut between two members is reported by name, a whole one is not") {
  const std::vector<object> objects = {object("s3://b/whole.tar", tar_of(4)), object("s3://b/cut.tar", cut_behind(3))};
  const std::string wanted = std::string("millrace: untar: s3://b/cut.tar") + cut_off;
  const outcome any = read(objects, untar());
  CHECK(any.members == 7);
  CHECK(any.said == wanted);
  const outcome plain = read(objects, untar_plain());
  CHECK(plain.members == 7);
  CHECK(plain.said == wanted);
}

TEST_CASE("bytes other than zeros after the end of a tar are reported with their place") {
  const std::string zeros(2048, '\0');
  const std::string hole = cut_behind(2) + zeros + tar_of(3);
  const std::string wanted =
      "millrace: untar: hole.tar: the archive ends with zeros at byte 2048, and bytes other than zero follow at byte "
      "4096: they are not read (reader_options::concatenated goes on there)\n";
  for (const bool plain : {false, true}) {
    const std::vector<object> objects = {object("hole.tar", hole)};
    const outcome got = plain ? read(objects, untar_plain()) : read(objects, untar());
    CHECK(got.members == 2);
    CHECK(got.said == wanted);
  }
  CHECK(read({object("hole.tar", cut_behind(2) + zeros + "x")}, untar()).said == wanted);
  CHECK(read({object("whole.tar", cut_behind(2) + zeros + zeros)}, untar()).said.empty());
  CHECK(read({object("packed.tar.gz", test::compress("gzip", hole))}, untar()).said.find("follow at byte 4096") !=
        std::string::npos);

  // However it is cut into pieces.
  for (const std::size_t piece : {std::size_t(1), std::size_t(511), std::size_t(4095), hole.size()}) {
    tar::reader reader("hole.tar");
    tar::entry e;
    for (std::size_t at = 0; at < hole.size(); at += piece) {
      reader.feed(bytes::copy(hole.substr(at, piece)));
      while (reader.next(e)) {
      }
    }
    reader.finish();
    CHECK(reader.warning().find("zeros at byte 2048, and bytes other than zero follow at byte 4096") !=
          std::string::npos);
  }
}

TEST_CASE("an object that begins with zeros and has more is no tar") {
  const auto failure = [](const std::string& content) {
    return test::failure_of([&] { read({object("x.tar", content)}, untar()); });
  };
  CHECK_THAT(
      failure(std::string(4096, '\0') + "data"),
      Catch::Matchers::Contains("x.tar at byte 0: not a tar archive: it begins with zeros, and bytes other than zero "
                                "follow at byte 4096"));
  CHECK_THAT(failure(std::string(32768, '\0') + "\1CD001\1" + std::string(4096, '\0')),
             Catch::Matchers::Contains("not a tar archive, but an ISO 9660 image"));
  CHECK(failure(std::string(10240, '\0')) == "no error");
}

TEST_CASE("what is said of an archive comes before its last member is delivered") {
  const std::vector<object> objects = {object("cut.tar", cut_behind(3))};
  CHECK(read(objects, untar() | take(3)).said == std::string("millrace: untar: cut.tar") + cut_off);
}

TEST_CASE("half an end-of-archive block is reported; gzip data of several streams is nothing unusual") {
  const std::vector<object> half = {object("half.tar", tar_of(4).substr(0, 4 * 1024 + 512))};
  CHECK(read(half, untar()).said == "millrace: untar: half.tar: only half of the end-of-archive block is there\n");
  // Names come from servers: a terminal must not obey them.
  const std::string hostile = read({object("\x1b[2J.tar", cut_behind(1))}, untar()).said;
  CHECK(hostile == std::string("millrace: untar: \\x1b[2J.tar") + cut_off);

  const std::string whole = tar_of(4);
  const std::string several =
      test::compress("gzip", whole.substr(0, 2000)) + test::compress("gzip", whole.substr(2000));
  const outcome gz =
      read({object("two.tar.gz", several), object("one.tar.gz", test::compress("gzip", whole))}, untar());
  CHECK(gz.members == 8);
  CHECK(gz.said.empty());
}

TEST_CASE("of many cut archives the first five are named and the others counted; or none, when told so") {
  std::vector<object> objects;
  std::string wanted;
  for (std::size_t i = 0; i < 8; ++i) {
    objects.emplace_back(std::to_string(i), cut_behind(1));
    if (i < 5) wanted += "millrace: untar: " + std::to_string(i) + cut_off;
  }
  CHECK(read(objects, untar()).said == wanted + "millrace: untar: 3 more archives with such warnings\n");
}

namespace {

/// Files with these names.
std::string tar_with(const std::vector<std::string>& names) {
  std::string out;
  tar::writer<tar::string_sink> w{tar::string_sink(out)};
  for (const std::string& name : names) w.add(name, "text");
  w.finish();
  return out;
}
std::string odd_members(char type, std::size_t n) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) {
    test::header_block h;
    h.name = "k" + std::to_string(i) + ".jpg";
    h.type = type;
    out += h.text();
  }
  return out + test::end_block();
}

}  // namespace

TEST_CASE("a shard that has members and gives no sample is named, with the reason") {
  const auto links = read<sample>({object("links.tar", odd_members('2', 3))}, untar() | group_samples());
  CHECK(links.members == 0);
  CHECK(links.said ==
        "millrace: untar: links.tar: no sample: none of its 3 members is a regular file (the first is a symbolic "
        "link)\n");
  const auto epochs = read<sample>({object("l.tar", odd_members('2', 1)), object("l.tar", odd_members('2', 1))},
                                   untar() | group_samples());
  CHECK(std::count(epochs.said.begin(), epochs.said.end(), '\n') == 1);
  CHECK(read({object("hard.tar", odd_members('1', 1))}, untar_plain()).said ==
        "millrace: untar: hard.tar: no sample: none of its 1 members is a regular file (the first is a hard "
        "link)\n");
  const std::string folders = read({object("d.tar", odd_members('5', 2))}, untar()).said;
  CHECK(folders.find("the first is a directory") != std::string::npos);
  const auto nameless =
      read<sample>({object("a.tar", tar_with({"a.jpg"})), object("readme.tar", tar_with({"README", "__meta__/x.json"})),
                    object("b.tar", tar_with({"README", "b.jpg"}))},
                   untar() | group_samples());
  CHECK(nameless.members == 2);
  CHECK(nameless.said ==
        "millrace: group_samples: readme.tar: no sample: none of its 2 files has a name of key, dot and extension "
        "outside of \"__...__\" (the first is \"README\")\n");
  CHECK(read<sample>({object("none.tar", tar_with({}))}, untar() | group_samples()).said.empty());
  CHECK(read<sample>({object("a.tar", odd_members('2', 1).substr(0, 512) + tar_with({"a.jpg"}))},
                     untar() | group_samples())
            .said.empty());
}

TEST_CASE("images that come together because their keys have dots are said once, with a sample") {
  const std::string wanted =
      "millrace: a.tar at byte 0, clip_1: the images 100.png and 101.png are fields of one sample, as a key ends at "
      "the first dot of the name (WebDataset's rule): if they are to be samples of their own, their names need other "
      "characters in place of dots\n";
  const std::vector<std::string> clips = {"clip_1.100.png", "clip_1.101.png", "clip_2.100.png", "clip_2.101.png"};
  const auto merged = read<sample>({object("a.tar", tar_with(clips))}, untar() | group_samples());
  CHECK(merged.members == 2);  // as webdataset groups them
  CHECK(merged.said == wanted);
  // One image with others' data, and names with dots in the directory alone.
  const std::vector<std::vector<std::string>> all_fine = {
      {"a.jpg", "a.depth.png", "a.cls"}, {"v1.2/a.png", "v1.2/b.png"}, {"a.seg.json", "a.box.json"}};
  for (const auto& fine : all_fine) {
    CHECK(read<sample>({object("a.tar", tar_with(fine))}, untar() | group_samples()).said.empty());
  }
}
