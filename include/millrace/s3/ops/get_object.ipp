// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/runtime_counts.hpp>
#include <millrace/http/error.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/s3/ops/objects.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/text/entity_tag.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// The setting that turns off requests for checksums.
inline constexpr const char* checksum_setting =
    "AWS_RESPONSE_CHECKSUM_VALIDATION=when_required, or config_options::validate_checksums, leaves that out";

MILLRACE_COROUTINE task<object_info> told_once(const session& s, const operation& op) {
  http::body_options none;
  http::exchange x = co_await send(s, op, std::move(none));
  const http::response_head& head = co_await x.head();
  object_info info;
  info.size = head.length.value_or(0);
  info.etag = head.etag();
  co_return info;
}

/// Throws changed_error unless the object is still the version `etag`.
MILLRACE_COROUTINE task<void> require_version(const session& s, std::string bucket, std::string key,
                                              const std::string& etag) {
  operation op("HEAD", std::move(bucket), std::move(key));
  auto attempt = [&] { return told_once(s, op); };
  const object_info now = co_await with_retries<object_info>(s, op, attempt);
  if (!now.etag.empty() && millrace::detail::same_etag(now.etag, etag)) co_return;
  throw millrace::detail::version_changed(etag, now.etag, op.at());
}

/// Bytes of one part of the upload that made the object; an answer of a store that knows no parts fits none, 0 if it
/// refuses.
MILLRACE_COROUTINE task<std::uint64_t> upload_part_size(const session& s, std::string bucket, std::string key,
                                                        std::string etag, std::uint64_t number) {
  executor& ex = co_await this_executor();
  operation op("HEAD", std::move(bucket), std::move(key));
  text::append_query_parameter(op.query, "partNumber", std::to_string(number));
  auto attempt = [&] { return told_once(s, op); };
  bool conditional = !s.parts_have_etags() && add_condition(ex, s, op, etag);
  for (;;) {
    try {
      const object_info part = co_await with_retries<object_info>(s, op, attempt);
      co_return part.size;
    } catch (const error& e) {
      const int status = e.status();
      if (status == 400 || status == 405 || status == 416 || status == 501) co_return 0;
      if (status != 412 || !conditional) throw;
    }
    co_await require_version(s, op.bucket, op.key, etag);
    s.expect_etags_of_parts();
    op.fields = http::headers();
    conditional = false;
  }
}

MILLRACE_COROUTINE_BODY task<bool> find_parts(const session& s, body_checksum& sum, std::string bucket, std::string key,
                                              std::string etag, std::uint64_t size) {
  if (sum.parts() == 1) co_return sum.cut_at(size, size);
  const std::uint64_t first = co_await upload_part_size(s, std::move(bucket), std::move(key), std::move(etag), 1);
  co_return sum.cut_at(first, size);
}

MILLRACE_COROUTINE_BODY task<bool> parts_alike(const session& s, const body_checksum& sum, std::string bucket,
                                               std::string key, std::string etag) {
  for (std::uint64_t number = 2; number < sum.parts(); ++number) {
    const std::uint64_t size = co_await upload_part_size(s, bucket, key, etag, number);
    if (size != sum.part_size()) co_return false;
  }
  if (s.parts_have_etags()) co_await require_version(s, bucket, key, etag);
  co_return true;
}

MILLRACE_INLINE void note_misnamed(executor& ex, const session& s, const std::string& bucket) {
  const std::string line = "millrace: " + endpoint(s.for_bucket(bucket), bucket).host() +
                           " calls a CRC-32 of uploads in parts a CRC-32C; it is used as a CRC-32";
  if (millrace::detail::first_time(line)) millrace::detail::log_line(ex, line);
}

MILLRACE_INLINE part_download::part_download(const session& s, operation op, std::uint64_t offset, std::size_t length,
                                             std::string if_match, slab_pool slabs, get_options options)
    : session_(s),
      op_(std::move(op)),
      offset_(offset),
      length_(length),
      if_match_(std::move(if_match)),
      slabs_(std::move(slabs)) {
  op_.new_connection = options.new_connection;
  if (!s.base().validate_checksums || offset != 0) return;
  sized_ = options.size && *options.size > 0 && *options.size <= length;
  whole_ = sized_ || (!options.size && options.likely_whole);
  if (sized_) length_ = static_cast<std::size_t>(*options.size);
}

