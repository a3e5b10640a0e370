// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// millrace-ls: what the samples of a shard are. docs/guide/tools.md describes it.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/text/text.hpp>

#include "src/tools/command_line.hpp"
#include "src/tools/samples.hpp"

namespace mill = millrace;

namespace {

std::uint32_t big_endian(std::string_view data, std::size_t at, std::size_t bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<unsigned char>(data[at + i]);
  return value;
}

std::string width_and_height(const char* name, std::uint32_t width, std::uint32_t height) {
  return std::string(name) + ' ' + std::to_string(width) + 'x' + std::to_string(height);
}

/// From the frame header (ITU-T T.81, B.2.2).
std::string jpeg_type(std::string_view data) {
  for (std::size_t at = 2; at + 9 < data.size() && static_cast<unsigned char>(data[at]) == 0xff;) {
    const auto marker = static_cast<unsigned char>(data[at + 1]);
    const bool frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (frame) return width_and_height("JPEG", big_endian(data, at + 7, 2), big_endian(data, at + 5, 2));
    at += marker == 0xff ? 1 : 2 + big_endian(data, at + 2, 2);
  }
  return "JPEG";
}

std::string npy_type(const mill::bytes& data) {
  try {
    const mill::array a = mill::parse_npy(data);
    std::string out = std::string("npy ") + mill::name_of(a.type());
    out += '[';
    for (std::size_t i = 0; i < a.dims().rank(); ++i) {
      out += (i == 0 ? "" : ",") + std::to_string(a.dims()[i]);
    }
    return out + ']';
  } catch (const mill::decode_error&) {
    return "npy";  // of a type that there is no tensor for, or damaged
  }
}

/// By the first bytes, or by the extension and what the bytes are not; empty: not known.
std::string type_of(std::string_view extension, const mill::bytes& data) {
  const std::string_view v = data.view();
  const auto at = [&](std::size_t offset, std::string_view what) {
    return v.size() >= offset + what.size() && v.substr(offset, what.size()) == what;
  };
  const auto begins = [&](std::string_view with) { return at(0, with); };
  if (begins("\xff\xd8\xff")) return jpeg_type(v);
  if (begins("\x89PNG\r\n\x1a\n") && v.size() >= 24) {
    return width_and_height("PNG", big_endian(v, 16, 4), big_endian(v, 20, 4));
  }
  if (begins("\x93NUMPY")) return npy_type(data);
  if (begins("GIF8")) return "GIF";
  if (begins("RIFF") && at(8, "WEBP")) return "WebP";
  if (begins("RIFF") && at(8, "WAVE")) return "WAV";
  if (begins("fLaC")) return "FLAC";
  if (begins("OggS")) return "Ogg";
  if (begins("ID3")) return "MP3";
  if (at(4, "ftyp")) return "MP4";
  if (begins("PK\x03\x04")) return "zip";
  if (begins("\x1f\x8b")) return "gzip";
  if (begins("\x28\xb5\x2f\xfd")) return "zstd";
  const std::string_view last = extension.substr(extension.rfind('.') + 1);
  for (const std::string_view text :
       {"txt", "text", "caption", "line", "json", "jsonl", "cls", "cls2", "index", "inx", "id", "count", "csv"}) {
    if (last != text) continue;
    const bool number = last != "txt" && mill::text::parse_decimal<std::uint64_t>(v).has_value();
    if (number) return "number " + std::string(v);
    if (v.find('\0') != std::string_view::npos) return "";
    const std::size_t begin = v.find_first_not_of(" \t\r\n");
    const bool json = begin != std::string_view::npos && (v[begin] == '{' || v[begin] == '[');
    return json && last != "txt" && last != "csv" ? "JSON" : "text";
  }
  return "";
}

std::string json(std::string_view text) {
  std::string out;
  mill::text::append_json_string(out, text);
  return out;
}

/// What a name shows on a terminal: control characters would move its cursor, or worse.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    out += u < 0x20 || u == 0x7f ? '?' : c;
  }
  return out;
}

/// The same of several lines.
std::string shown_lines(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += shown(text.substr(at, end - at)) + '\n';
    at = end + 1;
  }
  return out;
}

struct extent {
  std::uint64_t fields = 0;
  std::uint64_t bytes = 0;
};

