// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/records/detail/parquet_file.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <millrace/base/rng.hpp>

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

TEST_CASE("a Parquet dictionary with more values than rows, of which few are used, stays one", "[parquet]") {
  constexpr int rows = 60'000;  // 120 MB of texts, were each row to have its own
  arrow::StringBuilder values;
  for (int i = 0; i < 7; ++i) millrace_test::need_ok(values.Append(std::string(2000, static_cast<char>('a' + i))));
  for (int i = 0; i < rows; ++i) millrace_test::need_ok(values.Append(std::to_string(i)));
  arrow::Int32Builder indices;
  for (int i = 0; i < rows; ++i) millrace_test::need_ok(indices.Append(i % 7));
  const auto texts = millrace_test::need_ok(arrow::DictionaryArray::FromArrays(
      millrace_test::need_ok(indices.Finish()), millrace_test::need_ok(values.Finish())));
  const auto table = arrow::Table::Make(arrow::schema({arrow::field("text", texts->type())}), {texts});
  const std::string file = drawn_table::file(table, rows, 0);
  const auto read = opened(file);
  const auto decoded = read->decode(0, pieces_of(file, read->group(0), 1 << 30));
  CHECK(decoded->memory() < 3'000'000);
  std::vector<field> fields;
  for (const int i : {0, 8, 59'999}) {
    fields.clear();
    decoded->fill(static_cast<std::uint64_t>(i), fields, {});
    CHECK(fields.at(0).data.view() == std::string(2000, static_cast<char>('a' + i % 7)));
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

namespace {

/// Whether a value as a field has it meets a condition; `T` is what its bytes are.
template <class T>
bool meets(const std::string& field, const parquet_condition& c) {
  const auto by = [&](const auto& is, const auto& v) {
    return c.test == "<"    ? is < v
           : c.test == "<=" ? is <= v
           : c.test == ">=" ? is >= v
           : c.test == ">"  ? is > v
                            : is == v;
  };
  if constexpr (std::is_same_v<T, std::string>) {
    return by(field, std::get<std::string>(c.value));
  } else {
    T value;
    REQUIRE(field.size() == sizeof value);
    std::memcpy(&value, field.data(), sizeof value);
    const auto wanted = std::holds_alternative<double>(c.value)
                            ? static_cast<long double>(std::get<double>(c.value))
                            : static_cast<long double>(std::get<std::int64_t>(c.value));
    return by(static_cast<long double>(value), wanted);
  }
}

/// Groups are left out exactly where no row meets the condition; for one of equality only where it is out of range.
template <class T>
void check_condition(const drawn_table& drawn, const std::string& file, const parquet_condition& c) {
  const std::uint64_t length =
      detail::parquet_file::footer_bytes(std::string_view(file).substr(file.size() - 8), file.size(), "f");
  const detail::parquet_file made(std::string_view(file).substr(file.size() - length), file.size(), "f",
                                  {.columns = {"jpg"}, .where = {c}});
  CAPTURE(c.column, c.test);
  for (std::size_t g = 0; g < made.groups(); ++g) {
    bool any = false;
    for (std::uint64_t i = 0; i < made.group(g).rows; ++i) {
      const drawn_table::row& r = drawn.rows[static_cast<std::size_t>(made.group(g).first_row + i)];
      const auto at = r.find(c.column);
      any = any || (at != r.end() && meets<T>(at->second, c));
    }
    if (c.test != "==") {
      REQUIRE(made.group(g).left_out == !any);
    } else if (any) {
      REQUIRE_FALSE(made.group(g).left_out);
    }
  }
}

}  // namespace

TEST_CASE("row groups are left out where their statistics say that no row meets a condition", "[parquet]") {
  rng draw(7, 1, 3);
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const drawn_table drawn(seed, 120);
    const std::string file = drawn_table::file(drawn.table, static_cast<std::int64_t>(1 + draw.below(9)), seed);
    const auto bound_of = [&](const std::string& column) {  // some row's value
      for (;;) {
        const drawn_table::row& r = drawn.rows[static_cast<std::size_t>(draw.below(drawn.rows.size()))];
        if (const auto at = r.find(column); at != r.end()) return at->second;
      }
    };
    for (const char* const test : {"<", "<=", "==", ">=", ">"}) {
      const auto check = [&]<class T>(const std::string& column, T) {
        parquet_condition c{column, test, {}};
        const std::string bound = bound_of(column);
        if constexpr (std::is_same_v<T, std::string>) {
          c.value = bound;
        } else {
          T value;
          std::memcpy(&value, bound.data(), sizeof value);
          if constexpr (std::is_floating_point_v<T>) {
            c.value = static_cast<double>(value);
          } else {
            c.value = static_cast<std::int64_t>(value);
          }
        }
        check_condition<T>(drawn, file, c);
      };
      check("label", std::int64_t());
      check("i8", std::int8_t());
      check("u16", std::uint16_t());
      check("i32", std::int32_t());
      check("u64", std::uint64_t());
      check("f32", float());
      check("f64", double());
      check("caption", std::string());
    }
    const auto out = [&](parquet_condition c) {
      const std::uint64_t length =
          detail::parquet_file::footer_bytes(std::string_view(file).substr(file.size() - 8), file.size(), "f");
      const detail::parquet_file made(std::string_view(file).substr(file.size() - length), file.size(), "f",
                                      {.columns = {"jpg"}, .where = {std::move(c)}});
      std::size_t n = 0;
      for (std::size_t g = 0; g < made.groups(); ++g) n += made.group(g).left_out ? 1 : 0;
      return std::make_pair(n, made.groups());
    };
    const auto all = out({"i8", "==", 1000});
    CHECK(all.first == all.second);
  }
}
