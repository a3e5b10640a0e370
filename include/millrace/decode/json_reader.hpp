// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <simdjson.h>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/text/json_scan.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// One value of a document. All of it is checked, even if it is not used: the result is discarded if the document is
/// broken.
class json_element {
 public:
  json_element(simdjson::ondemand::value value, bool& broken) : value_(value), broken_(broken) {}

  /// Checks it and drops it. Returns `reason`.
  const char* pass_over(const char* reason = nullptr) {
    simdjson::ondemand::json_type type{};
    // Text that begins like no value may still be NaN.
    const bool known = value_.type().get(type) == simdjson::SUCCESS;
    std::string_view raw;
    simdjson::error_code failed = simdjson::SUCCESS;
    if (known && type == simdjson::ondemand::json_type::object) {
      simdjson::ondemand::object object;
      failed = value_.get_object().get(object);
      if (!failed) failed = object.raw_json().get(raw);
    } else if (known && type == simdjson::ondemand::json_type::array) {
      simdjson::ondemand::array array;
      failed = value_.get_array().get(array);
      if (!failed) failed = array.raw_json().get(raw);
    } else {
      raw = value_.raw_json_token();
      // When simdjson skips a value, it passes over any character after it: "a":1 as a value.
      const char next = raw.data()[raw.size()];
      if (next != ',' && next != '}' && next != ']') broken_ = true;
    }
    if (failed || !text::json_scan(raw, true, 1).document()) broken_ = true;
    return reason;
  }

  const char* take(bool& out) { return value_.get_bool().get(out) ? pass_over("is not a boolean") : nullptr; }

  template <class U>
  requires std::is_integral_v<U>
  const char* take(U& out) {
    using wide = std::conditional_t<std::is_signed_v<U>, std::int64_t, std::uint64_t>;
    wide number = 0;
    simdjson::error_code failed{};
    if constexpr (std::is_signed_v<U>) {
      failed = value_.get_int64().get(number);
    } else {
      failed = value_.get_uint64().get(number);
      if (failed && trimmed() == "-0") failed = simdjson::SUCCESS;
    }
    if (failed) return pass_over("is not an integer in the range of its type");
    out = static_cast<U>(number);
    return static_cast<wide>(out) == number ? nullptr : "is not an integer in the range of its type";
  }

  template <class U>
  requires std::is_floating_point_v<U>
  const char* take(U& out) {
    double number = 0;
    if (value_.get_double().get(number)) {
      const std::string_view token = trimmed();
      const bool word = token == "NaN" || token == "Infinity" || token == "-Infinity";
      const bool digits = !token.empty() && (token[0] == '-' || (token[0] >= '0' && token[0] <= '9'));
      return pass_over(word     ? "is NaN or Infinity, for which JSON has no number"
                       : digits ? "is too large for its type"
                                : "is not a number");
    }
    if (std::abs(number) > static_cast<double>(std::numeric_limits<U>::max())) return "is too large for its type";
    out = static_cast<U>(number);
    return nullptr;
  }

  const char* take(std::string& out) {
    const std::string_view raw = value_.raw_json_token();
    if (raw.empty() || raw.front() != '"') return pass_over("is not a string");
    std::string_view text;
    if (value_.get_string().get(text)) {
      // Half of a surrogate pair is JSON all the same, as in json.loads, and a member that is passed over may have one.
      if (text::json_scan(raw, true, 1).document() && !text::lone_surrogate(raw).empty()) {
        return "has a lone surrogate (an escape that is half of a pair), for which UTF-8 has no bytes";
      }
      broken_ = true;
      return nullptr;
    }
    out.assign(text);
    return nullptr;
  }

