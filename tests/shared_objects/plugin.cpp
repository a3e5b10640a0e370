// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Compiled once for each shared object, whose function is MILLRACE_PLUGIN.
#include "tests/shared_objects/plugin.hpp"

#include <memory>

namespace {

/// Of this object alone, whatever others call theirs.
struct own_tag {
  long values[4] = {};
};

}  // namespace

plugin MILLRACE_PLUGIN() {
  using millrace::sample_tags;
  plugin p;
  p.service = [](millrace::executor& ex) -> millrace::executor_service* {
    return &ex.service<plugin_service>();
  };
  p.set_tag = [](sample_tags& tags, int value) { tags.set(0, value); };
  p.tags = [](const sample_tags& tags) { return tags.get<int>(1).size(); };
  p.stream = [] { return millrace::stream_ref(static_cast<plugin_stream*>(nullptr)); };
  p.takes = [](const millrace::stream_ref& stream) { return stream.is<plugin_stream>(); };
  p.set_own_tag = [](sample_tags& tags) { tags.set(0, own_tag()); };
  p.own_tags = [](const sample_tags& tags) { return tags.get<own_tag>(1).size(); };
  return p;
}
