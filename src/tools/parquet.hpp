// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/text/text.hpp>

#if defined(MILLRACE_WITH_PARQUET)
#include <cmath>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/parquet.hpp>
#endif

namespace tools {

namespace mill = millrace;

/// Makes the files of a row of its fields, as the tools show and write them.
using row_files = std::function<void(mill::sample&)>;

/// A name with the ending that its content has, unless it has one of these.
inline std::string with_ending(std::string name, std::string_view ending, const std::set<std::string_view>& has) {
  if (has.count(std::string_view(name).substr(name.rfind('.') + 1)) != 0) return name;
  return name + '.' + std::string(ending);
}

/// The ending that names of files with these first bytes have; empty: not known.
inline std::string_view ending_of(std::string_view data) {
  const auto at = [&](std::size_t offset, std::string_view what) {
    return data.size() >= offset + what.size() && data.substr(offset, what.size()) == what;
  };
  if (at(0, "\xff\xd8\xff")) return "jpg";
  if (at(0, "\x89PNG\r\n\x1a\n")) return "png";
  if (at(0, "GIF87a") || at(0, "GIF89a")) return "gif";
  if (at(0, "RIFF") && at(8, "WEBP")) return "webp";
  if (at(0, "RIFF") && at(8, "WAVE")) return "wav";
  if (at(0, std::string_view("II*\0", 4)) || at(0, std::string_view("MM\0*", 4))) return "tiff";
  if (at(0, "fLaC")) return "flac";
  if (at(0, "OggS")) return "ogg";
  if (at(0, "ID3")) return "mp3";
  if (at(4, "ftypavif")) return "avif";
  if (at(4, "ftyp")) return "mp4";
  if (at(0, "\x93NUMPY")) return "npy";
  if (at(0, "%PDF-")) return "pdf";
  return "";
}

#if defined(MILLRACE_WITH_PARQUET)

inline std::shared_ptr<const mill::shard_format> parquet_format(std::vector<std::string> columns) {
  mill::parquet_options how;
  how.columns = std::move(columns);
  return mill::parquet(std::move(how));
}

/// A number as text: the shortest that is read back as the same one; NaN and infinities as Python's json has them.
template <class T>
std::string number_text(std::string_view data) {
  T value;
  std::memcpy(&value, data.data(), sizeof value);
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  }
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}
/// Of binary16 (IEEE 754) all values are single-precision ones, too.
inline float half(std::string_view data) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, data.data(), sizeof bits);
  const int exponent = bits >> 10 & 31;
  const float fraction = static_cast<float>(bits & 1023) / 1024;
  float value = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  if (exponent == 31) value = fraction == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -value : value;
}
inline std::string number_text(std::string_view data, mill::dtype type) {
  switch (type) {
    case mill::dtype::boolean:
      return data.front() == 0 ? "false" : "true";
    case mill::dtype::u8:
      return number_text<std::uint8_t>(data);
    case mill::dtype::i8:
      return number_text<std::int8_t>(data);
    case mill::dtype::u16:
      return number_text<std::uint16_t>(data);
    case mill::dtype::i16:
      return number_text<std::int16_t>(data);
    case mill::dtype::u32:
      return number_text<std::uint32_t>(data);
    case mill::dtype::i32:
      return number_text<std::int32_t>(data);
    case mill::dtype::u64:
      return number_text<std::uint64_t>(data);
    case mill::dtype::i64:
      return number_text<std::int64_t>(data);
    case mill::dtype::f16: {
      const float value = half(data);
      return number_text<float>(std::string_view(reinterpret_cast<const char*>(&value), sizeof value));
    }
    case mill::dtype::f32:
      return number_text<float>(data);
    case mill::dtype::f64:
      return number_text<double>(data);
    default:
      throw mill::configuration_error("no text is made of a number of type " + std::string(mill::name_of(type)));
  }
}

