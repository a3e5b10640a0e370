// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/sign/signer.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE amz_date::amz_date(std::int64_t unix_seconds) {
  if (unix_seconds < 0 || unix_seconds > text::last_second_of_9999) {
    throw configuration_error("the clock of this machine is outside the years 1970 to 9999");
  }
  const text::civil_time t = text::civil_from_unix(unix_seconds);
  char* out = text_;
  out = digits(out, t.year / 100);
  out = digits(out, t.year % 100);
  out = digits(out, t.month);
  out = digits(out, t.day);
  *out++ = 'T';
  out = digits(out, t.hour);
  out = digits(out, t.minute);
  out = digits(out, t.second);
  *out = 'Z';
}

MILLRACE_INLINE char* amz_date::digits(char* out, int two) noexcept {
  out[0] = static_cast<char>('0' + two / 10);
  out[1] = static_cast<char>('0' + two % 10);
  return out + 2;
}

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE bool is_encoded_path(std::string_view path) noexcept {
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (text::detail::is_unreserved(path[i]) || path[i] == '/') continue;
    if (path[i] != '%' || path.size() - i < 3 || path[i + 1] >= 'a' || path[i + 2] >= 'a') return false;
    const int high = text::hex_digit(path[i + 1]);
    const int low = text::hex_digit(path[i + 2]);
    if (high < 0 || low < 0 || text::detail::is_unreserved(static_cast<char>(high * 16 + low))) return false;
    i += 2;
  }
  return true;
}

MILLRACE_INLINE std::string normalized_path(std::string_view path) {
  std::string out;
  std::size_t at = 0;
  while (at < path.size()) {
    const std::size_t begin = path.find_first_not_of('/', at);
    if (begin == std::string_view::npos) break;
    std::size_t end = path.find('/', begin);
    if (end == std::string_view::npos) end = path.size();
    const std::string_view segment = path.substr(begin, end - begin);
    at = end;
    if (segment == ".") continue;
    if (segment == "..") {
      const std::size_t parent = out.rfind('/');
      out.erase(parent == std::string::npos ? 0 : parent);
      continue;
    }
    out += '/';
    out += segment;
  }
  if (out.empty() || (!path.empty() && path.back() == '/')) out += '/';
  return out;
}

MILLRACE_INLINE void canonical_query::append(std::string& out, std::string_view query) {
  parameters_.clear();
  // Every byte grows to three at most: the views below stay valid.
  rewritten_.clear();
  rewritten_.reserve(query.size() * 3);
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (one.empty()) continue;
    const std::size_t equals = one.find('=');
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : one.substr(equals + 1);
    insert(header_field{canonical(one.substr(0, equals)), canonical(value)});
  }
  bool first = true;
  for (const header_field& p : parameters_) {
    if (!first) out += '&';
    first = false;
    out += p.name;
    out += '=';
    out += p.value;
  }
}

MILLRACE_INLINE void canonical_query::insert(const header_field& parameter) {
  const auto before = [&](const header_field& other) {
    return parameter.name != other.name ? parameter.name < other.name : parameter.value < other.value;
  };
  std::size_t at = parameters_.size();
  parameters_.push_back(parameter);
  for (; at > 0 && before(parameters_[at - 1]); --at) parameters_[at] = parameters_[at - 1];
  parameters_[at] = parameter;
}

MILLRACE_INLINE std::string_view canonical_query::canonical(std::string_view text) {
  if (text.find('/') == std::string_view::npos && is_encoded_path(text)) return text;
  const std::optional<std::string> raw = text::uri_decode(text);
  if (!raw) throw configuration_error("the query string has a % that two hexadecimal digits do not follow");
  if (text.find('+') != std::string_view::npos) {
    throw configuration_error("the query string has a +: encode a space as %20 and a plus sign as %2B");
  }
  const std::size_t begin = rewritten_.size();
  text::append_encoded_query(rewritten_, *raw);
  return std::string_view(rewritten_).substr(begin);
}