MILLRACE_COROUTINE_BODY task<object_part> part_download::attempt::operator()() const {
  return download_->as_many_as_it_takes();
}

MILLRACE_COROUTINE_BODY task<object_part> part_download::as_many_as_it_takes() {
  for (;;) {
    try {
      const bool whole = whole_;
      object_part part = co_await once();
      if (whole_ == whole) co_return part;
      forget();
    } catch (const http::short_answer&) {
      if (partial_.filled == 0) throw;  // no version by which the rest would be known to belong to it
    }
  }
}

MILLRACE_COROUTINE_BODY task<object_part> part_download::once() {
  executor& ex = co_await this_executor();
  const std::size_t before = partial_.filled;
  prepare(ex);
  std::exception_ptr why;
  std::optional<object_info> known;
  bool sound = true;  // the bytes received so far may be kept
  millrace::detail::request_gate::turn turn;
  try {
    http::body_options body = memory();
    http::exchange x = co_await send(session_, op_, std::move(body), &turn);
    sound = false;
    const http::response_head& head = co_await x.head();
    object_part result;
    result.first_byte = ex.now() - turn.begun;
    result.held = turn.begun - held_since_.value_or(turn.asked);
    held_since_.reset();
    const bool longer = !sized_ && (!head.length || *head.length > length_);
    if (whole_ && !op_.range && (longer || head.etag().empty())) {
      // Without an ETag it may be a page, or an error document: the answer to a range cannot be one.
      whole_ = false;
      co_return result;
    }
    judge(head);
    sound = true;
    result.object = *seen_;
    result.data = co_await x.read();
    bytes more;
    if (!result.data.empty()) more = co_await x.read();  // empty: the verified end
    check_length(result.data.size() + more.size());
    result.crc = partial_.crc;
    if (result.crc.kind() == crc_kind::crc32c && result.crc.size() == 0) {  // by the sums of its blocks
      result.crc = running_crc(crc_kind::crc32c, result.data.crc32c(), result.data.size());
    }
    if (declared_) co_await compare(result);
    result.again = damaged_.has_value();
    result.whole = whole_;
    co_return result;
  } catch (error& e) {
    const bool odd = e.status() == 400 || e.status() == 501;
    if (odd && op_.fields.find("x-amz-checksum-mode") != nullptr) {
      e.add_note(std::string("asked with x-amz-checksum-mode; ") + checksum_setting);
    }
    why = std::current_exception();
    if (partial_.filled != before) sound = false;  // a success that was refused: its body lies among the bytes
    if (classify(e.status(), e.code()) == retry_class::throttling && !held_since_) held_since_ = turn.asked;
  } catch (const http::error& e) {
    why = std::current_exception();
    if (e.kind() != http::failure::broken && e.kind() != http::failure::timeout && partial_.filled != before) {
      sound = false;
    }
    if (e.kind() == http::failure::protocol) op_.new_connection = true;
  } catch (const changed_error&) {
    why = std::current_exception();
    op_.new_connection = true;
    known = seen_;  // the next attempt must read that version
  } catch (...) {
    why = std::current_exception();
    op_.new_connection = true;
  }
  // The exchange is gone; its bytes lie in partial_.
  if (!sound || !may_resume()) forget();
  if (known) seen_ = std::move(known);
  progressed_ = partial_.filled > before && partial_.filled - before >= std::max(64 * KiB, length_ / 16);
  std::rethrow_exception(why);
}