/// A decimal, of bytes in two's complement, little-endian, with so many digits after the point; fewer than none are
/// zeros before it.
inline std::string decimal_text(std::string_view data, int scale) {
  std::string bytes(data);
  const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80) != 0;
  if (negative) {
    unsigned carry = 1;
    for (char& c : bytes) {
      carry += static_cast<unsigned char>(~static_cast<unsigned char>(c));
      c = static_cast<char>(carry);
      carry >>= 8;
    }
  }
  std::string digits;  // the last one first
  while (std::any_of(bytes.begin(), bytes.end(), [](char c) { return c != 0; })) {
    unsigned rest = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) {
      rest = rest << 8 | static_cast<unsigned char>(bytes[i]);
      bytes[i] = static_cast<char>(rest / 10);
      rest %= 10;
    }
    digits += static_cast<char>('0' + rest);
  }
  if (scale < 0 && !digits.empty()) digits.insert(0, static_cast<std::size_t>(-scale), '0');
  const std::size_t after = static_cast<std::size_t>(std::max(scale, 0));
  if (digits.size() <= after) digits.append(after + 1 - digits.size(), '0');
  std::reverse(digits.begin(), digits.end());
  if (after != 0) digits.insert(digits.size() - after, 1, '.');
  return (negative ? "-" : "") + digits;
}

/// A file of NumPy (format 1.0) with these elements.
inline mill::bytes npy_file(std::string_view elements, mill::dtype type, const std::vector<std::int64_t>& dims) {
  const std::size_t size = mill::size_of(type);
  const char kind =
      type == mill::dtype::boolean                                                       ? 'b'
      : type == mill::dtype::f16 || type == mill::dtype::f32 || type == mill::dtype::f64 ? 'f'
      : type == mill::dtype::i8 || type == mill::dtype::i16 || type == mill::dtype::i32 || type == mill::dtype::i64
          ? 'i'
          : 'u';
  std::string shape;
  for (const std::int64_t n : dims) shape += std::to_string(n) + (dims.size() == 1 ? "," : ", ");
  if (dims.size() > 1) shape.resize(shape.size() - 2);
  std::string head = "{'descr': '" + std::string(size == 1 ? "|" : "<") + kind + std::to_string(size) +
                     "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr std::size_t before = 10;
  head.append(63 - (before + head.size()) % 64, ' ');
  head += '\n';
  std::string file("\x93NUMPY\1\0", 8);
  file += static_cast<char>(head.size() & 255);
  file += static_cast<char>(head.size() >> 8);
  file += head;
  file += elements;
  return mill::bytes::copy(file);
}

/// A column, as files.
class column_files {
 public:
  explicit column_files(const mill::parquet_field& of) : of_(of) {
    const std::string_view type = of.arrow;
    if (of.type || of.text || of.ragged || type.substr(0, 7) != "decimal") return;
    is_decimal_ = true;  // "decimal128(10, 2)"
    const std::size_t comma = type.find(',');
    if (comma != std::string_view::npos) scale_ = std::atoi(of.arrow.c_str() + comma + 1);
  }

