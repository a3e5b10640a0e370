// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

/// What an error is about. Empty parts are left out of the message.
struct where {
  std::string object;  ///< URL or path of the shard, without query string and without secrets
  std::optional<std::uint64_t>
      offset;       ///< byte offset in the object (of the decompressed stream for compressed archives)
  std::string key;  ///< sample key or member name
};

/// Base of every exception that millrace throws about data, stores and configuration.
///
/// what() reads "<object> at byte <offset>, <key>: <reason>". Secrets and signatures never become part of it: whoever
/// constructs an error passes names and reasons only. Non-printable bytes of names (they come from archives and
/// servers) are escaped as \xNN.
class error : public std::runtime_error {
 public:
  explicit error(std::string reason, where at = where())
      : std::runtime_error(compose(reason, at)), reason_(std::move(reason)), at_(std::move(at)) {}

  /// The reason alone, without the location.
  const std::string& reason() const noexcept { return reason_; }
  /// The object (shard URL or path), empty when unknown.
  const std::string& object() const noexcept { return at_.object; }
  /// Byte offset in the object, when one is known.
  std::optional<std::uint64_t> offset() const noexcept { return at_.offset; }
  /// Sample key or member name, empty when none applies.
  const std::string& key() const noexcept { return at_.key; }

 private:
  static void append_escaped(std::string& out, const std::string& text) {
    static const char* const hex = "0123456789abcdef";
    for (char c : text) {
      const auto u = static_cast<unsigned char>(c);
      if (u < 0x20 || u == 0x7f) {
        out += "\\x";
        out += hex[u >> 4];
        out += hex[u & 15];
      } else {
        out += c;
      }
    }
  }
  static std::string compose(const std::string& reason, const where& at) {
    std::string text;
    append_escaped(text, at.object);
    if (at.offset) {
      text += text.empty() ? "at byte " : " at byte ";
      text += std::to_string(*at.offset);
    }
    if (!at.key.empty()) {
      if (!text.empty()) text += ", ";
      append_escaped(text, at.key);
    }
    if (!text.empty()) text += ": ";
    append_escaped(text, reason);
    return text;
  }

  std::string reason_;
  where at_;
};

/// Options, environment variables or a composition of stages that cannot work.
class configuration_error : public error {
 public:
  using error::error;
};

/// An archive that is broken, cut short, hostile, or of no known format.
class archive_error : public error {
 public:
  using error::error;
};

/// A sample or a field that cannot be decoded (a JPEG that is not one, a label that is not JSON, a missing field).
class decode_error : public error {
 public:
  using error::error;
};

/// An object that is no longer the one that was opened: its ETag or size changed while it was read.
class changed_error : public error {
 public:
  using error::error;
};

/// A system call on a file, socket or ring failed; code() is the errno value.
class io_error : public error {
 public:
  io_error(int code, std::string reason, where at = where()) : error(std::move(reason), std::move(at)), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

}  // namespace millrace
