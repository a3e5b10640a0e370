// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/detail/copy_past_caches.hpp>
#include <millrace/http/detail/transfer.hpp>
#include <millrace/http/proxy.hpp>

namespace millrace::http::detail {

/// What kind of failure libcurl's result is.
MILLRACE_INLINE failure failure_of(CURLcode rc) noexcept {
  switch (rc) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return failure::resolve;
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
      return failure::connect;
    case CURLE_OPERATION_TIMEDOUT:
      return failure::timeout;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
      return failure::tls;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
      return failure::broken;
    case CURLE_FILESIZE_EXCEEDED:
      return failure::too_large;
    default:
      return failure::protocol;
  }
}

MILLRACE_INLINE transfer::transfer(engine& e, request&& r, std::shared_ptr<const transport_options> transport,
                                   body_options&& body)
    : engine_(e), request_(std::move(r)), transport_(std::move(transport)), body_(std::move(body)), parser_(request_) {
  easy_ = engine_.take_handle();
  progress_ = engine_.loop().now();
  try {
    configure();
    watch(after(std::min(transport_->first_byte_timeout, queue_look)));
    engine_.start(easy_);  // last: once libcurl has it, only the destructor takes it back
  } catch (...) {
    engine_.loop().remove_timer(*this);
    engine_.give_back_handle(easy_);
    throw;
  }
}

MILLRACE_INLINE transfer::~transfer() {
  leave_partial();
  stand_still(false);
  engine_.loop().remove_timer(*this);
  engine_.stop(easy_, this);
  engine_.give_back_handle(easy_);
}

MILLRACE_INLINE void transfer::set_waiter(ready_node* node, bool for_head, stage_record* stage) noexcept {
  if (stage != nullptr) engine_.charge_to(stage, this);
  waiter_ = node;
  waits_for_head_ = for_head;
}

MILLRACE_INLINE bytes transfer::take_body() {
  if (chunks_.empty()) {
    if (filled_ > 0) return take_last();
    rethrow_if_failed();
    return bytes();
  }
  bytes chunk = std::move(chunks_.front());
  chunks_.pop_front();
  if (paused_ && !ended_) unpause();
  return chunk;
}

MILLRACE_INLINE void transfer::transfer_ended(CURLcode result) noexcept {
  engine_.loop().remove_timer(*this);
  if (!error_) error_ = verdict(result);
  end();
}

