// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <millrace/base/rng.hpp>
#include <millrace/records/detail/parquet_file.hpp>

namespace millrace_test {

using namespace millrace;

inline void need_ok(const arrow::Status& s) {
  if (!s.ok()) throw std::runtime_error(s.ToString());
}
template <class T>
T need_ok(arrow::Result<T> r) {
  need_ok(r.status());
  return std::move(r).ValueUnsafe();
}

/// A table of drawn rows, and beside it what each row's fields must be: made of the same draws, not of Arrow's arrays.
class drawn_table {
 public:
  using row = std::map<std::string, std::string>;

  std::shared_ptr<arrow::Table> table;
  std::vector<row> rows;

  /// How each column is drawn is in its comment. `plain` leaves out what Arrow alone reads back as it was.
  drawn_table(std::uint64_t seed, std::int64_t count) : rng_(seed, 0, 1) {
    rows.resize(static_cast<std::size_t>(count));
    std::vector<std::shared_ptr<arrow::Field>> fields;
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    const auto add = [&](const std::string& name, std::shared_ptr<arrow::Array> a) {
      fields.push_back(arrow::field(name, a->type()));
      arrays.push_back(std::move(a));
    };
    add("jpg", text<arrow::BinaryBuilder>("jpg", 1500));
    add("caption", text<arrow::StringBuilder>("caption", 30));
    add("large", text<arrow::LargeBinaryBuilder>("large", 40));
    add("few", few("few"));
    add("dictionary", dictionary("dictionary"));
    add("label", numbers<arrow::Int64Builder, std::int64_t>("label", false));
    add("i8", numbers<arrow::Int8Builder, std::int8_t>("i8", true));
    add("u16", numbers<arrow::UInt16Builder, std::uint16_t>("u16", true));
    add("i32", numbers<arrow::Int32Builder, std::int32_t>("i32", true));
    add("u64", numbers<arrow::UInt64Builder, std::uint64_t>("u64", true));
    add("f32", numbers<arrow::FloatBuilder, float>("f32", true));
    add("f64", numbers<arrow::DoubleBuilder, double>("f64", true));
    add("flag", flags("flag"));
    add("sha", fixed_binary("sha", 20));
    add("box", fixed_list("box", 4));
    add("tokens", list_of_numbers("tokens"));
    add("tags", list_of_texts("tags"));
    add("boxes", lists_of_lists("boxes"));
    add("image", image("image"));
    table = arrow::Table::Make(arrow::schema(fields), arrays, count);
  }

