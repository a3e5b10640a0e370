// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/writable_bytes.hpp>
#include <millrace/testing/s3_server/detail/alter_reply.hpp>
#include <millrace/testing/s3_server/refusal.hpp>

namespace millrace::s3_server::detail {

/// "bytes 5-9/10" with both ends `shift` further on.
MILLRACE_INLINE std::string shifted_range(const std::string& value, std::uint64_t shift) {
  unsigned long long first = 0;
  unsigned long long last = 0;
  unsigned long long size = 0;
  if (std::sscanf(value.c_str(), "bytes %llu-%llu/%llu", &first, &last, &size) != 3) return value;
  return "bytes " + std::to_string(first + shift) + '-' + std::to_string(last + shift) + '/' + std::to_string(size);
}

/// `slices` with one bit of byte `at` inverted; the slice that holds it is copied, the memory of the object is not
/// touched.
MILLRACE_INLINE void flip_bit(std::vector<bytes>& slices, std::uint64_t at) {
  for (bytes& piece : slices) {
    if (at >= piece.size()) {
      at -= piece.size();
      continue;
    }
    writable_bytes copy = writable_bytes::allocate(piece.size());
    std::memcpy(copy.data(), piece.data(), piece.size());
    copy.data()[at] = static_cast<char>(copy.data()[at] ^ 1);
    piece = copy.share(0, piece.size());
    return;
  }
}

MILLRACE_INLINE void alter_reply(reply& a, const fault& f) {
  using k = fault::kind;
  const auto set = [&a](const char* name, const std::string& value) { a.set(name, &value); };
  const std::string* range = a.find("Content-Range");
  switch (f.what) {
    case k::no_content_length:
    case k::cut_without_length:
      a.set("Content-Length", nullptr);
      set("Connection", "close");
      a.close = true;
      break;
    case k::wrong_content_length:
      set("Content-Length", std::to_string(f.at));
      a.close = true;
      break;
    case k::two_content_lengths:
      a.add("Content-Length", std::to_string(a.size + std::max<std::uint64_t>(f.at, 1)));
      break;
    case k::chunked:
    case k::chunked_garbage:
    case k::chunked_cut:
      a.set("Content-Length", nullptr);
      set("Transfer-Encoding", "chunked");
      break;
    case k::huge_head:
      for (std::uint64_t sent = 0; sent < f.at; sent += 1010) a.add("X-Fill", std::string(1000, 'f'));
      break;
    case k::no_etag:
      a.set("ETag", nullptr);
      break;
    case k::wrong_etag:
      set("ETag", "\"00000000000000000000000000000000\"");
      break;
    case k::no_content_range:
      a.set("Content-Range", nullptr);
      break;
    case k::wrong_content_range:
      if (range != nullptr) set("Content-Range", shifted_range(*range, std::max<std::uint64_t>(f.at, 1)));
      break;
    case k::flipped_bit:
      flip_bit(a.body, f.at);
      break;
    default:
      break;
  }
  for (const auto& [name, value] : f.fields) a.add(name, value);
}

MILLRACE_INLINE reply substitute(const fault& f, const std::string& resource, const std::string& request_id) {
  if (f.what == fault::kind::page) {
    reply a(f.status);
    a.add("Content-Type", "text/html");
    a.set_body(
        {bytes::copy("<!DOCTYPE html><html><body><h1>This is not the object that you asked for</h1></body></html>\n")});
    return a;
  }
  reply a(f.what == fault::kind::refuse ? f.status : 200);
  a.set_document(refusal(a.status, f.text, "Injected by the fault plan").document(resource, request_id));
  return a;
}

}  // namespace millrace::s3_server::detail
