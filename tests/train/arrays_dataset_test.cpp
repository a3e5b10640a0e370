// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/decode/decode_arrays.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/detail/slice_piece.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

using test::failure_of;
using rows_at = std::map<std::uint64_t, std::uint64_t>;  // epoch * 2^32 + position: the row

std::vector<float> floats(std::size_t rows) {
  std::vector<float> x(rows * 3);
  std::iota(x.begin(), x.end(), 0.0F);
  return x;
}
std::vector<std::int64_t> labels(std::size_t rows) {
  std::vector<std::int64_t> y(rows);
  std::iota(y.begin(), y.end(), std::int64_t{1000});
  return y;
}
/// "x": three floats a row, 3i to 3i + 2; "y": 1000 + i.
arrays in_memory(std::size_t rows) {
  const auto n = static_cast<std::int64_t>(rows);
  return arrays({{"x", array(floats(rows), {n, 3})}, {"y", array(labels(rows), {n})}});
}

template <class T>
void write_file(const std::string& path, const std::string& head, const std::vector<T>& values) {
  std::ofstream out(path, std::ios::binary);
  out << head;
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}
/// The head of a .npy, as NumPy lays it out.
std::string npy_head(const std::string& type, const std::string& dims, bool fortran = false) {
  std::string text = "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
                     ", 'shape': (" + dims + "), }";
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string head = "\x93NUMPY";
  head += '\1';
  head += '\0';
  head += static_cast<char>(text.size());
  head += static_cast<char>(text.size() >> 8);
  return head + text;
}
/// The same arrays in files.
arrays in_files(test::temporary_folder& at, std::size_t rows) {
  const std::string x = at.file("x.npy");
  const std::string y = at.file("y.bin");
  write_file(x, npy_head("<f4", std::to_string(rows) + ", 3"), floats(rows));
  write_file(y, "12345678", labels(rows));
  return arrays({{"x", map_npy(x)}, {"y", map_raw(y, dtype::i64, {static_cast<std::int64_t>(rows)}, 8)}});
}

/// Whether the fields are those of the row that is its key, by their numbers.
bool is_row(const sample& s) {
  const std::uint64_t row = std::stoull(s.key);
  if (s.fields.size() != 2 || s["x"].size() != 12 || s["y"].size() != 8 || s.from.ordinal != row) return false;
  float x[3];
  std::int64_t y = 0;
  std::memcpy(x, s["x"].data(), sizeof x);
  std::memcpy(&y, s["y"].data(), sizeof y);
  const auto first = static_cast<float>(3 * row);
  return x[0] == first && x[1] == first + 1 && x[2] == first + 2 && y == 1000 + static_cast<std::int64_t>(row);
}

class taken {
 public:
  rows_at rows;
  std::size_t twice = 0;
  std::size_t wrong = 0;
  std::size_t padding = 0;
  std::size_t entries = 0;
  std::string state;
};

task<void> take(stream<sample> in, std::size_t entries, taken& out) {
  const std::shared_ptr<const stream_position> position = in.position();
  epoch_mark mark;
  for (; entries != 0; --entries) {
    const std::optional<sample> s = co_await in.next();
    if (!s) break;
    ++out.entries;
    mark.join(s->mark);
    if (s->weight() == 0) {
      ++out.padding;
      continue;
    }
    if (!is_row(*s)) ++out.wrong;
    if (!out.rows.emplace(s->mark.epoch << 32 | s->mark.position, std::stoull(s->key)).second) ++out.twice;
  }
  out.state = position->state(mark);
}
taken taken_of(const dataset& data, const epochs_options& o, std::string state = {}, std::size_t batches = 1'000'000) {
  testing::virtual_loop loop;
  taken out;
  block_on(loop, take(epochs(data, o, std::move(state)), batches * o.batch, out));
  return out;
}

/// The canonical order, from the number of rows alone.
rows_at model(std::uint64_t rows, const epochs_options& o, std::uint64_t slice) {
  const std::uint64_t counts[] = {rows};
  rows_at out;
  for (std::uint64_t e = 0; e < o.epochs; ++e) {
    const sample_order order(std::make_shared<const shard_counts>(counts), o.seed, e, {o.tracks, slice});
    for (std::uint64_t g = 0; g < rows; ++g) out[e << 32 | g] = order.at(g).ordinal;
  }
  return out;
}