MILLRACE_INLINE void canonical_headers::assign(const owned_fields& headers) {
  names_.clear();
  entries_.clear();
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const std::string& given = headers.name(i);
    const std::string& value = headers.value(i);
    check_name(given);
    const std::size_t begin = names_.size();
    for (char c : given) names_ += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const std::string_view name = std::string_view(names_).substr(begin);
    if (is_refused(name)) {
      throw configuration_error("the header " + std::string(name) + " is written by the signer, not by its caller");
    }
    const bool plain = check_value(name, value);
    if (is_left_unsigned(name)) {
      names_.resize(begin);
      continue;
    }
    insert(entry{begin, name.size(), value, plain});
  }
}

MILLRACE_INLINE void canonical_headers::add(std::string_view name, std::string_view value) {
  const std::size_t begin = names_.size();
  names_ += name;
  insert(entry{begin, name.size(), value, true});
}

MILLRACE_INLINE void canonical_headers::append_block(std::string& out) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string_view name = name_of(entries_[i]);
    if (i > 0 && name == name_of(entries_[i - 1])) {
      out.back() = ',';  // was the line end of the same header's last value
    } else {
      out += name;
      out += ':';
    }
    if (entries_[i].plain) {
      out += entries_[i].value;
    } else {
      append_collapsed(out, entries_[i].value);
    }
    out += '\n';
  }
}

MILLRACE_INLINE void canonical_headers::append_names(std::string& out) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string_view name = name_of(entries_[i]);
    if (i > 0) {
      if (name == name_of(entries_[i - 1])) continue;
      out += ';';
    }
    out += name;
  }
}

MILLRACE_INLINE void canonical_headers::insert(const entry& e) {
  std::size_t at = entries_.size();
  entries_.push_back(e);
  for (; at > 0 && name_of(e) < name_of(entries_[at - 1]); --at) entries_[at] = entries_[at - 1];
  entries_[at] = e;
}

MILLRACE_INLINE bool canonical_headers::is_refused(std::string_view name) noexcept {
  static constexpr std::string_view own[] = {"authorization", "host", "x-amz-content-sha256", "x-amz-date",
                                             "x-amz-security-token", "x-amz-s3session-token"};
  for (std::string_view one : own) {
    if (name == one) return true;
  }
  return false;
}

MILLRACE_INLINE bool canonical_headers::is_left_unsigned(std::string_view name) noexcept {
  static constexpr std::string_view hops[] = {"connection", "expect",     "keep-alive",        "proxy-authenticate",
                                              "te",         "trailer",    "transfer-encoding", "proxy-authorization",
                                              "upgrade",    "user-agent", "x-amzn-trace-id"};
  for (std::string_view hop : hops) {
    if (name == hop) return true;
  }
  return name.substr(0, 14) == "sec-websocket-";
}

MILLRACE_INLINE void canonical_headers::check_name(std::string_view name) {
  static constexpr std::string_view punctuation = "!#$%&'*+-.^_`|~";  // RFC 9110, section 5.6.2: token
  bool good = !name.empty();
  for (char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    good = good && (letter || punctuation.find(c) != std::string_view::npos);
  }
  if (!good) throw configuration_error("not a header name: \"" + std::string(name) + "\"");
}

MILLRACE_INLINE bool canonical_headers::check_value(std::string_view name, std::string_view value) {
  bool sendable = true;
  bool plain = true;
  char last = ' ';
  for (char c : value) {  // without a jump
    const auto u = static_cast<unsigned char>(c);
    sendable &= ((u >= 0x20) | (c == '\t')) & (u != 0x7f);
    plain &= (c != '\t') & ((c != ' ') | (last != ' '));
    last = c;
  }
  if (!sendable) {
    throw configuration_error("the value of the header " + std::string(name) +
                              " contains a line end, a NUL or another control character");
  }
  return plain && (value.empty() || last != ' ');
}

MILLRACE_INLINE void canonical_headers::append_collapsed(std::string& out, std::string_view value) {
  std::size_t at = 0;
  bool first = true;
  while (true) {
    at = value.find_first_not_of(" \t", at);
    if (at == std::string_view::npos) return;
    const std::size_t end = value.find_first_of(" \t", at);
    if (!first) out += ' ';
    first = false;
    out += value.substr(at, end == std::string_view::npos ? end : end - at);
    if (end == std::string_view::npos) return;
    at = end;
  }
}

