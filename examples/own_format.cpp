// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A format of your own: CSV files whose first line names the columns. Each further line is a sample, each column a
// field. With that alone a dataset has all that epochs() promises: an order, equal ranks, states, checksums.
//
// example_own_format FOLDER      of .csv files; the index is made there, as FOLDER/csv.index

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/train/dataset.hpp>

namespace mill = millrace;

namespace {

std::vector<std::string> columns_of(std::string_view line) {
  std::vector<std::string> all;
  for (;;) {
    const std::size_t comma = line.find(',');
    all.emplace_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return all;
    line.remove_prefix(comma + 1);
  }
}

/// Finds the lines of a file, which come in pieces that end anywhere.
class csv_scanner final : public mill::shard_scanner {
 public:
  csv_scanner(const mill::shard_format& format, std::string name, mill::shard object)
      : index_(format, std::move(name)), object_(std::move(object)) {}

  void add(const mill::bytes& piece) override {
    std::string_view rest = piece.view();
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      take(rest.substr(0, end));
      end_line(1);
      rest.remove_prefix(end + 1);
    }
    take(rest);
  }
  mill::shard_index finish(std::uint64_t size, std::string etag) override {
    if (size_ > 0) end_line(0);
    index_.describe(head_);
    return index_.finish(size, std::move(etag), true);
  }

 private:
  void take(std::string_view part) {
    if (part.find('"') != std::string_view::npos) {
      throw mill::decode_error("quotes are not read here", mill::where{object_.shown(), begin_, {}});
    }
    if (begin_ == 0) head_ += part;
    crc_ = mill::crc32c(crc_, part.data(), part.size());
    size_ += part.size();
  }
  void end_line(std::uint64_t line_feed) {
    if (begin_ > 0) index_.add(begin_, size_, crc_);
    begin_ += size_ + line_feed;
    size_ = 0;
    crc_ = 0;
  }

  mill::sample_index_builder index_;
  mill::shard object_;
  std::string head_;
  std::uint64_t begin_ = 0;  // of the line
  std::uint64_t size_ = 0;   // so far
  std::uint32_t crc_ = 0;
};

/// Cuts a line into fields.
class csv_reader final : public mill::shard_reader {
 public:
  explicit csv_reader(std::vector<std::string> columns) : columns_(std::move(columns)) {}

  void fill(mill::sample& s, const mill::shard_index::rows&, std::size_t, const mill::bytes& line) const override {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::size_t comma = line.view().find(',', begin);
      const std::size_t end = comma == std::string_view::npos ? line.size() : comma;
      if ((i + 1 == columns_.size()) != (comma == std::string_view::npos)) {
        throw mill::decode_error("the line does not have as many columns as the first one", s.from.at(s.key));
      }
      s.fields.emplace_back(columns_[i], line.slice(begin, end - begin));  // no copy: a slice of what was read
      begin = end + 1;
    }
  }

 private:
  std::vector<std::string> columns_;
};

class csv final : public mill::shard_format {
 public:
  std::string_view name() const noexcept override { return "csv"; }
  std::vector<mill::shard> choose(std::vector<mill::shard> listed) const override {
    std::erase_if(listed, [](const mill::shard& s) { return !s.url.ends_with(".csv"); });
    return listed;
  }
  std::unique_ptr<mill::shard_scanner> scanner(std::string its_name, const mill::shard& object,
                                               std::shared_ptr<const void>) const override {
    return std::make_unique<csv_scanner>(*this, std::move(its_name), object);
  }
  std::shared_ptr<const mill::shard_reader> reader(const mill::shard_index& index) const override {
    return std::make_shared<const csv_reader>(columns_of(index.description()));
  }
  /// Files with other columns are refused, with the names of two.
  std::vector<mill::shard_field> fields(const mill::shard_index& index) const override {
    std::vector<mill::shard_field> all;
    for (std::string& column : columns_of(index.description())) all.emplace_back(std::move(column), "text");
    return all;
  }
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 2;
  }
  const std::string folder = arguments[1];
  try {
    const mill::dataset rows(mill::files(), folder,
                             {.index = folder + "/csv.index", .format = std::make_shared<const csv>()});
    auto run = mill::run(mill::epochs(rows, {.seed = 7, .epochs = 2}));
    std::size_t samples = 0;
    double weight = 0;
    for (const mill::sample& s : run) {
      ++samples;
      weight += std::atof(std::string(s["weight"].view()).c_str());
    }
    std::printf("%zu samples in two epochs, of a total weight of %g\n", samples, weight);
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