/// Worlds of ranks one after the other, each for a number of batches.
void check_chain(const dataset& data, epochs_options o, const rows_at& wanted) {
  const std::vector<std::pair<std::uint32_t, std::size_t>> worlds{{2, 3}, {3, 2}, {1, 9}, {4, 1}, {2, 100'000}};
  taken all;
  std::string state;
  for (const auto& [world, batches] : worlds) {
    std::set<std::string> states;
    std::set<std::size_t> entries;
    for (std::uint32_t r = 0; r < world; ++r) {
      o.rank = {.index = r, .world_size = world};
      const taken t = taken_of(data, o, state, batches);
      for (const auto& [at, row] : t.rows) all.twice += all.rows.emplace(at, row).second ? 0 : 1;
      all.wrong += t.wrong;
      states.insert(t.state);
      entries.insert(t.entries);
    }
    CHECK(states.size() == 1);
    CHECK(entries.size() == 1);
    state = *states.begin();
  }
  CHECK(all.twice == 0);
  CHECK(all.wrong == 0);
  CHECK(all.rows == wanted);
}

constexpr epochs_options small{.seed = 3, .epochs = 3, .batch = 4, .tracks = 12};

}  // namespace

TEST_CASE("arrays: rows in memory are samples, without a copy, and outlive the dataset") {
  std::vector<float> x = floats(5);
  const float* const at = x.data();
  std::vector<sample> kept;
  {
    const dataset data(arrays({{"x", array(std::move(x), {5, 3})}, {"y", array(labels(5), {5})}}));
    CHECK(data.samples() == 5);
    CHECK(data.bytes() == 5 * 20);
    CHECK(data.exact());
    CHECK(data.elastic());
    runtime rt;
    // The arrays count for no budget.
    auto run = rt.run(epochs(data, {.batch = 2}), {.prefetch_bytes = KiB, .budget = 2 * KiB});
    CHECK(run.batches() == 3);
    while (std::optional<sample> s = run.next()) kept.push_back(std::move(*s));
  }
  REQUIRE(kept.size() == 6);
  CHECK(kept.back().weight() == 0);
  kept.pop_back();
  std::set<std::string> keys;
  for (const sample& s : kept) {
    CHECK(is_row(s));
    CHECK(s["x"].data() == reinterpret_cast<const char*>(at + 3 * s.from.ordinal));
    CHECK(s["x"].retained() == 0);
    keys.insert(s.key);
  }
  CHECK(keys == std::set<std::string>{"0", "1", "2", "3", "4"});
}

TEST_CASE("arrays: every row comes once an epoch, whatever the ranks, and a resume goes on with other ranks") {
  const dataset data(in_memory(101));
  check_chain(data, small, model(101, small, 1));
  check_chain(dataset(in_memory(101), {.slice = 8}), small, model(101, small, 8));
  // Rank by rank, counted alone: equally many batches, and 101 rows and 3 entries of padding an epoch.
  taken all;
  for (std::uint32_t r = 0; r < 2; ++r) {
    epochs_options o = small;
    o.rank = {.index = r, .world_size = 2};
    const taken t = taken_of(data, o);
    CHECK(t.entries == 3 * 52);
    CHECK(t.wrong == 0);
    all.padding += t.padding;
    all.rows.insert(t.rows.begin(), t.rows.end());
  }
  CHECK(all.padding == 9);
  std::map<std::uint64_t, std::size_t> times;
  for (const auto& [at, row] : all.rows) ++times[row];
  CHECK(times.size() == 101);
  for (const auto& [row, n] : times) CHECK(n == 3);
}

TEST_CASE("arrays: mapped files are the same training, by slices, and with a state of the arrays in memory") {
  test::temporary_folder at;
  const dataset data(in_files(at, 101), {.slice = 8});
  check_chain(data, small, model(101, small, 8));
  epochs_options little = small;  // samples are read one by one
  little.bytes = 100;
  CHECK(taken_of(data, little).rows == model(101, small, 8));
  const taken first = taken_of(dataset(in_memory(101), {.slice = 8}), small, {}, 5);
  taken rest = taken_of(data, small, first.state);
  rest.rows.insert(first.rows.begin(), first.rows.end());
  CHECK(rest.rows == model(101, small, 8));

  runtime rt;  // with a pool
  std::size_t n = 0;
  for (const sample& s : rt.run(epochs(data, {.seed = 3, .epochs = 2}))) {
    CHECK(is_row(s));
    ++n;
  }
  CHECK(n == 202);
}

TEST_CASE("arrays: the request of a piece of mapped rows is for those that it delivers, neighbours together") {
  test::temporary_folder at;
  const shard_index* index = nullptr;
  const dataset data(in_files(at, 60));
  const dataset seen = data.subset([&](const indexed_sample& s) {
    index = s.index;
    return true;
  });
  REQUIRE(seen.samples() == 60);
  const index_set all(std::vector<shard_index>{*index});
  const sample_order order = all.order(1, 0, {.tracks = 1, .slice = 64});
  detail::slice_piece piece(all, order, 0, 0, 40, MiB, 0);
  std::set<std::uint64_t> delivered, asked;
  for (std::uint64_t i = 0; i < 40; ++i) delivered.insert(piece.at(i).place.ordinal);
  REQUIRE(piece.ranges().size() == 1);
  const std::vector<std::uint64_t>& rows = piece.ranges()[0].rows;
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    if (i > 0) CHECK(rows[i] > rows[i - 1]);
    for (std::uint64_t r = rows[i]; r < rows[i + 1]; ++r) asked.insert(r);
  }
  CHECK(delivered.size() == 40);
  CHECK(asked == delivered);
  CHECK(piece.reserved() == 40 * 20);
}

