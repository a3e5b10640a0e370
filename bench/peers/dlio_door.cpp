// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The module of Python with which dlio_loaders.py feeds DLIO: batches of the files that DLIO has made, npz or TFRecord.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <millrace/decode/decode_arrays.hpp>
#include <millrace/device/batch_rows.hpp>
#include <millrace/formats/object_samples.hpp>
#include <millrace/formats/tfrecord_shards.hpp>
#include <millrace/records/tf_example.hpp>
#include <millrace/train.hpp>

#include "millrace_python.hpp"

namespace mill = millrace;
namespace nb = nanobind;

namespace {

/// A sample, as a square of the first of its bytes: what DLIO's own loaders say that it was resized to.
class square {
 public:
  mill::sample of;
  mill::bytes image;
  std::size_t side = 0;

  static constexpr bool writes_whole_rows = true;

  mill::batch_layout layout(std::size_t samples) const {
    const auto extent = static_cast<std::int64_t>(side);
    return mill::batch_layout(samples, {{"image", mill::dtype::u8, {extent, extent}}});
  }
  void write_to(const mill::batch_row& row) const {
    const std::span<std::uint8_t> to = row.values<std::uint8_t>("image");
    const std::size_t n = std::min(to.size(), image.size());
    std::memcpy(to.data(), image.data(), n);
    std::memset(to.data() + n, 0, to.size() - n);
    row.key(of.key);
  }

  friend const mill::sample& place_of(const square& s) noexcept { return s.of; }
  friend mill::epoch_mark mark_of(const square& s) noexcept { return s.of.mark; }
  friend std::size_t byte_size(const square& s) noexcept { return s.image.size(); }
  friend const mill::bytes* slice_of(const square& s) noexcept { return &s.image; }
  friend square compact_slices(square s) {
    s.image = s.image.compact();
    return s;
  }
};

/// Makes squares of samples: of the array "x" of archives, or of the feature "image" of records.
class squares {
 public:
  squares(bool archives, std::size_t side) : archives_(archives), side_(side) {}
  square operator()(mill::sample s) const {
    square made{{}, {}, side_};
    made.image = archives_ ? mill::read_arrays(s, {"x"})["x"].memory()
                           : mill::tf_example(s["record"], s.from.at(s.key), {"image"})["image"].strings.at(0);
    made.of = std::move(s);
    made.of.fields.clear();
    return made;
  }
  square in_place_of(const mill::epoch_mark& mark) const {
    square hole{{}, {}, side_};
    hole.of.mark = mark;
    return hole;
  }

 private:
  bool archives_;
  std::size_t side_;
};

/// `folder`: of files of `format`, "npz" or "tfrecord". `index`: the file that says what they hold, made by the first
/// run. `side`: of the squares that batches have.
nb::object training(const std::string& folder, const std::string& format, const std::string& index, std::uint64_t seed,
                    std::uint64_t epochs, std::size_t batch, std::size_t side) {
  const bool archives = format == "npz";
  const mill::dataset files(mill::files(), folder,
                            {.index = index, .format = archives ? mill::object_samples() : mill::tfrecord_shards()});
  const std::size_t bytes = archives ? mill::GiB : 0;  // several of 146 MB at once
  auto samples = mill::epochs(
      files, {.seed = seed, .epochs = epochs, .batch = batch, .rank = mill::rank_from_environment(), .bytes = bytes});
  const squares made(archives, side);
  mill::stream<square> rows = archives
                                  ? std::move(samples) | mill::map_concurrent(made, {.bytes = bytes})  // it unpacks
                                  : std::move(samples) | mill::map(made);
  return millrace_python::run(std::move(rows) | mill::batch());
}

}  // namespace

NB_MODULE(dlio_door, m) {
  millrace_python::add_classes<mill::host_batch>(m);
  m.def("training", &training, nb::arg("folder"), nb::kw_only(), nb::arg("format"), nb::arg("index"),
        nb::arg("seed") = 0, nb::arg("epochs") = 1, nb::arg("batch") = 1, nb::arg("side") = 1);
}