int list(const tools::sample_source& source, bool as_json, std::uint64_t limit, bool summary_alone) {
  const std::string left_out = source.left_out();
  if (!left_out.empty()) std::fprintf(stderr, "millrace-ls: %s\n", left_out.c_str());
  if (source.format() == "parquet" && !as_json) {
    std::fputs(shown_lines(tools::parquet_text(source.store().storage(), source.shards(), source.columns())).c_str(),
               stdout);
    if (summary_alone) return tools::fine;
  }
  std::uint64_t samples = 0, bytes = 0;
  std::map<std::string, extent> all;
  bool more = false;
  auto run = mill::run(source.samples(), {.show = mill::progress::off});
  for (tools::placed_sample& s : run) {
    if (limit != 0 && samples == limit) {
      more = true;
      break;
    }
    ++samples;
    std::string line, kinds;
    for (const mill::field& f : s.it.fields) {
      bytes += f.data.size();
      extent& e = all[f.extension];
      ++e.fields;
      e.bytes += f.data.size();
      if (summary_alone) continue;
      const std::string type = type_of(f.extension, f.data);
      if (as_json) {
        char crc[16];
        std::snprintf(crc, sizeof crc, "%08x", static_cast<unsigned>(f.data.crc32c()));
        line += (line.empty() ? "{\"field\": " : ", {\"field\": ") + json(f.extension) +
                ", \"bytes\": " + std::to_string(f.data.size()) + ", \"crc32c\": \"" + crc + '"';
        if (!type.empty()) line += ", \"type\": " + json(type);
        line += '}';
      } else {
        line += (line.empty() ? "" : ", ") + shown(f.extension) + ' ' +
                mill::format_bytes(static_cast<double>(f.data.size()));
        if (!type.empty()) line += " (" + shown(type) + ')';
      }
    }
    if (summary_alone) continue;
    if (as_json) {
      const std::string shard = json(mill::detail::shown_url(source.shards()[s.shard].url));
      std::printf("{\"shard\": %s, \"number\": %llu, \"key\": %s, \"fields\": [%s]}\n", shard.c_str(),
                  static_cast<unsigned long long>(s.ordinal), json(s.it.key).c_str(), line.c_str());
    } else {
      std::printf("%llu  %s  %s\n", static_cast<unsigned long long>(s.ordinal), shown(s.it.key).c_str(), line.c_str());
    }
  }
  if (as_json) return tools::fine;
  std::printf("%s%llu sample%s in %zu shard%s of %s: %s\n", more ? "the first " : "",
              static_cast<unsigned long long>(samples), samples == 1 ? "" : "s", source.shards().size(),
              source.shards().size() == 1 ? "" : "s", source.format().c_str(),
              mill::format_bytes(static_cast<double>(bytes)).c_str());
  for (const auto& [name, e] : all) {
    std::printf("  %s: %llu, %s, mean %s\n", shown(name).c_str(), static_cast<unsigned long long>(e.fields),
                mill::format_bytes(static_cast<double>(e.bytes)).c_str(),
                mill::format_bytes(static_cast<double>(e.bytes) / static_cast<double>(e.fields)).c_str());
  }
  return tools::fine;
}

}  // namespace

int main(int count, char** texts) {
  tools::command_line given("millrace-ls",
                            "Lists the samples of a shard, or of all shards or objects in a place: key, and each\n"
                            "field's size and type.");
  std::string place, format;
  std::vector<std::string> columns;
  bool as_json = false, summary = false;
  std::uint64_t limit = 0;
  tools::read_bounds bounds;
  given.add_option("PLACE", place, "A shard, s3://bucket/prefix/, or a folder")
      ->required()
      ->type_name("")
      ->check(tools::not_empty);
  tools::add_format(given, format, columns);
  given.add_option("-n,--samples", limit, "List so many samples, and read no more")
      ->check(tools::positive)
      ->type_name("N");
  CLI::Option* const lines = given.add_flag("--json", as_json, "An object of JSON for each sample, with CRC32C");
  given.add_flag("-s,--summary", summary, "The sums alone; of Parquet what the footers say")->excludes(lines);
  tools::add_bounds(given, bounds);
  return given.run(count, texts, [&] {
    return list(tools::sample_source(place, tools::given_format(format), columns, bounds), as_json, limit, summary);
  });
}
