// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/records/detail/parquet_file.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <tests/parquet/drawn_parquet.hpp>
#include <tests/support/catch.hpp>

using namespace millrace;
using millrace_test::drawn_table;
using millrace_test::opened;
using millrace_test::pieces_of;

namespace {

drawn_table::row row_of(const detail::parquet_rows& rows, std::uint64_t i) {
  std::vector<field> fields;
  rows.fill(i, fields, where{"s3://b/a.parquet", {}, "row"});
  drawn_table::row made;
  for (const field& f : fields) made[f.extension] = std::string(f.data.view());
  return made;
}

}  // namespace

TEST_CASE("rows of Parquet files are what was written, whatever codec, encoding, page and group", "[parquet]") {
  std::uint64_t compared = 0;
  for (std::uint64_t variant = 0; variant < 24; ++variant) {
    const drawn_table drawn(variant, 211);
    const std::string file = drawn_table::file(drawn.table, 1 + static_cast<std::int64_t>(variant * 37 % 130), variant);
    const auto read = opened(file);
    REQUIRE(read->rows() == 211);
    for (std::size_t g = 0; g < read->groups(); ++g) {
      const auto rows = read->decode(g, pieces_of(file, read->group(g), variant % 2 == 0 ? 1 << 30 : 1000));
      REQUIRE(rows->size() == read->group(g).rows);
      for (std::uint64_t i = 0; i < rows->size(); ++i, ++compared) {
        const auto& expected = drawn.rows[static_cast<std::size_t>(rows->first() + i)];
        if (row_of(*rows, i) != expected) {
          INFO("variant " << variant << ", group " << g << ", row " << i);
          for (const auto& [name, value] : expected) {
            INFO(name);
            CHECK(row_of(*rows, i)[name] == value);
          }
          REQUIRE(row_of(*rows, i) == expected);
        }
      }
    }
  }
  CHECK(compared == 24 * 211);
}

TEST_CASE("columns of a Parquet file are chosen, structs and what is in them, in the order asked for", "[parquet]") {
  const drawn_table drawn(7, 50);
  const std::string file = drawn_table::file(drawn.table, 20, 3);
  const auto read = opened(file, {.columns = {"label", "image.bytes", "box"}, .label = "label"});
  REQUIRE(read->fields().size() == 3);
  CHECK(read->fields()[0].name == "label");
  CHECK(read->fields()[0].type == dtype::i64);
  CHECK(read->fields()[0].dims == shape{});
  CHECK(read->fields()[1].name == "image.bytes");
  CHECK(!read->fields()[1].type);
  CHECK(read->fields()[2].type == dtype::f32);
  CHECK(read->fields()[2].dims == shape{4});
  const auto rows = read->decode(1, pieces_of(file, read->group(1), 500));
  std::vector<field> fields;
  const auto& expected = drawn.rows[23];
  rows->fill(3, fields, {});
  REQUIRE(fields[0].extension == "cls");
  std::int64_t label = 0;
  std::memcpy(&label, expected.at("label").data(), sizeof label);
  CHECK(fields[0].data.view() == std::to_string(label));
  CHECK(fields[1].extension == "label");
  CHECK(fields.back().extension == "box");
  CHECK(fields.back().data.view() == expected.at("box"));
  CHECK(reinterpret_cast<std::uintptr_t>(fields.back().data.data()) % alignof(float) == 0);

  const auto whole = opened(file, {.columns = {"image"}});
  REQUIRE(whole->fields().size() == 2);
  CHECK(whole->fields()[1].name == "image.path");
  CHECK(whole->group(0).decoded < read->group(0).decoded + 20 * 1000);
}

TEST_CASE("texts that repeat stay a dictionary when Parquet is decoded, and no thread is started", "[parquet]") {
  arrow::StringBuilder texts;
  const auto text_of = [](int i) { return std::string(2000, static_cast<char>('a' + i % 7)); };
  constexpr int rows = 60'000;  // 120 MB of texts
  for (int i = 0; i < rows; ++i) millrace_test::need_ok(texts.Append(text_of(i)));
  const auto table = arrow::Table::Make(arrow::schema({arrow::field("text", arrow::utf8())}),
                                        {millrace_test::need_ok(texts.Finish())});
  const std::string file = drawn_table::file(table, rows, 0);
  REQUIRE(file.size() < 100'000);
  const auto threads = [] {
    const std::filesystem::directory_iterator all("/proc/self/task");
    return std::distance(begin(all), end(all));
  };
  const auto before = threads();
  const auto read = opened(file);
  const auto decoded = read->decode(0, pieces_of(file, read->group(0), 1 << 30));
  CHECK(threads() == before);
  CHECK(decoded->memory() < 2'000'000);
  std::vector<field> fields;
  for (const int i : {0, 1, 6, 59'999}) {
    fields.clear();
    decoded->fill(static_cast<std::uint64_t>(i), fields, {});
    CHECK(fields.at(0).data.view() == text_of(i));
  }
}

TEST_CASE("fields of Parquet rows are slices of what Arrow decoded, which they keep alive", "[parquet]") {
  const drawn_table drawn(8, 40);
  const std::string file = drawn_table::file(drawn.table, 40, 1);
  std::vector<bytes> kept;
  std::set<const void*> owners;
  {
    const auto read = opened(file, {.columns = {"jpg"}});
    const auto rows = read->decode(0, pieces_of(file, read->group(0), 1 << 30));
    CHECK(rows->memory() > 0);
    for (std::uint64_t i = 0; i < rows->size(); ++i) {
      std::vector<field> fields;
      rows->fill(i, fields, {});
      if (fields.empty()) continue;
      owners.insert(fields[0].data.memory());
      kept.push_back(fields[0].data);
    }
  }
  CHECK(owners.size() == 1);
  std::size_t i = 0;
  for (const auto& r : drawn.rows) {
    if (const auto at = r.find("jpg"); at != r.end()) CHECK(kept[i++].view() == at->second);
  }
  CHECK(i == kept.size());
}