MILLRACE_COROUTINE_BODY task<void> part_download::compare(const object_part& p) {
  if (declared_->parts() > 0) {
    const bool found = co_await find_parts(session_, *declared_, op_.bucket, op_.key, p.object.etag, p.object.size);
    if (!found) co_return;
  }
  declared_->add(p.data.view(), p.crc);
  const bool matches = declared_->matches();
  if (declared_->misnamed() || (!matches && declared_->matches_as_crc32(p.data.view()))) {
    note_misnamed(co_await this_executor(), session_, op_.bucket);
    co_return;
  }
  if (matches) co_return;
  if (declared_->parts() > 0) {
    const bool alike = co_await parts_alike(session_, *declared_, op_.bucket, op_.key, p.object.etag);
    if (!alike) co_return;
  }
  std::string reason = "the bytes do not have the " + std::string(declared_->name()) + " of the object";
  const std::uint32_t came = crc32c(0, p.data.data(), p.data.size());
  if (damaged_) reason += std::string("; ") + millrace::detail::read_twice(*damaged_ == came);
  damaged_ = came;
  throw checksum_error(std::move(reason), where{op_.at().object, std::nullopt, std::string()});
}

MILLRACE_INLINE void part_download::prepare(executor& ex) {
  resumed_ = partial_.filled > 0;
  millrace::detail::runtime_counts* const counts = ex.runtime().counts();
  if (resumed_ && counts != nullptr) counts->resumed.add();
  if (!resumed_) {
    const bool compared = session_.base().validate_checksums && (whole_ || slabs_.is_compared());
    partial_.crc = running_crc(compared ? session_.expected_crc() : crc_kind::none);
  }
  progressed_ = false;
  op_.fields = http::headers();
  conditional_ = !unconditional_ && add_condition(ex, session_, op_, version());
  unproven_ = !conditional_ && millrace::detail::is_strong_etag(version());
  op_.range = http::byte_range{offset_ + partial_.filled, offset_ + length_ - 1};
  if (whole_ && !resumed_) {
    // Stores send checksums with whole objects only (and with ranges some that are of something else).
    op_.range.reset();
    op_.fields.add("x-amz-checksum-mode", "ENABLED");
  }
}

MILLRACE_INLINE http::body_options part_download::memory() {
  http::body_options body;
  if (slabs_.worth_a_slab(length_)) {
    body.pool = slabs_;
  } else {
    body.heap_chunk = length_ == 0 ? 1 : length_;
  }
  body.window = slabs_.slab_bytes();
  body.resume = &partial_;
  return body;
}

MILLRACE_INLINE void part_download::judge(const http::response_head& head) {
  object_info now;
  now.etag = head.etag();
  if (const std::string* encoding = head.fields.find("content-encoding")) now.encoding = *encoding;
  if (op_.range && head.status == 206) {  // else it is empty
    if (!head.range || !head.range->total) {
      throw http::error(http::failure::protocol, "the store does not report the size of the object", op_.at(),
                        head.status);
    }
    now.size = *head.range->total;
  } else {
    now.size = head.length ? *head.length : length_;
  }
  if (now.etag.empty() && (offset_ > 0 || now.size > length_ || resumed_ || unproven_ ||
                           (sized_ && !if_match_.empty()))) {
    throw http::error(http::failure::protocol,
                      "the store sent no ETag: parts of an object may not be of one version", op_.at(),
                      head.status);
  }
  const std::string& before = version();
  if (!before.empty() && !now.etag.empty() && !millrace::detail::same_etag(now.etag, before)) {
    throw millrace::detail::version_changed(before, now.etag, op_.at());
  }
  const std::uint64_t size_before = seen_ ? seen_->size : sized_ ? length_ : now.size;
  if (now.size != size_before && now.etag.empty()) {
    throw http::error(http::failure::protocol, "the answer is not the object: another length, and no ETag", op_.at(),
                      head.status);
  }
  if (now.size != size_before) {
    throw changed_error("the object changed while it was read: " + std::to_string(size_before) + " bytes became " +
                            std::to_string(now.size),
                        op_.at());
  }
  if (!op_.range) {
    declared_ = body_checksum::of(head.fields);
    const crc_kind kind = declared_ ? declared_->crc() : crc_kind::none;
    if (partial_.crc.kind() != kind) partial_.crc = running_crc(kind);  // of fewer bytes, if some have come already
    session_.expect_crc(kind);
  }
  if (!seen_) seen_ = std::move(now);
}

