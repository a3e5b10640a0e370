// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/resident_storage.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI {

template <class Unused>
task<storage::part> basic_resident_storage<Unused>::find_or_read(bool small, shard object, std::string etag,
                                                                 std::uint64_t offset, std::size_t length,
                                                                 slab_pool slabs) const {
  executor& ex = co_await this_executor();
  if (std::optional<found> there = find(object, etag, offset, length)) {
    if (there->pieces.size() == 1) {
      there->answer.data = std::move(there->pieces.front());
    } else if (!there->pieces.empty()) {
      writable_bytes joined = slabs.worth_a_slab(length) ? slabs.acquire() : writable_bytes::allocate(length);
      std::size_t n = 0;
      for (const bytes& piece : there->pieces) {
        std::memcpy(joined.data() + n, piece.data(), piece.size());
        n += piece.size();
      }
      there->answer.data = joined.share(0, n);
    }
    co_return std::move(there->answer);
  }
  // To the end of the tar block: else what pads a member is missing when its neighbours are asked for with it.
  constexpr std::size_t block = 512;
  std::size_t more = (length + block - 1) / block * block;
  if (!object.size || offset + more > *object.size || more > slabs.slab_bytes()) more = length;
  task<part> asking =
      detail::read_or_small(*this->inner(), small, object, std::move(etag), offset, more, std::move(slabs));
  part p = co_await std::move(asking);
  if (!p.rest && !keep(object, offset, p)) {
    detail::log_line(ex, "millrace: resident: " + format_bytes(static_cast<double>(most_)) +
                        " are full: what is beyond is read from the store in every epoch",
                     log_level::info);
  }
  if (p.data.size() > length) {
    p.data = p.data.slice(0, length);
    p.crc = running_crc();  // of more than that
    p.whole = false;
  }
  co_return std::move(p);
}

template <class Unused>
task<storage::part> basic_resident_storage<Unused>::read_again(shard object, std::string etag, std::uint64_t offset,
                                                               std::size_t length, slab_pool slabs) const {
  part p = co_await this->inner()->read_again(object, std::move(etag), offset, length, std::move(slabs));
  if (!p.rest) replace(object, offset, p);
  co_return std::move(p);
}

template <class Unused>
auto basic_resident_storage<Unused>::find(const shard& object, const std::string& etag, std::uint64_t offset,
                                          std::size_t length) const -> std::optional<found> {
  const std::lock_guard lock(mutex_);
  const auto known = objects_.find(object.url);
  if (known == objects_.end()) return std::nullopt;
  object_kept& o = known->second;
  const std::string& wanted = etag.empty() ? object.etag : etag;
  if (!wanted.empty() && !o.etag.empty() && !millrace::detail::same_etag(wanted, o.etag)) {
    drop(o);
    objects_.erase(known);
    return std::nullopt;
  }
  found out;
  out.answer.etag = o.etag;
  out.answer.encoding = o.encoding;
  out.answer.total = o.total;
  out.answer.whole = o.whole && offset == 0 && length >= *o.total;
  std::uint64_t end = offset + length;
  if (o.total) end = std::min(end, std::max(offset, *o.total));
  auto at = o.ranges.upper_bound(offset);
  if (at != o.ranges.begin()) --at;
  while (offset < end) {
    if (at == o.ranges.end() || at->first > offset || at->first + at->second.size() <= offset) return std::nullopt;
    const auto skipped = static_cast<std::size_t>(offset - at->first);
    const std::uint64_t n = std::min<std::uint64_t>(at->second.size() - skipped, end - offset);
    out.pieces.push_back(at->second.slice(skipped, static_cast<std::size_t>(n)));
    offset += n;
    ++at;
  }
  return out;
}

template <class Unused>
bool basic_resident_storage<Unused>::keep(const shard& object, std::uint64_t offset, const part& read) const {
  const std::lock_guard lock(mutex_);
  object_kept& o = objects_[object.url];
  if (o.ranges.empty() || !millrace::detail::same_etag(o.etag, read.etag)) {
    drop(o);
    o.etag = read.etag;
    o.encoding = read.encoding;
    o.total = read.total;
    o.whole = read.whole && read.total == read.data.size();
  }
  const std::uint64_t end = offset + read.data.size();
  while (offset < end) {
    const auto next = o.ranges.upper_bound(offset);
    if (next != o.ranges.begin()) {
      const auto before = std::prev(next);
      const std::uint64_t reached = before->first + before->second.size();
      if (reached > offset) {  // is there already
        offset = reached;
        continue;
      }
    }
    const std::uint64_t gap_end = next == o.ranges.end() ? end : std::min(end, next->first);
    const auto n = static_cast<std::size_t>(gap_end - offset);
    if (n > most_ - kept_) return std::exchange(said_, true);
    const std::size_t first = read.data.size() - static_cast<std::size_t>(end - offset);
    o.ranges.emplace(offset, bytes::copy(read.data.view().substr(first, n)));
    kept_ += n;
    offset = gap_end;
  }
  return true;
}

template <class Unused>
void basic_resident_storage<Unused>::replace(const shard& object, std::uint64_t offset, const part& read) const {
  const std::lock_guard lock(mutex_);
  const auto known = objects_.find(object.url);
  if (known == objects_.end() || !millrace::detail::same_etag(known->second.etag, read.etag)) return;
  known->second.whole = known->second.whole && read.whole;
  const std::uint64_t end = offset + read.data.size();
  for (auto& [begin, kept] : known->second.ranges) {
    const std::uint64_t from = std::max(begin, offset);
    const std::uint64_t to = std::min(begin + kept.size(), end);
    if (from >= to) continue;
    writable_bytes mended = writable_bytes::allocate(kept.size());
    std::memcpy(mended.data(), kept.data(), kept.size());
    const auto n = static_cast<std::size_t>(to - from);
    std::memcpy(mended.data() + (from - begin), read.data.data() + (from - offset), n);
    kept = mended.share(0, kept.size());
  }
}

template <class Unused>
void basic_resident_storage<Unused>::drop(object_kept& object) const noexcept {
  for (const auto& [begin, data] : object.ranges) kept_ -= data.size();
  object.ranges.clear();
}

template <class Unused>
template <class T>
task<T> basic_resident_storage<Unused>::then_drop(task<T> writing, std::string url) const {
  const auto forget_it = [&](std::nullptr_t) {
    const std::lock_guard lock(mutex_);
    const auto known = objects_.find(url);
    if (known == objects_.end()) return;
    drop(known->second);
    objects_.erase(known);
  };
  const std::shared_ptr<void> at_end(nullptr, forget_it);  // also where it fails: it may be written then
  co_return co_await std::move(writing);
}

template <class Unused>
std::size_t basic_resident_storage<Unused>::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

template <class Unused>
void basic_resident_storage<Unused>::forget() const {
  const std::lock_guard lock(mutex_);
  objects_.clear();
  kept_ = 0;
}

#if defined(MILLRACE_SEPARATE_COMPILATION)
template class basic_resident_storage<>;
#endif

MILLRACE_COROUTINE_BODY std::shared_ptr<const resident_storage> detail::resident_storage_of(
    std::shared_ptr<const storage> inner, const resident_options& options) {
  if (options.bytes == 0) throw configuration_error("resident() needs .bytes: how much of the data may be kept");
  return std::make_shared<const resident_storage>(std::move(inner), options);
}

}  // namespace millrace