  /// The file. `group`: rows of a row group.
  static std::string file(const std::shared_ptr<arrow::Table>& table, std::int64_t group, std::uint64_t variant) {
    ::parquet::WriterProperties::Builder how;
    constexpr arrow::Compression::type codecs[] = {arrow::Compression::UNCOMPRESSED, arrow::Compression::SNAPPY,
                                                   arrow::Compression::GZIP,         arrow::Compression::ZSTD,
                                                   arrow::Compression::BROTLI,       arrow::Compression::LZ4};
    how.compression(codecs[variant % 6]);
    if (variant / 6 % 2 == 1) how.disable_dictionary();
    if (variant / 2 % 2 == 1) how.data_page_version(::parquet::ParquetDataPageVersion::V2);
    if (variant / 4 % 2 == 1) how.enable_page_checksum();
    how.data_pagesize(variant % 3 == 0 ? 1 << 20 : 2048);
    how.write_batch_size(variant % 3 == 0 ? 1024 : 16);
    how.max_row_group_length(group);
    ::parquet::ArrowWriterProperties::Builder arrow_how;
    arrow_how.store_schema();
    auto out = need_ok(arrow::io::BufferOutputStream::Create());
    need_ok(
        ::parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), out, group, how.build(), arrow_how.build()));
    return need_ok(out->Finish())->ToString();
  }

 private:
  bool null() { return rng_.below(8) == 0; }
  std::string letters(std::uint64_t most) {
    std::string s(static_cast<std::size_t>(rng_.below(most)), '\0');
    for (char& c : s) c = static_cast<char>(rng_.next());
    return s;
  }
  template <class T>
  static std::string raw(const T& value) {
    std::string s(sizeof value, '\0');
    std::memcpy(s.data(), &value, sizeof value);
    return s;
  }
  template <class Builder>
  std::shared_ptr<arrow::Array> finished(Builder& b) {
    return need_ok(b.Finish());
  }
  template <class Builder>
  std::shared_ptr<arrow::Array> text(const std::string& name, std::uint64_t most) {
    Builder b;
    for (row& r : rows) {
      if (null()) {
        need_ok(b.AppendNull());
        continue;
      }
      need_ok(b.Append(r[name] = letters(most)));
    }
    return finished(b);
  }
  std::shared_ptr<arrow::Array> few(const std::string& name) {
    arrow::StringBuilder b;
    for (row& r : rows) need_ok(b.Append(r[name] = "value " + std::to_string(rng_.below(5))));
    return finished(b);
  }
  std::shared_ptr<arrow::Array> dictionary(const std::string& name) {
    arrow::StringDictionaryBuilder b;
    for (row& r : rows) {
      if (null()) {
        need_ok(b.AppendNull());
        continue;
      }
      need_ok(b.Append(r[name] = "class " + std::to_string(rng_.below(7))));
    }
    return finished(b);
  }
  template <class Builder, class T>
  std::shared_ptr<arrow::Array> numbers(const std::string& name, bool nulls) {
    Builder b;
    for (row& r : rows) {
      if (nulls && null()) {
        need_ok(b.AppendNull());
        continue;
      }
      const auto value = static_cast<T>(rng_.next());
      need_ok(b.Append(value));
      r[name] = raw(value);
    }
    return finished(b);
  }
  std::shared_ptr<arrow::Array> flags(const std::string& name) {
    arrow::BooleanBuilder b;
    for (row& r : rows) {
      if (null()) {
        need_ok(b.AppendNull());
        continue;
      }
      const bool value = rng_.below(2) == 1;
      need_ok(b.Append(value));
      r[name] = std::string(1, value ? '\1' : '\0');
    }
    return finished(b);
  }
  std::shared_ptr<arrow::Array> fixed_binary(const std::string& name, int width) {
    arrow::FixedSizeBinaryBuilder b(arrow::fixed_size_binary(width));
    for (row& r : rows) {
      if (null()) {
        need_ok(b.AppendNull());
        continue;
      }
      std::string s(static_cast<std::size_t>(width), '\0');
      for (char& c : s) c = static_cast<char>(rng_.next());
      need_ok(b.Append(r[name] = s));
    }
    return finished(b);
  }
  std::shared_ptr<arrow::Array> fixed_list(const std::string& name, int length) {
    auto values = std::make_shared<arrow::FloatBuilder>();
    arrow::FixedSizeListBuilder b(arrow::default_memory_pool(), values, length);
    for (row& r : rows) {
      need_ok(b.Append());
      for (int i = 0; i < length; ++i) {
        const auto value = static_cast<float>(rng_.uniform());
        need_ok(values->Append(value));
        r[name] += raw(value);
      }
    }
    return finished(b);
  }
  /// Lists of fewer than `most` elements, of which `add(values, row, i)` appends number i.
  template <class Values, class Add>
  std::shared_ptr<arrow::Array> list_of(const std::string& name, std::uint64_t most, Add add, bool empty_is_field) {
    auto values = std::make_shared<Values>();
    arrow::ListBuilder b(arrow::default_memory_pool(), values);
    for (row& r : rows) {
      if (null()) {
        need_ok(b.AppendNull());
        continue;
      }
      need_ok(b.Append());
      if (empty_is_field) r[name] = "";
      const std::uint64_t count = rng_.below(most);
      for (std::uint64_t i = 0; i < count; ++i) add(*values, r, i);
    }
    return finished(b);
  }
  std::shared_ptr<arrow::Array> list_of_numbers(const std::string& name) {
    const auto add = [&](arrow::Int32Builder& to, row& r, std::uint64_t) {
      const auto value = static_cast<std::int32_t>(rng_.next());
      need_ok(to.Append(value));
      r[name] += raw(value);
    };
    return list_of<arrow::Int32Builder>(name, 6, add, true);
  }
  std::shared_ptr<arrow::Array> list_of_texts(const std::string& name) {
    const auto add = [&](arrow::StringBuilder& to, row& r, std::uint64_t i) {
      need_ok(to.Append(r[i == 0 ? name : name + '#' + std::to_string(i)] = letters(9)));
    };
    return list_of<arrow::StringBuilder>(name, 4, add, false);
  }
  std::shared_ptr<arrow::Array> lists_of_lists(const std::string& name) {
    auto values = std::make_shared<arrow::FloatBuilder>();
    auto inner = std::make_shared<arrow::ListBuilder>(arrow::default_memory_pool(), values);
    arrow::ListBuilder b(arrow::default_memory_pool(), inner);
    for (row& r : rows) {
      if (null()) {
        need_ok(b.AppendNull());
        continue;
      }
      need_ok(b.Append());
      r[name] = "";
      std::int64_t end = 0;
      r[name + ".offsets"] = raw(end);
      for (std::uint64_t i = rng_.below(4); i > 0; --i) {
        need_ok(inner->Append());
        for (std::uint64_t k = rng_.below(4); k > 0; --k, ++end) {
          const auto value = static_cast<float>(rng_.uniform());
          need_ok(values->Append(value));
          r[name] += raw(value);
        }
        r[name + ".offsets"] += raw(end);
      }
    }
    return finished(b);
  }
  /// As Hugging Face writes an image.
  std::shared_ptr<arrow::Array> image(const std::string& name) {
    auto data = std::make_shared<arrow::BinaryBuilder>();
    auto path = std::make_shared<arrow::StringBuilder>();
    arrow::StructBuilder b(
        arrow::struct_({arrow::field("bytes", arrow::binary()), arrow::field("path", arrow::utf8())}),
        arrow::default_memory_pool(), {data, path});
    for (row& r : rows) {
      if (null()) {
        need_ok(b.AppendNull());
        continue;
      }
      need_ok(b.Append());
      need_ok(data->Append(r[name + ".bytes"] = letters(300)));
      if (null()) {
        need_ok(path->AppendNull());
      } else {
        need_ok(path->Append(r[name + ".path"] = "a/" + std::to_string(rng_.below(1000)) + ".jpg"));
      }
    }
    return finished(b);
  }

  rng rng_;
};