MILLRACE_INLINE void sha256::operator()(std::string_view text, digest& out) {
  if (EVP_DigestInit_ex2(context_.get(), algorithm_.get(), nullptr) != 1 ||
      EVP_DigestUpdate(context_.get(), text.data(), text.size()) != 1 ||
      EVP_DigestFinal_ex(context_.get(), out.data(), nullptr) != 1) {
    hashing_failed();
  }
}

MILLRACE_INLINE hmac_sha256::hmac_sha256()
    : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr)),
      inner_(EVP_MD_CTX_new()),
      outer_(EVP_MD_CTX_new()),
      work_(EVP_MD_CTX_new()) {
  if (algorithm_ == nullptr || inner_ == nullptr || outer_ == nullptr || work_ == nullptr) hashing_failed();
}

MILLRACE_INLINE void hmac_sha256::operator()(const unsigned char* key, std::size_t key_size, std::string_view text,
                                             digest& out) {
  if (!keyed_ || key_size != key_.size() || std::memcmp(key, key_.data(), key_size) != 0) set_key(key, key_size);
  if (EVP_MD_CTX_copy_ex(work_.get(), inner_.get()) != 1 ||
      EVP_DigestUpdate(work_.get(), text.data(), text.size()) != 1 ||
      EVP_DigestFinal_ex(work_.get(), out.data(), nullptr) != 1 || EVP_MD_CTX_copy_ex(work_.get(), outer_.get()) != 1 ||
      EVP_DigestUpdate(work_.get(), out.data(), out.size()) != 1 ||
      EVP_DigestFinal_ex(work_.get(), out.data(), nullptr) != 1) {
    hashing_failed();
  }
}

MILLRACE_INLINE void hmac_sha256::set_key(const unsigned char* key, std::size_t size) {
  unsigned char block[64] = {};  // of SHA-256
  keyed_ = false;
  bool good = true;
  if (size <= sizeof block) {
    std::memcpy(block, key, size);
  } else {
    good = begin(work_.get(), key, size) && EVP_DigestFinal_ex(work_.get(), block, nullptr) == 1;
  }
  for (unsigned char& b : block) b ^= 0x36;
  good = good && begin(inner_.get(), block, sizeof block);
  for (unsigned char& b : block) b ^= 0x36 ^ 0x5c;
  good = good && begin(outer_.get(), block, sizeof block);
  OPENSSL_cleanse(block, sizeof block);
  if (!good) hashing_failed();
  if (size == key_.size()) {
    std::memcpy(key_.data(), key, size);
    keyed_ = true;
  }
}

MILLRACE_INLINE const digest& signing_key_cache::find(hmac_sha256& hmac, const credentials& who, std::string_view day,
                                                      std::string_view region, std::string_view service) {
  const bool same_secret = holder_.same_snapshot(who) || holder_.secret_access_key() == who.secret_access_key();
  if (!same_secret || day_ != day) clear();
  for (const entry& e : entries_) {
    if (!e.region.empty() && e.region == region && e.service == service) return e.key;
  }
  entry& slot = entries_[next_];
  slot.region.clear();  // empty unless the derivation below succeeds
  derive(hmac, who, day, region, service, slot.key);
  slot.service = service;
  slot.region = region;
  next_ = (next_ + 1) % capacity;
  holder_ = who;
  day_ = day;
  return slot.key;
}

MILLRACE_INLINE void signing_key_cache::clear() noexcept {
  for (entry& e : entries_) {
    OPENSSL_cleanse(e.key.data(), e.key.size());
    e.region.clear();
  }
  next_ = 0;
}

