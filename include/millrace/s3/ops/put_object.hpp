// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/root_scope.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/http/message.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/s3/config/config.hpp>
#include <millrace/s3/ops/objects.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/session.hpp>
#include <millrace/s3/wire/documents.hpp>
#include <millrace/sync/event.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

inline constexpr std::uint64_t max_parts = 10000;

/// put_options, checked, with everything copied, so that a coroutine may keep them.
class put_plan {
 public:
  /// Throws configuration_error for sizes that cannot work and for text that no header may carry.
  put_plan(const config& c, const put_options& o);

  std::size_t part;
  std::size_t limit = 1;  ///< parts held at once
  std::optional<std::uint64_t> size;
  bool only_new;
  std::string if_match;
  bool conditional() const noexcept { return only_new || !if_match.empty(); }
  bool checksums;
  http::headers fields;  ///< those of the object

 private:
  static void check_text(std::string_view text, const char* what);
  static void check_name(std::string_view name);
};

/// A part of an object that is being stored.
class object_chunk {
 public:
  object_chunk(std::uint64_t part_number, std::uint64_t first_byte, bytes body, bool is_last)
      : number(part_number), offset(first_byte), data(std::move(body)), last(is_last) {}

  std::uint64_t number;  ///< from 1
  std::uint64_t offset;  ///< of its first byte in the object
  bytes data;
  bool last;

  friend std::size_t byte_size(const object_chunk& c) noexcept { return c.data.size(); }
};

/// Collects the bytes of one part. It begins small and becomes a slab only when a part needs one.
class part_buffer {
 public:
  part_buffer(std::size_t part, slab_pool& slabs) noexcept : part_(part), slabs_(slabs) {}

  bool empty() const noexcept { return filled_ == 0; }
  bool full() const noexcept { return filled_ == part_; }

  /// Takes from the front of `piece` as much as fits.
  void take(bytes& piece);
  bytes release();

 private:
  void reserve(std::size_t size);

  const std::size_t part_;
  slab_pool& slabs_;
  writable_bytes memory_;
  bytes whole_;
  std::size_t filled_ = 0;
};

/// Cuts a stream into parts of `part` bytes; only the last is shorter. An empty stream gives one empty part. One part
/// is given out only when something follows it or the stream has ended, so that the last is known as such. With `size`,
/// a stream of another length throws.
template <class Generator, class Chunk = object_chunk>
async_generator<Chunk> cut_parts(Generator content, std::size_t part, std::optional<std::uint64_t> size, where at) {
  slab_pool slabs(part);
  part_buffer buffer(part, slabs);
  std::uint64_t number = 0;
  std::uint64_t total = 0;
  for (;;) {
    auto piece = co_await content.next();
    if (!piece) break;
    total += piece->size();
    if (size && total > *size) {
      at.offset = *size;
      throw millrace::error("the stream has more than the " + std::to_string(*size) + " bytes that it was to hold",
                            at);
    }
    while (!piece->empty()) {
      if (buffer.full()) {
        Chunk chunk(number + 1, number * part, buffer.release(), false);
        ++number;
        co_yield give(chunk);
      }
      buffer.take(*piece);
    }
  }
  if (size && total < *size) {
    at.offset = total;
    throw millrace::error("the stream ends before the " + std::to_string(*size) + " bytes that it was to hold", at);
  }
  Chunk chunk(number + 1, number * part, buffer.release(), true);
  co_yield give(chunk);
}

/// One attempt at a request whose answer only confirms it.
MILLRACE_COROUTINE task<void> discard_once(const session& s, const operation& op);

inline void add_checksum(operation& op, const std::string& sum) {
  if (!sum.empty()) op.fields.add("x-amz-checksum-crc32c", sum);
}

inline void add_fields(operation& op, const http::headers& fields) {
  for (const auto& [name, value] : fields) op.fields.add(name, value);
}

