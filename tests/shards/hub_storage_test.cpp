// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/hub_storage.hpp>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/scripted_server.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::scripted_answer;
using then = test::scripted_answer::then;

namespace {

scripted_answer answer(const std::string& status, const std::string& fields, const std::string& body) {
  return {"HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + fields + "\r\n" + body,
          then::keep};
}

/// Answers as the hub does, by its documentation: a private dataset `o/n` with three files in two pages, and large
/// files at another host, by a URL that is signed.
class hub {
 public:
  explicit hub(std::string token) : token_(std::move(token)) {}

  std::string endpoint() const { return server_.url(""); }
  hub_options options(std::string token) const {
    hub_options o;
    o.endpoint = endpoint();
    o.token = std::move(token);
    return o;
  }
  std::shared_ptr<const storage> store(std::string token) const {
    retry_options quick;
    quick.base = std::chrono::microseconds(10);
    quick.throttling_base = std::chrono::microseconds(20);
    return hugging_face(options(std::move(token)), {}, quick);
  }
  std::vector<std::string> asked() const { return server_.requests(); }
  std::vector<std::string> asked_elsewhere() const { return elsewhere_.requests(); }
  int refusals = 0;      ///< of the next requests
  std::string pages_at;  ///< the server that the link to the next page names; empty: this one

 private:
  scripted_answer serve(const std::string& head) {
    const std::string path = head.substr(4, head.find(" HTTP/") - 4);
    if (refusals > 0) {
      --refusals;
      return answer("429 Too Many Requests", "", "slow down");
    }
    if (head.find("Authorization: Bearer " + token_ + "\r\n") == std::string::npos) {
      return answer("401 Unauthorized", "X-Error-Message: Invalid credentials\r\n", "{}");
    }
    if (path == "/api/datasets/o/n/revision/main" || path == "/api/datasets/o/n/revision/refs%2Fconvert%2Fparquet") {
      return answer("200 OK", "", R"({"id":"o/n","sha":"c0ffee","siblings":[{"rfilename":"a"}]})");
    }
    if (path == "/api/datasets/o/n/tree/c0ffee/train?recursive=true&expand=false") {
      const std::string at = pages_at.empty() ? endpoint() : pages_at;
      return answer("200 OK", "Link: <" + at + "/api/datasets/o/n/tree/c0ffee/train?cursor=2>; rel=\"next\"\r\n",
                    R"([{"type":"directory","oid":"d","size":0,"path":"train/x"},
                        {"type":"file","oid":"1","size":2,"path":"train/b 0.tar","lfs":{"oid":"7","size":9}}])");
    }
    if (path == "/api/datasets/o/n/tree/c0ffee/train?cursor=2") {
      return answer("200 OK", "",
                    R"([{"type":"file","oid":"1","size":3,"path":"train/x/b1.tar"},
                        {"type":"file","oid":"1","size":4,"path":"train/README.md"}])");
    }
    if (path == "/api/datasets/o/broken/revision/main") return answer("200 OK", "", "<html>");
    if (path == "/datasets/o/n/resolve/c0ffee/train/b%200.tar") {
      return answer("302 Found", "Location: " + elsewhere_.url("/lfs/7?sig=1") + "\r\n", "");
    }
    return answer("404 Not Found", "X-Error-Code: RepoNotFound\r\nX-Error-Message: Repository not found\r\n", "");
  }

  const std::string token_;
  test::scripted_server elsewhere_{{answer("206 P", "ETag: \"7\"\r\nContent-Range: bytes 0-1/2\r\n", "ok")}};
  test::scripted_server server_{[this](const std::string& head) { return serve(head); }};
};

task<std::vector<std::string>> names(async_generator<shard> found) {
  std::vector<std::string> all;
  while (auto s = co_await found.next()) all.push_back(s->url + " " + std::to_string(*s->size));
  co_return all;
}

std::vector<std::string> listed(const std::shared_ptr<const storage>& store, const std::string& prefix) {
  const auto loop = make_event_loop();
  try {
    return block_on(*loop, names(store->list(prefix)));
  } catch (const error& e) {
    return {e.what()};
  }
}
std::string read(const std::shared_ptr<const storage>& store, const std::string& url) {
  const auto loop = make_event_loop();
  try {
    return std::string(block_on(*loop, store->read(shard(url), {}, 0, 2, slab_pool(64 * KiB))).data.view());
  } catch (const error& e) {
    return e.what();
  }
}

using strings = std::vector<std::string>;

}  // namespace