MILLRACE_INLINE void signing_key_cache::derive(hmac_sha256& hmac, const credentials& who, std::string_view day,
                                               std::string_view region, std::string_view service, digest& key) {
  std::string seed;
  seed.reserve(4 + who.secret_access_key().size());
  seed += "AWS4";
  seed += who.secret_access_key();
  struct wipe {
    explicit wipe(std::string& t) noexcept : text(t) {}
    ~wipe() { OPENSSL_cleanse(text.data(), text.size()); }
    std::string& text;
  };
  const wipe wipe_seed(seed);
  hmac(reinterpret_cast<const unsigned char*>(seed.data()), seed.size(), day, key);
  hmac(key.data(), key.size(), region, key);
  hmac(key.data(), key.size(), service, key);
  hmac(key.data(), key.size(), "aws4_request", key);
  ++derivations_;
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE signer::signer(signing_options options) : options_(options) {
  // Grown once: a reallocation would leave copies of session tokens in freed memory.
  canonical_.reserve(16384);
  authorization_.reserve(1024);
}

MILLRACE_INLINE signer::~signer() {
  canonical_.resize(canonical_.capacity());  // the rest of an earlier, longer request may follow the last one
  OPENSSL_cleanse(canonical_.data(), canonical_.size());
  OPENSSL_cleanse(authorization_.data(), authorization_.size());
}

MILLRACE_INLINE signed_headers signer::sign(const signing_request& request, const credentials& who, std::int64_t now) {
  check(request);
  headers_.assign(request.headers);
  signed_headers result;
  if (who.is_anonymous()) return result;

  date_ = amz_date(now);
  headers_.add("host", request.host);
  headers_.add("x-amz-date", date_.timestamp());
  result.add("x-amz-date", date_.timestamp());
  if (options_.send_content_sha256) {
    payload_ = request.payload;
    headers_.add("x-amz-content-sha256", payload_);
    result.add("x-amz-content-sha256", payload_);
  }
  if (!who.session_token().empty()) {
    const std::string_view name = request.bucket_session ? "x-amz-s3session-token" : "x-amz-security-token";
    headers_.add(name, who.session_token());
    result.add(name, who.session_token());
  }
  compute(request, who, request.query);

  authorization_ = "AWS4-HMAC-SHA256 Credential=";
  authorization_ += who.access_key_id();
  authorization_ += '/';
  append_scope(authorization_, request);
  authorization_ += ", SignedHeaders=";
  authorization_.append(canonical_, names_begin_, names_size_);
  authorization_ += ", Signature=";
  text::append_hex(authorization_, signature_);
  result.add("authorization", authorization_);
  return result;
}

MILLRACE_INLINE std::string signer::presign(const signing_request& request, const credentials& who, std::int64_t now,
                                            std::int64_t expires_in) {
  check(request);
  headers_.assign(request.headers);
  if (who.is_anonymous()) throw configuration_error("a presigned URL needs credentials");
  if (expires_in < 1 || expires_in > 604800) {
    throw configuration_error("a presigned URL is good for 1 second to 7 days");
  }
  date_ = amz_date(now);
  headers_.add("host", request.host);

  std::string query(request.query);
  std::string text(who.access_key_id());
  text += '/';
  append_scope(text, request);
  text::append_query_parameter(query, "X-Amz-Algorithm", "AWS4-HMAC-SHA256");
  text::append_query_parameter(query, "X-Amz-Credential", text);
  text::append_query_parameter(query, "X-Amz-Date", date_.timestamp());
  text::append_query_parameter(query, "X-Amz-Expires", std::to_string(expires_in));
  text.clear();
  headers_.append_names(text);
  text::append_query_parameter(query, "X-Amz-SignedHeaders", text);
  if (!who.session_token().empty()) {
    const char* const name = request.bucket_session ? "X-Amz-S3session-Token" : "X-Amz-Security-Token";
    text::append_query_parameter(query, name, who.session_token());
  }
  compute(request, who, query);
  query += "&X-Amz-Signature=";
  text::append_hex(query, signature_);
  return query;
}

MILLRACE_INLINE std::string signer::payload_sha256(std::string_view body) {
  detail::digest hash;
  sha256_(body, hash);
  std::string text;
  text::append_hex(text, hash);
  return text;
}

MILLRACE_INLINE void signer::check(const signing_request& request) {
  bool good = !request.method.empty();
  for (char c : request.method) good = good && c >= 'A' && c <= 'Z';
  if (!good) throw configuration_error("the method of a request must be in upper case");
  if (!host_.is(request.host)) {
    good = !request.host.empty();
    for (char c : request.host) {
      const auto u = static_cast<unsigned char>(c);
      good &= (u > ' ') & (u < 0x7f) & (c != '/') & (c != '@') & ((c < 'A') | (c > 'Z'));
    }
    if (!good) {
      throw configuration_error("a request to be signed needs its host, in lower case, as in its Host header");
    }
    host_.keep(request.host);
  }
  if (request.path.empty() || request.path.front() != '/') {
    throw configuration_error("the path of a request must start with /");
  }
  if (!(options_.encode_path ? is_sendable(request.path) : detail::is_encoded_path(request.path))) {
    throw configuration_error("the path of a request must be encoded as text::encode_path() does");
  }
  if (!is_sendable(request.query)) throw configuration_error("the query string of a request must be encoded");
  check_query_names(request.query);
  if (!region_.is(request.region)) {
    check_name(request.region, "region");
    region_.keep(request.region);
  }
  if (!service_.is(request.service)) {
    check_name(request.service, "service");
    service_.keep(request.service);
  }
  if (request.payload != empty_payload_sha256) check_name(request.payload, "payload hash");
}

MILLRACE_INLINE bool signer::is_sendable(std::string_view text) noexcept {
  bool good = true;
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    good &= (u >= 0x20) & (u != 0x7f) & (c != '?') & (c != '#');
  }
  return good;
}