/// The request is refused where the object is not as the plan wants it. It has a connection of its own: libcurl repeats
/// what fails on an open one, and a refusal of the second would look like that of the first.
inline void add_condition(operation& op, const put_plan& plan) {
  if (plan.only_new) op.fields.add("if-none-match", "*");
  if (!plan.if_match.empty()) op.fields.add("if-match", plan.if_match);
  op.new_connection = op.new_connection || plan.conditional();
}

/// PutObject: the whole object in one request. Gives the ETag.
MILLRACE_COROUTINE task<std::string> store_whole(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                 bytes body, const put_plan& plan);

/// UploadPart.
MILLRACE_COROUTINE task<stored_part> store_part(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                std::string id, object_chunk chunk, bool checksums);

/// CreateMultipartUpload; gives the id.
MILLRACE_COROUTINE task<std::string> create_upload(std::shared_ptr<const session> s, std::string bucket,
                                                   std::string key, const put_plan& plan);

/// CompleteMultipartUpload; gives the ETag.
MILLRACE_COROUTINE task<std::string> complete_upload(std::shared_ptr<const session> s, std::string bucket,
                                                     std::string key, std::string id, std::vector<stored_part> parts,
                                                     const put_plan& plan);

/// `op`, whose answer says nothing. An error with the code `forgiven` is none.
MILLRACE_COROUTINE task<void> carry_out(std::shared_ptr<const session> s, operation op, const char* forgiven);

/// AbortMultipartUpload; an upload that is not there any more is fine.
MILLRACE_COROUTINE task<void> abort_upload(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                           std::string id);

/// A multipart upload that is aborted unless it was completed: the destructor sends the request from the loop's root
/// scope. It is created there too: a request that is dropped may have been carried out, and its upload could not be
/// found again.
template <class = void>  // its destructor names a coroutine: see MILLRACE_COROUTINE
class open_upload {
 public:
  open_upload(executor& ex, std::shared_ptr<const session> s, std::string bucket, std::string key, put_plan plan)
      : scope_(root_scope::of(ex)),
        session_(std::move(s)),
        bucket_(std::move(bucket)),
        key_(std::move(key)),
        state_(std::make_shared<state>()) {
    scope_.adopt(create(state_, session_, bucket_, key_, std::move(plan)));
  }
  open_upload(const open_upload&) = delete;
  open_upload& operator=(const open_upload&) = delete;
  ~open_upload() {
    state_->abandoned = true;  // create() aborts if it is still under way
    if (state_->id.empty() || completed_) return;
    try {
      scope_.adopt(abort_upload(session_, bucket_, key_, state_->id));
    } catch (...) {
      scope_.get_executor().runtime().log(
          log_record(log_level::warning, "millrace: there is no memory to abort a multipart upload: its parts stay"));
    }
  }

  /// The id, once the store has given it; throws the exception of its creation. The upload must outlive the task.
  task<std::string> id() const {
    co_await state_->created.wait();
    if (state_->error) std::rethrow_exception(state_->error);
    co_return state_->id;
  }
  /// The upload is complete and must not be aborted.
  void completed() noexcept { completed_ = true; }

 private:
  struct state {
    event created;
    std::string id;
    std::exception_ptr error;
    bool abandoned = false;
  };

  static task<void> create(std::shared_ptr<state> st, std::shared_ptr<const session> s, std::string bucket,
                           std::string key, put_plan plan) {
    std::string id;
    try {
      id = co_await create_upload(s, bucket, key, plan);
    } catch (...) {
      st->error = std::current_exception();
    }
    if (!st->abandoned) {
      st->id = std::move(id);
      st->created.set();
    } else if (!id.empty()) {
      co_await abort_upload(s, std::move(bucket), std::move(key), std::move(id));
    }
  }

  root_scope& scope_;
  const std::shared_ptr<const session> session_;
  const std::string bucket_;
  const std::string key_;
  const std::shared_ptr<state> state_;
  bool completed_ = false;
};

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

