// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The programs of docs/guide/parquet.md, over a small data set of their own.

#include <millrace/parquet.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <parquet/arrow/writer.h>

#include <millrace/decode/array.hpp>
#include <millrace/decode/decode_images.hpp>
#include <millrace/train.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "examples/common/painted_shards.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

namespace mill = millrace;

namespace {

// begin images
/// Images as Hugging Face stores them: a column "image" of bytes and path, and a column "label" of whole numbers.
auto training_on_parquet(const std::string& folder, mill::rank mine, std::string saved) {
  const mill::dataset train(
      mill::files(), folder + "/train-",
      {.index = folder + "/train.index", .format = mill::parquet({.columns = {"image.bytes"}, .label = "label"})});
  return mill::epochs(train, {.seed = 7, .epochs = 2, .batch = 4, .rank = mine}, std::move(saved)) |
         mill::decode_images({.height = 32, .width = 32, .field = "image.bytes"}) | mill::batch();
}
// end images

// begin numbers
/// A fixed-size list of four floats, and a list of as many tokens as there are.
class example {
 public:
  std::vector<float> box;
  std::vector<std::int32_t> tokens;
};

example read(const mill::sample& s) {
  example made;
  const mill::array box(s["box"], mill::dtype::f32, {4}, s.from.at(s.key));
  made.box.assign(box.values<float>().begin(), box.values<float>().end());
  if (const mill::bytes* tokens = s.find("tokens")) {  // not where the row has a null
    const mill::array all = mill::parse_raw(*tokens, mill::dtype::i32, s.from.at(s.key));
    made.tokens.assign(all.values<std::int32_t>().begin(), all.values<std::int32_t>().end());
  }
  return made;
}
// end numbers

void ok(const arrow::Status& s) { REQUIRE(s.ok()); }

/// A file of painted images, their labels, boxes and tokens: the label, four times its half, the label times a 9.
void write_file(const std::string& path, int rows, mill::rng& random, std::vector<int>& labels) {
  const auto image_bytes = std::make_shared<arrow::BinaryBuilder>();
  const auto image_path = std::make_shared<arrow::StringBuilder>();
  arrow::StructBuilder image(
      arrow::struct_({arrow::field("bytes", arrow::binary()), arrow::field("path", arrow::utf8())}),
      arrow::default_memory_pool(), {image_bytes, image_path});
  arrow::Int64Builder label;
  const auto floats = std::make_shared<arrow::FloatBuilder>();
  arrow::FixedSizeListBuilder box(arrow::default_memory_pool(), floats, 4);
  const auto numbers = std::make_shared<arrow::Int32Builder>();
  arrow::ListBuilder tokens(arrow::default_memory_pool(), numbers);
  for (int i = 0; i < rows; ++i) {
    labels.push_back(static_cast<int>(random.below(examples::classes)));
    const examples::picture p = examples::paint(labels.back(), random);
    ok(image.Append());
    ok(image_bytes->Append(examples::encode_jpeg(p.pixels, p.width, p.height)));
    ok(image_path->AppendNull());
    ok(label.Append(labels.back()));
    ok(box.Append());
    for (int k = 0; k < 4; ++k) ok(floats->Append(static_cast<float>(labels.back()) / 2));
    ok(labels.back() == 0 ? tokens.AppendNull() : tokens.Append());
    for (int k = 0; k < labels.back(); ++k) ok(numbers->Append(9));
  }
  std::vector<std::shared_ptr<arrow::Array>> all = {*image.Finish(), *label.Finish(), *box.Finish(), *tokens.Finish()};
  const auto schema = arrow::schema({arrow::field("image", all[0]->type()), arrow::field("label", all[1]->type()),
                                     arrow::field("box", all[2]->type()), arrow::field("tokens", all[3]->type())});
  const auto out = *arrow::io::FileOutputStream::Open(path);
  ok(parquet::arrow::WriteTable(*arrow::Table::Make(schema, all), arrow::default_memory_pool(), out, 5,
                                parquet::default_writer_properties(),
                                parquet::ArrowWriterProperties::Builder().store_schema()->build()));
}

}  // namespace

TEST_CASE("the guide's training on Parquet sees every image and its label", "[guide]") {
  const mill::test::temporary_folder at;
  mill::rng random(1);
  std::vector<int> labels;
  for (int n = 0; n < 3; ++n) write_file(at.file("train-0000" + std::to_string(n) + ".parquet"), 7, random, labels);
  std::ofstream(at.file("README.md")) << "beside them";
  const auto label_of = [&](const std::string& key) {  // "train-00001.parquet#4", in the folder
    return labels.at(static_cast<std::size_t>(7 * (key[key.size() - 11] - '0') + (key.back() - '0')));
  };
  mill::runtime rt;
  std::map<std::string, int> seen;
  for (const mill::host_batch& b : rt.run(training_on_parquet(at.path(), {}, {}))) {
    for (std::size_t i = 0; i < b.size(); ++i) {
      if (b.weights()[i] == 0) continue;
      CHECK(b.field("label").values<std::int64_t>()[i] == label_of(b.keys()[i]));
      ++seen[b.keys()[i]];
    }
  }
  CHECK(seen.size() == 21);
  for (const auto& [key, times] : seen) CHECK(times == 2);

  const mill::dataset train(
      mill::files(), at.path() + "/train-",
      {.index = at.file("numbers.index"), .format = mill::parquet({.columns = {"box", "tokens"}})});
  std::size_t rows = 0;
  for (const mill::sample& s : rt.run(mill::epochs(train, {.seed = 1, .batch = 1}))) {
    const example e = read(s);
    CHECK(e.box == std::vector<float>(4, static_cast<float>(label_of(s.key)) / 2));
    CHECK(e.tokens == std::vector<std::int32_t>(static_cast<std::size_t>(label_of(s.key)), 9));
    ++rows;
  }
  CHECK(rows == 21);
}