TEST_CASE("arrays: parts, weights and classes, in memory and mapped") {
  test::temporary_folder at;
  for (const dataset& data : {dataset(in_memory(60)), dataset(in_files(at, 60), {.slice = 4})}) {
    const auto rows_of = [](const taken& t) {
      std::multiset<std::uint64_t> rows;
      for (const auto& [position, row] : t.rows) rows.insert(row);
      CHECK(t.wrong == 0);
      return rows;
    };
    epochs_options once = small;
    once.epochs = 1;
    CHECK(rows_of(taken_of(data.subset(10, 13), once)) == std::multiset<std::uint64_t>{10, 11, 12});
    CHECK(rows_of(taken_of(data.subset({50, 3, 4, 59}), once)) == std::multiset<std::uint64_t>{3, 4, 50, 59});
    CHECK(rows_of(taken_of(data.take(2), once)) == std::multiset<std::uint64_t>{0, 1});
    const dataset odd = data.subset([](const indexed_sample& s) { return s.number % 2 == 1 && s.bytes == 20; });
    CHECK(rows_of(taken_of(odd, once)).size() == 30);
    std::vector<float> weights(60, 0.0F);
    weights[7] = 3;
    weights[30] = 1;
    const std::multiset<std::uint64_t> drawn = rows_of(taken_of(data.weighted(weights, {.samples = 400}), once));
    CHECK(drawn.size() == 400);
    CHECK(drawn.count(7) + drawn.count(30) == 400);
    CHECK(drawn.count(7) > 250);
    std::vector<std::uint32_t> classes(60, 0);
    classes[5] = 1;
    const std::multiset<std::uint64_t> even = rows_of(taken_of(data.balanced(classes, {.samples = 200}), once));
    CHECK(even.count(5) > 70);
    CHECK(even.count(5) < 130);
  }
}