MILLRACE_INLINE void part_download::check_length(std::size_t got) const {
  const std::uint64_t due = std::min<std::uint64_t>(length_, seen_->size - std::min(seen_->size, offset_));
  if (got == due) return;
  throw http::error(http::failure::protocol,
                    "the answer has " + std::to_string(got) + " bytes instead of " + std::to_string(due), op_.at());
}

MILLRACE_INLINE void part_download::forget() noexcept {
  partial_.memory = writable_bytes();
  partial_.filled = 0;
  seen_.reset();
  declared_.reset();
}

MILLRACE_COROUTINE task<object_info> head_once(const session& s, const operation& op) {
  http::body_options none;
  http::exchange x = co_await send(s, op, std::move(none));
  const http::response_head& head = co_await x.head();
  if (!head.length) {
    throw http::error(http::failure::protocol, "the store does not report the size of the object", op.at(),
                      head.status);
  }
  object_info info;
  info.size = *head.length;
  info.etag = head.etag();
  co_return info;
}

/// The object as a whole, if ranges were refused because it is empty.
MILLRACE_COROUTINE task<object_part> get_empty_once(const session& s, const operation& op) {
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  const http::response_head& head = co_await x.head();
  if (head.length && *head.length != 0) {
    throw error(416, std::string(), "the store refused a range of an object that is not empty", std::string(),
                op.at());
  }
  object_part result;
  result.object.etag = head.etag();
  const std::string nothing = co_await http::read_all(x, 0);
  co_return result;
}