  template <class U>
  const char* take(std::vector<U>& out) {
    out.clear();
    simdjson::ondemand::array array;
    if (value_.get_array().get(array)) return pass_over("is not an array");
    const char* wrong = nullptr;
    for (auto next : array) {
      simdjson::ondemand::value value;
      if (std::move(next).get(value)) {
        broken_ = true;
        return nullptr;
      }
      json_element element(value, broken_);
      if (wrong != nullptr) {
        element.pass_over();
      } else {
        U one{};
        if (element.take(one) != nullptr) wrong = "has an element of another type";
        out.push_back(std::move(one));
      }
      if (broken_) return nullptr;
    }
    return wrong;
  }

  template <class U>
  const char* take(std::optional<U>& out) {
    bool null = false;
    if (value_.is_null().get(null) == simdjson::SUCCESS && null) return nullptr;
    return take(out.emplace());
  }

  template <class U>
  const char* take(U&) {
    static_assert(never_v<U>,
                  "members of JSON become bool, whole numbers, float, double, std::string, and std::vector "
                  "and std::optional of these");
    return nullptr;
  }

 private:
  std::string_view trimmed() {
    const std::string_view token = value_.raw_json_token();
    return token.substr(0, token.find_last_not_of(" \t\r\n") + 1);
  }

  simdjson::ondemand::value value_;
  bool& broken_;
};

/// The name of a member, after its escapes; the byte 0xff, no UTF-8, if it has half of a surrogate pair.
inline std::string_view json_name(simdjson::ondemand::field& field, bool& broken) {
  const char* const begin = field.key().raw();
  const char* end = begin;
  while (*end != '"' && *end != '\\') ++end;
  if (*end == '"') return {begin, static_cast<std::size_t>(end - begin)};
  for (; *end != '"'; ++end) end += *end == '\\' ? 1 : 0;
  const std::string_view quoted(begin - 1, static_cast<std::size_t>(end - begin) + 2);
  std::string_view name;
  if (field.unescaped_key().get(name) == simdjson::SUCCESS) return name;
  broken = !text::json_scan(quoted, true, 1).document();
  return {"\xff", 1};
}

template <class U>
inline constexpr bool is_optional_v = false;
template <class U>
inline constexpr bool is_optional_v<std::optional<U>> = true;

}  // namespace detail

/// Reads named members of JSON objects into your type, by simdjson: other members are checked and skipped.
///
///     struct document { std::string text; std::optional<std::int64_t> id; };
///     millrace::json_reader<document> read;
///     read.member("text", &document::text).member("id", &document::id);
///     document d = read(line);
///
/// Members are bool, whole numbers (in range), float and double, std::string, std::vector of these, and std::optional
/// of any, which may be missing or null; others must be there. A text is accepted as by Python's json.loads: one
/// document and nothing after it, valid in every part, names compared after unescaping, the last of several members
/// with one name counts. A UTF-8 byte order mark at the front is skipped. Skipped members may hold values that
/// json.loads accepts beyond RFC 8259 (NaN, Infinity, half of a surrogate pair, numbers of any size); members that you
/// name may not. Objects and arrays nest at most 1024 deep.
///
/// Each thread uses its own parser, kept for reuse; copies share them. Throws decode_error, with the
/// place `at`, for text that is no JSON object, and for members that are missing or anything else.
template <class T>
class json_reader {
 public:
  /// Before the first use. Throws usage_error for a name that it has.
  template <class U>
  json_reader& member(std::string name, U T::*place) {
    if (find(name) != nullptr) throw usage_error("json_reader: two members are named \"" + name + "\"");
    members_.emplace_back(
        std::move(name), [place](detail::json_element value, T& into) { return value.take(into.*place); },
        [place](T& into) { into.*place = std::move(T{}.*place); }, !detail::is_optional_v<U>);
    return *this;
  }

  T operator()(std::string_view text, const where& at = where()) const {
    std::unique_ptr<workspace> w = take();
    T made{};
    const std::string wrong = read(*w, text, made);
    give_back(std::move(w));
    if (!wrong.empty()) throw decode_error(wrong, at);
    return made;
  }
  T operator()(const bytes& text, const where& at = where()) const { return (*this)(text.view(), at); }

