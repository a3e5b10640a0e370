// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What a host's name leads to, made of a getaddrinfo() before that of the C library: a name server that does not
// answer, and several addresses of which some swallow SYNs.

#include <millrace/http/exchange.hpp>

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <curl/curl.h>

#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/shards/shards.hpp>

#include "tests/http/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/scripted_server.hpp"

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

using addresses = std::vector<std::string>;

class name_server {
 public:
  void set(const std::string& host, addresses all) {
    const std::lock_guard lock(mutex_);
    hosts_[host] = std::move(all);
  }
  /// How often `host` was looked up.
  int asked(const std::string& host) {
    const std::lock_guard lock(mutex_);
    return asked_[host];
  }
  std::optional<addresses> find(const char* host, bool counts) {
    const std::lock_guard lock(mutex_);
    const auto found = hosts_.find(host == nullptr ? "" : host);
    if (found != hosts_.end() && counts) ++asked_[found->first];
    return found == hosts_.end() ? std::nullopt : std::optional<addresses>(found->second);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, addresses> hosts_;
  std::map<std::string, int> asked_;
};
name_server& names() {
  static name_server* const one = new name_server;  // for good: threads may outlive main()
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
  addrinfo numeric{};
  if (hints != nullptr) numeric = *hints;
  // libcurl 8.23 asks for each family by itself: a look-up is counted once.
  const std::optional<addresses> known = names().find(node, numeric.ai_family != AF_INET6);
  if (!known) return next(node, service, hints, result);
  numeric.ai_flags = AI_NUMERICHOST;
  *result = nullptr;
  addrinfo** end = result;
  for (const std::string& address : *known) {  // glibc frees a list node by node
    const int family = address.find(':') == std::string::npos ? AF_INET : AF_INET6;
    if (numeric.ai_family != AF_UNSPEC && numeric.ai_family != family) continue;
    if (const int error = next(address.c_str(), service, &numeric, end)) return error;
    while (*end != nullptr) end = &(*end)->ai_next;
  }
  return *result == nullptr ? EAI_NONAME : 0;
}

namespace {

class attempts {
 public:
  void count(const sockaddr* to) {
    if (to->sa_family != AF_INET) return;
    const std::lock_guard lock(mutex_);
    ++of_[ntohl(reinterpret_cast<const sockaddr_in*>(to)->sin_addr.s_addr) & 0xff];
  }
  /// To connect to 127.0.0.`n`, since it was asked last.
  int take(std::uint32_t n) {
    const std::lock_guard lock(mutex_);
    return std::exchange(of_[n], 0);
  }

 private:
  std::mutex mutex_;
  std::map<std::uint32_t, int> of_;
};
attempts& connects() {
  static attempts* const one = new attempts;
  return *one;
}

}  // namespace

extern "C" int connect(int fd, const sockaddr* to, socklen_t size) {
  using function = int (*)(int, const sockaddr*, socklen_t);
  static const auto next = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "connect"));
  connects().count(to);
  return next(fd, to, size);
}

using namespace millrace;
using namespace std::chrono_literals;
using test::fetch;
using test::scripted_server;
using then = test::scripted_answer::then;

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
  CHECK(silent().asking() > 0);  // one for each family with libcurl 8.23
  silent().dismiss();
  CHECK(silent().lost_patience() == 0);
  CHECK(loop->frames() == 0);
}

namespace {

/// `port` at an address where the queue of connections is full: a SYN is swallowed.
class dead_address {
 public:
  dead_address(const std::string& address, std::uint16_t port) {
    addrinfo numeric{};
    numeric.ai_flags = AI_NUMERICHOST;
    numeric.ai_socktype = SOCK_STREAM;
    addrinfo* at = nullptr;
    REQUIRE(::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &numeric, &at) == 0);
    sockets_.push_back(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(sockets_[0], at->ai_addr, at->ai_addrlen) == 0);
    REQUIRE(::listen(sockets_[0], 0) == 0);
    for (int i = 0; i < 4; ++i) {
      sockets_.push_back(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(sockets_.back(), at->ai_addr, at->ai_addrlen);
    }
    ::freeaddrinfo(at);
  }
  ~dead_address() {
    for (const int fd : sockets_) ::close(fd);
  }

