// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/order/epoch_state.hpp>

#include <string>

#include "tests/train/epochs_data.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

// As they were written before states had a check word.
const char* const plain =
    R"({"millrace":"epochs","version":1,"seed":7,"epoch":3,"position":40960,"tracks":960,"slice":32,)"
    R"("index":"00000000000000010000000000000002"})";
const char* const full =
    R"({"millrace":"epochs","version":1,"seed":7,"epoch":3,"position":40960,"tracks":960,"slice":32,)"
    R"("index":"00000000000000010000000000000002","mix":"3 1:aa 2:bb","taken":4,"window":99,"rank":1,"world_size":4,)"
    R"("holes":"5:2 1"})";
const char* const windowed =
    R"({"millrace":"epochs","order":"window","version":1,"seed":7,"epoch":1,"position":12,"rank":1,"world_size":2,)"
    R"("shards":3,"window":8,"window_bytes":1024,"list":"00000000000000030000000000000004","taken":2,"taken_of":77,)"
    R"("holes":"1:9 0","place":"abcDEF-_"})";

// Every state that differs from this one in one byte is refused, unless it says the same.
void check_every_byte(const std::string& text) {
  const epoch_state right = epoch_state::parse(text);
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int other = 1; other < 256; ++other) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ other);
      try {
        const epoch_state read = epoch_state::parse(changed);
        if (read.text() != right.text()) FAIL("byte " << at << " may be wrong: " << changed);
      } catch (const configuration_error& e) {
        if (std::string(e.what()).rfind("resume: ", 0) != 0) FAIL(e.what());
      }
    }
  }
}

}  // namespace

TEST_CASE("states without a check word, as they were written before, are read") {
  epoch_state s;
  s.seed = 7;
  s.epoch = 3;
  s.position = 40960;
  s.tracks = 960;
  s.slice = 32;
  s.index.high = 1;
  s.index.low = 2;
  CHECK(epoch_state::parse(plain) == s);
  CHECK(epoch_state::parse(s.text()) == s);
  CHECK(test::without_check_word(s.text()) == plain);
  s.mix = "3 1:aa 2:bb";
  s.taken = 4;
  s.window = 99;
  s.rank = 1;
  s.world_size = 4;
  s.holes[5] = 2;
  s.other_holes = 1;
  CHECK(epoch_state::parse(full) == s);
  CHECK(epoch_state::parse(s.text()) == s);
  CHECK(test::without_check_word(s.text()) == full);
  const epoch_state w = epoch_state::parse(windowed);
  CHECK(w.position == 12);
  CHECK(w.streamed->place == "abcDEF-_");
  CHECK(w.holes.at(1) == 9);
  CHECK(test::without_check_word(w.text()) == windowed);
}

TEST_CASE("a state in which any byte was changed is refused", "[slow]") {
  check_every_byte(epoch_state::parse(plain).text());
  check_every_byte(epoch_state::parse(full).text());
  check_every_byte(epoch_state::parse(windowed).text());
}

TEST_CASE("the check word of a state is over all that it says, not over its spaces and the order of its members") {
  const std::string text = epoch_state::parse(plain).text();
  CHECK_THAT(text, Contains(R"("version":2,)"));
  const std::string word = text.substr(text.find("\"check\""));
  const std::string members = text.substr(1, text.find(",\"check\"") - 1);
  const std::string other = "{ " + word.substr(0, word.size() - 1) + ",\n" + members + "}";
  CHECK(epoch_state::parse(other) == epoch_state::parse(plain));
  // Neither a position within range, nor the place of another state, nor a word that was left out.
  std::string changed = text;
  changed.replace(changed.find("40960"), 5, "40961");
  CHECK_THROWS_WITH(epoch_state::parse(changed),
                    "resume: the state is damaged: its check word is not that of its members");
  changed = text;
  changed.erase(changed.find(",\"check\""), 19);
  CHECK_THROWS_WITH(epoch_state::parse(changed),
                    "resume: the state is damaged: its check word is not that of its members");
  epoch_state w = epoch_state::parse(windowed);
  const std::string one = w.text();
  w.streamed->place = "abcDEF__";
  std::string mixed = one;
  mixed.replace(mixed.find("abcDEF-_"), 8, w.streamed->place);
  CHECK_THROWS_WITH(epoch_state::parse(mixed),
                    "resume: the state is damaged: its check word is not that of its members");
  CHECK_THROWS_WITH(epoch_state::parse(R"({"millrace":"epochs","version":5})"),
                    "resume: the state has version 5; this program reads versions 1 to 4");
}

TEST_CASE("a state with hosts says by its version which homes it is of") {
  epoch_state s = epoch_state::parse(plain);
  s.hosts = 4;
  CHECK_THAT(s.text(), Contains(R"("version":4,)"));
  CHECK(epoch_state::parse(s.text()) == s);
  s.former_homes = true;
  CHECK_THAT(s.text(), Contains(R"("version":2,)"));
  CHECK(epoch_state::parse(s.text()) == s);
  s.steps = 3;
  s.world_size = 4;
  CHECK_THAT(s.text(), Contains(R"("version":3,)"));
  CHECK(epoch_state::parse(s.text()) == s);
  s.hosts = 1;
  CHECK_FALSE(epoch_state::parse(s.text()).former_homes);
}
