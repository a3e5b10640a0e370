// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/flow/pipe.hpp>

namespace millrace {

/// What named() returns.
template <class Stage>
class named_stage : public detail::library_stage {
 public:
  named_stage(const char* name, Stage stage) : name_(name), stage_(std::move(stage)) {}

  template <class T>
  auto operator()(async_generator<T> source) && {
    return detail::apply_stage(stream<T>(std::move(source)), std::move(stage_)).named(name_);
  }

 private:
  const char* name_;
  Stage stage_;
};

/// `source | named("augment", stage)`: gives a stage a name in the stage table. The stages of the library name
/// themselves and can be renamed; one of the user's without a name is "stage 3" where it is the third in the table. A
/// generator that a stage makes and asks outside of a pipe counts as part of that stage. `name` must be a literal or
/// live as long as the run.
template <class Stage>
named_stage<Stage> named(const char* name, Stage stage) {
  return named_stage<Stage>(name, std::move(stage));
}

}  // namespace millrace