MILLRACE_INLINE void signer::check_name(std::string_view text, const char* what) {
  bool good = !text.empty();
  for (char c : text) good &= text::detail::is_unreserved(c);  // each, without a jump
  if (!good) throw configuration_error(std::string("not a ") + what + ": \"" + std::string(text) + "\"");
}

MILLRACE_INLINE void signer::check_query_names(std::string_view query) {
  static constexpr std::string_view prefix = "x-amz-";
  static constexpr std::string_view payer = "x-amz-request-payer=";  // the one that a presigned URL may need
  while (!query.empty()) {
    bool reserved = query.size() >= prefix.size() && query.substr(0, payer.size()) != payer;
    for (std::size_t i = 0; reserved && i < prefix.size(); ++i) reserved = (query[i] | 0x20) == (prefix[i] | 0x20);
    if (reserved) throw configuration_error("X-Amz-* query parameters are written by the signer, not by its caller");
    const std::size_t end = query.find('&');
    if (end == std::string_view::npos) return;
    query.remove_prefix(end + 1);
  }
}

MILLRACE_INLINE void signer::append_scope(std::string& out, const signing_request& request) const {
  out += date_.day();
  out += '/';
  out += request.region;
  out += '/';
  out += request.service;
  out += "/aws4_request";
}

MILLRACE_INLINE void signer::compute(const signing_request& request, const credentials& who, std::string_view query) {
  canonical_ = request.method;
  canonical_ += '\n';
  if (!options_.encode_path && !options_.normalize_path) {
    canonical_ += request.path;
  } else {
    const std::string path =
        options_.normalize_path ? detail::normalized_path(request.path) : std::string(request.path);
    if (options_.encode_path) {
      text::append_encoded_path(canonical_, path);
    } else {
      canonical_ += path;
    }
  }
  canonical_ += '\n';
  query_.append(canonical_, query);
  canonical_ += '\n';
  headers_.append_block(canonical_);
  canonical_ += '\n';
  names_begin_ = canonical_.size();
  headers_.append_names(canonical_);
  names_size_ = canonical_.size() - names_begin_;
  canonical_ += '\n';
  canonical_ += request.payload;

  sha256_(canonical_, signature_);
  string_to_sign_ = "AWS4-HMAC-SHA256\n";
  string_to_sign_ += date_.timestamp();
  string_to_sign_ += '\n';
  append_scope(string_to_sign_, request);
  string_to_sign_ += '\n';
  text::append_hex(string_to_sign_, signature_);

  const detail::digest& key = keys_.find(hmac_, who, date_.day(), request.region, request.service);
  hmac_(key.data(), key.size(), string_to_sign_, signature_);
}

}  // namespace millrace::s3
