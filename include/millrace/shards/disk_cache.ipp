// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/root_scope.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/disk_cache.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The bytes that so many slots take of the disk, for messages.
MILLRACE_INLINE std::string shown_slots(std::uint64_t n) {
  return format_bytes(static_cast<double>(n * disk_slots::slot_bytes));
}

MILLRACE_INLINE void disk_cache_state::opened(std::shared_ptr<disk_slots> s) {
  const auto say = [this](const std::string& line) {
    log_to_process(log_record(log_level::warning, "millrace: disk_cache: " + directory_ + line));
  };
  if (s->removed_format() != 0) {
    say(" held a cache of format " + std::to_string(s->removed_format()) + ", of an older version: it is begun anew");
  }
  if (s->capacity() < s->wanted_capacity()) {
    say(": the index was made for a smaller cache: it is " + shown_slots(s->capacity()) +
        " at most, until the folder is deleted");
  }
  if (s->used() > s->capacity()) {
    say(" takes " + shown_slots(s->used()) + " of the disk, more than the .bytes of now, " +
        shown_slots(s->capacity()) + ": it does not shrink, and takes no more; millrace-cache drop removes it");
  }
  for (const std::string& prefix : listed_.prefixes()) s->protect(prefix);
  slots_ = std::move(s);
  off_ = false;
  read_only_ = false;
}

MILLRACE_INLINE void disk_cache_state::open_first() {
  const std::lock_guard lock(mutex_);
  try {
    opened(disk_slots::open(directory_, bytes_, keep_free_, true));
  } catch (const io_error& e) {
    turn_off(nullptr, e.what());
  }
}

MILLRACE_INLINE void disk_cache_state::turn_off(const executor* ex, const std::string& why) {
  slots_ = nullptr;
  off_ = true;
  again_ = time_point();
  if (ex != nullptr) again_ = added(ex->now(), off_for);
  if (why == said_) return;
  said_ = why;
  const std::string line = "millrace: disk_cache is off, and tried again every minute: " + why;
  if (ex != nullptr) {
    log_line(*ex, line);
  } else {
    log_to_process(log_record(log_level::warning, line));
  }
}

MILLRACE_INLINE std::shared_ptr<disk_slots> disk_cache_state::slots(const executor& ex) {
  const std::lock_guard lock(mutex_);
  if (off_) {
    if (again_ == time_point()) again_ = added(ex.now(), off_for);  // it was off from the beginning
    if (ex.now() < again_) return nullptr;
  } else if (slots_->intact()) {
    return slots_;
  } else if (!slots_->replaced()) {
    turn_off(&ex, directory_ + ": the index of the cache is gone");
    return nullptr;
  }
  try {
    opened(disk_slots::open(directory_, bytes_, keep_free_, false));
    said_.clear();
    return slots_;
  } catch (const error& e) {
    turn_off(&ex, e.what());
  }
  return nullptr;
}

MILLRACE_INLINE std::shared_ptr<disk_slots> disk_cache_state::current() {
  const std::lock_guard lock(mutex_);
  return slots_;
}

MILLRACE_INLINE bool disk_cache_state::has(const shard& object, const std::string& name, std::uint64_t offset,
                                           std::size_t length) {
  const std::shared_ptr<disk_slots> slots = current();
  return slots != nullptr && is_strong_etag(object.etag) && slots->lists(name, offset, offset + length);
}

MILLRACE_INLINE std::uint64_t disk_cache_state::held(const std::string& name, std::uint64_t offset,
                                                     std::uint64_t length) {
  const std::shared_ptr<disk_slots> slots = current();
  return slots == nullptr ? 0 : slots->listed_bytes(name, offset, offset + length);
}

MILLRACE_INLINE std::uint64_t disk_cache_state::capacity() {
  const std::shared_ptr<disk_slots> slots = current();
  return slots == nullptr ? 0 : slots->capacity() * disk_slots::block_bytes;
}

MILLRACE_INLINE bool disk_cache_state::may_write(const executor& ex) {
  const std::lock_guard lock(mutex_);
  return !read_only_ || ex.now() >= again_;
}

