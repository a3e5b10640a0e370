// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What the page on watching a run shows.

#include <millrace/millrace.hpp>

#include <string>
#include <vector>

#include <millrace/base/log.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

// begin log
/// Keeps what the library says: in a program of yours, calls its logger.
void keep_lines(std::vector<std::string>& lines) {
  mill::set_log(
      [](void* to, const mill::log_record& r) {
        std::string line = std::string(to_text(r.level)) + ' ' + std::string(r.text);
        if (!r.field("shard").empty()) line += " [shard " + std::string(r.field("shard")) + ']';
        static_cast<std::vector<std::string>*>(to)->push_back(line);
      },
      &lines);
}
// end log

}  // namespace

TEST_CASE("the guide's log is what its page says", "[guide]") {
  std::vector<std::string> lines;
  keep_lines(lines);
  const mill::failure_policy skip{.then = mill::on_failure::skip};
  const auto label = [](const mill::shard& s) -> int {
    throw mill::decode_error("no label", mill::where{s.url, {}, {}});
  };
  {
    auto run = mill::run(mill::shards("train-0.tar") | mill::map(label, skip));
    CHECK_FALSE(run.next());
  }
  mill::set_log(nullptr);
  CHECK(lines == std::vector<std::string>{
                     "warning millrace: map: left out: train-0.tar: no label [shard train-0.tar]"});
}
