// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/data/origin.hpp>

#include <cstdint>
#include <memory>
#include <set>

#include "tests/support/catch.hpp"

using namespace millrace;

TEST_CASE("the generator of samples is Philox2x64-10") {
  // The known answers that its authors publish with Random123 (kat_vectors).
  struct known {
    std::uint64_t counter[2], key, answer[2];
  };
  const known all[] = {
      {{0, 0}, 0, {0xca00a0459843d731u, 0x66c24222c9a845b5u}},
      {{UINT64_MAX, UINT64_MAX}, UINT64_MAX, {0x65b021d60cd8310fu, 0x4d02f3222f86df20u}},
      {{0x243f6a8885a308d3u, 0x13198a2e03707344u}, 0xa4093822299f31d0u, {0x0a5e742c2997341cu, 0xb0f883d38000de5du}},
  };
  for (const known& k : all) {
    std::uint64_t words[2] = {k.counter[0], k.counter[1]};
    sample_rng::block(words, k.key);
    CHECK(words[0] == k.answer[0]);
    CHECK(words[1] == k.answer[1]);
  }
}

TEST_CASE("seed, epoch, shard, ordinal, purpose and draw each count") {
  std::set<std::uint64_t> words;
  std::uint64_t drawn = 0;
  for (std::uint64_t i = 0; i < 243; ++i) {
    sample_rng r(i % 3, i / 3 % 3, i / 9 % 3, i / 27 % 3, i / 81 % 3);
    for (int n = 0; n < 4; ++n, ++drawn) words.insert(r.next());
  }
  CHECK(words.size() == drawn);
  sample_rng a(1, 2, 3, 4, 5);
  sample_rng b(1, 2, 3, 4, 5);
  for (int n = 0; n < 9; ++n) CHECK(a.next() == b.next());
}

TEST_CASE("draws are in their bounds and spread over them") {
  int low = 0;
  int boxes[7] = {};
  for (std::uint64_t i = 0; i < 7000; ++i) {
    sample_rng r(1, 0, 9, i, 2);
    const double u = r.uniform();
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    low += u < 0.5 ? 1 : 0;
    ++boxes[r.below(7)];
  }
  CHECK(low > 3300);
  CHECK(low < 3700);
  for (const int n : boxes) {
    CHECK(n > 850);
    CHECK(n < 1150);
  }
}

TEST_CASE("an item draws by the seed and the epoch of its shard, the shard's URL and its place there") {
  shard s("s3://b/7.tar");
  s.seed = 7;
  s.epoch = 3;
  const auto from = std::make_shared<const shard>(s);
  const std::uint64_t first = origin(from, 512, 4).random(1).next();
  CHECK(origin(from, 1024, 4).random(1).next() == first);  // the offset does not count
  CHECK(origin(from, 512, 5).random(1).next() != first);
  CHECK(origin(from, 512, 4).random(2).next() != first);
  s.size = 100;
  s.etag = "\"x\"";
  CHECK(origin(std::make_shared<const shard>(s), 512, 4).random(1).next() == first);
  s.epoch = 4;
  CHECK(origin(std::make_shared<const shard>(s), 512, 4).random(1).next() != first);
  s.epoch = 3;
  s.seed = 8;
  CHECK(origin(std::make_shared<const shard>(s), 512, 4).random(1).next() != first);
  s.seed = 7;
  s.url = "s3://b/8.tar";
  CHECK(origin(std::make_shared<const shard>(s), 512, 4).random(1).next() != first);
  CHECK(first == 0x57e767a633a82376u);  // part of the contract
  CHECK_THROWS_AS(origin().random(1), usage_error);
}

TEST_CASE("an item of a URL that is signed anew draws the same") {
  const auto drawn = [](const char* url) { return origin(std::make_shared<const shard>(url), 0, 4).random(1).next(); };
  CHECK(drawn("https://h/7.tar?X-Amz-Date=1&X-Amz-Signature=2") == drawn("https://h/7.tar?X-Amz-Signature=3"));
  CHECK(drawn("https://h/7.tar?sv=1&sig=2") == drawn("https://h/7.tar"));
  CHECK(drawn("https://h/get?id=1&sig=2") != drawn("https://h/get?id=2&sig=2"));
  CHECK(drawn("s3://b/7.tar?sig=1") != drawn("s3://b/7.tar?sig=2"));  // it is part of the name
}
