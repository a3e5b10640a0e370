// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Formats of shards from outside: one whose records are read each by itself, and one whose samples are unpacked by
// groups, from two ranges of the object, to text or to an object.

#include <millrace/formats/line_shards.hpp>
#include <millrace/formats/shard_format.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/damaging_storage.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/record_epochs.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::failure_of;
using test::record_files;
using test::trained;

namespace {

std::string number(std::uint64_t value, int bytes = 4) {
  std::string out;
  detail::append_le(out, value, bytes);
  return out;
}

/// Records are a length and as many bytes. The first half of them is one field, the rest the other.
class pairs final : public shard_format {
 public:
  explicit pairs(std::string fields = "left,right") : fields_(std::move(fields)) {}
  std::string_view name() const noexcept override { return "pairs"; }
  std::string settings() const override { return fields_; }
  std::vector<shard> choose(std::vector<shard> listed) const override {
    std::erase_if(listed, [](const shard& s) { return s.url.ends_with(".json"); });
    return listed;
  }
  std::unique_ptr<shard_scanner> scanner(std::string its_name, const shard&,
                                         std::shared_ptr<const void>) const override {
    return std::make_unique<scan>(*this, std::move(its_name));
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    if (index.description() != "halves") throw index_error("no halves", where{index.name(), std::nullopt, {}});
    return std::make_shared<halves>();
  }

 private:
  class scan final : public shard_scanner {
   public:
    scan(const pairs& format, std::string its_name) : builder_(format, std::move(its_name)) {
      builder_.describe("halves");
    }
    void add(const bytes& piece) override { all_ += piece.view(); }
    shard_index finish(std::uint64_t size, std::string etag) override {
      for (std::size_t at = 0; at < all_.size();) {
        const auto length = static_cast<std::size_t>(detail::read_le(all_, at, 4));
        builder_.add(at + 4, length, crc32c(0, all_.data() + at + 4, length));
        at += 4 + length;
      }
      return builder_.finish(size, std::move(etag), true);
    }

   private:
    sample_index_builder builder_;
    std::string all_;
  };
  class halves final : public shard_reader {
    void fill(sample& s, const shard_index::rows&, std::size_t, const bytes& record) const override {
      const std::size_t half = record.size() / 2;
      s.fields.emplace_back("left", record.slice(0, half));
      s.fields.emplace_back("right", record.slice(half, record.size() - half));
    }
  };
  std::string fields_;
};

std::string pairs_file(const std::vector<std::string>& records) {
  std::string out;
  for (const std::string& r : records) out += number(r.size()) + r;
  return out;
}

/// Groups of samples: a count, the lengths of the samples' two parts, and the parts, those of one column together with
/// their CRC32C in front.
class columns final : public shard_format {
 public:
  columns(bool as_text, bool checksums) : as_text_(as_text), checksums_(checksums) {}
  std::string_view name() const noexcept override { return "columns"; }
  task<shard_index> index(std::shared_ptr<const storage> from, shard object, std::string its_name,
                          std::shared_ptr<const void>) const override {
    return made(*this, std::move(from), std::move(object), std::move(its_name), checksums_);
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    return std::make_shared<groups>(index, as_text_);
  }
  /// `text`: which bits are wrong in what unpack() returns, for the test of the rows' checksums.
  mutable std::size_t wrong_texts = 0;

