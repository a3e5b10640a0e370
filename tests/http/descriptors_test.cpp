// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A client whose process may open few files. It is a child of the test: the server's descriptors are not its own.

#include <millrace/http/engine.hpp>

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/spawned.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/http/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::fetch;

namespace {

/// A child process that runs `body` with URLs that it gets later: it begins before a server's thread does, which may
/// hold a lock of the allocator that a sanitizer then leaves locked in the child.
class child_process {
 public:
  explicit child_process(std::string (*body)(const std::vector<std::string>& urls)) {
    int to_child[2];
    int from_child[2];
    REQUIRE(::pipe(to_child) == 0);
    REQUIRE(::pipe(from_child) == 0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      ::alarm(100);  // a child that hangs is killed
      ::close(to_child[1]);
      ::close(from_child[0]);
      std::vector<std::string> urls;
      std::istringstream lines(all_of(to_child[0]));
      for (std::string line; std::getline(lines, line);) urls.push_back(line);
      ::dup2(from_child[1], 2);  // its log as well
      std::string said;
      try {
        said = body(urls);
      } catch (const std::exception& e) {
        said = std::string("thrown: ") + e.what();
      }
      write_all(from_child[1], said);
      ::_exit(0);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    to_child_ = to_child[1];
    from_child_ = from_child[0];
  }
  child_process(const child_process&) = delete;
  ~child_process() {
    for (const int fd : {to_child_, from_child_}) {
      if (fd >= 0) ::close(fd);
    }
    ::waitpid(child_, nullptr, 0);
  }

  std::string said(const std::vector<std::string>& urls) {
    std::string lines;
    for (const std::string& url : urls) lines += url + "\n";
    write_all(to_child_, lines);
    ::close(std::exchange(to_child_, -1));
    return all_of(from_child_);
  }

 private:
  static std::string all_of(int fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
    return text;
  }
  static void write_all(int fd, std::string_view text) {
    for (ssize_t n; !text.empty() && (n = ::write(fd, text.data(), text.size())) > 0;)
      text.remove_prefix(static_cast<std::size_t>(n));
  }

  pid_t child_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
};

void leave_descriptors(rlim_t n) {
  const detail::owned_fd next(::eventfd(0, EFD_CLOEXEC));
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(next.get()) + n;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// "100 read", or the first failure.
std::string read_at_once(event_loop& loop, const std::string& url, int n) {
  std::vector<std::unique_ptr<spawned<std::string>>> running;
  for (int i = 0; i < n; ++i) running.push_back(std::make_unique<spawned<std::string>>(loop, fetch(url)));
  loop.run_until([&] {
    for (const auto& one : running) {
      if (!one->done()) return false;
    }
    return true;
  });
  int read = 0;
  for (const auto& one : running) read += one->take() == "200 content" ? 1 : 0;
  return std::to_string(read) + " read";
}

class shop {
 public:
  shop() { server_.put("b", "k", "content"); }
  std::string url(const char* host = "127.0.0.1") const {
    const std::string endpoint = server_.endpoint();
    return std::string("http://") + host + endpoint.substr(endpoint.rfind(':')) + "/b/k";
  }

 private:
  static s3_server::options open_to_all() {
    s3_server::options o;
    o.anonymous = s3_server::anonymous_access::read;
    return o;
  }
  mutable s3_server::background server_{open_to_all()};
};

}  // namespace

TEST_CASE("connections are held below the limit on open files, and that is said") {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    child_process client([](const std::vector<std::string>& urls) {
      leave_descriptors(40);
      const auto loop = make_event_loop();
      const long most = http::engine::of(*loop).options().connections;
      return read_at_once(*loop, urls[0], 100) + (most <= 13 ? "" : ", by too many connections");
    });
    const shop server;
    const std::string said = client.said({server.url(host)});
    CHECK_THAT(said, Contains("connections at once (of 64) fit into the limit on open files"));
    CHECK_THAT(said, Catch::Matchers::EndsWith("\n100 read"));
  }
}

TEST_CASE("descriptors that run out later are waited for, as long as connections are under way that will end") {
  if (MILLRACE_ASAN) {
    MILLRACE_SKIP("the undefined behaviour sanitizer, which comes with this one, needs descriptors itself");
  }
  for (const char* host : {"127.0.0.1", "localhost"}) {
    child_process client([](const std::vector<std::string>& urls) {
      const auto loop = make_event_loop({.force_epoll = true});
      http::engine::of(*loop);
      leave_descriptors(20);
      return read_at_once(*loop, urls[0], 100);
    });
    const shop server;
    CHECK(client.said({server.url(host)}) == "100 read");
  }
}

TEST_CASE("connections that were kept make room for new ones where descriptors have run out") {
  if (MILLRACE_ASAN) {
    MILLRACE_SKIP("the undefined behaviour sanitizer, which comes with this one, needs descriptors itself");
  }
  child_process client([](const std::vector<std::string>& urls) {
    const auto loop = make_event_loop({.force_epoll = true});
    const std::string first = read_at_once(*loop, urls[0], 20);
    leave_descriptors(0);
    return first + ", " + read_at_once(*loop, urls[1], 20);
  });
  const shop server;
  const shop another;
  CHECK(client.said({server.url(), another.url()}) == "20 read, 20 read");
}

TEST_CASE("no descriptor for a connection is an error that says so") {
  if (MILLRACE_ASAN) {
    MILLRACE_SKIP("the undefined behaviour sanitizer, which comes with this one, needs descriptors itself");
  }
  for (const char* host : {"127.0.0.1", "localhost"}) {
    child_process client([](const std::vector<std::string>& urls) {
      const auto loop = make_event_loop({.force_epoll = true});
      http::engine::of(*loop);
      leave_descriptors(0);
      return read_at_once(*loop, urls[0], 3);
    });
    const shop server;
    const std::string said = client.said({server.url(host)});
    CHECK_THAT(said, Contains("no connection could be opened: Too many open files (EMFILE: RLIMIT_NOFILE, ulimit -n)"));
    CHECK_THAT(said, Contains(server.url(host)));
  }
}
