// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Valid files that are unusual: columns of several types in one dataset, names that meet, files that other writers
// made, and row groups that take much memory.

#include <millrace/parquet.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <parquet/file_reader.h>

#include <millrace/index/shard_index.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/parquet/drawn_parquet.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_data.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/record_epochs.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using millrace_test::drawn_table;
using millrace_test::need_ok;
using millrace_test::opened;
using millrace_test::pieces_of;
using test::failure_of;
using test::trained;

namespace {

using column = std::pair<std::string, std::shared_ptr<arrow::Array>>;

template <class Builder, class T>
std::shared_ptr<arrow::Array> array_of(Builder b, const std::vector<T>& values) {
  for (const T& v : values) need_ok(b.Append(v));
  return need_ok(b.Finish());
}
std::shared_ptr<arrow::Array> texts(const std::vector<std::string>& values) {
  return array_of(arrow::StringBuilder(), values);
}
template <class Builder = arrow::Int64Builder>
std::shared_ptr<arrow::Array> numbers() {
  return array_of(Builder(), std::vector<int>{1, 2});
}
std::shared_ptr<arrow::Array> cast(const std::shared_ptr<arrow::Array>& whole,
                                   const std::shared_ptr<arrow::DataType>& to) {
  return need_ok(whole->View(to));
}
/// Two lists of each of these.
template <class Builder>
std::shared_ptr<arrow::Array> lists() {
  auto values = std::make_shared<Builder>();
  arrow::ListBuilder made(arrow::default_memory_pool(), values);
  for (int i = 0; i < 2; ++i) {
    need_ok(made.Append());
    need_ok(values->AppendValues({1, 2, 3}));
  }
  return need_ok(made.Finish());
}
std::shared_ptr<arrow::Array> lists_of_texts(int rows, const std::string& text) {
  auto values = std::make_shared<arrow::StringBuilder>();
  arrow::ListBuilder made(arrow::default_memory_pool(), values);
  for (int i = 0; i < rows; ++i) {
    need_ok(made.Append());
    need_ok(values->Append(text));
    need_ok(values->Append(text));
  }
  return need_ok(made.Finish());
}

std::shared_ptr<arrow::Table> table_of(const std::vector<column>& columns) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  return arrow::Table::Make(arrow::schema(fields), arrays);
}
std::string file_of(const std::vector<column>& columns) { return drawn_table::file(table_of(columns), 100, 1); }

std::string written(const std::shared_ptr<arrow::Table>& table, ::parquet::WriterProperties::Builder& how,
                    ::parquet::ArrowWriterProperties::Builder arrow_how = {}) {
  auto out = need_ok(arrow::io::BufferOutputStream::Create());
  need_ok(::parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), out, table->num_rows(), how.build(),
                                       arrow_how.build()));
  return need_ok(out->Finish())->ToString();
}

std::shared_ptr<::parquet::FileMetaData> read_metadata(const std::string& file) {
  return ::parquet::ReadMetaData(std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(file)));
}

/// The failure or the samples of a training of these files.
std::string said_of(const std::vector<std::pair<std::string, std::string>>& files, parquet_options how = {},
                    failure_policy policy = {}) {
  runtime rt;
  const auto store = std::make_shared<test::dataset_store>(1);
  for (const auto& [name, file] : files) store->objects["mem:d/" + name] = file;
  const test::temporary_folder folder;
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                     {.index = folder.file("x.index"), .format = millrace::parquet(std::move(how))});
  epochs_options o{.batch = 2};
  o.failures = policy;
  return failure_of([&] { trained(rt, data, o); });
}
std::string said_of_two(const std::shared_ptr<arrow::Array>& a, const std::shared_ptr<arrow::Array>& b) {
  return said_of({{"a.parquet", file_of({{"t", a}})}, {"b.parquet", file_of({{"t", b}})}});
}

