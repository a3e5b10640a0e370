// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/clock.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/testing/s3_server/detail/body_check.hpp>
#include <millrace/testing/s3_server/detail/connection.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/message.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

MILLRACE_INLINE tls_context::tls_context(const tls_options& o)
    : context_(SSL_CTX_new(TLS_server_method())), path_(o.certificate_file) {
  const tls_handle<EVP_PKEY> signer(EVP_EC_gen("P-256"));
  const tls_handle<EVP_PKEY> key(EVP_EC_gen("P-256"));
  if (signer == nullptr || key == nullptr || context_ == nullptr) failed();
  const tls_handle<X509> authority = sign(o, *key, *signer, nullptr);
  const tls_handle<X509> certificate = sign(o, *key, *signer, authority.get());
  if (SSL_CTX_use_certificate(context_.get(), certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context_.get(), key.get()) != 1) {
    failed();
  }
  SSL_CTX_set_mode(context_.get(), SSL_MODE_RELEASE_BUFFERS);
  write(*authority);
}

MILLRACE_INLINE tls_handle<X509> tls_context::sign(const tls_options& o, EVP_PKEY& key, EVP_PKEY& signer,
                                                   X509* authority) {
  tls_handle<X509> x(X509_new());
  if (x == nullptr) failed();
  const bool of_server = authority != nullptr;
  const bool expired = o.expired && of_server;
  X509_set_version(x.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x.get()), of_server ? 2 : 1);
  constexpr long day = 24 * 60 * 60;
  X509_gmtime_adj(X509_getm_notBefore(x.get()), expired ? -10 * day : -day);
  X509_gmtime_adj(X509_getm_notAfter(x.get()), expired ? -day : 365 * day);
  X509_set_pubkey(x.get(), of_server ? &key : &signer);
  // Authorities of the same name differ by the identifiers of their keys.
  const std::string subject = !of_server                   ? "millrace authority"
                              : o.certificate_name.empty() ? "millrace server"
                                                           : o.certificate_name;
  X509_NAME* const name = X509_get_subject_name(x.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(subject.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(x.get(), of_server ? X509_get_subject_name(authority) : name);
  std::vector<std::pair<int, std::string>> all{{NID_subject_key_identifier, "hash"}};
  if (of_server) {
    all.emplace_back(NID_basic_constraints, "critical,CA:FALSE");
    all.emplace_back(NID_authority_key_identifier, "keyid:always");
    all.emplace_back(NID_subject_alt_name, o.certificate_name.empty() ? "DNS:localhost,DNS:*.localhost,IP:127.0.0.1"
                                                                      : "DNS:" + o.certificate_name);
  } else {
    all.emplace_back(NID_basic_constraints, "critical,CA:TRUE");
    all.emplace_back(NID_key_usage, "critical,keyCertSign");
  }
  X509V3_CTX context;
  X509V3_set_ctx(&context, of_server ? authority : x.get(), x.get(), nullptr, nullptr, 0);
  for (const auto& [id, value] : all) {
    const tls_handle<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
    if (extension == nullptr || X509_add_ext(x.get(), extension.get(), -1) != 1) failed();
  }
  if (X509_sign(x.get(), &signer, EVP_sha256()) == 0) failed();
  return x;
}

MILLRACE_INLINE void tls_context::write(X509& certificate) {
  int fd = -1;
  if (path_.empty()) {
    path_ = process_environment().get("TMPDIR").value_or("/tmp") + "/millrace-server-XXXXXX";
    fd = ::mkstemp(path_.data());
    temporary_ = fd >= 0;
  }
  const tls_handle<FILE> file(fd >= 0 ? ::fdopen(fd, "w") : std::fopen(path_.c_str(), "w"));
  if (file == nullptr || PEM_write_X509(file.get(), &certificate) != 1 || std::fflush(file.get()) != 0) {
    throw configuration_error("the certificate cannot be written", where{path_, std::nullopt, std::string()});
  }
}

MILLRACE_INLINE tls_session::tls_session(stream_socket& s, tls_context& context)
    : socket_(s), ssl_(SSL_new(context.get())), memory_(64 * 1024) {
  in_ = BIO_new(BIO_s_mem());
  out_ = BIO_new(BIO_s_mem());
  if (ssl_ == nullptr || in_ == nullptr || out_ == nullptr) throw std::bad_alloc();
  SSL_set_bio(ssl_.get(), in_, out_);
  SSL_set_accept_state(ssl_.get());
}

MILLRACE_COROUTINE_BODY task<std::size_t> tls_session::read_some(std::span<char> memory) {
  for (;;) {
    ERR_clear_error();
    const int n = SSL_read(ssl_.get(), memory.data(), static_cast<int>(std::min<std::size_t>(memory.size(), 1 << 30)));
    const int why = n > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), n);
    co_await flush();
    if (n > 0) co_return static_cast<std::size_t>(n);
    if (why == SSL_ERROR_ZERO_RETURN) co_return 0;
    if (why != SSL_ERROR_WANT_READ) throw io_error(std::errc(EPROTO), "the TLS session failed");
    const std::size_t got = co_await socket_.read_some(memory_);
    if (got == 0) co_return 0;
    BIO_write(in_, memory_.data(), static_cast<int>(got));
  }
}

