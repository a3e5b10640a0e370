// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Reads every sample below s3://bucket/prefix with the library and prints one JSON object per sample, in order:
//
//   test_real_server_reader URL [PART [WINDOW [SHARDS]]]      sizes in bytes; without them fetch's defaults
//
// Names are printed as hexadecimal bytes: they may be anything. The store is that of the environment's AWS_ variables.

#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/untar.hpp>

namespace {

namespace mill = millrace;

std::string hexadecimal(std::string_view text) {
  static const char* const digits = "0123456789abcdef";
  std::string out;
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    out += digits[u >> 4];
    out += digits[u & 15];
  }
  return out;
}

std::string sha256(std::string_view data) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(data.data(), data.size(), digest, &size, EVP_sha256(), nullptr) != 1) std::abort();
  return hexadecimal(std::string_view(reinterpret_cast<const char*>(digest), size));
}

mill::task<void> print_all(mill::s3::client s3, std::string prefix, mill::fetch_options options) {
  auto samples = s3.list(prefix) | mill::fetch(s3, options) | mill::untar() | mill::group_samples();
  while (std::optional<mill::sample> s = co_await samples.next()) {
    std::string line = R"({"url": ")" + hexadecimal(s->from.url()) + R"(", "ordinal": )";
    line += std::to_string(s->from.ordinal) + R"(, "key": ")" + hexadecimal(s->key) + R"(", "fields": [)";
    for (const mill::field& f : s->fields) {
      if (&f != &s->fields.front()) line += ", ";
      line += R"([")" + hexadecimal(f.extension) + R"(", )" + std::to_string(f.data.size()) + R"(, ")";
      line += sha256(f.data.view()) + R"("])";
    }
    line += "]}";
    if (std::puts(line.c_str()) < 0) std::abort();
  }
}

std::size_t size_argument(int count, char** arguments, int at, std::size_t otherwise) {
  return count > at ? static_cast<std::size_t>(std::strtoull(arguments[at], nullptr, 10)) : otherwise;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s URL [PART [WINDOW [SHARDS]]]\n", arguments[0]);
    return 2;
  }
  try {
    mill::fetch_options options;
    options.part = size_argument(count, arguments, 2, options.part);
    options.window = size_argument(count, arguments, 3, options.window);
    options.shards = size_argument(count, arguments, 4, options.shards);
    const auto loop = mill::make_event_loop();
    mill::block_on(*loop, print_all(mill::s3::client::from_environment(), arguments[1], options));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