TEST_CASE("files of the hub are listed at one commit and read from where it sends readers", "[hub]") {
  hub h("hf_secret");
  h.refusals = 1;
  const auto store = h.store("hf_secret");
  const strings both = {"hf://datasets/o/n@c0ffee/train/b 0.tar 2", "hf://datasets/o/n@c0ffee/train/x/b1.tar 3"};
  CHECK(listed(store, "hf://datasets/o/n/train/b") == strings{both[0]});
  CHECK(listed(store, "hf://datasets/o/n/train/").size() == 3);
  CHECK(listed(store, "hf://datasets/o/n@refs/convert/parquet/train/x") == strings{both[1]});
  CHECK(listed(store, "hf://datasets/o/n@refs%2Fconvert%2fparquet/train/x") == strings{both[1]});
  const std::size_t before = h.asked().size();
  CHECK(read(store, "hf://datasets/o/n@c0ffee/train/b 0.tar") == "ok");
  CHECK(read(store, "hf://datasets/o/n@c0ffee/train/b 0.tar") == "ok");
  CHECK(h.asked().size() == before + 1);
  CHECK(h.asked_elsewhere().size() == 2);
  for (const std::string& head : h.asked_elsewhere()) CHECK_THAT(head, !Contains("hf_secret"));

  h.pages_at = "https://hub.example";  // as mirrors do
  CHECK(listed(store, "hf://datasets/o/n/train/").size() == 3);
}

TEST_CASE("what the hub refuses, or answers wrongly, is an error that names it", "[hub]") {
  hub h("hf_secret");
  const auto store = h.store("hf_secret");
  CHECK_THAT(listed(store, "hf://datasets/o/none/x")[0],
             Contains("hf://datasets/o/none/x: the hub answered 404: Repository not found"));
  CHECK_THAT(listed(h.store(""), "hf://datasets/o/n/train/")[0],
             Contains("the hub answered 401: Invalid credentials (there is no token: HF_TOKEN is not set)"));
  const std::string wrong = listed(h.store("hf_other"), "hf://datasets/o/n/train/")[0];
  CHECK_THAT(wrong, Contains("the hub answered 401") && !Contains("hf_other"));
  CHECK_THAT(listed(store, "hf://datasets/o/broken/x")[0], Contains("the hub's answer is no JSON"));
  CHECK_THAT(read(store, "hf://datasets/o/n@c0ffee/none"),
             Contains("/datasets/o/n/resolve/c0ffee/none") && Contains("the server answered 404"));
  for (const char* const name : {"hf://datasets/o", "hf://", "hf://o/@/x", "hf://o/n@/x"}) {
    CHECK_THAT(listed(store, name)[0], Contains("hf://datasets/OWNER/NAME[@REVISION]/PATH"));
  }
  CHECK_THAT(listed(h.store("hf_secret"), "hf://o/model/x")[0], Contains("404"));
  CHECK_THAT(h.asked().back(), Contains("GET /api/models/o/model/revision/main HTTP/1.1\r\n"));
}

namespace {
std::map<std::string, std::string> variables;
const char* variable(const char* name) {
  const auto at = variables.find(name);
  return at == variables.end() ? nullptr : at->second.c_str();
}
}  // namespace

TEST_CASE("the token of the hub is where its own programs look for it", "[hub]") {
  test::temporary_folder folder;
  std::ofstream(folder.file("token")) << "of_home\n";
  std::ofstream(folder.file("other")) << "of_path";
  const auto token = [](std::map<std::string, std::string> v) {
    variables = std::move(v);
    return hub_options::from_environment(environment(&variable)).token;
  };
  const std::string home = folder.file("");
  CHECK(token({}).empty());
  CHECK(token({{"HF_HOME", home}}) == "of_home");
  CHECK(token({{"HF_HOME", home}, {"HF_TOKEN_PATH", folder.file("other")}}) == "of_path");
  CHECK(token({{"HF_HOME", home}, {"HF_TOKEN", "itself"}}) == "itself");
  CHECK(token({{"HF_HOME", home}, {"HUGGING_FACE_HUB_TOKEN", "old"}}) == "old");
  CHECK(token({{"HF_HOME", "/nowhere"}}).empty());
  CHECK(token({{"HOME", "/nowhere"}}).empty());
  CHECK_THROWS_AS(token({{"HF_TOKEN_PATH", std::string("/dev/null/") + std::string(5000, 'x')}}), configuration_error);
  variables = {{"HF_ENDPOINT", "https://mirror.example//"}};
  CHECK(hub_options::from_environment(environment(&variable)).endpoint == "https://mirror.example");
}
