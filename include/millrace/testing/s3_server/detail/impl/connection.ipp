// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/s3_server/detail/connection.hpp>
#include <millrace/testing/s3_server/detail/date.hpp>
#include <millrace/testing/s3_server/detail/parse_head.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE shared_state::shared_state(options o)
    : settings(std::move(o)),
      clock(settings.clock_offset),
      objects(clock),
      operations(objects, settings, clock),
      log(settings.log_limit),
      tls(settings.tls.enabled ? std::make_unique<tls_context>(settings.tls) : nullptr) {}

MILLRACE_COROUTINE_BODY task<void> connection::run() {
  try {
    if (state_.tls == nullptr || co_await greet()) {
      const std::uint64_t limit = state_.settings.max_requests_per_connection;
      for (std::uint64_t served = 1; co_await serve_one(served == limit); ++served) continue;
    }
  } catch (const io_error&) {
  }
}

MILLRACE_COROUTINE_BODY task<bool> connection::greet() {
  const handshake greeting = state_.settings.tls.greeting;
  if (greeting == handshake::normal) co_return true;
  char first[512];
  co_await stream_.raw().read_some(first);
  if (greeting == handshake::reset) stream_.raw().reset_on_close();
  if (greeting == handshake::plain_text) {
    const std::string_view text[] = {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"};
    co_await stream_.raw().write_all(text);
  }
  if (greeting == handshake::stall) co_await wait_for_end();
  co_return false;
}

MILLRACE_COROUTINE_BODY task<bool> connection::serve_one(bool last) {
  request r;
  r.connection = number_;
  std::optional<refusal> wrong;
  std::string head;
  try {
    head = co_await input_.head();
  } catch (const refusal& why) {
    wrong = why;
  }
  if (head.empty() && !wrong) co_return false;
  begin();
  bool unread = wrong.has_value();  // the rest of the message is on its way, or cannot be told from the next one
  if (!wrong) {
    if (const char* reason = parse_head(head, r)) {
      wrong = refusal(400, "InvalidRequest", reason);
      unread = true;
    }
  }
  const std::string id = "server-" + std::to_string(number_) + '-' + std::to_string(++requests_);
  caller who;
  if (!wrong) {
    try {
      who = state_.operations.admit(r);
    } catch (const refusal& why) {
      wrong = why;
    }
    try {
      unread = !co_await read_body(r, wrong.has_value());
    } catch (const refusal& why) {
      if (!wrong) wrong = why;
      unread = true;
    }
  }
  const fault f = state_.faults.decide(r);
  reply a = answer(r, who, wrong, f, id);
  finish_head(a, r, id, last || unread);
  state_.log.add(logged_request(r, a.status, f.what));
  const bool goes_on = co_await perform(make_script(std::move(a), f));
  end();
  co_return goes_on;
}

MILLRACE_COROUTINE_BODY task<bool> connection::read_body(request& r, bool refused) {
  const std::string* coding = r.field("transfer-encoding");
  const std::string* length = r.field("content-length");
  const std::uint64_t limit = state_.settings.max_object_size;
  const bool expects = r.field("expect") != nullptr;
  if (coding == nullptr && length == nullptr) {
    if (r.method == "PUT") throw refusal(411, "MissingContentLength", "You must provide the Content-Length header.");
    co_return true;
  }
  const auto size = length == nullptr ? std::nullopt : parse_number(*length);
  if (coding == nullptr ? !size || r.count("content-length") != 1
                        : length != nullptr || !equal_ignoring_case(*coding, "chunked")) {
    throw refusal(400, "InvalidRequest", "The framing of the request is ambiguous or unknown");
  }
  if (size && *size > limit) {
    throw refusal(400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed object size.")
        .with("MaxSizeAllowed", std::to_string(limit));
  }
  if (refused && (expects || !size)) co_return false;
  if (expects) {
    const std::string_view go_on[] = {"HTTP/1.1 100 Continue\r\n\r\n"};
    co_await stream_.write_all(go_on);
  }
  if (!size) {
    r.body = co_await input_.chunked_body(r, limit);
  } else if (refused) {
    co_await input_.skip(*size);
  } else {
    r.body = co_await input_.body(*size);
  }
  co_return true;
}

MILLRACE_INLINE reply connection::answer(request& r, const caller& who, const std::optional<refusal>& wrong,
                                         const fault& f, const std::string& id) {
  using k = fault::kind;
  if (f.what == k::refuse || f.what == k::error_in_success || f.what == k::page) {
    return substitute(f, std::string(r.raw_path()), id);
  }
  if (wrong) return state_.operations.answer(r, *wrong, id);
  try {
    if (f.what == k::replace_object) state_.objects.replace(r.bucket, r.key);
    if (f.what == k::ignore_range) {
      std::erase_if(r.fields, [](const request::pair& field) { return field.first == "range"; });
    }
    return state_.operations.answer(r, who);
  } catch (const refusal& why) {
    return state_.operations.answer(r, why, id);
  }
}

MILLRACE_INLINE void connection::finish_head(reply& a, const request& r, const std::string& id, bool last) {
  if (r.method == "HEAD") a.without_body = true;
  const std::string* wish = r.field("connection");
  a.close = last || r.minor_version == 0 || (wish != nullptr && equal_ignoring_case(*wish, "close"));
  if (a.status != 204 && a.status != 304) a.add("Content-Length", std::to_string(a.size));
  a.add("x-amz-request-id", id).add("x-amz-id-2", "server").add("Date", http_date(state_.clock.now()));
  if (a.close) a.add("Connection", "close");
}

MILLRACE_COROUTINE_BODY task<bool> connection::perform(wire_script script) {
  for (step& s : script) {
    switch (s.what) {
      case step::kind::send:
        co_await send(s.slices);
        break;
      case step::kind::pause:
        co_await sleep_for(s.length);
        break;
      case step::kind::stall:
        co_await wait_for_end();
        co_return false;
      case step::kind::reset:
        co_await wait_for_acknowledgement();
        stream_.raw().reset_on_close();
        co_return false;
      case step::kind::close:
        // What the client sent must be read before the descriptor is closed, or the kernel resets the connection
        // and the client may lose the answer.
        stream_.raw().shutdown_write();
        co_await wait_for_end();
        co_return false;
    }
  }
  co_return true;
}

MILLRACE_COROUTINE_BODY task<void> connection::send(const std::vector<bytes>& slices) {
  std::vector<std::string_view> pieces;
  pieces.reserve(slices.size());
  std::uint64_t size = 0;
  for (const bytes& b : slices) {
    pieces.push_back(b.view());
    size += b.size();
  }
  co_await stream_.write_all(pieces);
  state_.counts.bytes_sent.fetch_add(size, std::memory_order_relaxed);
}

MILLRACE_COROUTINE_BODY task<void> connection::wait_for_end() {
  char ignored[4096];
  while (co_await stream_.raw().read_some(ignored) > 0) continue;
}

MILLRACE_COROUTINE_BODY task<void> connection::wait_for_acknowledgement() {
  for (int i = 0; i < 1000; ++i) {
    int unsent = 0;
    if (::ioctl(stream_.raw().fd(), SIOCOUTQ, &unsent) != 0 || unsent == 0) co_return;
    co_await sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace millrace::s3_server::detail