TEST_CASE("arrays: a mix with tars, by weights") {
  const test::tar_dataset tars({7, 20, 3}, 100);
  const std::shared_ptr<const storage> store = tars.store;
  test::temporary_folder at;
  for (const dataset& rows : {dataset(in_memory(30)), dataset(in_files(at, 30))}) {
    const dataset mixed({{dataset(store, tars.indexes, {.prefix = "mem:"}), 2}, {rows, 1}},
                        {.until = mix_until::last_end});
    runtime rt;
    std::multiset<std::string> of_rows, of_tars;
    std::string state;
    for (const std::size_t most : {20U, 1000U}) {
      auto run = rt.run(epochs(mixed, {.seed = 5, .batch = 1, .tracks = 30}, state));
      for (std::size_t n = 0; n < most; ++n) {
        const std::optional<sample> s = run.next();
        if (!s) break;
        if (s->from.from->dataset == 1) {
          CHECK(is_row(*s));
          of_rows.insert(s->key);
        } else {
          CHECK((*s)["txt"].view() == s->key);
          of_tars.insert(s->key);
        }
      }
      state = run.state();
    }
    CHECK(of_rows.size() == 30);
    CHECK(std::set<std::string>(of_rows.begin(), of_rows.end()).size() == 30);
    // The epoch ends with the last row, in the tars' second round.
    CHECK(of_tars.size() >= 58);
    CHECK(std::set<std::string>(of_tars.begin(), of_tars.end()).size() == 30);
    for (const std::string& key : of_tars) CHECK(of_tars.count(key) <= 2);
  }
}

TEST_CASE("arrays: decode_arrays() gives rows their type and shape, and batches have them") {
  const dataset data(in_memory(10));
  runtime rt;
  std::set<std::int64_t> seen;
  std::size_t rows = 0;
  for (device_batch& b : rt.run(epochs(data, {.seed = 1, .batch = 4}) | decode_arrays() | batch() |
                                to_device(host_device()))) {
    CHECK(b.field("x").dims() == shape{4, 3});
    CHECK(b.field("y").dims() == shape{4});
    const std::span<const float> x = b.field("x").values<float>();
    const std::span<const std::int64_t> y = b.field("y").values<std::int64_t>();
    for (std::size_t i = 0; i < 4; ++i, ++rows) {
      if (y[i] == 0) continue;  // padding
      seen.insert(y[i]);
      CHECK(x[3 * i] == static_cast<float>(3 * (y[i] - 1000)));
    }
  }
  CHECK(rows == 12);
  CHECK(seen.size() == 10);
}

TEST_CASE("arrays: a state is refused where names, types, shapes or the number of rows are others") {
  const std::string state = taken_of(dataset(in_memory(20)), small, {}, 2).state;
  const auto resumed = [&](arrays other) {
    return failure_of([&] { static_cast<void>(epochs(dataset(std::move(other)), small, state)); });
  };
  CHECK(resumed(in_memory(20)) == "no error");
  CHECK(resumed(arrays({{"x", array(std::vector<float>(60), {20, 3})}, {"y", array(labels(20), {20})}})) == "no error");
  CHECK_THAT(resumed(in_memory(21)), Contains("its index (digest) was"));
  CHECK_THAT(resumed(arrays({{"x", array(floats(20), {20, 3})}, {"z", array(labels(20), {20})}})),
             Contains("its index (digest) was"));
  CHECK_THAT(resumed(arrays({{"x", array(floats(20), {20, 1, 3})}, {"y", array(labels(20), {20})}})),
             Contains("its index (digest) was"));
  CHECK_THAT(resumed(arrays({{"x", array(std::vector<std::int32_t>(60), {20, 3})}, {"y", array(labels(20), {20})}})),
             Contains("its index (digest) was"));
}

TEST_CASE("arrays: contents that are others than the state's are in the log, and the training goes on in its order") {
  const taken first = taken_of(dataset(in_memory(20)), small, {}, 2);
  CHECK_THAT(first.state, Contains(",\"contents\":"));
  const auto resumed = [&](const arrays& now, const std::string& state) {
    test::captured_stderr log(test::captured_stderr::into::pipe);
    const taken rest = taken_of(dataset(now), small, state);
    return std::pair<std::string, std::size_t>(log.text(), rest.rows.size());
  };
  const auto same = resumed(in_memory(20), first.state);
  CHECK_THAT(same.first, !Contains("the arrays do not contain"));
  const auto other =
      resumed(arrays({{"x", array(std::vector<float>(60), {20, 3})}, {"y", array(labels(20), {20})}}), first.state);
  CHECK_THAT(other.first, Contains("epochs: the arrays do not contain what they did when the state was written"));
  CHECK(other.second == same.second);
  // A state of before does not say what they contained.
  std::string before = epoch_state::parse(first.state).text();
  epoch_state without = epoch_state::parse(before);
  without.contents = 0;
  before = without.text();
  CHECK_THAT(before, !Contains("contents"));
  CHECK_THAT(resumed(in_memory(20), before).first, !Contains("the arrays do not contain"));
}

