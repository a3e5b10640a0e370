// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Text shards that are compressed: whole, cut, damaged, of several streams, with memory for a large window.

#include <millrace/records/lines.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"
#include "tests/tar/packers.hpp"
#include "tests/tar/tools.hpp"

using namespace millrace;
using namespace std::string_literals;

namespace {

struct text_outcome {
  std::string text;  ///< all lines, each with a line feed
  std::string error;
};

async_generator<chunk> chunks_of(shard s, std::string text, std::size_t piece) {
  const auto from = std::make_shared<const shard>(std::move(s));
  std::size_t at = 0;
  do {
    const std::size_t size = std::min(piece, text.size() - at);
    chunk c(from, at, bytes::copy(std::string_view(text).substr(at, size)), at + size == text.size());
    at += size;
    co_yield give(c);
  } while (at < text.size());
}

text_outcome read(const std::string& text, lines_options options = {}, shard from = shard("shard"),
                  std::size_t piece = 1 << 20) {
  testing::virtual_loop loop;
  text_outcome result;
  const auto collect = [&result](stream<line_batch> in) -> task<void> {
    while (std::optional<line_batch> b = co_await in.next()) {
      for (const std::string_view l : *b) result.text.append(l).append("\n");
    }
  };
  try {
    block_on(loop, collect(chunks_of(std::move(from), text, piece) | lines(options)));
  } catch (const archive_error& e) {
    result.error = e.what();
  } catch (const decode_error& e) {
    result.error = e.what();
  }
  return result;
}

/// Lines that compress, but not to nothing; one line feed at the end of each.
std::string some_lines(std::size_t count) {
  std::string text;
  rng random(7);
  for (std::size_t i = 0; i < count; ++i) {
    text += "line " + std::to_string(i) + " has the number " + std::to_string(random.next()) + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("compressed text that is cut after any byte is an error, never fewer lines") {
  // bzip2 has blocks of 900 KB and libarchive's xz and lz4 make 64 KiB at once: of the short text nothing has come out.
  for (const auto& [filter, ending] : std::vector<std::pair<std::string, std::string>>{
           {"gzip", "gz"}, {"bzip2", "bz2"}, {"xz", "xz"}, {"zstd", "zst"}, {"lz4", "lz4"}, {"lzma", "lzma"}}) {
    for (const std::size_t count : {0, 1, 40}) {
      if (count == 0 && filter == "lz4") continue;  // libarchive's writer crashes
      const std::string text = some_lines(count);
      const std::string packed = test::compress(filter, text);
      CAPTURE(filter, count);
      CHECK(read(packed).error.empty());
      CHECK(read(packed).text == text);
      for (std::size_t length = 0; length < packed.size(); ++length) {
        // Of fewer than four bytes the name must say what they are: "BZ" is text, too.
        const text_outcome got = read(packed.substr(0, length), {}, shard(length < 4 ? "s." + ending : "shard"), 37);
        if (got.error.empty() || got.text != text.substr(0, got.text.size())) {
          CAPTURE(length, packed.size(), got.text, got.error);
          FAIL("a cut object passes");
        }
      }
    }
  }
}

TEST_CASE("a compressed tar is no text") {
  std::string tar;
  tar::writer w(tar);
  w.add("a.txt", some_lines(40));
  w.finish();
  for (const char* const filter : {"gzip", "zstd", "xz"}) {
    const text_outcome got = read(test::compress(filter, tar), {}, shard("shard"), 100);
    CAPTURE(filter, got.text.size());
    CHECK(got.error == "shard at byte 0: this is a tar archive and no text: read it by untar()");
    CHECK(got.text.empty());
  }
}

TEST_CASE("what is compressed and not unpacked is refused, and plain text is text whatever its name says") {
  CHECK_THAT(read("\x1f\x9d\x90 data").error, Catch::Matchers::Contains("this is compress data"));
  CHECK_THAT(read("LZIP\1\x14"s).error, Catch::Matchers::Contains("lzip"));
  const std::string brotli = "\x0b\x02\x80hello\n\x03";  // brotli's own tool, of "hello"
  CHECK_THAT(read(brotli, {}, shard("s3://b/x.jsonl.br")).error, Catch::Matchers::Contains("name ends in .br"));
  CHECK_THAT(read("\1\2\3", {}, shard("x.gz")).error, Catch::Matchers::Contains("does not begin as such data do"));
  for (const char* name : {"x.br", "x.gz", "x.lzma", "x.Z", "x.zz"}) {
    CHECK(read("plain text\n", {}, shard(name)).text == "plain text\n");
  }
  CHECK(read("LZIP is a word", {}).text == "LZIP is a word\n");
}

TEST_CASE("text that its name or its Content-Encoding calls compressed is taken as it is, and that is said once") {
  shard encoded("s3://b/x.txt");
  encoded.encoding = "br";
  test::captured_stderr said(test::captured_stderr::into::pipe);
  for (int i = 0; i < 2; ++i) {
    CHECK(read("plain\n", {}, encoded).text == "plain\n");
    CHECK(read("plain\n", {}, shard("s3://b/x.gz")).text == "plain\n");
  }
  encoded.encoding = "identity";
  CHECK(read("plain\n", {}, encoded).text == "plain\n");
  CHECK(said.text() ==
        "millrace: s3://b/x.txt at byte 0: its Content-Encoding is br, but its bytes are text: taken as they are\n"
        "millrace: s3://b/x.gz at byte 0: its name ends in .gz, but its bytes are text: taken as they are\n");
}

TEST_CASE("limits of compressed text are options", "[slow]") {
  std::string text;
  for (int i = 0; i < 70; ++i) text += std::string(MiB - 1, 'x') + '\n';
  const std::string packed = test::compress("zstd", text);
  CHECK_THAT(read(packed).error, Catch::Matchers::Contains("max_ratio"));
  CHECK(read(packed, {.max_ratio = 0}).text.size() == text.size());
}

TEST_CASE("a window or dictionary beyond the limit is said, and an option allows it") {
  // A zstd frame with a window of 256 MiB (RFC 8878, 3.1.1.1.2: exponent 18) and one raw block.
  const std::string frame = std::string("\x28\xb5\x2f\xfd\x00\x90\x19\0\0", 9) + "ab\n";
  CHECK_THAT(read(frame).error, Catch::Matchers::Contains("a window of 268435456 bytes") &&
                                    Catch::Matchers::Contains("max_window_bytes (134217728)"));
  CHECK(read(frame, {.max_window_bytes = 256 * MiB}).text == "ab\n");
  CHECK(read(frame, {.max_window_bytes = 0}).text == "ab\n");
  for (const char* filter : {"xz", "lzma"}) {
    const std::string packed = test::compress(filter, "ab\n");
    CHECK_THAT(read(packed, {.max_window_bytes = 64 * KiB}).error, Catch::Matchers::Contains("dictionary of"));
    CHECK(read(packed).text == "ab\n");
  }
}

TEST_CASE("odd compressed texts of the shared data") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data folder");
  for (const char* name : {"cut.txt.bz2", "cut.txt.xz"}) {
    CHECK_THAT(read(test::read_file(folder + "/odd/" + name)).error, Catch::Matchers::Contains("broken or cut"));
  }
  const std::string window = test::read_file(folder + "/odd/window_28.zst");
  CHECK_THAT(read(window).error, Catch::Matchers::Contains("window of 268435456 bytes"));
  CHECK(read(window, {.max_window_bytes = 256 * MiB}).error.empty());
}

TEST_CASE("a Content-Encoding says what text is compressed by, where its bytes do not say text") {
  const auto with = [](const char* encoding) {
    shard s("shard");
    s.encoding = encoding;
    return s;
  };
  const std::string brotli = "\x0b\x02\x80hello\n\x03";
  for (const char* encoding : {"br", "gzip, br", "compress", "zstd"}) {
    CHECK_THAT(read(brotli, {}, with(encoding)).error, Catch::Matchers::Contains("Content-Encoding is "s + encoding));
    CHECK(read("plain\n", {}, with(encoding)).text == "plain\n");
  }
  const std::string raw = "\x01\x03\x00\xfc\xffhi\n"s;  // RFC 1951, 3.2.4: one stored block
  CHECK(read(raw, {}, with("deflate")).text == "hi\n");
  const std::string zlib = "\x78\x01"s + raw + "\x02\x17\x00\xdc"s;  // RFC 1950
  CHECK(read(zlib, {}, with("Deflate")).text == "hi\n");
  const std::string gzip = test::compress("gzip", "hi\n");
  CHECK(read(gzip, {}, with("x-gzip")).text == "hi\n");
  CHECK(read(gzip, {}, with("gzip, aws-chunked")).text == "hi\n");
  CHECK_THAT(read(gzip, {}, with("br, gzip")).error, Catch::Matchers::Contains("one layer"));
}