MILLRACE_INLINE void disk_cache_state::failed(const executor& ex, int error, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (off_) return;
  const bool keeps_free = error == disk_slots::keeps_free;
  const bool too_many = error == EMFILE || error == ENFILE;
  std::string why =
      directory_ + ": " +
      (keeps_free ? "more would leave less of the disk free than .keep_free" : what + ": " + std::strerror(error));
  if (error == EFBIG) why += " (ulimit -f)";
  if (too_many) why += " (ulimit -n)";
  if (error != ENOSPC && error != EDQUOT && error != EROFS && error != EFBIG && !too_many && !keeps_free) {
    turn_off(&ex, why);
    return;
  }
  again_ = added(ex.now(), off_for);
  read_only_ = true;
  if (why == said_) return;
  said_ = why;
  log_line(ex, "millrace: disk_cache admits nothing, and tries again every minute: " + why);
}

MILLRACE_INLINE void disk_cache_state::full(const executor& ex, const disk_slots& s, std::uint64_t blocks) {
  if (s.used() < s.capacity()) return;
  count(ex, &disk_cache_counts::full, blocks);
  counts_.bytes.store(bytes_, std::memory_order_relaxed);
  if (runtime_counts* const all = ex.runtime().counts()) {
    all->disk_cache.bytes.store(bytes_, std::memory_order_relaxed);
  }
  const std::lock_guard lock(mutex_);
  if (std::exchange(said_full_, true)) return;
  log_line(ex, "millrace: disk_cache: " + shown_slots(s.capacity()) +
                  " are full: what is beyond is read from the store in every epoch",
           log_level::info);
}

MILLRACE_INLINE void disk_cache_state::gave(const executor& ex, const disk_slots& s, std::uint64_t segments) {
  count(ex, &disk_cache_counts::given, segments);
  const std::lock_guard lock(mutex_);
  if (std::exchange(said_gave_, true)) return;
  log_line(ex, "millrace: disk_cache: " + shown_slots(s.used()) +
                   " are full: the data that have been unused for longest, and that no process uses, make room for new",
           log_level::info);
}

MILLRACE_INLINE void disk_cache_state::protect(std::string_view prefix) {
  const std::lock_guard lock(mutex_);
  listed_.add(prefix);
  if (slots_ != nullptr) slots_->protect(prefix);
}

MILLRACE_INLINE void disk_cache_state::unversioned(const executor& ex, const shard& object) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(said_unversioned_, true)) return;
  log_line(ex, "millrace: disk_cache: objects of which the store gives no strong ETag, or no size, or whose URL is too "
               "long, are not kept: the first is " + object.shown());
}

MILLRACE_INLINE void disk_cache_state::slow(const executor& ex) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(said_slow_, true)) return;
  log_line(ex, "millrace: disk_cache: " + directory_ + " is slower than the store: what comes while " +
                   format_bytes(static_cast<double>(most_writing)) + " wait to be written is not kept");
}

MILLRACE_INLINE void disk_cache_state::no_memory(const executor& ex, std::uint64_t blocks) noexcept {
  count(ex, &disk_cache_counts::refused, blocks);
  const std::lock_guard lock(mutex_);
  if (std::exchange(said_no_memory_, true)) return;
  ex.runtime().log(log_record(log_level::warning,
                              "millrace: disk_cache: memory is lacking to write what was read: it is not kept"));
}

MILLRACE_INLINE bool disk_cache_state::may_begin_write(std::size_t size) const noexcept {
  const std::size_t before = writing_.load(std::memory_order_relaxed);
  return waits || before == 0 || before + size <= most_writing;
}

MILLRACE_INLINE bool disk_cache_state::begin_write(std::size_t size) noexcept {
  std::size_t before = writing_.load(std::memory_order_relaxed);
  do {
    if (before != 0 && before + size > most_writing) return false;
  } while (!writing_.compare_exchange_weak(before, before + size, std::memory_order_relaxed));
  return true;
}

MILLRACE_INLINE duration disk_cache_state::patience() const noexcept {
  const std::int64_t part = part_ns_.load(std::memory_order_relaxed);
  return duration(part == 0 ? 1'000'000'000 : std::clamp<std::int64_t>(2 * part, 50'000'000, 10'000'000'000));
}

MILLRACE_INLINE void disk_cache_state::took(duration d) noexcept {
  const std::int64_t before = part_ns_.load(std::memory_order_relaxed);
  part_ns_.store(before == 0 ? d.count() : before + (d.count() - before) / 8, std::memory_order_relaxed);
}