  /// Takes the fields of this column from the front of `fields`, beginning at `i`, and appends its files.
  void operator()(const std::vector<mill::field>& fields, std::size_t& i, std::vector<mill::field>& files,
                  const mill::sample& s) const {
    if (i < fields.size() && of_.ragged && fields[i].extension == of_.name + ".offsets") {
      const std::string_view all = fields[i].data.view();
      add(files, of_.name + ".offsets.npy",
          npy_file(all, mill::dtype::i64, {static_cast<std::int64_t>(all.size() / sizeof(std::int64_t))}));
      ++i;
    }
    if (i == fields.size() || fields[i].extension != of_.name) return;
    if (of_.text && of_.ragged) return texts(fields, i, files, s);
    const mill::bytes data = fields[i++].data;
    if (of_.text) return add(files, with_ending(of_.name, "txt", text_endings()), data);
    if (is_decimal_) {
      return add(files, with_ending(of_.name, "txt", text_endings()),
                 mill::bytes::copy(decimal_text(data.view(), scale_)));
    }
    if (!of_.type) {
      add_binary(files, of_.name, data);
      for (std::size_t k = 1; i < fields.size() && of_.ragged && is_number(fields[i].extension, k); ++i, ++k) {
        add_binary(files, fields[i].extension, fields[i].data);
      }
      return;
    }
    if (!of_.ragged && of_.dims.rank() == 0) {
      return add(files, with_ending(of_.name, "json", number_endings()),
                 mill::bytes::copy(number_text(data.view(), *of_.type)));
    }
    std::vector<std::int64_t> dims;
    std::int64_t each = 1;
    for (std::size_t k = 0; k < of_.dims.rank(); ++k) {
      dims.push_back(of_.dims[k]);
      each *= of_.dims[k];
    }
    const auto elements = static_cast<std::int64_t>(data.size() / mill::size_of(*of_.type));
    if (of_.ragged) dims.insert(dims.begin(), each == 0 ? 0 : elements / each);
    add(files, with_ending(of_.name, "npy", {"npy"}), npy_file(data.view(), *of_.type, dims));
  }

 private:
  static const std::set<std::string_view>& text_endings() {
    static const std::set<std::string_view> all{"txt",  "text", "transcript", "json", "jsonl", "xml",
                                                "html", "md",   "csv",        "tsv",  "cls"};
    return all;
  }
  static const std::set<std::string_view>& number_endings() {
    static const std::set<std::string_view> all{"json", "txt", "text", "cls", "count", "index", "id"};
    return all;
  }
  static void add(std::vector<mill::field>& files, std::string name, mill::bytes data) {
    // As WebDataset reads them.
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    files.emplace_back(std::move(name), std::move(data));
  }
  static void add_binary(std::vector<mill::field>& files, std::string name, mill::bytes data) {
    const std::string_view ending = ending_of(data.view());
    if (ending.empty()) return add(files, std::move(name), std::move(data));
    std::set<std::string_view> has{ending};
    if (ending == "jpg") has.insert("jpeg");
    if (ending == "tiff") has.insert("tif");
    // "image.bytes" beside "image.path" of Hugging Face.
    constexpr std::string_view bytes = ".bytes";
    if (name.size() > bytes.size() && name.compare(name.size() - bytes.size(), bytes.size(), bytes) == 0) {
      name.resize(name.size() - bytes.size());
    }
    add(files, with_ending(std::move(name), ending, has), std::move(data));
  }
  bool is_number(const std::string& name, std::size_t k) const { return name == of_.name + '#' + std::to_string(k); }
  void texts(const std::vector<mill::field>& fields, std::size_t& i, std::vector<mill::field>& files,
             const mill::sample& s) const {
    std::string all = "[";
    bool valid = true;
    for (std::size_t k = 0; i < fields.size() && (k == 0 || is_number(fields[i].extension, k)); ++i, ++k) {
      if (k != 0) all += ", ";
      valid = mill::text::append_json_string(all, fields[i].data.view()) && valid;
    }
    if (!valid) {
      throw mill::decode_error("column \"" + of_.name + "\" has a text that is no UTF-8", s.from.at(s.key));
    }
    add(files, with_ending(of_.name, "json", {"json"}), mill::bytes::copy(all + "]"));
  }

  const mill::parquet_field of_;
  bool is_decimal_ = false;
  int scale_ = 0;
};

/// `index`: of the file that the rows are of.
inline row_files row_files_of(const mill::shard_index& index, const std::vector<std::string>& columns) {
  mill::parquet_options how;
  how.columns = columns;
  const auto what = mill::detail::parquet_description::read(index.description(), index);
  const mill::detail::parquet_file file(what.footer, index.object_size(), index.name(), how);
  auto all = std::make_shared<std::vector<column_files>>();
  for (const mill::parquet_field& f : file.fields()) all->emplace_back(f);
  return [all](mill::sample& s) {
    std::vector<mill::field> files;
    std::size_t i = 0;
    for (const column_files& c : *all) c(s.fields, i, files, s);
    if (i != s.fields.size()) {
      throw mill::error("a field is of no column: " + s.fields[i].extension, s.from.at(s.key));
    }
    std::set<std::string_view> names;
    for (const mill::field& f : files) {
      if (names.insert(f.extension).second) continue;
      throw mill::decode_error("two columns become files of one name, " + f.extension + ": choose by --columns",
                               s.from.at(s.key));
    }
    s.fields = std::move(files);
  };
}