std::vector<std::string> column_of(const std::string& file, const std::string& name, parquet_options how = {},
                                   std::uint64_t most = UINT64_MAX) {
  std::vector<std::string> all;
  const auto read = opened(file, std::move(how));
  for (std::size_t g = 0; g < read->groups(); ++g) {
    const auto rows = read->decode(g, pieces_of(file, read->group(g), 1 << 30));
    for (std::uint64_t i = 0; i < std::min(rows->size(), most); ++i) {
      std::vector<field> fields;
      rows->fill(i, fields, where{"f", {}, "row " + std::to_string(i)});
      for (const field& f : fields) {
        if (f.extension == name) all.emplace_back(f.data.view());
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("files of one Parquet dataset have columns whose bytes mean the same", "[parquet]") {
  CHECK_THAT(said_of_two(lists<arrow::Int64Builder>(), lists<arrow::Int32Builder>()),
             Contains("b.parquet: parquet: field \"t\" is list of int32, and in a.parquet list of int64"));
  const auto times = numbers();
  CHECK_THAT(said_of_two(cast(times, arrow::timestamp(arrow::TimeUnit::MILLI)),
                         cast(times, arrow::timestamp(arrow::TimeUnit::MICRO))),
             Contains("timestamp[us]") && Contains("timestamp[ms]"));
  const auto decimals = array_of(arrow::Decimal128Builder(arrow::decimal128(9, 2)),
                                 std::vector<arrow::Decimal128>{arrow::Decimal128(1), arrow::Decimal128(2)});
  CHECK_THAT(said_of_two(decimals, cast(decimals, arrow::decimal128(9, 3))),
             Contains("decimal128 of scale 3, and in a.parquet decimal128 of scale 2"));
  CHECK(said_of_two(decimals, cast(decimals, arrow::decimal128(12, 2))) == "no error");
  CHECK_THAT(said_of_two(numbers(), texts({"a", "b"})), Contains("text or binary data"));
  CHECK_THAT(said_of_two(numbers(), lists<arrow::Int64Builder>()), Contains("list of int64, and in a.parquet int64"));
  CHECK(said_of_two(texts({"a", "b"}), array_of(arrow::LargeBinaryBuilder(), std::vector<std::string>{"a", "b"})) ==
        "no error");
  CHECK(said_of_two(std::make_shared<arrow::NullArray>(2), numbers()) == "no error");

  // A column that one file lacks.
  const std::string whole = file_of({{"t", numbers()}, {"u", numbers()}});
  const std::string less = file_of({{"t", numbers()}});
  CHECK_THAT(said_of({{"a.parquet", whole}, {"b.parquet", less}}),
             Contains("b.parquet: parquet: there is no field \"u\", which a.parquet has (int64)"));
  CHECK_THAT(said_of({{"a.parquet", less}, {"b.parquet", whole}}),
             Contains("a.parquet: parquet: there is no field \"u\", which b.parquet has (int64)"));
  CHECK(said_of({{"a.parquet", whole}, {"b.parquet", less}}, {.columns = {"t"}}) == "no error");
  // Only the text of a class becomes a field.
  CHECK(
      said_of({{"a.parquet", whole}, {"b.parquet", file_of({{"t", numbers<arrow::Int32Builder>()}, {"u", numbers()}})}},
              {.columns = {"u"}, .label = "t"}) == "no error");
}

TEST_CASE("indexes of Parquet files with other columns are refused when they are opened together", "[parquet]") {
  runtime rt;
  const auto store = std::make_shared<test::dataset_store>(1);
  store->objects["mem:d/a.parquet"] = file_of({{"t", lists<arrow::Int64Builder>()}});
  store->objects["mem:d/b.parquet"] = file_of({{"t", lists<arrow::Int32Builder>()}});
  const test::temporary_folder folder;
  std::vector<shard_index> both;
  for (const std::string name : {"a", "b"}) {
    const dataset one(std::shared_ptr<const storage>(store), std::vector<shard>{shard("mem:d/" + name + ".parquet")},
                      {.index = folder.file(name), .format = millrace::parquet(), .prefix = "mem:d/"});
    CHECK(trained(rt, one, {.batch = 2}).samples.size() == 2);
    for (shard_index& index : open_indexes(folder.file(name))) both.push_back(std::move(index));
  }
  const auto all = std::make_shared<const index_set>(std::move(both));
  CHECK_THAT(failure_of([&] {
               const dataset data(std::shared_ptr<const storage>(store), all,
                                  {.format = millrace::parquet(), .prefix = "mem:d/"});
             }),
             Contains("b.parquet: parquet: field \"t\" is list of int32, and in a.parquet list of int64"));
  // A file of both.
  std::string text;
  write_indexes(*all, text);
  std::ofstream(folder.file("both"), std::ios::binary) << text;
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                     {.index = folder.file("both"), .make_index = false, .format = millrace::parquet()});
  CHECK_THAT(failure_of([&] { trained(rt, data, {.batch = 2}); }),
             Contains("b.parquet: parquet: field \"t\" is list of int32, and in a.parquet list of int64"));
}

TEST_CASE("names of fields that Parquet columns are given do not meet those of columns", "[parquet]") {
  const auto opening = [](const std::vector<column>& columns, parquet_options how = {}) {
    const std::string file = file_of(columns);
    return failure_of([&] { opened(file, std::move(how)); });
  };
  const std::vector<column> classes = {{"cls", texts({"a", "b"})}, {"label", numbers()}};
  CHECK_THAT(opening(classes, {.label = "label"}),
             Contains("parquet: .label \"label\" makes a field \"cls\", and there is a column \"cls\""));
  CHECK(opening(classes, {.columns = {"label"}, .label = "label"}) == "no error");
  CHECK(opening(classes) == "no error");
  const std::string own = file_of({{"cls", numbers()}, {"x", numbers()}});
  CHECK(column_of(own, "cls", {.label = "cls"}) == std::vector<std::string>{"1", "2"});
  CHECK(opened(own, {.label = "cls"})->fields().size() == 1);
  CHECK(opened(own, {.label = "cls"})->fields()[0].name == "x");

  const std::vector<column> hash = {{"t", lists_of_texts(2, "a")}, {"t#1", texts({"a", "b"})}};
  CHECK_THAT(opening(hash),
             Contains("column \"t\", a list of texts, makes a field \"t#1\", and there is a column \"t#1\""));
  CHECK(opening(hash, {.columns = {"t#1"}}) == "no error");
  CHECK(opening({{"t", lists_of_texts(2, "a")}, {"t#x", texts({"a", "b"})}}) == "no error");

  auto values = std::make_shared<arrow::Int64Builder>();
  auto inner = std::make_shared<arrow::ListBuilder>(arrow::default_memory_pool(), values);
  arrow::ListBuilder outer(arrow::default_memory_pool(), inner);
  for (int i = 0; i < 2; ++i) {
    need_ok(outer.Append());
    need_ok(inner->Append());
    need_ok(values->Append(i));
  }
  CHECK_THAT(
      opening({{"t", need_ok(outer.Finish())}, {"t.offsets", texts({"a", "b"})}}),
      Contains("column \"t\", a list of lists, makes a field \"t.offsets\", and there is a column \"t.offsets\""));
}

TEST_CASE("a time of type INT96 that nanoseconds do not hold is an error of its row", "[parquet]") {
  constexpr std::int64_t last_of_9999 = 253'402'214'400'000'000;
  constexpr std::int64_t year_1000 = -30'610'224'000'000'001;
  const auto times =
      array_of(arrow::TimestampBuilder(arrow::timestamp(arrow::TimeUnit::MICRO), arrow::default_memory_pool()),
               std::vector<std::int64_t>{1, last_of_9999, -1, year_1000});
  ::parquet::ArrowWriterProperties::Builder old;
  old.enable_deprecated_int96_timestamps();
  ::parquet::WriterProperties::Builder how;
  const std::string file = written(table_of({{"t", times}, {"x", texts({"a", "b", "c", "d"})}}), how, old);
  const auto read = opened(file);
  CHECK(read->fields()[0].arrow == "timestamp[ns]");
  const auto rows = read->decode(0, pieces_of(file, read->group(0), 1 << 30));
  std::vector<field> fields;
  for (const std::uint64_t i : {0, 2}) rows->fill(i, fields, {});
  std::int64_t before = 0;
  std::memcpy(&before, fields[2].data.data(), sizeof before);
  CHECK(before == -1000);
  for (const std::uint64_t i : {1, 3}) {
    CHECK_THAT(failure_of([&] {
                 rows->fill(i, fields, where{"f", {}, "its row"});
               }),
               Contains("f, its row: column \"t\" has a time of type INT96 beyond the years 1677 to 2262"));
  }
  CHECK(column_of(file, "x", {.columns = {"x"}}).size() == 4);

  const auto each = std::make_shared<arrow::TimestampBuilder>(times->type(), arrow::default_memory_pool());
  arrow::ListBuilder lists(arrow::default_memory_pool(), each);
  for (const std::int64_t time : {std::int64_t{1}, last_of_9999}) {
    need_ok(lists.Append());
    need_ok(each->AppendValues({2, time}));
  }
  const std::string of_lists = written(table_of({{"t", need_ok(lists.Finish())}}), how, old);
  CHECK(column_of(of_lists, "t", {}, 1).front().size() == 16);
  CHECK_THAT(failure_of([&] { column_of(of_lists, "t"); }),
             Contains("f, row 1: column \"t\" has a time of type INT96 beyond the years 1677 to 2262"));
}

TEST_CASE("texts that repeat take little memory in lists, and where a dictionary is not all of a column", "[parquet]") {
  constexpr std::uint64_t narrow = 24 * MiB;
  constexpr int rows = 20'000;
  const std::string text(2000, 'x');  // 40 MB of them, and twice that in lists
  ::parquet::WriterProperties::Builder how;
  const std::string in_lists = written(table_of({{"t", lists_of_texts(rows, text)}}), how);
  CHECK(in_lists.size() < 1'000'000);
  CHECK(column_of(in_lists, "t", {.memory = narrow}) == std::vector<std::string>(rows, text));

  std::vector<std::string> mixed(rows, text);
  // Arrow looks at the dictionary after each thousand or so; what follows is plain.
  for (int i = 0; i < 3000; ++i) mixed.push_back(std::to_string(i) + std::string(1000, 'y'));
  how.dictionary_pagesize_limit(20'000);
  const std::string parts = written(table_of({{"t", texts(mixed)}}), how);
  bool plain = false;
  const auto footer = read_metadata(parts);
  const auto group = footer->RowGroup(0);
  const auto chunk = group->ColumnChunk(0);
  for (const auto& pages : chunk->encoding_stats()) {
    plain = plain || pages.encoding == ::parquet::Encoding::PLAIN;
  }
  REQUIRE(plain);
  CHECK(column_of(parts, "t", {.memory = narrow}) == mixed);
}

TEST_CASE("a Parquet row group that takes more memory than its bound is no damage", "[parquet]") {
  std::vector<std::string> alike;
  for (int i = 0; i < 50'000; ++i) alike.push_back(std::string(1000, 'x') + std::to_string(i));  // 50 MB
  ::parquet::WriterProperties::Builder how;
  how.disable_dictionary();
  how.encoding("t", ::parquet::Encoding::DELTA_BYTE_ARRAY);
  const std::string file = written(table_of({{"t", texts(alike)}}), how);
  REQUIRE(file.size() < 2'000'000);
  CHECK(column_of(file, "t") == alike);
  CHECK_THROWS_AS(column_of(file, "t", {.memory = 8 * MiB}), configuration_error);
  CHECK_THAT(failure_of([&] { column_of(file, "t", {.memory = 8 * MiB}); }),
             Contains("row group 0, column \"t\": parquet: the row group takes more than 8.39 MB of memory") &&
                 Contains("parquet_options::memory allows more"));
  const failure_policy skip{.then = on_failure::skip, .report = false};
  CHECK_THAT(said_of({{"a.parquet", file}}, {.memory = 8 * MiB}, skip),
             Contains("parquet_options::memory allows more"));
  // Its pages are looked at in pieces of 5,000 bytes, without memory of the bound.
  CHECK_THAT(millrace_test::failure_of(file, {.memory = 1}), Contains("parquet_options::memory allows more"));
  // A page that claims a megabyte, more than all have: after its type stands its length, as a number of 3 bytes.
  std::string damaged = file;
  REQUIRE(damaged.substr(4, 3) == std::string("\x15\0\x15", 3));
  REQUIRE(std::uint8_t(damaged[7]) > 0x7f);
  REQUIRE(std::uint8_t(damaged[8]) > 0x7f);
  REQUIRE(std::uint8_t(damaged[9]) < 0x80);
  REQUIRE(file.size() < 1'000'000);
  damaged[8] = '\xff';
  damaged[9] = '\x7f';
  CHECK_THAT(millrace_test::failure_of(damaged, {.memory = 1}),
             Contains("its pages have more bytes than the footer says"));
  CHECK_THROWS_AS(column_of(damaged, "t", {.memory = 1}), archive_error);
}

TEST_CASE("the lengths of columns that old parquet-mr wrote are too short, and its files are read", "[parquet]") {
  std::vector<std::string> few;
  for (int i = 0; i < 2000; ++i) few.push_back(std::string(10, static_cast<char>('a' + i % 7)));
  ::parquet::WriterProperties::Builder how;
  how.created_by("parquet-mr version 1.2.8");
  std::string file = written(table_of({{"t", texts(few)}}), how);
  const auto zigzag = [](std::int64_t n) {
    std::string made;
    std::uint64_t left = static_cast<std::uint64_t>(n) << 1;
    for (; left > 0x7f; left >>= 7) made += static_cast<char>((left & 0x7f) | 0x80);
    return made + static_cast<char>(left);
  };
  // The header of the dictionary was left out of them (PARQUET-816).
  const std::int64_t length = read_metadata(file)->RowGroup(0)->ColumnChunk(0)->total_compressed_size();
  const std::string whole = zigzag(length);
  const std::string less = zigzag(length - 14);
  REQUIRE(whole.size() == less.size());
  std::size_t places = 0;
  for (std::size_t at = file.find(whole, static_cast<std::size_t>(length)); at != file.npos;
       at = file.find(whole, at + 1)) {
    file.replace(at, less.size(), less);
    ++places;
  }
  REQUIRE(places > 0);
  CHECK(column_of(file, "t") == few);
  CHECK_THAT(millrace_test::failure_of(file, {.memory = 1}), Contains("parquet_options::memory allows more"));
}

TEST_CASE("Parquet files are found by the endings that their writers give them, and others are said", "[parquet]") {
  const std::string file = file_of({{"t", numbers()}});
  runtime rt;
  const auto store = std::make_shared<test::dataset_store>(1);
  for (const char* const name : {"a.parquet", "b.pq", "c.parq", "d.PARQUET"})
    store->objects["mem:d/" + std::string(name)] = file;
  store->objects["mem:d/_SUCCESS"] = "";
  store->objects["mem:d/readme.md"] = "x";
  const test::temporary_folder folder;
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                     {.index = folder.file("x.index"), .format = millrace::parquet()});
  test::captured_stderr said(test::captured_stderr::into::pipe);
  CHECK(trained(rt, data, {.batch = 2}).samples.size() == 8);
  CHECK_THAT(said.text(),
             Contains("2 objects are left out, as by their names they are no shards of parquet: the first is "
                      "mem:d/_SUCCESS"));
}

TEST_CASE("a shard that is no tar is refused with the format that reads it", "[parquet]") {
  const auto said = [](const std::string& name, const std::string& file) {
    runtime rt;
    const auto store = std::make_shared<test::dataset_store>(1);
    store->objects["mem:d/" + name] = file;
    const test::temporary_folder folder;
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/", {.index = folder.file("x.index")});
    return failure_of([&] { trained(rt, data, {.batch = 2}); });
  };
  CHECK_THAT(said("a.parquet", file_of({{"t", numbers()}})),
             Contains("mem:d/a.parquet at byte 0: not a tar archive, but Parquet") &&
                 Contains("dataset_options::format = mill::parquet()"));
  CHECK_THAT(said("a.npy", std::string("\x93NUMPY\1\0", 8) + std::string(600, ' ')), Contains("mill::npy_shards()"));
  CHECK_THAT(said("shard.00000.mds", std::string(600, 'x')), Contains("mill::mds()"));
  CHECK_THAT(said("text_document.bin", std::string(600, 'x')), Contains("mill::megatron()"));
  CHECK_THAT(said("a.bytes", std::string(600, 'x')),
             Contains("dataset_options::format is line_shards(), tfrecord_shards()"));
}

TEST_CASE("Parquet files of polars and of old parquet-mr are read", "[parquet]") {
  if (test::test_data_folder().empty()) MILLRACE_SKIP("no test data");
  const std::string folder = test::test_data_folder() + "/odd/third/";
  const std::string repeated = test::read_file(folder + "repeated_texts.parquet");
  const std::vector<std::string> all = column_of(repeated, "x");
  REQUIRE(all.size() == 60'000);
  CHECK(all.front().size() == 1740);
  CHECK(column_of(test::read_file(folder + "created_by_old_parquet_mr.parquet"), "a").size() == 300);
  CHECK_THAT(failure_of([&] { column_of(test::read_file(folder + "int96_9999.parquet"), "t"); }), Contains("INT96"));
}
