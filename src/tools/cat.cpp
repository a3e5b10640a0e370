// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// millrace-cat: a sample of a shard, or one field of it. docs/guide/tools.md describes it.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/loader/run.hpp>

#include "src/tools/command_line.hpp"
#include "src/tools/samples.hpp"

namespace mill = millrace;

namespace {

struct wanted {
  std::string key;
  std::optional<std::uint64_t> number;
  std::string field;
  std::string file;
  std::string folder;
};

/// The first sample with that key, or the one with that number in the place.
mill::sample find(const tools::sample_source& source, const wanted& what) {
  auto run = mill::run(source.samples(), {.show = mill::progress::off});
  std::uint64_t n = 0;
  for (tools::placed_sample& s : run) {
    if (what.number ? n == *what.number : s.it.key == what.key) return std::move(s.it);
    ++n;
  }
  throw mill::configuration_error(
      what.number ? "there are " + std::to_string(n) + " samples, and no number " + std::to_string(*what.number)
                  : "none of " + std::to_string(n) + " samples has this key",
      mill::where{source.shards().front().shown(), std::nullopt, what.key});
}

void write_all(int file, std::string_view data, const std::string& name) {
  while (!data.empty()) {
    const ::ssize_t n = ::write(file, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw mill::io_error::of(errno, "it cannot be written", mill::where{name, std::nullopt, {}});
    data.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// A new file: one that is there stays, and a link is not followed.
void write_file(int folder, const std::string& name, std::string_view data) {
  const int file = ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) throw mill::io_error::of(errno, "the file cannot be made", mill::where{name, std::nullopt, {}});
  try {
    write_all(file, data, name);
  } catch (...) {
    ::close(file);
    ::unlinkat(folder, name.c_str(), 0);
    throw;
  }
  if (::close(file) != 0) {
    throw mill::io_error::of(errno, "it cannot be written", mill::where{name, std::nullopt, {}});
  }
}

/// A file's name of a key's last part and a field: not what would be another folder's, hidden, or an option.
std::string file_name(const mill::sample& s, const mill::field& f) {
  std::string name = s.key.substr(s.key.rfind('/') + 1);
  for (char& c : name) c = c == '#' ? '-' : c;  // of lines and records
  name += name.empty() ? f.extension : '.' + f.extension;
  bool safe = !name.empty() && name.size() <= 255 && name.front() != '.' && name.front() != '-';
  for (const char c : name) safe = safe && c != '/' && static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  if (!safe) {
    throw mill::archive_error("this would not be a safe name of a file: take the field by --field and --out",
                              mill::where{s.from.from == nullptr ? std::string() : s.from.from->shown(), std::nullopt,
                                          s.key + '.' + f.extension});
  }
  return name;
}

bool is_binary(std::string_view data) {
  for (const char c : data.substr(0, 4096)) {
    const auto u = static_cast<unsigned char>(c);
    if ((u < 0x20 && u != '\n' && u != '\r' && u != '\t' && u != '\f') || u == 0x7f) return true;
  }
  return false;
}

int cat(const tools::sample_source& source, const wanted& what) {
  const mill::sample s = find(source, what);
  if (!what.folder.empty()) {
    std::vector<std::string> names;
    for (const mill::field& f : s.fields) names.push_back(file_name(s, f));  // all are safe before one is written
    if (::mkdir(what.folder.c_str(), 0777) != 0 && errno != EEXIST) {
      throw mill::io_error::of(errno, "the folder cannot be made", mill::where{what.folder, std::nullopt, {}});
    }
    const int folder = ::open(what.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
      throw mill::io_error::of(errno, "the folder cannot be opened", mill::where{what.folder, std::nullopt, {}});
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      write_file(folder, names[i], s.fields[i].data.view());
      std::printf("%s/%s\n", what.folder.c_str(), names[i].c_str());
    }
    ::close(folder);
    return tools::fine;
  }
  std::string names;
  for (const mill::field& f : s.fields) names += (names.empty() ? "" : ", ") + f.extension;
  if (what.field.empty() && s.fields.size() != 1) {
    throw mill::configuration_error("the sample has several fields, of which --field takes one: " + names);
  }
  const mill::field* field = nullptr;
  for (const mill::field& f : s.fields) {
    if (what.field.empty() || f.extension == what.field) field = &f;
  }
  if (field == nullptr) {
    throw mill::configuration_error("the sample has no field " + what.field + ", but " + names);
  }
  const std::string_view data = field->data.view();
  if (!what.file.empty() && what.file != "-") {
    write_file(AT_FDCWD, what.file, data);
    return tools::fine;
  }
  if (what.file.empty() && ::isatty(1) != 0 && is_binary(data)) {
    throw mill::configuration_error(
        "the field is binary, and this is a terminal: --out FILE writes it, --out - does "
        "so here all the same");
  }
  write_all(1, data, "standard output");
  return tools::fine;
}

}  // namespace

int main(int count, char** texts) {
  tools::command_line given("millrace-cat", "Writes a field of one sample, or all of its fields to files.");
  std::string place, format, number;
  std::vector<std::string> columns;
  wanted what;
  tools::read_bounds bounds;
  given.add_option("PLACE", place, "A shard, s3://bucket/prefix/, or a folder")
      ->required()
      ->type_name("")
      ->check(tools::not_empty);
  CLI::Option* const key = given.add_option("KEY", what.key, "The sample's key: the first one with it")->type_name("");
  given.add_option("--number", number, "Instead of the key: the sample's number in the place, from 0")
      ->type_name("N")
      ->check(tools::number)
      ->excludes(key);
  tools::add_format(given, format, columns);
  CLI::Option* const field =
      given.add_option("-f,--field", what.field, "The field to write; not needed where there is one")
          ->type_name("NAME");
  CLI::Option* const file =
      given.add_option("-o,--out", what.file, "The new file to write to; - and default: standard output")
          ->type_name("FILE");
  given.add_option("--all", what.folder, "Write all fields to new files in this folder: KEY.FIELD")
      ->type_name("FOLDER")
      ->excludes(field)
      ->excludes(file);
  tools::add_bounds(given, bounds);
  return given.run(count, texts, [&] {
    if (!number.empty()) what.number = mill::text::parse_decimal<std::uint64_t>(number);
    if (!what.number && what.key.empty()) {
      std::fputs("millrace-cat: KEY or --number is required\nTry 'millrace-cat --help'.\n", stderr);
      return static_cast<int>(tools::bad_usage);
    }
    return cat(tools::sample_source(place, tools::given_format(format), columns, bounds), what);
  });
}