/// The ETag that the object has now; empty if that is not known. To explain a refusal: one attempt is enough.
MILLRACE_COROUTINE task<std::string> version_now(const session& s, const operation& op) {
  const operation head("HEAD", op.bucket, op.key);
  try {
    const object_info now = co_await head_once(s, head);
    co_return now.etag;
  } catch (const millrace::error&) {
  }
  co_return std::string();
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_COROUTINE_BODY task<object_part> get_object_range(std::shared_ptr<const session> s, std::string bucket,
                                                           std::string key, std::uint64_t offset, std::size_t length,
                                                           std::string if_match, slab_pool slabs,
                                                           get_options options) {
  executor& ex = co_await this_executor();
  operation op("GET", std::move(bucket), std::move(key));
  if (length == 0) throw configuration_error("a part of an object has at least one byte", op.at());
  if (length > slabs.slab_bytes()) {
    throw configuration_error("a part of " + std::to_string(length) + " bytes does not fit into a slab of " +
                                  std::to_string(slabs.slab_bytes()),
                              op.at());
  }
  detail::part_download download(*s, std::move(op), offset, length, std::move(if_match), std::move(slabs), options);
  const detail::part_download::attempt attempt(download);
  for (bool again = false;; again = true) {
    std::exception_ptr why;
    int status = 0;
    try {
      object_part part = co_await with_retries<object_part>(*s, attempt);
      if (again) detail::forgo_conditions(ex, *s, download.asked().bucket);
      co_return part;
    } catch (const error& e) {
      why = std::current_exception();
      status = e.status();
    }
    const bool unmatched = status == 412 && download.conditional();
    // Stores answer 416 before 412 to a range that the object no longer has.
    const bool beyond = status == 416 && (offset != 0 || download.resumed()) && !download.version().empty();
    if (!unmatched && !beyond) {
      if (status != 416 || offset != 0) std::rethrow_exception(why);
      break;
    }
    const std::string now = co_await detail::version_now(*s, download.asked());
    const bool same = !now.empty() && millrace::detail::same_etag(now, download.version());
    if (beyond && same) {
      throw changed_error("the object changed while it was read: it has the ETag " + now +
                              " still, and not the bytes that are asked for (416)",
                          download.asked().at());
    }
    if (beyond || (!now.empty() && !same)) {
      throw millrace::detail::version_changed(download.version(), now, download.asked().at());
    }
    // The version is there, or its answer has to tell: the store takes If-Match for something else.
    download.go_without_condition();
  }
  operation complete = download.asked();
  // No range of an empty object can be satisfied (RFC 9110, 14.1.2): ask for it as a whole.
  complete.range.reset();
  auto empty = [&] { return detail::get_empty_once(*s, complete); };
  object_part part = co_await with_retries<object_part>(*s, complete, empty);
  co_return part;
}

MILLRACE_COROUTINE_BODY task<object_info> head_object(std::shared_ptr<const session> s, std::string bucket,
                                                      std::string key) {
  operation op("HEAD", std::move(bucket), std::move(key));
  auto attempt = [&] { return detail::head_once(*s, op); };
  object_info info = co_await with_retries<object_info>(*s, op, attempt);
  co_return info;
}

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_COROUTINE task<declared_checksum> checksum_once(const session& s, const operation& op) {
  declared_checksum result;
  http::body_options none;
  http::exchange x = co_await send(s, op, std::move(none));
  const http::response_head& head = co_await x.head();
  result.object.size = head.length.value_or(0);
  result.object.etag = head.etag();
  result.sum = body_checksum::of(head.fields);
  co_return std::move(result);
}

/// Logs, once, that objects of a store are read without a comparison, since it refuses to tell their checksums.
MILLRACE_INLINE void note_unchecked(executor& ex, const session& s, const std::string& bucket, const error& why) {
  std::string status = std::to_string(why.status());
  if (!why.code().empty()) status += " " + why.code();
  const std::string host = endpoint(s.for_bucket(bucket), bucket).host();
  const std::string line = "millrace: " + host + " refuses HEAD of objects in " + bucket + " (" + status +
                           "): what is read whole is not compared with the checksums that it keeps; " +
                           checksum_setting;
  if (millrace::detail::first_time(line)) millrace::detail::log_line(ex, line);
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_COROUTINE_BODY task<std::unique_ptr<object_checksum>> checksum_of(std::shared_ptr<const session> s,
                                                                           std::string bucket, std::string key,
                                                                           std::string if_match) {
  executor& ex = co_await this_executor();
  operation op("HEAD", bucket, key);
  op.fields.add("x-amz-checksum-mode", "ENABLED");
  operation unconditional = op;
  const bool conditional = detail::add_condition(ex, *s, op, if_match);
  auto attempt = [&] { return detail::checksum_once(*s, op); };
  const std::string note = std::string("asked for its checksum, by a HEAD; ") + detail::checksum_setting;
  detail::declared_checksum declared;
  bool unmatched = false;
  try {
    declared = co_await with_retries<detail::declared_checksum>(*s, op, attempt);
  } catch (error& e) {
    unmatched = e.status() == 412 && conditional;
    const bool refused = e.status() / 100 == 4 && classify(e.status(), e.code()) != retry_class::transient;
    if (!unmatched && !refused && e.status() != 501) {
      e.add_note(note);
      throw;
    }
    if (!unmatched) {
      detail::note_unchecked(ex, *s, bucket, e);
      co_return nullptr;
    }
  } catch (http::error& e) {
    e.add_note(note);
    throw;
  }
  if (unmatched) {
    op = std::move(unconditional);
    try {
      declared = co_await with_retries<detail::declared_checksum>(*s, op, attempt);
    } catch (const error& e) {
      if (e.status() != 412) throw;  // without a condition: the ETag is not known
    }
  }
  const std::string& now = declared.object.etag;
  if (!if_match.empty() && (unmatched || !now.empty()) && !millrace::detail::same_etag(if_match, now)) {
    throw millrace::detail::version_changed(if_match, now, op.at());
  }
  if (unmatched) detail::forgo_conditions(ex, *s, bucket);
  s->expect_crc(declared.sum ? declared.sum->crc() : crc_kind::none);
  if (!declared.sum) co_return nullptr;
  std::string etag = declared.object.etag;
  if (declared.sum->parts() > 0) {
    const bool found = co_await detail::find_parts(*s, *declared.sum, bucket, key, etag, declared.object.size);
    if (!found) co_return nullptr;
  }
  co_return std::make_unique<object_checksum>(std::move(s), std::move(bucket), std::move(key), std::move(etag),
                                              std::move(*declared.sum));
}

}  // namespace millrace::s3