 private:
  static task<shard_index> made(const columns& format, std::shared_ptr<const storage> from, shard object,
                                std::string its_name, bool checksums) {
    detail::indexed_object source(from, std::move(object), 1 << 20);
    const bytes read = co_await source.read(0, 1 << 20);
    const std::string_view all = read.view();
    sample_index_builder builder(format, std::move(its_name));
    std::string description;
    std::uint64_t text = 0;
    for (std::size_t at = 0; at < all.size();) {
      builder.begin_group(at);
      const auto count = static_cast<std::size_t>(detail::read_le(all, at, 4));
      const std::size_t lengths = at + 4;
      std::size_t size[2] = {0, 0};
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t c = 0; c < 2; ++c) size[c] += detail::read_le(all, lengths + 8 * i + 4 * c, 4);
      }
      std::size_t next[2] = {lengths + 8 * count + 4, lengths + 8 * count + 8 + size[0]};
      description += number(next[0] - 4, 8) + number(next[1] - 4, 8) + number(next[1] + size[1], 8) + number(count, 8);
      at = next[1] + size[1];
      for (std::size_t i = 0; i < count; ++i) {
        std::string record;
        for (std::size_t c = 0; c < 2; ++c) {
          const auto length = static_cast<std::size_t>(detail::read_le(all, lengths + 8 * i + 4 * c, 4));
          description += number(length);
          record += all.substr(next[c], length);
          next[c] += length;
        }
        builder.add(text, record.size(), checksums ? crc32c(0, record.data(), record.size()) : 0);
        text += record.size();
      }
    }
    builder.describe(description);
    co_return builder.finish(source.size(), source.object().etag, checksums, source.size());
  }
  class loaded final : public sample_group {
   public:
    std::size_t first = 0;
    std::vector<std::string> left;
    std::vector<std::string> right;
    void fill(sample& s, std::size_t n) const override {
      s.fields.emplace_back("left", bytes::copy(left.at(n - first)));
      s.fields.emplace_back("right", bytes::copy(right.at(n - first)));
    }
  };
  class groups final : public shard_reader {
   public:
    groups(const shard_index& index, bool as_text)
        : index_(index), description_(index.description()), as_text_(as_text) {
      std::size_t first = 0;
      for (std::size_t at = 0; at < description_.size();) {
        begins_.push_back(at);
        firsts_.push_back(first);
        const auto count = static_cast<std::size_t>(detail::read_le(description_, at + 24, 8));
        first += count;
        at += 32 + 8 * count;
      }
    }
    void fill(sample& s, const shard_index::rows&, std::size_t n, const bytes& record) const override {
      std::size_t g = firsts_.size() - 1;
      while (firsts_[g] > n) --g;
      const auto half =
          static_cast<std::size_t>(detail::read_le(description_, begins_[g] + 32 + 8 * (n - firsts_[g]), 4));
      s.fields.emplace_back("left", record.slice(0, half));
      s.fields.emplace_back("right", record.slice(half, record.size() - half));
    }
    std::vector<object_range> ranges(const shard_index&, std::size_t g) const override {
      const std::uint64_t middle = detail::read_le(description_, begins_[g] + 8, 8);
      return {object_range(detail::read_le(description_, begins_[g], 8), middle),
              object_range(middle, detail::read_le(description_, begins_[g] + 16, 8))};
    }
    unpacked_group unpack(const shard&, std::size_t g, const std::vector<bytes>& parts) const override {
      std::size_t next[2] = {4, 4};
      for (const bytes& part : parts) {
        if (detail::read_le(part.view(), 0, 4) == crc32c(0, part.data() + 4, part.size() - 4)) continue;
        throw archive_error("a column is damaged", where{index_.name(), begins_[g], {}});
      }
      const auto count = static_cast<std::size_t>(detail::read_le(description_, begins_[g] + 24, 8));
      const auto made = std::make_shared<loaded>();
      made->first = firsts_[g];
      std::string text;
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t c = 0; c < 2; ++c) {
          const auto length =
              static_cast<std::size_t>(detail::read_le(description_, begins_[g] + 32 + 8 * i + 4 * c, 4));
          std::string part(parts[c].view().substr(next[c], length));
          text += part;
          (c == 0 ? made->left : made->right).push_back(std::move(part));
          next[c] += length;
        }
      }
      if (as_text_) return unpacked_group(bytes::copy(text));
      return unpacked_group(std::shared_ptr<const sample_group>(made));
    }

   private:
    const shard_index& index_;
    std::string description_;
    std::vector<std::size_t> begins_;
    std::vector<std::size_t> firsts_;
    bool as_text_;
  };

  bool as_text_;
  bool checksums_;
};

std::string columns_file(rng& random, const std::vector<std::string>& records) {
  std::string out;
  for (std::size_t first = 0; first < records.size();) {
    const std::size_t count = std::min<std::size_t>(1 + random.below(7), records.size() - first);
    out += number(count);
    std::string left;
    std::string right;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string& r = records[first + i];
      const std::size_t half = random.below(r.size() + 1);
      out += number(half) + number(r.size() - half);
      left += r.substr(0, half);
      right += r.substr(half);
    }
    out += number(crc32c(0, left.data(), left.size())) + left + number(crc32c(0, right.data(), right.size())) + right;
    first += count;
  }
  return out;
}

