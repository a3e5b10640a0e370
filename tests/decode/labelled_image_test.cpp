// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/labelled_image.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/decode/jpeg_decoder.hpp>
#include <millrace/decode/parse_label.hpp>
#include <millrace/flow/collect.hpp>
#include <millrace/flow/from_range.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

TEST_CASE("a labelled image is made of a sample, its image and its label") {
  const auto from = std::make_shared<const shard>("s3://b/a.tar");
  const sample s("train/1", origin(from, 512, 3));
  image decoded(std::vector<std::uint8_t>(2 * 4 * 3, 7), 2, 4, 3);
  const std::uint8_t* const pixels = decoded.pixels.data();
  const labelled_image made(s, std::move(decoded), 5);
  CHECK(made.key == "train/1");
  CHECK(made.from.from == from);
  CHECK(made.from.offset == 512);
  CHECK(made.from.ordinal == 3);
  CHECK(made.pixels.data() == pixels);
  CHECK(made.height == 2);
  CHECK(made.width == 4);
  CHECK(made.channels == 3);
  CHECK(made.label == 5);
}

TEST_CASE("a field that cannot be decoded on a pool is named by shard, offset and key") {
  sample s("train/1", origin(std::make_shared<const shard>("s3://b/a.tar"), 512, 0));
  s.fields.emplace_back("jpg", bytes::copy("no image"));
  s.fields.emplace_back("cls", bytes::copy("5"));
  const jpeg_decoder jpeg;
  const auto decode = [jpeg](sample taken) {
    return labelled_image(taken, jpeg(taken["jpg"]), parse_label(taken["cls"]));
  };
  cpu_pool cores(2);
  testing::virtual_loop loop;
  auto images = from_range(std::vector<sample>{s}) | map_concurrent(decode, {.on = cores});
  CHECK_THROWS_WITH(block_on(loop, collect(std::move(images))),
                    "s3://b/a.tar at byte 512, train/1: not a JPEG: it does not begin with the marker ff d8");
}
