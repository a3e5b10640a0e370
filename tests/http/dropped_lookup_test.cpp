// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A name server that does not answer, made of a getaddrinfo() before that of the C library.

#include <millrace/http/response.hpp>

#include <dlfcn.h>
#include <netdb.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <curl/curl.h>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/support/catch.hpp"

namespace {

constexpr std::string_view silent_host = "silent.millrace.test";

class silent_server {
 public:
  /// What a thread that asks for the host meets: nothing, until dismiss().
  void ask() {
    std::unique_lock lock(mutex_);
    ++asking_;
    // In a test that fails, the thread of the test waits for this one.
    if (!changed_.wait_for(lock, std::chrono::seconds(10), [this] { return dismissed_; })) ++lost_patience_;
    --asking_;
    changed_.notify_all();
  }
  void dismiss() {
    std::unique_lock lock(mutex_);
    dismissed_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return asking_ == 0; });
  }
  int asking() {
    const std::lock_guard lock(mutex_);
    return asking_;
  }
  int lost_patience() {
    const std::lock_guard lock(mutex_);
    return lost_patience_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int asking_ = 0;
  int lost_patience_ = 0;
  bool dismissed_ = false;
};
silent_server& silent() {
  static silent_server* const one = new silent_server;  // for good: threads may outlive main()
  return *one;
}

}  // namespace

extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  if (node != nullptr && node == silent_host) {
    silent().ask();
    return EAI_AGAIN;
  }
  using function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto next = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return next(node, service, hints, result);
}

using namespace millrace;

namespace {

task<int> status_of(std::string url) {
  auto transport = std::make_shared<const http::transport_options>();
  http::request r(std::move(url));
  const http::response a = co_await http::send(std::move(r), std::move(transport), 1 * MiB);
  co_return a.head.status;
}

task<void> one_turn() { co_await sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

TEST_CASE("an exchange dropped while its host is looked up does not wait for the look-up") {
  const curl_version_info_data* const curl = curl_version_info(CURLVERSION_NOW);
  if ((curl->features & CURL_VERSION_ASYNCHDNS) == 0 || curl->ares != nullptr || curl->version_num < 0x075700) {
    MILLRACE_SKIP("this libcurl looks names up without a thread, or cannot leave it");
  }
  const auto loop = make_event_loop();
  {
    const spawned<int> dropped(*loop, status_of("http://" + std::string(silent_host) + "/"));
    while (silent().asking() == 0 && !dropped.done()) block_on(*loop, one_turn());
  }
  CHECK(silent().asking() == 1);
  silent().dismiss();
  CHECK(silent().lost_patience() == 0);
  CHECK(loop->frames() == 0);
}