MILLRACE_COROUTINE_BODY task<void> tls_session::write_all(std::span<const std::string_view> pieces) {
  constexpr std::size_t batch = 256 * 1024;
  for (std::string_view piece : pieces) {
    while (!piece.empty()) {
      const std::size_t n = std::min(piece.size(), batch);
      ERR_clear_error();
      if (SSL_write(ssl_.get(), piece.data(), static_cast<int>(n)) != static_cast<int>(n)) {
        throw io_error(std::errc(EPROTO), "the TLS session failed");
      }
      piece.remove_prefix(n);
      co_await flush();
    }
  }
}

MILLRACE_COROUTINE_BODY task<void> tls_session::flush() {
  char* data = nullptr;
  const long size = BIO_get_mem_data(out_, &data);
  if (size <= 0) co_return;
  const std::string_view pending[] = {std::string_view(data, static_cast<std::size_t>(size))};
  co_await socket_.write_all(pending);
  BIO_reset(out_);
}

MILLRACE_COROUTINE_BODY task<std::size_t> stream::read_some(std::span<char> memory) {
  if (tls_ != nullptr) co_return co_await tls_->read_some(memory);
  co_return co_await socket_.read_some(memory);
}

MILLRACE_COROUTINE_BODY task<void> stream::write_all(std::span<const std::string_view> pieces) {
  if (tls_ == nullptr) {
    co_await socket_.write_all(pieces);
  } else {
    co_await tls_->write_all(pieces);
  }
}

MILLRACE_COROUTINE_BODY task<std::string> input::head() {
  std::size_t searched = 0;
  for (;;) {
    const std::size_t end = view().find("\r\n\r\n", searched);
    if (end != std::string_view::npos) {
      std::string text(view().substr(0, end + 2));
      begin_ += end + 4;
      co_return text;
    }
    searched = view().size() < 3 ? 0 : view().size() - 3;
    if (view().size() == memory_.size()) {
      throw refusal(400, "RequestHeaderSectionTooLarge", "Your request header section exceeds the maximum allowed");
    }
    if (!co_await fill()) co_return std::string();
  }
}

MILLRACE_COROUTINE_BODY task<bytes> input::body(std::uint64_t size) {
  writable_bytes whole = writable_bytes::allocate(static_cast<std::size_t>(size));
  std::size_t have = take(whole.data(), static_cast<std::size_t>(size));
  while (have < size) {
    const std::size_t n = co_await stream_.read_some({whole.data() + have, static_cast<std::size_t>(size) - have});
    if (n == 0) throw_cut();
    have += n;
  }
  co_return whole.share(0, have);
}

MILLRACE_COROUTINE_BODY task<void> input::skip(std::uint64_t size) {
  while (size > 0) {
    if (view().empty() && !co_await fill()) throw_cut();
    const std::uint64_t n = std::min<std::uint64_t>(size, view().size());
    begin_ += static_cast<std::size_t>(n);
    size -= n;
  }
}

MILLRACE_COROUTINE_BODY task<bytes> input::chunked_body(request& r, std::uint64_t limit) {
  std::string whole;
  for (;;) {
    const std::string size_line = co_await line();
    const std::optional<std::uint64_t> size = parse_chunk_size(size_line);
    if (!size) throw refusal(400, "InvalidRequest", "A chunk has no valid size");
    if (*size > limit - whole.size()) throw refusal(400, "EntityTooLarge", "The body is too large");
    if (*size == 0) break;
    const bytes chunk = co_await body(*size);
    whole.append(chunk.data(), chunk.size());
    const std::string end = co_await line();
    if (!end.empty()) throw refusal(400, "InvalidRequest", "A chunk is longer than its size");
  }
  for (;;) {
    const std::string field = co_await line();
    if (field.empty()) break;
    if (parse_fields(field + "\r\n", r.trailer) != nullptr) {
      throw refusal(400, "InvalidRequest", "A trailing field is malformed");
    }
  }
  co_return bytes::copy(whole);
}

