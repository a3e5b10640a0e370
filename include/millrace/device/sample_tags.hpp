// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/type_id.hpp>

namespace millrace {

/// Values that travel beside the tensors of a batch, on the host: for each sample at most one value of each type (an
/// origin, a caption, a weight). A sample without one has a default-constructed value.
///
/// set() may be called for different samples from several threads at once; get() only when nobody sets any more.
class sample_tags {
 public:
  explicit sample_tags(std::size_t samples = 0) : samples_(samples) {}

  template <class T>
  void set(std::size_t sample, T value) {
    static_assert(std::is_default_constructible_v<T>, "a sample without this tag needs a default value");
    find_or_add<T>()[sample] = std::move(value);
  }

  /// The values of the first `n` samples; empty when no sample has one of this type.
  template <class T>
  std::span<const T> get(std::size_t n) const {
    for (const auto& c : columns_) {
      if (c->key == type_id::of<T>()) return std::span<const T>(static_cast<const typed<T>&>(*c).values.get(), n);
    }
    return {};
  }

  /// Moves the values of sample `from` to sample `to`.
  void move_row(std::size_t from, std::size_t to) {
    for (const auto& c : columns_) c->move_row(from, to);
  }

 private:
  struct column {
    explicit column(type_id k) noexcept : key(k) {}
    virtual ~column() = default;
    virtual void move_row(std::size_t from, std::size_t to) = 0;
    const type_id key;
  };
  template <class T>
  struct typed final : column {
    typed(type_id k, std::size_t n) : column(k), values(new T[n]()) {}
    void move_row(std::size_t from, std::size_t to) override { values.get()[to] = std::move(values.get()[from]); }
    const std::unique_ptr<T[]> values;
  };
  template <class T>
  T* find_or_add() {
    const std::lock_guard lock(mutex_);
    for (const auto& c : columns_) {
      if (c->key == type_id::of<T>()) return static_cast<typed<T>&>(*c).values.get();
    }
    auto made = std::make_unique<typed<T>>(type_id::of<T>(), samples_);
    T* const values = made->values.get();
    columns_.push_back(std::move(made));
    return values;
  }

  std::size_t samples_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<column>> columns_;
};

}  // namespace millrace