 private:
  struct named_member {
    named_member(std::string n, std::function<const char*(detail::json_element, T&)> t, std::function<void(T&)> r,
                 bool q)
        : name(std::move(n)), take(std::move(t)), reset(std::move(r)), required(q) {}
    std::string name;
    std::function<const char*(detail::json_element, T&)> take;
    std::function<void(T&)> reset;  // to its default, if the JSON has no such member
    bool required;
  };
  // The member that a document had.
  struct found_member {
    bool there = false;
    const char* wrong = nullptr;
  };
  // In a chain while it is idle.
  struct workspace {
    simdjson::ondemand::parser parser;
    std::string text;  // with room after it, which simdjson reads
    std::vector<found_member> found;
    std::unique_ptr<workspace> next;
  };
  struct shared {
    std::mutex mutex;
    std::unique_ptr<workspace> idle;
  };

  const named_member* find(std::string_view name) const noexcept {
    for (const named_member& m : members_) {
      if (m.name == name) return &m;
    }
    return nullptr;
  }

  // Why not; empty when `into` is read.
  std::string read(workspace& w, std::string_view text, T& into) const {
    const std::string_view mark = "\xef\xbb\xbf";
    const std::string_view body = text.substr(text.substr(0, mark.size()) == mark ? mark.size() : 0);
    w.text.reserve(body.size() + simdjson::SIMDJSON_PADDING);
    w.text.assign(body);
    w.found.assign(members_.size(), found_member());
    if (const simdjson::error_code failed = read_members(w, into)) return refused(text, failed);
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const named_member& m = members_[i];
      if (!w.found[i].there && m.required) return "the JSON has no member \"" + m.name + "\"";
      if (w.found[i].wrong != nullptr) return "the JSON member \"" + m.name + "\" " + w.found[i].wrong;
    }
    return {};
  }

  simdjson::error_code read_members(workspace& w, T& into) const {
    simdjson::ondemand::document document;
    simdjson::ondemand::object object;
    auto failed = w.parser.iterate(w.text.data(), w.text.size(), w.text.capacity()).get(document);
    if (!failed) failed = document.get_object().get(object);
    if (failed) return failed;
    for (auto next : object) {
      simdjson::ondemand::field field;
      if ((failed = std::move(next).get(field))) return failed;
      bool broken = false;
      const named_member* const m = find(detail::json_name(field, broken));
      if (broken) return simdjson::STRING_ERROR;
      detail::json_element value(field.value(), broken);
      if (m == nullptr) {
        value.pass_over();
      } else {
        found_member& f = w.found[static_cast<std::size_t>(m - members_.data())];
        if (f.there) m->reset(into);
        f.there = true;
        f.wrong = m->take(value, into);
      }
      if (broken) return simdjson::TAPE_ERROR;
    }
    // At the end there is no location.
    return document.current_location().error() != simdjson::SUCCESS ? simdjson::SUCCESS : simdjson::TAPE_ERROR;
  }

  static std::string refused(std::string_view text, simdjson::error_code failed) {
    if (const auto fault = text::json_fault(text)) return "not JSON: " + *fault;
    if (const std::string_view kind = text::json_kind(text); kind != "an object") {
      return "not a JSON object, but " + std::string(kind);
    }
    return std::string("not JSON: ") + simdjson::error_message(failed);
  }

  std::unique_ptr<workspace> take() const {
    {
      std::lock_guard lock(shared_->mutex);
      if (shared_->idle) {
        std::unique_ptr<workspace> w = std::move(shared_->idle);
        shared_->idle = std::move(w->next);
        return w;
      }
    }
    return std::make_unique<workspace>();
  }
  void give_back(std::unique_ptr<workspace> w) const noexcept {
    std::lock_guard lock(shared_->mutex);
    w->next = std::move(shared_->idle);
    shared_->idle = std::move(w);
  }

  std::vector<named_member> members_;
  std::shared_ptr<shared> shared_ = std::make_shared<shared>();
};

}  // namespace millrace
