// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

template <class Unused>
bool basic_s3_storage<Unused>::serves(std::string_view url) const noexcept {
  return text::starts_ignoring_case(url, "s3://");
}

template <class Unused>
task<storage::part> basic_s3_storage<Unused>::read_over(shard object, std::string etag, std::uint64_t offset,
                                                        std::size_t length, slab_pool slabs,
                                                        s3::get_options options) const {
  part result;
  options.size = object.size;
  try {
    s3::object_part got = co_await client_.get(object.url, offset, length, etag, std::move(slabs), options);
    result.data = std::move(got.data);
    result.total = got.object.size;
    result.etag = std::move(got.object.etag);
    result.crc = got.crc;
    result.encoding = std::move(got.object.encoding);
    result.again = got.again;
    result.whole = got.whole;
    result.first_byte = got.first_byte;
    result.held = got.held;
  } catch (const s3::error& e) {
    if (e.status() != 416 || offset == 0 || !etag.empty()) throw;
    throw changed_error("the object changed while it was read: it ends before this byte (" + e.reason() + ")",
                        where{object.url, offset, std::string()});
  }
  co_return std::move(result);
}

template <class Unused>
task<std::unique_ptr<object_check>> basic_s3_storage<Unused>::check(shard object, std::string etag) const {
  if (!client_.configuration().validate_checksums) return task<std::unique_ptr<object_check>>();
  return ask_check(std::move(object), std::move(etag));
}

template <class Unused>
class basic_s3_storage<Unused>::comparison final : public object_check {
 public:
  explicit comparison(std::unique_ptr<s3::object_checksum> c) noexcept : checksum_(std::move(c)) {}
  const std::string& etag() const noexcept override { return checksum_->etag(); }
  void add(const bytes& data, const running_crc& crc) override { checksum_->add(data, crc); }
  std::unique_ptr<object_check> fork() const override {
    return std::make_unique<comparison>(std::make_unique<s3::object_checksum>(*checksum_));
  }
  task<void> compare(std::uint64_t delivered) override { return checksum_->compare(delivered); }

 private:
  const std::unique_ptr<s3::object_checksum> checksum_;
};

template <class Unused>
task<std::unique_ptr<object_check>> basic_s3_storage<Unused>::ask_check(shard object, std::string etag) const {
  std::unique_ptr<object_check> result;
  std::unique_ptr<s3::object_checksum> kept = co_await client_.checksum(object.url, std::move(etag));
  if (kept != nullptr) result = std::make_unique<comparison>(std::move(kept));
  co_return std::move(result);
}

template <class Unused>
task<std::string> basic_s3_storage<Unused>::put(std::string url, async_generator<bytes> content,
                                                write_options how) const {
  s3::put_options o;
  o.part = how.part;
  o.parts = how.parts;
  o.window = detail::multiplied(how.part, how.parts);
  o.only_new = how.only_new;
  o.if_match = how.if_match;
  return stored(client_.put(url, stream<bytes>(std::move(content)), o));
}

template <class Unused>
task<std::string> basic_s3_storage<Unused>::stored(task<s3::object_info> storing) {
  try {
    s3::object_info info = co_await std::move(storing);
    co_return std::move(info.etag);
  } catch (const s3::error& e) {
    // The object is there, or is another version, or none.
    if (e.status() != 412 && e.code() != "NoSuchKey") throw;
    throw changed_error(e.reason(), where{e.object(), e.offset(), {}});
  }
}

#if defined(MILLRACE_SEPARATE_COMPILATION)
template class basic_s3_storage<>;
#endif

MILLRACE_COROUTINE_BODY std::shared_ptr<const storage> s3::as_storage(const client& c) {
  return std::make_shared<const s3_storage>(c);
}

}  // namespace millrace