/// What fetch would have brought of a group: its stretches, cut at `part` bytes.
inline std::vector<detail::parquet_piece> pieces_of(const std::string& file, const detail::parquet_group& g,
                                                    std::uint64_t part) {
  std::vector<detail::parquet_piece> all;
  for (const detail::parquet_stretch& s : g.stretches) {
    for (std::uint64_t at = s.begin; at < s.end; at += part) {
      const std::uint64_t end = std::min(at + part, s.end);
      all.push_back({at, bytes::copy(std::string_view(file).substr(static_cast<std::size_t>(at),
                                                                   static_cast<std::size_t>(end - at)))});
    }
  }
  return all;
}

inline std::unique_ptr<detail::parquet_file> opened(const std::string& file, const parquet_options& options = {}) {
  const std::string_view all = file;
  const std::string_view tail = all.substr(all.size() - std::min<std::size_t>(all.size(), 64));
  const auto footer =
      static_cast<std::size_t>(detail::parquet_file::footer_bytes(tail, all.size(), "s3://b/a.parquet"));
  return std::make_unique<detail::parquet_file>(all.substr(all.size() - footer), all.size(), "s3://b/a.parquet",
                                                options);
}

/// What reading the file to its last field says; empty where it can be read.
inline std::string failure_of(const std::string& file, const parquet_options& options = {}) {
  try {
    const auto read = opened(file, options);
    for (std::size_t g = 0; g < read->groups(); ++g) {
      const auto rows = read->decode(g, pieces_of(file, read->group(g), 5000));
      std::vector<field> fields;
      for (std::uint64_t i = 0; i < rows->size(); ++i) {
        fields.clear();
        rows->fill(i, fields, where{"s3://b/a.parquet", {}, "a.parquet#" + std::to_string(i)});
      }
    }
  } catch (const error& e) {
    if (e.object() != "s3://b/a.parquet") throw std::runtime_error(std::string("it names no object: ") + e.what());
    return e.what();
  }
  return {};
}

}  // namespace millrace_test
