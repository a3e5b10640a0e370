// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/sign/signer.hpp>

#include <string.h>

#include <new>

#include "tests/support/catch.hpp"

using namespace millrace;

TEST_CASE("signing keys are overwritten when their day, their secret or the cache ends", "[s3][signer]") {
  using cache = s3::detail::signing_key_cache;
  alignas(cache) unsigned char memory[sizeof(cache)] = {};
  const auto holds = [&](const s3::detail::digest& key) {
    return ::memmem(memory, sizeof memory, key.data(), key.size()) != nullptr;
  };
  s3::detail::hmac_sha256 hmac;
  const s3::credentials who("AKID", "a-secret");
  const s3::credentials other("AKID", "another-secret");
  auto* const keys = new (memory) cache;
  const s3::detail::digest first = keys->find(hmac, who, "20260101", "eu-west-1", "s3");
  const s3::detail::digest second = keys->find(hmac, who, "20260101", "us-west-2", "s3");
  CHECK((holds(first) && holds(second)));
  const s3::detail::digest next_day = keys->find(hmac, who, "20260102", "eu-west-1", "s3");
  CHECK((holds(next_day) && !holds(first) && !holds(second)));
  const s3::detail::digest of_other = keys->find(hmac, other, "20260102", "eu-west-1", "s3");
  CHECK((holds(of_other) && !holds(next_day)));
  keys->~cache();
  CHECK_FALSE(holds(of_other));
}
