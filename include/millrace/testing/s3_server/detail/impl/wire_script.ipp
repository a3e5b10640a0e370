// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/alter_reply.hpp>
#include <millrace/testing/s3_server/detail/wire_script.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE std::uint64_t total(const std::vector<bytes>& slices) noexcept {
  std::uint64_t size = 0;
  for (const bytes& b : slices) size += b.size();
  return size;
}

/// Moves the first `n` bytes out of `slices`; fewer when there are not so many. Nothing is copied.
MILLRACE_INLINE std::vector<bytes> take_front(std::vector<bytes>& slices, std::uint64_t n) {
  std::vector<bytes> front;
  std::size_t used = 0;
  for (; used < slices.size() && n > 0; ++used) {
    bytes& piece = slices[used];
    if (piece.size() > n) {
      front.push_back(piece.slice(0, static_cast<std::size_t>(n)));
      piece = piece.slice(static_cast<std::size_t>(n), piece.size() - static_cast<std::size_t>(n));
      break;
    }
    n -= piece.size();
    front.push_back(std::move(piece));
  }
  slices.erase(slices.begin(), slices.begin() + static_cast<std::ptrdiff_t>(used));
  return front;
}

MILLRACE_INLINE std::string render_head(const reply& a) {
  std::string head = "HTTP/1.1 " + std::to_string(a.status) + ' ' + reason_phrase(a.status) + "\r\n";
  for (const auto& [name, value] : a.fields) head.append(name).append(": ").append(value).append("\r\n");
  return head += "\r\n";
}

MILLRACE_INLINE std::vector<bytes> in_chunks(std::vector<bytes> slices, bool cut) {
  std::vector<bytes> out;
  while (!slices.empty()) {
    std::vector<bytes> chunk = take_front(slices, 64 * 1024);
    char size[24];
    std::snprintf(size, sizeof size, "%llx\r\n", static_cast<unsigned long long>(total(chunk)));
    out.push_back(bytes::copy(size));
    for (bytes& piece : chunk) out.push_back(std::move(piece));
    out.push_back(bytes::copy("\r\n"));
  }
  if (!cut) out.push_back(bytes::copy("0\r\n\r\n"));
  return out;
}

/// Faults that make no sense for an answer without a body, to HEAD say.
MILLRACE_INLINE bool is_about_body(fault::kind what) noexcept {
  using k = fault::kind;
  return what == k::longer_body || what == k::chunked || what == k::chunked_garbage || what == k::chunked_cut ||
         what == k::no_content_length || what == k::cut_without_length;
}

MILLRACE_INLINE wire_script make_script(reply a, fault f) {
  using k = fault::kind;
  if (f.at_is_random) f.at %= a.size + 1;
  if (f.at_is_random && f.what == k::drip) f.at = a.size / 8 + 1;  // a few pieces
  if (a.without_body && is_about_body(f.what)) f.what = k::none;
  alter_reply(a, f);
  std::string head_text = render_head(a);
  if (f.what == k::garbage_status) head_text = "ICY ???\r\n" + head_text;
  if (f.what == k::early_hints) head_text = "HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n" + head_text;
  if (f.what == k::nul_in_head) head_text.insert(head_text.size() - 2, std::string("X-Nul: a\0b\r\n", 12));
  std::vector<bytes> head{bytes::copy(head_text)};
  std::vector<bytes> body = a.without_body ? std::vector<bytes>() : std::move(a.body);

  wire_script script;
  const auto send = [&script](std::vector<bytes> data) {
    if (!data.empty()) script.emplace_back(std::move(data));
  };
  const auto send_to = [&](std::uint64_t at) {  // head and the first part of the body in one write
    std::vector<bytes> data = head;
    for (bytes& piece : take_front(body, at)) data.push_back(std::move(piece));
    send(std::move(data));
  };
  const auto finish = [&](bool close) {
    if (close) script.emplace_back(step::kind::close);
    return std::move(script);
  };

  switch (f.what) {
    case k::delay_head:
      script.emplace_back(f.pause);
      break;
    case k::delay_body:
      send_to(f.at);
      script.emplace_back(f.pause);
      send(std::move(body));
      return finish(a.close);
    case k::stall_head:
      script.emplace_back(step::kind::stall);
      return finish(true);
    case k::stall_body:
      send_to(f.at);
      script.emplace_back(step::kind::stall);
      return finish(true);
    case k::drip:
      send_to(0);
      while (!body.empty()) {
        script.emplace_back(f.pause);
        send(take_front(body, std::max<std::uint64_t>(f.at, 1)));
      }
      return finish(a.close);
    case k::reset_before_head:
    case k::close_before_head:
    case k::reset_in_head:
    case k::close_in_head:
      if (f.what == k::reset_in_head || f.what == k::close_in_head) {
        send(take_front(head, f.at_is_random ? f.at % head_text.size() : f.at));
      }
      script.emplace_back(f.what == k::reset_before_head || f.what == k::reset_in_head ? step::kind::reset
                                                                                       : step::kind::close);
      return finish(false);
    case k::reset_in_body:
    case k::close_in_body:
    case k::cut_without_length:
    case k::chunked_cut:
      if (f.what == k::chunked_cut) body = in_chunks(take_front(body, f.at), true);
      send_to(f.what == k::chunked_cut ? UINT64_MAX : f.at);
      script.emplace_back(f.what == k::reset_in_body ? step::kind::reset : step::kind::close);
      return finish(false);
    case k::chunked:
      body = in_chunks(std::move(body), false);
      break;
    case k::chunked_garbage: {
      std::vector<bytes> sound = in_chunks(take_front(body, f.at), true);
      sound.push_back(bytes::copy("not a size\r\n"));
      body = std::move(sound);
      send_to(UINT64_MAX);
      return finish(true);
    }
    case k::longer_body:
      body.push_back(bytes::copy(std::string(static_cast<std::size_t>(f.at_is_random ? f.at % 512 + 1 : f.at), 'x')));
      send_to(UINT64_MAX);
      return finish(true);
    default:
      break;
  }
  send_to(UINT64_MAX);
  return finish(a.close);
}

}  // namespace millrace::s3_server::detail
