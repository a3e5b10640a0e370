// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include <millrace/base/units.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/s3_server/background.hpp>
#include <millrace/testing/s3_server/store.hpp>

#include "bench/common/served.hpp"

namespace bench {

/// A shard of 100 MB whose samples are an "image" of 100 KB and a label.
inline std::string make_shard(mill::tar::member_options options) {
  std::string text;
  text.reserve(110 * mill::MiB);
  mill::tar::writer archive(text);
  const std::string image = noise(100000, 1);
  for (unsigned i = 0; text.size() < 100000000; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "%08u", i);
    archive.add(std::string(name) + ".jpg", image, options);
    archive.add(std::string(name) + ".cls", "7", options);
  }
  archive.finish();
  return text;
}

/// Stores make_shard() as s3://b/train/0000.tar and so on: one piece of memory under several keys.
inline void store_shards(mill::s3_server::background& server, std::size_t count,
                         mill::tar::member_options options = mill::tar::member_options()) {
  const mill::s3_server::object one(mill::bytes::copy(make_shard(options)));
  for (std::size_t i = 0; i < count; ++i) {
    char key[32];
    std::snprintf(key, sizeof key, "train/%04zu.tar", i);
    server.objects().put("b", key, one);
  }
}

}  // namespace bench
