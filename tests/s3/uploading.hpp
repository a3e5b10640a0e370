// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>

#include "tests/support/s3_server.hpp"

/// \file
/// What tests of uploads share: a server that takes small parts, clients of it, and streams to be stored.

namespace millrace::test {

inline constexpr s3::put_options small_parts{.part = 1000};

/// With a bucket "b", which holds nothing.
inline s3_server::options small_part_server() {
  s3_server::options o;
  o.min_part_size = 1000;
  return o;
}

inline s3::client client_of(s3_server::background& server) {
  server.objects().create_bucket("b");
  const std::string endpoint = server.endpoint();
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  o.retry.base = std::chrono::microseconds(100);
  o.retry.throttling_base = std::chrono::microseconds(100);
  return s3::client(s3::config(o), s3::credentials("test-key", "test-secret"));
}

inline std::string content_of(s3_server::background& server, std::string_view key) {
  const auto object = server.objects().find("b", key);
  if (object == nullptr) return "(no object)";
  std::string text;
  for (const bytes& piece : object->content) text += piece.view();
  return text;
}

inline std::string pattern(std::size_t size) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 2654435761u) >> 13);
  return text;
}

inline async_generator<bytes> pieces_of(std::string text, std::size_t piece) {
  for (std::size_t at = 0; at < text.size(); at += piece) {
    bytes next = bytes::copy(std::string_view(text).substr(at, piece));
    co_yield give(next);
  }
}

inline async_generator<bytes> failing_after(std::size_t size, std::size_t piece) {
  for (std::size_t at = 0; at < size; at += piece) {
    bytes next = bytes::copy(pattern(std::min(piece, size - at)));
    co_yield give(next);
  }
  throw decode_error("the source broke");
}

/// Never ends; `made` counts its bytes.
inline async_generator<bytes> endless(std::size_t piece, std::size_t& made) {
  for (;;) {
    made += piece;
    bytes next = bytes::copy(std::string(piece, 'x'));
    co_yield give(next);
  }
}

/// `most` becomes the largest number of bytes that were made and of which the server had not told that it has them.
inline async_generator<bytes> watched(std::size_t total, std::size_t piece, s3_server::background& server,
                                      std::size_t& most) {
  for (std::size_t made = 0; made < total;) {
    made += piece;
    const std::size_t answered = std::max<std::size_t>(server.log().size(), 1) - 1;  // the first creates the upload
    most = std::max(most, made - std::min(made, answered * 1000));
    bytes next = bytes::copy(std::string(piece, 'x'));
    co_yield give(next);
  }
}

inline task<void> one_turn() { co_await sleep_for(std::chrono::milliseconds(1)); }

}  // namespace millrace::test
