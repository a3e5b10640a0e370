// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The programs of docs/guide/clips.md, over films that the test has drawn: no decoder would show them.

#include <millrace/formats/video_shards.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <millrace/base/rng.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/train.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/drawn_mp4.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"

namespace mill = millrace;

namespace {

// begin clips
/// Clips of two seconds of all films below a prefix, one from each second on.
auto training_on_clips(const mill::s3::client& s3, const std::string& folder, mill::rank mine, std::string saved) {
  const mill::dataset films(
      s3, "s3://corpus/films/",
      {.index = folder + "/films.index", .format = mill::video_shards({.seconds = 2, .stride = 1})});
  return mill::epochs(films, {.seed = 7, .epochs = 2, .batch = 4, .rank = mine}, std::move(saved));
}
// end clips

// begin read
/// A clip for a decoder that opens a file in memory, and shows what is between two times.
class clip {
 public:
  mill::bytes file;
  double begin = 0;
  double end = 0;
};

clip read(const mill::sample& s) {
  const auto seconds = [&](const char* field) {
    return mill::array(s[field], mill::dtype::f64, {1}, s.from.at(s.key)).values<double>()[0];
  };
  clip made;
  made.file = s["video"];
  made.begin = seconds("begin");
  made.end = seconds("end");
  return made;
}
// end read

}  // namespace

TEST_CASE("the guide's training on clips goes on after it was stopped", "[guide]") {
  mill::s3_server::background server;
  mill::rng random(1);
  for (int n = 0; n < 3; ++n) {
    mill::test::drawn_mp4 film = mill::test::drawn_mp4::draw(random, 40, 500, true);
    server.put("corpus", "films/" + std::to_string(n) + ".mp4", film.plain());
  }
  const std::string endpoint = server.endpoint();
  mill::s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  const mill::s3::client s3(mill::s3::config(o), mill::s3::credentials("test-key", "test-secret"));
  const mill::test::temporary_folder at;
  mill::runtime rt;
  const auto keys_of = [&](std::size_t most, std::string& state) {
    std::string keys;
    auto run = rt.run(training_on_clips(s3, at.path(), {.index = 1, .world_size = 2}, std::exchange(state, {})));
    for (const mill::sample& s : run) {
      if (s.weight() != 0) {
        const clip c = read(s);
        CHECK(c.end - c.begin == Approx(2));
        CHECK(c.file.view().substr(4, 4) == "ftyp");
        keys += s.key + ' ';
      }
      if (--most == 0) break;
    }
    state = run.state();
    return keys;
  };
  std::string state;
  const std::string all = keys_of(SIZE_MAX, state);
  CHECK(all.find("2.mp4#1 ") != std::string::npos);
  state.clear();
  std::string joined = keys_of(4, state);
  joined += keys_of(SIZE_MAX, state);
  CHECK(joined == all);
}
