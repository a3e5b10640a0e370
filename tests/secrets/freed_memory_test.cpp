// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Secret keys, session tokens and the authorization of requests are overwritten before their memory goes back to the
// heap, whichever source they come from. Watched is what the library itself frees; the buffers of libcurl, OpenSSL and
// expat are their own.

#include <millrace/s3/client.hpp>

#include <malloc.h>
#include <openssl/crypto.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/memory/slab_pool.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/scripted_server.hpp"
#include "tests/support/temporary_folder.hpp"

// The sanitizers have an allocator of their own.
#if defined(__GLIBC__) && !MILLRACE_ASAN && !MILLRACE_TSAN
#define MILLRACE_CAN_WATCH 1
#else
#define MILLRACE_CAN_WATCH 0
#endif

using namespace millrace;

namespace {

constexpr char secret[] = "SECRETkey0123456789abcdefghijklmnopqrstuv";
constexpr char token[] = "TOKENtoken0123456789abcdefghijklmnopqrstuvwxyz";

thread_local bool watching = false;
thread_local int found = 0;  // blocks freed on this thread with the beginning of a secret in them

/// How each of them begins: key, token, and what the signer makes of them, whose end is the signature.
[[maybe_unused]] constexpr const char* beginnings[] = {"SECRETkey012", "TOKENtoken01",
                                                       "AWS4-HMAC-SHA256 Credential=AKID/"};

}  // namespace

#if MILLRACE_CAN_WATCH
extern "C" {
extern char __executable_start;
extern char etext;
void* __libc_malloc(std::size_t);
void __libc_free(void*);
}

namespace {

/// Frees a block. A secret in it counts when it is `ours`, and goes in any case: what others leave (the test's
/// own strings, the buffers of libraries) must not turn up in memory that the library gets later.
void let_go(void* p, bool ours) noexcept {
  if (p != nullptr) {
    const std::size_t size = ::malloc_usable_size(p);
    for (const char* text : beginnings) {
      if (::memmem(p, size, text, std::strlen(text)) == nullptr) continue;
      if (ours && watching) ++found;
      OPENSSL_cleanse(p, size);
    }
  }
  __libc_free(p);
}
/// Whether the code there is this program's: the library is all headers.
bool ours(const void* code) noexcept {
  return static_cast<const char*>(code) >= &__executable_start && static_cast<const char*>(code) < &etext;
}

}  // namespace

extern "C" {
void free(void* p) noexcept { let_go(p, ours(__builtin_return_address(0))); }
void* realloc(void* p, std::size_t size) noexcept {
  const bool mine = ours(__builtin_return_address(0));
  void* const grown = size == 0 && p != nullptr ? nullptr : __libc_malloc(size);
  if (p != nullptr && grown != nullptr) {
    const std::size_t had = ::malloc_usable_size(p);
    std::memcpy(grown, p, had < size ? had : size);
  }
  if (grown != nullptr || size == 0) let_go(p, mine);
  return grown;
}
}

void operator delete(void* p) noexcept { let_go(p, true); }
void operator delete(void* p, std::size_t) noexcept { let_go(p, true); }
#endif

namespace {

using variables = std::map<std::string, std::string>;

/// The store, and a way to use a client whose credentials come from somewhere.
class world {
 public:
  world() {
    s3_server::options o;
    o.keys["AKID"] = s3_server::access_key(secret, token);
    server_.emplace(std::move(o));
    server_->put("b", "k", std::string_view("content"));
    v = {{"AWS_ENDPOINT_URL_S3", server_->endpoint()},
         {"AWS_REGION", "us-east-1"},
         {"HOME", "/nonexistent"},
         {"AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"},
         {"AWS_CONFIG_FILE", "/nonexistent"}};
  }

  std::string file(const std::string& name, const std::string& text) {
    const std::string path = folder_.file(name);
    std::FILE* f = std::fopen(path.c_str(), "w");
    REQUIRE(f != nullptr);
    std::fputs(text.c_str(), f);
    REQUIRE(std::fclose(f) == 0);
    return path;
  }

