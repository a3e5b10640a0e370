// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <millrace/device/device.hpp>

namespace millrace::test {

/// A device whose work happens when the test says so: for tests of the stage without any runtime.
///
/// Each stream is a list of actions; go() lets everything enqueued so far happen, `after` makes events true by
/// themselves once they were asked that often. Freed memory is checked against pending copies.
class late_device {
 public:
  struct mark {
    bool done = false;
    int asked = 0;
  };
  class event_type {
   public:
    std::shared_ptr<mark> last;
  };
  struct user_stream {};

  struct script {
    std::mutex mutex;
    int after = -1;         // questions until an event is true by itself; -1: never
    std::size_t room = SIZE_MAX;  // pieces of device memory there may be at once
    int fail_copies = 0;    // this many copies throw
    int fail_records = 0;   // this many records throw
    std::size_t asked = 0;  // questions in all
    std::size_t copies = 0, unpinned = 0, synchronized = 0;
    std::atomic<std::size_t> pinned_made{0}, device_made{0};  // allocations in all
    std::size_t waited = 0;  // synchronizations that had something to wait for
    std::set<const void*> pinned, device;
    struct pending_copy {
      void* to;
      const void* from;
      std::size_t n;
    };
    std::vector<pending_copy> pending;
    std::vector<std::shared_ptr<mark>> marks;
    std::string wrong;

    void go() {
      for (const pending_copy& c : pending) std::memcpy(c.to, c.from, c.n);
      pending.clear();
      for (const auto& m : marks) m->done = true;
      marks.clear();
    }
    void check_unused(const void* p) {
      for (const pending_copy& c : pending) {
        if (c.to == p || c.from == p) wrong = "memory freed under a pending copy";
      }
    }
  };

  late_device() : script_(std::make_shared<script>()) {}
  script& control() const { return *script_; }

  void* allocate_pinned(std::size_t n) const {
    ++script_->pinned_made;
    return allocate(n, script_->pinned);
  }
  void free_pinned(void* p, std::size_t) const noexcept { release(p, script_->pinned); }
  void* allocate_device(std::size_t n) const {
    ++script_->device_made;
    return allocate(n, script_->device);
  }
  void free_device(void* p, std::size_t) const noexcept { release(p, script_->device); }
  event_type make_event() const { return event_type(); }
  void copy_to_device(void* to, const void* from, std::size_t n) const {
    const std::lock_guard lock(script_->mutex);
    if (script_->fail_copies > 0 && --script_->fail_copies == 0) throw std::runtime_error("the copy failed");
    ++script_->copies;
    if (script_->pinned.count(from) == 0) ++script_->unpinned;
    script_->pending.push_back({to, from, n});
  }
  void record(event_type& e) const {
    const std::lock_guard lock(script_->mutex);
    if (script_->fail_records > 0 && --script_->fail_records == 0) throw std::runtime_error("the record failed");
    e.last = std::make_shared<mark>();
    script_->marks.push_back(e.last);
  }
  void record(event_type& e, stream_ref s) const {
    s.as<user_stream>();
    record(e);
  }
  void wait(stream_ref s, const event_type&) const { s.as<user_stream>(); }
  bool query(const event_type& e) const {
    const std::lock_guard lock(script_->mutex);
    ++script_->asked;
    if (e.last == nullptr || e.last->done) return true;
    if (script_->after >= 0 && ++e.last->asked > script_->after) script_->go();
    return e.last->done;
  }
  void synchronize(const event_type& e) const {
    const std::lock_guard lock(script_->mutex);
    ++script_->synchronized;
    if (e.last == nullptr || e.last->done) return;
    ++script_->waited;
    script_->go();
  }
  void synchronize(stream_ref s) const {
    s.as<user_stream>();
    const std::lock_guard lock(script_->mutex);
    ++script_->synchronized;
    ++script_->waited;
    script_->go();
  }
  std::string name() const { return "late"; }
  friend bool operator==(const late_device& a, const late_device& b) noexcept { return a.script_ == b.script_; }

 private:
  void* allocate(std::size_t n, std::set<const void*>& of) const {
    const std::lock_guard lock(script_->mutex);
    if (&of == &script_->device && of.size() >= script_->room) throw std::bad_alloc();
    void* p = std::aligned_alloc(256, (n + 255) / 256 * 256);
    of.insert(p);
    return p;
  }
  void release(void* p, std::set<const void*>& of) const noexcept {
    const std::lock_guard lock(script_->mutex);
    script_->check_unused(p);
    of.erase(p);
    std::free(p);
  }

  std::shared_ptr<script> script_;
};

static_assert(device<late_device>);

}  // namespace millrace::test
