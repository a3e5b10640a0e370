// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/records/detail/parquet_file.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <parquet/encryption/encryption.h>
#include <parquet/file_reader.h>

#include <tests/parquet/drawn_parquet.hpp>
#include <tests/support/catch.hpp>

using namespace millrace;
using Catch::Matchers::Contains;
using millrace_test::drawn_table;
using millrace_test::failure_of;
using millrace_test::need_ok;
using millrace_test::opened;
using millrace_test::pieces_of;

namespace {

std::string little(std::uint64_t value, std::size_t size) {
  std::string s;
  for (; size > 0; --size, value >>= 8) s += static_cast<char>(value & 0xff);
  return s;
}

/// An i64 of thrift's compact protocol, after the head of its field.
std::string i64(char head, std::int64_t value) {
  std::string s(1, head);
  auto zigzag = static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
  for (; zigzag > 0x7f; zigzag >>= 7) s += static_cast<char>(zigzag | 0x80);
  return s + static_cast<char>(zigzag);
}

/// The file with something else in its footer, which is there once.
std::string with_footer(const std::string& file, const std::string& from, const std::string& to) {
  const auto length = static_cast<std::size_t>(detail::parquet_file::footer_bytes(file, file.size(), "f")) - 8;
  std::string footer = file.substr(file.size() - 8 - length, length);
  const std::size_t at = footer.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(footer.find(from, at + 1) == std::string::npos);
  footer.replace(at, from.size(), to);
  return file.substr(0, file.size() - 8 - length) + footer + little(footer.size(), 4) + "PAR1";
}

/// A file of two columns, "a" and "b", in groups of `group` rows, and where its columns lie.
class two_columns {
 public:
  explicit two_columns(std::int64_t rows, std::int64_t group = 100) {
    arrow::Int64Builder a;
    arrow::Int64Builder b;
    for (std::int64_t i = 0; i < rows; ++i) {
      need_ok(a.Append(i));
      need_ok(b.Append(i * i));
    }
    const auto table =
        arrow::Table::Make(arrow::schema({arrow::field("a", arrow::int64()), arrow::field("b", arrow::int64())}),
                           {need_ok(a.Finish()), need_ok(b.Finish())});
    file = drawn_table::file(table, group, 6);  // neither compressed nor with dictionaries
  }
  /// What the footer has of a column of a group: sizes without and with compression, and where its pages begin.
  std::string place(int group, int column) const {
    const auto meta =
        ::parquet::ReadMetaData(std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(file)));
    const auto c = meta->RowGroup(group)->ColumnChunk(column);
    return place(c->total_uncompressed_size(), c->total_compressed_size(), c->data_page_offset());
  }
  static std::string place(std::int64_t bytes, std::int64_t compressed, std::int64_t offset) {
    return i64(0x16, bytes) + i64(0x16, compressed) + i64(0x26, offset);
  }

  std::string file;
};

}  // namespace

TEST_CASE("what is no Parquet file, is cut or encrypted is named", "[parquet]") {
  const std::string file = two_columns(10).file;
  REQUIRE(failure_of(file).empty());
  CHECK_THAT(failure_of(""), Contains("not a Parquet file: it has 0 bytes"));
  CHECK_THAT(failure_of("PAR1PAR1"), Contains("it has 8 bytes"));
  CHECK_THAT(failure_of(file.substr(0, file.size() - 1)), Contains("it does not end in PAR1"));
  CHECK_THAT(failure_of(file.substr(0, file.size() / 2)), Contains("it does not end in PAR1"));
  CHECK_THAT(failure_of(file.substr(0, file.size() - 8) + little(file.size(), 4) + "PAR1"),
             Contains("the footer has " + std::to_string(file.size()) + " bytes"));
  CHECK_THAT(failure_of(file.substr(0, file.size() - 8) + little(0, 4) + "PAR1"), Contains("the footer has 0 bytes"));
  CHECK_THAT(failure_of(file.substr(0, file.size() - 8) + little(30, 4) + "PAR1"), Contains("Arrow cannot read it"));
  CHECK_THAT(failure_of(file.substr(0, file.size() - 4) + "PARE"), Contains("the footer is encrypted"));

  ::parquet::FileEncryptionProperties::Builder how(arrow::util::SecureString(std::string("0123456789012345")));
  how.set_plaintext_footer();
  ::parquet::WriterProperties::Builder writing;
  writing.encryption(how.build());
  const auto table = drawn_table(1, 10).table;
  const auto out = need_ok(arrow::io::BufferOutputStream::Create());
  need_ok(::parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), out, 10, writing.build()));
  CHECK_THAT(failure_of(need_ok(out->Finish())->ToString()), Contains("it is encrypted"));
}