record_files drawn_records(rng& random, std::size_t files, std::size_t most) {
  record_files all;
  for (std::size_t f = 0; f < files; ++f) {
    std::vector<std::string>& its = all["f" + std::to_string(f)];
    for (std::size_t n = 1 + random.below(most); n > 0; --n) {
      std::string record(1 + random.below(60), '\0');
      for (char& c : record) c = static_cast<char>(random.below(256));
      its.push_back(std::move(record));
    }
  }
  return all;
}

using format_ptr = std::shared_ptr<const shard_format>;

std::shared_ptr<test::dataset_store> store_of(rng& random, const record_files& records, bool by_columns) {
  std::map<std::string, std::string> files;
  for (const auto& [name, its] : records) files[name] = by_columns ? columns_file(random, its) : pairs_file(its);
  return test::store_of(files);
}

}  // namespace

TEST_CASE("a format from outside is a dataset: every sample comes once an epoch, resumed at each step, on any ranks") {
  rng random(1);
  runtime rt;
  for (const bool by_columns : {false, true}) {
    const record_files records = drawn_records(random, 3, 14);
    const auto store = store_of(random, records, by_columns);
    if (!by_columns) store->objects["mem:d/index.json"] = "no shard";
    const test::temporary_folder folder;
    format_ptr format = std::make_shared<pairs>();
    if (by_columns) format = std::make_shared<columns>(true, true);
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                       {.index = folder.path() + "/index", .format = format, .slice = 4});
    epochs_options o{.seed = 5, .epochs = 2, .batch = 3};
    o.tracks = 4;
    test::check_trainings(rt, data, o, test::model_of(records, o, 4));
  }
}

TEST_CASE("formats from outside, drawn: bounds, parts and ranks change nothing") {
  rng random(2);
  runtime rt;
  for (int n = 0; n < 30; ++n) {
    CAPTURE(n);
    const record_files records = drawn_records(random, 1 + random.below(3), 80);
    const bool by_columns = n % 3 != 0;
    const auto store = store_of(random, records, by_columns);
    store->delay_us = random.below(2) * 300;
    const test::temporary_folder folder;
    format_ptr format = std::make_shared<pairs>();
    if (by_columns) format = std::make_shared<columns>(n % 3 == 1, n % 2 == 0);
    const std::uint64_t slice = 1 + random.below(8);
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                       {.index = folder.path() + "/index", .format = format, .slice = slice});
    const epochs_options o = test::drawn_options(random);
    trained(rt, data, o, {}, 1);  // makes the index: ranks that come after each other would wait for one another
    test::check_drawn_training(rt, random, data, o, test::model_of(records, o, slice));
  }
}

TEST_CASE("an index of a format from outside has its name, settings and description, and is refused with others") {
  rng random(3);
  const record_files records = drawn_records(random, 2, 20);
  const auto store = store_of(random, records, false);
  const test::temporary_folder folder;
  const std::string file = folder.path() + "/index";
  const auto of = [&](format_ptr format, const std::string& prefix = "mem:d/") {
    return dataset(std::shared_ptr<const storage>(store), prefix, {.index = file, .format = std::move(format)});
  };
  runtime rt;
  epochs_options o{.seed = 5, .epochs = 1, .batch = 3};
  const format_ptr format = std::make_shared<pairs>();
  trained(rt, of(format), o);
  CHECK(of(format).samples() == records.at("f0").size() + records.at("f1").size());
  const auto refused = [&](format_ptr other) {
    return failure_of([&] { static_cast<void>(of(std::move(other)).samples()); });
  };
  CHECK_THAT(refused(format_ptr(std::make_shared<pairs>("a,b"))),
             Contains("the index is of pairs (left,right), and dataset_options::format is pairs (a,b)"));
  CHECK_THAT(refused(format_ptr(std::make_shared<columns>(true, true))),
             Contains("dataset_options::format is columns"));
  CHECK_THAT(refused(line_shards()), Contains("the index is of pairs (left,right), and"));
  CHECK_THAT(refused(nullptr), Contains("dataset_options::format is tar"));
  const auto none = [&](format_ptr f) {
    return failure_of([&] { dataset(std::shared_ptr<const storage>(store), "mem:d/", {.format = std::move(f)}); });
  };
  CHECK_THAT(none(format), Contains("samples of pairs (left,right) need an index"));
  class own_tars final : public shard_format {
   public:
    std::string_view name() const noexcept override { return "own tars"; }
    std::shared_ptr<const shard_reader> reader(const shard_index&) const override { return nullptr; }
    bool of_tars() const noexcept override { return true; }
  };
  CHECK(none(std::make_shared<const own_tars>()) == "no error");
  const auto indexes = std::make_shared<const index_set>(open_indexes(file));
  CHECK((*indexes)[0].description() == "halves");
  CHECK_THAT(failure_of([&] { dataset(std::shared_ptr<const storage>(store), indexes, {.prefix = "mem:d/"}); }),
             Contains(".format is tar, and the indexes that are given are of pairs (left,right)"));
  // In a mix each member has its own.
  const dataset said(std::shared_ptr<const storage>(store), indexes, {.format = format, .prefix = "mem:d/"});
  const test::tar_dataset tars({9}, 20, 1, "d2/", store);
  const dataset mixed(
      {{said, 2}, {dataset(std::shared_ptr<const storage>(store), tars.indexes, {.prefix = tars.prefix})}});
  std::size_t pairs_seen = 0;
  std::size_t tars_seen = 0;
  o.tracks = 6;
  for (const sample& s : rt.run(epochs(mixed, o))) ++(s.find("left") != nullptr ? pairs_seen : tars_seen);
  CHECK(pairs_seen >= *said.samples());
  CHECK(tars_seen >= 9);
  // What is listed must have a shard.
  store->objects.clear();
  store->objects["mem:d/x.json"] = "{}";
  CHECK_THAT(failure_of([&] { trained(rt, of(format), o); }),
             Contains("none of the 1 objects that are listed is a shard of pairs (left,right)"));
}