 private:
  std::vector<int> sockets_;
};

bool has_ipv6() {
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool works = fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (fd >= 0) ::close(fd);
  return works;
}

std::string url_of(std::uint16_t port, bool tls = false) {
  return (tls ? "https://several.millrace.test:" : "http://several.millrace.test:") + std::to_string(port) + "/b/k";
}

http::transport_options in_time(duration connecting) {
  http::transport_options t;
  t.connect_timeout = connecting;
  return t;
}

/// Enough for a connection to the address after so many dead ones of its family. Since 8.3.0 libcurl gives an address
/// half of what is left only as long as that is more than 600 ms, and all of it then.
duration past(int dead) {
  const bool only_above = http::detail::libcurl_version() >= 0x080300;
  if (dead == 1) return only_above ? 700ms : 300ms;
  return only_above ? 1300ms : 500ms;
}

constexpr const char* host = "several.millrace.test";

/// The addresses of `host` are these, at `port`; only 127.0.0.1 (or ::1, where `family` says so) lives there.
class mostly_dead_host {
 public:
  mostly_dead_host(const addresses& all, std::uint16_t port, int family = AF_INET) {
    const std::string alive = family == AF_INET ? "127.0.0.1" : "::1";
    for (const std::string& address : all) {
      if (address != alive && dead_[address] == nullptr) dead_[address] = std::make_unique<dead_address>(address, port);
    }
    names().set(host, all);
  }

