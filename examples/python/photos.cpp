// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A module of Python with one function: a training on images in tar archives, with their classes (NAME.png, NAME.cls),
// on any number of ranks. train.py, in this folder, is a training with it.

#include <cstddef>
#include <cstdint>
#include <string>

#include <millrace/decode/decode_images.hpp>
#include <millrace/train.hpp>

#include "millrace_python.hpp"

namespace mill = millrace;
namespace nb = nanobind;

namespace {

// begin training
/// `shards`: a pattern of files. `index`: the file that says what they hold, made by the first run. `meet`: a folder
/// that all ranks see, where they agree on the batch after which they stop. `state`: a Loader's, to go on after it.
nb::object training(const std::string& shards, const std::string& index, const std::string& meet, std::uint64_t seed,
                    std::uint64_t epochs, std::size_t batch, int side, const std::string& state) {
  const mill::rank mine = mill::rank_from_environment();
  const mill::rank_group ranks =
      mine.world_size == 1 ? mill::rank_group() : mill::rank_group(mine, mill::files(), meet);
  const mill::dataset photos(mill::files(), shards, {.index = index});
  return millrace_python::run(
      mill::epochs(photos, {.seed = seed, .epochs = epochs, .batch = batch, .ranks = ranks}, state) |
      mill::decode_images(
          {.height = side, .width = side, .layout = mill::image_layout::chw, .type = mill::dtype::f32}) |
      mill::batch());
}
// end training

}  // namespace

// begin module
NB_MODULE(photos, m) {
  millrace_python::add_classes<mill::host_batch>(m);
  m.def("training", &training, nb::arg("shards"), nb::kw_only(), nb::arg("index"), nb::arg("meet") = "",
        nb::arg("seed") = 0, nb::arg("epochs") = 1, nb::arg("batch") = 32, nb::arg("side") = 224,
        nb::arg("state") = "");
}
// end module
