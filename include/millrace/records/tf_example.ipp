// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/records/tf_example.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Reads the wire format of Protocol Buffers, for these messages (example.proto and feature.proto of TensorFlow):
///
///     Example          1: Features
///     SequenceExample  1: Features (the context)   2: FeatureLists
///     Features         1: map<string, Feature>     FeatureLists  1: map<string, FeatureList>
///     FeatureList      1: repeated Feature
///     Feature          oneof  1: BytesList   2: FloatList   3: Int64List
///     these lists      1: repeated bytes, float or int64; numbers packed or not
///
/// An entry of a map is a message with the key as field 1 and the value as field 2. Fields that are there twice are
/// merged, other fields are passed over.
class tf_example::reader {
 public:
  reader(const bytes& record, const where& at, const std::vector<std::string>& names)
      : record_(record), at_(at), names_(names) {}

  void example(std::vector<tf_feature>& features, std::vector<tf_feature_list>& lists) const {
    message all(*this, record_.view());
    while (all.next()) {
      if (all.is_message(1)) {
        each_entry(all.text, [&](std::string&& name, message value) {
          tf_feature& made = features.emplace_back();
          made.name = std::move(name);
          while (value.next()) {
            if (value.is_message(2)) feature(value.text, made);
          }
        });
      } else if (all.is_message(2)) {
        each_entry(all.text, [&](std::string&& name, message value) {
          tf_feature_list& made = lists.emplace_back();
          made.name = std::move(name);
          while (value.next()) {
            if (value.is_message(2)) steps(value.text, made);
          }
        });
      }
    }
    sort(features);
    sort(lists);
  }

 private:
  /// The fields of a message, one after the other.
  class message {
   public:
    message(const reader& r, std::string_view fields) : reader_(r), rest_(fields) {}

    bool next() {
      if (rest_.empty()) return false;
      begin_ = rest_.data();
      const std::uint64_t tag = varint();
      if (tag > UINT32_MAX || tag < 8) reader_.fail(begin_, "a field has the number " + std::to_string(tag >> 3));
      number = static_cast<std::uint32_t>(tag >> 3);
      type = static_cast<unsigned>(tag & 7);
      switch (type) {
        case 0: value = varint(); break;
        case 1: text = take(8); break;
        case 2: text = take(varint()); break;
        case 5: text = take(4); break;
        default: reader_.fail(begin_, "a field has the wire type " + std::to_string(type));
      }
      return true;
    }
    bool is_message(std::uint32_t n) const noexcept { return number == n && type == 2; }
    bool more() const noexcept { return !rest_.empty(); }
    /// A number of 10 bytes at most, of which 64 bits count.
    std::uint64_t varint() {
      std::uint64_t made = 0;
      for (unsigned shift = 0; shift < 70; shift += 7) {
        if (rest_.empty()) reader_.fail(reader_.end_of(rest_), "a number is cut");
        const auto byte = static_cast<unsigned char>(rest_.front());
        rest_.remove_prefix(1);
        made |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) return made;
      }
      reader_.fail(rest_.data() - 10, "a number has more than 10 bytes");
    }

    // The field that next() has come to.
    std::uint32_t number = 0;
    unsigned type = 0;
    std::uint64_t value = 0;  // of type 0
    std::string_view text;    // of the others