/// What the footers of files say, in lines: of each file its row groups, and of all together each column.
inline std::string parquet_text(std::shared_ptr<const mill::storage> from, const std::vector<mill::shard>& files,
                                const std::vector<std::string>& columns) {
  class column {
   public:
    std::string name, type;
    std::set<std::string> codecs;
    std::uint64_t stored = 0;
    std::uint64_t unpacked = 0;
  };
  mill::parquet_options how;
  how.columns = columns;
  auto one = [from](mill::shard s) { return mill::detail::read_parquet_end_twice<mill::storage>(from, std::move(s)); };
  const auto loop = mill::make_event_loop();
  std::vector<mill::shard> list = files;
  mill::stream<mill::detail::parquet_end> ends =
      mill::from_range(std::move(list)) | mill::map_concurrent(std::move(one), {.limit = 16});
  std::vector<column> all;
  std::string out;
  for (const mill::detail::parquet_end& end : mill::block_on(*loop, mill::collect(std::move(ends)))) {
    const mill::detail::parquet_file file(end.footer.view(), end.size, end.object.shown(), how);
    std::uint64_t least = UINT64_MAX, most = 0;
    for (std::size_t g = 0; g < file.groups(); ++g) {
      least = std::min(least, file.group(g).rows);
      most = std::max(most, file.group(g).rows);
      const std::vector<mill::detail::parquet_chunk> chunks = file.chunks(g);
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        const mill::parquet_field& f = file.fields()[i];
        auto at = std::find_if(all.begin(), all.end(),
                               [&](const column& c) { return c.name == f.name && c.type == f.arrow; });
        if (at == all.end()) at = all.insert(at, {f.name, f.arrow, {}, 0, 0});
        at->codecs.insert(chunks[i].codec);
        at->stored += chunks[i].stored;
        at->unpacked += chunks[i].unpacked;
      }
    }
    out += end.object.shown() + ": " + std::to_string(file.rows()) + (file.rows() == 1 ? " row in " : " rows in ") +
           std::to_string(file.groups()) + " row group" + (file.groups() == 1 ? "" : "s");
    if (file.groups() != 0)
      out += " of " + std::to_string(least) + (least == most ? "" : " to " + std::to_string(most));
    out += ", " + mill::format_bytes(static_cast<double>(end.size)) + '\n';
  }
  for (const column& c : all) {
    out += "  " + c.name + ": " + c.type + ", " + mill::format_bytes(static_cast<double>(c.unpacked)) + ", stored ";
    out += mill::format_bytes(static_cast<double>(c.stored));
    for (const std::string& codec : c.codecs) out += (codec == *c.codecs.begin() ? " by " : ", ") + codec;
    out += '\n';
  }
  return out;
}

#else

[[noreturn]] inline void without_parquet() {
  throw mill::configuration_error(
      "Parquet files are read by the component millrace::parquet, which was not there when this program was built: "
      "build it where Arrow is found, as by `pip install pyarrow` and -DMILLRACE_PYARROW=FOLDER "
      "(docs/guide/parquet.md, \"Installing\")");
}
inline std::shared_ptr<const mill::shard_format> parquet_format(const std::vector<std::string>&) { without_parquet(); }
inline row_files row_files_of(const mill::shard_index&, const std::vector<std::string>&) { without_parquet(); }
inline std::string parquet_text(const std::shared_ptr<const mill::storage>&, const std::vector<mill::shard>&,
                                const std::vector<std::string>&) {
  without_parquet();
}

#endif

}  // namespace tools
