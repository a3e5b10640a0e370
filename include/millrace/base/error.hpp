// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/error_notes.hpp>
#include <millrace/base/where.hpp>

namespace millrace {

/// Base of every exception that millrace throws about data, stores and configuration.
///
/// what() reads "<object> at byte <offset>, <key>: <reason>", then in parentheses what add_note() was given. The place
/// is that of the constructor; where it had none, a stage gives that of the item it worked on (add_place()). Secrets
/// and signatures never become part of it: whoever constructs an error passes names and reasons only. Bytes of names
/// (they come from archives and servers) that are no printable UTF-8 are escaped as \xNN.
class error : public std::runtime_error {
 public:
  explicit error(std::string reason, where at = where())
      : std::runtime_error(compose(reason, at)), reason_(std::move(reason)), at_(std::move(at)) {}

  /// The reason alone, without the location.
  const std::string& reason() const noexcept { return reason_; }
  /// The object (shard URL or path), empty when unknown.
  const std::string& object() const noexcept { return place().object; }
  /// Byte offset in the object, when one is known.
  std::optional<std::uint64_t> offset() const noexcept { return place().offset; }
  /// Sample key or member name, empty when none applies.
  const std::string& key() const noexcept { return place().key; }

  const char* what() const noexcept override {
    const char* noted = notes_.text();
    return noted != nullptr ? noted : std::runtime_error::what();
  }
  /// Completes the message of an error that passes by (`catch (error& e) { e.add_note(..); throw; }`): circumstances
  /// that only a later stage knows, as a clause. The type and all else stay. Escaped as the rest of what() is;
  /// thread-safe.
  void add_note(std::string_view note);
  /// Tells an error that passes by and has no place where it happened: what() and the rest are then what they were if
  /// the constructor had been given it. An error that has a place keeps its own; of several, the first stays.
  /// Thread-safe.
  void add_place(where at);

 private:
  const where& place() const noexcept {
    const where* given_later = notes_.place();
    return given_later != nullptr ? *given_later : at_;
  }
  /// Bytes of the printable character at the start of `text`; 0 where there is none. Controls, and the characters that
  /// reorder or hide text on a terminal, count as none.
  static std::size_t printable(std::string_view text) noexcept;
  static void append_escaped(std::string& out, std::string_view text);
  static std::string compose(const std::string& reason, const where& at);

  std::string reason_;
  where at_;
  detail::error_notes notes_;
};

/// Options, environment variables or a composition of stages that cannot work.
class configuration_error : public error {
 public:
  using error::error;
};

/// A call that a program must not make: on an object that was moved from, twice where once is meant, from a coroutine
/// of another loop. Nothing has happened then. (What a destructor finds cannot be thrown, and aborts.)
class usage_error : public error {
 public:
  using error::error;
};

namespace detail {
/// Off the per-item paths: `if (MILLRACE_UNLIKELY(misuse)) misused("what was done that must not be");`
[[noreturn]] MILLRACE_NOINLINE inline void misused(const char* sentence) { throw usage_error(sentence); }
}  // namespace detail

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

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/impl/error.ipp>
#endif
