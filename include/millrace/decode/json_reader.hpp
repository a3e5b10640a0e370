// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
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

#include <millrace/base/detail/refused.hpp>
#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace {

namespace detail {

/// Why a value is not taken: a sentence's end, or null where it is.
template <class U>
struct json_taken {
  static const char* take(simdjson::ondemand::value value, U& out) {
    if constexpr (std::is_same_v<U, bool>) {
      return value.get_bool().get(out) == simdjson::SUCCESS ? nullptr : "is not a boolean";
    } else if constexpr (std::is_integral_v<U>) {
      if constexpr (std::is_signed_v<U>) {
        std::int64_t number = 0;
        if (value.get_int64().get(number) != simdjson::SUCCESS) return "is not an integer in the range of its type";
        out = static_cast<U>(number);
        return static_cast<std::int64_t>(out) == number ? nullptr : "is not an integer in the range of its type";
      } else {
        std::uint64_t number = 0;
        if (value.get_uint64().get(number) != simdjson::SUCCESS) return "is not an integer in the range of its type";
        out = static_cast<U>(number);
        return static_cast<std::uint64_t>(out) == number ? nullptr : "is not an integer in the range of its type";
      }
    } else if constexpr (std::is_floating_point_v<U>) {
      double number = 0;
      if (value.get_double().get(number) != simdjson::SUCCESS) return "is not a number";
      if (std::abs(number) > static_cast<double>(std::numeric_limits<U>::max())) return "is too large for its type";
      out = static_cast<U>(number);
      return nullptr;
    } else {
      static_assert(std::is_same_v<U, std::string>,
                    "members of JSON become bool, whole numbers, float, double, std::string, and std::vector and "
                    "std::optional of these");
      std::string_view text;
      if (value.get_string().get(text) != simdjson::SUCCESS) return "is not a string";
      out.assign(text);
      return nullptr;
    }
  }
};
template <class U>
struct json_taken<std::vector<U>> {
  static const char* take(simdjson::ondemand::value value, std::vector<U>& out) {
    simdjson::ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) return "is not an array";
    for (auto next : array) {
      simdjson::ondemand::value element;
      if (std::move(next).get(element) != simdjson::SUCCESS) return "is not a whole array";
      U one{};
      if (json_taken<U>::take(element, one) != nullptr) return "has an element of another type";
      out.push_back(std::move(one));
    }
    return nullptr;
  }
};
template <class U>
struct json_taken<std::optional<U>> {
  static const char* take(simdjson::ondemand::value value, std::optional<U>& out) {
    bool null = false;
    if (value.is_null().get(null) == simdjson::SUCCESS && null) return nullptr;
    return json_taken<U>::take(value, out.emplace());
  }
};
template <class U>
inline constexpr bool is_optional_v = false;
template <class U>
inline constexpr bool is_optional_v<std::optional<U>> = true;

}  // namespace detail

/// Reads members of JSON objects, picked by name, into a type of yours, by simdjson: what is not named is passed over.
///
///     struct document { std::string text; std::optional<std::int64_t> id; };
///     millrace::json_reader<document> read;
///     read.member("text", &document::text).member("id", &document::id);
///     document d = read(line);
///
/// Members are bool, whole numbers (in range), float and double, std::string, std::vector of these, and std::optional
/// of any, which may be missing or null; others must be there. A name that stands twice counts once, the first time.
/// Calls on several threads use parsers of their own, kept for reuse; copies share them. Throws decode_error, with the
/// place `at`, for text that is no JSON object as far as it was looked at, and for members that are missing or anything
/// else.
template <class T>
class json_reader {
 public:
  /// Before the first use.
  template <class U>
  json_reader& member(std::string name, U T::*place) {
    members_.emplace_back(
        std::move(name),
        [place](simdjson::ondemand::value value, T& into) { return detail::json_taken<U>::take(value, into.*place); },
        !detail::is_optional_v<U>);
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
    named_member(std::string n, std::function<const char*(simdjson::ondemand::value, T&)> f, bool r)
        : name(std::move(n)), take(std::move(f)), required(r) {}
    std::string name;
    std::function<const char*(simdjson::ondemand::value, T&)> take;
    bool required;
  };
  // In a chain while it is idle.
  struct workspace {
    simdjson::ondemand::parser parser;
    std::string text;  // with room behind it, which simdjson reads
    std::unique_ptr<workspace> next;
  };
  struct shared {
    std::mutex mutex;
    std::unique_ptr<workspace> idle;
  };

  std::string read(workspace& w, std::string_view text, T& into) const {
    w.text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    w.text.assign(text);
    simdjson::ondemand::document document;
    simdjson::ondemand::object object;
    auto failed = w.parser.iterate(w.text.data(), w.text.size(), w.text.capacity()).get(document);
    if (!failed) failed = document.get_object().get(object);
    if (failed) return std::string("not a JSON object: ") + simdjson::error_message(failed);
    for (const named_member& m : members_) {
      simdjson::ondemand::value value;
      failed = object.find_field_unordered(m.name).get(value);
      if (failed == simdjson::NO_SUCH_FIELD) {
        if (m.required) return "the JSON has no member \"" + m.name + "\"";
        continue;
      }
      if (failed) return std::string("not JSON: ") + simdjson::error_message(failed);
      if (const char* const why = m.take(value, into)) return "the JSON member \"" + m.name + "\" " + why;
    }
    return {};
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