   private:
    std::string_view take(std::uint64_t size) {
      if (size > rest_.size()) {
        reader_.fail(begin_, "a field has " + std::to_string(size) + " bytes, and its message " +
                                 std::to_string(rest_.size()) + " more");
      }
      const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(size));
      rest_.remove_prefix(taken.size());
      return taken;
    }

    const reader& reader_;
    std::string_view rest_;
    const char* begin_ = nullptr;  // of the field
  };

  [[noreturn]] void fail(const char* at, const std::string& reason) const {
    throw decode_error("the record is no tf.Example: at its byte " + std::to_string(at - record_.view().data()) + ' ' +
                           reason,
                       at_);
  }
  static const char* end_of(std::string_view text) noexcept { return text.data() + text.size(); }

  bool wanted(std::string_view name) const {
    return names_.empty() || std::find(names_.begin(), names_.end(), name) != names_.end();
  }
  /// Calls `f` with the name and all fields of each entry of a map. The name may stand after the value.
  template <class F>
  void each_entry(std::string_view map, const F& f) const {
    message entries(*this, map);
    while (entries.next()) {
      if (!entries.is_message(1)) continue;
      std::string_view name;
      message entry(*this, entries.text);
      while (entry.next()) {
        if (entry.is_message(1)) name = entry.text;
      }
      if (wanted(name)) f(std::string(name), message(*this, entries.text));
    }
  }
  /// The last one of a name counts.
  template <class Named>
  static void sort(std::vector<Named>& all) {
    std::stable_sort(all.begin(), all.end(), [](const Named& a, const Named& b) { return a.name < b.name; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i + 1 < all.size() && all[i].name == all[i + 1].name) continue;
      if (kept != i) all[kept] = std::move(all[i]);
      ++kept;
    }
    all.resize(kept);
  }

  void steps(std::string_view list, tf_feature_list& into) const {
    message all(*this, list);
    while (all.next()) {
      if (all.is_message(1)) feature(all.text, into.steps.emplace_back());
    }
  }
  void feature(std::string_view of, tf_feature& into) const {
    message lists(*this, of);
    while (lists.next()) {
      if (lists.type != 2 || lists.number > 3) continue;
      const auto is = static_cast<tf_feature::kind>(lists.number);
      if (into.of != is) {
        into.strings.clear();
        into.floats.clear();
        into.int64s.clear();
        into.of = is;
      }
      switch (is) {
        case tf_feature::kind::strings: strings(lists.text, into.strings); break;
        case tf_feature::kind::floats: floats(lists.text, into.floats); break;
        default: int64s(lists.text, into.int64s);
      }
    }
  }
  void strings(std::string_view list, std::vector<bytes>& into) const {
    message values(*this, list);
    while (values.next()) {
      if (!values.is_message(1)) continue;
      into.push_back(record_.slice(static_cast<std::size_t>(values.text.data() - record_.view().data()),
                                   values.text.size()));
    }
  }
  void floats(std::string_view list, std::vector<float>& into) const {
    message values(*this, list);
    while (values.next()) {
      if (values.number != 1 || (values.type != 2 && values.type != 5)) continue;
      if (values.text.size() % 4 != 0) fail(values.text.data(), "packed floats have a part of one");
      const std::size_t first = into.size();
      into.resize(first + values.text.size() / 4);
      if constexpr (std::endian::native == std::endian::little) {
        if (!values.text.empty()) std::memcpy(into.data() + first, values.text.data(), values.text.size());
        continue;
      }
      for (std::size_t i = 0; i < values.text.size() / 4; ++i) {
        std::uint32_t bits = 0;
        for (std::size_t k = 4; k-- > 0;) bits = bits << 8 | static_cast<unsigned char>(values.text[4 * i + k]);
        into[first + i] = std::bit_cast<float>(bits);
      }
    }
  }
  void int64s(std::string_view list, std::vector<std::int64_t>& into) const {
    message values(*this, list);
    while (values.next()) {
      if (values.number != 1) continue;
      if (values.type == 0) into.push_back(static_cast<std::int64_t>(values.value));
      if (values.type != 2) continue;
      message packed(*this, values.text);
      while (packed.more()) into.push_back(static_cast<std::int64_t>(packed.varint()));
    }
  }

  const bytes& record_;
  const where& at_;
  const std::vector<std::string>& names_;
};

MILLRACE_INLINE tf_example::tf_example(const bytes& record, where at, const std::vector<std::string>& names)
    : at_(std::move(at)) {
  reader(record, at_, names).example(features_, lists_);
}

namespace detail {

template <class Named>
const Named* find_named(const std::vector<Named>& all, std::string_view name) noexcept {
  const auto at = std::lower_bound(all.begin(), all.end(), name,
                                   [](const Named& one, std::string_view n) { return one.name < n; });
  return at == all.end() || at->name != name ? nullptr : &*at;
}

inline const char* shown(tf_feature::kind kind) noexcept {
  constexpr const char* names[] = {"nothing", "byte strings", "floats", "integers"};
  return names[static_cast<std::size_t>(kind)];
}

MILLRACE_INLINE void tf_kinds::compare(std::size_t i, const std::string& name, tf_feature::kind is, const sample& s) {
  one& known = all_[i];
  if (is == tf_feature::kind::none || known.is.load(std::memory_order_relaxed) == is) return;
  const std::lock_guard lock(mutex_);
  if (known.is == tf_feature::kind::none) {
    known.place = s.key;
    known.is = is;
  }
  if (known.is == is) return;
  throw decode_error("feature \"" + name + "\" is a list of " + shown(is) + ", and in " + known.place + " of " +
                         shown(known.is) + ": a feature that becomes a field is of one kind",
                     s.from.at(s.key));
}

/// The kind of all steps of a list.
MILLRACE_INLINE tf_feature::kind kind_of(const tf_feature_list& list, const sample& s) {
  tf_feature::kind kind = tf_feature::kind::none;
  for (const tf_feature& step : list.steps) {
    if (step.of == tf_feature::kind::none) continue;
    if (kind != tf_feature::kind::none && step.of != kind) {
      throw decode_error("the steps of the list \"" + list.name + "\" are " + shown(kind) + " and " + shown(step.of) +
                             ": as a field they are of one kind",
                         s.from.at(s.key));
    }
    kind = step.of;
  }
  return kind;
}

/// Appends the fields of features that are written as one, of the name `name`.
class tf_field_writer {
 public:
  tf_field_writer(std::vector<field>& to, std::string_view name) : to_(to), name_(name) {}