TEST_CASE("a Parquet footer that lies about its columns is refused with object, group and column", "[parquet]") {
  const two_columns of(250);
  const std::string& file = of.file;
  REQUIRE(failure_of(file).empty());
  const auto meta = ::parquet::ReadMetaData(std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(file)));
  const auto column = meta->RowGroup(1)->ColumnChunk(1);
  const std::int64_t bytes = column->total_uncompressed_size();
  const std::int64_t size = column->total_compressed_size();
  const std::int64_t offset = column->data_page_offset();
  const auto with = [&](std::int64_t b, std::int64_t s, std::int64_t o) {
    return failure_of(with_footer(file, of.place(1, 1), two_columns::place(b, s, o)));
  };
  const std::string place = "s3://b/a.parquet";
  CHECK_THAT(with(bytes, size, 1'000'000'000'000),
             Contains(place) && Contains("row group 1, column \"b\": by the footer"));
  CHECK_THAT(with(bytes, size, -5), Contains("row group 1, column \"b\""));
  CHECK_THAT(with(bytes, size, 0), Contains("row group 1, column \"b\""));
  CHECK_THAT(with(bytes, 5'000'000'000'000, offset), Contains("row group 1, column \"b\": by the footer"));
  CHECK_THAT(with(bytes, INT64_MAX, offset), Contains("row group 1, column \"b\""));
  CHECK_THAT(with(bytes, -1, offset), Contains("row group 1, column \"b\""));
  CHECK_THAT(with(INT64_MAX, size, offset), Contains("row group 1, column \"b\": it says that it has 100 values"));
  CHECK_THAT(with(-1, size, offset), Contains("row group 1, column \"b\": it says that it has 100 values in -1 bytes"));
  // Bytes that another column has, too.
  CHECK_THAT(with(bytes, size, offset - 1), Contains("row group 1, column \"b\": by the footer it begins at byte") &&
                                                Contains("and row group 1, column \"a\" ends at byte"));
  // Within the file, but not what is there.
  CHECK_THAT(with(bytes, size - 40, offset), Contains("row group 1, column \"b\"") && Contains("Arrow cannot read it"));

  // Rows: 100 are there of the second group, num_values of its columns is field 5 after field 4, codec.
  CHECK_THAT(failure_of(with_footer(two_columns(77).file, i64(0x16, 77) + std::string("\x19", 1),
                                    i64(0x16, 78) + std::string("\x19", 1))),
             Contains("77") && Contains("78"));
}

TEST_CASE("Parquet files without rows, and without row groups, have none", "[parquet]") {
  for (const std::int64_t rows : {0, 1}) {
    const std::string file = two_columns(rows).file;
    const auto read = opened(file);
    CHECK(read->rows() == static_cast<std::uint64_t>(rows));
    CHECK(failure_of(file).empty());
  }
}

TEST_CASE("Parquet columns that no field can be made of are refused, and may be left out", "[parquet]") {
  arrow::MapBuilder map(arrow::default_memory_pool(), std::make_shared<arrow::StringBuilder>(),
                        std::make_shared<arrow::Int32Builder>());
  need_ok(map.Append());
  arrow::Int64Builder a;
  need_ok(a.Append(3));
  const auto table =
      arrow::Table::Make(arrow::schema({arrow::field("map", map.type()), arrow::field("a", arrow::int64())}),
                         {need_ok(map.Finish()), need_ok(a.Finish())});
  const std::string file = drawn_table::file(table, 100, 0);
  CHECK_THAT(failure_of(file), Contains("no field can be made of column \"map\"") && Contains(".columns"));
  CHECK(failure_of(file, {.columns = {"a"}}).empty());
  CHECK_THAT(failure_of(file, {.columns = {"b"}}), Contains("no column \"b\" (it has: map, a)"));
  CHECK_THAT(failure_of(file, {.columns = {"a", "a"}}), Contains("column \"a\" stands twice"));
  CHECK_THAT(failure_of(file, {.columns = {"a"}, .label = "c"}), Contains("no column \"c\""));
  CHECK_THAT(failure_of(drawn_table::file(drawn_table(1, 5).table, 5, 0), {.label = "caption"}),
             Contains("is no column of whole numbers"));
}

TEST_CASE("a list with a null in it is an error of its row", "[parquet]") {
  auto values = std::make_shared<arrow::Int32Builder>();
  arrow::ListBuilder list(arrow::default_memory_pool(), values);
  for (int i = 0; i < 3; ++i) {
    need_ok(list.Append());
    need_ok(values->Append(i));
    need_ok(i == 1 ? values->AppendNull() : values->Append(i));
  }
  const auto table = arrow::Table::Make(arrow::schema({arrow::field("x", list.type())}), {need_ok(list.Finish())});
  CHECK_THAT(failure_of(drawn_table::file(table, 100, 0)),
             Contains("a.parquet#1") && Contains("has a list with a null"));
}

TEST_CASE("Parquet files with damaged bytes give errors that name them, or rows", "[parquet]") {
  std::vector<std::string> files;
  for (const std::uint64_t variant : {0, 2, 5, 7, 9, 11}) {
    files.push_back(drawn_table::file(drawn_table(variant, 30).table, 12, variant));
  }
  std::uint64_t refused = 0;
  std::uint64_t read = 0;
  const char* const asked = std::getenv("MILLRACE_TEST_PARQUET_FUZZ");
  const std::uint64_t rounds = asked == nullptr ? 1500 : std::strtoull(asked, nullptr, 10);
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    rng draw(seed, 1, 1);
    std::string file = files[static_cast<std::size_t>(seed % files.size())];
    const std::uint64_t footer = detail::parquet_file::footer_bytes(file, file.size(), "f");
    for (std::uint64_t flips = 1 + draw.below(3); flips > 0; --flips) {
      const std::uint64_t of = draw.below(2) == 0 ? footer : file.size();
      char& c = file[static_cast<std::size_t>(file.size() - 1 - draw.below(of))];
      c = static_cast<char>(draw.below(3) == 0 ? draw.next() : static_cast<unsigned char>(c) ^ 1U << draw.below(8));
    }
    if (draw.below(10) == 0) file.resize(static_cast<std::size_t>(draw.below(file.size())));
    INFO("seed " << seed);
    ++(failure_of(file).empty() ? read : refused);
  }
  CHECK(refused > rounds / 4);
  CHECK(read > rounds / 10);
}
