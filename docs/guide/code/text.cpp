// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The programs of docs/guide/text.md, over small data sets of their own. Ranks are threads here.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/millrace.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/records/pack.hpp>
#include <millrace/records/tokens.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/train.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/equal_batches.hpp>
#include <millrace/train/rank_group.hpp>

#if __has_include(<simdjson.h>)
#include <millrace/decode/json_reader.hpp>
#endif

#include "tests/support/catch.hpp"
#include "tests/train/rank_threads.hpp"

namespace mill = millrace;

#if __has_include(<simdjson.h>)

namespace {

/// In place of a tokenizer: a token a byte.
std::vector<std::int32_t> encode(std::string_view text) { return std::vector<std::int32_t>(text.begin(), text.end()); }

/// What a rank has learnt.
struct model {
  std::size_t steps = 0;
  std::size_t tokens = 0;
  std::string state;
  void train(const std::vector<mill::packed_sequence>& batch) {
    ++steps;
    for (const mill::packed_sequence& s : batch) {
      for (const std::int32_t d : s.documents) tokens += d >= 0 ? 1 : 0;
    }
  }
};

// begin lines
struct document {
  std::string text;
  std::optional<double> quality;
};

/// JSONL -> sequences of 64 tokens, on this rank; as many steps on all of them. `saved`: this rank's state, or empty.
void train_on_lines(mill::runtime& rt, const std::string& folder, const mill::rank_group& ranks, std::string saved,
                    std::size_t most, model& m) {
  const mill::dataset corpus(mill::files(), folder, {.index = folder + "/text.index", .format = mill::line_shards()});
  mill::json_reader<document> read;
  read.member("text", &document::text).member("quality", &document::quality);
  const auto encoded = [read](mill::sample s) {
    std::vector<std::int32_t> tokens;
    if (s.weight() != 0) tokens = encode(read(s["line"], s.from.at(s.key)).text);
    return mill::token_document(std::move(tokens), s.mark);
  };
  const mill::equal_batches equal(2, mill::uneven::pad, ranks);
  auto run = rt.run(mill::epochs(corpus, {.seed = 7, .epochs = 3, .batch = 4, .ranks = ranks, .equal = &equal},
                                 std::move(saved)) |
                    mill::map_concurrent(encoded) | mill::pack(64) | equal.fill() | mill::batch(2));
  for (const std::vector<mill::packed_sequence>& batch : equal.of(run)) {
    m.train(batch);
    if (--most == 0) break;
  }
  m.state = run.state();
}
// end lines

// begin training
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

TEST_CASE("the guide's program for lines packs every token of every epoch, on two ranks that are resumed", "[guide]") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "millrace-guide-lines";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::size_t bytes = 0;
  for (int file = 0; file < 3; ++file) {
    std::ofstream out(folder / (std::to_string(file) + ".jsonl"), std::ios::binary);
    for (int i = 0; i < 20 + file; ++i) {
      const std::string text(static_cast<std::size_t>(10 + 7 * i), 'a');
      out << "{\"text\": \"" << text << "\"}" << (i % 3 == 0 ? "\r\n" : "\n");
      bytes += text.size();
    }
  }
  std::size_t tokens = 0;
  std::vector<std::string> states(2);
  for (std::size_t part = 0, ended = 0; ended == 0; ++part) {
    REQUIRE(part < 100);
    mill::test::thread_gather gather(2);
    std::vector<model> models(2);
    const auto errors = mill::test::on_ranks(2, [&](std::size_t r) {
      mill::runtime rt;
      train_on_lines(rt, folder.string(), gather.group(r), states[r], 11, models[r]);
    });
    REQUIRE(errors == std::vector<std::string>(2));
    CHECK(models[0].steps == models[1].steps);
    ended = models[0].steps < 11 ? 1 : 0;
    for (std::size_t r = 0; r < 2; ++r) {
      tokens += models[r].tokens;
      states[r] = models[r].state;
    }
  }
  CHECK(tokens == 3 * bytes);
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
