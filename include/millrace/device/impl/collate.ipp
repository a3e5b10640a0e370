// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/device/collate.hpp>

namespace millrace {

MILLRACE_INLINE void sample_writer::finish() {
  if (next_ != row_->layout().fields().size()) {
    throw decode_error("field " + row_->layout().fields()[next_].name() + " is missing", from_.at(key_));
  }
  row_->done();
}

MILLRACE_INLINE tensor_view sample_writer::field(const char* name, dtype type, const shape& dims) {
  if (row_ == nullptr) {
    fields_.emplace_back(name, type, dims);
    return tensor_view();
  }
  const std::vector<batch_field>& known = row_->layout().fields();
  if (next_ == known.size()) {
    throw decode_error(std::string("field ") + name + " is not a field of the first sample", from_.at(key_));
  }
  const batch_field& f = known[next_];
  if (f.name() != name || f.type() != type || f.dims() != dims) {
    throw decode_error("field " + batch_field(name, type, dims).text() + " where the first sample had " + f.text(),
                       from_.at(key_));
  }
  return row_->field(next_++);
}

}  // namespace millrace
