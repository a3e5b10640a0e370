// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <millrace/base/compiler.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The place that an error names. Empty parts are left out of the message.
struct where {
  std::string object;  ///< URL or path of the shard, without query string and without secrets
  std::optional<std::uint64_t>
      offset;       ///< byte offset in the object (of the decompressed stream for compressed archives)
  std::string key;  ///< sample key or member name

  /// True if there is nothing to name.
  bool empty() const noexcept { return object.empty() && !offset && key.empty(); }
};

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// One character at the front of a text.
struct utf8_character {
  std::size_t length = 0;  ///< in bytes; 0: the text is empty or does not begin with a character
  std::uint32_t code = 0;
};

/// The character that `text` begins with: strictly UTF-8 (RFC 3629), so no longer form than needed, no surrogates,
/// nothing above U+10FFFF.
inline utf8_character first_utf8(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const std::uint32_t lead = at(0);
  if (text.empty()) return {};
  if (lead < 0x80) return {1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  std::uint32_t code = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (at(i) & 0x3f);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {length, code};
}

/// A message that grows while others may be reading it: one exception object may be on its way to several readers, on
/// several threads. Text that readers were given stays valid as long as the object.
class error_notes {
 public:
  error_notes() noexcept = default;
  error_notes(const error_notes& other) : last_(copy(other)) {}
  error_notes& operator=(const error_notes& other) {
    if (this != &other) clear(last_.exchange(copy(other), std::memory_order_acq_rel));
    return *this;
  }
  ~error_notes() { clear(last_.load(std::memory_order_acquire)); }

  /// The message with all notes; null while there are none.
  const char* text() const noexcept {
    const state* s = last_.load(std::memory_order_acquire);
    return s == nullptr ? nullptr : s->text.c_str();
  }

  /// The place that was added to the error later; null while there is none.
  const where* place() const noexcept {
    const state* s = last_.load(std::memory_order_acquire);
    return s == nullptr || s->at == nullptr ? nullptr : s->at.get();
  }

  /// `bare` is the message without notes.
  void add(std::string_view bare, std::string_view note);
  /// Puts `text`, which names `at`, before the message. Does nothing if it has a place already.
  void place(std::string_view bare, std::string_view text, where at);

 private:
  struct state {
    std::string text;
    bool noted = false;
    std::shared_ptr<const where> at;
    state* before = nullptr;  // a reader may still use its text
  };

  /// `make(next, before)` fills the text after the last state; false for nothing.
  template <class Make>
  void publish(Make make) {
    auto next = std::make_unique<state>();
    next->before = last_.load(std::memory_order_acquire);
    do {
      if (!make(*next, next->before)) return;
    } while (
        !last_.compare_exchange_weak(next->before, next.get(), std::memory_order_acq_rel, std::memory_order_acquire));
    static_cast<void>(next.release());
  }
  static state* copy(const error_notes& other) {
    const state* s = other.last_.load(std::memory_order_acquire);
    return s == nullptr ? nullptr : new state{s->text, s->noted, s->at, nullptr};
  }
  static void clear(state* s) noexcept {
    while (s != nullptr) delete std::exchange(s, s->before);
  }

  std::atomic<state*> last_ = nullptr;
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// Base of every exception that millrace throws about data, stores and configuration.
///
/// what() reads "<object> at byte <offset>, <key>: <reason>", then in parentheses the notes of add_note(). The place is
/// that of the constructor; if it had none, a stage adds that of the item it worked on (add_place()). Secrets and
/// signatures never become part of it: code that constructs an error passes names and reasons only. Bytes of names
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
  /// Completes the message of an error on its way up (`catch (error& e) { e.add_note(..); throw; }`): circumstances
  /// that only a later stage knows, as a clause. The type and all else stay. Escaped as the rest of the message;
  /// thread-safe.
  void add_note(std::string_view note);
  /// Adds a place to an error that has none: what() and the rest are then as if the constructor had got it. An error
  /// that has a place keeps it; of several, the first stays. Thread-safe.
  void add_place(where at);

 private:
  const where& place() const noexcept {
    const where* given_later = notes_.place();
    return given_later != nullptr ? *given_later : at_;
  }
  /// Bytes of the printable character at the start of `text`; 0 if there is none. Controls, and the characters that
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

/// Wraps an exception that a function of the program threw for an item, if it is no `error`: reason() is its what(),
/// the place is that of the item, and the exception itself is nested, with its type:
///
///     catch (const mill::item_error& e) {
///       try { e.rethrow_nested(); } catch (const std::invalid_argument&) {...}    // std::rethrow_if_nested(e)
///     }
class item_error : public error, public std::nested_exception {
 public:
  /// In a handler of that exception.
  item_error(std::string reason, where at) : error(std::move(reason), std::move(at)) {}
};

/// A call that a program must not make: on an object that was moved from, twice where once is meant, from a coroutine
/// of another loop. Nothing has happened then. (A destructor cannot throw, and aborts.)
class usage_error : public error {
 public:
  using error::error;
};

namespace detail {
/// Off the per-item paths: `if (MILLRACE_UNLIKELY(misuse)) misused("what was done that must not be");`
[[noreturn]] void misused(const char* sentence);
/// The same for options that contradict each other: throws configuration_error.
[[noreturn]] void misconfigured(const char* sentence);

/// The message of an exception of any type; empty for null.
std::string text_of(const std::exception_ptr& failure);
/// Its reason alone: error::reason(), or the message of another exception.
std::string reason_of(const std::exception_ptr& failure);

/// The message about bytes that were damaged twice, by whether they were the same both times.
inline const char* read_twice(bool alike) noexcept {
  return alike ? "read twice, and both times the same: it is so in the store, or is changed alike on the way"
               : "read twice, and not the same: data are damaged on their way";
}
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

/// A system call on a file, socket, ring or thread failed, or something that stands for one.
class io_error : public error {
 public:
  /// Without a code.
  explicit io_error(std::string reason, where at = where()) : error(std::move(reason), std::move(at)) {}
  io_error(std::errc code, std::string reason, where at = where())
      : error(std::move(reason), std::move(at)), code_(std::make_error_code(code)) {}
  /// With the system's words after `what`: "the index cannot be written: No space left on device". `error_number` is a
  /// value of errno; 0 adds no words.
  static io_error of(int error_number, std::string what, where at = where());

  /// The value of errno, in std::generic_category(): `e.code() == std::errc::no_space_on_device`. Zero: there is none.
  const std::error_code& code() const noexcept { return code_; }

 private:
  std::error_code code_;
};

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// `url` up to its query string or fragment, and without user information: fit for messages, since both may be secrets
/// (a presigned URL carries its signature in the query). The scheme may be missing.
std::string without_secrets(const std::string& url);

/// Like without_secrets(), for the URLs of shards: names of objects in S3 and of files are shown whole, because `?`,
/// `#` and `@` are parts of names there.
std::string shown_url(const std::string& url);

/// An http or https URL without the signature in its query (S3, Google Cloud Storage, CloudFront, Azure's SAS), which
/// is another one when the URL is signed anew: it names the object in what outlives a run. Other URLs and parameters
/// stay as they are: it is not fit for messages.
std::string unsigned_url(const std::string& url);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/error.ipp>
#endif