/// Stores `body` as an object, in one request whose signature covers the payload or its checksum; gives the ETag. At
/// most 5 GiB (PutObject's limit); the bytes must not change until it is done. Retried as a whole.
MILLRACE_COROUTINE task<std::string> put_object(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                bytes body, detail::put_plan plan);

/// Creates a bucket; one that is ours already is fine.
MILLRACE_COROUTINE task<void> create_bucket(std::shared_ptr<const session> s, std::string bucket);

/// Deletes an empty bucket; one that is not there is fine. One with objects in it stays: s3::error with the code
/// BucketNotEmpty.
MILLRACE_COROUTINE task<void> remove_bucket(std::shared_ptr<const session> s, std::string bucket);

/// Deletes an object; one that is not there is fine, a bucket that is not there is s3::error. Retried as others are.
///
/// In a bucket with versions the object is hidden by a delete marker: the stored versions remain, and can be listed and
/// restored by other tools. If the client or the bucket's policy does not allow it: 403 AccessDenied, for anonymous
/// requests too.
MILLRACE_COROUTINE task<void> remove_object(std::shared_ptr<const session> s, std::string bucket, std::string key);

namespace detail {

/// The chunk that was looked at, then the others; adds up their sizes.
template <class Generator, class Chunk>
async_generator<Chunk> counted(Chunk first, Generator rest, std::uint64_t* total) {
  *total += first.data.size();
  co_yield give(first);
  while (auto next = co_await rest.next()) {
    *total += next->data.size();
    co_yield give(*next);
  }
}

}  // namespace detail

/// Stores all items of `content`, a stream<bytes>, as one object: in one request when it fits one part (an empty stream
/// makes an empty object), else as a multipart upload. Gives the size and the ETag. See client::put() for the plan's
/// options.
///
/// Concurrency: `content` is pulled while parts are on their way; at most plan.limit parts, of plan.part bytes each,
/// are held, the one that is being filled among them. Each part is retried by itself; every request is covered by its
/// signature and, unless switched off, carries the CRC-32C of its body.
///
/// The object appears when all of it has been stored, or not at all: when `content` throws, a part fails for good or
/// the task is dropped, the upload is aborted by the loop's root scope (executor::drain() waits for that). Dropped
/// while the last request is on its way, the object may be there or not. An upload is not aborted only if the answer to
/// its creation was lost, since its id is not known; stores have a lifecycle rule for these. With a condition, a retry
/// whose first attempt had succeeded is refused: the object is then looked at by a HEAD, and is this one if it has the
/// checksum or the ETag of the content sent.
template <class Content>
task<object_info> put_stream(std::shared_ptr<const session> s, std::string bucket, std::string key, Content content,
                             detail::put_plan plan) {
  executor& ex = co_await this_executor();
  where at;
  at.object = "s3://" + bucket + "/" + key;
  auto chunks = detail::cut_parts(std::move(content), plan.part, plan.size, std::move(at));
  auto first = co_await chunks.next();
  object_info stored;
  if (first->last) {
    stored.size = first->data.size();
    stored.etag = co_await detail::store_whole(s, bucket, key, std::move(first->data), plan);
    co_return stored;
  }
  detail::open_upload<> upload(ex, s, bucket, key, plan);
  const std::string id = co_await upload.id();
  auto store = [&](detail::object_chunk chunk) {
    return detail::store_part(s, bucket, key, id, std::move(chunk), plan.checksums);
  };
  const map_concurrent_options bound{.limit = plan.limit, .bytes = plan.limit * plan.part};
  auto storing = detail::counted(std::move(*first), std::move(chunks), &stored.size) | map_concurrent(store, bound);
  std::vector<detail::stored_part> parts;
  while (auto part = co_await storing.next()) parts.push_back(std::move(*part));
  stored.etag = co_await detail::complete_upload(s, bucket, key, id, std::move(parts), plan);
  upload.completed();
  co_return stored;
}

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/put_object.ipp>
#endif
