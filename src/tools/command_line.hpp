// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/text/text.hpp>
#include <millrace/version.hpp>

namespace tools {

namespace mill = millrace;

/// How each tool leaves. Scripts rely on these numbers; docs/guide/tools.md has them.
enum status : int {
  fine = 0,
  bad_data = 1,    ///< it did its work, and what it found is wrong
  bad_usage = 2,   ///< options or arguments that it cannot work with; nothing was done
  unfinished = 3,  ///< something that it needs cannot be had: an object, a permission, a connection, room on a disk
};

inline std::string version_text(const char* name) {
  return std::string(name) + " " + std::to_string(MILLRACE_VERSION_MAJOR) + "." +
         std::to_string(MILLRACE_VERSION_MINOR) + "." + std::to_string(MILLRACE_VERSION_PATCH);
}

// What options and arguments must be: "", or what is wrong with the text.

inline std::string not_empty(const std::string& text) { return text.empty() ? "must not be empty" : ""; }
inline std::string number(const std::string& text) {
  return mill::text::parse_decimal<std::uint64_t>(text) ? "" : "'" + text + "' is no whole number";
}
inline std::string positive(const std::string& text) {
  const auto value = mill::text::parse_decimal<std::uint64_t>(text);
  return value && *value > 0 ? "" : "'" + text + "' is no whole number above 0";
}
inline std::string decimal(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool good = !text.empty() && *end == '\0' && std::isfinite(value) && value >= 0;
  return good ? "" : "'" + text + "' is no number from 0 on";
}

/// The most bytes that one thing may have, so that damaged data do not take all of the memory.
struct read_bounds {
  std::uint64_t member = mill::GiB;     ///< of a tar
  std::uint64_t line = 16 * mill::MiB;  ///< of a text
};
inline void add_bounds(CLI::App& given, read_bounds& bounds) {
  const auto one = [&](const char* option, std::uint64_t& value, const char* what) {
    given.add_option(option, value, what)->transform(CLI::AsSizeValue(false))->type_name("SIZE");
  };
  one("--max-member", bounds.member, "Of a tar's member, at most (1GiB): a longer one is an error");
  one("--max-line", bounds.line, "Of a line of text, at most (16MiB)");
}

/// An error's text, with the options of the tools in place of those of the library.
inline std::string text_of(const std::exception& e) {
  std::string text = e.what();
  for (const auto& [of_library, of_tools] : {std::pair{"more than max_member_bytes", "more than --max-member allows"},
                                             std::pair{"(max_line)", "(--max-line)"}}) {
    const std::size_t at = text.find(of_library);
    if (at != std::string::npos) text.replace(at, std::string_view(of_library).size(), of_tools);
  }
  return text;
}

/// The parser of a tool, with --help and --version.
class command_line : public CLI::App {
 public:
  command_line(const char* name, const char* description) : CLI::App(description, name) {
    set_version_flag("--version", version_text(name), "Print the version and exit");
    set_help_flag("-h,--help", "Print this help and exit");
    get_formatter()->column_width(34);
    footer("Exit status: 0 fine, 1 bad data was found, 2 wrong usage, 3 it could not finish.");
  }

  /// Parses, and runs the tool: `work` returns a status. What it throws is said on standard error.
  template <class Work>
  int run(int count, const char* const* texts, Work work) {
    try {
      parse(count, texts);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) return exit(e);  // --help, --version
      std::fprintf(stderr, "%s: %s\nTry '%s --help'.\n", get_name().c_str(), e.what(), get_name().c_str());
      return bad_usage;
    }
    try {
      return work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s: %s\n", get_name().c_str(), text_of(e).c_str());
      return is_about_data(e) ? bad_data : unfinished;
    }
  }

  /// Whether an error says that data are wrong, and not that they cannot be had.
  static bool is_about_data(const std::exception& e) {
    return dynamic_cast<const mill::archive_error*>(&e) != nullptr ||
           dynamic_cast<const mill::decode_error*>(&e) != nullptr ||
           dynamic_cast<const mill::index_error*>(&e) != nullptr ||
           dynamic_cast<const mill::s3::checksum_error*>(&e) != nullptr;
  }
};

}  // namespace tools