TEST_CASE("indexes of formats from outside are read as they were written, and forged ones are refused or harmless") {
  rng random(4);
  const pairs plain;
  for (const bool grouped : {false, true}) {
    sample_index_builder builder(plain, "n");
    builder.describe(grouped ? std::string(70'000, 'd') : "halves");
    for (std::uint64_t i = 0; i < 600; ++i) {
      if (grouped && i % 100 == 0) builder.begin_group(i * 3);
      builder.add(i * 10, 5, static_cast<std::uint32_t>(i));
    }
    const shard_index index = builder.finish(6000, "\"v1\"", true, 5000);
    CHECK(index.groups() == (grouped ? 6U : 0U));
    if (grouped) {
      for (std::uint64_t i = 0; i < 600; ++i) CHECK(index.group_of(index.offset(i)) == i / 100);
      CHECK(index.group(5).begin == 1500);
      CHECK(index.group(5).end == 5000);
      CHECK(index.group_text_end(5) == 5995);
    }
    std::string text;
    write_indexes(std::vector<shard_index>{index}, text);
    CHECK(read_indexes(text, "x").at(0) == index);
    const auto paged = detail::open_index_text(text, nullptr, "x");
    CHECK(paged.at(0) == index);
    CHECK(paged[0].digest() == index.digest());
    CHECK(paged[0].description() == index.description());
    CHECK(paged[0].offset(599) == 5990);
    const std::string alone = index.text();
    std::size_t read = 0;
    for (int n = 0; n < 2000; ++n) {
      std::string wrong = alone;
      const std::size_t at = 12 + random.below(n % 2 == 0 ? 100 : wrong.size() - 16);
      wrong[at] = static_cast<char>(random.below(256));
      wrong.resize(wrong.size() - 4);
      wrong += number(crc32c(0, wrong.data(), wrong.size()));
      std::string_view rest = wrong;
      try {
        const shard_index other = shard_index::read(rest, "x");
        for (std::size_t i = 0; i < other.samples(); ++i) {
          if (other.groups() != 0) CHECK(other.group_of(other.offset(i)) < other.groups());
        }
        static_cast<void>(other.description());
        ++read;
      } catch (const index_error&) {
      }
    }
    CHECK(read > 100);
  }
  sample_index_builder builder(plain, "n");
  CHECK_THAT(failure_of([&] { builder.add(0, std::uint64_t{1} << 32); }), Contains("n at byte 0: sample 0 has 4 GiB"));
  builder.add(10, 5);
  CHECK_THAT(failure_of([&] { builder.add(14, 1); }), Contains("n at byte 14: sample 1 begins before the one before"));
  CHECK_THAT(failure_of([&] { builder.add(std::uint64_t{1} << 48, 1); }), Contains("lies beyond 256 TiB"));
  CHECK_THAT(failure_of([&] { builder.begin_group(0); }), Contains("begins a group"));
  CHECK_THAT(failure_of([&] { static_cast<void>(builder.finish(14, {}, false)); }),
             Contains("beyond the object's end"));
}

TEST_CASE("what comes damaged of a format from outside is read once more, and refused by object and sample") {
  rng random(5);
  const record_files records = drawn_records(random, 1, 20);
  epochs_options o{.seed = 5, .epochs = 1, .batch = 1};
  o.tracks = 1;
  runtime rt;
  for (const int kind : {0, 1, 2}) {
    CAPTURE(kind);
    const auto store = store_of(random, records, kind != 0);
    format_ptr format = std::make_shared<pairs>();
    if (kind != 0) format = std::make_shared<columns>(kind == 1, true);
    const auto line = std::make_shared<test::damaging_storage>(store);
    const test::temporary_folder folder;
    const std::string url = "mem:d/f0";
    const std::size_t byte = store->objects.at(url).size() - 1;
    const auto train = [&] {
      const dataset data(std::shared_ptr<const storage>(line), {shard(url)},
                         {.index = folder.path() + "/index", .format = format, .prefix = "mem:d/", .slice = 64});
      return trained(rt, data, o).samples;
    };
    const test::seen_samples wanted = test::model_of(records, o, 64);
    CHECK(train() == wanted);
    test::captured_stderr log(test::captured_stderr::into::pipe);
    line->damage(url, byte);
    CHECK(train() == wanted);
    CHECK(line->second_readings() >= 1);
    CHECK(line->flips() == 1);
    CHECK_THAT(log.text(), Contains(kind == 0 ? "CRC32C" : "a column is damaged"));
    store->objects[url][byte] = static_cast<char>(store->objects[url][byte] ^ 4);
    const std::string said = failure_of([&] { train(); });
    CHECK_THAT(said, Contains(kind == 0 ? "mem:d/f0" : "f0"));
    CHECK_THAT(said, Contains("read twice"));
  }
}

TEST_CASE("with on_failure::skip a group that is damaged loses its samples alone") {
  rng random(6);
  const record_files records = drawn_records(random, 2, 40);
  epochs_options o{.seed = 5, .epochs = 1, .batch = 1};
  o.tracks = 3;
  runtime rt;
  for (const bool as_text : {false, true}) {
    const auto store = store_of(random, records, true);
    const format_ptr format = std::make_shared<columns>(as_text, true);
    const test::temporary_folder folder;
    const std::string file = folder.path() + "/index";
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/", {.index = file, .format = format, .slice = 4});
    test::seen_samples wanted = trained(rt, data, o).samples;
    std::string& object = store->objects["mem:d/f0"];
    object.back() = static_cast<char>(object.back() ^ 1);
    const shard_index index = open_indexes(file).at(0);
    const std::uint64_t lost_from = index.group(index.groups() - 1).text;
    for (std::size_t i = 0; i < index.samples(); ++i) {
      if (index.offset(i) < lost_from) continue;
      std::erase_if(wanted, [&](const auto& s) { return s.second.substr(0, s.second.find('|')) == index.key(i); });
    }
    CHECK(wanted.size() < *data.samples());
    CHECK_FALSE(wanted.empty());
    CHECK(failure_of([&] { trained(rt, data, o); }) != "no error");
    epochs_options skipping = o;
    skipping.failures.then = on_failure::skip;
    CHECK(trained(rt, data, skipping).samples == wanted);
  }
}

TEST_CASE("a group is read about 1 + 1/k times an epoch by slices of k groups") {
  rng random(7);
  const record_files records = {{"f0", std::vector<std::string>(1000, std::string(50, 'x'))}};
  const auto store = store_of(random, records, true);
  const test::temporary_folder folder;
  runtime rt;
  double before = 1e9;
  for (const std::uint64_t slice : {4U, 16U, 64U}) {  // groups have 1 to 7 samples
    const dataset data(
        std::shared_ptr<const storage>(store), "mem:d/",
        {.index = folder.path() + "/index", .format = std::make_shared<columns>(true, true), .slice = slice});
    epochs_options o{.seed = 5, .epochs = 1, .batch = 1};
    o.tracks = 1;
    trained(rt, data, o, {}, 1);
    store->read_bytes = 0;
    trained(rt, data, o);
    const double times =
        static_cast<double>(store->read_bytes) / static_cast<double>(store->objects["mem:d/f0"].size());
    std::printf("slices of %d groups of 4 samples: each is read %.2f times\n", static_cast<int>(slice / 4), times);
    CHECK(times < 1.15 + 4.0 / static_cast<double>(slice));
    CHECK(times < before);
    before = times;
  }
}