MILLRACE_COROUTINE_BODY task<bool> input::fill() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (end_ == memory_.size()) {
    std::memmove(memory_.data(), memory_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t n = co_await stream_.read_some({memory_.data() + end_, memory_.size() - end_});
  end_ += n;
  co_return n > 0;
}

MILLRACE_INLINE std::size_t input::take(char* to, std::size_t limit) noexcept {
  const std::size_t n = std::min(limit, end_ - begin_);
  if (n > 0) std::memcpy(to, memory_.data() + begin_, n);
  begin_ += n;
  return n;
}

MILLRACE_COROUTINE_BODY task<std::string> input::line() {
  for (;;) {
    const std::size_t end = view().find("\r\n");
    if (end != std::string_view::npos) {
      std::string text(view().substr(0, end));
      begin_ += end + 2;
      co_return text;
    }
    if (view().size() == memory_.size()) throw refusal(400, "InvalidRequest", "A line of the body is too long");
    if (!co_await fill()) throw_cut();
  }
}

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

MILLRACE_INLINE shared_state::shared_state(options o)
    : settings(std::move(o)),
      clock(settings.clock_offset),
      objects(clock),
      operations(objects, settings, clock),
      log(settings.log_limit),
      tls(settings.tls.enabled ? std::make_unique<tls_context>(settings.tls) : nullptr) {}

MILLRACE_INLINE bool takes_token(shared_state& s, const request& r, time_point now) {
  const distance& away = s.settings.away;
  const bool reads = r.method == "GET" || r.method == "HEAD";
  const double rate = reads ? away.reads_each_second : away.writes_each_second;
  if (rate <= 0) return true;
  const std::string* const listed = r.key.empty() ? r.parameter_value("prefix") : nullptr;
  const std::string& key = listed != nullptr ? *listed : r.key;
  const std::string prefix = r.bucket + '/' + std::string(testing::counted_prefix(key));
  return s.prefixes[(reads ? "reads " : "writes ") + prefix].take({rate, away.burst, away.split_after}, now);
}

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
  bool unread = wrong.has_value();  // the rest of the message is on its way, or may be the next one
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
  const distance& away = state_.settings.away;
  if (!wrong && away.requests != 0 && state_.counts.in_flight.load(std::memory_order_relaxed) > away.requests) {
    wrong = refusal(503, "SlowDown", "Please reduce your request rate.");
  }
  if (!wrong) {
    executor& ex = co_await this_executor();
    if (!takes_token(state_, r, ex.now())) wrong = refusal(503, "SlowDown", "Please reduce your request rate.");
  }
  const duration pause = latency(state_) + (requests_ == 1 ? away.connect : duration(0));
  if (pause > duration(0)) co_await sleep_for(pause);
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
        co_await send(std::move(s.slices));
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
        // The client's bytes must be read before the descriptor is closed, or the kernel resets the connection and the
        // client may lose the answer.
        stream_.raw().shutdown_write();
        co_await wait_for_end();
        co_return false;
    }
  }
  co_return true;
}

MILLRACE_COROUTINE_BODY task<void> connection::send(std::vector<bytes> slices) {
  const distance& away = state_.settings.away;
  const std::uint64_t most = away.paced() ? 128 * KiB : UINT64_MAX;
  executor& ex = co_await this_executor();
  while (!slices.empty()) {
    const std::vector<bytes> now = take_front(slices, most);
    std::vector<std::string_view> pieces;
    pieces.reserve(now.size());
    std::uint64_t size = 0;
    for (const bytes& b : now) {
      pieces.push_back(b.view());
      size += b.size();
    }
    if (away.paced()) co_await sleep_until(due(size, ex.now()));
    co_await stream_.write_all(pieces);
    state_.counts.bytes_sent.fetch_add(size, std::memory_order_relaxed);
  }
}

MILLRACE_INLINE time_point connection::due(std::uint64_t size, time_point now) {
  const auto through = [&](std::uint64_t rate, time_point& free_at) {  // when its last byte has left
    if (rate == 0) return now;
    const double seconds = static_cast<double>(size) / static_cast<double>(rate);
    free_at = std::max(free_at, now) + duration(static_cast<std::int64_t>(1e9 * seconds));
    return free_at;
  };
  const distance& away = state_.settings.away;
  const time_point by_link = through(away.link_rate, state_.link_free_at);
  return std::max(by_link, through(away.connection_rate, free_at_));
}

MILLRACE_INLINE duration latency(shared_state& s) {
  const distance& away = s.settings.away;
  if (away.latency) return away.latency->draw(s.latencies);
  double factor = 1;
  if (away.spread > 0) {  // a normal variate, nearly: the sum of twelve uniform ones
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += millrace::detail::draw_uniform(s.latencies);
    factor = std::exp(away.spread * sum);
  }
  return duration(static_cast<std::int64_t>(factor * static_cast<double>(away.first_byte.count())));
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