MILLRACE_INLINE void transfer::configure() {
  const auto set = [this](auto option, auto value) {
    const CURLcode rc = curl_easy_setopt(easy_, option, value);
    if (rc != CURLE_OK)
      throw configuration_error(std::string("libcurl refused an option: ") + curl_easy_strerror(rc), at());
  };
  // libcurl would see the URL only up to a NUL.
  for (char c : request_.url) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      throw configuration_error("the URL has a control character", at());
    }
  }
  set(CURLOPT_PRIVATE, static_cast<engine::client*>(this));
  set(CURLOPT_SHARE, engine_.share());
  set(CURLOPT_URL, request_.url.c_str());
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  // Dropped or timed out while its host is looked up: libcurl would wait, on the loop's thread, for getaddrinfo(). It
  // leaves its own thread behind until that has returned.
  set(CURLOPT_QUICK_EXIT, 1L);
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_HTTP_CONTENT_DECODING, 0L);
  set(CURLOPT_BUFFERSIZE, engine_.options().receive_buffer);
  // In whole milliseconds, rounded up: 0 would be libcurl's own 300 s. Bounded: libcurl keeps an int of them.
  const duration connecting =
      std::clamp<duration>(transport_->connect_timeout, duration(1), std::chrono::hours(24 * 20));
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>((connecting - duration(1)) / std::chrono::milliseconds(1) + 1));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_MAXAGE_CONN, 5L);  // S3 closes connections that idle for about that long
  if (const char* why = misread_proxy(transport_->proxy)) throw configuration_error(why, at());
  set(CURLOPT_PROXY, transport_->proxy.c_str());  // set even when empty: libcurl reads the environment otherwise
  set(CURLOPT_NOPROXY, transport_->no_proxy.c_str());
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // what the proxy says to CONNECT is not the answer
  set(CURLOPT_SSL_VERIFYPEER, 1L);
  set(CURLOPT_SSL_VERIFYHOST, 2L);
  if (!transport_->ca_file.empty()) set(CURLOPT_CAINFO, transport_->ca_file.c_str());
  set(CURLOPT_ERRORBUFFER, message_);
  set(CURLOPT_HEADERFUNCTION, &transfer::on_header);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_WRITEFUNCTION, &transfer::on_body);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_PREREQFUNCTION, &transfer::on_sending);
  set(CURLOPT_RESOLVER_START_FUNCTION, &transfer::on_look_up);
  set(CURLOPT_RESOLVER_START_DATA, this);
  set(CURLOPT_SOCKOPTFUNCTION, &transfer::on_connecting);
  set(CURLOPT_SOCKOPTDATA, this);
  set(CURLOPT_PREREQDATA, this);
  if (request_.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (!request_.body.empty() || request_.method == "PUT" || request_.method == "POST") {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDS, request_.body.empty() ? "" : request_.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body.size()));
    set(CURLOPT_CUSTOMREQUEST, request_.method.c_str());
  } else {
    set(CURLOPT_CUSTOMREQUEST, request_.method.c_str());
  }
  for (const auto& [name, value] : request_.fields) fields_.add(name, value);
  if (request_.range && request_.fields.find("range") == nullptr) {
    fields_.add("Range", request_.range->header_value());
  }
  for (const char* unwanted : {"Expect", "Content-Type", "Accept"}) {
    if (request_.fields.find(unwanted) == nullptr) fields_.suppress(unwanted);
  }
  if (request_.fields.find("accept-encoding") == nullptr) fields_.add("Accept-Encoding", "identity");
  set(CURLOPT_HTTPHEADER, fields_.list());
}

MILLRACE_INLINE std::size_t transfer::on_header(char* data, std::size_t size, std::size_t count, void* self) noexcept {
  auto& t = *static_cast<transfer*>(self);
  if (t.ended_) return 0;  // timed out: libcurl learns it here
  try {
    t.touch();
    if (!t.parser_.any()) t.watch(t.after(t.transport_->stall_timeout));  // from now on the shorter look-back
    if (t.parser_.line(std::string_view(static_cast<const char*>(data), size * count))) t.wake();
    return size * count;
  } catch (...) {
    t.error_ = std::current_exception();
    return 0;
  }
}

MILLRACE_INLINE std::size_t transfer::on_body(char* data, std::size_t size, std::size_t count, void* self) noexcept {
  auto& t = *static_cast<transfer*>(self);
  if (t.ended_) return 0;
  try {
    const std::size_t n = size * count;
    if (t.ahead() + n > t.body_.window && !t.chunks_.empty()) {
      t.paused_ = true;
      t.stand_still(true);
      return CURL_WRITEFUNC_PAUSE;
    }
    if (t.engine_.action_bytes >= t.engine_.action_limit) {
      t.paused_ = true;
      t.engine_.resume_next_turn(&t);
      return CURL_WRITEFUNC_PAUSE;
    }
    t.touch();
    t.store(data, n);
    return n;
  } catch (...) {
    t.error_ = std::current_exception();
    return 0;
  }
}

MILLRACE_INLINE void transfer::store(const char* data, std::size_t n) {
  engine_.took(n, !current_ && body_.pool && !body_.pool->has_free());
  while (n > 0) {
    if (!current_) begin_piece();
    const std::size_t part = std::min(n, current_.capacity() - filled_);
    if (resumable_) body_.resume->crc.add(data, part);  // while it is in the cache
    if (current_.capacity() >= past_caches) {
      copy_past_caches(current_.data() + filled_, data, part);
    } else {
      std::memcpy(current_.data() + filled_, data, part);
    }
    filled_ += part;
    received_ += part;
    data += part;
    n -= part;
    if (filled_ == current_.capacity()) {
      push_filled();
      wake();
    }
  }
}

