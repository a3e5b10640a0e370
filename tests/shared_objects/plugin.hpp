// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/coro/executor.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/device.hpp>

/// A runtime's stream: no object needs to know more of it.
struct plugin_stream;

/// A service of one kind in every shared object that includes this.
class plugin_service final : public millrace::executor_service {};

/// What a plugin lets others call; all else of it is hidden (-fvisibility=hidden).
struct plugin {
  millrace::executor_service* (*service)(millrace::executor& ex);
  void (*set_tag)(millrace::sample_tags& tags, int value);
  std::size_t (*tags)(const millrace::sample_tags& tags);
  millrace::stream_ref (*stream)();
  bool (*takes)(const millrace::stream_ref& stream);
  void (*set_own_tag)(millrace::sample_tags& tags);
  std::size_t (*own_tags)(const millrace::sample_tags& tags);
};

extern "C" __attribute__((visibility("default"))) plugin first_plugin();
extern "C" __attribute__((visibility("default"))) plugin second_plugin();