TEST_CASE("arrays: other contents at the ends and between them give another number") {
  const auto of = [](std::vector<std::uint8_t> x) {
    const auto rows = static_cast<std::int64_t>(x.size());
    return arrays({{"x", array(std::move(x), {rows})}}).contents();
  };
  std::set<std::uint64_t> seen;
  for (const std::size_t size : {std::size_t(1), std::size_t(70'000), std::size_t(196'608), std::size_t(1'000'000)}) {
    std::vector<std::uint8_t> x(size, 7);
    CHECK(of(x) == of(x));
    CHECK(seen.insert(of(x)).second);
    for (const std::size_t at : {std::size_t(0), size / 2 - (size > 300'000 ? size / 2 - 65'536 : 0), size - 1}) {
      std::vector<std::uint8_t> y = x;
      y[at] = 8;
      CHECK(of(y) != of(x));
    }
  }
  // Of a mapped file they are the same.
  test::temporary_folder at;
  std::ofstream(at.file("x"), std::ios::binary) << std::string(300'000, '\7');
  const std::uint64_t mapped = arrays({{"x", map_raw(at.file("x"), dtype::u8, {300'000})}}).contents();
  CHECK(mapped == of(std::vector<std::uint8_t>(300'000, 7)));
}

TEST_CASE("arrays: a .npy of a store is read into memory, and one that is damaged is an error with its URL") {
  const auto store = std::make_shared<test::dataset_store>(1);
  test::temporary_folder at;
  std::string npy("\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, 'shape': (700000, 4), }", 74);
  npy.resize(127, ' ');
  npy += '\n';
  std::vector<float> elements(2'800'000);
  std::iota(elements.begin(), elements.end(), 0.0F);
  npy.append(reinterpret_cast<const char*>(elements.data()), 4 * elements.size());
  store->objects["mem:x.npy"] = npy;
  store->objects["mem:cut.npy"] = npy.substr(0, npy.size() - 1);
  const std::shared_ptr<const storage> from = store;
  testing::virtual_loop loop;
  const array x = block_on(loop, read_npy(from, "mem:x.npy"));
  CHECK(x.dims() == shape{700'000, 4});
  CHECK(std::equal(elements.begin(), elements.end(), x.values<float>().begin(), x.values<float>().end()));
  CHECK(store->requests > 1);
  const dataset data(arrays({{"x", x}}));
  CHECK(data.samples() == 700'000U);
  const auto refusal = [&](const char* url) {
    return failure_of([&] { static_cast<void>(block_on(loop, read_npy(from, url))); });
  };
  CHECK_THAT(refusal("mem:cut.npy"), Contains("mem:cut.npy") && Contains("has 11200000 bytes"));
  CHECK_THAT(refusal("s3://b/x.npy"), Contains("s3://b/x.npy") && Contains("the store does not serve this URL"));
}

TEST_CASE("arrays: what cannot be a dataset is refused by name") {
  const auto made = [](std::vector<named_array> all) {
    return failure_of([&] { static_cast<void>(arrays(std::move(all))); });
  };
  CHECK(made({{"x", array(floats(4), {4, 3})}, {"y", array(labels(5), {5})}}) ==
        "arrays: \"x\" has 4 rows, and \"y\" has 5");
  CHECK_THAT(made({}), Contains("there are none"));
  CHECK_THAT(made({{"x", array(floats(4), {4, 3})}, {"x", array(floats(4), {4, 3})}}),
             Contains("two are called \"x\""));
  CHECK_THAT(made({{"x", array(floats(4), {4, 3})}, {"", array(floats(4), {4, 3})}}), Contains("array 1 has no name"));
  CHECK_THAT(made({{"x", array(std::vector<float>(1), {})}}), Contains("\"x\" has no rows: its shape is scalar"));
  CHECK_THAT(made({{"x", array(std::vector<float>(), {0, 3})}}), Contains("\"x\" has no rows: its shape is 0x3"));
  CHECK_THAT(failure_of([] { static_cast<void>(array(floats(4), {4, 4})); }),
             Contains("has 64 bytes, and 48 are there"));

  CHECK_THAT(failure_of([] { dataset(in_memory(4), {.index = "x"}); }), Contains(".index and .make_index are not for"));
  CHECK_THAT(failure_of([] { dataset(in_memory(4), {.prefix = "x"}); }), Contains(".prefix and .format are not for"));
  CHECK_THAT(failure_of([] { dataset(in_memory(4), {.window = 3}); }), Contains(".window"));
  const test::tar_dataset tars({7}, 100);
  const std::shared_ptr<const storage> store = tars.store;
}

TEST_CASE("arrays: files that cannot be mapped, or are of another kind, are refused with their path") {
  test::temporary_folder at;
  const std::string path = at.file("bad.npy");
  const auto mapped = [&](const std::string& head, std::size_t floats_in_it) {
    write_file(path, head, std::vector<float>(floats_in_it));
    const std::string said = failure_of([&] { static_cast<void>(map_npy(path)); });
    CHECK(said.starts_with(path));
    return said;
  };
  CHECK_THAT(mapped(npy_head("<f4", "4, 3", true), 12), Contains("in Fortran's order"));
  CHECK_THAT(mapped(npy_head(">f4", "4, 3"), 12), Contains("big-endian"));
  CHECK_THAT(mapped(npy_head("|O", "4, 3"), 12), Contains("of type \"|O\", for which there is no tensor"));
  CHECK_THAT(mapped(npy_head("<f4", "4, 3"), 11), Contains("has 48 bytes, and 44 are there"));
  CHECK_THAT(mapped(npy_head("<f4", "4, 3"), 13), Contains("has 48 bytes, and 52 are there"));
  CHECK_THAT(mapped("", 0), Contains("not a .npy"));
  CHECK_THAT(mapped("no header", 4), Contains("not a .npy"));
  std::string odd = npy_head("<f4", "4, 3");
  odd.erase(odd.size() - 2, 1);
  odd[8] = static_cast<char>(odd[8] - 1);
  CHECK_THAT(mapped(odd, 12), Contains("not aligned"));
  CHECK_THAT(failure_of([&] { static_cast<void>(map_npy(at.path() + "/none.npy")); }),
             Contains("none.npy: cannot be opened"));
  CHECK_THAT(failure_of([&] { static_cast<void>(map_npy(at.path())); }), Contains("no regular file"));

  write_file(path, "", std::vector<float>(12));
  const auto raw = [&](dtype type, const shape& dims, std::uint64_t offset) {
    return failure_of([&] { static_cast<void>(map_raw(path, type, dims, offset)); });
  };
  CHECK(raw(dtype::f32, {4, 3}, 0) == "no error");
  CHECK(raw(dtype::f32, {4, 2}, 16) == "no error");
  CHECK_THAT(raw(dtype::f32, {5, 3}, 0), Contains("has 60 bytes, and 48 are there"));
  CHECK_THAT(raw(dtype::f32, {4, 3}, 2), Contains("cannot begin at byte 2"));
  CHECK_THAT(raw(dtype::f32, {4, 3}, 52), Contains("cannot begin at byte 52 of a file of 48"));
}

TEST_CASE("arrays: a mapped file that has become shorter is an error of the rows that are gone") {
  test::temporary_folder at;
  const std::string path = at.file("x.bin");
  std::vector<float> x(64 * 1024);  // 64 pages
  write_file(path, "", x);
  const dataset data(arrays({{"x", map_raw(path, dtype::f32, {64, 1024})}}), {.slice = 1});
  REQUIRE(::truncate(path.c_str(), 40 * 4096) == 0);
  runtime rt;
  CHECK_THAT(failure_of([&] {
               auto run = rt.run(epochs(data, {}));
               while (run.next()) {
               }
             }),
             Contains(path) && Contains("cannot be read here, or has become shorter"));
  std::size_t whole = 0;
  auto run = rt.run(epochs(data, {.failures = {.then = on_failure::skip}}));
  for (const sample& s : run) whole += s.weight() != 0 ? 1 : 0;
  CHECK(whole == 40);
  REQUIRE(run.stats().lost.size() == 1);
  CHECK(run.stats().lost[0].samples == 24);
}