MILLRACE_INLINE void disk_cache_state::count(const executor& ex, disk_cache_counts::counter disk_cache_counts::*which,
                                             std::uint64_t n) noexcept {
  if (n == 0) return;
  disk_cache_counts::add(counts_.*which, n);
  if (runtime_counts* const all = ex.runtime().counts()) disk_cache_counts::add(all->disk_cache.*which, n);
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

template <class Unused>
task<storage::part> basic_disk_cache_storage<Unused>::find_or_read(bool small, shard object, std::string etag,
                                                                   std::uint64_t offset, std::size_t length,
                                                                   slab_pool slabs) const {
  using detail::disk_slots;
  const coroutine_context here = co_await this_context();
  executor& ex = here.get_executor();
  std::shared_ptr<disk_slots> slots;
  if (ex.as_event_loop() != nullptr && length != 0) slots = state_->slots(ex);
  if (slots == nullptr) {
    task<part> asking = detail::read_or_small(*this->inner(), small, std::move(object), std::move(etag), offset, length,
                                              std::move(slabs));
    part plain = co_await std::move(asking);
    co_return std::move(plain);
  }
  // Whole grains, so that neighbours meet without a gap.
  constexpr std::uint64_t grain = disk_slots::grain_bytes;
  const std::uint64_t begin = offset / grain * grain;
  std::uint64_t end = (offset + length + grain - 1) / grain * grain;
  if (object.size) end = std::max(std::min(end, *object.size), offset + length);

  const std::string url = object.url;
  detail::cached_version version(name_of(url), etag.empty() ? object.etag : etag);
  version.total = object.size;
  const bool known = detail::is_strong_etag(version.etag);
  disk_slots::claim own;
  const time_point late = detail::added(ex.now(), state_->patience());
  duration pause(500'000);
  for (bool sure = false; known;) {
    disk_slots::reading got = co_await slots->read(version, offset, length, slabs.summed());  // for check()
    if (got.error != 0) {
      state_->failed(ex, got.error, "a slot of the cache cannot be read");
      break;
    }
    if (got.hit) {
      state_->count(ex, &detail::disk_cache_counts::hits, 1);
      state_->count(ex, &detail::disk_cache_counts::hit_bytes, got.data.size());
      part p;
      p.data = std::move(got.data);
      p.total = got.version.total;
      p.etag = std::move(got.version.etag);
      p.encoding = std::move(got.version.encoding);
      co_return std::move(p);
    }
    // Wrong blocks under the claim are damaged or missing, and not being written.
    if (own) {
      slots->not_there(version.name, got.wrong);
      state_->count(ex, &detail::disk_cache_counts::damaged, got.damaged);
      break;
    }
    own = slots->try_claim(version.name, begin, end);
    if (own && !sure && got.wrong.empty()) break;
    const bool waited = !std::exchange(sure, true) && !own;
    if (own) continue;
    if (ex.now() >= late) break;
    if (waited) state_->count(ex, &detail::disk_cache_counts::waited, 1);
    co_await sleep_for(pause);
    pause = std::min(2 * pause, duration(8'000'000));
  }
  state_->count(ex, &detail::disk_cache_counts::misses, 1);

  const auto wider = static_cast<std::size_t>(end - begin);
  slab_pool pool = wider <= slabs.slab_bytes() ? slabs : here.runtime().slabs(2 * slabs.slab_bytes());
  // write() takes the CRCs of grains from there. While the disk is too slow none are made: likely all is refused.
  if (own && state_->may_begin_write(wider)) pool = pool.summed();
  const time_point asked = ex.now();
  task<part> asking = detail::read_or_small(*this->inner(), small, std::move(object), std::move(etag), begin, wider,
                                            std::move(pool));
  part p = co_await std::move(asking);
  if (p.rest) co_return std::move(p);  // from its beginning on; the caller decides
  state_->took(ex.now() - asked);
  state_->count(ex, &detail::disk_cache_counts::miss_bytes, p.data.size());
  version.etag = p.etag;
  version.encoding = p.encoding;
  version.total = p.total;
  const std::uint64_t blocks = (end - 1) / disk_slots::block_bytes - begin / disk_slots::block_bytes + 1;
  const bool versioned = version.total && detail::is_strong_etag(version.etag) && disk_slots::fits(version);
  // Also who has waited for another one long enough, and fetched too. The other one may be stopped: 10 s at most.
  if (!own) own = slots->try_claim(version.name, begin, end);
  for (int tries = 0; !own && versioned && state_->waits && tries < 10'000; ++tries) {
    co_await sleep_for(duration(1'000'000));
    own = slots->try_claim(version.name, begin, end);
  }
  if (!versioned) state_->unversioned(ex, shard(url));
  const bool may = own && versioned && state_->may_write(ex);
  bool begun = may && state_->begin_write(p.data.size());
  while (may && !begun && state_->waits) {
    co_await sleep_for(duration(1'000'000));
    begun = state_->begin_write(p.data.size());
  }
  if (begun) {
    detail::disk_write_share share(state_, p.data.size());
    const bool compared = p.whole && p.data.size() == *version.total && this->inner()->check(shard(url), p.etag);
    task<void> admission =
        admit(state_, slots, std::move(own), std::move(share), std::move(version), begin, blocks, p.data, compared);
    root_scope::of(ex).adopt(std::move(admission));
  } else if (own) {
    if (may) {
      state_->slow(ex);
      state_->count(ex, &detail::disk_cache_counts::slow, blocks);
    }
    state_->count(ex, &detail::disk_cache_counts::refused, blocks);
  }
  if (begin != offset || p.data.size() > length) {
    const std::size_t skipped = std::min(p.data.size(), static_cast<std::size_t>(offset - begin));
    p.data = p.data.slice(skipped, std::min(length, p.data.size() - skipped));
    p.crc = running_crc();  // of more than that
    p.whole = false;
  }
  co_return std::move(p);
}

template <class Unused>
task<void> basic_disk_cache_storage<Unused>::admit(std::shared_ptr<detail::disk_cache_state> state,
                                                   std::shared_ptr<detail::disk_slots> slots,
                                                   detail::disk_slots::claim own, detail::disk_write_share /*share*/,
                                                   detail::cached_version version, std::uint64_t begin,
                                                   std::uint64_t blocks, bytes data, bool compared) {
  executor& ex = co_await this_executor();
  try {
    detail::disk_slots::admission done = co_await slots->write(std::move(own), version, begin, data);
    blocks = 0;  // each is counted now
    state->count(ex, &detail::disk_cache_counts::admitted, done.admitted);
    state->count(ex, &detail::disk_cache_counts::refused, done.refused);
    if (compared && done.error == 0 && done.refused == 0) {
      const detail::disk_slots::comparison whole(data.crc32c());
      co_await slots->note_compared(std::move(version), whole);
    }
    if (done.given != 0) state->gave(ex, *slots, done.given);
    if (done.error != 0) {
      state->failed(ex, done.error, done.what);
    } else if (done.refused != 0) {
      state->full(ex, *slots, done.refused);
    }
  } catch (const std::bad_alloc&) {
    state->no_memory(ex, blocks);
  }
}

template <class Unused>
task<storage::part> basic_disk_cache_storage<Unused>::read_again(shard object, std::string etag, std::uint64_t offset,
                                                                 std::size_t length, slab_pool slabs) const {
  executor& ex = co_await this_executor();
  if (ex.as_event_loop() != nullptr && length != 0) {
    if (const std::shared_ptr<detail::disk_slots> slots = state_->slots(ex)) {
      slots->forget(name_of(object.url), offset, offset + length);
    }
  }
  part p = co_await this->inner()->read_again(std::move(object), std::move(etag), offset, length, std::move(slabs));
  co_return std::move(p);
}

/// The inner check, whose result it notes in the cache; or without one a comparison with the result noted before.
template <class Unused>
class basic_disk_cache_storage<Unused>::comparison final : public object_check {
 public:
  comparison(std::unique_ptr<object_check> inner, std::shared_ptr<detail::disk_slots> slots,
             detail::cached_version version, std::optional<std::uint32_t> noted = std::nullopt)
      : inner_(std::move(inner)), slots_(std::move(slots)), version_(std::move(version)), noted_(noted) {}
  const std::string& etag() const noexcept override { return inner_ != nullptr ? inner_->etag() : version_.etag; }
  void add(const bytes& data, const running_crc& crc) override {
    if (inner_ != nullptr) inner_->add(data, crc);
    const bool known = crc.kind() == crc_kind::crc32c && crc.size() == data.size();
    crc_.join(known ? crc : running_crc(crc_kind::crc32c, data.crc32c(), data.size()));
  }
  std::unique_ptr<object_check> fork() const override {
    std::unique_ptr<object_check> inner;
    if (inner_ != nullptr) inner = inner_->fork();
    if (inner_ != nullptr && inner == nullptr) return nullptr;
    auto copy = std::make_unique<comparison>(std::move(inner), slots_, version_, noted_);
    copy->crc_ = crc_;
    return copy;
  }
  task<void> compare(std::uint64_t delivered) override {
    if (inner_ == nullptr) {
      if (crc_.value() == noted_) co_return;
      slots_->forget(version_.name, 0, crc_.size());
      differs(delivered);
    }
    try {
      co_await inner_->compare(delivered);
    } catch (const s3::checksum_error&) {
      slots_->forget(version_.name, 0, crc_.size());
      throw;
    }
    detail::cached_version version = version_;
    if (version.etag.empty()) version.etag = inner_->etag();
    if (!detail::is_strong_etag(version.etag)) co_return;
    const detail::disk_slots::comparison found(static_cast<std::uint32_t>(crc_.value()));
    co_await slots_->note_compared(std::move(version), found);
  }

 private:
  [[noreturn]] void differs(std::uint64_t delivered) const {
    std::string reason =
        "the bytes do not have the crc32c that those had which agreed with the object's checksum when "
        "they were cached";
    if (delivered > 0) reason += "; " + std::to_string(delivered) + " of them were delivered before this was known";
    throw s3::checksum_error(std::move(reason), where{detail::shown_name(version_.name), std::nullopt, {}}, delivered);
  }

  const std::unique_ptr<object_check> inner_;
  const std::shared_ptr<detail::disk_slots> slots_;
  const detail::cached_version version_;
  const std::optional<std::uint32_t> noted_;
  running_crc crc_{crc_kind::crc32c};
};

template <class Unused>
task<std::unique_ptr<object_check>> basic_disk_cache_storage<Unused>::check(shard object, std::string etag) const {
  task<std::unique_ptr<object_check>> asking = this->inner()->check(object, etag);
  if (!asking) return asking;  // it never keeps any
  std::string name = name_of(object.url);
  return check_of(this->inner(), state_, std::move(name), std::move(object), std::move(etag));
}

template <class Unused>
task<std::unique_ptr<object_check>> basic_disk_cache_storage<Unused>::check_of(
    std::shared_ptr<const storage> inner, std::shared_ptr<detail::disk_cache_state> state, std::string name,
    shard object, std::string etag) {
  executor& ex = co_await this_executor();
  detail::cached_version version(std::move(name), etag.empty() ? object.etag : etag);
  version.total = object.size;
  std::shared_ptr<detail::disk_slots> slots;
  if (ex.as_event_loop() != nullptr) slots = state->slots(ex);
  const bool known = slots != nullptr && detail::is_strong_etag(version.etag);
  if (known && !version.total) {
    task<std::optional<std::uint64_t>> finding = slots->total_of(version, 0);
    version.total = co_await std::move(finding);
  }
  std::unique_ptr<object_check> answer;
  if (known) {
    if (const std::optional<detail::disk_slots::comparison> noted = slots->compared(version)) {
      if (noted->crc) {
        answer = std::make_unique<comparison>(nullptr, std::move(slots), std::move(version), noted->crc);
      }
      co_return std::move(answer);
    }
  }
  task<std::unique_ptr<object_check>> asking = inner->check(std::move(object), std::move(etag));
  answer = co_await std::move(asking);
  if (answer == nullptr && known) {
    const detail::disk_slots::comparison none;
    co_await slots->note_compared(std::move(version), none);
  } else if (answer != nullptr && slots != nullptr) {
    answer = std::make_unique<comparison>(std::move(answer), std::move(slots), std::move(version));
  }
  co_return std::move(answer);
}

#if defined(MILLRACE_SEPARATE_COMPILATION)
template class basic_disk_cache_storage<>;
#endif

MILLRACE_COROUTINE_BODY std::shared_ptr<const disk_cache_storage> detail::disk_cache_of(
    std::shared_ptr<const storage> inner, const disk_cache_options& options) {
  if (options.directory.empty()) throw configuration_error("disk_cache() needs .directory: a folder on a local disk");
  if (options.bytes < disk_slots::slot_bytes) {
    throw configuration_error("disk_cache() needs .bytes: how much of the disk it may take, 2 MiB or more");
  }
  if (!(options.keep_free >= 0 && options.keep_free < 1)) {
    throw configuration_error("disk_cache() needs a .keep_free from 0 to less than 1");
  }
  const auto state = std::make_shared<disk_cache_state>(std::string(std::string_view(options.directory)), options.bytes,
                                                        options.keep_free, options.wait_for_disk);
  state->open_first();
  return std::make_shared<const disk_cache_storage>(std::move(inner), state);
}

}  // namespace millrace
