// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/write_shards.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/untar_plain.hpp>

#include "tests/s3/uploading.hpp"
#include "tests/support/catch.hpp"

/// \file
/// What tests of written shards share: samples, writing, and reading back.

namespace millrace::test {

// Key, and extension and text of each field.
using plain_sample = std::pair<std::string, std::vector<std::pair<std::string, std::string>>>;
using plain_samples = std::vector<plain_sample>;

/// Samples of some 2 KB, one with a name for a pax header, one with an empty field.
inline plain_samples made(std::size_t count) {
  plain_samples all;
  for (std::size_t i = 0; i < count; ++i) {
    std::string key = "a/" + std::to_string(i);
    if (i % 7 == 3) key += std::string(120, 'x');
    all.push_back({key, {{"jpg", pattern(300 + 37 * (i % 50))}, {"cls", i % 5 == 1 ? "" : std::to_string(i)}}});
  }
  return all;
}

inline sample sample_of(const plain_sample& p) {
  sample s(p.first, origin());
  for (const auto& [extension, text] : p.second) s.fields.emplace_back(extension, bytes::copy(text));
  return s;
}

inline async_generator<sample> samples_of(const plain_samples& all) {
  for (const plain_sample& p : all) {
    sample s = sample_of(p);
    co_yield give(s);
  }
}

/// Shards of 20,000 bytes and parts of 1,000.
inline write_shards_options small() {
  write_shards_options o;
  o.bytes = 20000;
  o.part = 1000;
  return o;
}

inline task<std::vector<written_shard>> all_of_them(stream<written_shard> s) {
  std::vector<written_shard> all = co_await collect(std::move(s));
  co_return all;
}

/// Writes `all` and waits for what it leaves in the loop.
template <class Store>
std::vector<written_shard> write(const Store& store, const std::string& name, const plain_samples& all,
                                 write_shards_options o = small()) {
  const auto loop = make_event_loop();
  std::exception_ptr failure;
  std::vector<written_shard> out;
  try {
    out = block_on(*loop, all_of_them(stream<sample>(samples_of(all)) | write_shards(store, name, o)));
  } catch (...) {
    failure = std::current_exception();
  }
  loop->drain();
  CHECK(loop->frames() == 0);
  if (failure != nullptr) std::rethrow_exception(failure);
  return out;
}

inline plain_sample plain(const sample& s) {
  plain_sample p;
  p.first = s.key;
  for (const field& f : s.fields) p.second.emplace_back(f.extension, std::string(f.data.view()));
  return p;
}

inline task<plain_samples> plain_of(stream<sample> from) {
  plain_samples all;
  while (std::optional<sample> s = co_await from.next()) {
    if (s->weight() != 0) all.push_back(plain(*s));
  }
  co_return all;
}

template <class Store>
plain_samples read_back(const Store& store, const std::string& prefix) {
  const auto loop = make_event_loop();
  stream<shard> shards(detail::storage_of(store)->list(prefix));
  return block_on(*loop, plain_of(std::move(shards) | fetch(store) | untar_plain() | group_samples()));
}

inline plain_samples sorted(plain_samples all) {
  std::sort(all.begin(), all.end());
  return all;
}

inline std::string text_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

}  // namespace millrace::test
