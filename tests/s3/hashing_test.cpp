// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/sign/signer.hpp>

#include <openssl/hmac.h>
#include <string.h>

#include <new>
#include <string>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

s3::detail::digest of_openssl(const std::string& key, const std::string& text) {
  s3::detail::digest out;
  unsigned size = 0;
  ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
         text.size(), out.data(), &size);
  REQUIRE(size == out.size());
  return out;
}
s3::detail::digest of_ours(s3::detail::hmac_sha256& hmac, const std::string& key, const std::string& text) {
  s3::detail::digest out;
  hmac(reinterpret_cast<const unsigned char*>(key.data()), key.size(), text, out);
  return out;
}

}  // namespace

TEST_CASE("HMAC-SHA-256 is OpenSSL's, for every length of key and text, and with keys in turns", "[s3][signer]") {
  rng random(20261122);
  const auto text_of = [&](std::size_t size) {
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(random.below(256));
    return text;
  };
  s3::detail::hmac_sha256 hmac;
  for (std::size_t size = 0; size <= 140; ++size) {  // a block of SHA-256 has 64 bytes
    const std::string key = text_of(size);
    const std::string text = text_of(random.below(300));
    CHECK(of_ours(hmac, key, text) == of_openssl(key, text));
  }
  const std::string keys[] = {text_of(32), text_of(32), text_of(33), text_of(0)};
  for (int i = 0; i < 200; ++i) {
    const std::string& key = keys[random.below(4)];
    const std::string text = text_of(random.below(300));
    CHECK(of_ours(hmac, key, text) == of_openssl(key, text));
  }
}

TEST_CASE("the result of an HMAC may replace its key", "[s3][signer]") {
  s3::detail::hmac_sha256 hmac;
  s3::detail::digest key{};
  std::string same(key.size(), '\0');
  for (int i = 0; i < 5; ++i) {
    hmac(key.data(), key.size(), "step", key);
    const s3::detail::digest expected = of_openssl(same, "step");
    CHECK(key == expected);
    same.assign(expected.begin(), expected.end());
  }
}

TEST_CASE("an HMAC overwrites the key that it knows", "[s3][signer]") {
  using hmac_type = s3::detail::hmac_sha256;
  alignas(hmac_type) unsigned char memory[sizeof(hmac_type)] = {};
  const std::string key = "0123456789abcdefghijklmnopqrstuv";
  const auto holds = [&] { return ::memmem(memory, sizeof memory, key.data(), key.size()) != nullptr; };
  auto* const hmac = new (memory) hmac_type;
  of_ours(*hmac, key, "text");
  CHECK(holds());
  hmac->~hmac_type();
  CHECK_FALSE(holds());
}