  void add(const tf_feature& f) {
    for (const bytes& value : f.strings) {
      std::string name(name_);
      if (strings_ > 0) name += '#' + std::to_string(strings_);
      ++strings_;
      to_.emplace_back(std::move(name), value);
    }
    if (f.of == tf_feature::kind::int64s) {
      if (has_text_) text_ += '\n';
      has_text_ = true;
      for (std::size_t i = 0; i < f.int64s.size(); ++i) {
        if (i > 0) text_ += ' ';
        text_ += std::to_string(f.int64s[i]);
      }
    }
    if (f.of == tf_feature::kind::floats) {
      has_floats_ = true;
      for (const float x : f.floats) {
        auto bits = std::bit_cast<std::uint32_t>(x);
        for (int k = 0; k < 4; ++k, bits >>= 8) floats_ += static_cast<char>(bits & 0xff);
      }
    }
  }
  void finish() {
    if (has_text_) to_.emplace_back(std::string(name_), bytes::copy(text_));
    if (has_floats_) to_.emplace_back(std::string(name_), bytes::copy(floats_));
  }

 private:
  std::vector<field>& to_;
  std::string_view name_;
  std::size_t strings_ = 0;
  std::string text_;
  std::string floats_;
  bool has_text_ = false;
  bool has_floats_ = false;
};

}  // namespace detail

MILLRACE_INLINE const tf_feature* tf_example::find(std::string_view name) const noexcept {
  return detail::find_named(features_, name);
}

MILLRACE_INLINE const tf_feature_list* tf_example::find_list(std::string_view name) const noexcept {
  return detail::find_named(lists_, name);
}

MILLRACE_INLINE const tf_feature& tf_example::operator[](std::string_view name) const {
  if (const tf_feature* const found = find(name)) return *found;
  std::string has;
  for (const tf_feature& f : features_) has += (has.empty() ? "" : ", ") + f.name;
  throw decode_error("the record has no feature \"" + std::string(name) + "\" (it has: " + has + ")", at_);
}

/// A name has one field: of the sample, of a feature, of a list, or of a value after the first one of byte strings.
MILLRACE_INLINE void tf_fields::check_names(const tf_example& all, const sample& s) const {
  const auto refuse = [&](const std::string& name, const std::string& why) {
    throw decode_error("two fields would be called \"" + name + "\": " + why +
                           ": give tf_fields() the names that are wanted, without one of them",
                       s.from.at(s.key));
  };
  for (const field& f : s.fields) {
    if (all.find(f.extension) != nullptr || all.find_list(f.extension) != nullptr) {
      refuse(f.extension, "the sample has one, and the record a feature of this name");
    }
  }
  std::vector<std::string_view> numbered;
  const auto look = [&](const std::string& name) {
    if (name.find('#') != std::string::npos) numbered.emplace_back(name);
  };
  for (const tf_feature& f : all.features()) look(f.name);
  for (const tf_feature_list& l : all.lists()) {
    look(l.name);
    if (all.find(l.name) != nullptr) refuse(l.name, "a feature of the context and a list have this name");
  }
  if (numbered.empty()) return;
  const auto compare = [&](const std::string& name, std::size_t values) {
    for (const std::string_view other : numbered) {
      const std::string_view rest = other.substr(std::min(name.size(), other.size()));
      if (other.substr(0, name.size()) != name || rest.size() < 2 || rest.size() > 12 || rest[0] != '#') continue;
      std::size_t number = 0;
      const auto [end, failed] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
      if (failed != std::errc() || end != rest.data() + rest.size() || rest[1] == '0' || number >= values) continue;
      refuse(std::string(other), "the feature of it, and value " + std::to_string(number) + " of \"" + name + '"');
    }
  };
  for (const tf_feature& f : all.features()) compare(f.name, f.strings.size());
  for (const tf_feature_list& l : all.lists()) {
    std::size_t values = 0;
    for (const tf_feature& step : l.steps) values += step.strings.size();
    compare(l.name, values);
  }
}

MILLRACE_INLINE sample tf_fields::operator()(sample s) const {
  if (s.weight() == 0) return s;
  const bytes record = s["record"];
  tf_example all;
  try {
    all = tf_example(record, where(), names_);
  } catch (const decode_error&) {
    all = tf_example(record, s.from.at(s.key), names_);  // throws, with the place, which no other record pays for
  }
  for (const std::string& name : names_) {
    if (all.find(name) != nullptr || all.find_list(name) != nullptr) continue;
    static_cast<void>(tf_example(record, s.from.at(s.key))[name]);  // throws, and names all that are there
  }
  for (const tf_feature_list& l : all.lists()) static_cast<void>(detail::kind_of(l, s));
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const tf_feature* const f = all.find(names_[i]);
    kinds_->compare(i, names_[i], f != nullptr ? f->of : detail::kind_of(*all.find_list(names_[i]), s), s);
  }
  std::erase_if(s.fields, [](const field& f) { return f.extension == "record"; });
  check_names(all, s);
  for (const tf_feature& f : all.features()) {
    detail::tf_field_writer out(s.fields, f.name);
    out.add(f);
    out.finish();
  }
  for (const tf_feature_list& l : all.lists()) {
    detail::tf_field_writer out(s.fields, l.name);
    for (const tf_feature& step : l.steps) out.add(step);
    out.finish();
  }
  return s;
}

}  // namespace millrace