 private:
  std::map<std::string, std::unique_ptr<dead_address>> dead_;
};

std::string reached(event_loop& loop, const addresses& all, duration connecting, int family = AF_INET) {
  const scripted_server live({{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", then::keep}}, family);
  const mostly_dead_host dead(all, live.port(), family);
  try {
    return block_on(loop, fetch(url_of(live.port()), in_time(connecting)));
  } catch (const http::error& e) {
    return e.what();
  }
}

}  // namespace

// Each address of a family gets half of what is left of the time-out for connecting, and the last one all of it.
TEST_CASE("addresses that swallow SYNs cost time, not the connection") {
  const auto loop = make_event_loop({.force_epoll = GENERATE(true, false)});
  CHECK(reached(*loop, {"127.0.0.2", "127.0.0.1"}, past(1)) == "200 ok");
  CHECK(reached(*loop, {"127.0.0.2", "127.0.0.3", "127.0.0.1"}, past(2)) == "200 ok");
  CHECK(reached(*loop, {"127.0.0.2", "127.0.0.1", "127.0.0.3"}, past(2)) == "200 ok");
}

TEST_CASE("addresses of both families that swallow SYNs cost time, not the connection", "[slow]") {
  if (!has_ipv6()) MILLRACE_SKIP("no IPv6 on this machine");
  const auto loop = make_event_loop({.force_epoll = GENERATE(true, false)});
  const duration time = past(1) + 200ms;  // of which one family waits for the other
  CHECK(reached(*loop, {"::1", "127.0.0.1"}, time) == "200 ok");
  CHECK(reached(*loop, {"::1", "127.0.0.2", "127.0.0.1"}, time) == "200 ok");
  CHECK(reached(*loop, {"::1", "::1", "127.0.0.2", "127.0.0.1"}, time) == "200 ok");
  CHECK(reached(*loop, {"127.0.0.2", "::1", "::1", "127.0.0.1"}, time) == "200 ok");
  CHECK(reached(*loop, {"127.0.0.2", "127.0.0.3", "::1"}, time, AF_INET6) == "200 ok");
  CHECK(reached(*loop, {"127.0.0.2", "::1"}, time, AF_INET6) == "200 ok");
}

TEST_CASE("a host all of whose addresses swallow SYNs is a time-out for connecting") {
  const auto loop = make_event_loop();
  const scripted_server elsewhere({{"", then::fin}}, AF_INET);
  const mostly_dead_host dead({"127.0.0.2", "127.0.0.3"}, elsewhere.port());
  try {
    block_on(*loop, fetch(url_of(elsewhere.port()), in_time(100ms)));
    FAIL("an answer");
  } catch (const http::error& e) {
    CHECK(e.kind() == http::failure::timeout);
  }
}

TEST_CASE("a store, a server and a proxy are reached past a dead first address") {
  const auto loop = make_event_loop();
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::read;
  o.host_names = {host};
  s3_server::background server(o);
  server.put("b", "k", "content");
  const std::string endpoint = server.endpoint();
  const auto port = static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
  const mostly_dead_host dead({"127.0.0.2", "127.0.0.1"}, port);

  s3::config_options given;
  given.endpoint = std::string("http://") + host + ":" + std::to_string(port);
  given.region = "us-east-1";
  given.style = s3::addressing::path;
  const s3::client client(s3::config(given), std::make_shared<s3::fixed_credentials>(s3::credentials()),
                          in_time(past(1)));
  CHECK(block_on(*loop, client.read("s3://b/k")).view() == "content");

  const auto other_loop = make_event_loop();  // without the connection
  const http_storage storage(in_time(past(1)));
  auto reading = storage.read(shard(url_of(port)), std::string(), 0, 7, slab_pool(64 * KiB));
  CHECK(block_on(*other_loop, std::move(reading)).data.view() == "content");

  const scripted_server proxy({{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", then::keep}});
  const mostly_dead_host dead_proxy({"127.0.0.2", "127.0.0.1"}, proxy.port());
  http::transport_options t = in_time(past(1));
  t.proxy = std::string("http://") + host + ":" + std::to_string(proxy.port());
  CHECK(block_on(*loop, fetch("http://elsewhere.millrace.test/", t)) == "200 ok");
}

TEST_CASE("an address that cannot be connected to costs time once, not each connection") {
  const auto loop = make_event_loop();
  const scripted_server live({{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", then::fin}});
  const mostly_dead_host dead({"127.0.0.2", "127.0.0.1", "127.0.0.3"}, live.port());
  const auto once = [&] { return block_on(*loop, fetch(url_of(live.port()), in_time(2s))); };
  // In an order of libcurl's: until both have been met.
  connects().take(2);
  connects().take(3);
  for (int met = 0, i = 0; met != 3 && i < 100; ++i) {
    CHECK(once() == "200 ok");
    if (connects().take(2) > 0) met |= 1;
    if (connects().take(3) > 0) met |= 2;
  }
  for (int i = 0; i < 20; ++i) CHECK(once() == "200 ok");
  CHECK(connects().take(2) + connects().take(3) == 0);

  // Where no other is left they are tried all the same: one may be there again.
  names().set(host, {"127.0.0.2"});
  CHECK_THROWS_AS(once(), http::error);
  CHECK(connects().take(2) == 1);
}

namespace {

/// Keeps what is logged on the loop.
class logged_lines final : public runtime_parts {
 public:
  explicit logged_lines(executor& ex) : executor_(ex) { ex.set_runtime(*this); }
  executor& next_loop() noexcept override { return executor_; }
  void log(const log_record& r) noexcept override { all.emplace_back(r.text); }
  int with(std::string_view text) const {
    return static_cast<int>(std::count_if(
        all.begin(), all.end(), [&](const std::string& line) { return line.find(text) != std::string::npos; }));
  }

  std::vector<std::string> all;

 private:
  executor& executor_;
};

std::unique_ptr<s3_server::background> server_at(const char* address, std::uint16_t port, duration first_byte,
                                                 std::uint64_t rate, std::uint64_t requests = 0,
                                                 s3_server::tls_options tls = {}) {
  s3_server::options o;
  o.tls = std::move(tls);
  o.anonymous = s3_server::anonymous_access::read;
  o.host_names = {host};
  o.address = address;
  o.port = port;
  o.away.first_byte = first_byte;
  o.away.connection_rate = rate;
  o.max_requests_per_connection = requests;
  auto server = std::make_unique<s3_server::background>(o);
  server->put("b", "k", std::string(1 * MiB, 'x'));
  return server;
}

/// For two servers of one name: their certificates have subjects of their own.
s3_server::tls_options encrypted(const char* name, s3_server::tls_options::handshake greeting = {}) {
  s3_server::tls_options t;
  t.enabled = true;
  t.certificate_name = name;
  t.greeting = greeting;
  return t;
}

/// The certificates of both in one file, while it lives.
class authorities {
 public:
  authorities(const s3_server::background& a, const s3_server::background& b)
      : path_(std::filesystem::temp_directory_path() / ("millrace-test-" + std::to_string(::getpid()) + ".pem")) {
    std::ofstream out(path_);
    for (const auto* each : {&a, &b}) out << std::ifstream(each->certificate_file()).rdbuf();
  }
  authorities(const authorities&) = delete;
  authorities& operator=(const authorities&) = delete;
  ~authorities() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

using shared_options = std::shared_ptr<const http::transport_options>;

task<void> read_range(std::string url, std::size_t length, shared_options transport) {
  http::request r(std::move(url));
  r.range = http::byte_range(0, length - 1);
  const http::response a = co_await http::send(std::move(r), std::move(transport), 2 * MiB);
  CHECK(a.body.size() == length);
}

/// Reads eight ranges at a time, so often.
task<void> read_ranges(event_loop& loop, std::string url, std::size_t length, int times, shared_options transport) {
  for (int i = 0; i < times; ++i) {
    std::vector<spawned<void>> reading;
    for (int n = 0; n < 8; ++n) reading.emplace_back(loop, read_range(url, length, transport));
    for (spawned<void>& each : reading) co_await each;
  }
}

}  // namespace

TEST_CASE("an address whose requests are much slower than the others' is passed over") {
  const auto loop = make_event_loop();
  logged_lines logged(*loop);
  const bool tls = GENERATE(false, true);
  const bool late = GENERATE(true, false);  // or little on each connection
  const std::size_t length = late ? 1000 : 512 * KiB;
  // Connections end after ten requests, so that it does not last if all of them have come to one address.
  auto fast = server_at("127.0.0.1", 0, 1ms, 0, 10, tls ? encrypted(host) : s3_server::tls_options());
  const auto slow = server_at("127.0.0.2", fast->port(), late ? 60ms : 1ms, late ? 0 : 8'000'000, 10,
                              tls ? encrypted("*.millrace.test") : s3_server::tls_options());
  std::optional<authorities> both;
  http::transport_options trusting;
  if (tls) trusting.ca_file = both.emplace(*fast, *slow).path();
  const auto with = std::make_shared<const http::transport_options>(trusting);
  const std::string url = url_of(fast->port(), tls);
  names().set(host, {"127.0.0.1", "127.0.0.2"});
  for (int i = 0; i < 20 && logged.with("127.0.0.2") == 0; ++i) {
    block_on(*loop, read_ranges(*loop, url, length, 2, with));
  }
  INFO((tls ? "TLS, " : "") << (late ? "late" : "little") << ": " << fast->stats().requests
                            << " reads from the fast address, " << slow->stats().requests << " from the slow one");
  REQUIRE(logged.with("several.millrace.test:" + std::to_string(fast->port()) + ": its address 127.0.0.2:" +
                      std::to_string(fast->port()) + " is slow, ") == 1);
  if (late) CHECK(logged.with(" ms to the first byte where others take ") == 1);
  CHECK(logged.with("passed over for 60 s") == 1);
  const std::uint64_t before = slow->stats().requests;
  block_on(*loop, read_ranges(*loop, url, length, 4, with));
  CHECK(slow->stats().requests == before);  // over kept connections neither
  CHECK(logged.all.size() == 1);

  // The last address is never passed over.
  fast.reset();
  names().set(host, {"127.0.0.2"});
  block_on(*loop, read_ranges(*loop, url, length, 1, with));
  CHECK(slow->stats().requests == before + 8);
}

TEST_CASE("an address that leaves TLS handshakes without an answer costs time once, not each connection") {
  const auto loop = make_event_loop();
  logged_lines logged(*loop);
  const auto live = server_at("127.0.0.1", 0, 0ms, 0, 1, encrypted(host));
  const auto silent =
      server_at("127.0.0.2", live->port(), 0ms, 0, 1,
                encrypted("*.millrace.test", s3_server::tls_options::handshake::stall));
  const authorities both(*live, *silent);
  names().set(host, {"127.0.0.2", "127.0.0.1"});
  http::transport_options t = in_time(500ms);
  t.ca_file = both.path();
  const auto with = std::make_shared<const http::transport_options>(t);
  int failed = 0;
  for (int i = 0; i < 100 && failed == 0; ++i) {
    try {
      block_on(*loop, read_range(url_of(live->port(), true), 1000, with));
    } catch (const http::error& e) {
      CHECK(e.kind() == http::failure::timeout);
      ++failed;
    }
  }
  REQUIRE(failed == 1);
  connects().take(2);
  for (int i = 0; i < 20; ++i) block_on(*loop, read_range(url_of(live->port(), true), 1000, with));
  CHECK(connects().take(2) == 0);
  // The other one is known to be there only now.
  CHECK(logged.all.size() == 1);
  CHECK(logged.with("its address 127.0.0.2:" + std::to_string(live->port()) + " could not be connected to") == 1);
}

TEST_CASE("a run's stats count the addresses that the loops of its runtime pass over") {
  std::vector<std::string> lines;
  runtime_options o;
  o.loops = 2;
  const auto add = [&](const log_record& r) { lines.emplace_back(r.text); };
  o.log = add;
  const auto live = server_at("127.0.0.1", 0, 0ms, 0, 1);
  const mostly_dead_host dead({"127.0.0.2", "127.0.0.3", "127.0.0.1"}, live->port());
  const auto store = std::make_shared<const http_storage>(in_time(1s));
  runtime rt(o);
  std::int64_t counted = 0;
  for (int i = 0; i < 20 && counted < 2; ++i) {
    auto run = rt.run(shards(url_of(live->port())) | millrace::fetch(store), {.show = progress::off});
    while (run.next()) continue;
    counted = run.stats().addresses_passed_over;
  }
  CHECK(counted == 2);
  CHECK(lines.size() == 2);
}

TEST_CASE("a server that was not there for a moment is connected to again at once") {
  const auto loop = make_event_loop();
  std::uint16_t port = 0;
  {
    const scripted_server gone({{"", then::fin}});
    port = gone.port();
  }
  names().set(host, {"127.0.0.1"});
  for (int i = 0; i < 3; ++i) CHECK_THROWS_AS(block_on(*loop, fetch(url_of(port))), http::error);
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::read;
  o.host_names = {host};
  o.port = port;
  s3_server::background server(o);
  server.put("b", "k", "content");
  CHECK(block_on(*loop, fetch(url_of(port))) == "200 content");
}

TEST_CASE("connections are spread over the addresses of a host, those that are opened later too") {
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::read;
  o.host_names = {host};
  o.away.first_byte = 20ms;
  std::vector<std::unique_ptr<s3_server::background>> servers;
  addresses all;
  for (const char* address : {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"}) {
    o.address = address;
    servers.push_back(std::make_unique<s3_server::background>(o));
    servers.back()->put("b", "k", "content");
    o.port = servers[0]->port();
    all.emplace_back(address);
  }
  names().set(host, all);
  const auto loop = make_event_loop();
  const auto read = [&](int n) -> task<void> {
    std::vector<spawned<std::string>> reading;
    for (int i = 0; i < n; ++i) reading.emplace_back(*loop, fetch(url_of(o.port), in_time(5s)));
    for (spawned<std::string>& each : reading) {
      const std::string answer = co_await each;
      CHECK(answer == "200 content");
    }
  };
  block_on(*loop, read(2));
  block_on(*loop, read(40));  // 38 more, when the host has been looked up
  for (const auto& each : servers) CHECK(each->stats().connections > 0);
}

// libcurl keeps nothing of those that are not to be kept.
TEST_CASE("a host is looked up for each connection, up to 64 times in a second") {
  const scripted_server server({{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", then::fin}});
  constexpr const char* often = "often.millrace.test";
  names().set(often, {"127.0.0.1"});
  const auto loop = make_event_loop();
  const std::string url = std::string("http://") + often + ":" + std::to_string(server.port()) + "/b/k";
  const auto connect = [&](int n) {
    for (int i = 0; i < n; ++i) REQUIRE(block_on(*loop, fetch(url)) == "200 ok");
  };
  const std::int64_t began = monotonic_ns();
  connect(50);
  CHECK(names().asked(often) == 50);
  connect(250);
  const auto seconds = static_cast<int>((monotonic_ns() - began) / 1'000'000'000);
  CHECK(names().asked(often) >= 64);
  CHECK(names().asked(often) <= 65 * (seconds + 1));  // and the one that is kept
}

TEST_CASE("what has failed at one address is tried again at another, and one that always fails is passed over") {
  using s3_server::fault;
  for (const fault& what : {fault::refuse(500, "InternalError"), fault::page(503), fault::reset_before_head(),
                            fault::close_in_body(1000), fault::garbage_status(), fault::page(599)}) {
    INFO("fault " << static_cast<int>(what.what) << " " << what.status);
    const auto good = server_at("127.0.0.1", 0, duration(0), 0, 1);  // a connection for each request
    const auto bad = server_at("127.0.0.2", good->port(), duration(0), 0, 1);
    bad->faults().add({}, what);
    names().set(host, {"127.0.0.1", "127.0.0.2"});
    s3::config_options given;
    const std::string endpoint = std::string("http://") + host + ":" + std::to_string(good->port());
    given.endpoint = endpoint;
    given.region = "us-east-1";
    given.style = s3::addressing::path;
    given.max_attempts = 2;
    given.retry.base = 10us;
    const s3::client client(s3::config(given), std::make_shared<s3::fixed_credentials>(s3::credentials()));
    const auto loop = make_event_loop();
    logged_lines said(*loop);
    const std::string content(1 * MiB, 'x');
    const auto sends = [&] {
      auto get = client.get("s3://b/k", 0, 1 * MiB, "", slab_pool(1 * MiB));
      const s3::object_part part = block_on(*loop, std::move(get));
      CHECK(part.data.view() == content);
      CHECK(block_on(*loop, client.head("s3://b/k")).size == content.size());
    };
    int turns = 0;
    while (said.with("127.0.0.2") == 0 && turns++ < 40) sends();
    CHECK(said.with("its address 127.0.0.2:" + std::to_string(good->port()) + " fails while others do not") == 1);
    const std::uint64_t before = bad->stats().requests;
    for (int i = 0; i < 10; ++i) sends();
    CHECK(bad->stats().requests == before);
    CHECK(before >= 4);
  }
}
