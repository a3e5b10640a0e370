// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Compressed lines of text become tokens, by SentencePiece on the pool, and sequences of one length. The text is made
// here, and so is the tokenizer's model; the model that is trained counts which token follows which.
//
//   example_language_model
//
// With AWS_ENDPOINT_URL_S3 (and keys) in the environment that store is used; without, an S3 server inside this program.

#include <archive.h>
#include <archive_entry.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <millrace/millrace.hpp>
#include <millrace/records/pack.hpp>
#include <millrace/records/tokens.hpp>

#include "examples/common/connect.hpp"

namespace mill = millrace;

namespace {

constexpr int vocabulary = 200;

/// A line of a few words, of which some follow others more often.
std::string line_of(mill::rng& random) {
  constexpr const char* words[] = {"the", "mill", "grinds", "grain", "and", "water", "turns", "wheel",
                                   "slowly", "stone", "runs", "under", "bridge", "where", "river", "bends"};
  std::string line;
  std::uint64_t word = random.below(16);
  for (std::uint64_t n = 4 + random.below(20); n > 0; --n) {
    line += (line.empty() ? "" : " ") + std::string(words[word]);
    word = random.below(4) == 0 ? random.below(16) : (word * 5 + 3) % 16;
  }
  return line;
}

std::string gzip(const std::string& text) {
  std::string packed(text.size() + 1024, '\0');
  std::size_t used = 0;
  struct archive* const out = archive_write_new();
  archive_write_add_filter_gzip(out);
  archive_write_set_format_raw(out);
  archive_write_open_memory(out, packed.data(), packed.size(), &used);
  archive_entry* const entry = archive_entry_new();
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_write_header(out, entry);
  archive_write_data(out, text.data(), text.size());
  archive_entry_free(entry);
  archive_write_close(out);
  archive_write_free(out);
  packed.resize(used);
  return packed;
}

mill::task<void> upload(mill::s3::client s3, int shards, int lines) {
  co_await s3.create_bucket("s3://text");
  for (int n = 0; n < shards; ++n) {
    mill::rng random(7, 0, static_cast<std::uint64_t>(n));
    std::string text;
    for (int i = 0; i < lines; ++i) text += line_of(random) + "\n";
    co_await s3.put("s3://text/" + std::to_string(n) + ".txt.gz", mill::bytes::copy(gzip(text)));
  }
}

/// A tokenizer, trained on a thousand lines. Processors may be used on several threads at once.
std::shared_ptr<const sentencepiece::SentencePieceProcessor> trained_tokenizer() {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "millrace-language-model.txt";
  mill::rng random(1);
  std::ofstream out(file);
  for (int i = 0; i < 1000; ++i) out << line_of(random) << '\n';
  out.close();
  std::string model;
  auto status = sentencepiece::SentencePieceTrainer::Train({{"input", file.string()},
                                                            {"vocab_size", std::to_string(vocabulary)},
                                                            {"hard_vocab_limit", "false"},
                                                            {"minloglevel", "2"}},
                                                           nullptr, &model);
  std::filesystem::remove(file);
  auto made = std::make_shared<sentencepiece::SentencePieceProcessor>();
  if (status.ok()) status = made->LoadFromSerializedProto(model);
  if (!status.ok()) throw std::runtime_error("SentencePiece: " + status.ToString());
  return made;
}

auto epoch_of(const mill::s3::client& s3, std::uint64_t epoch,
              std::shared_ptr<const sentencepiece::SentencePieceProcessor> tokenizer) {
  mill::pack_options sequences;
  sequences.end = tokenizer->eos_id();
  const auto encode = [tokenizer](std::string_view line) {
    std::vector<int> ids;
    if (!tokenizer->Encode(line, &ids).ok()) throw mill::decode_error("SentencePiece cannot encode it");
    return ids;
  };
  return s3.list("s3://text/") | mill::shuffle_shards({.seed = 7, .epoch = epoch}) | mill::fetch(s3) | mill::lines() |
         mill::tokens(encode) | mill::pack(128, sequences) | mill::batch(8) | mill::to_device(mill::host_device());
}

/// How often each token has followed each.
class bigrams {
 public:
  /// Returns the surprise, in nats, and learns.
  double step(std::int32_t before, std::int32_t token) {
    auto& row = counts_[static_cast<std::size_t>(before)];
    double& count = row[static_cast<std::size_t>(token)];
    const double surprise = -std::log((count + 0.01) / (row.back() + 0.01 * vocabulary));
    ++count;
    ++row.back();  // of all
    return surprise;
  }

 private:
  std::vector<std::vector<double>> counts_ = std::vector(vocabulary, std::vector<double>(vocabulary + 1));
};

}  // namespace

int main() {
  try {
    std::optional<mill::s3_server::background> server;
    const mill::s3::client s3 = examples::connect(server);
    const auto loop = mill::make_event_loop();
    mill::block_on(*loop, upload(s3, 4, 2000));
    const auto tokenizer = trained_tokenizer();
    mill::runtime rt;
    bigrams model;
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      double loss = 0, learnt = 0;
      for (const mill::device_batch& b : rt.run(epoch_of(s3, epoch, tokenizer))) {
        const auto tokens = b.field("tokens").values<std::int32_t>();
        const auto mask = b.field("mask").values<std::uint8_t>();
        for (std::size_t i = 1; i < tokens.size(); ++i) {
          if (mask[i] == 0) continue;  // the first of a document, or padding
          loss += model.step(tokens[i - 1], tokens[i]);
          ++learnt;
        }
      }
      std::printf("epoch %d: loss %.3f, %.0f tokens\n", static_cast<int>(epoch), loss / learnt, learnt);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
