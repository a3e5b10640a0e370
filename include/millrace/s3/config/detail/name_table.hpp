// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::s3::detail {

/// Values by name, in the order of the names. Entries stay where they are until they are erased. It is searched by
/// halving, and takes a new name in time proportional to its size: for some hundred names.
///
/// What a std::map<std::string, Value> is used for, which is 3 % of what millrace.hpp takes to compile.
template <class Value>
class name_table {
 public:
  struct entry {
    explicit entry(std::string n) : name(std::move(n)) {}
    const std::string name;
    Value value = Value();
  };

  /// Null when there is none of that name.
  const Value* find(std::string_view name) const noexcept {
    const std::size_t at = place(name);
    return at < entries_.size() && entries_[at]->name == name ? &entries_[at]->value : nullptr;
  }
  /// The value of that name, made when there is none.
  Value& operator[](std::string_view name) {
    const std::size_t at = place(name);
    if (at == entries_.size() || entries_[at]->name != name) {
      entries_.insert(entries_.begin() + static_cast<std::ptrdiff_t>(at), std::make_unique<entry>(std::string(name)));
    }
    return entries_[at]->value;
  }
  template <class Condition>
  void erase_if(Condition condition) {
    std::erase_if(entries_, [&](const std::unique_ptr<entry>& e) { return condition(e->value); });
  }

  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }
  /// The entries, in the order of their names.
  const std::vector<std::unique_ptr<entry>>& entries() const noexcept { return entries_; }

 private:
  /// The first entry whose name is not below `name`.
  std::size_t place(std::string_view name) const noexcept {
    std::size_t begin = 0;
    std::size_t end = entries_.size();
    while (begin < end) {
      const std::size_t middle = begin + (end - begin) / 2;
      if (entries_[middle]->name < name) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }

  std::vector<std::unique_ptr<entry>> entries_;
};

}  // namespace millrace::s3::detail
