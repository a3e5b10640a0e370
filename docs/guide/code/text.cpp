// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The program of docs/guide/text.md, over a small data set of its own.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/feed/dataset.hpp>
#include <millrace/millrace.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/records/pack.hpp>
#include <millrace/records/tokens.hpp>
#include <millrace/tar/writer.hpp>

#if __has_include(<simdjson.h>)
#include <millrace/decode/json_reader.hpp>
#endif

#include "tests/support/catch.hpp"

namespace mill = millrace;

#if __has_include(<simdjson.h>)

namespace {

/// In place of a tokenizer: a token a byte.
std::vector<std::int32_t> encode(std::string_view text) { return std::vector<std::int32_t>(text.begin(), text.end()); }

// begin training
struct document {
  std::string text;
  std::optional<double> quality;
};

auto training(const std::string& pattern) {
  mill::json_reader<document> read;
  read.member("text", &document::text).member("quality", &document::quality);
  const auto tokens_of = [read](std::string_view line) {
    const document d = read(line);
    return d.quality.value_or(1) < 0.5 ? std::vector<std::int32_t>() : encode(d.text);
  };
  mill::pack_options how;
  how.end = 2;
  return mill::glob(pattern) | mill::fetch(mill::files()) | mill::lines() | mill::tokens(tokens_of) |
         mill::pack(2048, how) | mill::batch(4) | mill::to_device(mill::host_device());
}
// end training

// begin resumed
auto resumed(const std::vector<mill::shard>& shards, const std::string& index, const std::string& saved) {
  const auto encoded = [](mill::sample s) {
    return mill::token_document(encode(s["txt"].view()), s.mark);
  };
  const mill::dataset texts(mill::files(), shards, {.index = index});
  return mill::epochs(texts, {.seed = 7, .epochs = 3, .batch = 4}, saved) |
         mill::map_concurrent(encoded) | mill::pack(64) | mill::batch(2);
}
// end resumed

}  // namespace

TEST_CASE("the guide's program for text that is resumed goes on with the very next sequence", "[guide]") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "millrace-guide-packed";
  std::filesystem::create_directories(folder);
  std::string tar;
  mill::tar::writer w(tar);
  for (int i = 0; i < 40; ++i) w.add(std::to_string(i) + ".txt", std::string(static_cast<std::size_t>(i), 'a'));
  w.finish();
  std::ofstream(folder / "0.tar", std::ios::binary) << tar;
  const std::vector<mill::shard> shards{mill::shard((folder / "0.tar").string())};
  const std::string index = (folder / "index").string();
  mill::runtime rt;
  std::string saved;
  std::size_t tokens = 0;
  for (int part = 0; part < 2; ++part) {
    auto run = rt.run(resumed(shards, index, saved));
    std::size_t batches = 0;
    for (const std::vector<mill::packed_sequence>& b : run) {
      for (const mill::packed_sequence& s : b) {
        for (const std::int32_t d : s.documents) tokens += d >= 0;
      }
      if (part == 0 && ++batches == 7) break;
    }
    saved = run.state();
  }
  CHECK(tokens == 3 * 40 * 39 / 2);
  std::filesystem::remove_all(folder);
}

TEST_CASE("the guide's program for text packs every document that is good enough", "[guide]") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "millrace-guide-text";
  std::filesystem::create_directories(folder);
  std::FILE* const out = std::fopen((folder / "0.jsonl").c_str(), "wb");
  REQUIRE(out != nullptr);
  for (int i = 0; i < 100; ++i) {
    const std::string text(static_cast<std::size_t>(99), static_cast<char>('a' + i % 26));
    std::fprintf(out, "{\"text\": \"%s\"%s}\n", text.c_str(), i % 10 == 0 ? ", \"quality\": 0.1" : "");
  }
  std::fclose(out);
  mill::runtime rt;
  std::size_t learnt = 0;
  for (const mill::device_batch& b : rt.run(training((folder / "*.jsonl").string()))) {
    for (const std::uint8_t m : b.field("mask").values<std::uint8_t>()) learnt += m;
  }
  // 90 documents of 100 tokens, of which the first cannot be learnt, nor that of a sequence.
  CHECK(learnt == 90 * 99 - 4);
  std::filesystem::remove_all(folder);
}

#else
TEST_CASE("the guide's program for text", "[guide]") {
  MILLRACE_SKIP("simdjson is not installed (Debian: libsimdjson-dev)");
}
#endif