  /// How many freed blocks had the secret in them; -1: the object was not read.
  int leaks() {
    const auto look_up = [&](const char* name) -> const char* {
      const auto at = v.find(name);
      return at == v.end() ? nullptr : at->second.c_str();
    };
    bool read = false;
    found = 0;
    watching = true;
    {
      const s3::client c = s3::client::from_environment(environment(look_up));
      const std::unique_ptr<event_loop> loop = make_event_loop();
      const s3::object_part got = block_on(*loop, c.get("s3://b/k", 0, 7, "", slab_pool(64 * KiB)));
      read = got.data.view() == "content";
    }
    watching = false;
    return read ? found : -1;
  }

  variables v;

 private:
  std::optional<s3_server::background> server_;
  test::temporary_folder folder_;
};

std::string json(const char* token_name) {
  return std::string("{\"Version\":1,\"Code\":\"Success\",\"AccessKeyId\":\"AKID\",\"SecretAccessKey\":\"") + secret +
         "\",\"" + token_name + "\":\"" + token + "\",\"Expiration\":\"2099-01-01T00:00:00Z\"}";
}
test::scripted_answer answer(const std::string& body) {
  return {"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body,
          test::scripted_answer::then::keep};
}

}  // namespace

TEST_CASE("the watch sees secrets in freed memory", "[s3][secrets]") {
#if MILLRACE_CAN_WATCH
  found = 0;
  watching = true;
  {
    std::string text(secret);
    const bytes block = bytes::copy(text);
  }
  watching = false;
  CHECK(found == 2);
#else
  MILLRACE_SKIP("the allocator is not ours to replace");
#endif
}

TEST_CASE("keys, tokens and signatures are overwritten before their memory is freed", "[s3][secrets]") {
#if !MILLRACE_CAN_WATCH
  MILLRACE_SKIP("the allocator is not ours to replace");
#endif
  world w;
  SECTION("variables") {
    w.v["AWS_ACCESS_KEY_ID"] = "AKID";
    w.v["AWS_SECRET_ACCESS_KEY"] = secret;
    w.v["AWS_SESSION_TOKEN"] = token;
    CHECK(w.leaks() == 0);
  }
  SECTION("a file") {
    w.v["AWS_SHARED_CREDENTIALS_FILE"] =
        w.file("credentials", std::string("[default]\naws_access_key_id = AKID\naws_secret_access_key = ") + secret +
                                  "\naws_session_token = " + token + "\n");
    CHECK(w.leaks() == 0);
  }
  SECTION("a process") {
    const std::string answered = w.file("answer", json("SessionToken"));
    w.v["AWS_CONFIG_FILE"] = w.file("config", "[default]\ncredential_process = cat " + answered + "\n");
    CHECK(w.leaks() == 0);
  }
  SECTION("a container") {
    const test::scripted_server server({answer(json("Token"))});
    w.v["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.url("/credentials");
    CHECK(w.leaks() == 0);
  }
  SECTION("a container, by an answer with escapes in it") {
    std::string text = json("Token");
    text.replace(text.find(secret) + 19, 1, "\\u0061");  // an a
    REQUIRE(secret[19] == 'a');
    const test::scripted_server server({answer(text)});
    w.v["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.url("/credentials");
    CHECK(w.leaks() == 0);
  }
  SECTION("the instance") {
    const test::scripted_server server(
        {answer("a-token-of-the-metadata-service"), answer("role"), answer(json("Token"))});
    w.v["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = server.url("");
    CHECK(w.leaks() == 0);
  }
  SECTION("STS") {
    const test::scripted_server server(
        {answer(std::string("<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                            "<AccessKeyId>AKID</AccessKeyId><SecretAccessKey>") +
                secret + "</SecretAccessKey><SessionToken>" + token +
                "</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
                "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")});
    w.v["AWS_ENDPOINT_URL_STS"] = server.url("");
    w.v["AWS_WEB_IDENTITY_TOKEN_FILE"] = w.file("identity", "an-identity-token");
    w.v["AWS_ROLE_ARN"] = "arn:aws:iam::123456789012:role/reader";
    CHECK(w.leaks() == 0);
  }
}