MILLRACE_INLINE void transfer::begin_piece() {
  const int status = parser_.head().status;
  const bool first = received_ == 0;  // not yet counted
  resumable_ = status == (request_.range ? 206 : 200) && first && body_.resume != nullptr;
  if (resumable_ && body_.resume->memory) {
    current_ = std::move(body_.resume->memory);
    filled_ = std::exchange(body_.resume->filled, 0);
  } else {
    const bool success = status >= 200 && status < 300;
    current_ = body_.pool && success ? body_.pool->acquire() : writable_bytes::allocate(body_.heap_chunk);
  }
}

MILLRACE_INLINE void transfer::end() noexcept {
  ended_ = true;
  stand_still(false);
  if (error_) leave_partial();
  wake();
}

MILLRACE_INLINE bytes transfer::take_last() {
  bytes last = current_.share(0, filled_);
  current_ = writable_bytes();
  filled_ = 0;
  return last;
}

MILLRACE_INLINE void transfer::leave_partial() noexcept {
  if (!resumable_ || filled_ == 0) return;
  body_.resume->memory = std::move(current_);
  body_.resume->filled = std::exchange(filled_, 0);
}

MILLRACE_INLINE std::size_t transfer::ahead() const noexcept {
  std::size_t total = filled_;
  for (const bytes& c : chunks_) total += c.size();
  return total;
}

MILLRACE_INLINE void transfer::unpause() noexcept {
  paused_ = false;
  stand_still(false);
  touch();
  watch(after(transport_->stall_timeout));
  engine_.action_bytes = 0;  // this is an action of its own: with the last one's count on_body would pause again
  curl_easy_pause(easy_, CURLPAUSE_CONT);  // may call on_body at once
}

MILLRACE_INLINE void transfer::fire() noexcept {
  if (ended_ || paused_) return;  // unpause() watches again
  curl_off_t sent = 0;
  curl_easy_getinfo(easy_, CURLINFO_PRETRANSFER_TIME_T, &sent);
  const bool started = parser_.any();
  const duration limit = started ? transport_->stall_timeout : transport_->first_byte_timeout;
  const time_point now = engine_.loop().now();
  if (sent == 0) {  // queued or connecting: libcurl's connect time-out counts
    if (!queued_ || engine_.make_room_for(easy_)) return watch(later(now, std::min(limit, queue_look)));
    error_ = std::make_exception_ptr(std::bad_alloc());
    return end();
  }
  if (now - progress_ < limit) return watch(after(limit));
  curl_off_t uploaded = 0;
  curl_easy_getinfo(easy_, CURLINFO_SIZE_UPLOAD_T, &uploaded);
  if (std::exchange(uploaded_, uploaded) != uploaded) {  // a large body, a slow link: it goes on
    progress_ = now;
    return watch(later(now, limit));
  }
  error_ = std::make_exception_ptr(error(failure::timeout,
                                         (started ? "no byte of the answer for " : "no answer within ") +
                                             std::to_string(limit / std::chrono::milliseconds(1)) + " ms",
                                         at(received_)));
  end();
}

MILLRACE_INLINE std::exception_ptr transfer::verdict(CURLcode result) {
  try {
    if (result != CURLE_OK) {
      std::string reason = message_[0] != '\0' ? message_ : curl_easy_strerror(result);
      // libcurl repeats a proxy's URL that it cannot read, password and all, as far as its buffer goes.
      if (reason.compare(0, 17, "Unsupported proxy") == 0) reason = "libcurl does not know such a proxy";
      throw error(failure_of(result), reason, parser_.any() ? at(received_) : at(), parser_.head().status);
    }
    // libcurl answers OK to heads cut short and to bodies without an end: judged here.
    if (!parser_.complete()) throw error(failure::broken, "the answer ended inside its head", at());
    parser_.check_body(received_);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace millrace::http::detail
